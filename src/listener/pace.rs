//! How a connection is getting on: its phase, and when that phase has lasted too long.
//!
//! An engine's own header deadline may not start before the first byte (hyperium/hyper#3756) and knows nothing of a client that
//! stops reading; so the socket is watched here. Times are kept, not timers: one timer a connection is moved only when a
//! deadline comes nearer, and a busy connection never touches it.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::config::Deadlines;
use crate::tasks::Cancellation;

/// Slowest client that is waited for, in bytes a second. Only time in which a write waits for it counts, so that an answer may
/// take as long as it likes.
pub(super) const LEAST_BYTES_PER_SECOND: u64 = 1024;

/// What the connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing has come yet.
    First = 0,
    /// A header section has begun.
    Head = 1,
    /// A request is served.
    Busy = 2,
    /// Between two requests.
    Idle = 3,
}

/// The phase of one connection, shared between its socket and its task. Both run on one thread; atomics make it `Send`.
#[derive(Debug)]
pub(super) struct Pace {
    opened: Instant,
    phase: AtomicU8,
    since_ms: AtomicU64,
    // Zero: no write is waiting for the client.
    write_blocked_ms: AtomicU64,
    // Milliseconds that the client has let writes wait beyond what its bytes since then were worth.
    write_owed_ms: AtomicU64,
    ended_by_client: AtomicBool,
    // What cuts the answer under way.
    cut_by: Mutex<Option<Cancellation>>,
}

impl Pace {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Pace {
            opened: Instant::now(),
            phase: AtomicU8::new(Phase::First as u8),
            since_ms: AtomicU64::new(0),
            write_blocked_ms: AtomicU64::new(0),
            write_owed_ms: AtomicU64::new(0),
            ended_by_client: AtomicBool::new(false),
            cut_by: Mutex::new(None),
        })
    }

    fn now_ms(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::First,
            1 => Phase::Head,
            2 => Phase::Busy,
            _ => Phase::Idle,
        }
    }

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
        self.since_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// A request has been read; dropping the guard says that it is over.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.phase.store(Phase::Busy as u8, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// The next request has begun already.
    pub(super) fn head_begins(&self) {
        self.enter(Phase::Head);
    }

    /// Whether the connection is between two requests.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase(), Phase::Idle | Phase::First)
    }

    /// Whether a request is being served.
    pub(super) fn is_busy(&self) -> bool {
        self.phase() == Phase::Busy
    }

    /// Whether the client has left a request that is being served.
    pub(super) fn is_left(&self) -> bool {
        self.is_busy() && self.ended_by_client()
    }

    /// The client has closed its side.
    pub(super) fn left(&self) {
        self.ended_by_client.store(true, Ordering::Relaxed);
    }

    /// The connection begins now: what came before was its handshake.
    pub(super) fn restart(&self) {
        self.enter(Phase::First);
        self.write_blocked_ms.store(0, Ordering::Relaxed);
        self.write_owed_ms.store(0, Ordering::Relaxed);
    }

    /// Whether the client has closed its side.
    pub(super) fn ended_by_client(&self) -> bool {
        self.ended_by_client.load(Ordering::Relaxed)
    }

    /// An answer begins, which this cuts.
    pub(super) fn answers(&self, cut_by: Option<Cancellation>) {
        *self.cut_by.lock().unwrap_or_else(PoisonError::into_inner) = cut_by;
    }

    /// What cuts an answer that cannot go on because its client does not read: nobody asks its body meanwhile.
    pub(super) fn blocked_cut(&self) -> Option<Cancellation> {
        match self.write_blocked_ms.load(Ordering::Relaxed) {
            0 => None,
            _ => self.cut_by.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// When the connection has waited too long, as things are; `None`: others keep the time.
    pub(super) fn due(&self, deadlines: &Deadlines) -> Option<Instant> {
        let after = |ms: u64, limit: Duration| self.opened + Duration::from_millis(ms) + limit;
        let since = self.since_ms.load(Ordering::Relaxed);
        let phase = match self.phase() {
            Phase::First => Some(after(since, deadlines.first_byte)),
            Phase::Head => Some(after(since, deadlines.header)),
            Phase::Idle => Some(after(since, deadlines.keep_alive)),
            Phase::Busy => None,
        };
        match (phase, self.write_due(deadlines)) {
            (Some(phase), Some(write)) => Some(phase.min(write)),
            (one, other) => one.or(other),
        }
    }

    /// The same for a connection that is to end after its next answer, as since `told`: without a request it gets this long
    /// for one that may be on its way.
    pub(super) fn due_leaving(&self, deadlines: &Deadlines, told: Instant, grace: Duration) -> Option<Instant> {
        let due = self.due(deadlines);
        if !self.is_idle() {
            return due;
        }
        let since = self.opened + Duration::from_millis(self.since_ms.load(Ordering::Relaxed));
        let ends = since.max(told) + grace;
        Some(due.map_or(ends, |due| due.min(ends)))
    }

    /// When the client has taken no byte for too long, as things are; `None`: nothing waits for it.
    pub(super) fn write_due(&self, deadlines: &Deadlines) -> Option<Instant> {
        match self.write_blocked_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => {
                let owed = Duration::from_millis(self.write_owed_ms.load(Ordering::Relaxed));
                Some(self.opened + Duration::from_millis(ms) + deadlines.write.saturating_sub(owed))
            }
        }
    }

    fn received(&self, bytes: usize) {
        if bytes == 0 {
            self.left();
        } else if matches!(self.phase(), Phase::First | Phase::Idle) {
            self.enter(Phase::Head);
        }
    }

    /// The client took this many bytes; `None`: it takes none now.
    fn wrote(&self, bytes: Option<usize>) {
        let blocked = self.write_blocked_ms.load(Ordering::Relaxed);
        match bytes {
            // A client that keeps up costs the two loads.
            Some(bytes) => {
                let mut owed = self.write_owed_ms.load(Ordering::Relaxed);
                if blocked == 0 && owed == 0 {
                    return;
                }
                if blocked != 0 {
                    owed += self.now_ms().saturating_sub(blocked);
                    self.write_blocked_ms.store(0, Ordering::Relaxed);
                }
                owed = owed.saturating_sub(bytes as u64 * 1000 / LEAST_BYTES_PER_SECOND);
                self.write_owed_ms.store(owed, Ordering::Relaxed);
            }
            None if blocked == 0 => self.write_blocked_ms.store(self.now_ms().max(1), Ordering::Relaxed),
            None => {}
        }
    }
}

