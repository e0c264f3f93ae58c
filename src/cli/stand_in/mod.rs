//! Stand-in: a small gateway that behaves as Hermes 0.22 does on the wire, for trying out, tests and benches.
//!
//! Keys are bound to paths, turns are capped, streams carry keepalive comments, runs outlive their request. It names
//! itself in `Server: botgate-stand-in` and in its log line, so that nobody mistakes it for Hermes. The "model" is steered
//! by words in the last user message:
//!
//! - `SLEEP:sec` waits before the answer, `SILENCE:sec` after its first words
//! - `WORDS:n:gap_sec` answers n words, one each gap; `SIZE:bytes` answers that many `x`
//! - `TOOL:name` shows a tool's progress frames; `APPROVE` makes a run wait for an approval
//! - `FAIL:status` 401, 402, 403 or 429: the provider refuses, which is a 200 that ends in `error`; any other status is
//!   the gateway's own error
//!
//! Every answer begins with `I am <profile>.`. It keeps nothing on disk, runs no agent and calls no tool; chat completions
//! do not replay an `Idempotency-Key`, and idle connections live until it stops.

#![expect(clippy::result_large_err, reason = "an early answer is an answer, moved once; a box would only cost")]

mod answer;
mod chat;
mod gate;
mod jobs;
mod misbehave;
pub mod provider;
mod record;
mod residents;
mod responses;
mod route;
mod runs;
mod script;
mod server;
mod sessions;
mod start;
#[cfg(test)]
mod tests;
mod turns;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

pub use misbehave::{Isolation, Misbehave, Misbehaviour};
pub use record::Recorded;
pub use start::{StandInArgs, StandInError, run};

use crate::names::ProfileName;
use crate::secret::ApiServerKey;
use gate::Gateway;
use server::Server;

/// What a stand-in serves and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The profiles that it serves, each with its key.
    pub bots: Vec<(ProfileName, ApiServerKey)>,
    /// Key of the default profile, on bare paths.
    pub default_key: ApiServerKey,
    /// Turns at once, for all profiles together; 0: no cap.
    pub max_turns: usize,
    /// Silence in a stream after which a comment is sent.
    pub keepalive: Duration,
    /// Requests that are remembered, the newest; 0: none, which is the cheapest.
    pub record: usize,
    /// How it behaves worse than Hermes, from the start.
    pub misbehave: Option<Misbehave>,
    /// How it binds keys to paths.
    pub isolation: Isolation,
}

impl Options {
    /// Hermes' own values: 10 turns, a comment every 10 s; nothing is remembered.
    pub fn new(bots: Vec<(ProfileName, ApiServerKey)>, default_key: ApiServerKey) -> Self {
        Options {
            bots,
            default_key,
            max_turns: 10,
            keepalive: Duration::from_secs(10),
            record: 0,
            misbehave: None,
            isolation: Isolation::PerProfile,
        }
    }
}

/// A running stand-in. Dropping it cuts everything off; [`StandIn::stop`] also waits for its thread.
#[derive(Debug)]
pub struct StandIn {
    gateway: Arc<Gateway>,
    server: Server,
}

/// Starts a stand-in on a thread and runtime of its own.
///
/// # Errors
/// The listener cannot be used, or the system refuses a thread.
pub fn serve(listener: TcpListener, options: Options) -> io::Result<StandIn> {
    let gateway = Arc::new(Gateway::new(options));
    let server = Server::start("stand-in", listener, Arc::clone(&gateway))?;
    Ok(StandIn { gateway, server })
}

impl StandIn {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.server.connections()
    }

    /// Turns that run now.
    pub fn running(&self) -> usize {
        self.gateway.turns().running()
    }

    /// The most turns that ever ran at once.
    pub fn peak(&self) -> usize {
        self.gateway.turns().peak()
    }

    /// Turns that ran to their end.
    pub fn finished(&self) -> usize {
        self.gateway.turns().finished()
    }

    /// Turns that were interrupted: by a client that left a stream, by a run's stop, or by the end of the process.
    pub fn interrupted(&self) -> usize {
        self.gateway.turns().interrupted()
    }

    /// The remembered requests, oldest first.
    pub fn requests(&self) -> Vec<Arc<Recorded>> {
        self.gateway.records().all()
    }

    /// Serves a profile, or changes its key at once.
    pub fn set_bot(&self, profile: &ProfileName, key: &ApiServerKey) {
        self.gateway.residents().set(profile.as_str(), Some(key.clone()));
    }

    /// Leaves a profile without a usable key: 401 for everyone, also with its old key.
    pub fn clear_key(&self, profile: &ProfileName) {
        self.gateway.residents().set(profile.as_str(), None);
    }

    /// Stops serving a profile: 404 from now on.
    pub fn remove_bot(&self, profile: &ProfileName) {
        self.gateway.residents().remove(profile.as_str());
    }

    /// Changes how it misbehaves; `None`: as Hermes does.
    pub fn misbehave(&self, misbehave: Option<Misbehave>) {
        self.gateway.set_misbehave(misbehave);
    }

    /// Changes how it binds keys to paths.
    pub fn set_isolation(&self, isolation: Isolation) {
        self.gateway.set_isolation(isolation);
    }

    /// Refuses new turns with 503 `gateway_draining` and lets the running ones go on.
    pub fn drain(&self) {
        self.gateway.turns().drain();
    }

    /// Cuts off what is still running and waits for the thread.
    pub fn stop(self) {
        self.server.stop();
    }
}
