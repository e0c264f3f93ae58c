//! The accept loop: one for each data-path thread.
//!
//! Invariants: an error never ends the loop, and one that stays (out of descriptors) pauses it instead of spinning; a
//! connection over a bound is closed at once and counted; a handshake has a deadline of its own, and a bound on how many there
//! are; a connection that the system has taken for us is never reset, unless by a bound.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};

use super::limits::{ConnectionLimits, ConnectionPermit};
use super::pace::{Pace, Paced};
use super::socket::Encrypted;
use super::tls::Tls;
use super::{http1, http2, sockets};
use crate::proxy::{Client, Worker};
use crate::tasks::Tasks;
use crate::telemetry::metrics::HandshakeOutcome;
use crate::telemetry::reason::Reason;

/// Pause after an error that the next accept would meet again.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the last packet of a handshake may be on its way when its socket is to be closed.
const HANDSHAKE: Duration = Duration::from_millis(250);
/// Longest time that a socket which is to be closed is emptied: past it somebody keeps connecting all the same.
const EMPTYING: Duration = Duration::from_secs(2);

/// What an accept loop needs.
pub struct Acceptor {
    /// This thread's socket.
    pub listener: Arc<TcpListener>,
    /// This thread's worker.
    pub worker: Arc<Worker>,
    /// Bounds shared by all threads.
    pub limits: ConnectionLimits,
    /// Bounds on handshakes, shared by all threads.
    pub handshakes: ConnectionLimits,
    /// How clients are encrypted; `None`: they are not.
    pub tls: Option<Tls>,
    /// Where connections run.
    pub tasks: Tasks,
}

/// Accepts until the edge drains or is replaced.
pub async fn run(acceptor: &Acceptor) {
    let leaving = acceptor.worker.edge().parts().ending.leaving().clone();
    // A lasting error is told when it begins and when it ends.
    let mut failing = false;
    while let Some(accepted) = leaving.run_until_cancelled(acceptor.listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                if std::mem::take(&mut failing) {
                    tracing::info!("connections can be accepted again");
                }
                admit(acceptor, stream, peer.ip());
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

/// Takes what waits in a socket that nobody else has: closing it would reset these connections, whose clients may have sent
/// their request. New handshakes are let alone meanwhile, so that the queue comes to an end.
pub async fn empty(acceptor: &Acceptor) {
    if let Err(error) = sockets::refuse_new(&*acceptor.listener) {
        tracing::debug!(%error, "new handshakes cannot be held off");
    }
    let taking = async {
        while let Ok(accepted) = tokio::time::timeout(HANDSHAKE, acceptor.listener.accept()).await {
            match accepted {
                Ok((stream, peer)) => admit(acceptor, stream, peer.ip()),
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    let _ = tokio::time::timeout(EMPTYING, taking).await;
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
    let is_forwarder = acceptor.worker.settings().forwarders.contains(peer);
    let place = |limits: &ConnectionLimits| if is_forwarder { limits.admit_forwarder() } else { limits.admit(peer) };
    let Some(permit) = place(&acceptor.limits) else {
        acceptor.worker.counts().refused(Reason::ConnectionLimit);
        return;
    };
    // Events are small and must not wait for more; a socket that refuses the option is closed by its first use.
    let _ = stream.set_nodelay(true);
    let worker = acceptor.worker.clone();
    if let Some(tls) = &acceptor.tls {
        let Some(handshake) = place(&acceptor.handshakes) else {
            acceptor.worker.counts().refused(Reason::HandshakeLimit);
            return;
        };
        return begin(acceptor, tls, stream, peer, [permit, handshake]);
    }
    acceptor.tasks.spawn(async move {
        let pace = Pace::new();
        http1::serve(Paced::new(stream, pace.clone()), pace, Client::new(peer, false), worker).await;
        drop(permit);
    });
}

/// Begins a connection with TLS; of the two places the second is that of its handshake.
fn begin(acceptor: &Acceptor, tls: &Tls, stream: TcpStream, peer: std::net::IpAddr, places: [ConnectionPermit; 2]) {
    let (accepting, worker, tasks) = (tls.acceptor(), acceptor.worker.clone(), acceptor.tasks.clone());
    acceptor.tasks.spawn(async move {
        let pace = Pace::new();
        let limit = worker.settings().deadlines.handshake;
        let handshake = accepting.accept(Paced::new(stream, pace.clone()));
        let shaken = tokio::time::timeout(limit, Box::pin(handshake)).await;
        let [permit, place] = places;
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
