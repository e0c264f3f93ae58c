//! The table of routes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| botgate::proxy::properties::route(bytes));
