//! Frames between two threads, in every order of their steps (loom).

// The file itself, on loom's primitives instead of the standard ones.
#[path = "../src/port/ring.rs"]
mod ring;

mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64};
}

use loom::thread;
use ring::{Reader, Writer, ring};

fn check(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

fn push(writer: &mut Writer, frame: &[u8]) {
    while !writer.push(frame) {
        writer.show();
        thread::yield_now();
    }
}

fn pop(reader: &mut Reader) -> Vec<u8> {
    loop {
        if let Some(frame) = reader.pop(<[u8]>::to_vec) {
            return frame;
        }
        reader.show();
        thread::yield_now();
    }
}

/// All frames arrive whole and in order, and each buffer is used again.
fn crosses(capacity: usize, frames: u8) {
    check(move || {
        let (mut writer, mut reader) = ring(capacity);
        let sender = thread::spawn(move || {
            for n in 0..frames {
                push(&mut writer, &[n; 3][..usize::from(n % 3) + 1]);
            }
            writer.show();
        });
        for n in 0..frames {
            assert_eq!(pop(&mut reader), vec![n; usize::from(n % 3) + 1]);
        }
        sender.join().unwrap();
        assert!(reader.is_empty() && reader.pop(|_| ()).is_none());
    });
}

#[test]
fn frames_cross_a_ring_of_one() {
    crosses(1, 3);
}

#[test]
fn frames_cross_a_ring_that_wraps() {
    crosses(2, 4);
}

#[test]
fn frames_cross_a_ring_whose_ends_keep_counters_to_themselves() {
    // Each shows its counter every second frame, or when it is told to.
    crosses(8, 9);
}

#[test]
fn room_is_what_was_shown() {
    check(|| {
        let (mut writer, mut reader) = ring(3);
        for n in 0..3 {
            assert!(writer.has_room() && writer.push(&[n]));
        }
        assert!(!writer.push(&[3]) && !writer.has_room());
        writer.show();
        assert_eq!(reader.pop(|frame| frame[0]), Some(0));
        reader.show();
        assert!(writer.has_room() && writer.push(&[3]) && !writer.push(&[4]));
    });
}

#[test]
fn frames_to_a_reader_that_goes_are_lost_and_the_writer_goes_on() {
    check(|| {
        let (mut writer, reader) = ring(1);
        let gone = thread::spawn(move || drop(reader));
        for n in 0..3 {
            push(&mut writer, &[n]);
        }
        gone.join().unwrap();
        assert!(writer.push(&[3]));
    });
}
