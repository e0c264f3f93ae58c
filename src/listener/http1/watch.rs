//! What ends an HTTP/1.1 connection from outside: its deadlines, a client that leaves, a revocation, the edge's own end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::config::Deadlines;
use crate::listener::pace::Pace;
use crate::proxy::Worker;
use crate::tasks::Alarm;
use crate::telemetry::metrics::{ConnectionGauge, ConnectionState};

/// How long a connection that is to end waits for a request that may be on its way.
const LAST_REQUEST: Duration = Duration::from_secs(1);

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// After a whole answer.
    Whole,
    /// In the middle of something, or for a client that has left.
    Cut,
    /// Between two requests, after too long a wait.
    Unused,
}

/// Watches a connection wherever it waits.
pub(super) struct Watch<'c> {
    pace: &'c Arc<Pace>,
    deadlines: &'c Deadlines,
    leaving: Pin<&'c mut (dyn Future<Output = ()> + Send)>,
    // Since when the connection is to end.
    leaves: Option<Instant>,
    alarm: Alarm,
    // Cuts the answer whose client does not read; kept for its place among those that are told.
    cut: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    gauge: ConnectionGauge,
    idle: bool,
}

impl<'c> Watch<'c> {
    /// Watches a connection that has just begun; it is to end when `leaving` does.
    pub(super) fn new(
        worker: &Worker,
        deadlines: &'c Deadlines,
        pace: &'c Arc<Pace>,
        leaving: Pin<&'c mut (dyn Future<Output = ()> + Send)>,
    ) -> Self {
        Watch {
            pace,
            deadlines,
            leaving,
            leaves: None,
            alarm: Alarm::at(Instant::now() + deadlines.first_byte),
            cut: None,
            gauge: worker.counts().connection_opened(ConnectionState::Idle),
            idle: true,
        }
    }

    /// Ready when the connection must end now. To be called whenever its task waits.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if self.leaves.is_none() && self.leaving.as_mut().poll(cx).is_ready() {
            self.leaves = Some(Instant::now());
        }
        if self.pace.is_left() {
            return Poll::Ready(End::Cut);
        }
        self.count();
        // Made anew at each look, because the next answer has its own; only a client that does not read costs it.
        self.cut = self.pace.blocked_cut().map(|token| Box::pin(token.cancelled_owned()) as _);
        if self.cut.as_mut().is_some_and(|cut| cut.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(End::Cut);
        }
        let due = match self.leaves {
            None => self.pace.due(self.deadlines),
            Some(since) => self.pace.due_leaving(self.deadlines, since, LAST_REQUEST),
        };
        match due {
            Some(due) => self.alarm.poll(cx, due).map(|()| if self.pace.is_idle() { End::Unused } else { End::Cut }),
            None => Poll::Pending,
        }
    }

    /// Counts the connection as what it is doing.
    pub(super) fn count(&mut self) {
        if self.pace.is_idle() != self.idle {
            self.idle = !self.idle;
            if self.idle { self.gauge.idle() } else { self.gauge.active() }
        }
    }
}
