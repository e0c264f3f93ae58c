//! botgate
fn main() {}
