//! The mapping from a login to a profile: one that the gateway accepts, and that can be taken back to the login.
#![no_main]

use botgate::names::{Login, ProfileName};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(login) = Login::parse(text) else { return };
    let profile = ProfileName::of(&login);
    assert_eq!(ProfileName::parse(profile.as_str()).as_ref(), Ok(&profile));
    let Some(encoded) = profile.as_str().strip_prefix("bot-") else { panic!("{profile}") };
    // Where a digest stands for the rest there is no way back.
    if encoded.contains("__") {
        assert!(encoded.len() == 60 && text.len() > 20);
        return;
    }
    let (mut bytes, mut rest) = (Vec::new(), encoded.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'_' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(&rest[..2]).expect("two digits follow");
        bytes.push(u8::from_str_radix(digits, 16).expect("two hex digits follow"));
        rest = &rest[2..];
    }
    assert_eq!(bytes, text.as_bytes());
});
