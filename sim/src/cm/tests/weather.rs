//! What holds whatever the network does, and whatever a stranger says.

use super::*;
use proptest::prelude::*;

/// What the network does, drawn.
#[derive(Clone, Debug)]
struct Weather {
    /// Of 8.
    loss: u8,
    twice: u8,
    /// The longest way, in ms; a retry comes after 6442.
    late: u64,
    /// At most so many of a kind of message are lost in a row, at either end; `None` for any number.
    mercy: Option<u32>,
    seed: u64,
}

fn weather(mercy: impl Strategy<Value = Option<u32>>) -> impl Strategy<Value = Weather> {
    (
        0u8..=7,
        0u8..=7,
        prop_oneof![Just(1), Just(20_000u64)],
        mercy,
        any::<u64>(),
    )
        .prop_map(|(loss, twice, late, mercy, seed)| Weather {
            loss,
            twice,
            late,
            mercy,
            seed,
        })
}

impl Weather {
    fn fate(&self) -> impl FnMut(&Outgoing) -> Vec<Span> {
        let mut random = Stream::new(self.seed, "weather");
        let mut lost: BTreeMap<(Gid, &'static str), u32> = BTreeMap::new();
        let w = self.clone();
        move |out| {
            let row = lost.entry((out.to, out.mad.message.name())).or_default();
            if random.below(8) < w.loss.into() && w.mercy.is_none_or(|most| *row < most) {
                *row += 1;
                return vec![];
            }
            *row = 0;
            let copies = 1 + usize::from(random.below(8) < w.twice.into());
            (0..copies)
                .map(|_| Span::from_us(1 + random.below(w.late * 1000)))
                .collect()
        }
    }
}

/// Ends what there is, over a network that works, and sees that nothing is left.
fn end_of_the_world(w: &mut World) -> Result<(), TestCaseError> {
    w.wire.clear();
    for end in 0..2 {
        let ids: Vec<_> = w.ends[end].connections.keys().copied().collect();
        for id in ids {
            if w.ends[end].phase(id) == Some(Phase::Established) {
                w.ends[end].disconnect(w.now, id).unwrap();
            }
        }
    }
    w.run(&mut at_once);
    for end in 0..2 {
        prop_assert!(w.ends[end].is_empty(), "{:?} {:?}", w.phases(), w.sent);
        prop_assert!(w.ends[end].by_qp.is_empty() && w.ends[end].by_remote.is_empty());
        prop_assert!(w.ends[end].deadlines.is_empty());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    // At most two losses in a row: both a REP and the RTU it calls for come through within the retries.
    #[test]
    fn whatever_the_weather_a_connection_is_made(weather in weather((0u32..3).prop_map(Some))) {
        let mut w = World::new();
        w.ends[1].listen(SERVICE).unwrap();
        w.ends[0].connect(w.now, &connect_to(1)).unwrap();
        w.run(&mut weather.fate());
        prop_assert_eq!(w.phases(), [vec![Phase::Established], vec![Phase::Established]], "{:?}", w.sent);
        prop_assert_eq!(w.names(0), ["CONNECT_RESPONSE", "ESTABLISHED"]);
        prop_assert_eq!(w.names(1), ["CONNECT_REQUEST", "ESTABLISHED"]);
        // And ended, over the same network.
        let id = w.events[0][0].id();
        w.ends[0].disconnect(w.now, id).unwrap();
        w.run(&mut weather.fate());
        for end in 0..2 {
            prop_assert_eq!(&w.names(end)[2..], ["DISCONNECTED", "TIMEWAIT_EXIT"]);
        }
        end_of_the_world(&mut w)?;
    }

    // Any number of losses. That one end alone believes in the connection cannot be ruled out (its last word may always be the
    // one that is lost); but then the other has said so, and the first word of the believer's ends it.
    #[test]
    fn no_end_waits_for_ever(weather in weather(Just(None))) {
        let mut w = World::new();
        w.ends[1].listen(SERVICE).unwrap();
        w.ends[0].connect(w.now, &connect_to(1)).unwrap();
        w.run(&mut weather.fate());
        match w.phases().each_ref().map(|p| &p[..]) {
            [[Phase::Established], [Phase::Established]] | [[], []] => {}
            [[Phase::Established], []] => prop_assert!(weather.loss > 0),
            other => prop_assert!(false, "{:?} {:?}", other, w.sent),
        }
        end_of_the_world(&mut w)?;
    }

    #[test]
    fn a_datagram_service_is_found_in_any_weather(weather in weather((0u32..3).prop_map(Some))) {
        let service = ServiceId::ip(PortSpace::Udp, 7174);
        let mut w = World::new();
        w.ends[1].listen(service).unwrap();
        let resolve = Resolve { service, src_port: 1, peer: gid(1), private_data: &[] };
        w.ends[0].resolve(w.now, &resolve).unwrap();
        w.run(&mut weather.fate());
        prop_assert_eq!(w.names(0), ["ESTABLISHED"]);
        prop_assert_eq!(w.names(1), ["CONNECT_REQUEST"]);
        end_of_the_world(&mut w)?;
    }

    // Words of a stranger, about connections that are there and others.
    #[test]
    fn whatever_is_said_it_answers_in_few_words_and_forgets(
        said in proptest::collection::vec((proptest::collection::vec(any::<u8>(), MAD_LEN_OF_BODY), 0x10u16..=0x1a, 0u8..4), 1..40),
    ) {
        let (mut w, asked, taken) = connected();
        for (mut body, attribute, which) in said {
            // Half of the time it names a connection, and the right queue pair.
            if which > 1 {
                let id = [asked, taken][usize::from(which - 2)];
                body[4..8].copy_from_slice(&id.0.to_be_bytes());
                body[8..11].copy_from_slice(&[0, 1, 1]);
            }
            let header = crate::wire::mad::MadHeader::communication(1, attribute).to_bytes();
            let mad = Mad::decode(&[&header[..], &body].concat()).unwrap();
            let end = usize::from(which % 2 == 0);
            w.ends[end].receive(w.now, &mad, gid(1 - end));
            prop_assert!(w.ends[end].messages.len() <= 2);
            w.drain(&mut |_| vec![]);
        }
        w.willing = false;
        w.run(&mut at_once);
        end_of_the_world(&mut w)?;
    }
}

const MAD_LEN_OF_BODY: usize = crate::wire::cm::MAD_LEN - crate::wire::mad::MadHeader::LEN;
