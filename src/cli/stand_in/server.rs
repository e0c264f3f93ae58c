//! Server: a listener, a thread and a runtime of its own, and HTTP/1.1 on every connection.
//!
//! A connection's bytes pass through [`Wire`], so that a handler can replace what is written by something that no HTTP
//! library would write, and can make a connection linger before it closes, as the real one does after a 413.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::answer::Answer;
use crate::tasks::Tasks;

/// Most connections at once.
const CONNECTIONS_MAX: usize = 16_384;
/// How long the real one goes on reading after it refused a body.
const LINGER: Duration = Duration::from_secs(10);

/// What answers requests.
pub(super) trait Handler: Send + Sync + 'static {
    fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        wire: Arc<Wire>,
        tasks: Tasks,
    ) -> impl Future<Output = Response<Answer>> + Send;
}

/// A running server. Dropping it cuts everything off without waiting.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    tasks: Tasks,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start<H: Handler>(name: &str, listener: TcpListener, handler: Arc<H>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let tasks = Tasks::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (inside, counted) = (tasks.clone(), Arc::clone(&connections));
        let thread = Tasks::thread(name, move || {
            runtime.block_on(async {
                accept(listener, handler, &inside, counted).await;
                inside.drain(Duration::ZERO).await;
            });
        })?;
        Ok(Server { address, connections, tasks, thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// Cuts everything off and waits for the thread, which takes at most a second or so.
    pub(super) fn stop(mut self) {
        self.tasks.stop();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so by itself.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

async fn accept<H: Handler>(
    listener: tokio::net::TcpListener,
    handler: Arc<H>,
    tasks: &Tasks,
    connections: Arc<AtomicUsize>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Some(accepted) = tasks.stopping().run_until_cancelled(listener.accept()).await {
        let Ok((socket, _)) = accepted else {
            // Out of descriptors, or a client that is already gone: the listener itself is sound.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
        let (handler, inside, counted) = (Arc::clone(&handler), tasks.clone(), Counted::new(&connections));
        tasks.spawn(async move {
            connection(socket, handler, inside).await;
            drop((permit, counted));
        });
    }
}

/// Counts a connection while it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Counted(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

async fn connection<H: Handler>(socket: TcpStream, handler: Arc<H>, tasks: Tasks) {
    let _ = socket.set_nodelay(true);
    let wire = Arc::new(Wire::default());
    let service = {
        let wire = Arc::clone(&wire);
        service_fn(move |request| {
            let answer = Arc::clone(&handler).handle(request, Arc::clone(&wire), tasks.clone());
            async move { Ok::<_, std::convert::Infallible>(answer.await) }
        })
    };
    let tapped = TokioIo::new(Tapped { socket, wire: Arc::clone(&wire) });
    let served = http1::Builder::new().serve_connection(tapped, service).without_shutdown().await;
    let Ok(parts) = served else { return };
    let mut socket = parts.io.into_inner().socket;
    let _ = socket.shutdown().await;
    if wire.lingers.load(SeqCst) {
        let mut rest = [0; 4096];
        let reading = async { while matches!(socket.read(&mut rest).await, Ok(n) if n > 0) {} };
        let _ = tokio::time::timeout(LINGER, reading).await;
    }
}

/// What a handler may do to its connection beside answering.
#[derive(Debug, Default)]
pub(super) struct Wire {
    replaced: AtomicBool,
    replacement: Mutex<Bytes>,
    lingers: AtomicBool,
}

impl Wire {
    /// Writes these bytes in place of everything that follows.
    pub(super) fn replace(&self, bytes: Bytes) {
        *self.replacement.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
        self.replaced.store(true, SeqCst);
    }

    /// Goes on reading for a while once the connection is over.
    pub(super) fn linger(&self) {
        self.lingers.store(true, SeqCst);
    }
}

/// A socket whose output a [`Wire`] can replace.
struct Tapped {
    socket: TcpStream,
    wire: Arc<Wire>,
}

impl Tapped {
    /// Ready once all of the replacement is written.
    fn poll_replacement(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut rest = self.wire.replacement.lock().unwrap_or_else(PoisonError::into_inner);
        while rest.has_remaining() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, &rest))?;
            rest.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Tapped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tapped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.wire.replaced.load(SeqCst) {
            return self.poll_replacement(cx).map_ok(|()| buf.len());
        }
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.wire.replaced.load(SeqCst) {
            return self.poll_replacement(cx).map_ok(|()| bufs.iter().map(|buf| buf.len()).sum());
        }
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
