//! What the admin API's requests and answers look like: shared by the server and the command line.
//!
//! Every call is a POST with a JSON object. Names in bodies, never in paths, so that no log of paths names anybody.

mod findings;

use serde::{Deserialize, Serialize};

pub use findings::{Contract, Contracts, Fact, FactState, Finding, Findings, Health};

use crate::names::{GatewayName, Login, ProfileName, Role, Uid};

/// Nothing to say.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// A call about one person.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByLogin {
    /// The person.
    pub login: Login,
}

/// A call about one person, or everybody.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaybeLogin {
    /// The person; everybody when absent.
    pub login: Option<Login>,
}

/// A person to make known.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddPerson {
    /// The person's name.
    pub login: Login,
    /// Role towards the MCP server.
    pub role: Role,
}

/// One line of an import, not yet understood.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportLine {
    /// The person's name.
    pub login: String,
    /// Role towards the MCP server; `member` when absent.
    pub role: Option<String>,
    /// Key of a profile that exists, to adopt it.
    pub api_server_key: Option<String>,
}

/// Where an import's bots are.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportTo {
    /// The gateway; may be absent when one is configured.
    pub gateway: Option<GatewayName>,
}

/// A person, as listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PersonInfo {
    /// The person's name.
    pub login: Login,
    /// The person's row.
    pub uid: Uid,
    /// Role towards the MCP server.
    pub role: Role,
    /// `active`, `disabled` or `deleting`.
    pub state: String,
    /// Where the bot is, when there is one.
    pub gateway: Option<GatewayName>,
    /// The bot's profile, when there is one.
    pub profile: Option<ProfileName>,
    /// When the person was made known, UTC milliseconds.
    pub created_at: i64,
}

/// What became of an import.
#[derive(Debug, Serialize, Deserialize)]
pub struct Imported {
    /// People made known.
    pub added: usize,
    /// Bots registered with them.
    pub bots: usize,
    /// Lines that changed nothing.
    pub refused: usize,
    /// The first of those.
    pub problems: Vec<LineProblem>,
}

/// Why a line changed nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LineProblem {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// A profile to register as a person's bot.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    /// The person.
    pub login: Login,
    /// The gateway that serves it; may be absent when one is configured.
    pub gateway: Option<GatewayName>,
    /// The profile's key.
    pub api_server_key: String,
}

/// A registered bot.
#[derive(Debug, Serialize, Deserialize)]
pub struct Adopted {
    /// The person.
    pub login: Login,
    /// The profile.
    pub profile: ProfileName,
    /// Where it is.
    pub gateway: GatewayName,
    /// What the proof says; absent while nothing serves.
    pub proof: Option<ProofInfo>,
}

/// A bot, as listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BotInfo {
    /// The person.
    pub login: Login,
    /// The profile.
    pub profile: ProfileName,
    /// Where it is.
    pub gateway: GatewayName,
    /// `proved`, `unproved` or `refused`; `off` when the person is not active.
    pub standing: String,
}

/// What the proof of one bot says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProofInfo {
    /// The person.
    pub login: Login,
    /// The profile.
    pub profile: ProfileName,
    /// Where it is.
    pub gateway: GatewayName,
    /// Whether the bot's key opens its path and others do not.
    pub proved: bool,
    /// The typed reason: `proved`, or what is wrong.
    pub verdict: String,
    /// The same in a sentence, with what to do.
    pub message: String,
}

/// Sessions or tokens to issue.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateSessions {
    /// For whom; a name may stand more than once.
    pub logins: Vec<Login>,
    /// How many for each.
    pub count: u32,
    /// How long they count, in milliseconds.
    pub ttl_ms: i64,
    /// A label makes them personal tokens.
    pub label: Option<String>,
}

/// Issued credentials.
#[derive(Serialize, Deserialize)]
pub struct Issued {
    /// In the order asked for.
    pub tokens: Vec<IssuedToken>,
    /// Logins for whom none was issued, and why; nobody twice.
    pub refused: Vec<RefusedLogin>,
}

/// One issued credential. Its text is shown this once.
#[derive(Serialize, Deserialize)]
pub struct IssuedToken {
    /// Whose it is.
    pub login: Login,
    /// The row, to revoke it by.
    pub id: Uid,
    /// The secret.
    pub token: String,
    /// When it ends, UTC milliseconds; absent: at its revocation.
    pub expires_at: Option<i64>,
}

/// Why nothing was issued for a login.
#[derive(Debug, Serialize, Deserialize)]
pub struct RefusedLogin {
    /// For whom not.
    pub login: Login,
    /// Why not.
    pub message: String,
}

/// Which of the two kinds of credential a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Signed-in sessions.
    Session,
    /// Personal tokens.
    Personal,
}

/// Which sessions to list.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSessions {
    /// Which kind.
    pub kind: Kind,
    /// Only this person's.
    pub login: Option<Login>,
    /// Only those after this one: the next page.
    pub after: Option<Uid>,
}

/// A session or token, as listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionInfo {
    /// The row, to revoke it by.
    pub id: Uid,
    /// Whose it is.
    pub login: Login,
    /// The owner's word for a personal token.
    pub label: Option<String>,
    /// When it was issued, UTC milliseconds.
    pub created_at: i64,
    /// When it ends, UTC milliseconds.
    pub expires_at: i64,
    /// When it was last used, UTC milliseconds.
    pub last_used_at: Option<i64>,
}

/// A page of sessions.
#[derive(Debug, Serialize, Deserialize)]
pub struct SessionPage {
    /// At most a page's worth, by id.
    pub sessions: Vec<SessionInfo>,
    /// Whether to ask again after the last one.
    pub more: bool,
}

/// What to revoke.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// Which kind.
    pub kind: Kind,
    /// Some by row.
    pub ids: Vec<Uid>,
    /// All of this person's.
    pub login: Option<Login>,
}

/// What was revoked.
#[derive(Debug, Serialize, Deserialize)]
pub struct Revoked {
    /// How many.
    pub revoked: usize,
    /// Rows that are no live credential of that kind.
    pub unknown: Vec<Uid>,
}

/// What a deletion came to.
#[derive(Debug, Serialize, Deserialize)]
pub struct Deleted {
    /// The person.
    pub login: Login,
    /// Whether nothing of them is left.
    pub finished: bool,
    /// The profile that still exists, or may.
    pub profile: Option<ProfileName>,
    /// Where.
    pub gateway: Option<GatewayName>,
    /// Why it is not finished.
    pub message: Option<String>,
}

/// What a lockdown cut off.
#[derive(Debug, Serialize, Deserialize)]
pub struct LockedDown {
    /// People who are refused now.
    pub people: usize,
    /// Sessions and tokens revoked.
    pub sessions: usize,
    /// Keys that an agent may know and that somebody has to change by hand.
    pub keys: Vec<KeyToChange>,
}

/// A key to change by hand.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeyToChange {
    /// The person.
    pub login: Login,
    /// The profile whose .env holds it.
    pub profile: ProfileName,
    /// Where.
    pub gateway: GatewayName,
}

/// Whether to do what the plan says.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reconcile {
    /// Do it.
    pub apply: bool,
}

/// What is left to do, or was done.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reconciled {
    /// One for each person who is being deleted.
    pub orphans: Vec<Deleted>,
}

/// An answer other than success.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failed {
    /// One word for programs.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What to do next.
    pub next: Option<String>,
}
