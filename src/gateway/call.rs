//! One request to a gateway and its answer, driven by whoever polls it: no task of its own.
//!
//! Invariants: dropping a call closes its connection unless the answer was read to its end, in which case the connection
//! goes back to the pool; silence is bounded, before the head and in the body. It does not judge what the answer says.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use super::answer::{Answer, AnswerError, Framing, Parsed};
use super::content::{Content, ContentError};
use super::outgoing::{Outgoing, SendError};
use super::pool::{Link, Pool};
use super::request_body::BodyFault;
use crate::tasks::Alarm;
use crate::telemetry::metrics::UpstreamErrorKind;

/// Bytes that are read at once. They lie on the stack, so that a connection that waits holds no buffer.
const READ_BYTES: usize = 16 * 1024;

/// Why an answer did not come, or did not come whole.
#[derive(Debug)]
pub enum CallError {
    /// The request never left: it may be sent again on another connection.
    Unsent(Box<Outgoing>),
    /// The client's body is not to be sent.
    Body(BodyFault),
    /// The connection ended before a response head.
    NoHead(io::Error),
    /// What came is no response head.
    Head(AnswerError),
    /// No response head within the deadline.
    HeadTimeout,
    /// The answer broke off.
    Broken(io::Error),
    /// The answer is not framed as it says.
    Content(ContentError),
    /// Silence in the answer beyond the deadline.
    IdleTimeout,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Unsent(_) => f.write_str("the connection closed before the request left"),
            CallError::Body(fault) => fault.fmt(f),
            CallError::NoHead(error) => write!(f, "no response head: {error}"),
            CallError::Head(error) => error.fmt(f),
            CallError::HeadTimeout => f.write_str("no response head within the deadline"),
            CallError::Broken(error) => write!(f, "the answer broke off: {error}"),
            CallError::Content(error) => error.fmt(f),
            CallError::IdleTimeout => f.write_str("silence in the answer beyond the deadline"),
        }
    }
}

impl std::error::Error for CallError {}

