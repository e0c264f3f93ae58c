//! What the pipeline shares between its threads: handles, bounds and tables. Nothing here is changed per request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::ending::Ending;
use super::routes::Routes;
use super::settings::Settings;
use crate::directory::Directory;
use crate::gateway::permits::Turns;
use crate::gateway::runs::Runs;
use crate::identity::Sessions;
use crate::names::Login;
use crate::telemetry::access::AccessLog;
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::Metrics;

/// Longest time since the store was last heard of, after which nobody is served.
const STALENESS_LIMIT: Duration = Duration::from_secs(30);

/// Everything that an edge is made of.
pub struct EdgeParts {
    /// What it begins with; each worker has its own from then on.
    pub settings: Settings,
    /// Login → bot.
    pub directory: Arc<Directory>,
    /// Who is signed in.
    pub sessions: Sessions,
    /// The served routes.
    pub routes: Routes,
    /// Longest pause between two writes of a gateway: it notices by writing alone that a stream is read no more.
    pub gateway_pause: Duration,
    /// Permits, one entry per gateway in the order of the configuration.
    pub turns: Vec<Turns>,
    /// Audit log.
    pub audit: Audit,
    /// Metric handles.
    pub metrics: Arc<Metrics>,
    /// Access log, when it is on.
    pub access_log: Option<AccessLog>,
    /// Follows runs to their end.
    pub runs: Runs,
    /// Has a bot proved again, soon; called when the gateway refuses it, and when a bot of a gateway that is not proved
    /// yet is asked for. Never blocks.
    pub suspect: Box<dyn Fn(&Login) + Send + Sync>,
    /// When the store was last heard of.
    pub freshness: Arc<Freshness>,
    /// How the edge ends.
    pub ending: Ending,
}

/// The shared state of the pipeline.
pub struct Edge(EdgeParts);

impl Edge {
    /// An edge of these parts.
    pub fn new(parts: EdgeParts) -> Arc<Self> {
        Arc::new(Edge(parts))
    }

    /// Whether open connections end after their next answer.
    pub fn ends_connections(&self) -> bool {
        self.0.ending.leaving().is_cancelled()
    }

    /// Its parts.
    pub fn parts(&self) -> &EdgeParts {
        &self.0
    }

    /// Metric handles.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    /// Audit log.
    pub fn audit(&self) -> &Audit {
        &self.0.audit
    }

    /// Access log, when it is on.
    pub fn access_log(&self) -> Option<&AccessLog> {
        self.0.access_log.as_ref()
    }
}

/// When the store was last heard of: past the limit, nobody is served, because a revocation might have been missed.
/// Wall-clock time would not do: set back, it would let a silent store pass for a fresh one.
#[derive(Debug)]
pub struct Freshness {
    origin: Instant,
    // Milliseconds since the origin, and one; zero: never.
    heard: AtomicU64,
}

impl Freshness {
    /// A store that has not been heard of yet.
    pub fn never() -> Self {
        Freshness { origin: Instant::now(), heard: AtomicU64::new(0) }
    }

    /// The store answered at this time.
    pub fn heard(&self, at: Instant) {
        self.heard.fetch_max(self.millis(at) + 1, Ordering::Relaxed);
    }

    /// Whether the store has been silent for longer than the limit.
    pub fn is_stale(&self, now: Instant) -> bool {
        let limit = STALENESS_LIMIT.as_millis() as u64;
        match self.heard.load(Ordering::Relaxed) {
            0 => true,
            heard => self.millis(now) + 1 > heard.saturating_add(limit),
        }
    }

    fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.origin).as_millis() as u64
    }
}

/// The time in UTC milliseconds.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_store_makes_the_edge_stale() {
        let freshness = Freshness::never();
        let at = |ms| freshness.origin + Duration::from_millis(ms);
        assert!(freshness.is_stale(at(0)));
        freshness.heard(at(1_000));
        freshness.heard(at(500));
        assert!(!freshness.is_stale(at(31_000)));
        assert!(freshness.is_stale(at(31_001)));
    }
}
