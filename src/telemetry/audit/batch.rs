//! A batch: lines that are not written yet, and what is owed to whom once they are.
//!
//! Invariants: lines stay in their order and are never dropped; each debt is settled once, when the last byte of its
//! record has been written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::error::AuditError;
use super::line::{Chain, Fields, SealKey};
use super::queue::Done;
use super::room::Stripe;
use super::turn::Turn;

/// What is owed once a record has been written.
pub(super) enum Owed {
    Open(Arc<Turn>),
    Room(Stripe),
    Action {
        stripe: Option<Stripe>,
        done: Option<Done>,
    },
    Refusal,
    /// A record of the writer's own.
    Nothing,
    /// Bookkeeping of the chain, which tells nothing new.
    Bookkeeping,
}

/// The chain's end in memory, ahead of the file by the lines in here.
pub(super) struct Batch {
    key: SealKey,
    chain: Chain,
    lines: Vec<u8>,
    /// How many bytes of the lines are written.
    written: usize,
    /// End of each line that something is owed for, in order.
    owed: VecDeque<(usize, Owed)>,
    sealed: bool,
}

impl Batch {
    pub(super) fn new(key: SealKey, chain: Chain, capacity: usize) -> Self {
        let lines = Vec::with_capacity(capacity);
        Batch { key, chain, lines, written: 0, owed: VecDeque::new(), sealed: true }
    }

    /// Appends a line and returns its number.
    pub(super) fn line(&mut self, kind: &str, at: u64, owed: Owed, fields: impl FnOnce(&mut Fields<'_>)) -> u64 {
        let seq = self.chain.append(&mut self.lines, at, kind, fields);
        self.owed.push_back((self.lines.len(), owed));
        self.sealed = false;
        seq
    }

    /// Appends a seal if there are lines after the last one.
    pub(super) fn seal(&mut self, at: u64) {
        if !self.sealed {
            self.chain.seal(&mut self.lines, at, &self.key);
            self.owed.push_back((self.lines.len(), Owed::Bookkeeping));
            self.sealed = true;
        }
    }

    /// Bytes of all lines, written or not.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// What is still to be written.
    pub(super) fn unwritten(&self) -> &[u8] {
        &self.lines[self.written..]
    }

    /// The number and hash of the last line.
    pub(super) fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Forgets what is written, all of it, and memory that only a backlog needed.
    pub(super) fn clear(&mut self, capacity: usize) {
        debug_assert_eq!(self.written, self.lines.len());
        self.lines.clear();
        self.lines.shrink_to(capacity);
        self.written = 0;
    }

    /// Further bytes are written: gives room back and tells who waits.
    pub(super) fn settle_written(&mut self, bytes: usize, shared: &Shared) {
        self.written += bytes;
        let mut records = 0;
        while self.owed.front().is_some_and(|(end, _)| *end <= self.written) {
            let Some((_, owed)) = self.owed.pop_front() else { break };
            let queued = !matches!(owed, Owed::Nothing | Owed::Bookkeeping);
            records += u64::from(!matches!(owed, Owed::Bookkeeping));
            match owed {
                Owed::Open(turn) => {
                    turn.settle(true);
                    shared.room.give(turn.stripe, 1);
                }
                Owed::Room(stripe) => shared.room.give(stripe, 1),
                Owed::Action { stripe, done } => {
                    match stripe {
                        Some(stripe) => shared.room.give(stripe, 1),
                        None => shared.control.give(1),
                    }
                    if let Some(done) = done {
                        let _ = done.send(Ok(()));
                    }
                }
                Owed::Refusal => shared.refusals.give(1),
                Owed::Nothing | Owed::Bookkeeping => {}
            }
            if queued {
                shared.queued.fetch_sub(1, Ordering::Relaxed);
            }
        }
        shared.metrics.audit_written(records);
    }

    /// The records stay, and are written when that works again: the chain has no gap.
    pub(super) fn settle_failed(&mut self) {
        for (_, owed) in &mut self.owed {
            match owed {
                Owed::Open(turn) => turn.settle(false),
                Owed::Action { done, .. } => {
                    if let Some(done) = done.take() {
                        let _ = done.send(Err(AuditError::NotWritten));
                    }
                }
                _ => {}
            }
        }
    }
}