impl CallError {
    /// The metric's word for it.
    pub fn kind(&self) -> UpstreamErrorKind {
        match self {
            CallError::Unsent(_) | CallError::Body(_) => UpstreamErrorKind::Send,
            CallError::NoHead(_) | CallError::Head(_) => UpstreamErrorKind::Head,
            CallError::HeadTimeout => UpstreamErrorKind::HeadTimeout,
            CallError::Broken(_) | CallError::Content(_) => UpstreamErrorKind::Body,
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
    // None once it has failed; what is left of a request then is not sent.
    outgoing: Option<Outgoing>,
    to_head: bool,
    // What has come of a head that is not whole.
    partial: Vec<u8>,
    // None until the head has come.
    content: Option<Content>,
    chunked: bool,
    // Body that came with the head.
    ready: Bytes,
    reusable: bool,
    pool: Arc<Pool>,
    deadlines: CallDeadlines,
    // The start, then each sign of life.
    last_active: Instant,
    // When the head came, and how many pieces of the body have come since.
    head_at: Option<Instant>,
    pieces: u32,
    alarm: Option<Alarm>,
}

impl Call {
    /// Sends a request. Nothing moves until the call is polled. `to_head`: its method is HEAD.
    pub fn start(
        mut link: Box<Link>,
        outgoing: Outgoing,
        to_head: bool,
        pool: Arc<Pool>,
        deadlines: CallDeadlines,
    ) -> Self {
        let alarm = link.alarm.take();
        Call {
            link: Some(link),
            outgoing: Some(outgoing),
            to_head,
            partial: Vec::new(),
            content: None,
            chunked: false,
            ready: Bytes::new(),
            reusable: false,
            pool,
            deadlines,
            last_active: Instant::now(),
            head_at: None,
            pieces: 0,
            alarm,
        }
    }

    /// Whether the whole request has left: from here the gateway may run the turn.
    pub fn is_sent(&self) -> bool {
        self.outgoing.as_ref().is_some_and(Outgoing::is_sent)
    }

    /// Drives the call to its response head, which comes once.
    ///
    /// # Errors
    /// [`CallError`]; the call is over then.
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<Answer>, CallError>> {
        debug_assert!(!self.has_head(), "a head comes once");
        if let Err(error) = self.send(cx) {
            self.close();
            return Poll::Ready(Err(error));
        }
        // Nobody has been asked yet, so nobody may answer.
        if self.outgoing.as_ref().is_none_or(Outgoing::has_begun) {
            let mut space = [MaybeUninit::uninit(); READ_BYTES];
            let mut buffer = ReadBuf::uninit(&mut space);
            while let Poll::Ready(read) = self.poll_read(cx, &mut buffer) {
                match read.map_err(CallError::NoHead).and_then(|()| self.head_of(buffer.filled())) {
                    Ok(None) => {}
                    Ok(Some(answer)) => return Poll::Ready(Ok(answer)),
                    Err(error) => {
                        self.close();
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
        ready!(self.poll_alarm(cx, self.deadlines.head));
        self.close();
        Poll::Ready(Err(CallError::HeadTimeout))
    }

    /// Sends on what is left of the request. Where the connection fails the gateway may have answered before it closed.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), CallError> {
        let (Some(link), Some(outgoing)) = (self.link.as_mut(), self.outgoing.as_mut()) else { return Ok(()) };
        if outgoing.is_sent() {
            return Ok(());
        }
        let Poll::Ready(Err(error)) = outgoing.poll_send(cx, &mut link.stream) else { return Ok(()) };
        match (self.outgoing.take(), error) {
            (_, SendError::Body(fault)) => Err(CallError::Body(fault)),
            (Some(unsent), SendError::Closed) if !unsent.has_begun() => Err(CallError::Unsent(Box::new(unsent))),
            (_, SendError::Closed) => Ok(()),
        }
    }

    /// Fills the buffer anew; an error at the connection's end.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(link) = self.link.as_mut() else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        buffer.clear();
        ready!(Pin::new(&mut link.stream).poll_read(cx, buffer))?;
        match buffer.filled().is_empty() {
            true => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            false => Poll::Ready(Ok(())),
        }
    }

    /// The response head, once these bytes complete it.
    fn head_of(&mut self, bytes: &[u8]) -> Result<Option<Box<Answer>>, CallError> {
        let gathered;
        let mut bytes = match self.partial.is_empty() {
            true => bytes,
            false => {
                self.partial.extend_from_slice(bytes);
                gathered = std::mem::take(&mut self.partial);
                &gathered
            }
        };
        loop {
            match Answer::parse(bytes, self.to_head).map_err(CallError::Head)? {
                Parsed::Interim(length) => bytes = &bytes[length..],
                Parsed::Partial => {
                    self.partial.extend_from_slice(bytes);
                    return Ok(None);
                }
                Parsed::Head(answer, length) => {
                    self.content = Some(Content::new(answer.framing()));
                    self.chunked = answer.framing() == Framing::Chunked;
                    self.reusable = answer.is_persistent();
                    self.last_active = Instant::now();
                    self.head_at = Some(self.last_active);
                    self.ready = self.body_of(&bytes[length..])?;
                    return Ok(Some(answer));
                }
            }
        }
    }

    /// The part of the body that these bytes hold.
    fn body_of(&mut self, bytes: &[u8]) -> Result<Bytes, CallError> {
        let Some(content) = self.content.as_mut() else { return Ok(Bytes::new()) };
        if bytes.is_empty() {
            return Ok(Bytes::new());
        }
        let mut body = Vec::with_capacity(bytes.len());
        // What comes behind a body would be read as the next request's answer.
        self.reusable &= content.take(bytes, &mut body).map_err(CallError::Content)? == bytes.len();
        Ok(Bytes::from(body))
    }

    /// Drives the call to the next piece of its response body; `None` at the end.
    ///
    /// # Errors
    /// [`CallError::Broken`], [`CallError::Content`] and [`CallError::IdleTimeout`]; the call is over then.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, CallError>>> {
        if !self.ready.is_empty() {
            self.pieces = self.pieces.saturating_add(1);
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.ready))));
        }
        if self.content.as_ref().is_none_or(Content::is_done) {
            self.finish();
            return Poll::Ready(None);
        }
        // An answer that has begun before its request was over is read on; a request that failed is not sent on.
        let _ = self.send(cx);
        let mut space = [MaybeUninit::uninit(); READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut space);
        while let Poll::Ready(read) = self.poll_read(cx, &mut buffer) {
            match read.map_err(CallError::Broken).and_then(|()| self.body_of(buffer.filled())) {
                Ok(data) => {
                    self.last_active = Instant::now();
                    if !data.is_empty() {
                        self.pieces = self.pieces.saturating_add(1);
                        return Poll::Ready(Some(Ok(data)));
                    }
                    if self.content.as_ref().is_none_or(Content::is_done) {
                        self.finish();
                        return Poll::Ready(None);
                    }
                }
                Err(error) => {
                    self.close();
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        ready!(self.poll_alarm(cx, self.deadlines.idle));
        self.close();
        Poll::Ready(Some(Err(CallError::IdleTimeout)))
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
    pub async fn head(&mut self) -> Result<Box<Answer>, CallError> {
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
        self.content.is_some()
    }

    /// Whether the response body has been read to its end.
    pub fn is_complete(&self) -> bool {
        self.ready.is_empty() && self.content.as_ref().is_some_and(Content::is_done)
    }

    /// How much of the response body is still to come, where the gateway has said it.
    pub fn length(&self) -> Option<u64> {
        if self.chunked {
            return None;
        }
        self.content.as_ref()?.length().map(|length| length + self.ready.len() as u64)
    }

    /// Closes the connection: the gateway learns at once that nobody reads on.
    pub fn close(&mut self) {
        self.link = None;
    }

    /// Leaves before the end: our side is closed at once, which is how the gateway learns of it. Then waits for it to close its
    /// own, at most `limit`, and throws away what it still says.
    pub async fn leave(mut self, limit: Duration) {
        let Some(mut link) = self.link.take() else { return };
        let letting_go = async {
            let mut rest = [0; 4096];
            if link.stream.shutdown().await.is_ok() {
                while matches!(link.stream.read(&mut rest).await, Ok(1..)) {}
            }
        };
        // Out of time: the gateway hears it from the reset that a dropped socket answers with.
        let _ = tokio::time::timeout(limit, letting_go).await;
    }

    fn finish(&mut self) {
        // A body still on its way would be read as the start of the next request.
        let reusable = self.reusable && self.is_sent();
        if let Some(mut link) = self.link.take().filter(|_| reusable) {
            link.alarm = self.alarm.take();
            self.pool.put(link, self.last_active);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.is_complete() {
            self.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GatewayUrl;
    use crate::directory::GatewayTarget;
    use crate::gateway::outgoing::RequestHead;
    use crate::gateway::request_body::RequestBody;
    use crate::names::GatewayName;
    use crate::telemetry::metrics::Metrics;

    const LONG: Duration = Duration::from_secs(20);

    async fn call(lines: Vec<u8>) -> (Call, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = GatewayUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let name = GatewayName::parse("main").unwrap();
        let metrics = Metrics::new(std::slice::from_ref(&name), &[]);
        let link = Link::open(&GatewayTarget::new(name, 0, url), LONG, &metrics.shard()).await.unwrap();
        let outgoing = Outgoing::new(RequestHead { lines, tells_absence: false }, RequestBody::empty());
        let call = Call::start(link, outgoing, false, Pool::new(1), CallDeadlines { head: LONG, idle: LONG });
        (call, listener.accept().unwrap().0)
    }

    /// What these pieces come to: status, body, whether they are a whole answer, whether the connection can be kept.
    fn read<'p>(call: &mut Call, pieces: impl Iterator<Item = &'p [u8]>) -> (u16, Vec<u8>, bool, bool) {
        (call.content, call.reusable, call.ready) = (None, false, Bytes::new());
        call.partial.clear();
        let (mut status, mut body) = (0, Vec::new());
        for piece in pieces {
            if call.content.is_none() {
                if let Some(answer) = call.head_of(piece).unwrap() {
                    status = answer.status().as_u16();
                    body.extend_from_slice(&std::mem::take(&mut call.ready));
                }
            } else {
                body.extend_from_slice(&call.body_of(piece).unwrap());
            }
        }
        (status, body, call.is_complete(), call.reusable)
    }

    #[tokio::test]
    async fn an_answer_is_the_same_however_it_is_cut() {
        let (mut call, _gateway) = call(Vec::new()).await;
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", (200, "hello", true)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", (200, "", true)),
            ("HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\n", (204, "", false)),
            ("HTTP/1.1 304 Same\r\nTransfer-Encoding: chunked\r\n\r\n", (304, "", true)),
            ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", (200, "x", false)),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nT: 1\r\n\r\n",
                (200, "hello", true),
            ),
        ] {
            for text in [text.to_owned(), format!("{interim}{text}")] {
                let bytes = text.as_bytes();
                for cut in 0..=bytes.len() {
                    let (one, two) = bytes.split_at(cut);
                    let (status, body, complete, reusable) = read(&mut call, [one, two].into_iter());
                    assert_eq!(
                        (status, &*body, reusable),
                        (expected.0, expected.1.as_bytes(), expected.2),
                        "{text} {cut}"
                    );
                    assert!(complete, "{text} {cut}");
                    let (_, _, complete, _) = read(&mut call, std::iter::once(&bytes[..cut]));
                    assert_eq!(complete, cut == bytes.len(), "{text} {cut}");
                }
                let (status, body, complete, reusable) = read(&mut call, bytes.chunks(1));
                assert_eq!((status, &*body, reusable), (expected.0, expected.1.as_bytes(), expected.2), "{text}");
                assert!(complete, "{text}");
                let surplus = [bytes, b"H"].concat();
                let (_, body, complete, reusable) = read(&mut call, std::iter::once(&*surplus));
                assert_eq!((&*body, complete, reusable), (expected.1.as_bytes(), true, false), "{text}");
            }
        }
    }

    #[tokio::test]
    async fn a_request_that_has_left_holds_no_buffer() {
        use std::io::{Read, Write};
        let (mut call, mut gateway) = call(vec![b'x'; 100_000]).await;
        let answering = crate::tasks::Tasks::thread("gateway", move || {
            gateway.read_exact(&mut [0; 100_002]).unwrap();
            gateway.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").unwrap();
            gateway
        });
        assert_eq!(call.head().await.unwrap().status(), 200);
        assert!(call.is_sent());
        assert_eq!(call.outgoing.as_ref().map(Outgoing::buffered), Some(0));
        drop(answering.unwrap().join().unwrap());
    }
}
