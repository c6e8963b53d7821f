//! The event queue: a timing wheel with an overflow heap.
//!
//! Near events hang in slots of 2^`shift` picoseconds, each slot a circular list sorted by time, and a
//! bitmap of three levels finds the first slot that holds one. Events beyond the wheel wait in a heap and
//! move in as the wheel turns. Because that happens before anything new can be put into the slots
//! that came into reach, an event needs no sequence number in the wheel: it goes behind those of the
//! same time, and the order is exactly that of (time, insertion).
//!
//! An event is the number of its source, and a source has one event at a time, so that its place in
//! the lists is its own and nothing is allocated.

use crate::time::Time;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

const SLOTS: usize = 32_768;
/// Slots that lie within the reach, for each source and in all. With more, hardly two events of a large
/// network meet in one; with fewer, the next event of a small one is not far.
const PER_SOURCE: usize = 16;
const FEWEST: usize = 3072;
/// The horizon may have come nearer by a quarter of the wheel before it is moved.
const MOST: usize = SLOTS - SLOTS / 4;
const WORDS: usize = SLOTS / 64;
const GROUPS: usize = WORDS / 64;
const NONE: u32 = u32::MAX;

/// Events in the order of (time, insertion).
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// By source.
    nodes: Vec<Node>,
    /// The last event of each slot; its `next` is the first one.
    tails: Box<[u32; SLOTS]>,
    /// One bit per slot that holds an event.
    words: Box<[u64; WORDS]>,
    /// One bit per word that is not zero, and one per word of these.
    groups: [u64; GROUPS],
    top: u64,
    /// The slot that the last event was taken from.
    cursor: usize,
    /// Events from here on are far; at most a whole wheel after the cursor's slot.
    horizon: Time,
    /// When an event from here on is taken, the horizon moves. It is not moved for every event.
    turn: Time,
    shift: u32,
    far: BinaryHeap<Far>,
    far_pushed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    time: Time,
    /// The event behind it in its slot; behind the last one comes the first.
    next: u32,
}

impl Node {
    const UNUSED: Node = Node {
        time: Time::NEVER,
        next: NONE,
    };
}

#[derive(Clone, Copy, Debug)]
struct Far {
    time: Time,
    sequence: u64,
    source: u32,
}

impl EventQueue {
    /// An empty queue whose wheel reaches at least `reach` picoseconds ahead; events further ahead than
    /// that are put in order more slowly.
    ///
    /// Sources are numbered from 0 to `sources` - 1, and there may be more with
    /// [`EventQueue::add_source`].
    pub fn new(reach: u64, sources: usize) -> EventQueue {
        let within = sources.saturating_mul(PER_SOURCE).clamp(FEWEST, MOST);
        let width = (reach / within as u64 + 1).next_power_of_two();
        let mut queue = EventQueue {
            nodes: vec![Node::UNUSED; sources],
            tails: Box::new([NONE; SLOTS]),
            words: Box::new([0; WORDS]),
            groups: [0; GROUPS],
            top: 0,
            cursor: 0,
            horizon: Time::ZERO,
            turn: Time::ZERO,
            shift: width.trailing_zeros().min(50),
            far: BinaryHeap::new(),
            far_pushed: 0,
        };
        queue.move_horizon(Time::ZERO);
        queue
    }

    /// One more source; gives its number.
    pub fn add_source(&mut self) -> u32 {
        self.nodes.push(Node::UNUSED);
        (self.nodes.len() - 1) as u32
    }

    /// Adds the event of `source`, which must have none. `time` must not be before the last event taken,
    /// nor [`Time::NEVER`] or within a turn of the wheel of it.
    #[inline(always)]
    pub fn push(&mut self, time: Time, source: u32) {
        if time < self.horizon {
            self.hang(time, source);
        } else {
            self.push_far(time, source);
        }
    }

    /// Takes the first event, unless it lies after `limit`, and gives its source.
    #[inline(always)]
    pub fn pop_until(&mut self, limit: Time) -> Option<(Time, u32)> {
        if self.top == 0 && !self.turn_to_far(limit) {
            return None;
        }
        let i = self.first_slot();
        // A slice of its own, so that a store into it is not taken for a change of its bounds.
        let nodes = self.nodes.as_mut_slice();
        let tail = self.tails[i];
        let last = &mut nodes[tail as usize];
        let head = last.next;
        let time;
        if head == tail {
            time = last.time;
            if time > limit {
                return None;
            }
            self.tails[i] = NONE;
            let word = &mut self.words[i / 64];
            *word &= !(1 << (i % 64));
            if *word == 0 {
                self.emptied(i / 64);
            }
        } else {
            let first = nodes[head as usize];
            time = first.time;
            if time > limit {
                return None;
            }
            nodes[tail as usize].next = first.next;
        }
        self.cursor = i;
        if time >= self.turn {
            self.move_horizon(time);
        }
        Some((time, head))
    }