/// How many bytes a write took.
fn taken(polled: &Poll<io::Result<usize>>) -> Option<usize> {
    match polled {
        Poll::Ready(Ok(bytes)) => Some(*bytes),
        // The connection ends anyway.
        Poll::Ready(Err(_)) => Some(0),
        Poll::Pending => None,
    }
}

/// A request is being served on the connection.
#[derive(Debug)]
pub(super) struct Busy(Arc<Pace>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}

/// A client's socket whose progress is noted.
pub(super) struct Paced {
    stream: TcpStream,
    pace: Arc<Pace>,
}

impl Paced {
    pub(super) fn new(stream: TcpStream, pace: Arc<Pace>) -> Self {
        Paced { stream, pace }
    }

    /// The socket.
    pub(super) fn into_inner(self) -> TcpStream {
        self.stream
    }
}

impl AsyncRead for Paced {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.pace.received(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Paced {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.pace.wrote(taken(&polled));
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The engine does not read while it holds bytes of a further request, and so would not see its client leave. This
        // costs a system call only when something has come.
        if self.pace.is_busy()
            && let Poll::Ready(Ok(0)) = self.stream.poll_peek(cx, &mut ReadBuf::new(&mut [0]))
        {
            self.pace.received(0);
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.pace.wrote(taken(&polled));
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    fn deadlines() -> Deadlines {
        let text = "[[gateway]]\nname = \"main\"\nurl = \"http://127.0.0.1:1\"\n";
        crate::config::parse(text, std::path::Path::new("/nonexistent")).unwrap().deadlines
    }

    /// Seconds that a blocked client has left.
    fn left(pace: &Pace) -> u64 {
        pace.due(&deadlines()).unwrap().saturating_duration_since(Instant::now()).as_secs_f64().round() as u64
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_let_its_answer_wait_but_not_again_and_again() {
        let pace = Pace::new();
        let _busy = pace.busy();
        assert!(pace.due(&deadlines()).is_none());
        pass(5).await;
        pace.wrote(None);
        assert_eq!(left(&pace), 60);
        pass(50).await;
        assert_eq!(left(&pace), 10);
        pace.wrote(Some(10 * 1024));
        assert!(pace.due(&deadlines()).is_none());
        pace.wrote(None);
        assert_eq!(left(&pace), 20, "fifty seconds for ten KiB leave forty owed");
        pass(19).await;
        pace.wrote(Some(1));
        pace.wrote(None);
        assert_eq!(left(&pace), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_to_end_waits_a_moment_for_a_request() {
        let (pace, grace, deadlines) = (Pace::new(), Duration::from_secs(1), deadlines());
        pass(5).await;
        let told = Instant::now();
        let due = |pace: &Pace| pace.due_leaving(&deadlines, told, grace);
        assert_eq!(due(&pace), Some(told + grace));
        pace.received(10);
        assert_eq!(due(&pace), Some(told + deadlines.header), "a head that has begun has its own time");
        let busy = pace.busy();
        assert_eq!(due(&pace), None);
        pass(30).await;
        drop(busy);
        assert_eq!(due(&pace), Some(Instant::now() + grace));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_take_for_ever_while_its_client_takes_it() {
        let pace = Pace::new();
        let _busy = pace.busy();
        for _ in 0..1000 {
            pace.wrote(None);
            pass(32).await;
            assert!(left(&pace) >= 28);
            pace.wrote(Some(32 * 1024));
        }
    }
}
