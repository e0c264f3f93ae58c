//! The data path's threads: one single-threaded runtime for each listening socket.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::time::Instant;

use super::accept::{self, Acceptor};
use super::limits::ConnectionLimits;
use super::pulse::{self, Pulse};
use super::sockets::Sockets;
use super::tls::Tls;
use crate::config::Limits;
use crate::proxy::{Edge, Settings, Worker};
use crate::tasks::Tasks;

/// Bytes of an answer that the system keeps for a client beyond what it has sent. Fewer would make a fast client wait; more
/// would hide for how long a slow one takes nothing, and fill memory.
const UNSENT_BYTES: u32 = 64 * 1024;

/// One address may have one such share of all handshakes: whoever begins many and ends none keeps out nobody else.
const HANDSHAKE_SHARES: usize = 4;

/// The running data path. It serves until its edge ends.
pub struct DataPath {
    address: SocketAddr,
    kept: bool,
    limits: ConnectionLimits,
    handshakes: ConnectionLimits,
    threads: Vec<Thread>,
}

struct Thread {
    // The thread alone holds it, so that the socket closes when the thread is done with it.
    socket: Weak<tokio::net::TcpListener>,
    worker: Arc<Worker>,
    pulse: Pulse,
    handle: JoinHandle<Drained>,
}

fn handshake_share(bounds: &Limits) -> usize {
    (bounds.handshakes / HANDSHAKE_SHARES).max(1)
}

/// How a drain went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Requests that were cut: their time was up.
    pub cut: usize,
    /// Data-path threads that had failed; what they served was cut with them.
    pub failed_threads: usize,
}

impl Drained {
    /// Whether every request came to its own end.
    pub fn is_clean(&self) -> bool {
        self.cut == 0 && self.failed_threads == 0
    }
}

impl fmt::Debug for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataPath").field("address", &self.address).field("threads", &self.threads.len()).finish()
    }
}

impl DataPath {
    /// Starts a thread for each socket. Once the edge drains, what is under way gets `drain` to end. Without `tls` clients are
    /// served in the clear.
    ///
    /// # Errors
    /// The system refuses a thread, a runtime or a socket.
    pub fn start(edge: &Arc<Edge>, sockets: Sockets, tls: Option<&Tls>, drain: Duration) -> io::Result<Self> {
        let (address, kept) = (sockets.address()?, sockets.are_kept());
        let bounds = &edge.parts().settings.limits;
        let limits = ConnectionLimits::new(bounds.connections, bounds.connections_per_address);
        let handshakes = ConnectionLimits::new(bounds.handshakes, handshake_share(bounds));
        let mut threads = Vec::new();
        for (number, socket) in sockets.into_inner().into_iter().enumerate() {
            // Connections take it over from their listener.
            socket2::SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let listener = {
                let _entered = runtime.enter();
                Arc::new(tokio::net::TcpListener::from_std(socket)?)
            };
            let (socket, tasks, (pulse, beat)) = (Arc::downgrade(&listener), Tasks::new(), pulse::pulse());
            let worker = Worker::new(Arc::clone(edge), tasks.clone());
            let (limits, handshakes, tls) = (limits.clone(), handshakes.clone(), tls.cloned());
            let acceptor = Acceptor { listener, worker: worker.clone(), limits, handshakes, tls, tasks };
            let handle = Tasks::thread(&format!("edge-{number}"), move || {
                runtime.block_on(beat.beside(serve(acceptor, kept, drain)))
            })?;
            threads.push(Thread { socket, worker, pulse, handle });
        }
        Ok(DataPath { address, kept, limits, handshakes, threads })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Client connections that are open.
    pub fn connections(&self) -> usize {
        self.limits.open()
    }

    /// The settings of now; `None` when it has no thread.
    pub fn settings(&self) -> Option<Arc<Settings>> {
        self.threads.first().map(|thread| thread.worker.settings())
    }

    /// Serves what comes from now on with these settings; what is open stays open.
    pub fn set(&self, settings: &Settings) {
        let bounds = &settings.limits;
        self.limits.set(bounds.connections, bounds.connections_per_address);
        self.handshakes.set(bounds.handshakes, handshake_share(bounds));
        self.threads.iter().for_each(|thread| thread.worker.set(settings.clone()));
    }

    /// Further descriptors of the listening sockets, for a process that is to take over.
    ///
    /// # Errors
    /// The system refuses one, or a thread is done with its own.
    pub fn sockets(&self) -> io::Result<Sockets> {
        let copy = |thread: &Thread| {
            let socket = thread.socket.upgrade().ok_or(io::ErrorKind::NotConnected)?;
            Ok(TcpListener::from(socket.as_fd().try_clone_to_owned()?))
        };
        let copies = self.threads.iter().map(copy).collect::<io::Result<Vec<_>>>()?;
        let sockets = Sockets::handed(copies, self.threads.len())?;
        Ok(if self.kept { sockets } else { sockets.alone() })
    }

    /// Whether a thread still has its listening socket: what comes now may be accepted here.
    pub fn accepts(&self) -> bool {
        self.threads.iter().any(|thread| thread.socket.strong_count() > 0)
    }

    /// What tells whether the threads do their work.
    pub fn pulses(&self) -> Vec<Pulse> {
        self.threads.iter().map(|thread| thread.pulse.clone()).collect()
    }

    /// Waits for the threads, which end when the edge drains, or when it is replaced and its connections have ended. Blocks.
    pub fn join(self) -> Drained {
        let mut drained = Drained { cut: 0, failed_threads: 0 };
        for thread in self.threads {
            match thread.handle.join() {
                Ok(of_thread) => drained.cut += of_thread.cut,
                Err(_) => drained.failed_threads += 1,
            }
        }
        drained
    }
}

/// Accepts and serves until the edge ends, and what has begun to its own end, or to that of its time.
async fn serve(acceptor: Acceptor, kept: bool, drain: Duration) -> Drained {
    let (worker, tasks) = (acceptor.worker.clone(), acceptor.tasks.clone());
    let ending = &worker.edge().parts().ending;
    accept::run(&acceptor).await;
    let leaving = Instant::now();
    if !kept && !ending.is_replaced() {
        ending.out_of_time().run_until_cancelled(accept::empty(&acceptor)).await;
    }
    // Closes the socket before what has been accepted is waited for.
    drop(acceptor);
    let mut limit = leaving + drain;
    if !ending.draining().is_cancelled() {
        let ended = ending.draining().run_until_cancelled(tasks.ended()).await;
        limit = Instant::now() + if ended.is_some() { Duration::ZERO } else { drain };
    }
    tasks.stop();
    let _ = tokio::time::timeout_at(limit, ending.out_of_time().run_until_cancelled(tasks.ended())).await;
    tasks.drain(Duration::ZERO).await;
    Drained { cut: worker.cut(), failed_threads: 0 }
}