    /// When the first event is due.
    pub fn next_time(&self) -> Option<Time> {
        if self.top == 0 {
            return self.far.peek().map(|f| f.time);
        }
        let tail = self.tails[self.first_slot()];
        let head = self.nodes[tail as usize].next;
        Some(self.nodes[head as usize].time)
    }

    /// True if there is no event.
    pub fn is_empty(&self) -> bool {
        self.top == 0 && self.far.is_empty()
    }

    /// Lets events begin at `now` again, which may be before the last one taken; there must be none.
    pub fn restart(&mut self, now: Time) {
        debug_assert!(self.is_empty());
        self.cursor = self.slot(now);
        self.move_horizon(now);
    }

    /// The slot of a time.
    #[inline(always)]
    fn slot(&self, time: Time) -> usize {
        (time.as_ps() >> self.shift) as usize % SLOTS
    }

    /// The first slot from the cursor on that holds an event; there must be one.
    #[inline(always)]
    fn first_slot(&self) -> usize {
        let from = self.cursor;
        let word = self.words[from / 64 % WORDS] >> (from % 64);
        if word != 0 {
            return (from + word.trailing_zeros() as usize) % SLOTS;
        }
        self.later_slot()
    }

    /// As [`EventQueue::first_slot`], when there is none from the cursor on in its word.
    #[inline(never)]
    fn later_slot(&self) -> usize {
        let first = |bits: u64| bits.trailing_zeros() as usize;
        let word = self.cursor / 64 % WORDS;
        let group = word / 64;
        // Words after this one; if there are none, around to the front, this one's low bits last.
        let rest = self.groups[group] & (!1 << (word % 64));
        let word = if rest != 0 {
            group * 64 + first(rest)
        } else {
            let later = self.top & (!1 << group);
            let group = first(if later != 0 { later } else { self.top }) % GROUPS;
            group * 64 + first(self.groups[group])
        } % WORDS;
        (word * 64 + first(self.words[word])) % SLOTS
    }

    /// A word has no bit any more.
    #[inline]
    fn emptied(&mut self, word: usize) {
        let group = &mut self.groups[word / 64 % GROUPS];
        *group &= !(1 << (word % 64));
        if *group == 0 {
            self.top &= !(1 << (word / 64 % GROUPS));
        }
    }

    // Where an event is pushed is where the time goes; a call would cost a quarter of it.
    #[inline(always)]
    fn hang(&mut self, time: Time, source: u32) {
        let i = self.slot(time);
        let nodes = self.nodes.as_mut_slice();
        let tail = self.tails[i];
        let mut next = source;
        if tail == NONE {
            self.tails[i] = source;
            let word = &mut self.words[i / 64];
            if *word == 0 {
                self.groups[i / 64 / 64] |= 1 << (i / 64 % 64);
                self.top |= 1 << (i / 64 / 64);
            }
            *word |= 1 << (i % 64);
        } else {
            let last = &mut nodes[tail as usize];
            next = last.next;
            if time >= last.time {
                last.next = source;
                self.tails[i] = source;
            } else {
                // Somewhere before the last one, so this ends.
                let mut before = tail;
                while nodes[next as usize].time <= time {
                    before = next;
                    next = nodes[next as usize].next;
                }
                nodes[before as usize].next = source;
            }
        }
        let node = &mut nodes[source as usize];
        node.time = time;
        node.next = next;
    }

    #[cold]
    fn push_far(&mut self, time: Time, source: u32) {
        debug_assert!(time.as_ps() < 3 << 62, "an event at {time} never comes");
        self.far.push(Far {
            time,
            sequence: self.far_pushed,
            source,
        });
        self.far_pushed += 1;
    }

    /// Turns the empty wheel to the first far event; false if there is none up to `limit`.
    #[cold]
    fn turn_to_far(&mut self, limit: Time) -> bool {
        match self.far.peek() {
            Some(first) if first.time <= limit => {
                let time = first.time;
                self.cursor = self.slot(time);
                self.move_horizon(time);
                true
            }
            _ => false,
        }
    }

