//! What callers put into the audit log. None of these has a place for a credential, a query or a body.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::names::{GatewayName, Identifier, Login, ProfileName, Uid};
use crate::secret::TokenKind;
use crate::telemetry::reason::Reason;

/// Longest free text in a record, in bytes; longer is cut.
pub(super) const TEXT_MAX_BYTES: usize = 1_024;
/// Most details of one action; further ones are left out.
pub(super) const DETAILS_MAX: usize = 16;

/// A turn or a tunnel that begins.
#[derive(Debug, Clone, Copy)]
pub struct OpenRecord<'a> {
    /// The request's own identifier.
    pub request_id: &'a str,
    /// The person.
    pub login: &'a Login,
    /// The person's row.
    pub uid: &'a Uid,
    /// The session's or personal token's row.
    pub session_id: &'a Uid,
    /// What was presented.
    pub credential: TokenKind,
    /// The bot.
    pub profile: &'a ProfileName,
    /// Where it lives.
    pub gateway: &'a GatewayName,
    /// Method, from the route table.
    pub method: &'static str,
    /// The route's label.
    pub route: &'static str,
    /// The client's address.
    pub peer: IpAddr,
    /// Whether it is an upgraded connection.
    pub tunnel: bool,
}

/// How something that was begun has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// To its proper end.
    Finished,
    /// The client left first.
    ClientGone,
    /// Cut, because the session, token or person was revoked.
    Revoked,
    /// Refused after it had been opened.
    Refused,
    /// The gateway failed or broke off.
    GatewayBroke,
    /// A deadline passed.
    TimedOut,
    /// Cut by the edge's own shutdown.
    Shutdown,
    /// It failed here.
    Failed,
    /// Dropped without a word: written by the guard.
    Interrupted,
    /// The process ended before it did: written at the next start.
    Lost,
}

impl Outcome {
    /// The word in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::ClientGone => "client_gone",
            Outcome::Revoked => "revoked",
            Outcome::Refused => "refused",
            Outcome::GatewayBroke => "gateway_broke",
            Outcome::TimedOut => "timed_out",
            Outcome::Shutdown => "shutdown",
            Outcome::Failed => "failed",
            Outcome::Interrupted => "interrupted",
            Outcome::Lost => "lost",
        }
    }
}

/// A turn or a tunnel that has ended.
#[derive(Debug, Clone)]
pub struct CloseRecord {
    /// What the client saw; `None` when nothing was answered.
    pub status: Option<u16>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it was refused or cut.
    pub reason: Option<Reason>,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client.
    pub bytes_out: u64,
    /// From the request's head to the end.
    pub duration: Duration,
    /// The run that the turn started, when it started one.
    pub run_id: Option<Identifier>,
}

/// Who did something.
#[derive(Debug, Clone)]
pub enum Actor {
    /// A signed-in person.
    Person {
        /// The person.
        login: Login,
        /// The person's row.
        uid: Uid,
    },
    /// Somebody with access to the admin socket.
    Operator {
        /// The caller's user on this machine.
        unix_uid: u32,
    },
    /// botgate itself, as in a periodic task.
    Edge,
}

/// A change: by a person's request that is not a turn, or by an operator.
#[derive(Debug, Clone)]
pub struct ActionRecord {
    /// Who did it.
    pub by: Actor,
    /// What was done: a fixed word such as `user.disable`.
    pub action: &'static str,
    /// What it was done to: a login, a profile, a row; cut after 1024 bytes.
    pub object: String,
    /// Whether it was done.
    pub outcome: Outcome,
    /// The request's own identifier.
    pub request_id: Option<Arc<str>>,
    /// What the client saw.
    pub status: Option<u16>,
    /// Further facts; at most 16, each cut after 1024 bytes. Never a secret.
    pub detail: Vec<(&'static str, String)>,
}

impl ActionRecord {
    /// A record without request, status and details.
    pub fn new(by: Actor, action: &'static str, object: impl Into<String>, outcome: Outcome) -> Self {
        ActionRecord { by, action, object: object.into(), outcome, request_id: None, status: None, detail: Vec::new() }
    }

    /// Adds a fact.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.detail.push((name, value.into()));
        self
    }
}

/// A request that was refused.
#[derive(Debug, Clone, Copy)]
pub struct RefusalRecord<'a> {
    /// The person, when the credential named one.
    pub person: Option<(&'a Login, &'a Uid)>,
    /// The client's address; of a stranger only its network is kept.
    pub peer: IpAddr,
    /// Why.
    pub reason: Reason,
    /// The request's own identifier.
    pub request_id: &'a str,
    /// The route's label, once known.
    pub route: Option<&'static str>,
}
