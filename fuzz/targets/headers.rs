//! The lists of header fields that pass.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| botgate::proxy::properties::headers(bytes));
