//! A gateway's chunked body.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| botgate::gateway::properties::content(bytes));
