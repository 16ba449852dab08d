//! The `refrain` binary.
fn main() {}
