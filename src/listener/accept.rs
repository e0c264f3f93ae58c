//! The accept loop: one for each data-path thread.
//!
//! Invariants: an error never ends the loop, and one that stays (out of descriptors) pauses it instead of spinning; a
//! connection over a bound is closed at once and counted; a handshake has a deadline of its own, and a bound on how many there
//! are.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};

use super::limits::{ConnectionLimits, ConnectionPermit, HandshakeLimit};
use super::pace::{Pace, Paced};
use super::socket::Encrypted;
use super::tls::Tls;
use super::{http1, http2};
use crate::proxy::{Client, Worker};
use crate::tasks::Tasks;
use crate::telemetry::metrics::HandshakeOutcome;
use crate::telemetry::reason::Reason;

/// Pause after an error that the next accept would meet again.
const PAUSE: Duration = Duration::from_millis(100);

/// What an accept loop needs.
pub struct Acceptor {
    /// This thread's socket.
    pub listener: TcpListener,
    /// This thread's worker.
    pub worker: Arc<Worker>,
    /// Bounds shared by all threads.
    pub limits: ConnectionLimits,
    /// Bound shared by all threads.
    pub handshakes: HandshakeLimit,
    /// How clients are encrypted; `None`: they are not.
    pub tls: Option<Tls>,
    /// Where connections run.
    pub tasks: Tasks,
}

/// Accepts until the edge drains.
pub async fn run(acceptor: Acceptor) {
    let draining = acceptor.worker.edge().parts().draining.clone();
    // A lasting error is told when it begins and when it ends.
    let mut failing = false;
    while let Some(accepted) = draining.run_until_cancelled(acceptor.listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                if std::mem::take(&mut failing) {
                    tracing::info!("connections can be accepted again");
                }
                admit(&acceptor, stream, peer.ip());
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::error!(%error, "cannot accept connections; trying again");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Errors of the one connection that was to be accepted: it went away, or its network did (accept(2) lists them). The next
/// accept meets another connection, so nothing has to pause.
fn is_of_one_connection(error: &io::Error) -> bool {
    let of_one = [
        Errno::CONNABORTED,
        Errno::CONNRESET,
        Errno::CONNREFUSED,
        Errno::INTR,
        Errno::PERM,
        Errno::PROTO,
        Errno::NOPROTOOPT,
        Errno::OPNOTSUPP,
        Errno::NONET,
        Errno::NETDOWN,
        Errno::NETUNREACH,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::TIMEDOUT,
    ];
    Errno::from_io_error(error).is_some_and(|error| of_one.contains(&error))
}

fn admit(acceptor: &Acceptor, stream: TcpStream, peer: std::net::IpAddr) {
    let peer = peer.to_canonical();
    let permit = match acceptor.worker.edge().parts().forwarders.contains(peer) {
        true => acceptor.limits.admit_forwarder(),
        false => acceptor.limits.admit(peer),
    };
    let Some(permit) = permit else {
        acceptor.worker.counts().refused(Reason::ConnectionLimit);
        return;
    };
    // Events are small and must not wait for more; a socket that refuses the option is closed by its first use.
    let _ = stream.set_nodelay(true);
    let worker = acceptor.worker.clone();
    if let Some(tls) = &acceptor.tls {
        return begin(acceptor, tls, stream, peer, permit);
    }
    acceptor.tasks.spawn(async move {
        let pace = Pace::new();
        http1::serve(Paced::new(stream, pace.clone()), pace, Client::new(peer, false), worker).await;
        drop(permit);
    });
}

/// Begins a connection with TLS.
fn begin(acceptor: &Acceptor, tls: &Tls, stream: TcpStream, peer: std::net::IpAddr, permit: ConnectionPermit) {
    let Some(place) = acceptor.handshakes.admit() else {
        acceptor.worker.counts().refused(Reason::HandshakeLimit);
        return;
    };
    let (accepting, worker, tasks) = (tls.acceptor(), acceptor.worker.clone(), acceptor.tasks.clone());
    acceptor.tasks.spawn(async move {
        let pace = Pace::new();
        let limit = worker.edge().parts().deadlines.handshake;
        let handshake = accepting.accept(Paced::new(stream, pace.clone()));
        let shaken = tokio::time::timeout(limit, Box::pin(handshake)).await;
        drop(place);
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%peer, %error, "a handshake failed");
                return worker.counts().handshake(HandshakeOutcome::Failed);
            }
            Err(_) => return worker.counts().handshake(HandshakeOutcome::TimedOut),
        };
        let session = stream.get_ref().1;
        let resumed = session.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        worker.counts().handshake(if resumed { HandshakeOutcome::Resumed } else { HandshakeOutcome::Full });
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        pace.restart();
        let (socket, client) = (Encrypted::new(stream, pace.clone()), Client::new(peer, true));
        // Boxed, so that a handshake does not carry the room for what follows about.
        match is_http2 {
            true => Box::pin(http2::serve(socket, pace, client, worker, tasks)).await,
            false => Box::pin(http1::serve(socket, pace, client, worker)).await,
        }
        drop(permit);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_next_accept_would_meet_again_pauses() {
        let of_one = |error: Errno| is_of_one_connection(&error.into());
        for error in [Errno::CONNABORTED, Errno::PROTO, Errno::NETUNREACH, Errno::INTR] {
            assert!(of_one(error), "{error}");
        }
        for error in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::BADF, Errno::INVAL] {
            assert!(!of_one(error), "{error}");
        }
    }
}
