//! Model: the store's rows as the rooms above see them. Timestamps are UTC milliseconds.
//!
//! Plain data without rules of its own; parsing and constraints stand where the rows are read and written.

use serde::Serialize;

use crate::names::{GatewayName, Identifier, Login, ProfileName, Role, Uid};
use crate::secret::{ApiServerKey, TokenDigest, TokenKind};

/// Whether a person may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PersonState {
    /// May come in.
    Active,
    /// Refused until enabled again.
    Disabled,
    /// Refused for good; the login stays taken until the bot is proved gone. No way back.
    Deleting,
}

impl PersonState {
    /// The word that the store and the admin API use.
    pub fn as_str(self) -> &'static str {
        match self {
            PersonState::Active => "active",
            PersonState::Disabled => "disabled",
            PersonState::Deleting => "deleting",
        }
    }
}

/// A person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PersonRow {
    /// Random; another one when a login is used again after deletion.
    pub uid: Uid,
    /// Unique, also among people who are being deleted.
    pub login: Login,
    /// Role towards the MCP server.
    pub role: Role,
    /// Whether the person may come in.
    pub state: PersonState,
    /// The gateway chosen for the person; always there when `profile` is.
    pub gateway: Option<GatewayName>,
    /// The bot's profile; `None`: no bot.
    pub profile: Option<ProfileName>,
    /// Whether the bot existed before botgate: such a profile is never deleted by botgate.
    pub adopted: bool,
    /// When the row was made.
    pub created_at: i64,
}

/// A person to add.
#[derive(Debug, Clone)]
pub struct NewPerson {
    /// The person's name.
    pub login: Login,
    /// Role towards the MCP server.
    pub role: Role,
    /// Where the person's bot will be, when known.
    pub gateway: Option<GatewayName>,
}

/// One line of an import.
#[derive(Debug, Clone)]
pub struct ImportLine {
    /// The person's name.
    pub login: Login,
    /// Role towards the MCP server.
    pub role: Role,
    /// Where the person's bot is, or will be.
    pub gateway: GatewayName,
    /// The key of a profile that exists: it is adopted in the same transaction.
    pub key: Option<ApiServerKey>,
}

/// What became of one line of an import.
#[derive(Debug)]
pub enum ImportOutcome {
    /// The person is new.
    Added {
        /// The person.
        person: PersonRow,
        /// The adopted bot, when the line had a key.
        bot: Option<BotKey>,
    },
    /// The login is taken, by an earlier line or an older row; nothing was changed.
    Exists(PersonRow),
}

/// A bot and its opened key.
#[derive(Debug, Clone)]
pub struct BotKey {
    /// The person's row.
    pub uid: Uid,
    /// The person's name.
    pub login: Login,
    /// The profile: always the one that the login maps to.
    pub profile: ProfileName,
    /// Where it is served.
    pub gateway: GatewayName,
    /// The profile's `API_SERVER_KEY`.
    pub key: ApiServerKey,
    /// 1 at first, one more with each change of the key.
    pub generation: i64,
}

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

/// A run that may still be going on at a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// The gateway's identifier of the run.
    pub run_id: Identifier,
    /// Whose it is.
    pub uid: Uid,
    /// The bot that runs it.
    pub profile: ProfileName,
    /// Where it runs.
    pub gateway: GatewayName,
    /// When it was started.
    pub started_at: i64,
}

/// Everything that the edge needs at its start.
#[derive(Debug)]
pub struct Loaded {
    /// All people, by login, whatever their state.
    pub people: Vec<PersonRow>,
    /// The bots whose key opened, also of people who are disabled or being deleted.
    pub bots: Vec<BotKey>,
    /// Sessions and personal tokens that are neither revoked nor past an end, of active people only.
    pub sessions: Vec<SessionRow>,
    /// Bot tokens that are not revoked, of active people only.
    pub bot_tokens: Vec<BotTokenRow>,
    /// Runs that were not seen to end.
    pub runs: Vec<RunRow>,
    /// Rows that cannot be used. Nothing above was made from them.
    pub problems: Vec<RowProblem>,
}

/// A row that cannot be used: it is served as if it were not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowProblem {
    /// The table.
    pub table: &'static str,
    /// The person whom it concerns, when that can be told.
    pub login: Option<Login>,
    /// What is wrong.
    pub fault: RowFault,
}

/// What is wrong with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFault {
    /// The sealed key does not open for this person: the row was moved or altered.
    NotOpened,
    /// The profile is not the one that the login maps to.
    WrongProfile,
    /// The key's row names another gateway than the person's.
    GatewayDiffers,
    /// The person has a profile but no key.
    KeyMissing,
    /// The row belongs to nobody.
    NoOwner,
    /// A column holds what this version cannot read.
    Malformed,
}

impl std::fmt::Display for RowProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.fault {
            RowFault::NotOpened => {
                "the sealed key does not open: the row was moved or altered, adopt the bot's key again"
            }
            RowFault::WrongProfile => "the profile is not the one that the login maps to",
            RowFault::GatewayDiffers => "the key's row names another gateway than the person's",
            RowFault::KeyMissing => "the person has a profile but no key",
            RowFault::NoOwner => "the row belongs to nobody",
            RowFault::Malformed => "a column holds what this version cannot read",
        };
        match &self.login {
            Some(login) => write!(f, "{} of {login}: {what}", self.table),
            None => write!(f, "{}: {what}", self.table),
        }
    }
}

/// What deleting a person took away; the row itself stays until the bot is proved gone.
#[derive(Debug, Clone)]
pub struct Deleting {
    /// The person, now in state `deleting`.
    pub person: PersonRow,
    /// Sessions and personal tokens revoked by this call.
    pub sessions: usize,
    /// Bot tokens revoked by this call.
    pub bot_tokens: usize,
}

/// What a lockdown took away.
#[derive(Debug, Clone)]
pub struct LockedDown {
    /// The people concerned, now disabled or still being deleted.
    pub people: Vec<PersonRow>,
    /// Sessions and personal tokens revoked by this call.
    pub sessions: usize,
    /// Bot tokens revoked by this call.
    pub bot_tokens: usize,
}
