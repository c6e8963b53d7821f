//! Paths between hosts, what packets take on the wire, and how long an empty network takes.

use crate::format::card::{Card, GidKind};
use crate::format::request::Operation;
use crate::format::topology::{End, Network, WayId};
use crate::units::{Rate, Span};
use std::collections::VecDeque;

/// Shortest ways from one host to all others, in links; of several the one whose links come first.
pub(crate) struct Tree<'a> {
    network: &'a Network,
    from: usize,
    /// By host and, after those, switch: the direction of the link that leads there.
    reached: Vec<Option<WayId>>,
}

/// The directions of links that lead away from each host and, after those, switch.
pub(crate) struct Neighbours<'a> {
    network: &'a Network,
    out: Vec<Vec<WayId>>,
}

impl<'a> Neighbours<'a> {
    pub(crate) fn new(network: &'a Network) -> Neighbours<'a> {
        let nodes = network.hosts.len() + network.switches.len();
        let mut out: Vec<Vec<WayId>> = vec![Vec::new(); nodes];
        for id in network.ways() {
            out[ends(network, id).0].push(id);
        }
        Neighbours { network, out }
    }

    /// The ways from a host.
    pub(crate) fn tree(&self, from: usize) -> Tree<'a> {
        let mut reached: Vec<Option<WayId>> = vec![None; self.out.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            // A way never leads through a host.
            if node != from && node < self.network.hosts.len() {
                continue;
            }
            for &id in &self.out[node] {
                let next = ends(self.network, id).1;
                if next != from && reached[next].is_none() {
                    reached[next] = Some(id);
                    queue.push_back(next);
                }
            }
        }
        Tree {
            network: self.network,
            from,
            reached,
        }
    }
}

impl Tree<'_> {
    /// The directions of links on the way to a host; nothing if there is none.
    pub(crate) fn to(&self, to: usize) -> Option<Vec<WayId>> {
        let mut ways = Vec::new();
        let mut node = to;
        while node != self.from {
            let id = self.reached[node]?;
            ways.push(id);
            node = ends(self.network, id).0;
        }
        ways.reverse();
        Some(ways)
    }
}

fn ends(network: &Network, id: WayId) -> (usize, usize) {
    let index = |end| match end {
        End::Host(n) => n,
        End::Switch(n) => network.hosts.len() + n,
    };
    let link = &network.links[id.link];
    let (a, b) = (index(link.a), index(link.b));
    if id.way == 0 { (a, b) } else { (b, a) }
}

/// Bytes that a packet takes on the wire, with preamble and gap: `extended` are the headers after the
/// BTH.
pub(crate) fn wire_bytes(card: &Card, extended: u64, payload: u64) -> u64 {
    let network = match card.gid {
        GidKind::Ipv4 => 28,
        GidKind::Ipv6 => 48,
        GidKind::RoceV1 => 40,
    };
    let frame = 14 + network + 12 + extended + payload.next_multiple_of(4) + 4 + 4;
    frame.max(64) + 20
}

const RETH: u64 = 16;
const AETH: u64 = 4;
const IMMEDIATE: u64 = 4;
const INVALIDATED: u64 = 4;

/// The time that a flow of `count` messages of `size` bytes takes from its first request to its last
/// completion if it has the network for itself and cards that take no time: all its frames, with
/// preambles and gaps, at the slowest link of the way, one frame more at each other link (switches store
/// and forward), the delay of all links, and the way back of the last ACK; of a READ, the way there of
/// the request instead. It is exact for one message where a byte takes whole picoseconds on every link. It is
/// for reliable connections, and not for atomics, which wait for one another, nor for what sends nothing.
pub(crate) fn ideal(
    network: &Network,
    card: &Card,
    way: &[WayId],
    operation: Operation,
    size: u64,
    count: u64,
) -> Option<Span> {
    // What goes the other way.
    let other = match operation {
        Operation::Read => wire_bytes(card, RETH, 0),
        _ => wire_bytes(card, AETH, 0),
    };
    let back = links(network, way).into_iter();
    let back = back.map(|(rate, delay)| time(rate, other).saturating_add(delay.as_ps()));
    let back = Span::from_ps(back.fold(0, u64::saturating_add));
    Some(one_way(network, card, way, operation, size, count)? + back)
}

