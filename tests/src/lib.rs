//! Shared pieces of the tests in `tests/`.

pub mod peers;
pub mod tshark;
