//! Flows that arrive at random.

use super::{Context, Flows};
use crate::format::document::{Node, Value};
use crate::format::reader::Field;
use crate::format::schema::Kind;
use crate::format::topology::End;
use crate::format::traffic::{MAX_QUEUE_PAIRS, Own};
use crate::units::{Probability, Ratio, Size, Span};
use softroce_sim::fabric::loads::arrivals;

impl Context<'_> {
    pub(super) fn poisson(&self) -> Flows {
        let everyone = || Some((0..self.network.hosts.len()).collect::<Vec<_>>());
        let from = self.from(&[]).or_else(everyone).unwrap_or_default();
        let to = match self.reader.has("to") {
            true => self.to(),
            false => everyone(),
        };
        let Some(to) = to.filter(|to| to.len() > 1 || from.iter().any(|f| !to.contains(f))) else {
            self.reader.say("to", "leaves no two hosts");
            return Flows::default();
        };
        if !self.reader.has("sizes") {
            self.missing("sizes");
        }
        let Some(sizes) = self.reader.opt::<arrivals::Sizes>("sizes") else {
            return Flows::default();
        };
        // From those alone who have somewhere to send to.
        let from: Vec<usize> = from
            .into_iter()
            .filter(|&f| to.iter().any(|&t| t != f))
            .collect();
        let rate: u128 = from.iter().map(|&h| u128::from(self.rate(h))).sum();
        let load: Ratio = self.reader.get("load");
        // Only + - * / and comparisons: the same on every platform.
        let gap = sizes.mean() as f64 * 8e12 / (rate as f64 * load.get());
        if !(1.0..1e18).contains(&gap) {
            let message = "makes the gap between two flows less than 1ps or more than 1000000s";
            self.reader.say("load", message);
            return Flows::default();
        }
        let gap = Span::from_ps(gap as u64);
        let count: Option<u64> = self.reader.opt("count");
        let duration: Option<Span> = self.reader.opt("duration");
        if count.is_none() && duration.is_none() {
            self.reader.sink.say(
                self.reader.origin("count"),
                format!(
                    "{} has no \"count\" and no \"duration\", one of which says when flows stop arriving",
                    self.reader.label()
                ),
            );
            return Flows::default();
        }
        let mut stream = self.stream("arrivals");
        let (mut pairs, mut own) = (Vec::new(), Vec::new());
        let mut start = Span::ZERO;
        loop {
            start = start + arrivals::exponential(gap, &mut stream);
            let n = pairs.len() as u64;
            if count.is_some_and(|count| n >= count) || duration.is_some_and(|span| start >= span) {
                break;
            }
            if n >= MAX_QUEUE_PAIRS {
                self.fits(n + 1);
                return Flows::default();
            }
            let a = from[stream.below(from.len() as u64) as usize];
            // Of those it can send to each is as likely.
            let own_place = to.iter().position(|&t| t == a);
            let others = to.len() - usize::from(own_place.is_some());
            let mut place = stream.below(others as u64) as usize;
            place += usize::from(own_place.is_some_and(|own| place >= own));
            pairs.push((a, to[place]));
            own.push(Own {
                size: Size(sizes.draw(&mut stream)),
                start,
                operation: self.operation,
            });
        }
        if pairs.is_empty() {
            self.reader
                .say("duration", "is over before the first flow arrives");
        }
        self.fits(pairs.len() as u64);
        Flows {
            pairs,
            own,
            messages: Some(1),
            size: Some(Size(sizes.mean())),
            ..Flows::default()
        }
    }

    /// Rate of a host's link in bits per second.
    fn rate(&self, host: usize) -> u64 {
        let end = End::Host(host);
        let mut links = self.network.links.iter();
        links
            .find(|l| l.a == end || l.b == end)
            .map_or(0, |l| l.rate.0)
    }
}

/// A list of sizes and probabilities.
impl Field for arrivals::Sizes {
    fn placeholder() -> arrivals::Sizes {
        panic!("sizes have no default")
    }
    fn read(node: &Node, kind: &Kind) -> Result<arrivals::Sizes, String> {
        let wrong = || format!("must be {kind}");
        let Value::Array(list) = &node.value else {
            return Err(format!("is {}, but {}", node.kind(), wrong()));
        };
        let mut points = Vec::new();
        for (n, point) in list.iter().enumerate() {
            let Value::Array(pair) = &point.value else {
                return Err(wrong());
            };
            let [size, probability] = pair.as_slice() else {
                return Err(wrong());
            };
            let told = |why| format!("has at point {n} {why}");
            let size = Size::read(size, &Kind::Size(0, 1 << 31))
                .map_err(|why| told(format!("the size {size}, which {why}")))?;
            let p = Probability::read(probability, &Kind::Probability)
                .map_err(|why| told(format!("the probability {probability}, which {why}")))?;
            points.push((size.0, p.get()));
        }
        arrivals::Sizes::new(&points).map_err(|e| e.to_string())
    }
}
