//! Turns in the audit log: room, then an `open` record, then exactly one `close` record, each step a type.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::encode::OpenFields;
use super::error::AuditError;
use super::queue::Message;
use super::records::{ActionRecord, CloseRecord, OpenRecord};
use super::room::Stripe;
use super::{Audit, now_ms};
use crate::config::WhenFull;

/// Longest wait for a record to be written: past it the disk hangs.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

const PENDING: u8 = 0;
const WRITTEN: u8 = 1;
const FAILED: u8 = 2;
const STOPPED: u8 = 3;

/// One turn, shared by its guard and the writer.
pub(super) struct Turn {
    pub(super) opened: OpenFields,
    pub(super) at: u64,
    pub(super) stripe: Stripe,
    /// Number of the `open` record; 0 until it has one.
    pub(super) seq: AtomicU64,
    state: AtomicU8,
    changed: Notify,
}

impl Turn {
    /// The `open` record is on its way to the disk, or was found not to be.
    pub(super) fn settle(&self, written: bool) {
        self.become_state(if written { WRITTEN } else { FAILED });
    }

    fn become_state(&self, state: u8) {
        // The first verdict stands: a caller who was told of a failure has refused the turn.
        if self.state.compare_exchange(PENDING, state, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.changed.notify_one();
        }
    }
}

/// Room for a number of records. Dropped, it gives back what no record has taken along.
struct Slots {
    audit: Audit,
    stripe: Stripe,
    /// 0 when there is no room and turns run all the same.
    records: usize,
}

impl Slots {
    /// Queues a record, which takes its room along; the writer gives it back.
    fn send(&mut self, message: Message) -> bool {
        let sent = self.audit.send(message);
        self.records -= usize::from(sent);
        sent
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if self.records > 0 {
            self.audit.room().give(self.stripe, self.records);
        }
    }
}

/// Room for one turn's `open` and `close` records. Dropped unused, it gives the room back.
#[must_use = "dropping it gives the room back"]
pub struct AuditSlots(Slots);

impl AuditSlots {
    pub(super) fn new(audit: Audit, stripe: Stripe, held: bool) -> Self {
        AuditSlots(Slots { audit, stripe, records: if held { 2 } else { 0 } })
    }

    /// Queues the `open` record; never blocks.
    pub fn open(mut self, record: &OpenRecord<'_>) -> OpenTurn {
        let slots = &mut self.0;
        if slots.records == 0 {
            slots.audit.dropped();
            return OpenTurn { slots: self.0, turn: None };
        }
        let turn = Arc::new(Turn {
            opened: OpenFields::of(record),
            at: now_ms(),
            stripe: slots.stripe,
            seq: AtomicU64::new(0),
            state: AtomicU8::new(PENDING),
            changed: Notify::new(),
        });
        if slots.send(Message::Open(Arc::clone(&turn))) {
            slots.audit.wake_soon();
        } else {
            turn.become_state(STOPPED);
        }
        OpenTurn { slots: self.0, turn: Some(turn) }
    }
}

impl fmt::Debug for AuditSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditSlots(..)")
    }
}

/// A turn whose `open` record is queued. Dropped without [`OpenTurn::close`], it is closed as `interrupted`.
#[must_use = "dropping it closes the turn as interrupted"]
pub struct OpenTurn {
    slots: Slots,
    /// `None` once closed, or when there was no room and turns run all the same.
    turn: Option<Arc<Turn>>,
}

impl OpenTurn {
    /// Waits until the `open` record has been written (`write(2)` returned), at most ten seconds. May be called
    /// again, and may be dropped while it waits; one caller at a time.
    ///
    /// # Errors
    /// The record was not written. Never, when turns run all the same.
    pub async fn written(&self) -> Result<(), AuditError> {
        let Some(turn) = &self.turn else { return Ok(()) };
        let settled = match turn.state.load(Ordering::Acquire) {
            PENDING => {
                self.slots.audit.wake_soon();
                tokio::time::timeout(WRITTEN_WITHIN, settled(turn)).await.unwrap_or(PENDING)
            }
            state => state,
        };
        let error = match settled {
            WRITTEN => return Ok(()),
            FAILED => AuditError::NotWritten,
            STOPPED => AuditError::Stopped,
            _ => AuditError::Slow,
        };
        match self.slots.audit.when_full() {
            WhenFull::Refuse => Err(error),
            WhenFull::Drop => Ok(()),
        }
    }

    /// Queues the `close` record; never blocks.
    pub fn close(mut self, record: CloseRecord) {
        self.end(Some(record));
    }

    fn end(&mut self, close: Option<CloseRecord>) {
        let Some(turn) = self.turn.take() else { return };
        self.slots.send(Message::Close { turn, at: now_ms(), close });
    }
}

async fn settled(turn: &Turn) -> u8 {
    loop {
        // A verdict between the look and the wait leaves a permit, so the wait ends at once.
        match turn.state.load(Ordering::Acquire) {
            PENDING => turn.changed.notified().await,
            state => return state,
        }
    }
}

impl Drop for OpenTurn {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl fmt::Debug for OpenTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenTurn(..)")
    }
}

/// Room for one record of a person's change. Dropped unused, it gives the room back.
#[must_use = "dropping it gives the room back"]
pub struct ActionSlot(Slots);

impl ActionSlot {
    pub(super) fn new(audit: Audit, stripe: Stripe, held: bool) -> Self {
        ActionSlot(Slots { audit, stripe, records: usize::from(held) })
    }

    /// Queues the record; never blocks.
    pub fn record(mut self, record: ActionRecord) {
        let slots = &mut self.0;
        if slots.records == 0 {
            slots.audit.dropped();
            return;
        }
        let stripe = Some(slots.stripe);
        if slots.send(Message::Action { at: now_ms(), record: Box::new(record), stripe, done: None }) {
            slots.audit.wake_soon();
        }
    }
}

impl fmt::Debug for ActionSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ActionSlot(..)")
    }
}
