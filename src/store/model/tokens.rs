//! Rows of sessions, personal tokens and bot tokens.

use crate::names::Uid;
use crate::secret::{TokenDigest, TokenKind};

/// A bot's MCP token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotTokenRow {
    /// The row.
    pub id: Uid,
    /// Whose bot holds it.
    pub uid: Uid,
    /// SHA-256 of the token's text.
    pub digest: TokenDigest,
    /// When it was issued.
    pub created_at: i64,
    /// When it was last seen at `/mcp`.
    pub last_used_at: Option<i64>,
    /// When it was revoked.
    pub revoked_at: Option<i64>,
}

/// A signed-in session or a personal token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// The row; what people see and revoke.
    pub id: Uid,
    /// SHA-256 of the token's text.
    pub digest: TokenDigest,
    /// Whose it is.
    pub uid: Uid,
    /// [`TokenKind::Session`] or [`TokenKind::Personal`], never a bot's.
    pub kind: TokenKind,
    /// What the person calls a personal token.
    pub label: Option<String>,
    /// When it was issued.
    pub created_at: i64,
    /// When it ends whatever happens.
    pub expires_at: i64,
    /// When it ends unless it is used; `None`: no idle limit.
    pub idle_expires_at: Option<i64>,
    /// When it was last used, as of the last flush.
    pub last_used_at: Option<i64>,
    /// When it was revoked.
    pub revoked_at: Option<i64>,
}

/// A session or personal token to store. The store makes its id.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Whose it will be.
    pub uid: Uid,
    /// SHA-256 of the token's text.
    pub digest: TokenDigest,
    /// [`TokenKind::Session`] or [`TokenKind::Personal`].
    pub kind: TokenKind,
    /// At most 200 bytes.
    pub label: Option<String>,
    /// When it is issued.
    pub created_at: i64,
    /// When it ends; later than `created_at`.
    pub expires_at: i64,
    /// When it ends unless used.
    pub idle_expires_at: Option<i64>,
}

/// Why one session of a batch was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRefused {
    /// No such person.
    NoSuchPerson,
    /// Disabled or being deleted.
    PersonNotActive,
    /// A bot's kind, an end before its beginning, or a label over the limit.
    Invalid,
    /// The digest is stored already.
    DigestTaken,
}

impl std::fmt::Display for SessionRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SessionRefused::NoSuchPerson => "there is no such person",
            SessionRefused::PersonNotActive => "the person is disabled or being deleted",
            SessionRefused::Invalid => "the kind, the times or the label of the session are not valid",
            SessionRefused::DigestTaken => "the token is stored already",
        })
    }
}

impl std::error::Error for SessionRefused {}

/// Which sessions to list. The default is all, the first 1,000 by id.
#[derive(Debug, Clone)]
pub struct SessionFilter {
    /// Only this person's.
    pub uid: Option<Uid>,
    /// Only this kind.
    pub kind: Option<TokenKind>,
    /// Only those neither revoked nor past an end.
    pub live_only: bool,
    /// Only ids after this one: the next page.
    pub after: Option<Uid>,
    /// At most so many; the store caps it at 10,000.
    pub limit: usize,
}

impl Default for SessionFilter {
    fn default() -> Self {
        SessionFilter { uid: None, kind: None, live_only: false, after: None, limit: 1_000 }
    }
}

/// One session's use since the last flush.
#[derive(Debug, Clone)]
pub struct IdleFlush {
    /// The session's row.
    pub id: Uid,
    /// Its new idle end; ignored when it has no idle limit.
    pub idle_expires_at: Option<i64>,
    /// When it was last used.
    pub last_used_at: i64,
}
