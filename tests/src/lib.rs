//! Shared pieces of the tests in `tests/`.
//!
//! * [`mod@bench`]: one card, and a peer that says exactly what the test wants it to say.
//! * [`conformance`]: what a card must do, rule by rule, on that bench.
//! * [`pair`]: two cards, and a network between them that loses, repeats, reorders and damages.
//! * [`link`]: two cards and such a network alone, for tests that judge packet by packet.
//! * [`hostile`]: a card, the peers it works for, and one that says anything.
//! * [`replay`]: one card in the place of the kernel's driver, at either end of its captures.
//! * `interop`: our card and the kernel's driver, alive, at the two ends of a cable (Linux).
//! * [`programs`]: the verbs programs, built, and what they print.
//! * [`peers`], [`tshark`]: other people's programs that look at the same packets.

pub mod bench;
pub mod conformance;
pub mod hostile;
#[cfg(target_os = "linux")]
pub mod interop;
pub mod link;
pub mod pair;
pub mod peers;
pub mod programs;
pub mod replay;
pub mod tshark;
