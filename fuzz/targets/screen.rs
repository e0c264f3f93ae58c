//! The first decision: framing, Host, target.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| botgate::proxy::properties::screen(bytes));
