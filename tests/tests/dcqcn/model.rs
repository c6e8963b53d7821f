//! The fixed point of DCQCN's fluid model, from "ECN or Delay: Lessons Learnt from Analysis of DCQCN and TIMELY"
//! (CoNEXT 2016), solved without the paper's linearisation, and of DCQCN itself where marks are independent.
//!
//! N flows share a bottleneck and each packet is marked with probability p. Names are the paper's: C capacity, B
//! byte counter, T rate timer, tau time between CNPs, tau' alpha timer, F steps of fast recovery; rates in
//! packets a second, as p is for each packet.

/// A bottleneck, its flows, and the parameters of DCQCN's paper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bottleneck {
    /// Packets a second.
    pub capacity: f64,
    /// How many flows.
    pub flows: f64,
    /// The byte counter, in packets.
    pub byte_counter: f64,
    /// Additive increase, in packets a second.
    pub additive: f64,
}

/// Where a bottleneck settles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedPoint {
    /// The share of packets that are marked.
    pub p: f64,
    pub alpha: f64,
}

const TIMER: f64 = 55e-6;
const ALPHA_TIMER: f64 = 55e-6;
const CNP_INTERVAL: f64 = 50e-6;
const F: i32 = 5;

impl Bottleneck {
    /// Of 40 Gb/s, with packets of so many bytes on the wire.
    pub(crate) fn new(flows: usize, packet: u32) -> Bottleneck {
        let bits = 8.0 * f64::from(packet);
        Bottleneck {
            capacity: 40e9 / bits,
            flows: flows as f64,
            byte_counter: 10e6 / f64::from(packet),
            additive: 40e6 / bits,
        }
    }

    /// That of the fluid model.
    pub(crate) fn fluid(&self) -> FixedPoint {
        let rate = self.capacity / self.flows;
        let alpha = |p: f64| 1.0 - (1.0 - p).powf(ALPHA_TIMER * rate);
        let p = root(|p| {
            // No mark among so many packets.
            let none = |packets: f64| (1.0 - p).powf(packets);
            let cuts = (1.0 - none(CNP_INTERVAL * rate)) / CNP_INTERVAL;
            let steps = |packets: f64| rate * p * none(packets) / (1.0 - none(packets));
            let (bytes, timer) = (steps(self.byte_counter), steps(TIMER * rate));
            let recovered = |packets: f64| none(f64::from(F) * packets);
            let gain = self.additive
                * (recovered(self.byte_counter) * bytes + recovered(TIMER * rate) * timer);
            // The target rests: what additive increase gives, cuts take.
            let behind = gain / cuts;
            // The rate rests: what steps towards the target give, cuts take.
            behind / 2.0 * (bytes + timer) - rate * alpha(p) / 2.0 * cuts
        });
        FixedPoint { p, alpha: alpha(p) }
    }

    /// That of the algorithm as it is written, step by step, with marks that are independent of each other and
    /// rates near the mean; the byte counter, which a CNP always overtakes here, left out. If early marks are
    /// forgotten, no CNP can come within the interval of the last one or at its end.
    pub(crate) fn stepwise(&self, early_marks_are_kept: bool) -> FixedPoint {
        let rate = self.capacity / self.flows;
        let no_mark = |p: f64, seconds: f64| (-p * rate * seconds).exp();
        let silence = if early_marks_are_kept {
            0.0
        } else {
            CNP_INTERVAL
        };
        // The chance that n steps are made before the next CNP; the timers of rate and alpha are alike.
        let reached = |p: f64, n: i32| match n {
            0 => 1.0,
            n => no_mark(p, f64::from(n) * TIMER - silence),
        };
        // Each CNP raises alpha once, and each step lowers it once, by the same small part.
        let alpha = |p: f64| {
            let decays: f64 = (1..STEPS).map(|n| reached(p, n)).sum();
            1.0 / (1.0 + decays)
        };
        let p = root(|p| {
            let mut behind = alpha(p) * rate / 2.0;
            let (mut gain, mut left) = (0.0, 0.0);
            for n in 0..STEPS {
                if n > 0 {
                    let added = if n < F { 0.0 } else { self.additive };
                    gain += reached(p, n) * added;
                    behind = (behind + added) / 2.0;
                }
                left += (reached(p, n) - reached(p, n + 1)) * behind;
            }
            // From one CNP to the next the rate neither gains nor loses.
            gain - left
        });
        FixedPoint { p, alpha: alpha(p) }
    }
}

/// More than there ever are between two CNPs.
const STEPS: i32 = 1000;

/// Where `f`, which is positive at first, falls below zero.
fn root(f: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (1e-4, 0.5);
    assert!(f(low) > 0.0 && f(high) < 0.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if f(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The figures that were computed from the published model for packets of 1000 bytes.
#[test]
fn the_model_is_the_published_one() {
    for (flows, p, queue) in [
        (2, 0.00078, 20.2),
        (4, 0.00189, 41.8),
        (8, 0.00455, 94.0),
        (10, 0.00603, 123.0),
        (16, 0.0109, 217.0),
    ] {
        let found = Bottleneck::new(flows, 1000).fluid();
        let q = 5.0 + found.p / 0.01 * 195.0;
        assert!((found.p - p).abs() < 0.008 * p, "{flows}: {found:?}");
        assert!((q - queue).abs() < 0.006 * queue, "{flows}: {q} KB");
    }
}
