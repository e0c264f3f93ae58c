//! A gateway's response head.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| botgate::gateway::properties::answer(bytes));
