//! The client's body on its way to the gateway: counted, limited and paced.
//!
//! Invariants: no more than the limit passes; a client slower than 1 KiB/s is cut, and so is one that falls silent, however
//! fast it was before; only time spent waiting for the client counts, so a slow gateway is never the client's fault. What happened stays readable from outside.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

/// Slowest body that is waited for, in bytes a second.
const LEAST_BYTES_PER_SECOND: u64 = 1024;

/// Why a body was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFault {
    /// Over the limit.
    TooLarge,
    /// Slower than the least rate.
    TooSlow,
    /// The client broke off, or sent framing that is not HTTP.
    Aborted,
}

impl std::fmt::Display for BodyFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BodyFault::TooLarge => "request body over the limit",
            BodyFault::TooSlow => "request body too slow",
            BodyFault::Aborted => "request body broken off",
        })
    }
}

impl std::error::Error for BodyFault {}

/// What has become of a request body; shared with whoever waits for the answer.
#[derive(Debug, Default)]
pub struct BodyProgress {
    bytes: AtomicU64,
    taken: AtomicBool,
    complete: AtomicBool,
    fault: AtomicU8,
}

impl BodyProgress {
    /// Bytes taken from the client so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether any of the body may have left for the gateway.
    pub fn taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether the whole body has been handed on: from here the gateway may run the turn.
    pub fn complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }

    /// Why it was cut, if it was.
    pub fn fault(&self) -> Option<BodyFault> {
        match self.fault.load(Ordering::Relaxed) {
            1 => Some(BodyFault::TooLarge),
            2 => Some(BodyFault::TooSlow),
            3 => Some(BodyFault::Aborted),
            _ => None,
        }
    }

    fn cut(&self, fault: BodyFault) -> BodyFault {
        let value = match fault {
            BodyFault::TooLarge => 1,
            BodyFault::TooSlow => 2,
            BodyFault::Aborted => 3,
        };
        self.fault.store(value, Ordering::Relaxed);
        fault
    }
}

/// A body towards the gateway.
pub struct RequestBody {
    incoming: Option<Incoming>,
    limit: u64,
    grace: Duration,
    waited: Duration,
    waiting_since: Option<Instant>,
    alarm: Option<Pin<Box<Sleep>>>,
    progress: Arc<BodyProgress>,
}

impl RequestBody {
    /// No body.
    pub fn empty() -> Self {
        let progress = BodyProgress::default();
        progress.complete.store(true, Ordering::Relaxed);
        RequestBody {
            incoming: None,
            limit: 0,
            grace: Duration::ZERO,
            waited: Duration::ZERO,
            waiting_since: None,
            alarm: None,
            progress: Arc::new(progress),
        }
    }

    /// A client's body of at most `limit` bytes, whose client may be silent for `grace` at a time, and in all no longer than
    /// that beyond the least rate.
    pub fn new(incoming: Incoming, limit: u64, grace: Duration) -> Self {
        if incoming.is_end_stream() {
            return RequestBody::empty();
        }
        RequestBody { incoming: Some(incoming), limit, grace, ..RequestBody::empty() }.with_fresh_progress()
    }

    fn with_fresh_progress(mut self) -> Self {
        self.progress = Arc::default();
        self
    }

    /// Where to read what became of it.
    pub fn progress(&self) -> Arc<BodyProgress> {
        Arc::clone(&self.progress)
    }

    /// Waiting that the client has left before it is too slow.
    fn allowance(&self) -> Duration {
        self.grace + Duration::from_millis(self.progress.bytes() * 1000 / LEAST_BYTES_PER_SECOND)
    }

    fn poll_pace(&mut self, cx: &mut Context<'_>) -> Poll<BodyFault> {
        let now = Instant::now();
        let since = *self.waiting_since.get_or_insert(now);
        let due = since + self.allowance().saturating_sub(self.waited).min(self.grace);
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if alarm.deadline() != due {
            alarm.as_mut().reset(due);
        }
        ready!(alarm.as_mut().poll(cx));
        Poll::Ready(self.progress.cut(BodyFault::TooSlow))
    }
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBody").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let this = self.get_mut();
        let Some(incoming) = this.incoming.as_mut() else { return Poll::Ready(None) };
        loop {
            let polled = Pin::new(&mut *incoming).poll_frame(cx);
            let Poll::Ready(next) = polled else {
                return this.poll_pace(cx).map(|fault| Some(Err(fault)));
            };
            if let Some(since) = this.waiting_since.take() {
                this.waited += since.elapsed();
            }
            let Some(frame) = next else {
                this.progress.complete.store(true, Ordering::Relaxed);
                return Poll::Ready(None);
            };
            // Trailers are no part of what the gateway understands; they are dropped.
            let Ok(data) = frame.map_err(|_| this.progress.cut(BodyFault::Aborted))?.into_data() else { continue };
            let bytes = this.progress.bytes() + data.len() as u64;
            if bytes > this.limit {
                return Poll::Ready(Some(Err(this.progress.cut(BodyFault::TooLarge))));
            }
            this.progress.bytes.store(bytes, Ordering::Relaxed);
            this.progress.taken.store(true, Ordering::Relaxed);
            if incoming.is_end_stream() {
                this.progress.complete.store(true, Ordering::Relaxed);
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
