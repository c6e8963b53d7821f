//! Shared pieces of the tests in `tests/`.
