//! Connections to the gateways: opened under a deadline, kept idle in a per-thread LIFO pool.
//!
//! Invariants: a link that is handed out was alive a moment ago and has no unread byte; an idle connection on which the
//! gateway spoke is never used (stale bytes would be another request's answer); the pool is bounded. A pool belongs to one
//! thread, so its lock is never contended.

use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::directory::GatewayTarget;
use crate::tasks::Alarm;
use crate::telemetry::metrics::{ConnectionGauge, ConnectionState, Shard};

/// Idle connections kept per gateway and thread.
const IDLE_MAX: usize = 64;
/// Time between two looks for connections that their gateway has closed: those at the bottom are not taken for a long time.
const SWEEP: Duration = Duration::from_secs(10);

/// Why no connection could be had.
#[derive(Debug)]
pub enum ConnectError {
    /// Refused, unreachable or unresolvable.
    Io(std::io::Error),
    /// No answer within the deadline.
    Timeout,
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConnectError::Io(error) => write!(f, "cannot connect: {error}"),
            ConnectError::Timeout => f.write_str("no connection within the deadline"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// One connection to a gateway, ready for a request. Whoever holds it drives it.
pub struct Link {
    pub(super) stream: TcpStream,
    gateway: usize,
    reused: bool,
    // The timer of the calls that it carries; None while one has it.
    pub(super) alarm: Option<Alarm>,
    gauge: ConnectionGauge,
}

impl Link {
    /// Opens a connection within `deadline`.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub async fn open(
        target: &GatewayTarget,
        deadline: Duration,
        shard: &Arc<Shard>,
    ) -> Result<Box<Self>, ConnectError> {
        let connecting = async {
            let stream =
                TcpStream::connect((target.url().host(), target.url().port())).await.map_err(ConnectError::Io)?;
            // A turn's head and the first event are small; waiting for more would only delay them.
            stream.set_nodelay(true).map_err(ConnectError::Io)?;
            Ok(Box::new(Link {
                stream,
                gateway: target.index(),
                reused: false,
                alarm: None,
                gauge: shard.upstream_connection(target.index(), ConnectionState::Active),
            }))
        };
        tokio::time::timeout(deadline, connecting).await.unwrap_or(Err(ConnectError::Timeout))
    }

    /// Whether it has carried a request before, so that the gateway may have closed it meanwhile.
    pub fn reused(&self) -> bool {
        self.reused
    }

    /// Whether nothing has arrived on an idle connection, neither a byte nor its end. The socket itself is asked: the runtime
    /// learns of what has arrived only when it next polls.
    fn is_silent(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        // The socket does not block: what would wait has nothing to tell.
        SockRef::from(&self.stream).peek(&mut byte).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// The idle connections of one thread.
pub struct Pool(Mutex<Vec<Idle>>);

/// Those to one gateway.
struct Idle {
    // Boxed, because a link is some hundred bytes and changes hands four times a request.
    #[expect(clippy::vec_box, reason = "moved in and out at each request")]
    links: Vec<Box<Link>>,
    swept: Instant,
}

impl Pool {
    /// An empty pool for so many gateways.
    pub fn new(gateways: usize) -> Arc<Self> {
        Arc::new(Pool(Mutex::new((0..gateways).map(|_| Idle { links: Vec::new(), swept: Instant::now() }).collect())))
    }

    /// The connection that was used last and still lives.
    pub fn take(&self, target: &GatewayTarget) -> Option<Box<Link>> {
        loop {
            let mut link = self.idle().get_mut(target.index())?.links.pop()?;
            if link.is_silent() {
                link.gauge.active();
                return Some(link);
            }
        }
    }

    /// Keeps a connection, last used at this time, for the next request.
    pub(super) fn put(&self, mut link: Box<Link>, used: Instant) {
        link.reused = true;
        link.gauge.idle();
        let mut idle = self.idle();
        let Some(idle) = idle.get_mut(link.gateway) else { return };
        if used.saturating_duration_since(idle.swept) >= SWEEP {
            idle.swept = used;
            idle.links.retain(|link| link.is_silent());
        }
        if idle.links.len() < IDLE_MAX {
            idle.links.push(link);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::config::GatewayUrl;
    use crate::gateway::call::{Call, CallDeadlines};
    use crate::gateway::outgoing::{Outgoing, RequestHead};
    use crate::gateway::request_body::RequestBody;
    use crate::names::GatewayName;
    use crate::tasks::Tasks;
    use crate::telemetry::metrics::Metrics;

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
        let link = Link::open(&target, LONG, &metrics.shard()).await.unwrap();
        let head = RequestHead { lines: b"GET / HTTP/1.1\r\nHost: gateway\r\n".to_vec(), tells_absence: false };
        let outgoing = Outgoing::new(head, RequestBody::empty());
        let mut call = Call::start(link, outgoing, false, pool.clone(), CallDeadlines { head: LONG, idle: LONG });
        assert_eq!(call.head().await.unwrap().status(), 200);
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

    #[tokio::test]
    async fn connections_that_the_gateway_closed_do_not_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = GatewayName::parse("main").unwrap();
        let metrics = Metrics::new(std::slice::from_ref(&name), &[]);
        let url = GatewayUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let (target, pool, now) = (GatewayTarget::new(name, 0, url), Pool::new(1), Instant::now());
        let mut open = Vec::new();
        for _ in 0..2 {
            pool.put(Link::open(&target, LONG, &metrics.shard()).await.unwrap(), now);
            open.push(listener.accept().unwrap().0);
        }
        // The one at the bottom, which is taken last.
        drop(open.remove(0));
        pool.put(Link::open(&target, LONG, &metrics.shard()).await.unwrap(), now + SWEEP * 2);
        assert_eq!(pool.idle()[0].links.len(), 2);
    }
}
