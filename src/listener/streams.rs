//! The streams of one HTTP/2 connection: how many there are, and what ends one whose client does not take its answer.
//!
//! The engine asks an answer's body for more only when the client has room for it. Until then the body cannot look for its
//! revocation, and nobody notices that the client stays away; so each stream is watched from outside.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::config::Deadlines;
use crate::proxy::{Cut, EdgeBody};
use crate::tasks::{Alarm, Cancellation, Tasks};

/// What a connection is doing, shared between its socket, its task and its streams.
#[derive(Debug)]
pub(super) struct Open {
    opened: Instant,
    streams: AtomicUsize,
    // Milliseconds since the beginning: when the last stream ended.
    unused_ms: AtomicU64,
    // When a header block began that has not ended, and one; zero: there is none.
    block_ms: AtomicU64,
    begun: AtomicBool,
    flooded: AtomicBool,
    emptied: Notify,
}

impl Open {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Open {
            opened: Instant::now(),
            streams: AtomicUsize::new(0),
            unused_ms: AtomicU64::new(0),
            block_ms: AtomicU64::new(0),
            begun: AtomicBool::new(false),
            flooded: AtomicBool::new(false),
            emptied: Notify::new(),
        })
    }

    fn now_ms(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }

    fn at(&self, ms: u64) -> Instant {
        self.opened + Duration::from_millis(ms)
    }

    /// Bytes have come: the preface has been whole, or a header block is open.
    pub(super) fn received(&self, begun: bool, block: bool) {
        self.begun.store(begun, Ordering::Relaxed);
        let was = self.block_ms.load(Ordering::Relaxed) != 0;
        if was != block {
            self.block_ms.store(if block { self.now_ms() + 1 } else { 0 }, Ordering::Relaxed);
        }
    }

    /// There are more control frames than any client needs.
    pub(super) fn flooded(&self) {
        self.flooded.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_flooded(&self) -> bool {
        self.flooded.load(Ordering::Relaxed)
    }

    /// Whether the client has begun to speak HTTP/2.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether there is no stream.
    pub(super) fn is_empty(&self) -> bool {
        self.streams.load(Ordering::Relaxed) == 0
    }

    /// Waits for the next end of a last stream.
    pub(super) fn emptied(&self) -> Notified<'_> {
        self.emptied.notified()
    }

    /// When a connection without a stream has been so for too long.
    pub(super) fn unused_due(&self, deadlines: &Deadlines) -> Instant {
        let limit = if self.has_begun() { deadlines.keep_alive } else { deadlines.first_byte };
        self.at(self.unused_ms.load(Ordering::Relaxed)) + limit
    }

    /// When the header block that is open has taken too long.
    pub(super) fn block_due(&self, deadlines: &Deadlines) -> Option<Instant> {
        match self.block_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(self.at(ms - 1) + deadlines.header),
        }
    }
}

/// One stream, counted until it is dropped.
#[derive(Debug)]
struct Counted(Arc<Open>);

impl Counted {
    fn new(open: &Arc<Open>) -> Self {
        open.streams.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(open))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.unused_ms.store(self.0.now_ms(), Ordering::Relaxed);
            self.0.emptied.notify_one();
        }
    }
}

/// How far a stream's answer is.
#[derive(Debug)]
pub(super) struct Watch {
    // Pieces that the engine has taken from the body.
    pieces: AtomicU32,
    // The piece last taken is with the engine, which has not asked for another.
    held: AtomicBool,
    cut_by: Mutex<Option<Cancellation>>,
    counted: Mutex<Option<Counted>>,
}

impl Watch {
    fn answers(&self, cut_by: Option<Cancellation>) {
        *self.cut_by.lock().unwrap_or_else(PoisonError::into_inner) = cut_by;
    }

    fn polled(&self, piece: bool) {
        if piece {
            self.pieces.fetch_add(1, Ordering::Relaxed);
        }
        self.held.store(piece, Ordering::Relaxed);
    }

    /// The piece that waits for the client, if one does.
    fn held(&self) -> Option<u32> {
        self.held.load(Ordering::Relaxed).then(|| self.pieces.load(Ordering::Relaxed))
    }
}

/// Begins a connection's streams, and runs them.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    tasks: Tasks,
    open: Arc<Open>,
    write: Duration,
    // The engine has a stream run right after it has asked for its answer: what was begun last is what is run next.
    begun: Arc<Mutex<Option<Arc<Watch>>>>,
}

impl Streams {
    /// Streams that run in `tasks`; a client may leave a piece of its answer untaken for `write`.
    pub(super) fn new(tasks: Tasks, open: Arc<Open>, write: Duration) -> Self {
        Streams { tasks, open, write, begun: Arc::default() }
    }

    /// A request has come.
    pub(super) fn begin(&self) -> Arc<Watch> {
        let watch = Arc::new(Watch {
            pieces: AtomicU32::new(0),
            held: AtomicBool::new(false),
            cut_by: Mutex::new(None),
            counted: Mutex::new(Some(Counted::new(&self.open))),
        });
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&watch));
        watch
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(watch) = begun else { return };
        let write = self.write;
        self.tasks.spawn(async move {
            // Counted for as long as the engine's part of the stream lives, and not only until its body ends.
            let _counted = watch.counted.lock().unwrap_or_else(PoisonError::into_inner).take();
            run(stream, &watch, write).await;
        });
    }
}

/// Drives a stream to its end, or to what cuts it while its client does not take what it holds. A stream that is dropped is
/// reset.
async fn run(stream: impl Future<Output = ()>, watch: &Watch, write: Duration) {
    let mut stream = std::pin::pin!(stream);
    let mut alarm: Option<Alarm> = None;
    let mut waiting: Option<(u32, Instant)> = None;
    // Made anew at each look, because only a client that does not read costs it.
    let mut cut = None;
    std::future::poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(piece) = watch.held() else {
            (waiting, cut) = (None, None);
            return Poll::Pending;
        };
        let since = match waiting {
            Some((known, since)) if known == piece => since,
            _ => Instant::now(),
        };
        waiting = Some((piece, since));
        let cut_by = watch.cut_by.lock().unwrap_or_else(PoisonError::into_inner).clone();
        cut = cut_by.map(|token| Box::pin(token.cancelled_owned()));
        if cut.as_mut().is_some_and(|cut| cut.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(());
        }
        let due = since + write;
        alarm.get_or_insert_with(|| Alarm::at(due)).poll(cx, due)
    })
    .await;
}

/// The answer as the engine gets it. To HEAD it has no body, which HTTP/2 does not take away by itself.
pub(super) fn answered(response: Response<EdgeBody>, watch: Arc<Watch>, method: &Method) -> Response<WatchedBody> {
    watch.answers(response.body().cut_by());
    let to_head = method == Method::HEAD;
    let mut response = response.map(|body| WatchedBody { body, watch, to_head });
    if to_head && let Some(length) = response.body().body.size_hint().exact() {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

/// A response body that tells when it is asked.
pub(super) struct WatchedBody {
    body: EdgeBody,
    watch: Arc<Watch>,
    to_head: bool,
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if self.to_head {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.watch.polled(matches!(polled, Poll::Ready(Some(Ok(_)))));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.to_head || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
