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

/// What the records of one write give back, all at once when dropped: callers count on the same cache lines.
struct Freed<'a> {
    shared: &'a Shared,
    room: usize,
    control: usize,
    refusals: usize,
    /// Records of one stripe in a row.
    run: Option<(Stripe, usize)>,
}

impl<'a> Freed<'a> {
    fn of(shared: &'a Shared) -> Self {
        Freed { shared, room: 0, control: 0, refusals: 0, run: None }
    }

    fn room(&mut self, stripe: Stripe) {
        self.room += 1;
        match &mut self.run {
            Some((last, records)) if *last == stripe => *records += 1,
            run => {
                if let Some((last, records)) = run.replace((stripe, 1)) {
                    self.shared.room.give_stripe(last, records);
                }
            }
        }
    }
}

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        if let Some((last, records)) = self.run {
            self.shared.room.give_stripe(last, records);
        }
        self.shared.room.give_all(self.room);
        self.shared.control.give(self.control);
        self.shared.refusals.give(self.refusals);
        self.shared.queued.0.fetch_sub(self.room + self.control + self.refusals, Ordering::Relaxed);
    }
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
        let mut freed = Freed::of(shared);
        while self.owed.front().is_some_and(|(end, _)| *end <= self.written) {
            let Some((_, owed)) = self.owed.pop_front() else { break };
            records += u64::from(!matches!(owed, Owed::Bookkeeping));
            match owed {
                Owed::Open(turn) => {
                    turn.settle(true);
                    freed.room(turn.stripe);
                }
                Owed::Room(stripe) => freed.room(stripe),
                Owed::Action { stripe, done } => {
                    match stripe {
                        Some(stripe) => freed.room(stripe),
                        None => freed.control += 1,
                    }
                    if let Some(done) = done {
                        let _ = done.send(Ok(()));
                    }
                }
                Owed::Refusal => freed.refusals += 1,
                Owed::Nothing | Owed::Bookkeeping => {}
            }
        }
        drop(freed);
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
