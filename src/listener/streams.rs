//! The streams of one HTTP/2 connection: how many there are, and what ends one whose client does not take its answer.
//!
//! The engine asks an answer's body for more only when the client has room for it. Until then the body cannot look for its
//! revocation, and nobody notices that the client stays away; so each stream is watched from outside.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
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

use super::pace::LEAST_BYTES_PER_SECOND;
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

    /// Since when a connection without a stream has been so.
    pub(super) fn unused_since(&self) -> Instant {
        self.at(self.unused_ms.load(Ordering::Relaxed))
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
    // Bytes of the pieces that the engine has got rid of.
    sent: AtomicU64,
    // Bytes of the piece that is with the engine, which has not asked for another, and one; zero: there is none.
    held: AtomicU64,
    cut_by: Mutex<Option<Cancellation>>,
    counted: Mutex<Option<Counted>>,
}

impl Watch {
    fn answers(&self, cut_by: Option<Cancellation>) {
        *self.cut_by.lock().unwrap_or_else(PoisonError::into_inner) = cut_by;
    }

    /// The engine has asked for more and got this many bytes; `None`: there are none yet, or none any more.
    fn polled(&self, bytes: Option<usize>) {
        let held = self.held.swap(bytes.map_or(0, |bytes| bytes as u64 + 1), Ordering::Relaxed);
        self.sent.fetch_add(held.saturating_sub(1), Ordering::Relaxed);
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// How a client takes its answer: it may let it wait for a while, and in all no longer than that beyond the least rate.
#[derive(Debug, Default)]
struct Reader {
    waits_since: Option<Instant>,
    // What it has let its answer wait beyond what the bytes that it took were worth.
    owed: Duration,
    credited: u64,
}

impl Reader {
    /// When it has let its answer wait for too long; `None`: nothing waits for it.
    fn due(&mut self, watch: &Watch, limit: Duration) -> Option<Instant> {
        let (held, sent) = (watch.is_held(), watch.sent());
        if !held && self.waits_since.is_none() && self.owed.is_zero() {
            self.credited = sent;
            return None;
        }
        let now = Instant::now();
        if sent != self.credited || !held {
            self.owed += self.waits_since.take().map_or(Duration::ZERO, |since| now.duration_since(since));
            let worth = Duration::from_millis((sent - self.credited) * 1000 / LEAST_BYTES_PER_SECOND);
            (self.owed, self.credited) = (self.owed.saturating_sub(worth), sent);
        }
        held.then(|| *self.waits_since.get_or_insert(now) + limit.saturating_sub(self.owed))
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
            sent: AtomicU64::new(0),
            held: AtomicU64::new(0),
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
    let mut reader = Reader::default();
    // Made anew at each look, because only a client that does not read costs it.
    let mut cut = None;
    std::future::poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(due) = reader.due(watch, write) else {
            cut = None;
            return Poll::Pending;
        };
        let cut_by = watch.cut_by.lock().unwrap_or_else(PoisonError::into_inner).clone();
        cut = cut_by.map(|token| Box::pin(token.cancelled_owned()));
        if cut.as_mut().is_some_and(|cut| cut.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(());
        }
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
        self.watch.polled(match &polled {
            Poll::Ready(Some(Ok(frame))) => Some(frame.data_ref().map_or(0, Bytes::len)),
            Poll::Ready(_) | Poll::Pending => None,
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.to_head || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    /// Seconds that the client has left; `None`: nothing waits for it.
    fn left(reader: &mut Reader, watch: &Watch) -> Option<u64> {
        let due = reader.due(watch, LIMIT)?;
        Some(due.saturating_duration_since(Instant::now()).as_secs_f64().round() as u64)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_let_its_answer_wait_but_not_again_and_again() {
        let streams = Streams::new(Tasks::new(), Open::new(), LIMIT);
        let (watch, mut reader) = (streams.begin(), Reader::default());
        assert_eq!(left(&mut reader, &watch), None);
        pass(100).await;
        watch.polled(Some(10 * 1024));
        assert_eq!(left(&mut reader, &watch), Some(60));
        pass(50).await;
        assert_eq!(left(&mut reader, &watch), Some(10));
        watch.polled(Some(1));
        assert_eq!(left(&mut reader, &watch), Some(20), "fifty seconds for ten KiB leave forty owed");
        pass(19).await;
        watch.polled(Some(1));
        assert_eq!(left(&mut reader, &watch), Some(1));
        // The gateway has nothing now; what is owed stays.
        watch.polled(None);
        assert_eq!(left(&mut reader, &watch), None);
        pass(100).await;
        watch.polled(Some(1));
        assert_eq!(left(&mut reader, &watch), Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_take_for_ever_while_its_client_takes_it() {
        let streams = Streams::new(Tasks::new(), Open::new(), LIMIT);
        let (watch, mut reader) = (streams.begin(), Reader::default());
        for _ in 0..1_000 {
            watch.polled(Some(16 * 1024));
            assert_eq!(left(&mut reader, &watch), Some(60));
            pass(16).await;
        }
    }
}
