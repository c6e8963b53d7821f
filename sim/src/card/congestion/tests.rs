//! What all controllers have in common, and what a card tells them.

use super::*;
use crate::card::{Card, CardConfig, QpType};
use crate::fabric::machine::{FlowOperation, FlowSpec, Machine, connect};
use crate::fabric::{
    Action, Config, Fault, HostId, LinkSpec, Network, Pattern, PayloadMode, Topology,
};
use crate::time::Span;
use crate::wire::RouteTable;
use std::sync::{Arc, Mutex};

const LINE: Rate = Rate::from_gbps(40);

/// One that has nothing of its own.
#[derive(Debug)]
struct Still;

impl Controller for Still {
    fn rate(&mut self, _: Time) -> Option<Rate> {
        None
    }
    fn state(&self, _: Time) -> CongestionState {
        unreachable!("nobody asks")
    }
}

#[test]
fn a_controller_limits_and_heeds_nothing_by_itself() {
    let mut still = Still;
    assert_eq!(still.rises_at(), Time::NEVER);
    assert_eq!(still.window(), None);
    assert!(!still.notified(Time::ZERO));
}

#[test]
fn names_are_those_of_scenario_files() {
    let all = [
        CongestionControl::None,
        CongestionControl::Fixed(Fixed::default()),
        CongestionControl::Dcqcn(Dcqcn::PAPER),
    ];
    assert_eq!(all.map(|c| c.name()), ["none", "fixed", "dcqcn"]);
    assert_eq!(all.map(|c| c.heeds_marks()), [false, false, true]);
    assert_eq!(all.map(|c| c.check(LINE)), [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn every_algorithm_has_its_parameters_checked() {
    let slow = Rate::from_gbps(10);
    let says = |c: CongestionControl| c.check(slow).unwrap_err().to_string();
    assert_eq!(
        says(CongestionControl::Fixed(Fixed::rate(LINE))),
        "rate is 40Gbps; it must be no more than the port's 10Gbps"
    );
    let dcqcn = Dcqcn {
        hyper: LINE,
        ..Dcqcn::PAPER
    };
    assert_eq!(
        says(CongestionControl::Dcqcn(dcqcn)),
        "hyper is 40Gbps; it must be no more than the port's 10Gbps"
    );
    let equal = CongestionControl::Fixed(Fixed::rate(slow));
    assert_eq!(equal.check(slow), Ok(()));
}

#[test]
fn a_window_is_a_share_of_itself_if_it_follows_the_rate() {
    let window = |bytes, follows_rate| Window {
        bytes,
        follows_rate,
    };
    for gbps in [1, 10, 40] {
        let rate = Rate::from_gbps(gbps);
        assert_eq!(window(80_001, false).at(rate, LINE), 80_001);
        let share = 80_001 * u64::from(gbps) / 40;
        assert_eq!(window(80_001, true).at(rate, LINE), share);
    }
    // No overflow on the way.
    assert_eq!(window(u64::MAX, true).at(LINE, LINE), u64::MAX);
}

/// Notes what it is told.
#[derive(Clone, Debug, Default)]
struct Notes(Arc<Mutex<Vec<Note>>>);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Note {
    Sent(u32),
    Acked(u64, Option<Span>),
    Lost(Loss),
}

impl Notes {
    fn add(&self, note: Note) {
        self.0.lock().unwrap().push(note);
    }

    fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Controller for Notes {
    fn rate(&mut self, _: Time) -> Option<Rate> {
        None
    }
    fn sent(&mut self, _: Time, bytes: u32) {
        self.add(Note::Sent(bytes));
    }
    fn acknowledged(&mut self, _: Time, acked: &Acked) -> bool {
        self.add(Note::Acked(acked.packets, acked.rtt));
        false
    }
    fn lost(&mut self, _: Time, loss: Loss) {
        self.add(Note::Lost(loss));
    }
    fn state(&self, _: Time) -> CongestionState {
        unreachable!("nobody asks")
    }
}

/// A message of four packets to a neighbour 1 us away at 100 Gb/s, the `lost`-th of them, from 0, lost: what the
/// sender's controller hears of it.
fn hears(transport: QpType, ack_every: u32, lost: Option<u64>) -> Vec<Note> {
    let notes = Notes::default();
    controlled(transport, ack_every, lost, Box::new(notes.clone()));
    notes.take()
}

/// As [`hears`], for any controller; gives the events that it took.
fn controlled(
    transport: QpType,
    ack_every: u32,
    lost: Option<u64>,
    controller: Box<dyn Controller>,
) -> u64 {
    let link = LinkSpec::new(Rate::from_gbps(100), Span::from_us(1));
    let topology = Topology::back_to_back(link);
    let config = Config {
        seed: 1,
        payload: PayloadMode::Counted,
        routes: RouteTable::new(),
    };
    let table = config.routes.clone();
    let mut net: Network<Machine> = Network::new(&topology, config, (), |_, node| {
        let config = CardConfig {
            ack_every,
            ..CardConfig::new(&*node.name, node.gid(), node.mac)
        };
        Machine::new(Card::new(config, 1, table.clone()), 64).unwrap()
    })
    .unwrap();
    if let Some(phase) = lost {
        let nth = Pattern::Every { n: 1000, phase };
        let way = topology.channel_between("h0", "h1").unwrap();
        let drop = Fault::new(Action::Drop).when(nth);
        net.inject(way, drop).unwrap();
    }
    let spec = FlowSpec {
        transport,
        ..FlowSpec::new(FlowOperation::Write, 4096, 1)
    };
    let id = connect(&mut net, HostId::new(0), HostId::new(1), &spec).unwrap();
    let number = net.host(id.host).flow_qp(id.flow);
    let card = net.host_mut(id.host).card_mut();
    let index = card.index_of(number).unwrap();
    card.qps[index].as_deref_mut().unwrap().limiter = Some(Box::new(Limiter::new(controller)));
    let before = net.event_count();
    net.kick(id.host);
    assert!(net.run_until_idle(Time::NEVER));
    net.event_count() - before
}

/// The four packets; the first has 16 bytes more.
const FOUR: [Note; 4] = [
    Note::Sent(1122),
    Note::Sent(1106),
    Note::Sent(1106),
    Note::Sent(1106),
];

/// From when a packet of `bytes` begins to be sent to when its acknowledgement, 86 bytes on the wire, is there.
fn rtt(bytes: u64) -> Option<Span> {
    Some(Span::from_ps((bytes + 86) * 80 + 2_000_000))
}

#[test]
fn a_controller_hears_of_what_is_sent_and_answered() {
    let one_by_one = [
        Note::Acked(1, rtt(1122)),
        Note::Acked(1, None),
        Note::Acked(1, None),
        Note::Acked(1, None),
    ];
    let heard = hears(QpType::Rc, 1, None);
    assert_eq!(heard, [FOUR, one_by_one].concat());
    // The last packet alone asks for an acknowledgement, so that it alone is measured.
    let heard = hears(QpType::Rc, 64, None);
    assert_eq!(heard, [&FOUR[..], &[Note::Acked(4, rtt(1106))]].concat());
    // Nobody answers.
    assert_eq!(hears(QpType::Uc, 64, None), FOUR);
}

#[test]
fn a_controller_hears_of_losses_and_what_is_sent_again_is_not_measured() {
    let again = [
        Note::Acked(1, rtt(1122)),
        Note::Lost(Loss::Nak),
        Note::Sent(1106),
        Note::Sent(1106),
        Note::Sent(1106),
        Note::Acked(1, None),
        Note::Acked(1, None),
        Note::Acked(1, None),
    ];
    let heard = hears(QpType::Rc, 1, Some(1));
    assert_eq!(heard, [&FOUR[..], &again[..]].concat());
    let timeout = [Note::Lost(Loss::Timeout)];
    let heard = hears(QpType::Rc, 64, Some(3));
    // Copies of what had arrived are acknowledged as well.
    let answers = [Note::Acked(3, None), Note::Acked(1, None)];
    assert_eq!(heard, [&FOUR[..], &timeout, &FOUR, &answers].concat());
}

/// Holds everything back but one packet in 10 us, until something is acknowledged. Notes when packets go.
#[derive(Clone, Debug, Default)]
struct ByAnswers {
    open: bool,
    sent: Arc<Mutex<Vec<u64>>>,
}

impl Controller for ByAnswers {
    fn rate(&mut self, _: Time) -> Option<Rate> {
        (!self.open).then_some(Rate::from_mbps(1000))
    }
    fn sent(&mut self, now: Time, _: u32) {
        self.sent.lock().unwrap().push(now.as_ps());
    }
    fn acknowledged(&mut self, _: Time, _: &Acked) -> bool {
        self.open = true;
        true
    }
    fn state(&self, _: Time) -> CongestionState {
        unreachable!("nobody asks")
    }
}

#[test]
fn a_rate_that_an_answer_raises_is_used_at_once() {
    let controller = ByAnswers::default();
    let sent = controller.sent.clone();
    controlled(QpType::Rc, 1, None, Box::new(controller));
    // At 1 Gb/s the second would go after 8.976 us; its leave comes with the first acknowledgement.
    let second = (1122 + 86) * 80 + 2_000_000;
    let next = |n: u64| second + n * 1106 * 80;
    assert_eq!(
        *sent.lock().unwrap(),
        [0, second, next(1), next(2)],
        "in picoseconds"
    );
}

#[test]
fn who_is_held_back_is_asked_once_when_its_turn_has_come() {
    let tenth = CongestionControl::Fixed(Fixed::rate(Rate::from_gbps(10)));
    let controller = tenth.controller(Rate::from_gbps(100)).unwrap();
    // Data and acknowledgements arrive; three wait for their turn, and nobody for a port that is free. The flow
    // begins, and its transport timer comes to nothing.
    assert_eq!(controlled(QpType::Rc, 1, None, controller), 4 + 4 + 3 + 2);
}
