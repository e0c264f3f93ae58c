//! A request body between the engine that reads it from the client and whoever sends it on: one piece at a time.
//!
//! Invariants: nothing is read before it is asked for, and the next piece only when the last was taken, so that a slow gateway
//! slows its client down. Both ends mostly belong to one task; either may outlive the other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

/// A body broke off, or its framing is not HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokenOff;

#[derive(Debug, Default)]
struct Slot {
    piece: Option<Bytes>,
    // What is still to come, `piece` included, where the client has said it.
    left: Option<u64>,
    end: Option<Result<(), BrokenOff>>,
    asked: bool,
    taker: Option<Waker>,
    feeder: Option<Waker>,
    taker_gone: bool,
}

#[derive(Debug, Clone, Default)]
struct Shared(Arc<Mutex<Slot>>);

impl Shared {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        // Nothing is done under the lock that could panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end that takes.
#[derive(Debug)]
pub struct Feed(Shared);

/// The end that gives. Dropped before the body's end, it has broken off.
#[derive(Debug)]
pub struct Feeder(Shared);

/// Both ends of a body of so many bytes; `None`: the client has not said how many.
pub fn feed(length: Option<u64>) -> (Feeder, Feed) {
    let shared = Shared(Arc::new(Mutex::new(Slot { left: length, ..Slot::default() })));
    (Feeder(shared.clone()), Feed(shared))
}

impl Feed {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// [`BrokenOff`]
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        let mut slot = self.0.slot();
        if let Some(piece) = slot.piece.take() {
            slot.left = slot.left.map(|left| left.saturating_sub(piece.len() as u64));
            return Poll::Ready(Some(Ok(piece)));
        }
        match slot.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(broken)) => Poll::Ready(Some(Err(broken))),
            None => {
                slot.taker = Some(cx.waker().clone());
                if !std::mem::replace(&mut slot.asked, true)
                    && let Some(feeder) = slot.feeder.take()
                {
                    feeder.wake();
                }
                Poll::Pending
            }
        }
    }

    /// Whether nothing comes any more.
    pub fn is_end(&self) -> bool {
        let slot = self.0.slot();
        slot.piece.is_none() && slot.end == Some(Ok(()))
    }

    /// How many bytes are still to come, where the client has said it.
    pub fn length(&self) -> Option<u64> {
        self.0.slot().left
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut slot = self.0.slot();
        slot.taker_gone = true;
        slot.piece = None;
    }
}

impl Feeder {
    /// Ready when a piece is asked for; otherwise the task is woken then.
    pub fn poll_asked(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut slot = self.0.slot();
        if slot.asked && slot.piece.is_none() && slot.end.is_none() && !slot.taker_gone {
            return Poll::Ready(());
        }
        slot.feeder = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Gives a piece that was asked for; `last`: it is the end.
    pub fn give(&mut self, piece: Bytes, last: bool) {
        let mut slot = self.0.slot();
        if slot.taker_gone {
            return;
        }
        if !piece.is_empty() {
            slot.piece = Some(piece);
        }
        if last {
            slot.end = Some(Ok(()));
        }
        slot.asked = slot.piece.is_none() && !last;
        if let Some(taker) = slot.taker.take() {
            taker.wake();
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        let mut slot = self.0.slot();
        slot.end.get_or_insert(Err(BrokenOff));
        if let Some(taker) = slot.taker.take() {
            taker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_test::task;

    #[test]
    fn a_piece_is_given_only_when_it_was_asked_for() {
        let (mut feeder, mut taken) = feed(Some(3));
        let mut feeding = task::spawn(());
        let mut taking = task::spawn(());
        assert!(feeding.enter(|cx, _| feeder.poll_asked(cx)).is_pending());
        assert!(taking.enter(|cx, _| taken.poll_data(cx)).is_pending());
        assert!(feeding.is_woken());
        assert!(feeding.enter(|cx, _| feeder.poll_asked(cx)).is_ready());
        feeder.give(Bytes::from_static(b"ab"), false);
        assert!(taking.is_woken());
        assert!(feeding.enter(|cx, _| feeder.poll_asked(cx)).is_pending());
        assert_eq!(taking.enter(|cx, _| taken.poll_data(cx)), Poll::Ready(Some(Ok(Bytes::from_static(b"ab")))));
        assert_eq!((taken.length(), taken.is_end()), (Some(1), false));
        assert!(taking.enter(|cx, _| taken.poll_data(cx)).is_pending());
        feeder.give(Bytes::from_static(b"c"), true);
        assert_eq!(taking.enter(|cx, _| taken.poll_data(cx)), Poll::Ready(Some(Ok(Bytes::from_static(b"c")))));
        assert!(taken.is_end());
        assert_eq!(taking.enter(|cx, _| taken.poll_data(cx)), Poll::Ready(None));
    }

    #[test]
    fn a_feeder_that_goes_before_the_end_has_broken_off() {
        let (feeder, mut taken) = feed(None);
        let mut taking = task::spawn(());
        assert!(taking.enter(|cx, _| taken.poll_data(cx)).is_pending());
        drop(feeder);
        assert!(taking.is_woken());
        assert_eq!(taking.enter(|cx, _| taken.poll_data(cx)), Poll::Ready(Some(Err(BrokenOff))));
    }

    #[test]
    fn nobody_is_asked_for_a_body_that_nobody_takes() {
        let (mut feeder, taken) = feed(None);
        drop(taken);
        let mut feeding = task::spawn(());
        assert!(feeding.enter(|cx, _| feeder.poll_asked(cx)).is_pending());
        feeder.give(Bytes::from_static(b"x"), true);
        assert!(feeder.0.slot().piece.is_none());
    }
}
