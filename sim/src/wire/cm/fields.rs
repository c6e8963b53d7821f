//! Fields of a message, each with its place: what is read and what is written cannot differ.

use super::Body;
use crate::wire::{Gid, Psn, QpNumber};
use std::ops::Deref;

/// Something with a place in a message: `width` bits from bit `at` on, the first bit of a byte being its highest.
pub(super) trait Field: Sized {
    fn read(body: &Body, at: usize, width: usize) -> Self;
    fn write(&self, body: &mut Body, at: usize, width: usize);
}

/// A number of at most 64 bits; what does not fit its field is cut.
pub(super) trait Number: Copy {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

impl<N: Number> Field for N {
    fn read(body: &Body, at: usize, width: usize) -> N {
        let bits = (at..at + width).fold(0, |bits, i| {
            bits << 1 | u64::from(body[i / 8] >> (7 - i % 8) & 1)
        });
        N::of(bits)
    }

    fn write(&self, body: &mut Body, at: usize, width: usize) {
        let bits = self.bits();
        for (n, i) in (at..at + width).rev().enumerate() {
            let mask = 1 << (7 - i % 8);
            match bits >> n & 1 {
                0 => body[i / 8] &= !mask,
                _ => body[i / 8] |= mask,
            }
        }
    }
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            fn of(bits: u64) -> $ty {
                bits as $ty
            }

            fn bits(self) -> u64 {
                self.into()
            }
        }
    )*};
}

integers!(u8, u16, u32, u64);

impl Number for bool {
    fn of(bits: u64) -> bool {
        bits != 0
    }

    fn bits(self) -> u64 {
        self.into()
    }
}

impl Number for QpNumber {
    fn of(bits: u64) -> QpNumber {
        QpNumber::new(bits as u32)
    }

    fn bits(self) -> u64 {
        self.get().into()
    }
}

impl Number for Psn {
    fn of(bits: u64) -> Psn {
        Psn::new(bits as u32)
    }

    fn bits(self) -> u64 {
        self.get().into()
    }
}

/// Bytes that a message carries without looking at them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bytes<const N: usize>(pub [u8; N]);

impl<const N: usize> Bytes<N> {
    /// `data` and zeros behind it; `None` if there are more than `N` bytes.
    pub fn new(data: &[u8]) -> Option<Bytes<N>> {
        let mut bytes = [0; N];
        bytes.get_mut(..data.len())?.copy_from_slice(data);
        Some(Bytes(bytes))
    }
}

impl<const N: usize> Default for Bytes<N> {
    fn default() -> Bytes<N> {
        Bytes([0; N])
    }
}

impl<const N: usize> Deref for Bytes<N> {
    type Target = [u8; N];

    fn deref(&self) -> &[u8; N] {
        &self.0
    }
}

/// Without the zeros at the end, which nobody put there.
impl<const N: usize> std::fmt::Debug for Bytes<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let len = self.0.iter().rposition(|&b| b != 0).map_or(0, |at| at + 1);
        write!(f, "Bytes<{N}>({:02x?})", &self.0[..len])
    }
}

impl<const N: usize> Field for Bytes<N> {
    fn read(body: &Body, at: usize, _: usize) -> Bytes<N> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&body[at / 8..at / 8 + N]);
        Bytes(bytes)
    }

    fn write(&self, body: &mut Body, at: usize, _: usize) {
        body[at / 8..at / 8 + N].copy_from_slice(&self.0);
    }
}

impl Field for Gid {
    fn read(body: &Body, at: usize, width: usize) -> Gid {
        Gid(Bytes::read(body, at, width).0)
    }

    fn write(&self, body: &mut Body, at: usize, width: usize) {
        Bytes(self.0).write(body, at, width);
    }
}

/// A message: a struct whose fields stand at byte, bit and for so many bits.
macro_rules! message {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $ty:ty = $byte:literal, $bit:literal, $width:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl $name {
            /// Where its fields stand: first bit, and bits.
            #[cfg(test)]
            pub(super) const PLACES: &[(usize, usize)] = &[$(($byte * 8 + $bit, $width)),*];

            pub(super) fn read(body: &$crate::wire::cm::Body) -> $name {
                use $crate::wire::cm::fields::Field as _;
                $name {
                    $($field: <$ty>::read(body, $byte * 8 + $bit, $width),)*
                }
            }

            pub(super) fn write(&self, body: &mut $crate::wire::cm::Body) {
                use $crate::wire::cm::fields::Field as _;
                $(self.$field.write(body, $byte * 8 + $bit, $width);)*
            }
        }
    };
}
pub(super) use message;
