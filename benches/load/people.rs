//! The people of the comparison: who they are, what they present, and what the upstream must see for it.

use botgate::names::{Login, ProfileName};
use botgate::secret::{ApiServerKey, FreshToken, TokenKind};

use crate::trouble::{Outcome, Trouble};

/// How many people have a bot and a token.
pub const PEOPLE: usize = 10_000;
/// The Host of every request; botgate's configuration names it.
pub const HOST: &str = "localhost";
/// What clients claim and no upstream may see.
pub const FORGED: &str = "203.0.113.9";

/// One person with one bot.
#[derive(Debug)]
pub struct Person {
    pub login: Login,
    pub profile: ProfileName,
    pub key: ApiServerKey,
    pub token: String,
}

/// Everybody who can sign in. Their tokens come from botgate.
///
/// # Errors
/// A login that botgate does not take.
pub fn invite() -> Outcome<Vec<Person>> {
    let person = |number| {
        let login = Login::parse(&format!("p{number}")).map_err(|error| Trouble::new(format!("login: {error}")))?;
        let profile = ProfileName::of(&login);
        Ok(Person { login, profile, key: ApiServerKey::generate(), token: String::new() })
    };
    (0..PEOPLE).map(person).collect()
}

/// A token of the right shape that is nobody's.
pub fn stranger() -> String {
    FreshToken::generate(TokenKind::Session).expose().to_owned()
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The list of models: no turn.
    Models,
    /// A plain chat turn.
    Turn,
    /// A streamed chat turn.
    Stream,
}

impl Ask {
    fn body(self) -> &'static str {
        match self {
            Ask::Models => "",
            Ask::Turn => {
                r#"{"model":"hermes-agent","messages":[{"role":"user","content":"How is the weather today?"}]}"#
            }
            Ask::Stream => {
                r#"{"model":"hermes-agent","stream":true,"messages":[{"role":"user","content":"How is the weather?"}]}"#
            }
        }
    }

    /// The request line's method and the path's end.
    fn line(self) -> (&'static str, &'static str) {
        match self {
            Ask::Models => ("GET", "/v1/models"),
            Ask::Turn | Ask::Stream => ("POST", "/v1/chat/completions"),
        }
    }

    /// A client's request to a proxy, with lines that must not come through. `prefix` is empty or `/p/<profile>`.
    pub fn request(self, prefix: &str, token: &str) -> String {
        let forged = format!(
            "Cookie: session={FORGED}\r\nX-Forwarded-For: {FORGED}\r\nX-Forwarded-Host: {FORGED}\r\nX-Real-IP: {FORGED}\r\n"
        );
        self.compose(prefix, token, &forged)
    }

    /// The same as a proxy would send it on.
    pub fn forwarded(self, person: &Person) -> String {
        let prefix = format!("/p/{}", person.profile.as_str());
        self.compose(&prefix, person.key.expose(), "X-Forwarded-For: 127.0.0.1\r\n")
    }

    fn compose(self, prefix: &str, credential: &str, lines: &str) -> String {
        let ((method, path), body) = (self.line(), self.body());
        let framing = match body.len() {
            0 => String::new(),
            length => format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"),
        };
        format!(
            "{method} {prefix}{path} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {credential}\r\n\
             User-Agent: load/1\r\nAccept: */*\r\n{lines}{framing}\r\n{body}"
        )
    }
}
