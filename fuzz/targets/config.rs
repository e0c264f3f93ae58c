//! The configuration file: whatever is in it becomes a configuration or a list of errors, each time the same.
#![no_main]

use std::path::Path;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let read = || botgate::config::parse(text, Path::new("/nonexistent"));
    match (read(), read()) {
        (Ok(one), Ok(two)) => assert_eq!(format!("{one:?}"), format!("{two:?}")),
        (Err(one), Err(two)) => assert_eq!(one, two),
        (one, two) => panic!("{one:?} {two:?}"),
    }
});
