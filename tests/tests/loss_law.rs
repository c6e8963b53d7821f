//! Goodput under random loss against the law of go-back-N with one NAK per gap:
//! share = 1 / (1 + p W + p (p + q) T), with p the loss forward, q the loss backward, W the packets sent
//! until a NAK takes effect, T the retransmission timeout in packets.

use softroce_sim::card::{Card, CardConfig, Status};
use softroce_sim::fabric::machine::{self, FlowOperation, FlowSpec, Machine};
use softroce_sim::fabric::topology::Topology;
use softroce_sim::fabric::{Action, Config, Fault, LinkSpec, Network, Pattern, PayloadMode, Rate};
use softroce_sim::random::Probability;
use softroce_sim::time::{Span, Time};
use softroce_sim::wire::RouteTable;

/// One packet of 1024 bytes on a 100 Gb/s wire: 1086 bytes of frame and 20 of preamble and gap.
const PACKET_PS: f64 = 1106.0 * 80.0;

/// Packets sent from the one after the loss until the NAK takes effect: there and back, and the lost
/// packet's successor and the NAK on the wire.
fn window(delay: Span) -> f64 {
    let nak = (62.0 + 4.0 + 20.0) * 80.0;
    (2.0 * delay.as_ps() as f64 + 2.0 * PACKET_PS + nak) / PACKET_PS
}

/// Share of the loss-free goodput that is left.
fn measure(p: f64, q: f64, exponent: u8, time: Span, seed: u64) -> f64 {
    let delay = Span::from_us(6);
    let topology = Topology::back_to_back(LinkSpec::new(Rate::from_gbps(100), delay));
    let routes = RouteTable::new();
    let config = Config {
        seed,
        routes: routes.clone(),
        payload: PayloadMode::Counted,
    };
    let mut net = Network::new(&topology, config, (), |_, node| {
        let card = CardConfig::new(node.name.clone(), node.gid(), node.mac);
        Machine::new(Card::new(card, seed, routes.clone()), 4096).unwrap()
    })
    .unwrap();
    for (from, to, loss) in [("h0", "h1", p), ("h1", "h0", q)] {
        if loss > 0.0 {
            let channel = topology.channel_between(from, to).unwrap();
            let random = Pattern::Random(Probability::new(loss).unwrap());
            net.inject(channel, Fault::new(Action::Drop).when(random))
                .unwrap();
        }
    }
    let (a, b) = (topology.host("h0").unwrap(), topology.host("h1").unwrap());
    let spec = FlowSpec {
        depth: 64,
        timeout: exponent,
        ..FlowSpec::new(FlowOperation::Write, 64 * 1024, u64::MAX)
    };
    let id = machine::connect(&mut net, a, b, &spec).unwrap();
    net.run_until(Time::ZERO + time);
    let stats = machine::stats(&net, id);
    assert_eq!(
        stats
            .completed
            .iter()
            .filter(|&(s, _)| s != Status::Success)
            .count(),
        0
    );
    let packets = stats.bytes as f64 / 1024.0;
    packets * PACKET_PS / time.as_ps() as f64
}

#[test]
fn goodput_follows_the_law() {
    let mut worst: f64 = 0.0;
    for exponent in [4u8, 14] {
        let t = 4.096e6 * f64::from(1u32 << exponent) / PACKET_PS;
        for loss in [1e-5, 1e-4, 1e-3, 1e-2] {
            for (p, q) in [(loss, 0.0), (0.0, loss), (loss, loss)] {
                let w = window(Span::from_us(6));
                let law = 1.0 / (1.0 + p * w + p * (p + q) * t);
                // Long enough for a few hundred of the rarest event that matters.
                let ms = if exponent == 14 && law < 0.9 {
                    8000
                } else {
                    60
                };
                let share = measure(p, q, exponent, Span::from_ms(ms), 1);
                let off = share / law - 1.0;
                println!(
                    "exp {exponent:2} p {p:.0e} q {q:.0e}: law {law:.4} share {share:.4} off {:+.1} %",
                    off * 100.0
                );
                worst = worst.max(off.abs());
            }
        }
    }
    assert!(worst < 0.10, "{worst}");
}
