//! Names: parse-only newtypes, and the only mapping from a login to a profile.
//!
//! Invariants: a value of these types has passed its one constructor, so no later code checks again. The mapping
//! from login to profile is injective, because a collision would be someone else's bot.
//! This room does not know who exists; it only knows what a name may look like.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use unicode_normalization::is_nfc;

/// Longest login, in bytes.
const LOGIN_MAX_BYTES: usize = 128;
/// Longest encoded login that stands in a profile name as it is, in bytes.
const ENCODED_MAX_BYTES: usize = 60;
/// Bytes of the encoded form that stay readable in front of a digest.
const ENCODED_KEPT_BYTES: usize = 26;
/// Longest identifier in a path (run, session, job …), in bytes.
const IDENTIFIER_MAX_BYTES: usize = 256;

/// Why a text is not a name. The text itself is left out: it may be hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameError {
    /// Empty, or longer than allowed.
    Length,
    /// Holds a character that this kind of name does not allow.
    Character,
    /// Unicode text that is not in normalisation form C.
    NotNormalised,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::Length => "is empty or too long",
            NameError::Character => "holds a character that is not allowed",
            NameError::NotNormalised => "is not in Unicode normalisation form C",
        })
    }
}

impl std::error::Error for NameError {}

/// A person's name here: 1 to 128 bytes of NFC text without control or format characters or outer white space.
///
/// Case is kept: folding belongs to the rules of whoever names the person.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Login(Arc<str>);

impl Login {
    /// Parses a login.
    ///
    /// # Errors
    /// [`NameError`] when the text breaks a rule named at the type.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > LOGIN_MAX_BYTES {
            return Err(NameError::Length);
        }
        if text.trim() != text || text.chars().any(|c| c.is_control() || is_format(c)) {
            return Err(NameError::Character);
        }
        if !is_nfc(text) {
            return Err(NameError::NotNormalised);
        }
        Ok(Login(text.into()))
    }

    /// The login as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Unicode's Cf characters and the separators and noncharacters that make two logins look alike.
fn is_format(c: char) -> bool {
    matches!(c as u32,
        0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x890..=0x891 | 0x8E2 | 0x180E
        | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xFE00..=0xFE0F | 0xFEFF | 0xFFF0..=0xFFFF
        | 0x110BD | 0x110CD | 0x13430..=0x1343F | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A
        | 0xE0000..=0xE0FFF)
}

/// A Hermes profile of botgate's own: `bot-` and an encoded login, at most 64 bytes of `a-z 0-9 - _`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfileName(Arc<str>);

impl ProfileName {
    /// The profile of a person: the only mapping from a login to a profile.
    ///
    /// Bytes `a-z 0-9 -` stay, every other byte becomes `_` and two lower-case hex digits. A form longer than 60
    /// bytes keeps its first 26 and ends in `__` and 32 hex digits of SHA-256(login); `__` cannot occur otherwise.
    pub fn of(login: &Login) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut encoded = String::with_capacity(login.0.len() + 8);
        for &byte in login.0.as_bytes() {
            if matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-') {
                encoded.push(byte as char);
            } else {
                encoded.push('_');
                encoded.push(HEX[usize::from(byte >> 4)] as char);
                encoded.push(HEX[usize::from(byte & 15)] as char);
            }
        }
        if encoded.len() <= ENCODED_MAX_BYTES {
            return ProfileName(format!("bot-{encoded}").into());
        }
        let digest = hex(&Sha256::digest(login.0.as_bytes())[..16]);
        ProfileName(format!("bot-{}__{digest}", &encoded[..ENCODED_KEPT_BYTES]).into())
    }

    /// Parses a stored or listed profile name.
    ///
    /// # Errors
    /// [`NameError`] unless it is `bot-` and 1 to 60 bytes of `a-z 0-9 - _`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let rest = text.strip_prefix("bot-").ok_or(NameError::Character)?;
        if rest.is_empty() || rest.len() > ENCODED_MAX_BYTES {
            return Err(NameError::Length);
        }
        if !rest.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')) {
            return Err(NameError::Character);
        }
        Ok(ProfileName(text.into()))
    }

    /// The profile as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Lower-case hex of some bytes.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident, $max:expr, $allowed:pat) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses the text.
            ///
            /// # Errors
            /// [`NameError`] when it is empty, too long, or holds another character.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                if !(1..=$max).contains(&text.len()) {
                    return Err(NameError::Length);
                }
                if !Self::is_valid(text) {
                    return Err(NameError::Character);
                }
                Ok(Self(text.into()))
            }

            /// Whether the text would parse, without keeping it. `.` and `..` name no thing in a path or folder.
            pub fn is_valid(text: &str) -> bool {
                (1..=$max).contains(&text.len())
                    && !matches!(text, "." | "..")
                    && text.bytes().all(|b| matches!(b, $allowed))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}