    /// Moves the horizon to a whole wheel after `now`, and the far events that are no longer beyond it
    /// into the wheel.
    #[cold]
    fn move_horizon(&mut self, now: Time) {
        let slot = now.as_ps() >> self.shift;
        let ahead =
            |slots: usize| Time::from_ps((slot + slots as u64).saturating_mul(1 << self.shift));
        self.turn = ahead(SLOTS / 4);
        self.horizon = ahead(SLOTS);
        while let Some(&Far { time, source, .. }) = self.far.peek() {
            if time >= self.horizon {
                break;
            }
            self.far.pop();
            self.hang(time, source);
        }
    }
}

/// The greatest is the first in (time, insertion), as [`BinaryHeap`] wants it.
impl Ord for Far {
    fn cmp(&self, other: &Far) -> Ordering {
        (other.time, other.sequence).cmp(&(self.time, self.sequence))
    }
}

impl PartialOrd for Far {
    fn partial_cmp(&self, other: &Far) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Far {
    fn eq(&self, other: &Far) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Far {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_of_one_time_come_in_the_order_of_insertion() {
        let mut q = EventQueue::new(1_000_000, 200);
        for n in 0..10 {
            q.push(Time::from_ps(5_000), n);
            q.push(Time::from_ps(5_000_000_000), 100 + n);
        }
        let all: Vec<u32> = std::iter::from_fn(|| q.pop_until(Time::NEVER))
            .map(|(_, n)| n)
            .collect();
        assert_eq!(all, (0..10).chain(100..110).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_taken_beyond_the_limit_and_earlier_events_still_fit_in() {
        let mut q = EventQueue::new(1 << 20, 4);
        q.push(Time::from_ps(900_000), 1);
        q.push(Time::from_ps(90_000_000_000), 2);
        assert_eq!(q.pop_until(Time::from_ps(899_999)), None);
        q.push(Time::from_ps(899_999), 0);
        assert_eq!(q.next_time(), Some(Time::from_ps(899_999)));
        assert_eq!(q.pop_until(Time::NEVER).unwrap().1, 0);
        assert_eq!(q.pop_until(Time::NEVER).unwrap().1, 1);
        assert_eq!(q.pop_until(Time::from_ps(89_999_999_999)), None);
        q.push(Time::from_ps(89_000_000_000), 3);
        assert_eq!(q.pop_until(Time::NEVER).unwrap().1, 3);
        assert_eq!(q.pop_until(Time::NEVER).unwrap().1, 2);
        assert_eq!(q.pop_until(Time::NEVER), None);
        assert_eq!(q.next_time(), None);
    }

    /// What a queue is told to do: put in an event so far ahead, or take those of a span.
    #[derive(Clone, Debug)]
    enum Do {
        Push(u64),
        PopWithin(u64),
    }

    fn ahead() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            0u64..2_000,
            0u64..3_000_000,
            0u64..100_000_000_000,
            Just(4096),
        ]
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_a_sorted_list(
            reach in prop_oneof![Just(1u64), Just(1 << 20), Just(1 << 24)],
            sources in prop_oneof![Just(0usize), Just(10_000)],
            script in prop::collection::vec(
                prop_oneof![ahead().prop_map(Do::Push), ahead().prop_map(Do::PopWithin)],
                1..400,
            ),
        ) {
            let mut q = EventQueue::new(reach, sources);
            let mut model: Vec<(u64, u32)> = Vec::new();
            let mut now = 0;
            for step in script {
                match step {
                    Do::Push(ahead) => {
                        let n = q.add_source();
                        q.push(Time::from_ps(now + ahead), n);
                        model.push((now + ahead, n));
                    }
                    Do::PopWithin(span) => {
                        let limit = now + span;
                        model.sort();
                        let due = model.partition_point(|&(t, _)| t <= limit);
                        for (time, n) in model.drain(..due) {
                            prop_assert_eq!(q.next_time(), Some(Time::from_ps(time)));
                            prop_assert_eq!(
                                q.pop_until(Time::from_ps(limit)),
                                Some((Time::from_ps(time), n))
                            );
                        }
                        prop_assert_eq!(q.pop_until(Time::from_ps(limit)), None);
                        now = limit;
                    }
                }
            }
        }
    }
}
