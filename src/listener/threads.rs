//! The data path's threads: one single-threaded runtime for each listening socket.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::accept::{self, Acceptor};
use super::limits::{ConnectionLimits, HandshakeLimit};
use super::tls::Tls;
use crate::proxy::{Edge, Worker};
use crate::tasks::Tasks;

/// Bytes of an answer that the system keeps for a client beyond what it has sent. Fewer would make a fast client wait; more
/// would hide for how long a slow one takes nothing, and fill memory.
const UNSENT_BYTES: u32 = 64 * 1024;

/// The running data path. It serves until its edge drains.
#[derive(Debug)]
pub struct DataPath {
    address: SocketAddr,
    limits: ConnectionLimits,
    threads: Vec<JoinHandle<bool>>,
}

impl DataPath {
    /// Starts a thread for each socket. They stop when the edge's `draining` is cancelled; turns then get `drain` to end.
    /// Without `tls` clients are served in the clear.
    ///
    /// # Errors
    /// The system refuses a thread or a runtime, or there is no socket.
    pub fn start(edge: &Arc<Edge>, sockets: Vec<TcpListener>, tls: Option<&Tls>, drain: Duration) -> io::Result<Self> {
        let address = sockets.first().ok_or(io::ErrorKind::InvalidInput)?.local_addr()?;
        let bounds = &edge.parts().limits;
        let limits = ConnectionLimits::new(bounds.connections, bounds.connections_per_address);
        let handshakes = HandshakeLimit::new(bounds.handshakes);
        let mut threads = Vec::with_capacity(sockets.len());
        for (number, socket) in sockets.into_iter().enumerate() {
            // Connections take it over from their listener.
            socket2::SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (edge, limits) = (Arc::clone(edge), limits.clone());
            let (handshakes, tls) = (handshakes.clone(), tls.cloned());
            threads.push(Tasks::thread(&format!("edge-{number}"), move || {
                runtime.block_on(async move {
                    let (tasks, listener) = (Tasks::new(), listener(socket));
                    let Some(listener) = listener else { return false };
                    let worker = Worker::new(edge, tasks.clone());
                    let acceptor = Acceptor { listener, worker, limits, handshakes, tls, tasks: tasks.clone() };
                    accept::run(acceptor).await;
                    tasks.drain(drain).await
                })
            })?);
        }
        Ok(DataPath { address, limits, threads })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Client connections that are open.
    pub fn connections(&self) -> usize {
        self.limits.open()
    }

    /// Waits for the threads, which end when the edge drains. True when nothing had to be cut. Blocks.
    pub fn join(self) -> bool {
        // A thread that panicked has cut its connections. All are waited for, also after the first that did.
        let ends: Vec<bool> = self.threads.into_iter().map(|thread| thread.join().unwrap_or(false)).collect();
        ends.into_iter().all(|clean| clean)
    }
}

/// The socket as this thread's runtime has it.
fn listener(socket: TcpListener) -> Option<tokio::net::TcpListener> {
    let listener = tokio::net::TcpListener::from_std(socket);
    listener.inspect_err(|error| tracing::error!(%error, "a data-path thread cannot use its socket")).ok()
}
