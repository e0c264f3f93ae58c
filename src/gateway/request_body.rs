//! The client's body on its way to the gateway: counted, limited and paced.
//!
//! Invariants: no more than the limit passes; a client slower than 1 KiB/s is cut, and so is one that falls silent, however
//! fast it was before; only time spent waiting for the client counts, so a slow gateway is never the client's fault.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::feed::{BrokenOff, Feed};
use crate::tasks::Alarm;

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

/// What has been taken of a request body; shared with whoever records the request.
#[derive(Debug, Default)]
pub struct BodyProgress(AtomicU64);

impl BodyProgress {
    /// Bytes taken from the client so far.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A client's body, as its engine hands it over.
#[derive(Debug)]
pub enum Arriving {
    /// From hyper.
    Hyper {
        /// The body.
        body: Incoming,
        /// The head declares one, although it may be empty.
        declared: bool,
    },
    /// Came whole with its head; `None`: the head declares none.
    Whole(Option<Bytes>),
    /// Comes piece by piece.
    Fed(Feed),
}

impl Arriving {
    /// Whether the head declares a body.
    pub fn is_declared(&self) -> bool {
        match self {
            Arriving::Hyper { declared, .. } => *declared,
            Arriving::Whole(bytes) => bytes.is_some(),
            Arriving::Fed(_) => true,
        }
    }
}

/// A body towards the gateway. What a request without one carries about is one empty pointer.
pub struct RequestBody(Option<Box<Reading>>);

struct Reading {
    source: Source,
    limit: u64,
    grace: Duration,
    waited: Duration,
    waiting_since: Option<Instant>,
    alarm: Option<Alarm>,
    progress: Arc<BodyProgress>,
}

impl RequestBody {
    /// No body.
    pub fn empty() -> Self {
        RequestBody(None)
    }

    /// A client's body of at most `limit` bytes, whose client may be silent for `grace` at a time, and in all no longer than
    /// that beyond the least rate.
    pub fn new(arriving: Arriving, limit: u64, grace: Duration) -> Self {
        let source = match arriving {
            Arriving::Hyper { body, .. } => Source::Hyper(body),
            Arriving::Whole(bytes) => Source::Whole(bytes.unwrap_or_default()),
            Arriving::Fed(feed) => Source::Fed(feed),
        };
        if source.is_end() {
            return RequestBody::empty();
        }
        let (waited, progress) = (Duration::ZERO, Arc::default());
        let (waiting_since, alarm) = (None, None);
        RequestBody(Some(Box::new(Reading { source, limit, grace, waited, waiting_since, alarm, progress })))
    }

    /// Where to read how much of it has been taken; `None`: there is no body.
    pub fn progress(&self) -> Option<Arc<BodyProgress>> {
        self.0.as_ref().map(|reading| Arc::clone(&reading.progress))
    }
}

/// Where a body comes from.
enum Source {
    Hyper(Incoming),
    Whole(Bytes),
    Fed(Feed),
}

impl Source {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        match self {
            Source::Hyper(incoming) => loop {
                let Some(frame) = ready!(Pin::new(&mut *incoming).poll_frame(cx)) else { return Poll::Ready(None) };
                // Trailers are no part of what the gateway understands; they are dropped.
                if let Ok(data) = frame.map_err(|_| BodyFault::Aborted)?.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            },
            Source::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Whole(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Source::Fed(feed) => feed.poll_data(cx).map_err(|BrokenOff| BodyFault::Aborted),
        }
    }

    fn is_end(&self) -> bool {
        match self {
            Source::Hyper(incoming) => incoming.is_end_stream(),
            Source::Whole(bytes) => bytes.is_empty(),
            Source::Fed(feed) => feed.is_end(),
        }
    }

    fn length(&self) -> Option<u64> {
        match self {
            Source::Hyper(incoming) => incoming.size_hint().exact(),
            Source::Whole(bytes) => Some(bytes.len() as u64),
            Source::Fed(feed) => feed.length(),
        }
    }
}

impl Reading {
    /// Waiting that the client has left before it is too slow.
    fn allowance(&self) -> Duration {
        self.grace + Duration::from_millis(self.progress.bytes() * 1000 / LEAST_BYTES_PER_SECOND)
    }

    fn poll_pace(&mut self, cx: &mut Context<'_>) -> Poll<BodyFault> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let due = since + self.allowance().saturating_sub(self.waited).min(self.grace);
        ready!(self.alarm.get_or_insert_with(|| Alarm::at(due)).poll(cx, due));
        Poll::Ready(BodyFault::TooSlow)
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        let Poll::Ready(next) = self.source.poll_data(cx) else {
            return self.poll_pace(cx).map(|fault| Some(Err(fault)));
        };
        if let Some(since) = self.waiting_since.take() {
            self.waited += since.elapsed();
        }
        let Some(data) = next.transpose()? else { return Poll::Ready(None) };
        let bytes = self.progress.bytes() + data.len() as u64;
        if bytes > self.limit {
            return Poll::Ready(Some(Err(BodyFault::TooLarge)));
        }
        self.progress.0.store(bytes, Ordering::Relaxed);
        Poll::Ready(Some(Ok(data)))
    }
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBody").field("progress", &self.progress()).finish()
    }
}

impl RequestBody {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// [`BodyFault`]; the body is over then.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        self.0.as_mut().map_or(Poll::Ready(None), |reading| reading.poll_data(cx))
    }

    /// Whether nothing comes any more.
    pub fn is_end(&self) -> bool {
        self.0.as_ref().is_none_or(|reading| reading.source.is_end())
    }

    /// How many bytes are still to come, where the client has said it.
    pub fn length(&self) -> Option<u64> {
        self.0.as_ref().map_or(Some(0), |reading| reading.source.length())
    }
}
