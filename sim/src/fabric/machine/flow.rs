//! A load on a queue pair: what it asks for, over and over, and what became of it.

use super::member::Part;
use super::spec::{FlowOperation, FlowSpec};
use crate::card::{Completion, Datagram, QueuePair, Remote, SendRequest, Sge, Status};
use crate::memory::{Binding, Buffer};
use crate::time::{Span, Time};
use crate::wire::RemoteKey;
use std::collections::VecDeque;

/// The most latencies a flow keeps; later ones are not sampled.
pub const MAX_SAMPLES: usize = 1 << 20;

/// Completions by status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatusCounts([u64; 14]);

impl StatusCounts {
    pub(super) fn count(&mut self, status: Status, n: u64) {
        // A card gives no other.
        if let Some(count) = self.0.get_mut(status.number() as usize) {
            *count += n;
        }
    }

    /// Completions with `status`.
    pub fn get(&self, status: Status) -> u64 {
        self.0.get(status.number() as usize).map_or(0, |&n| n)
    }

    /// Those that occurred, in the order of their values.
    pub fn iter(&self) -> impl Iterator<Item = (Status, u64)> + '_ {
        Status::ALL
            .into_iter()
            .map(|s| (s, self.get(s)))
            .filter(|&(_, n)| n > 0)
    }
}

/// What a flow has done so far.
#[derive(Clone, Debug, Default)]
pub struct FlowStats {
    /// Messages posted.
    pub posted: u64,
    /// Messages completed, by status. Messages without completion of their own count with the next
    /// that has one.
    pub completed: StatusCounts,
    /// Bytes of messages that succeeded.
    pub bytes: u64,
    /// When the first message was posted.
    pub first_post: Option<Time>,
    /// When the latest message succeeded.
    pub last_success: Option<Time>,
    /// When the latest message completed, with any status.
    pub last_completion: Option<Time>,
    /// From posting to completion of each message that asked for one, in order, up to [`MAX_SAMPLES`].
    pub latencies: Vec<Span>,
    /// Receive requests completed, by status.
    pub received: StatusCounts,
    /// Bytes received by receive requests.
    pub received_bytes: u64,
    /// Receive completions whose immediate data was not the number of the message, or of none that was
    /// sent if the service is unreliable.
    pub wrong_immediate: u64,
    /// Receive completions that did not name the key that the message was to invalidate.
    pub wrong_key: u64,
    /// Atomics that did not find what the one before had left.
    pub wrong_original: u64,
}

impl FlowStats {
    /// True if something arrived that was not sent. A card that lets that happen is broken.
    pub fn is_wrong(&self) -> bool {
        self.wrong_immediate + self.wrong_key + self.wrong_original > 0
    }
}

/// The keys of windows of type 2 that are bound and invalidated in turns. Each time a window is bound, its
/// key has another low byte, counted up, so that both ends know the key without telling each other.
#[derive(Clone, Debug)]
pub(super) struct Windows(pub(super) Vec<RemoteKey>);

impl Windows {
    /// The key of use `n`, of the windows one after the other.
    #[inline]
    pub(super) fn key(&self, n: u64) -> RemoteKey {
        let windows = self.0.len() as u64;
        let RemoteKey(unbound) = self.0[(n % windows) as usize];
        let tag = (unbound as u8)
            .wrapping_add((n / windows) as u8)
            .wrapping_add(1);
        RemoteKey(unbound & !0xff | u32::from(tag))
    }
}

/// What the key of a request is, if it is not that of a remote address.
#[derive(Clone, Debug)]
pub(super) enum Keys {
    /// The same for each.
    One(RemoteKey),
    /// Those of windows, so many requests for each use.
    Windows(Windows, u64),
}

/// What requests name.
#[derive(Clone, Debug)]
pub(super) struct Aim {
    pub(super) remote: Remote,
    /// The elements of a request, of each slot of local memory.
    pub(super) sges: Vec<Sge>,
    pub(super) to: Option<Datagram>,
    pub(super) keys: Keys,
    pub(super) binding: Binding,
}

