//! The queue between callers and the writer: what may be in it. It is bounded by the room that each record has taken.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::error::AuditError;
use super::records::{ActionRecord, CloseRecord};
use super::room::Stripe;
use super::turn::Turn;
use crate::names::{Login, Uid};
use crate::telemetry::reason::Reason;

/// Where the fate of a record, or of the stop, is told.
pub(super) type Done = oneshot::Sender<Result<(), AuditError>>;

/// What callers put into the queue.
pub(super) enum Message {
    Open(Arc<Turn>),
    Close {
        turn: Arc<Turn>,
        at: u64,
        /// `None`: interrupted.
        close: Option<CloseRecord>,
    },
    Action {
        at: u64,
        record: Box<ActionRecord>,
        /// A person's stripe; `None` for an operator's record.
        stripe: Option<Stripe>,
        done: Option<Done>,
    },
    Refusal(Box<OwnedRefusal>),
    Stop(Done),
}

/// A refusal that is recorded by itself.
pub(super) struct OwnedRefusal {
    pub(super) at: u64,
    pub(super) login: Login,
    pub(super) uid: Uid,
    pub(super) peer: IpAddr,
    pub(super) reason: Reason,
    pub(super) request_id: String,
    pub(super) route: Option<&'static str>,
}
