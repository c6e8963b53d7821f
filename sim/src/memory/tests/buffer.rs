//! Memory of the library and of programs, in one thread. Every order of the steps of several: `tests/buffer.rs` of
//! the package.
#![allow(unsafe_code)]

use crate::memory::Buffer;
use proptest::prelude::*;
use std::cell::Cell;
use std::ptr::NonNull;

proptest! {
    #[test]
    fn behaves_as_a_vector(
        len in 0usize..100,
        writes in prop::collection::vec((0usize..100, prop::collection::vec(any::<u8>(), 0..40)), 0..20),
    ) {
        let b = Buffer::new(len);
        let mut model = vec![0u8; len];
        for (offset, bytes) in writes {
            if offset + bytes.len() <= len {
                b.write_at(offset, &bytes);
                model[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
        }
        prop_assert_eq!(b.to_vec(), model.clone());
        for from in 0..len {
            let mut out = vec![0; len - from];
            b.read_at(from, &mut out);
            prop_assert_eq!(&out[..], &model[from..]);
        }
    }
}

proptest! {
    /// Memory that begins and ends anywhere within words, in the midst of bytes that are not its own.
    #[test]
    fn foreign_memory_behaves_as_a_vector_and_nothing_beside_it_is_touched(
        start in 0usize..16,
        len in 0usize..60,
        writes in prop::collection::vec((0usize..60, prop::collection::vec(any::<u8>(), 0..40)), 0..20),
        adds in prop::collection::vec((0usize..60, any::<u64>()), 0..5),
    ) {
        let mut memory: Vec<u8> = (0..100).collect();
        let mut model = memory.clone();
        let first = NonNull::from(&mut memory[start]);
        // SAFETY: nobody else touches the vector until the buffer is gone.
        let b = unsafe { Buffer::from_raw_parts(first, len) };
        prop_assert_eq!(b.as_ptr(), first.as_ptr());
        for (offset, bytes) in writes {
            if offset + bytes.len() <= len {
                b.write_at(offset, &bytes);
                model[start + offset..][..bytes.len()].copy_from_slice(&bytes);
            }
        }
        for (offset, add) in adds {
            if offset + 8 <= len {
                let place = &mut model[start + offset..][..8];
                let old = u64::from_ne_bytes((&*place).try_into().unwrap());
                prop_assert_eq!(b.update(offset, |v| v.wrapping_add(add)), old);
                place.copy_from_slice(&old.wrapping_add(add).to_ne_bytes());
            }
        }
        for from in 0..len {
            let mut out = vec![0; len - from];
            b.read_at(from, &mut out);
            prop_assert_eq!(&out[..], &model[start + from..start + len]);
        }
        drop(b);
        prop_assert_eq!(memory, model);
    }
}

proptest! {
    /// A word belongs to the buffer, or to the bytes beside it: by its first and last byte.
    #[test]
    fn words_of_foreign_memory_are_whole_but_at_the_edges(start in 0usize..16, len in 0usize..60) {
        let mut memory = [0u64; 12];
        let first = NonNull::from(&mut memory[0]).cast::<u8>();
        // SAFETY: as above.
        let b = unsafe { Buffer::from_raw_parts(first.add(start), len) };
        let inside = |byte: usize| (start..start + len).contains(&byte);
        for word in 0..12 - start / 8 {
            let place = 8 * (start / 8 + word);
            prop_assert_eq!(b.has_whole(word), inside(place) && inside(place + 7));
        }
    }
}

#[test]
fn an_update_gives_what_was_there() {
    let b = Buffer::new(24);
    for offset in [0, 8, 11] {
        b.write_at(offset, &7u64.to_ne_bytes());
        assert_eq!(b.update(offset, |v| v + 5), 7);
        assert_eq!(b.update(offset, |v| v), 12);
    }
}

/// What comes between an update's look and its write is not undone.
#[test]
fn an_update_looks_again_when_a_byte_of_its_word_has_changed() {
    let mut memory = [0u64; 3];
    let first = NonNull::from(&mut memory[0]).cast::<u8>();
    // The bytes of the second word, and some on either side.
    // SAFETY: the array is not touched before the buffer is gone.
    let foreign = unsafe { Buffer::from_raw_parts(first.add(5), 14) };
    for (b, word) in [(Buffer::new(8), 0), (foreign, 3)] {
        let mut looks = Cell::new(0u32);
        let old = b.update(word, |value| {
            if looks.replace(looks.get() + 1) == 0 {
                b.write_at(word + 2, &[7]);
            }
            (u64::from_le(value) + (1 << 32)).to_le()
        });
        assert!(*looks.get_mut() > 1, "looked once");
        assert_eq!(u64::from_le(old), 7 << 16);
        let mut bytes = [0; 8];
        b.read_at(word, &mut bytes);
        assert_eq!(bytes, [0, 0, 7, 0, 1, 0, 0, 0]);
    }
}

#[test]
#[should_panic(expected = "outside a buffer of 8 bytes")]
fn refuses_what_wraps() {
    Buffer::new(8).write_at(usize::MAX, &[1, 2]);
}
