//! Metrics: one recorder, every handle registered once, rendered as Prometheus text.
//!
//! Invariants: label values are closed enums and configured names; what the data path calls takes no lock and, past
//! a handle's first use, makes no map lookup. Samples of histograms are held until they are folded in, by a scrape or
//! by [`Metrics::upkeep`], which whoever owns a periodic task must call (the audit log's writer does, each second).

mod connections;
mod histogram;
mod labels;
mod process;
mod registry;
mod requests;
mod shard;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

pub use connections::{ConnectionGauge, GaugeGuard};
pub use labels::{
    BotState, ConnectionState, HandshakeOutcome, McpOutcome, ProofResult, ReloadOutcome, UpstreamErrorKind,
};
pub use shard::Shard;

use self::registry::{QUEUE_WAIT, REVOCATION, Registry};
use crate::names::GatewayName;

const GATEWAY_RESIDENT: &str = "botgate_gateway_resident_bytes";
const CERTIFICATE_EXPIRY: &str = "botgate_tls_certificate_expiry_seconds";

/// The handles of one gateway.
struct GatewayMetrics {
    name: GatewayName,
    turns_in_flight: Gauge,
    turns_queued: Gauge,
    errors: Box<[Counter]>,
    proof_success: Gauge,
    proof_timestamp: Gauge,
    bot_proofs: Box<[Gauge]>,
    /// Registered once a keeper tells it: without one the metric is absent, not zero.
    resident: OnceLock<Gauge>,
}

/// Every metric of the process. Gateways and routes are addressed by their index in the lists given to
/// [`Metrics::new`]; a gateway index past the end is ignored, a route index past the end counts as `other`.
pub struct Metrics {
    registry: Registry,
    // What each data-path thread counts by itself; one is never taken out, so that no count goes back.
    shards: Mutex<Vec<Arc<Shard>>>,
    routes: Box<[&'static str]>,
    gateways: Box<[GatewayMetrics]>,
    queue_wait: Histogram,
    tunnels: Gauge,
    sessions: Gauge,
    bots: Box<[Gauge]>,
    orphans: Gauge,
    revocation: Histogram,
    mcp_calls: Box<[Counter]>,
    config_reloads: Box<[Counter]>,
    audit_records: Counter,
    audit_queue: Gauge,
    audit_failures: Counter,
    audit_dropped: Counter,
    access_dropped: Counter,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics(..)")
    }
}