/// As [`ideal`], but only until the last frame of the data has arrived.
pub(crate) fn one_way(
    network: &Network,
    card: &Card,
    way: &[WayId],
    operation: Operation,
    size: u64,
    count: u64,
) -> Option<Span> {
    // Headers that the first and the last packet have.
    let (first, last, only) = match operation {
        Operation::Send => (0, 0, 0),
        Operation::SendImm => (0, IMMEDIATE, IMMEDIATE),
        Operation::Write => (RETH, 0, RETH),
        Operation::WriteImm => (RETH, IMMEDIATE, RETH + IMMEDIATE),
        Operation::Read => (AETH, AETH, AETH),
        Operation::SendInv => (0, INVALIDATED, INVALIDATED),
        Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicWrite | Operation::Bind => {
            return None;
        }
    };
    let mtu = u64::from(card.mtu).max(1);
    let packets = size.div_ceil(mtu).max(1);
    let rest = size - (packets - 1) * mtu;
    let mut pipeline = Pipeline::new(links(network, way));
    if packets == 1 {
        pipeline.push(wire_bytes(card, only, rest), 1);
    } else {
        pipeline.push(wire_bytes(card, first, mtu), 1);
        pipeline.push(wire_bytes(card, 0, mtu), packets - 2);
        pipeline.push(wire_bytes(card, last, rest), 1);
    }
    let more = pipeline.sent.saturating_mul(count.saturating_sub(1));
    Some(Span::from_ps(pipeline.end().saturating_add(more)))
}

fn links(network: &Network, way: &[WayId]) -> Vec<(Rate, Span)> {
    let of = |w: &WayId| &network.links[w.link];
    way.iter().map(|w| (of(w).rate, of(w).delay)).collect()
}

/// Picoseconds that `bytes` take, rounded down.
fn time(rate: Rate, bytes: u64) -> u64 {
    let ps = u128::from(bytes) * 8_000_000_000_000 / u128::from(rate.0.max(1));
    u64::try_from(ps).unwrap_or(u64::MAX)
}

/// Frames in a row over links that each store a whole frame before they pass it on.
struct Pipeline {
    links: Vec<(Rate, Span)>,
    /// When the last frame has left each link.
    left: Vec<u64>,
    /// Time of all frames at the slowest link.
    sent: u64,
}

impl Pipeline {
    fn new(links: Vec<(Rate, Span)>) -> Pipeline {
        Pipeline {
            left: vec![0; links.len()],
            links,
            sent: 0,
        }
    }

    /// Sends `count` frames of `bytes` after those before.
    fn push(&mut self, bytes: u64, count: u64) {
        if count == 0 {
            return;
        }
        let rates = self.links.iter().map(|l| l.0);
        let slowest = rates.min_by_key(|r| r.0).unwrap_or(Rate(1));
        self.sent = self
            .sent
            .saturating_add(time(slowest, bytes.saturating_mul(count)));
        // The last of them has left link `l` after it and all before have gone through the links from
        // some `k` on, where the first one waited for the frames before: all at the slowest of these, one
        // at each of the others.
        let mut next = vec![0u64; self.left.len()];
        for (l, next) in next.iter_mut().enumerate() {
            let (mut way, mut slowest) = (0u64, self.links[l].0);
            for k in (0..=l).rev() {
                let (rate, delay) = self.links[k];
                way = way.saturating_add(time(rate, bytes));
                if k < l {
                    way = way.saturating_add(delay.as_ps());
                }
                if rate.0 < slowest.0 {
                    slowest = rate;
                }
                let others = time(slowest, bytes.saturating_mul(count - 1));
                let total = self.left[k].saturating_add(way).saturating_add(others);
                *next = (*next).max(total);
            }
        }
        self.left = next;
    }

    /// When the last frame has arrived.
    fn end(&self) -> u64 {
        let delay = self.links.last().map_or(0, |l| l.1.as_ps());
        self.left
            .last()
            .map_or(0, |&left| left.saturating_add(delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frame by frame: a link takes the next one when it is free and the frame is there.
    fn one_by_one(links: &[(Rate, Span)], frames: &[u64]) -> u64 {
        let mut left = vec![0; links.len()];
        for &bytes in frames {
            let mut there = 0;
            for (l, &(rate, delay)) in links.iter().enumerate() {
                left[l] = there.max(left[l]) + time(rate, bytes);
                there = left[l] + delay.as_ps();
            }
        }
        left.last().unwrap() + links.last().unwrap().1.as_ps()
    }

    #[test]
    fn a_pipeline_is_what_frames_do_one_by_one() {
        let link = |gbps: u64, us| (Rate(gbps * 1_000_000_000), Span::from_us(us));
        for links in [
            vec![link(100, 1)],
            vec![link(100, 1), link(100, 2)],
            vec![link(100, 1), link(400, 1), link(400, 1), link(100, 1)],
            vec![link(40, 0), link(10, 3), link(100, 1)],
            vec![link(10, 1), link(40, 1), link(20, 1), link(200, 1)],
        ] {
            for (first, middles, last) in [(1122, 5, 100), (1122, 0, 1106), (90, 50, 1110)] {
                let mut pipeline = Pipeline::new(links.clone());
                pipeline.push(first, 1);
                pipeline.push(1106, middles);
                pipeline.push(last, 1);
                let mut frames = vec![first];
                frames.extend(std::iter::repeat_n(1106, middles as usize));
                frames.push(last);
                assert_eq!(
                    pipeline.end(),
                    one_by_one(&links, &frames),
                    "{links:?} {frames:?}"
                );
            }
        }
    }
}
