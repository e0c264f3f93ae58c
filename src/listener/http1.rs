//! One HTTP/1.1 connection: hyper over a watched socket, its deadlines, and an end that the client can read.
//!
//! Invariants: the connection ends at its deadline whatever the client does, and at its answer's revocation even when the
//! client does not read; after an answer to a request whose body stayed
//! unread the socket lingers, so that the answer is not lost to a reset.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::pace::{Busy, Pace, Paced};
use crate::proxy::{Client, Cut, EdgeBody, Gate, Worker};
use crate::tasks::Alarm;
use crate::telemetry::metrics::ConnectionState;

/// Largest request head, in bytes: 96 lines of which few are long.
const HEAD_MAX_BYTES: usize = 64 * 1024;
/// Longest time that a closed connection is read on.
const LINGER: Duration = Duration::from_secs(5);
/// Most bytes that are read from a closed connection.
const LINGER_MAX_BYTES: usize = 32 * 1024 * 1024;

/// Serves a connection to its end.
pub(super) async fn serve(stream: TcpStream, peer: IpAddr, worker: Arc<Worker>) {
    let pace = Pace::new();
    let gate = Gate::new(worker.clone(), Client::new(peer, false));
    let (gate, measured) = (&gate, &pace);
    // Boxed, because hyper keeps the room for one such future for as long as the connection lives.
    let service = service_fn(|request| {
        Box::pin(async move {
            let busy = measured.busy();
            let response = gate.serve(request).await;
            measured.answers(response.body().cut_by());
            Ok::<_, Infallible>(response.map(|body| MeasuredBody { body, _busy: busy }))
        })
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        // One plain send: gathering head and body costs the system more than copying a short body.
        .writev(false)
        .max_buf_size(HEAD_MAX_BYTES)
        .serve_connection(TokioIo::new(Paced::new(stream, pace.clone())), service);
    let mut connection = Some(connection);
    let deadlines = &worker.edge().parts().deadlines;
    let draining = &worker.edge().parts().draining;
    let mut drained = std::pin::pin!(draining.cancelled());
    let mut told_to_end = false;
    let mut alarm = Alarm::at(Instant::now() + deadlines.first_byte);
    let mut gauge = worker.counts().connection_opened(ConnectionState::Idle);
    let mut idle = true;
    // Made anew at each look, because the next answer has its own; only a client that does not read costs it.
    let mut cut = None;
    let ended = std::future::poll_fn(|cx| {
        let Some(connection) = connection.as_mut() else { return Poll::Ready(false) };
        if !told_to_end && drained.as_mut().poll(cx).is_ready() {
            told_to_end = true;
            Pin::new(&mut *connection).graceful_shutdown();
        }
        if let Poll::Ready(result) = connection.poll_without_shutdown(cx) {
            return Poll::Ready(result.is_ok());
        }
        if pace.is_left() {
            return Poll::Ready(false);
        }
        if pace.is_idle() != idle {
            idle = !idle;
            if idle { gauge.idle() } else { gauge.active() }
        }
        cut = pace.blocked_cut().map(|token| Box::pin(token.cancelled_owned()));
        if cut.as_mut().is_some_and(|cut| cut.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(false);
        }
        match pace.due(deadlines) {
            Some(due) => alarm.poll(cx, due).map(|()| false),
            None => Poll::Pending,
        }
    })
    .await;
    let parts = connection.take().map(http1::Connection::into_parts);
    if let (true, false, Some(parts)) = (ended, pace.ended_by_client(), parts) {
        // Boxed, so that every connection does not carry its buffer from the start.
        Box::pin(linger(parts.io.into_inner().into_inner())).await;
    }
}

/// Closes our side and reads what the client still sends, so that the system does not answer it with a reset that would
/// overtake the answer (RFC 9112 section 9.6).
async fn linger(mut stream: TcpStream) {
    let reading = async {
        if stream.shutdown().await.is_err() {
            return;
        }
        let mut buffer = [0; 16 * 1024];
        let mut total = 0;
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            total += read;
            if total > LINGER_MAX_BYTES {
                return;
            }
        }
    };
    // Running out of time only means that the client did not close.
    let _ = tokio::time::timeout(LINGER, reading).await;
}

/// A response body whose end is the request's.
struct MeasuredBody {
    body: EdgeBody,
    _busy: Busy,
}

impl Body for MeasuredBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
