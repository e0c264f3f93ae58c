//! The record of what each call carried and how it ended.

use std::sync::{Arc, Mutex};

/// The most calls that are noted; a test that makes more is broken.
const CALL_LIMIT: usize = 10_000;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It has not.
    Open,
    /// The whole answer was taken.
    Finished,
    /// The caller left before the answer was over.
    Abandoned,
}

/// What one call carried.
#[derive(Clone, Debug)]
pub(crate) struct ModelCall {
    /// The provider key, without its scheme.
    pub(crate) provider_key: String,
    /// The last user message.
    pub(crate) user: String,
    /// The system message.
    pub(crate) system: String,
    /// Whether the agent itself asked, with its tools, rather than a side call.
    pub(crate) is_turn: bool,
    pub(crate) end: End,
}

/// Every call so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    noted: Mutex<Vec<ModelCall>>,
}

impl Calls {
    /// Those whose last user message contains `marker`, in the order of their arrival.
    pub(super) fn with(&self, marker: &str) -> Vec<ModelCall> {
        let noted = self.noted.lock().expect("no holder panics");
        noted.iter().filter(|call| call.user.contains(marker)).cloned().collect()
    }
}

/// A noted call; how it ended is decided by whether [`Note::finished`] came before the drop.
#[derive(Debug)]
pub(super) struct Note {
    calls: Arc<Calls>,
    index: usize,
}

impl Note {
    pub(super) fn new(calls: &Arc<Calls>, call: ModelCall) -> Self {
        let mut noted = calls.noted.lock().expect("no holder panics");
        assert!(noted.len() < CALL_LIMIT, "more than {CALL_LIMIT} calls");
        noted.push(call);
        Self { calls: Arc::clone(calls), index: noted.len() - 1 }
    }

    pub(super) fn finished(&self) {
        self.end(End::Finished);
    }

    fn end(&self, end: End) {
        let mut noted = self.calls.noted.lock().expect("no holder panics");
        let call = &mut noted[self.index];
        if call.end == End::Open {
            call.end = end;
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.end(End::Abandoned);
    }
}
