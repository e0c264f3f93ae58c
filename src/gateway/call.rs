//! One request to a gateway and its answer, driven by whoever polls it: no task of its own.
//!
//! Invariants: dropping a call closes its connection unless the answer was read to its end, in which case the connection
//! goes back to the pool; silence is bounded, before the head and in the body. It does not judge what the answer says.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, response};
use http_body::{Body, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::pool::{Link, Pool};
use super::request_body::{BodyFault, BodyProgress, RequestBody};
use crate::tasks::Alarm;
use crate::telemetry::metrics::UpstreamErrorKind;

type Answer = Pin<Box<dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>> + Send>>;

/// Why an answer did not come, or did not come whole.
#[derive(Debug)]
pub enum CallError {
    /// The request never left: it may be sent again on another connection.
    Unsent(Box<Request<RequestBody>>),
    /// The connection ended before a response head.
    NoHead(hyper::Error),
    /// No response head within the deadline.
    HeadTimeout,
    /// The answer broke off.
    Broken(hyper::Error),
    /// Silence in the answer beyond the deadline.
    IdleTimeout,
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CallError::Unsent(_) => f.write_str("the connection closed before the request left"),
            CallError::NoHead(error) => write!(f, "no response head: {error}"),
            CallError::HeadTimeout => f.write_str("no response head within the deadline"),
            CallError::Broken(error) => write!(f, "the answer broke off: {error}"),
            CallError::IdleTimeout => f.write_str("silence in the answer beyond the deadline"),
        }
    }
}

impl std::error::Error for CallError {}

impl CallError {
    /// The metric's word for it.
    pub fn kind(&self) -> UpstreamErrorKind {
        match self {
            CallError::Unsent(_) => UpstreamErrorKind::Send,
            CallError::NoHead(_) => UpstreamErrorKind::Head,
            CallError::HeadTimeout => UpstreamErrorKind::HeadTimeout,
            CallError::Broken(_) => UpstreamErrorKind::Body,
            CallError::IdleTimeout => UpstreamErrorKind::IdleTimeout,
        }
    }
}

/// Longest waits of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallDeadlines {
    /// From the start to the response head.
    pub head: Duration,
    /// Silence in the response body.
    pub idle: Duration,
}

/// A request under way.
pub struct Call {
    // None once the connection went back to the pool or was closed.
    link: Option<Box<Link>>,
    // None once the head has come.
    answer: Option<Answer>,
    body: Option<Incoming>,
    pool: Arc<Pool>,
    // None: the request has no body.
    progress: Option<Arc<BodyProgress>>,
    deadlines: CallDeadlines,
    // The start, then each sign of life.
    last_active: Instant,
    // When the head came, and how many pieces of the body have come since.
    head_at: Option<Instant>,
    pieces: u32,
    alarm: Option<Alarm>,
}

impl Call {
    /// Sends a request. Nothing moves until the call is polled.
    pub fn start(
        mut link: Box<Link>,
        request: Request<RequestBody>,
        pool: Arc<Pool>,
        deadlines: CallDeadlines,
    ) -> Self {
        let progress = request.body().progress();
        let answer = Box::pin(link.sender.try_send_request(request));
        let alarm = link.alarm.take();
        Call {
            link: Some(link),
            answer: Some(answer),
            body: None,
            pool,
            progress,
            deadlines,
            last_active: Instant::now(),
            head_at: None,
            pieces: 0,
            alarm,
        }
    }

    /// Whether the whole request body has been handed on: from here the gateway may run the turn.
    pub fn is_sent(&self) -> bool {
        self.progress.as_ref().is_none_or(|body| body.complete())
    }

    /// Why the request body was cut, if it was.
    pub fn body_fault(&self) -> Option<BodyFault> {
        self.progress.as_ref()?.fault()
    }

    /// Drives the call to its response head.
    ///
    /// # Errors
    /// [`CallError`]; the call is over then.
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<response::Parts, CallError>> {
        let Some(answer) = self.answer.as_mut() else { return Poll::Pending };
        if let Some(link) = self.link.as_mut()
            && link.poll_drive(cx)
        {
            self.link = None;
        }
        match answer.as_mut().poll(cx) {
            Poll::Ready(Ok(response)) => {
                self.answer = None;
                let (head, body) = response.into_parts();
                self.body = Some(body);
                self.last_active = Instant::now();
                self.head_at = Some(self.last_active);
                Poll::Ready(Ok(head))
            }
            Poll::Ready(Err(mut error)) => {
                self.answer = None;
                self.link = None;
                Poll::Ready(Err(match error.take_message() {
                    Some(request) => CallError::Unsent(Box::new(request)),
                    None => CallError::NoHead(error.into_error()),
                }))
            }
            Poll::Pending => {
                ready!(self.poll_alarm(cx, self.deadlines.head));
                self.close();
                Poll::Ready(Err(CallError::HeadTimeout))
            }
        }
    }

