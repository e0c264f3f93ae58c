//! What one data-path thread counts with every request: plain numbers that no other thread writes, summed when they are read.
//!
//! Invariants: a shard outlives its thread, so that no count goes back; what it holds is bounded by routes, methods, statuses
//! and gateways.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::connections::{ConnectionGauge, Of, States};
use super::labels::{ConnectionState, HandshakeOutcome};
use super::requests::{self, Requests};
use crate::names::GatewayName;
use crate::telemetry::reason::Reason;

/// One thread's counts. Aligned, as what it points to is, so that two of them share no cache line.
#[repr(align(128))]
#[derive(Debug)]
pub struct Shard {
    requests: Requests,
    refusals: [AtomicU64; Reason::ALL.len()],
    handshakes: [AtomicU64; HandshakeOutcome::ALL.len()],
    clients: States,
    gateways: Box<[States]>,
}

impl Shard {
    pub(super) fn new(routes: usize, gateways: usize) -> Arc<Self> {
        let gateways = (0..gateways).map(|_| States::default()).collect();
        let refusals = [const { AtomicU64::new(0) }; Reason::ALL.len()];
        let handshakes = [const { AtomicU64::new(0) }; HandshakeOutcome::ALL.len()];
        Arc::new(Shard { requests: Requests::new(routes), refusals, handshakes, clients: States::default(), gateways })
    }

    /// A request has been answered to its last byte, or broke off. `status` is what the client saw.
    pub fn request_finished(
        &self,
        route: usize,
        method: &str,
        status: u16,
        duration: Duration,
        first_byte: Option<Duration>,
    ) {
        self.requests.finished(route, method, status, duration, first_byte);
    }

    /// A request or a connection was refused.
    pub fn refused(&self, reason: Reason) {
        // Reasons have their values in the order of their list.
        self.refusals[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A TLS handshake is over.
    pub fn handshake(&self, outcome: HandshakeOutcome) {
        self.handshakes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A client connection was accepted.
    pub fn connection_opened(self: &Arc<Self>, state: ConnectionState) -> ConnectionGauge {
        ConnectionGauge::new(Arc::clone(self), Of::Clients, state)
    }

    /// A connection to a gateway was opened; one that does not exist counts nowhere.
    pub fn upstream_connection(self: &Arc<Self>, gateway: usize, state: ConnectionState) -> ConnectionGauge {
        ConnectionGauge::new(Arc::clone(self), Of::Gateway(gateway), state)
    }

    pub(super) fn states(&self, of: Of) -> Option<&States> {
        match of {
            Of::Clients => Some(&self.clients),
            Of::Gateway(gateway) => self.gateways.get(gateway),
        }
    }
}

/// Writes what all shards have counted.
pub(super) fn render(out: &mut String, shards: &[Arc<Shard>], routes: &[&'static str], gateways: &[GatewayName]) {
    requests::render(out, &shards.iter().map(|shard| &shard.requests).collect::<Vec<_>>(), routes);
    let name = "botgate_refusals_total";
    // Writing to a String cannot fail.
    let _ = write!(out, "# HELP {name} Requests and connections refused, by reason.\n# TYPE {name} counter\n");
    for (place, reason) in Reason::ALL.iter().enumerate() {
        let count: u64 = shards.iter().map(|shard| shard.refusals[place].load(Ordering::Relaxed)).sum();
        let _ = writeln!(out, "{name}{{reason=\"{}\"}} {count}", reason.as_str());
    }
    let name = "botgate_tls_handshakes_total";
    let _ = write!(out, "\n# HELP {name} TLS handshakes, by how they ended.\n# TYPE {name} counter\n");
    for (place, outcome) in HandshakeOutcome::ALL.iter().enumerate() {
        let count: u64 = shards.iter().map(|shard| shard.handshakes[place].load(Ordering::Relaxed)).sum();
        let _ = writeln!(out, "{name}{{outcome=\"{}\"}} {count}", outcome.as_str());
    }
    out.push('\n');
    let sum =
        |of, state| -> i64 { shards.iter().filter_map(|shard| shard.states(of)).map(|all| all.open(state)).sum() };
    let mut gauge = |name: &str, help: &str, series: &mut dyn Iterator<Item = (String, Of)>| {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n");
        for (label, of) in series {
            for state in ConnectionState::ALL {
                let _ = writeln!(out, "{name}{{{label}state=\"{}\"}} {}", state.as_str(), sum(of, *state));
            }
        }
        out.push('\n');
    };
    let clients = "Client connections, by what they are doing.";
    gauge("botgate_connections", clients, &mut std::iter::once((String::new(), Of::Clients)));
    let named = gateways.iter().enumerate();
    let mut named = named.map(|(place, name)| (format!("gateway=\"{}\",", name.as_str()), Of::Gateway(place)));
    gauge("botgate_upstream_connections", "Connections to the gateway, by what they are doing.", &mut named);
}
