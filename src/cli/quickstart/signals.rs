//! Signals: what ends a quickstart.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::QuickstartError;

/// The signals that end it, kept from the first moment on so that none is missed.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Self, QuickstartError> {
        let handler = |kind| signal(kind).map_err(|error| QuickstartError::System("handling signals", error));
        Ok(Signals {
            interrupt: handler(SignalKind::interrupt())?,
            terminate: handler(SignalKind::terminate())?,
            // The terminal was closed.
            hangup: handler(SignalKind::hangup())?,
        })
    }

    /// Awaits something; `None` once a signal came first.
    pub(super) async fn or<T>(&mut self, something: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => None,
            _ = self.terminate.recv() => None,
            _ = self.hangup.recv() => None,
            value = something => Some(value),
        }
    }
}