    /// Drives the call to the next piece of its response body; `None` at the end.
    ///
    /// # Errors
    /// [`CallError::Broken`] and [`CallError::IdleTimeout`]; the call is over then.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, CallError>>> {
        loop {
            let Some(body) = self.body.as_mut() else { return Poll::Ready(None) };
            let mut polled = Pin::new(&mut *body).poll_frame(cx);
            if polled.is_pending() {
                // Asking for the frame is what lets the connection read on, so drive it and ask again.
                if let Some(link) = self.link.as_mut()
                    && link.poll_drive(cx)
                {
                    self.link = None;
                }
                polled = Pin::new(&mut *body).poll_frame(cx);
            }
            match polled {
                Poll::Ready(Some(Ok(frame))) => {
                    self.last_active = Instant::now();
                    self.pieces = self.pieces.saturating_add(1);
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    self.close();
                    return Poll::Ready(Some(Err(CallError::Broken(error))));
                }
                Poll::Ready(None) => {
                    self.finish();
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    ready!(self.poll_alarm(cx, self.deadlines.idle));
                    self.close();
                    return Poll::Ready(Some(Err(CallError::IdleTimeout)));
                }
            }
        }
    }

    /// The mean time between two pieces of the answer's body so far; zero before the first.
    pub fn rhythm(&self) -> Duration {
        self.head_at.map_or(Duration::ZERO, |at| self.last_active.duration_since(at)) / self.pieces.max(1)
    }

    /// How long nothing has come from the gateway.
    pub fn quiet(&self) -> Duration {
        self.last_active.elapsed()
    }

    /// Ready when nothing has come from the gateway for so long.
    fn poll_alarm(&mut self, cx: &mut Context<'_>, limit: Duration) -> Poll<()> {
        let due = self.last_active + limit;
        self.alarm.get_or_insert_with(|| Alarm::at(due)).poll(cx, due)
    }

    /// Waits for the response head.
    ///
    /// # Errors
    /// As [`Call::poll_head`].
    pub async fn head(&mut self) -> Result<response::Parts, CallError> {
        std::future::poll_fn(|cx| self.poll_head(cx)).await
    }

    /// Waits for the next piece of the body.
    ///
    /// # Errors
    /// As [`Call::poll_data`].
    pub async fn data(&mut self) -> Option<Result<Bytes, CallError>> {
        std::future::poll_fn(|cx| self.poll_data(cx)).await
    }

    /// Whether the gateway still holds its end of the connection, as far as is known.
    pub fn is_open(&self) -> bool {
        self.link.is_some()
    }

    /// Whether the response head has come.
    pub fn has_head(&self) -> bool {
        self.answer.is_none()
    }

    /// Whether the response body has been read to its end.
    pub fn is_complete(&self) -> bool {
        self.answer.is_none() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    /// What is known of the response body's length.
    pub fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }

    /// Closes the connection: the gateway learns at once that nobody reads on.
    pub fn close(&mut self) {
        self.answer = None;
        self.body = None;
        self.link = None;
    }

    /// Leaves before the end: our side is closed at once, which is how the gateway learns of it. Then waits for it to close its
    /// own, at most `limit`, and throws away what it still says.
    pub async fn leave(mut self, limit: Duration) {
        (self.answer, self.body) = (None, None);
        let Some(mut stream) = self.link.take().map(|link| link.into_stream()) else { return };
        let letting_go = async {
            let mut rest = [0; 4096];
            if stream.shutdown().await.is_ok() {
                while matches!(stream.read(&mut rest).await, Ok(1..)) {}
            }
        };
        // Out of time: the gateway hears it from the reset that a dropped socket answers with.
        let _ = tokio::time::timeout(limit, letting_go).await;
    }

    fn finish(&mut self) {
        self.body = None;
        // A body still on its way would be read as the start of the next request.
        if let Some(mut link) = self.link.take()
            && self.is_sent()
        {
            link.alarm = self.alarm.take();
            self.pool.put(link);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.answer.is_none() && self.body.as_ref().is_some_and(Body::is_end_stream) {
            self.finish();
        }
    }
}
