//! What partners exchange, and what they must not say.

use super::*;

/// What a partner says is held against what can be, before a program has it.
#[test]
fn partners_that_say_what_cannot_be_are_refused() {
    type Hear = fn(&mut Partner) -> Result<()>;
    let swap: Hear = |p| {
        let own = Endpoint {
            qp: QpNumber::new(2),
            psn: Psn::new(3),
            gid: Gid([0; 16]),
        };
        p.swap(&own).map(|_| ())
    };
    let memory: Hear = |p| {
        let own = Remote {
            addr: 1,
            rkey: RemoteKey(2),
        };
        p.swap_memory(own, 3).map(|_| ())
    };
    let barrier: Hear = Partner::barrier;
    let endpoint = |qp: u32, psn: u32| {
        let gid = [0; 16];
        [&qp.to_be_bytes()[..], &psn.to_be_bytes(), &gid].concat()
    };
    let region =
        |addr: u64, len: u64| [&addr.to_be_bytes()[..], &[0; 4], &len.to_be_bytes()].concat();
    for (hear, said, told) in [
        (swap, endpoint(0xff_ffff, 0xff_ffff), None),
        (
            swap,
            endpoint(1 << 24, 0),
            Some("queue pair 16777216; at most 16777215"),
        ),
        (
            swap,
            endpoint(0, u32::MAX),
            Some("PSN 4294967295; at most 16777215"),
        ),
        (
            swap,
            Vec::new(),
            Some("0 bytes where a queue pair's 24 bytes"),
        ),
        (
            swap,
            vec![0; 65_536],
            Some("65536 bytes where a queue pair's 24 bytes"),
        ),
        (memory, region(u64::MAX - 8, 8), None),
        (memory, region(u64::MAX - 8, 9), Some("there are at most 8")),
        (
            memory,
            region(u64::MAX, u64::MAX),
            Some("there are at most 0"),
        ),
        (memory, vec![0; 19], Some("19 bytes where memory, 20 bytes")),
        (barrier, b"barrier".to_vec(), None),
        (
            barrier,
            b"barrier ".to_vec(),
            Some("8 bytes where a barrier"),
        ),
    ] {
        let mut world = World::new(network());
        for (host, role) in [("h0", CLIENT), ("h1", SERVER)] {
            let said = said.clone();
            world
                .start(host, move |context| -> Result<()> {
                    let mut partner = context.exchange(&role)?;
                    match role.is_server() {
                        true => hear(&mut partner),
                        false => partner.send(&said).and(partner.receive()).map(|_| ()),
                    }
                })
                .unwrap();
        }
        let heard = world.run().pop().unwrap();
        match told {
            None => assert!(heard.is_ok(), "{heard:?}"),
            Some(told) => match heard {
                Err(Error::Protocol(text)) => assert!(text.contains(told), "{text}"),
                other => panic!("{told}: {other:?}"),
            },
        }
    }
}

#[test]
fn who_waits_for_a_partner_that_has_ended_is_told() {
    let mut world = World::new(network());
    world
        .start("h0", |context| context.exchange(&CLIENT).map(drop))
        .unwrap();
    world
        .start("h1", |context| {
            context.exchange(&SERVER)?.receive().map(drop)
        })
        .unwrap();
    let outcomes: Vec<Result<()>> = world.run();
    assert!(outcomes[0].is_ok());
    assert!(
        matches!(outcomes[1], Err(Error::Exchange { .. })),
        "{outcomes:?}"
    );
}

#[test]
fn who_looks_for_a_message_is_told_that_there_is_none_or_nobody() {
    let mut world = World::new(network());
    world
        .start("h0", |context| {
            let mut partner = context.exchange(&CLIENT)?;
            context.sleep(Duration::from_micros(1))?;
            partner.send(b"one")?;
            context.sleep(Duration::from_micros(1))
        })
        .unwrap();
    world
        .start("h1", |context| {
            let mut partner = context.exchange(&SERVER)?;
            assert_eq!(partner.try_receive()?, None);
            context.sleep(Duration::from_nanos(1500))?;
            assert_eq!(partner.try_receive()?.as_deref(), Some(&b"one"[..]));
            assert_eq!(partner.try_receive()?, None);
            context.sleep(Duration::from_micros(1))?;
            let gone = partner.try_receive().unwrap_err().to_string();
            assert!(gone.contains("it has ended"), "{gone}");
            Ok(())
        })
        .unwrap();
    let outcomes: Vec<Result<()>> = world.run();
    for outcome in outcomes {
        outcome.unwrap();
    }
}
