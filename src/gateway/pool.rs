//! Connections to the gateways: opened under a deadline, kept idle in a per-thread LIFO pool.
//!
//! Invariants: a link that is handed out was alive a moment ago and has no unread byte; an idle connection on which the
//! gateway spoke is never used (stale bytes would be another request's answer); the pool is bounded. A pool belongs to one
//! thread, so its lock is never contended.

use std::future::Future;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::client::conn::http1::{Connection, SendRequest};
use hyper_util::rt::TokioIo;
use socket2::{SockRef, Socket};
use tokio::net::TcpStream;

use super::request_body::RequestBody;
use crate::directory::GatewayTarget;
use crate::tasks::Alarm;
use crate::telemetry::metrics::{ConnectionGauge, ConnectionState, Metrics};

/// Idle connections kept per gateway and thread.
const IDLE_MAX: usize = 64;
/// Largest response head that is read from a gateway, in bytes.
const HEAD_MAX_BYTES: usize = 64 * 1024;

/// Why no connection could be had.
#[derive(Debug)]
pub enum ConnectError {
    /// Refused, unreachable or unresolvable.
    Io(std::io::Error),
    /// No answer within the deadline.
    Timeout,
    /// The HTTP client could not start on it.
    Handshake(hyper::Error),
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConnectError::Io(error) => write!(f, "cannot connect: {error}"),
            ConnectError::Timeout => f.write_str("no connection within the deadline"),
            ConnectError::Handshake(error) => write!(f, "cannot start HTTP: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// One connection to a gateway, ready for a request. Whoever holds it drives it.
pub struct Link {
    pub(super) sender: SendRequest<RequestBody>,
    pub(super) connection: Connection<TokioIo<TcpStream>, RequestBody>,
    // The same socket once more, to look at what has arrived on it: the runtime learns of that only when it next polls.
    socket: Socket,
    gateway: usize,
    reused: bool,
    // The timer of the calls that it carries; None while one has it.
    pub(super) alarm: Option<Alarm>,
    gauge: Option<ConnectionGauge>,
}

impl Link {
    /// Opens a connection within `deadline`.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub async fn open(
        target: &GatewayTarget,
        deadline: Duration,
        metrics: &Metrics,
    ) -> Result<Box<Self>, ConnectError> {
        let connecting = async {
            let stream =
                TcpStream::connect((target.url().host(), target.url().port())).await.map_err(ConnectError::Io)?;
            // A turn's head and the first event are small; waiting for more would only delay them.
            stream.set_nodelay(true).map_err(ConnectError::Io)?;
            let socket = SockRef::from(&stream).try_clone().map_err(ConnectError::Io)?;
            let (sender, connection) = hyper::client::conn::http1::Builder::new()
                .max_buf_size(HEAD_MAX_BYTES)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(ConnectError::Handshake)?;
            Ok(Box::new(Link {
                sender,
                connection,
                socket,
                gateway: target.index(),
                reused: false,
                alarm: None,
                gauge: metrics.upstream_connection(target.index(), ConnectionState::Active),
            }))
        };
        tokio::time::timeout(deadline, connecting).await.unwrap_or(Err(ConnectError::Timeout))
    }

    /// Whether it has carried a request before, so that the gateway may have closed it meanwhile.
    pub fn reused(&self) -> bool {
        self.reused
    }

    /// The socket, without what was read ahead.
    pub(super) fn into_stream(self) -> TcpStream {
        self.connection.into_parts().io.into_inner()
    }

    /// Drives the connection; true when it has ended.
    pub(super) fn poll_drive(&mut self, cx: &mut Context<'_>) -> bool {
        Pin::new(&mut self.connection).poll(cx).is_ready()
    }

    /// Whether nothing has arrived on an idle connection, neither a byte nor its end.
    fn is_silent(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        // The socket does not block: what would wait has nothing to tell.
        self.socket.peek(&mut byte).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Whether the HTTP client has done with the last request and can send another. Nothing changes that while the connection
    /// is idle and silent.
    fn is_alive(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        !self.poll_drive(&mut cx) && matches!(self.sender.poll_ready(&mut cx), Poll::Ready(Ok(())))
    }
}

/// The idle connections of one thread.
pub struct Pool {
    // Boxed, because a link is some hundred bytes and changes hands four times a request.
    #[expect(clippy::vec_box, reason = "moved in and out at each request")]
    idle: Mutex<Vec<Vec<Box<Link>>>>,
}

impl Pool {
    /// An empty pool for so many gateways.
    pub fn new(gateways: usize) -> Arc<Self> {
        Arc::new(Pool { idle: Mutex::new((0..gateways).map(|_| Vec::new()).collect()) })
    }

    /// The connection that was used last and still lives.
    pub fn take(&self, target: &GatewayTarget) -> Option<Box<Link>> {
        loop {
            let mut link = self.idle.lock().unwrap_or_else(PoisonError::into_inner).get_mut(target.index())?.pop()?;
            if link.is_silent() {
                link.gauge.iter_mut().for_each(ConnectionGauge::active);
                return Some(link);
            }
        }
    }

    /// Keeps a connection for the next request, if it can carry one.
    pub(super) fn put(&self, mut link: Box<Link>) {
        if !link.is_alive() {
            return;
        }
        link.reused = true;
        link.gauge.iter_mut().for_each(ConnectionGauge::idle);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(links) = idle.get_mut(link.gateway)
            && links.len() < IDLE_MAX
        {
            links.push(link);
        }
    }

    /// Closes every idle connection.
    pub fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).iter_mut().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::sync_channel;

    use http::Request;

    use super::*;
    use crate::config::GatewayUrl;
    use crate::gateway::call::{Call, CallDeadlines};
    use crate::names::GatewayName;
    use crate::tasks::Tasks;

    const LONG: Duration = Duration::from_secs(20);

    /// A connection that has carried one request and lies in the pool, while the gateway does `after` and says so.
    async fn taken_after(after: fn(std::net::TcpStream)) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = GatewayUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let target = GatewayTarget::new(GatewayName::parse("main").unwrap(), 0, url);
        let (go, gone) = sync_channel::<()>(1);
        let (done, did) = sync_channel::<()>(1);
        let gateway = Tasks::thread("gateway", move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            assert!(stream.read(&mut head).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            gone.recv().unwrap();
            after(stream);
            done.send(()).unwrap();
        })
        .unwrap();
        let metrics = Metrics::new(&[GatewayName::parse("main").unwrap()], &[]);
        let pool = Pool::new(1);
        let link = Link::open(&target, LONG, &metrics).await.unwrap();
        let request = Request::get("/").header("host", "gateway").body(RequestBody::empty()).unwrap();
        let mut call = Call::start(link, request, pool.clone(), CallDeadlines { head: LONG, idle: LONG });
        assert_eq!(call.head().await.unwrap().status, 200);
        assert!(call.data().await.is_none());
        go.send(()).unwrap();
        // Blocks this thread, and with it the runtime, so that it cannot have heard of what has arrived.
        did.recv().unwrap();
        gateway.join().unwrap();
        pool.take(&target).is_some()
    }

    #[tokio::test]
    async fn a_connection_on_which_the_gateway_spoke_is_never_used() {
        assert!(
            !taken_after(|mut stream| {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale").unwrap();
                std::mem::forget(stream);
            })
            .await
        );
    }

    #[tokio::test]
    async fn a_connection_that_the_gateway_closed_is_never_used() {
        assert!(!taken_after(drop).await);
    }

    #[tokio::test]
    async fn a_silent_connection_is_used_again() {
        assert!(taken_after(std::mem::forget).await);
    }
}
