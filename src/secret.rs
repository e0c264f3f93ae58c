//! Secrets: values that redact themselves, wipe themselves, and have one accessor each, named `expose`.
//!
//! Invariants: no secret has `Display`, `Serialize` or `PartialEq`; its `Debug` is a fixed word; a bearer token of
//! the right shape is known only by its digest. This room does not decide who a token belongs to.

use std::fmt;
use std::hash::{Hash, Hasher};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, Zeroizing};

/// Random bytes in a token.
const TOKEN_RANDOM_BYTES: usize = 32;
/// base64url characters of those bytes.
const TOKEN_BODY_CHARS: usize = 43;
/// Characters of the checksum.
const TOKEN_CHECKSUM_CHARS: usize = 6;
/// `bgs_`, the body, `_` and the checksum.
const TOKEN_CHARS: usize = 4 + TOKEN_BODY_CHARS + 1 + TOKEN_CHECKSUM_CHARS;
/// Shortest key that Hermes accepts for a named profile, in bytes.
const API_SERVER_KEY_MIN_BYTES: usize = 16;
/// Longest header value that the gateway takes, less `Bearer `, in bytes.
const API_SERVER_KEY_MAX_BYTES: usize = 4096;

/// Fills a buffer from the operating system's random source.
pub fn fill_random(bytes: &mut [u8]) {
    // A kernel without entropy cannot make a credential; going on would make a guessable one.
    getrandom::fill(bytes).expect("the operating system's random source answers");
}

/// What a token is for. The kind is part of its text, so that one kind never opens another's door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// `bgs_`: a signed-in session.
    Session,
    /// `bgp_`: a personal token, long-lived, for SDKs.
    Personal,
    /// `bgm_`: a bot's MCP credential. It opens `/mcp` and nothing else.
    Bot,
}

impl TokenKind {
    fn letter(self) -> u8 {
        match self {
            TokenKind::Session => b's',
            TokenKind::Personal => b'p',
            TokenKind::Bot => b'm',
        }
    }

    /// The word that the store and the audit log use.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenKind::Session => "session",
            TokenKind::Personal => "personal",
            TokenKind::Bot => "bot",
        }
    }
}

/// SHA-256 of a token's whole text: what maps and the store hold in its place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

impl Hash for TokenDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Any eight bytes of a digest are as random as all of them.
        let (first, _) = self.0.split_first_chunk().expect("a digest has 32 bytes");
        state.write_u64(u64::from_ne_bytes(*first));
    }
}

impl TokenDigest {
    /// A digest as the store holds it; `None` unless it is 32 bytes.
    pub fn from_stored(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(TokenDigest)
    }

    /// The bytes to store.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(..)")
    }
}

/// A presented token of the right shape and checksum: its kind and digest. Whether it is anyone's is not known yet.
#[derive(Debug, Clone, Copy)]
pub struct PresentedToken {
    /// The kind its text claims; the digest covers the claim.
    pub kind: TokenKind,
    /// What to look up.
    pub digest: TokenDigest,
}

impl PresentedToken {
    /// Reads a credential; `None` when shape or checksum is wrong, so that typing errors cost no lookup.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != TOKEN_CHARS || &text[..2] != b"bg" || text[3] != b'_' || text[4 + TOKEN_BODY_CHARS] != b'_' {
            return None;
        }
        let kind = match text[2] {
            b's' => TokenKind::Session,
            b'p' => TokenKind::Personal,
            b'm' => TokenKind::Bot,
            _ => return None,
        };
        let (signed, sum) = (&text[..4 + TOKEN_BODY_CHARS], &text[5 + TOKEN_BODY_CHARS..]);
        (checksum(signed) == sum).then(|| PresentedToken { kind, digest: TokenDigest(Sha256::digest(text).into()) })
    }
}

