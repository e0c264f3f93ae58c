//! The body that the client gets: the edge's own bytes, or the gateway's as they come.
//!
//! Invariants: a cut stream is an error, which ends the connection without a clean end; a client that leaves a stream takes
//! the gateway's connection with it; one that leaves a plain turn does not, because the gateway runs it to its end and the
//! permit must last as long. The exchange ends with the body.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::exchange::Exchange;
use crate::gateway::call::{Call, CallError};
use crate::tasks::Cancellation;
use crate::telemetry::audit::Outcome;

/// How long a gateway that was left may go on talking before its connection is reset: it is to be rid of it within a second.
const LET_GO: Duration = Duration::from_millis(500);
/// How long a busy gateway may take to notice that what it writes is read no more.
const NOTICE: Duration = Duration::from_secs(1);

/// An answer was cut. The client sees a connection that ends without the answer's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer was cut")
    }
}

impl std::error::Error for Cut {}

impl From<Infallible> for Cut {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// A response body.
pub struct EdgeBody(Inner);

enum Inner {
    Whole { bytes: Bytes, _exchange: Option<Box<Exchange>> },
    Passing(Box<Passing>),
}

impl fmt::Debug for EdgeBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Whole { bytes, .. } => f.debug_tuple("Whole").field(bytes).finish(),
            Inner::Passing(_) => f.write_str("Passing"),
        }
    }
}

impl EdgeBody {
    /// A body of the edge's own.
    pub fn whole(bytes: Bytes) -> Self {
        EdgeBody(Inner::Whole { bytes, _exchange: None })
    }

    /// The same, with the exchange that it ends.
    pub fn ending(self, mut exchange: Box<Exchange>) -> Self {
        match self.0 {
            Inner::Whole { bytes, .. } => {
                exchange.sent(bytes.len());
                EdgeBody(Inner::Whole { bytes, _exchange: Some(exchange) })
            }
            Inner::Passing(_) => self,
        }
    }

    /// What cuts the body. It looks for itself whenever it is polled; whoever does not poll it, because its client does not
    /// read, has to look instead.
    pub fn cut_by(&self) -> Option<Cancellation> {
        match &self.0 {
            Inner::Whole { .. } => None,
            Inner::Passing(passing) => {
                let (_, exchange) = passing.under_way.parts.as_ref()?;
                exchange.grant().map(|grant| grant.session().cancelled().clone())
            }
        }
    }

    /// The gateway's answer, passed on as it comes.
    pub(super) fn passing(under_way: UnderWay) -> Self {
        EdgeBody(Inner::Passing(Box::new(Passing { under_way, revoked: None, broken: false })))
    }
}

impl Body for EdgeBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut self.0 {
            Inner::Whole { bytes, .. } if bytes.is_empty() => Poll::Ready(None),
            Inner::Whole { bytes, .. } => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Inner::Passing(passing) => passing.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Whole { bytes, .. } => bytes.is_empty(),
            Inner::Passing(passing) => !passing.broken && passing.under_way.call().is_none_or(Call::is_complete),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole { bytes, .. } => SizeHint::with_exact(bytes.len() as u64),
            Inner::Passing(passing) => match passing.under_way.call().map_or(Some(0), Call::length) {
                Some(length) => SizeHint::with_exact(length),
                None => SizeHint::default(),
            },
        }
    }
}

/// A call and its exchange. Dropped before its end, a plain turn goes on without its client.
pub(super) struct UnderWay {
    // None once it has ended or was handed on.
    parts: Option<(Call, Box<Exchange>)>,
    // Whether it is one to be followed; what is not ends with its client.
    follow: bool,
}

impl UnderWay {
    /// A call that belongs to an exchange; `follow` when it is a turn.
    pub(super) fn new(call: Call, exchange: Box<Exchange>, follow: bool) -> Self {
        UnderWay { parts: Some((call, exchange)), follow }
    }

    fn call(&self) -> Option<&Call> {
        self.parts.as_ref().map(|(call, _)| call)
    }

    /// Both, to be polled.
    pub(super) fn parts(&mut self) -> Option<&mut (Call, Box<Exchange>)> {
        self.parts.as_mut()
    }

    /// From now on the call ends with its client: it is a stream, whose turn the gateway stops by itself.
    pub(super) fn is_stream(&mut self) {
        self.follow = false;
    }

