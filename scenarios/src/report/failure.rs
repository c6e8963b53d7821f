//! Why requests failed, as data.

use super::Status;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// How many failures of a run are listed: the first of each kind, and then those that come first.
pub const FAILURES_LISTED: usize = 100;

/// The places of at most `most` of `all` that together show the most kinds: the first of each of the coarse
/// kinds before others, then the first of each of the fine ones, then what came first. In the order of `all`.
pub(crate) fn chosen<'a, T, A: Ord, B: Ord>(
    all: &'a [T],
    most: usize,
    coarse: impl Fn(&'a T) -> A,
    fine: impl Fn(&'a T) -> B,
) -> BTreeSet<usize> {
    let mut places = BTreeSet::new();
    let (mut coarse_seen, mut fine_seen) = (BTreeSet::new(), BTreeSet::new());
    let mut take = |new: &mut dyn FnMut(&'a T) -> bool| {
        for (place, each) in all.iter().enumerate() {
            if places.len() == most {
                break;
            }
            if new(each) {
                places.insert(place);
            }
        }
    };
    take(&mut |each| coarse_seen.insert(coarse(each)));
    take(&mut |each| fine_seen.insert(fine(each)));
    take(&mut |_| true);
    places
}

/// A request that failed, or a peer's request that was refused, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FailureReport {
    /// All of it in one line.
    pub line: String,
    /// The load; `None` if the queue pair is of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// When, in picoseconds.
    pub time_ps: u64,
    /// The host whose card says so.
    pub host: String,
    /// Transport service: `rc`, `uc` or `ud`.
    pub service: &'static str,
    /// Its queue pair.
    pub qp: u32,
    /// Its address.
    pub gid: String,
    /// Queue pair and address of the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerName>,
    /// How the request completed; `None` if none of this side did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Why, in a word: `retries-exceeded`.
    pub cause: &'static str,
    /// Why, in full.
    pub because: String,
    /// The request of this side; `None` if it was a peer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<FailedRequest>,
    /// The packet that could not be taken, if it was one that arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrived: Option<String>,
    /// The PSN that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psn: Option<u32>,
    /// What was tried since an answer last got through, oldest first.
    pub tries: Vec<TryReport>,
    /// There were more before those.
    pub earlier_tries: bool,
    /// Counters of the queue pair that moved meanwhile, by the names that drivers give them. What had no
    /// answer as it began is among what was sent.
    pub counters: BTreeMap<&'static str, u64>,
    /// Send requests that were flushed because of it.
    pub flushed_sends: Flushed,
    /// Receive requests that were flushed because of it.
    pub flushed_receives: Flushed,
    /// Packets whose loss cost a try.
    pub lost: Vec<LostPacket>,
    /// The other side: why it refused, or what put it into error before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_side: Option<OtherSide>,
}

/// A peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PeerName {
    /// Queue pair.
    pub qp: u32,
    /// Address.
    pub gid: String,
}

/// The request that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FailedRequest {
    /// `WRITE`, `receive` and so on.
    pub operation: &'static str,
    /// Its number on the queue pair, from 1; `None` for receives of a shared queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Its `wr_id`.
    pub wr_id: u64,
    /// Bytes of a send request; `None` if nothing is sent for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Its first PSN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_psn: Option<u32>,
    /// Its last PSN; of a READ that of the last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_psn: Option<u32>,
    /// What a window was to be bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowRequest>,
}

/// A window that was to be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct WindowRequest {
    /// The key that it was to have.
    pub rkey: u32,
    /// Local key of the region.
    pub region: u32,
    /// First byte.
    pub addr: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// Something that a requester did, or was told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TryReport {
    /// When, in picoseconds.
    pub time_ps: u64,
    /// `timeout`, `sequence-nak`, `implied-nak`, `rnr-nak`, `nak` or `resend`.
    pub what: &'static str,
    /// The PSN that it was about.
    pub psn: u32,
    /// The timer that ran out, or the wait that was asked for, in picoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_ps: Option<u64>,
}

/// Requests in a row that were flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Flushed {
    /// How many.
    pub count: u64,
    /// `wr_id` of the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_wr_id: Option<u64>,
    /// `wr_id` of the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_wr_id: Option<u64>,
}

/// A packet whose loss cost a try.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LostPacket {
    /// When, in picoseconds.
    pub time_ps: u64,
    /// which try it was of, from 1, the first one since an answer last came.
    pub round: u32,
    /// `request`, `ack`, `nak`, `rnr-nak` or `read-response`.
    pub what: &'static str,
    /// Its PSN.
    pub psn: u32,
    /// On which direction of which link, or before it.
    pub link: String,
    /// Why: `fault`, `queue full`, `bad FCS`.
    pub why: String,
    /// The fault that did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// What the other side says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OtherSide {
    /// Its host.
    pub host: String,
    /// When, in picoseconds.
    pub time_ps: u64,
    /// Why, in a word.
    pub cause: &'static str,
    /// In one line.
    pub line: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_shown_before_any_twice() {
        let all = ["aa", "aa", "ab", "ba", "aa", "ab", "ca"];
        let places = |most| {
            let coarse = |s: &&'static str| s.as_bytes()[0];
            Vec::from_iter(chosen(&all, most, coarse, |s| *s))
        };
        for (most, needed) in [
            (0, &[][..]),
            (2, &[0, 3]),
            (3, &[0, 3, 6]),
            (4, &[0, 2, 3, 6]),
            (5, &[0, 1, 2, 3, 6]),
            (9, &[0, 1, 2, 3, 4, 5, 6]),
        ] {
            assert_eq!(places(most), needed, "{most}");
        }
    }
}
