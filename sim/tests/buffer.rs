//! Memory that a program and a card share, in every order of the steps of those who touch it at once (loom).
//!
//! It is the library's memory that is looked at. Words of a program's own memory are touched by the same lines; which
//! of its bytes are in such words, and that all are reached by accesses of one size, unit tests and debug builds check.

// The file itself, on loom's words instead of the standard ones.
#[expect(dead_code, reason = "memory of a program's own is none of loom's")]
#[expect(
    unreachable_pub,
    reason = "it is the library's, where it can be reached"
)]
#[path = "../src/memory/buffer.rs"]
mod buffer;

mod sync {
    pub(crate) use loom::sync::atomic::AtomicU64;
    pub(crate) use std::sync::atomic::AtomicU8;
}

use buffer::Buffer;
use loom::thread;

/// Adds 1 to the upper half of the word at 0.
fn add(b: &Buffer) -> u64 {
    u64::from_le(b.update(0, |v| (u64::from_le(v) + (1 << 32)).to_le()))
}

fn at_once(b: &Buffer, body: impl FnOnce(&Buffer) + 'static) -> thread::JoinHandle<()> {
    let b = b.clone();
    thread::spawn(move || body(&b))
}

#[test]
fn writers_of_parts_of_a_word_and_an_update_of_it_do_not_undo_each_other() {
    loom::model(|| {
        let b = Buffer::new(16);
        let others = [
            at_once(&b, |b| b.write_at(1, &[1, 2])),
            // The end of this word and the beginning of the next.
            at_once(&b, |b| b.write_at(7, &[3, 4])),
        ];
        add(&b);
        for other in others {
            other.join().unwrap();
        }
        let mut expected = [0; 16];
        expected[1..3].copy_from_slice(&[1, 2]);
        expected[4] = 1;
        expected[7..9].copy_from_slice(&[3, 4]);
        assert_eq!(b.to_vec(), expected);
    });
}

#[test]
fn updates_all_count_and_each_finds_another_value() {
    loom::model(|| {
        let b = Buffer::new(8);
        let other = at_once(&b, |b| _ = add(b));
        let found = [add(&b), add(&b)];
        other.join().unwrap();
        assert!(found[0] < found[1], "{found:?}");
        assert_eq!(u64::from_le(b.update(0, |v| v)), 3 << 32);
    });
}

#[test]
fn a_word_is_seen_before_or_after_a_write_and_nothing_between() {
    loom::model(|| {
        let b = Buffer::new(8);
        let other = at_once(&b, |b| b.write_at(0, &[0xff; 8]));
        let seen = b.to_vec();
        assert!(seen == [0; 8] || seen == [0xff; 8], "{seen:?}");
        let mut part = [0; 3];
        b.read_at(2, &mut part);
        assert!(part == [0xff; 3] || seen == [0; 8] && part == [0; 3]);
        other.join().unwrap();
    });
}