    /// Takes the exchange back and closes the call.
    pub(super) fn abandon(mut self) -> Option<Box<Exchange>> {
        let (call, mut exchange) = self.parts.take()?;
        leave(call, &mut exchange);
        Some(exchange)
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some((call, mut exchange)) = self.parts.take() {
            exchange.ends(outcome);
            leave(call, &mut exchange);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Some((call, mut exchange)) = self.parts.take() else { return };
        if call.is_complete() {
            exchange.ends(Outcome::Finished);
            return;
        }
        if exchange.is_revoked() {
            exchange.ends(Outcome::Revoked);
        } else if exchange.tasks().is_aborted() {
            exchange.ends(Outcome::Shutdown);
        } else if self.follow && call.is_sent() {
            // Until the whole request has left, the gateway has no turn to run.
            let tasks = exchange.tasks().clone();
            tasks.spawn(follow(call, exchange));
            return;
        }
        leave(call, &mut exchange);
    }
}

/// Closes a call that has not come to its end. Its permit is passed on when the gateway will have noticed: whoever was let in
/// earlier would find the place taken and be answered 429.
fn leave(call: Call, exchange: &mut Exchange) {
    // A gateway that has closed the connection itself has ended the turn.
    if call.is_complete() || !call.is_open() {
        return;
    }
    if let Some(permit) = exchange.take_permit() {
        let noticed_at =
            Instant::now() + until_noticed(call.quiet(), call.rhythm(), exchange.edge().parts().gateway_pause);
        let stopping = exchange.tasks().stopping().clone();
        exchange.tasks().spawn(async move {
            call.leave(LET_GO).await;
            // An edge that stops lets nobody in, so its end need not wait.
            stopping.run_until_cancelled(tokio::time::sleep_until(noticed_at)).await;
            drop(permit);
        });
    }
}

/// When a gateway will have noticed that an answer was left: a stream that keeps its rhythm is written soon, one that has fallen
/// silent after the longest pause that the gateway makes.
fn until_noticed(quiet: Duration, rhythm: Duration, pause: Duration) -> Duration {
    let soon = rhythm * 4;
    let due = if quiet < soon { soon.min(pause) } else { pause };
    NOTICE + due.saturating_sub(quiet)
}

/// Reads a turn whose client has left to its end: the permit lasts as long as the gateway's work.
async fn follow(mut call: Call, mut exchange: Box<Exchange>) {
    let Some(revoked) = exchange.grant().map(|grant| grant.session().cancelled().clone()) else { return };
    // Stands unless this comes to its end.
    exchange.ends(Outcome::Shutdown);
    let finished = revoked
        .run_until_cancelled(async {
            if !call.has_head() {
                match call.head().await {
                    // The gateway stops a stream that nobody reads.
                    Ok(head) if super::respond::is_event_stream(&head) => return,
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
            while let Some(Ok(_)) = call.data().await {}
        })
        .await;
    exchange.ends(if finished.is_some() { Outcome::ClientGone } else { Outcome::Revoked });
    leave(call, &mut exchange);
}

struct Passing {
    under_way: UnderWay,
    // The gateway broke off: the next poll says so.
    broken: bool,
    revoked: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Passing {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if self.broken {
            return Poll::Ready(Some(Err(Cut)));
        }
        let Some((call, exchange)) = self.under_way.parts() else { return Poll::Ready(None) };
        if exchange.is_revoked() {
            self.under_way.end(Outcome::Revoked);
            return Poll::Ready(Some(Err(Cut)));
        }
        match call.poll_data(cx) {
            Poll::Ready(Some(Ok(data))) => {
                exchange.sent(data.len());
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Poll::Ready(None) => {
                self.under_way.end(Outcome::Finished);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                if let Some(grant) = exchange.grant() {
                    exchange.edge().metrics().upstream_error(grant.bot().gateway().index(), error.kind());
                }
                tracing::warn!(request_id = ?exchange.request_id(), %error, "the gateway's answer broke off");
                self.under_way.end(match error {
                    CallError::IdleTimeout => Outcome::TimedOut,
                    _ => Outcome::GatewayBroke,
                });
                // A failing body takes with it what is not written yet. A client that saw no head would take it for a
                // failed connection and send the turn again, so head and data go out first.
                self.broken = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Pending => {
                let Some(token) = exchange.grant().map(|grant| grant.session().cancelled().clone()) else {
                    return Poll::Pending;
                };
                if self.poll_revoked(token, cx) {
                    self.under_way.end(Outcome::Revoked);
                    return Poll::Ready(Some(Err(Cut)));
                }
                Poll::Pending
            }
        }
    }

    /// Registers for revocation only when the body has to wait, so that a short answer pays nothing for it.
    fn poll_revoked(&mut self, token: Cancellation, cx: &mut Context<'_>) -> bool {
        let revoked = self.revoked.get_or_insert_with(|| Box::pin(token.cancelled_owned()));
        revoked.as_mut().poll(cx).is_ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moving_stream_is_written_soon_and_a_silent_one_at_the_next_comment() {
        let noticed = |quiet, rhythm| {
            let (quiet, rhythm) = (Duration::from_millis(quiet), Duration::from_millis(rhythm));
            until_noticed(quiet, rhythm, Duration::from_secs(10)).as_millis()
        };
        assert_eq!([noticed(50, 100), noticed(0, 5_000)], [1_350, 11_000]);
        // The first piece comes with the head: that is no rhythm to go by.
        assert_eq!(
            [noticed(0, 0), noticed(100, 5), noticed(9_000, 0), noticed(60_000, 0)],
            [11_000, 10_900, 2_000, 1_000]
        );
    }
}
