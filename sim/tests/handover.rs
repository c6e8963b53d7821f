//! The lock and the bells of a real-time engine, in every order of the steps of its threads (loom).

// The file itself, on loom's primitives instead of the standard ones.
#[path = "../src/port/engine/handover.rs"]
mod handover;

mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
}

use handover::{Answer, Handover};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use std::sync::atomic::Ordering::Relaxed;

/// A ring of work beside the lock, as a program has one: posted before the bell is rung.
type Posted = Arc<[AtomicU32; 2]>;

struct Card {
    /// Loom sees two threads in here at once.
    alone: UnsafeCell<()>,
    posted: Posted,
    done: [u32; 2],
    sessions: u32,
    settled: bool,
}

impl Card {
    fn work(&mut self) {
        self.sessions += 1;
        self.alone.with_mut(|_| thread::yield_now());
    }
}

impl Answer for Card {
    fn answer(&mut self, bell: u32) {
        self.work();
        self.settled = false;
        // Bells of the two programs are in different words of the board.
        let program = (bell / 64) as usize;
        self.done[program] = self.posted[program].load(Relaxed);
    }

    fn settle(&mut self) {
        self.settled = true;
    }
}

fn check(body: impl Fn(&Arc<Handover<Card>>, &Posted) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let posted: Posted = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let card = Card {
            alone: UnsafeCell::new(()),
            posted: posted.clone(),
            done: [0; 2],
            sessions: 0,
            settled: true,
        };
        body(&Arc::new(Handover::new(card, 128)), &posted);
    });
}

/// A program that posts `n` requests and rings for each.
fn program(
    pair: &Arc<Handover<Card>>,
    posted: &Posted,
    which: usize,
    n: u32,
) -> thread::JoinHandle<()> {
    let (pair, posted) = (pair.clone(), posted.clone());
    thread::spawn(move || {
        for i in 1..=n {
            posted[which].store(i, Relaxed);
            pair.ring(which as u32 * 64);
        }
    })
}

/// When everyone has gone, everything posted is done without another call.
fn all_done(pair: &Handover<Card>, expected: [u32; 2]) {
    let held = pair.try_hold().expect("nobody has the lock any more");
    assert_eq!(held.done, expected);
    assert!(held.settled);
}

#[test]
fn bells_of_two_programs_are_answered() {
    check(|pair, posted| {
        let threads = [program(pair, posted, 0, 2), program(pair, posted, 1, 1)];
        for thread in threads {
            thread.join().unwrap();
        }
        all_done(pair, [2, 1]);
    });
}

#[test]
fn a_bell_is_answered_while_another_polls() {
    check(|pair, posted| {
        let thread = program(pair, posted, 0, 2);
        for _ in 0..2 {
            if let Some(mut held) = pair.try_hold() {
                held.work();
            }
        }
        thread.join().unwrap();
        all_done(pair, [2, 0]);
    });
}

#[test]
fn who_waits_gets_the_lock_and_answers_bells() {
    check(|pair, posted| {
        let waiter = {
            let pair = pair.clone();
            thread::spawn(move || pair.hold().work())
        };
        let ringer = program(pair, posted, 1, 1);
        if let Some(mut held) = pair.try_hold() {
            held.work();
        }
        waiter.join().unwrap();
        ringer.join().unwrap();
        all_done(pair, [0, 1]);
    });
}

#[test]
fn two_who_wait_both_get_the_lock() {
    check(|pair, _| {
        let waiter = {
            let pair = pair.clone();
            thread::spawn(move || pair.hold().work())
        };
        pair.hold().work();
        waiter.join().unwrap();
        let held = pair.try_hold().unwrap();
        assert_eq!(held.sessions, 2);
    });
}
