//! Requests of one connection, read by the engine and by hyper.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| botgate::listener::properties::requests(bytes));
