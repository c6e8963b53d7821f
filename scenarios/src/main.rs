//! The `softroce` program.
fn main() {}
