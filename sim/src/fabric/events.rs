//! The event queue: a timing wheel with an overflow heap.
//!
//! Near events hang in slots of 2^`shift` picoseconds, each slot a circular list sorted by time, and a
//! bitmap of two levels finds the first slot that holds one. Events beyond the wheel wait in a heap and
//! move in as the wheel turns. Because that happens before anything new can be put into the slots
//! that came into reach, an event needs no sequence number in the wheel: it goes behind those of the
//! same time, and the order is exactly that of (time, insertion).

use crate::time::Time;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

const SLOTS: usize = 2048;
const WORDS: usize = SLOTS / 64;
const NONE: u32 = u32::MAX;

/// Events in the order of (time, insertion).
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    nodes: Vec<Node<E>>,
    /// First of the unused nodes, linked by `next`.
    free: u32,
    /// The last event of each slot; its `next` is the first one.
    tails: Box<[u32; SLOTS]>,
    /// One bit per slot that holds an event.
    words: [u64; WORDS],
    /// One bit per word that is not zero.
    summary: u64,
    /// The slot that the last event was taken from.
    cursor: usize,
    /// Events from here on are far; at most [`SLOTS`] slots after the cursor's.
    horizon: Time,
    /// When an event from here on is taken, the horizon moves. It is not moved for every event.
    turn: Time,
    shift: u32,
    far: BinaryHeap<Far<E>>,
    far_pushed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node<E> {
    time: Time,
    event: E,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Far<E> {
    time: Time,
    sequence: u64,
    event: E,
}

impl<E: Copy> EventQueue<E> {
    /// An empty queue whose wheel reaches at least `reach` picoseconds ahead; events further ahead than
    /// that are put in order more slowly.
    pub fn new(reach: u64) -> EventQueue<E> {
        // The horizon may have come nearer by a quarter of the wheel before it is moved.
        let width = (reach / (SLOTS - SLOTS / 4) as u64 + 1).next_power_of_two();
        let mut queue = EventQueue {
            nodes: Vec::new(),
            free: NONE,
            tails: Box::new([NONE; SLOTS]),
            words: [0; WORDS],
            summary: 0,
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

    /// Adds an event. `time` must not be before the last event taken.
    #[inline]
    pub fn push(&mut self, time: Time, event: E) {
        if time < self.horizon {
            self.hang(time, event);
        } else {
            self.push_far(time, event);
        }
    }

    /// Takes the first event, unless it lies after `limit`.
    #[inline]
    pub fn pop_until(&mut self, limit: Time) -> Option<(Time, E)> {
        if self.summary == 0 && !self.turn_to_far(limit) {
            return None;
        }
        let i = self.first_slot();
        let tail = self.tails[i];
        let last = &mut self.nodes[tail as usize];
        let head = last.next;
        let (time, event);
        if head == tail {
            (time, event) = (last.time, last.event);
            if time > limit {
                return None;
            }
            last.next = self.free;
            self.tails[i] = NONE;
            let word = &mut self.words[i / 64];
            *word &= !(1 << (i % 64));
            if *word == 0 {
                self.summary &= !(1 << (i / 64));
            }
        } else {
            let first = &mut self.nodes[head as usize];
            (time, event) = (first.time, first.event);
            if time > limit {
                return None;
            }
            let next = first.next;
            first.next = self.free;
            self.nodes[tail as usize].next = next;
        }
        self.free = head;
        self.cursor = i;
        if time >= self.turn {
            self.move_horizon(time);
        }
        Some((time, event))
    }

    /// When the first event is due.
    pub fn next_time(&self) -> Option<Time> {
        if self.summary == 0 {
            return self.far.peek().map(|f| f.time);
        }
        let tail = self.tails[self.first_slot()];
        let head = self.nodes[tail as usize].next;
        Some(self.nodes[head as usize].time)
    }

    /// The first slot from the cursor on that holds an event; there must be one.
    #[inline]
    fn first_slot(&self) -> usize {
        let from = self.cursor;
        let word = self.words[from / 64 % WORDS] >> (from % 64);
        if word != 0 {
            return (from + word.trailing_zeros() as usize) % SLOTS;
        }
        // Words after this one; if there are none, around to the front, this one's low bits last.
        let later = self.summary & (!1 << (from / 64));
        let summary = if later != 0 { later } else { self.summary };
        let w = summary.trailing_zeros() as usize % WORDS;
        w * 64 + self.words[w].trailing_zeros() as usize
    }

    // Where an event is pushed is where the time goes; a call would cost a quarter of it.
    #[inline(always)]
    fn hang(&mut self, time: Time, event: E) {
        let i = (time.as_ps() >> self.shift) as usize % SLOTS;
        if self.free == NONE {
            self.grow(time, event);
        }
        let n = self.free;
        let node = &mut self.nodes[n as usize];
        self.free = node.next;
        node.time = time;
        node.event = event;
        let tail = self.tails[i];
        if tail == NONE {
            node.next = n;
            self.tails[i] = n;
            self.words[i / 64] |= 1 << (i % 64);
            self.summary |= 1 << (i / 64);
            return;
        }
        let last = &mut self.nodes[tail as usize];
        if time >= last.time {
            let first = last.next;
            last.next = n;
            self.tails[i] = n;
            self.nodes[n as usize].next = first;
        } else {
            self.squeeze_in(n, tail, time);
        }
    }

    /// Links node `n` into the list of `tail`, which lies after it.
    fn squeeze_in(&mut self, n: u32, tail: u32, time: Time) {
        let mut before = tail;
        loop {
            let next = self.nodes[before as usize].next;
            if self.nodes[next as usize].time > time {
                self.nodes[n as usize].next = next;
                self.nodes[before as usize].next = n;
                return;
            }
            before = next;
        }
    }

    /// Makes one unused node.
    #[cold]
    fn grow(&mut self, time: Time, event: E) {
        self.free = self.nodes.len() as u32;
        self.nodes.push(Node {
            time,
            event,
            next: NONE,
        });
    }

    #[cold]
    fn push_far(&mut self, time: Time, event: E) {
        self.far.push(Far {
            time,
            sequence: self.far_pushed,
            event,
        });
        self.far_pushed += 1;
    }

    /// Turns the empty wheel to the first far event; false if there is none up to `limit`.
    #[cold]
    fn turn_to_far(&mut self, limit: Time) -> bool {
        match self.far.peek() {
            Some(first) if first.time <= limit => {
                let time = first.time;
                self.cursor = (time.as_ps() >> self.shift) as usize % SLOTS;
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
        while let Some(&Far { time, event, .. }) = self.far.peek() {
            if time >= self.horizon {
                break;
            }
            self.far.pop();
            self.hang(time, event);
        }
    }
}

/// The greatest is the first in (time, insertion), as [`BinaryHeap`] wants it.
impl<E> Ord for Far<E> {
    fn cmp(&self, other: &Far<E>) -> Ordering {
        (other.time, other.sequence).cmp(&(self.time, self.sequence))
    }
}

impl<E> PartialOrd for Far<E> {
    fn partial_cmp(&self, other: &Far<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Far<E> {
    fn eq(&self, other: &Far<E>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Far<E> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_of_one_time_come_in_the_order_of_insertion() {
        let mut q = EventQueue::new(1_000_000);
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
        let mut q = EventQueue::new(1 << 20);
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
            script in prop::collection::vec(
                prop_oneof![ahead().prop_map(Do::Push), ahead().prop_map(Do::PopWithin)],
                1..400,
            ),
        ) {
            let mut q = EventQueue::new(reach);
            let mut model: Vec<(u64, usize)> = Vec::new();
            let mut now = 0;
            for (n, step) in script.into_iter().enumerate() {
                match step {
                    Do::Push(ahead) => {
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