/// A queue pair that sends.
#[derive(Debug)]
pub struct Flow {
    pub(super) spec: FlowSpec,
    pub(super) qp: QueuePair,
    pub(super) data: Option<Buffer>,
    pub(super) aim: Aim,
    /// From which message on requests name something else, and what.
    pub(super) wrong: (u64, Option<Box<Aim>>),
    /// Slots of local memory, used in turn: one word for each outstanding atomic, and one for all messages
    /// otherwise.
    pub(super) slots: u32,
    /// What atomics find in the beginning.
    pub(super) first_word: u64,
    /// When each message without completion was posted, oldest first.
    pub(super) outstanding: VecDeque<Time>,
    pub(super) failed: bool,
    /// Messages it may post; a member of a collective waits for leave.
    pub(super) granted: u64,
    /// The member it waits for.
    pub(super) part: Option<Part>,
    pub(super) stats: FlowStats,
}

impl Flow {
    pub(super) fn is_done(&self, now: Time) -> bool {
        let all = self.stats.posted == self.spec.count || now >= self.spec.stop;
        self.outstanding.is_empty() && (all || self.failed)
    }

    /// Posts as much as the depth allows; true if that was anything.
    #[inline]
    pub(super) fn post(&mut self, now: Time) -> bool {
        let mut any = false;
        while !self.failed
            && self.outstanding.len() < self.spec.depth as usize
            && self.stats.posted < self.spec.count.min(self.granted)
            && now < self.spec.stop
        {
            let n = self.stats.posted;
            if n == self.wrong.0
                && let Some(aim) = self.wrong.1.take()
            {
                self.aim = *aim;
            }
            let operation = self.spec.operation;
            let aim = &self.aim;
            let key = match &aim.keys {
                Keys::One(key) => *key,
                Keys::Windows(windows, each) => windows.key(n / each),
            };
            let mut sges = &aim.sges[..];
            if self.slots > 1 {
                let pieces = self.spec.sges as usize;
                let slot = (n % u64::from(self.slots)) as usize;
                sges = &sges[slot * pieces..(slot + 1) * pieces];
            }
            if operation == FlowOperation::AtomicWrite {
                self.set_word(n, self.first_word.wrapping_add(n + 1));
            }
            let work = operation.work(n, self.first_word, aim.remote, key, &aim.binding);
            let request = SendRequest {
                signaled: (n + 1).is_multiple_of(self.spec.signal_every.into())
                    || n + 1 == self.spec.count,
                to: aim.to,
                ..SendRequest::new(n, work, sges)
            };
            if self.qp.post_send(&request).is_err() {
                // The queue pair is in error; its completions say so.
                break;
            }
            self.outstanding.push_back(now);
            self.stats.posted += 1;
            self.stats.first_post.get_or_insert(now);
            any = true;
        }
        any
    }

    #[inline]
    pub(super) fn completed(&mut self, now: Time, c: &Completion) {
        // Messages up to this one: those without completion of their own ended with it.
        let first = self.stats.posted - self.outstanding.len() as u64;
        let n = (c.wr_id + 1).saturating_sub(first);
        let mut posted = now;
        for _ in 0..n {
            posted = self.outstanding.pop_front().unwrap_or(now);
        }
        self.stats.last_completion = Some(now);
        let succeeded = if c.status == Status::Success {
            self.stats.last_success = Some(now);
            if self.stats.latencies.len() < MAX_SAMPLES {
                self.stats.latencies.push(now.since(posted));
            }
            n
        } else {
            // Those before the failed one had succeeded.
            self.stats.completed.count(c.status, 1);
            self.failed = true;
            n.saturating_sub(1)
        };
        self.stats.completed.count(Status::Success, succeeded);
        self.stats.bytes += succeeded * u64::from(self.spec.size);
        if matches!(
            self.spec.operation,
            FlowOperation::CompareSwap | FlowOperation::FetchAdd
        ) {
            self.check_originals(first, succeeded);
        }
    }

    /// Each of these atomics must have found what the one before had left.
    fn check_originals(&mut self, first: u64, n: u64) {
        for m in first..first + n {
            let expected = self.first_word.wrapping_add(m);
            let found = self.word(m);
            self.stats.wrong_original += u64::from(found.is_some_and(|w| w != expected));
        }
    }

    fn word_at(&self, n: u64) -> usize {
        8 * (n % u64::from(self.slots)) as usize
    }

    /// The word in the slot of message `n`, if there is data.
    fn word(&self, n: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.data.as_ref()?.read_at(self.word_at(n), &mut word);
        Some(u64::from_ne_bytes(word))
    }

    fn set_word(&self, n: u64, word: u64) {
        if let Some(data) = &self.data {
            data.write_at(self.word_at(n), &word.to_ne_bytes());
        }
    }
}