/// CRC-32 in six base-62 digits, the form that secret scanners know.
fn checksum(text: &[u8]) -> [u8; TOKEN_CHECKSUM_CHARS] {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut rest = crc32fast::hash(text);
    let mut out = [b'0'; TOKEN_CHECKSUM_CHARS];
    for digit in out.iter_mut().rev() {
        *digit = DIGITS[(rest % 62) as usize];
        rest /= 62;
    }
    out
}

/// A token that has just been made. Its text can be shown once and is stored nowhere.
pub struct FreshToken {
    text: Zeroizing<String>,
    digest: TokenDigest,
}

impl FreshToken {
    /// Makes a token of 256 random bits.
    pub fn generate(kind: TokenKind) -> Self {
        let mut random = Zeroizing::new([0_u8; TOKEN_RANDOM_BYTES]);
        fill_random(&mut *random);
        let mut text = Zeroizing::new(String::with_capacity(TOKEN_CHARS));
        text.push_str("bg");
        text.push(kind.letter() as char);
        text.push('_');
        URL_SAFE_NO_PAD.encode_string(random.as_slice(), &mut text);
        let sum = checksum(text.as_bytes());
        text.push('_');
        text.extend(sum.map(char::from));
        let digest = TokenDigest(Sha256::digest(text.as_bytes()).into());
        FreshToken { text, digest }
    }

    /// The digest to store.
    pub fn digest(&self) -> TokenDigest {
        self.digest
    }

    /// The token's text, to be shown to its owner once.
    pub fn expose(&self) -> &str {
        &self.text
    }
}

/// Why a text is not usable as a profile's `API_SERVER_KEY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// Shorter than 16 bytes: Hermes treats it as no key at all.
    Short,
    /// Longer than a header value may be.
    Long,
    /// Not visible ASCII: the gateway answers 500 or cuts it at a space.
    Character,
    /// One of the placeholders that Hermes refuses, or one repeated character.
    Placeholder,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyError::Short => "is shorter than 16 characters, which Hermes treats as no key",
            KeyError::Long => "is longer than 4096 characters",
            KeyError::Character => "may hold visible ASCII only",
            KeyError::Placeholder => "is a placeholder, which Hermes refuses",
        })
    }
}

impl std::error::Error for KeyError {}

/// A profile's `API_SERVER_KEY`: 16 to 4096 bytes of visible ASCII that Hermes would accept.
#[derive(Clone)]
pub struct ApiServerKey(Zeroizing<String>);

impl ApiServerKey {
    /// Parses a key that an operator or the store hands over; outer white space is dropped, as Hermes does.
    ///
    /// # Errors
    /// [`KeyError`] when Hermes would treat it as no key, or it cannot stand in a header.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        if text.len() < API_SERVER_KEY_MIN_BYTES {
            return Err(KeyError::Short);
        }
        if text.len() > API_SERVER_KEY_MAX_BYTES {
            return Err(KeyError::Long);
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(KeyError::Character);
        }
        let lower = text.to_ascii_lowercase();
        let repeated = lower.bytes().all(|b| b == lower.as_bytes()[0]);
        if repeated || (lower.starts_with("your_") && lower.ends_with("_here")) || lower.starts_with("sk-xxxx") {
            return Err(KeyError::Placeholder);
        }
        Ok(ApiServerKey(Zeroizing::new(text.to_owned())))
    }

    /// A fresh key of 32 random bytes in hex.
    pub fn generate() -> Self {
        let mut random = Zeroizing::new([0_u8; 32]);
        fill_random(&mut *random);
        ApiServerKey(Zeroizing::new(crate::names::hex(random.as_slice())))
    }

    /// The key's text: for the header towards the gateway, for sealing, and for the keeper.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// The 256-bit key under which `API_SERVER_KEY`s are sealed at rest.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; 32]>);

impl MasterKey {
    /// A fresh master key.
    pub fn generate() -> Self {
        let mut bytes = Zeroizing::new([0_u8; 32]);
        fill_random(&mut *bytes);
        MasterKey(bytes)
    }

