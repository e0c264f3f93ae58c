//! The one credential among header lines.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| botgate::proxy::properties::one_credential(bytes));
