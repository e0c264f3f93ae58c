//! One HTTP/1.1 connection: hyper over a watched socket, its deadlines, and an end that the client can read.
//!
//! Invariants: the connection ends at its deadline whatever the client does, and at its answer's revocation even when the
//! client does not read; one that is to end says so with its last answer, and waits a moment for a request that may be on its
//! way; after an answer to a request whose body stayed unread the socket lingers, so that the answer is not
//! lost to a reset.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::pace::{Busy, Pace};
use super::socket::{ClientSocket, linger, part};
use crate::proxy::{Client, Cut, EdgeBody, Gate, Worker};
use crate::tasks::Alarm;
use crate::telemetry::metrics::ConnectionState;

/// Largest request head, in bytes: 96 lines of which few are long.
const HEAD_MAX_BYTES: usize = 64 * 1024;
/// How long a connection without a request stays open once it is to end: whoever is sending one is to be answered.
const LAST_REQUEST: Duration = Duration::from_secs(1);

/// How a connection ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// After a whole answer.
    Whole,
    /// In the middle of something, or for a client that has left.
    Cut,
    /// Between two requests, after too long a wait.
    Unused,
}

/// Serves a connection to its end.
pub(super) async fn serve(socket: impl ClientSocket, pace: Arc<Pace>, client: Client, worker: Arc<Worker>) {
    let gate = Gate::new(worker.clone(), client);
    let (gate, measured, edge) = (&gate, &pace, worker.edge());
    // Boxed, because hyper keeps the room for one such future for as long as the connection lives.
    let service = service_fn(|request| {
        Box::pin(async move {
            let busy = measured.busy();
            let mut response = gate.serve(request).await;
            // An answer that leaves HTTP has its own word for the connection.
            if edge.ends_connections() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            measured.answers(response.body().cut_by());
            Ok::<_, Infallible>(response.map(|body| MeasuredBody { body, _busy: busy }))
        })
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        // The socket is watched for a client that leaves; looking here would take a second buffer for each request.
        .half_close(true)
        // One plain send: gathering head and body costs the system more than copying a short body.
        .writev(false)
        .max_buf_size(HEAD_MAX_BYTES)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = Some(connection);
    let deadlines = &edge.parts().deadlines;
    let mut leaving = std::pin::pin!(edge.parts().ending.leaving().cancelled());
    // Since when the connection is to end.
    let mut leaves: Option<Instant> = None;
    let mut alarm = Alarm::at(Instant::now() + deadlines.first_byte);
    let mut gauge = worker.counts().connection_opened(ConnectionState::Idle);
    let mut idle = true;
    // Made anew at each look, because the next answer has its own; only a client that does not read costs it.
    let mut cut = None;
    let ended = std::future::poll_fn(|cx| {
        let Some(connection) = connection.as_mut() else { return Poll::Ready(End::Cut) };
        // Not the engine's own shutdown, which closes between two requests, when the next may be on its way.
        if leaves.is_none() && leaving.as_mut().poll(cx).is_ready() {
            leaves = Some(Instant::now());
        }
        if let Poll::Ready(result) = connection.poll_without_shutdown(cx) {
            return Poll::Ready(if result.is_ok() { End::Whole } else { End::Cut });
        }
        if pace.is_left() {
            return Poll::Ready(End::Cut);
        }
        if pace.is_idle() != idle {
            idle = !idle;
            if idle { gauge.idle() } else { gauge.active() }
        }
        cut = pace.blocked_cut().map(|token| Box::pin(token.cancelled_owned()));
        if cut.as_mut().is_some_and(|cut| cut.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(End::Cut);
        }
        let due = match leaves {
            None => pace.due(deadlines),
            Some(since) => pace.due_leaving(deadlines, since, LAST_REQUEST),
        };
        match due {
            Some(due) => alarm.poll(cx, due).map(|()| if pace.is_idle() { End::Unused } else { End::Cut }),
            None => Poll::Pending,
        }
    })
    .await;
    let Some(parts) = connection.take().map(http1::Connection::into_parts) else { return };
    match (ended, pace.ended_by_client()) {
        // Boxed, so that every connection does not carry its buffer from the start.
        (End::Whole, false) => Box::pin(linger(parts.io.into_inner())).await,
        (End::Unused, false) => part(parts.io.into_inner()).await,
        _ => {}
    }
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
