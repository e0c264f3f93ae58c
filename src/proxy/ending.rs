//! How an edge comes to its end: it drains, or another process takes its place.
//!
//! Invariants: whatever ends the edge brings its open connections to an end; only a drain refuses turns. This file waits for
//! nothing: the listener does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::tasks::Cancellation;

/// The signals that end an edge; none of them is taken back. Clones are handles on the same.
#[derive(Debug, Clone)]
pub struct Ending {
    cut: Cancellation,
    draining: Cancellation,
    // A child of `draining`, so that a connection waits for one signal and not for two.
    leaving: Cancellation,
    replaced: Arc<AtomicBool>,
}

impl Default for Ending {
    fn default() -> Self {
        Self::new()
    }
}

impl Ending {
    /// An edge that stays.
    pub fn new() -> Self {
        let draining = Cancellation::new();
        let leaving = draining.child();
        Ending { cut: Cancellation::new(), draining, leaving, replaced: Arc::default() }
    }

    /// No more connections and no more turns; what is under way gets its time.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Another process has the listening sockets and accepts from now on. What comes on open connections is served as before,
    /// and they are told to end; there is no limit to that but a later [`Ending::drain`].
    pub fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
        self.leaving.cancel();
    }

    /// What still runs gets no more time.
    pub fn cut(&self) {
        self.cut.cancel();
        self.draining.cancel();
    }

    /// Given when turns are refused.
    pub fn draining(&self) -> &Cancellation {
        &self.draining
    }

    /// Given when nothing more is accepted and connections end after their next answer: by a drain, and by a replacement.
    pub fn leaving(&self) -> &Cancellation {
        &self.leaving
    }

    /// Given when there is no more time.
    pub fn out_of_time(&self) -> &Cancellation {
        &self.cut
    }

    /// Whether another process accepts in this one's place.
    pub fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_end_with_either_and_turns_with_a_drain_alone() {
        let state = |ending: &Ending| {
            let given = [ending.leaving(), ending.draining(), ending.out_of_time()].map(Cancellation::is_cancelled);
            (given, ending.is_replaced())
        };
        let (drained, replaced, cut) = (Ending::new(), Ending::new(), Ending::new());
        drained.drain();
        replaced.replace();
        cut.cut();
        assert_eq!(state(&Ending::new()), ([false, false, false], false));
        assert_eq!(state(&drained), ([true, true, false], false));
        assert_eq!(state(&replaced), ([true, false, false], true));
        assert_eq!(state(&cut), ([true, true, true], false));
        replaced.drain();
        assert_eq!(state(&replaced), ([true, true, false], true));
    }
}
