//! One HTTP/1.1 connection: a head is read, its request served, its answer written, and so on until one of them ends it.
//!
//! - [`head`]: a request head in its one spelling; [`upload`]: its body, read on demand; [`reply`]: the answer's framing
//! - [`watch`]: deadlines and whatever else ends a connection from outside
//!
//! Invariants: requests of a connection are served one after the other; behind a head or body that is not understood nothing is
//! read as a request; the connection ends at its deadline whatever the client does, and at its answer's revocation even when the
//! client does not read; after an answer to a request whose body stayed unread the socket lingers, so that the answer is not
//! lost to a reset.

mod head;
#[cfg(any(test, fuzzing))]
pub mod properties;
mod reply;
mod upload;
mod watch;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body::Body;

use self::head::{RequestHead, Unread};
use self::reply::Framing;
use self::upload::{Upload, read};
use self::watch::{End, Watch};
use super::pace::Pace;
use super::socket::{ClientSocket, linger, part};
use crate::proxy::{Client, Gate, Reply, Worker};
use crate::telemetry::reason::Reason;

/// Room for a response head and a short body, in bytes; longer ones grow.
const OUT_BYTES: usize = 1024;
/// With so many bytes to be sent no more are taken from a body.
const OUT_MAX_BYTES: usize = 8 * 1024;

/// Serves a connection to its end.
pub(super) async fn serve(socket: impl ClientSocket, pace: Arc<Pace>, client: Client, worker: Arc<Worker>) {
    let gate = Gate::new(worker.clone(), client);
    let leaving = std::pin::pin!(worker.edge().parts().ending.leaving().cancelled());
    let settings = worker.settings();
    let watch = Watch::new(&worker, &settings.deadlines, &pace, leaving);
    let mut connection = Connection { socket, unread: Unread::default(), pace: &pace, watch, worker: &worker };
    let end = connection.run(&gate).await;
    let Connection { socket, watch: _counted, .. } = connection;
    match (end, pace.ended_by_client()) {
        // Boxed, so that every connection does not carry its buffer from the start.
        (End::Whole, false) => Box::pin(linger(socket)).await,
        (End::Unused, false) => part(socket).await,
        _ => {}
    }
}

struct Connection<'c, S> {
    socket: S,
    // Received and not yet understood.
    unread: Unread,
    pace: &'c Arc<Pace>,
    watch: Watch<'c>,
    worker: &'c Worker,
}