    /// Reads the 64 hex digits of a key file; `None` when they are not that.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().as_bytes();
        if text.len() != 64 {
            return None;
        }
        let mut bytes = Zeroizing::new([0_u8; 32]);
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let (high, low) = ((pair[0] as char).to_digit(16)?, (pair[1] as char).to_digit(16)?);
            *byte = (high * 16 + low) as u8;
        }
        Some(MasterKey(bytes))
    }

    /// The key's text for its 0600 file.
    pub fn to_file_text(&self) -> Zeroizing<String> {
        Zeroizing::new(crate::names::hex(self.0.as_slice()))
    }

    /// The key's bytes, for the cipher and for deriving the audit log's key.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Some other secret text: the admin control token, a provider key in a template.
#[derive(Clone)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Takes over a text.
    pub fn new(text: String) -> Self {
        SecretText(Zeroizing::new(text))
    }

    /// 256 random bits in hex.
    pub fn generate() -> Self {
        SecretText(Zeroizing::new(ApiServerKey::generate().expose().to_owned()))
    }

    /// The text.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether a presented text is this one, without telling by time how much of it was right.
    pub fn matches(&self, presented: &[u8]) -> bool {
        let (mut own, mut other): ([u8; 32], [u8; 32]) =
            (Sha256::digest(self.0.as_bytes()).into(), Sha256::digest(presented).into());
        let differing = own.iter().zip(&other).fold(0_u8, |bits, (a, b)| bits | (a ^ b));
        own.zeroize();
        other.zeroize();
        differing == 0
    }
}

macro_rules! redacted {
    ($($name:ident),*) => { $(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(redacted)"))
            }
        }
    )* };
}
redacted!(FreshToken, ApiServerKey, MasterKey, SecretText);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_token_parses_to_its_own_digest() {
        for kind in [TokenKind::Session, TokenKind::Personal, TokenKind::Bot] {
            let token = FreshToken::generate(kind);
            let parsed = PresentedToken::parse(token.expose().as_bytes()).unwrap();
            assert_eq!(parsed.kind, kind);
            assert_eq!(parsed.digest, token.digest());
            assert_eq!(token.expose().len(), TOKEN_CHARS);
        }
    }

    #[test]
    fn a_typing_error_is_refused_without_a_lookup() {
        let token = FreshToken::generate(TokenKind::Session);
        for at in 0..TOKEN_CHARS {
            let mut text = token.expose().as_bytes().to_vec();
            text[at] = if text[at] == b'A' { b'B' } else { b'A' };
            assert!(PresentedToken::parse(&text).is_none(), "position {at}");
        }
        assert!(PresentedToken::parse(b"").is_none());
        assert!(PresentedToken::parse(&[b'x'; TOKEN_CHARS + 1]).is_none());
    }

    #[test]
    fn debug_shows_no_secret() {
        let key = ApiServerKey::generate();
        let token = FreshToken::generate(TokenKind::Personal);
        let shown = format!("{key:?} {token:?} {:?}", SecretText::new("fixture".into()));
        assert!(!shown.contains(key.expose()) && !shown.contains(token.expose()) && !shown.contains("fixture"));
    }

    #[test]
    fn keys_that_hermes_would_ignore_are_refused() {
        assert_eq!(ApiServerKey::parse("0123456789abcde").unwrap_err(), KeyError::Short);
        assert_eq!(ApiServerKey::parse(&"x".repeat(32)).unwrap_err(), KeyError::Placeholder);
        assert_eq!(ApiServerKey::parse("your_api_server_key_here").unwrap_err(), KeyError::Placeholder);
        assert_eq!(ApiServerKey::parse("0123456789 abcdef").unwrap_err(), KeyError::Character);
        assert!(ApiServerKey::parse(" 0123456789abcdef\n").is_ok());
    }

    #[test]
    fn a_master_key_survives_its_file() {
        let key = MasterKey::generate();
        assert_eq!(MasterKey::parse(&key.to_file_text()).unwrap().expose(), key.expose());
        assert!(MasterKey::parse("zz").is_none());
    }
}