text_newtype!(
    /// The configured name of a gateway: 1 to 64 bytes of `A-Z a-z 0-9 . _ -`. It is a metric label.
    GatewayName, 64, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'
);
text_newtype!(
    /// A person's role towards the MCP server: 1 to 64 bytes of `A-Z a-z 0-9 . _ -`.
    Role, 64, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'
);
text_newtype!(
    /// The gateway's identifier of a run, session, response or job: 1 to 256 bytes of `A-Z a-z 0-9 . _ ~ : -`.
    Identifier, IDENTIFIER_MAX_BYTES,
    b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'~' | b':' | b'-'
);
text_newtype!(
    /// A random row identifier of botgate's own: 1 to 32 bytes of `0-9 a-f`.
    Uid, 32, b'0'..=b'9' | b'a'..=b'f'
);

impl Uid {
    /// A fresh identifier of 128 random bits.
    pub fn random() -> Self {
        let mut bytes = [0_u8; 16];
        // A kernel without entropy cannot name a row; going on could name two rows alike.
        getrandom::fill(&mut bytes).expect("the operating system's random source answers");
        Uid(hex(&bytes).into())
    }
}

macro_rules! show_as_text {
    ($($name:ident),*) => { $(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                $name::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    )* };
}
show_as_text!(Login, ProfileName, GatewayName, Role, Identifier, Uid);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn profile(login: &str) -> String {
        ProfileName::of(&Login::parse(login).unwrap()).as_str().to_owned()
    }

    #[test]
    fn the_documented_examples_hold() {
        assert_eq!(profile("alice"), "bot-alice");
        assert_eq!(profile("ana.maria@x.org"), "bot-ana_2emaria_40x_2eorg");
        assert_eq!(profile("A_b"), "bot-_41_5fb");
    }

    #[test]
    fn a_long_login_ends_in_its_digest() {
        let name = profile(&"x".repeat(61));
        assert_eq!(name.len(), 4 + 26 + 2 + 32);
        assert!(name.starts_with(&format!("bot-{}__", "x".repeat(26))));
    }

    #[test]
    fn what_is_no_login_is_refused() {
        for bad in ["", " alice", "alice ", "al\u{0}ice", "al\nice", "al\u{200d}ice", "e\u{301}", "\u{feff}a"] {
            assert!(Login::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Login::parse(&"x".repeat(129)).is_err());
        assert!(Login::parse("\u{e9}").is_ok());
    }

    #[test]
    fn an_identifier_is_never_a_dot_segment() {
        for bad in ["", ".", "..", "a/b", "a b", "é"] {
            assert!(Identifier::parse(bad).is_err() && !Identifier::is_valid(bad), "{bad:?}");
        }
        assert!(Identifier::parse("run_1.2:a~b-").is_ok());
    }

    proptest! {
        #[test]
        fn every_login_has_a_profile_that_hermes_accepts(text in "\\PC{1,40}") {
            if let Ok(login) = Login::parse(&text) {
                let name = ProfileName::of(&login);
                prop_assert!(ProfileName::parse(name.as_str()).is_ok());
                prop_assert!(name.as_str().len() <= 64);
            }
        }

        #[test]
        fn two_logins_never_share_a_profile(a in "[a-c_A\\-.é]{1,70}", b in "[a-c_A\\-.é]{1,70}") {
            if let (Ok(a), Ok(b)) = (Login::parse(&a), Login::parse(&b)) {
                prop_assert_eq!(a == b, ProfileName::of(&a) == ProfileName::of(&b));
            }
        }
    }
}
