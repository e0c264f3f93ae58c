//! What leaves for the gateway.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| botgate::proxy::properties::rewrite(bytes));
