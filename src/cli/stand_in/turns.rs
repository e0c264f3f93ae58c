//! Turns: how many run, and how they ended. A turn is counted by a guard, so that no way out forgets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use http::{Response, StatusCode};

use super::answer::{self, Answer};

/// The gateway's turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    max: usize,
    running: AtomicUsize,
    peak: AtomicUsize,
    finished: AtomicUsize,
    interrupted: AtomicUsize,
    draining: AtomicBool,
}

impl Turns {
    /// At most `max` at once; 0: no cap.
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Turns { max, ..Turns::default() })
    }

    pub(super) fn running(&self) -> usize {
        self.running.load(SeqCst)
    }

    pub(super) fn peak(&self) -> usize {
        self.peak.load(SeqCst)
    }

    pub(super) fn finished(&self) -> usize {
        self.finished.load(SeqCst)
    }

    pub(super) fn interrupted(&self) -> usize {
        self.interrupted.load(SeqCst)
    }

    pub(super) fn drain(&self) {
        self.draining.store(true, SeqCst);
    }

    /// Begins a turn, or says why not.
    pub(super) fn begin(self: &Arc<Self>) -> Result<Turn, Response<Answer>> {
        if self.draining.load(SeqCst) {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let message = "The stand-in is draining; try again shortly.";
            let answer = answer::error(status, message, "invalid_request_error", Some("gateway_draining"));
            return Err(answer::retry_later(answer));
        }
        let running = self.running.fetch_add(1, SeqCst) + 1;
        let turn = Turn { turns: Arc::clone(self), end: End::Refused };
        if self.max > 0 && running > self.max {
            let message = format!("{} turns are running, which is the most.", self.max);
            let status = StatusCode::TOO_MANY_REQUESTS;
            let answer = answer::error(status, &message, "rate_limit_error", Some("rate_limit_exceeded"));
            return Err(answer::retry_later(answer));
        }
        self.peak.fetch_max(running, SeqCst);
        Ok(turn)
    }
}

/// One running turn.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    end: End,
}

#[derive(Debug)]
enum End {
    /// The model was never asked.
    Refused,
    Interrupted,
    Finished,
}

impl Turn {
    /// From here on the model works: a drop is an interruption.
    pub(super) fn work(&mut self) {
        self.end = End::Interrupted;
    }

    /// The turn came to its end.
    pub(super) fn finish(mut self) {
        self.end = End::Finished;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        match self.end {
            End::Refused => {}
            End::Interrupted => drop(self.turns.interrupted.fetch_add(1, SeqCst)),
            End::Finished => drop(self.turns.finished.fetch_add(1, SeqCst)),
        }
        self.turns.running.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_holds_and_every_end_is_counted() {
        let turns = Turns::new(1);
        let mut turn = turns.begin().unwrap();
        assert_eq!(turns.begin().unwrap_err().status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!((turns.running(), turns.interrupted()), (1, 0));
        turn.work();
        drop(turn);
        turns.begin().unwrap().finish();
        assert_eq!((turns.running(), turns.peak(), turns.interrupted(), turns.finished()), (0, 1, 1, 1));
        turns.drain();
        assert_eq!(turns.begin().unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