impl<S: ClientSocket> Connection<'_, S> {
    async fn run(&mut self, gate: &Gate) -> End {
        loop {
            let head = match self.head().await {
                Ok(head) => head,
                Err(end) => return end,
            };
            let busy = self.pace.busy();
            // Boxed, because a connection would keep the room for its requests for as long as it lives.
            let ended = match head {
                Ok(head) => Box::pin(self.exchange(gate, head)).await,
                Err(reason) => Box::pin(self.refuse(gate, reason)).await,
            };
            drop(busy);
            if let Some(end) = ended {
                return end;
            }
            if !self.unread.is_empty() {
                self.pace.head_begins();
            }
        }
    }

    /// Reads a request head; the inner error is why what came is none.
    async fn head(&mut self) -> Result<Result<RequestHead, Reason>, End> {
        std::future::poll_fn(|cx| {
            loop {
                match self.unread.head() {
                    Ok(None) => {}
                    Ok(Some(head)) => return Poll::Ready(Ok(Ok(head))),
                    Err(reason) => return Poll::Ready(Ok(Err(reason))),
                }
                match read(cx, &mut self.socket, &mut self.unread) {
                    Poll::Ready(true) => {}
                    Poll::Ready(false) => return Poll::Ready(Err(End::Cut)),
                    Poll::Pending => return self.watch.poll(cx).map(Err),
                }
            }
        })
        .await
    }

    /// Serves a request; `None`: another may follow it.
    async fn exchange(&mut self, gate: &Gate, head: RequestHead) -> Option<End> {
        let (mut upload, arriving) = Upload::new(&head, &mut self.unread);
        let (is_last, to_head) = (head.is_last(), head.is_for_head());
        let mut serving = std::pin::pin!(gate.serve_head(head, arriving));
        let response = std::future::poll_fn(|cx| {
            loop {
                if let Poll::Ready(response) = serving.as_mut().poll(cx) {
                    return Poll::Ready(Ok(response));
                }
                if upload.poll(cx, &mut self.socket, &mut self.unread, self.pace).is_pending() {
                    return self.watch.poll(cx).map(Err);
                }
            }
        });
        match response.await {
            Ok(reply) => self.answer(reply, &mut upload, is_last, to_head).await,
            Err(end) => Some(end),
        }
    }

    /// Answers what is no request; nothing behind it is one.
    async fn refuse(&mut self, gate: &Gate, reason: Reason) -> Option<End> {
        let reply = gate.refuse(reason);
        self.answer(reply, &mut Upload::none(), true, false).await
    }

    /// Writes a response; `None`: another request may follow.
    async fn answer(&mut self, reply: Reply, upload: &mut Upload, is_last: bool, to_head: bool) -> Option<End> {
        self.pace.answers(reply.body().cut_by());
        let mut framing = Framing::of(reply.status(), to_head, reply.body().size_hint().exact());
        let close = is_last || reply.closes() || !upload.is_over() || self.worker.edge().ends_connections();
        let mut out = Out { bytes: Vec::with_capacity(OUT_BYTES), written: 0 };
        reply::head(&reply, framing, close, &mut out.bytes);
        // None once all of it has been taken: the exchange ends then, and whatever it holds is free before the client knows.
        let mut body = Some(reply.into_body()).filter(|_| framing != Framing::Empty);
        let written = std::future::poll_fn(|cx| {
            loop {
                let mut waits = false;
                // What is there already leaves with the head.
                while let Some(taken) = body.as_mut().filter(|_| !waits && out.bytes.len() < OUT_MAX_BYTES) {
                    let piece = match Pin::new(&mut *taken).poll_frame(cx) {
                        Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
                        Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(End::Cut)),
                        Poll::Ready(None) => None,
                        Poll::Pending => {
                            waits = true;
                            continue;
                        }
                    };
                    let is_end = piece.is_none() || taken.is_end_stream();
                    let fits = piece.is_none_or(|piece| framing.push(&piece, &mut out.bytes));
                    if !fits || (is_end && !framing.end(&mut out.bytes)) {
                        return Poll::Ready(Err(End::Cut));
                    }
                    if is_end {
                        body = None;
                    }
                }
                let sent = out.poll_send(cx, &mut self.socket);
                match sent {
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(End::Cut)),
                    Poll::Ready(Ok(())) if body.is_none() => return Poll::Ready(Ok(())),
                    Poll::Ready(Ok(())) if !waits => continue,
                    Poll::Ready(Ok(())) | Poll::Pending => {}
                }
                // A client may read only when all of its request has been taken.
                let fed = upload.poll(cx, &mut self.socket, &mut self.unread, self.pace).is_ready();
                if !fed || sent.is_pending() {
                    return self.watch.poll(cx).map(Err);
                }
            }
        });
        match written.await {
            Ok(()) if close || !upload.is_over() => Some(End::Whole),
            Ok(()) => None,
            Err(end) => Some(end),
        }
    }
}

/// What is to be sent.
struct Out {
    bytes: Vec<u8>,
    written: usize,
}

impl Out {
    /// Sends everything; what is empty then holds no room.
    fn poll_send<S: ClientSocket>(&mut self, cx: &mut Context<'_>, socket: &mut S) -> Poll<io::Result<()>> {
        while self.written < self.bytes.len() {
            match ready!(Pin::new(&mut *socket).poll_write(cx, &self.bytes[self.written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        (self.bytes, self.written) = (Vec::new(), 0);
        Pin::new(socket).poll_flush(cx)
    }
}