impl Metrics {
    /// Registers every metric.
    pub fn new(gateways: &[GatewayName], routes: &[&'static str]) -> Arc<Self> {
        let registry = Registry::new();
        let r = &registry;
        r.describe_histogram(QUEUE_WAIT, "Time that turns waited for a permit.");
        r.describe_gauge("botgate_bots", "Bots, by how far their key is proved.");
        r.describe_histogram(REVOCATION, "Time from a revocation to the end of its last request.");
        r.describe_counter("botgate_mcp_calls_total", "MCP calls, by outcome.");
        r.describe_counter("botgate_config_reloads_total", "Changed configurations, by what became of them.");
        r.describe_gauge("botgate_build_info", "Always 1; the version is a label.");
        r.gauge("botgate_build_info", &[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        let counters = |name, label, values: &mut dyn Iterator<Item = &'static str>| -> Box<[Counter]> {
            values.map(|value| r.counter(name, &[(label, value)])).collect()
        };
        Arc::new(Metrics {
            shards: Mutex::default(),
            routes: routes.into(),
            gateways: gateway_metrics(r, gateways),
            queue_wait: r.histogram(QUEUE_WAIT, &[]),
            tunnels: r.described_gauge("botgate_tunnels_in_flight", "Upgraded connections that are open."),
            sessions: r.described_gauge("botgate_sessions", "Sessions and personal tokens that are live."),
            bots: BotState::ALL.iter().map(|state| r.gauge("botgate_bots", &[("state", state.as_str())])).collect(),
            orphans: r.described_gauge("botgate_orphan_profiles", "Profiles on a gateway that belong to no person."),
            revocation: r.histogram(REVOCATION, &[]),
            mcp_calls: counters(
                "botgate_mcp_calls_total",
                "outcome",
                &mut McpOutcome::ALL.iter().map(|outcome| outcome.as_str()),
            ),
            config_reloads: counters(
                "botgate_config_reloads_total",
                "outcome",
                &mut ReloadOutcome::ALL.iter().map(|outcome| outcome.as_str()),
            ),
            audit_records: r.described_counter("botgate_audit_records_total", "Audit records written."),
            audit_queue: r.described_gauge("botgate_audit_queue_records", "Audit records that wait to be written."),
            audit_failures: r.described_counter(
                "botgate_audit_write_failures_total",
                "Failed attempts to write or sync the audit log.",
            ),
            audit_dropped: r.described_counter(
                "botgate_audit_dropped_records_total",
                "Audit records that found no room or no disk and are missing.",
            ),
            access_dropped: r
                .described_counter("botgate_access_log_dropped_lines_total", "Access log lines that were not written."),
            registry,
        })
    }

    /// All metrics as Prometheus text, format 0.0.4. Reads `/proc/self`.
    pub fn render(&self) -> String {
        self.upkeep();
        let mut text = self.registry.handle().render();
        let gateways: Vec<GatewayName> = self.gateways.iter().map(|gateway| gateway.name.clone()).collect();
        shard::render(&mut text, &self.lock_shards(), &self.routes, &gateways);
        process::render(&mut text);
        text
    }

    /// Folds the samples of histograms in; without it (or a scrape) they take memory.
    pub fn upkeep(&self) {
        self.registry.handle().run_upkeep();
    }

    /// The counts of one more data-path thread, which is to be their only writer.
    pub fn shard(&self) -> Arc<Shard> {
        let shard = Shard::new(self.routes.len(), self.gateways.len());
        self.lock_shards().push(Arc::clone(&shard));
        shard
    }

    fn lock_shards(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Shard>>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Turns that hold a permit of a gateway. A gateway that does not exist has a gauge that goes nowhere.
    pub fn turns_in_flight(&self, gateway: usize) -> Gauge {
        self.gateways.get(gateway).map_or_else(Gauge::noop, |gateway| gateway.turns_in_flight.clone())
    }

    /// Turns that wait for a permit of a gateway. A gateway that does not exist has a gauge that goes nowhere.
    pub fn turns_queued(&self, gateway: usize) -> Gauge {
        self.gateways.get(gateway).map_or_else(Gauge::noop, |gateway| gateway.turns_queued.clone())
    }

    /// A turn got its permit after this wait, or gave up.
    pub fn queue_waited(&self, wait: Duration) {
        self.queue_wait.record(wait.as_secs_f64());
    }

    /// Something went wrong between the edge and a gateway.
    pub fn upstream_error(&self, gateway: usize, kind: UpstreamErrorKind) {
        if let Some(gateway) = self.gateways.get(gateway) {
            gateway.errors[kind as usize].increment(1);
        }
    }

    /// A tunnel was opened.
    pub fn tunnel_opened(&self) -> GaugeGuard {
        GaugeGuard::new(&self.tunnels)
    }

    /// Sessions and personal tokens that are live.
    pub fn set_sessions(&self, count: usize) {
        self.sessions.set(count as f64);
    }

    /// Bots in a state of proof.
    pub fn set_bots(&self, state: BotState, count: usize) {
        self.bots[state as usize].set(count as f64);
    }

    /// Profiles that belong to no person.
    pub fn set_orphans(&self, count: usize) {
        self.orphans.set(count as f64);
    }

    /// A gateway's isolation was proved, or not, at a time in seconds since the Unix epoch.
    pub fn proof(&self, gateway: usize, success: bool, at_unix_seconds: f64) {
        if let Some(gateway) = self.gateways.get(gateway) {
            gateway.proof_success.set(f64::from(u8::from(success)));
            gateway.proof_timestamp.set(at_unix_seconds);
        }
    }

    /// Bots of a gateway whose last proof came to this result.
    pub fn set_bot_proofs(&self, gateway: usize, result: ProofResult, count: usize) {
        if let Some(gateway) = self.gateways.get(gateway) {
            gateway.bot_proofs[result as usize].set(count as f64);
        }
    }

    /// Time from a revocation to the end of its last request.
    pub fn revocation(&self, duration: Duration) {
        self.revocation.record(duration.as_secs_f64());
    }

    /// An MCP call ended.
    pub fn mcp_call(&self, outcome: McpOutcome) {
        self.mcp_calls[outcome as usize].increment(1);
    }

    /// A changed configuration was read.
    pub fn config_reload(&self, outcome: ReloadOutcome) {
        self.config_reloads[outcome as usize].increment(1);
    }

    /// Resident bytes of a gateway's process, as its keeper tells.
    pub fn set_gateway_resident(&self, gateway: usize, bytes: u64) {
        if let Some(gateway) = self.gateways.get(gateway) {
            let gauge = gateway.resident.get_or_init(|| {
                self.registry.describe_gauge(GATEWAY_RESIDENT, "Resident memory of a gateway's process.");
                self.registry.gauge(GATEWAY_RESIDENT, &[("gateway", gateway.name.as_str())])
            });
            gauge.set(bytes as f64);
        }
    }

    /// When a certificate ends, by its place in the configuration, in seconds since the Unix epoch. Without TLS the metric is
    /// absent.
    pub fn set_certificate_expiry(&self, place: usize, at_unix_seconds: f64) {
        self.registry.describe_gauge(CERTIFICATE_EXPIRY, "Time at which the certificate ends.");
        self.registry.gauge(CERTIFICATE_EXPIRY, &[("certificate", &place.to_string())]).set(at_unix_seconds);
    }

    pub(super) fn audit_written(&self, records: u64) {
        self.audit_records.increment(records);
    }

    pub(super) fn audit_queued(&self, records: usize) {
        self.audit_queue.set(records as f64);
    }

    pub(super) fn audit_failed(&self) {
        self.audit_failures.increment(1);
    }

    pub(super) fn audit_dropped(&self) {
        self.audit_dropped.increment(1);
    }

    pub(super) fn access_dropped(&self, lines: u64) {
        self.access_dropped.increment(lines);
    }
}

fn gateway_metrics(registry: &Registry, gateways: &[GatewayName]) -> Box<[GatewayMetrics]> {
    registry.describe_gauge("botgate_turns_in_flight", "Turns that hold a permit of the gateway.");
    registry.describe_gauge("botgate_turns_queued", "Turns that wait for a permit of the gateway.");
    registry.describe_counter("botgate_upstream_errors_total", "Errors between the edge and the gateway, by kind.");
    registry.describe_gauge("botgate_binding_proof_success", "1 when the last proof of the gateway's isolation held.");
    registry.describe_gauge("botgate_binding_proof_timestamp_seconds", "Time of the last proof; 0 before the first.");
    registry.describe_gauge("botgate_bot_proofs", "Bots of the gateway, by what their last proof found.");
    let one = |name: &GatewayName| {
        let gauge = |metric| registry.gauge(metric, &[("gateway", name.as_str())]);
        GatewayMetrics {
            name: name.clone(),
            turns_in_flight: gauge("botgate_turns_in_flight"),
            turns_queued: gauge("botgate_turns_queued"),
            errors: UpstreamErrorKind::ALL
                .iter()
                .map(|kind| ("kind", kind.as_str()))
                .map(|kind| registry.counter("botgate_upstream_errors_total", &[("gateway", name.as_str()), kind]))
                .collect(),
            proof_success: gauge("botgate_binding_proof_success"),
            proof_timestamp: gauge("botgate_binding_proof_timestamp_seconds"),
            bot_proofs: ProofResult::ALL
                .iter()
                .map(|result| ("verdict", result.as_str()))
                .map(|verdict| registry.gauge("botgate_bot_proofs", &[("gateway", name.as_str()), verdict]))
                .collect(),
            resident: OnceLock::new(),
        }
    };
    gateways.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
