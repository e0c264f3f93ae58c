//! What the edge loads at its start, and what it cannot use.

use super::{BotKey, BotTokenRow, PersonRow, SessionRow};
use crate::names::{GatewayName, Identifier, Login, ProfileName, Uid};

/// A run that may still be going on at a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// The gateway's identifier of the run.
    pub run_id: Identifier,
    /// Whose it is.
    pub uid: Uid,
    /// The session that started it; its row may be gone.
    pub session_id: Uid,
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
    /// Rows that cannot be used. No bot, session, token or run above was made from them.
    pub problems: Vec<RowProblem>,
}

impl Loaded {
    /// Whether every person's row could be read. Nothing may be deleted for want of a person unless it is so.
    pub fn people_are_complete(&self) -> bool {
        self.problems.iter().all(|problem| problem.table != "users")
    }
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
