//! One HTTP/2 connection: hyper over a watched socket, with bounds on what its client can have kept, done or waited for.
//!
//! Invariants: streams run as tasks of their own and end alone: what is cut is reset, never ended cleanly, and the connection
//! goes on; a client that takes nothing of its answer loses the stream, one that takes nothing at all the connection; no
//! connection outlives its deadlines with no stream on it. Plain sockets never come here.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::frames::Frames;
use super::pace::Pace;
use super::socket::{ClientSocket, linger};
use super::streams::{Open, Streams, answered};
use crate::proxy::{Client, Gate, Worker};
use crate::tasks::{Alarm, Tasks};
use crate::telemetry::metrics::ConnectionState;
use crate::telemetry::reason::Reason;

/// Streams of one connection at once.
const STREAMS: u32 = 128;
/// Largest header list, in bytes as RFC 9113 section 6.5.2 counts them: what an HTTP/1.1 head may have.
const HEADER_LIST_BYTES: u32 = 64 * 1024;
/// Bytes of request bodies that a client may send ahead, for one stream and for all of a connection.
const WINDOW_BYTES: (u32, u32) = (128 * 1024, 512 * 1024);
/// Bytes of an answer that wait for its client.
const SEND_BYTES: usize = 64 * 1024;
/// Streams that a client may reset before they are looked at (CVE-2023-44487).
const RESETS_UNSEEN: usize = 32;
/// Streams that the edge may have to reset for its client's faults (CVE-2025-8671).
const RESETS_OWN: usize = 128;
/// Time between two questions whether the client is still there, and time for its answer.
const PING: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));
/// Time for a client that was told to leave and has no stream.
const LEAVE: Duration = Duration::from_secs(5);

/// Serves a connection to its end.
pub(super) async fn serve(
    mut socket: impl ClientSocket,
    pace: Arc<Pace>,
    client: Client,
    worker: Arc<Worker>,
    tasks: Tasks,
) {
    let settings = worker.settings();
    let deadlines = &settings.deadlines;
    let (gate, open) = (Arc::new(Gate::new(worker.clone(), client)), Open::new());
    let streams = Streams::new(tasks, open.clone(), deadlines.write);
    let executor = streams.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (gate, watch) = (gate.clone(), streams.begin());
        Box::pin(async move {
            let method = request.method().clone();
            let response = gate.serve(request).await.into_response();
            Ok::<_, Infallible>(answered(response, watch, &method))
        })
    });
    let watched = Watched { socket: &mut socket, frames: Frames::new(), open: open.clone() };
    let mut connection = http2::Builder::new(executor)
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_LIST_BYTES)
        .initial_stream_window_size(WINDOW_BYTES.0)
        .initial_connection_window_size(WINDOW_BYTES.1)
        .max_send_buf_size(SEND_BYTES)
        .max_pending_accept_reset_streams(RESETS_UNSEEN)
        .max_local_error_reset_streams(RESETS_OWN)
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1)
        .serve_connection(TokioIo::new(watched), service);
    let mut leaving = std::pin::pin!(worker.edge().parts().ending.leaving().cancelled());
    let mut emptied = std::pin::pin!(open.emptied());
    // When the client was told to leave.
    let mut told: Option<Instant> = None;
    let mut leaves = false;
    let mut alarm = Alarm::at(Instant::now() + deadlines.first_byte);
    let mut gauge = worker.counts().connection_opened(ConnectionState::Idle);
    let ended = std::future::poll_fn(|cx| {
        if !leaves && leaving.as_mut().poll(cx).is_ready() {
            leaves = true;
            told.get_or_insert_with(Instant::now);
            Pin::new(&mut connection).graceful_shutdown();
        }
        // Each end of a last stream is a wake-up: the time without any begins then.
        while emptied.as_mut().poll(cx).is_ready() {
            emptied.set(open.emptied());
        }
        loop {
            if Pin::new(&mut connection).poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            let idle = open.is_empty();
            if idle {
                gauge.idle()
            } else {
                gauge.active()
            }
            let unused = idle.then(|| match told {
                Some(told) => told.max(open.unused_since()) + LEAVE,
                None if open.has_begun() => open.unused_since() + deadlines.keep_alive,
                None => open.unused_since() + deadlines.first_byte,
            });
            let must = [pace.write_due(deadlines), open.block_due(deadlines)].into_iter().flatten().min();
            let Some(due) = unused.into_iter().chain(must).min() else { return Poll::Pending };
            ready!(alarm.poll(cx, due));
            // A client that has begun is told before it is left; its connection is looked at once more.
            if must.is_some_and(|must| must <= due) || told.is_some() || !open.has_begun() {
                return Poll::Ready(false);
            }
            told = Some(Instant::now());
            Pin::new(&mut connection).graceful_shutdown();
        }
    })
    .await;
    drop(connection);
    drop(gauge);
    if open.is_flooded() {
        worker.counts().refused(Reason::FrameFlood);
    } else if ended && !pace.ended_by_client() {
        Box::pin(linger(socket)).await;
    }
}

/// A socket whose frames are noted as they come.
struct Watched<'s, S> {
    socket: &'s mut S,
    frames: Frames,
    open: Arc<Open>,
}

impl<S: ClientSocket> AsyncRead for Watched<'_, S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        ready!(Pin::new(&mut *this.socket).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        if this.frames.take(read).is_err() {
            this.open.flooded();
            return Poll::Ready(Err(io::Error::other("more control frames than any client needs")));
        }
        this.open.received(this.frames.has_begun(), this.frames.is_block_open());
        Poll::Ready(Ok(()))
    }
}

impl<S: ClientSocket> AsyncWrite for Watched<'_, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.socket).poll_write_vectored(cx, bufs)
    }
}
