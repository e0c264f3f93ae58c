//! Connections by what they are doing: a guard moves between two counts and leaves both when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use metrics::Gauge;

use super::labels::ConnectionState;
use super::shard::Shard;

/// Connections of one kind that are open, by state. Aligned as a shard is, which may hold it by pointer.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct States {
    active: AtomicI64,
    idle: AtomicI64,
}

impl States {
    fn of(&self, state: ConnectionState) -> &AtomicI64 {
        match state {
            ConnectionState::Active => &self.active,
            ConnectionState::Idle => &self.idle,
        }
    }

    pub(super) fn open(&self, state: ConnectionState) -> i64 {
        self.of(state).load(Ordering::Relaxed)
    }
}

/// Whose connections.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of {
    /// Clients'.
    Clients,
    /// Those to a gateway, by its place.
    Gateway(usize),
}

/// One connection, counted in the state it is in until it is dropped.
#[must_use = "the connection counts as open for as long as this lives"]
#[derive(Debug)]
pub struct ConnectionGauge {
    shard: Arc<Shard>,
    of: Of,
    state: ConnectionState,
}

impl ConnectionGauge {
    pub(super) fn new(shard: Arc<Shard>, of: Of, state: ConnectionState) -> Self {
        let gauge = ConnectionGauge { shard, of, state };
        gauge.add(1);
        gauge
    }

    /// A request or an answer is under way.
    pub fn active(&mut self) {
        self.enter(ConnectionState::Active);
    }

    /// Kept alive between two requests.
    pub fn idle(&mut self) {
        self.enter(ConnectionState::Idle);
    }

    fn enter(&mut self, state: ConnectionState) {
        if self.state != state {
            self.add(-1);
            self.state = state;
            self.add(1);
        }
    }

    fn add(&self, change: i64) {
        if let Some(states) = self.shard.states(self.of) {
            states.of(self.state).fetch_add(change, Ordering::Relaxed);
        }
    }
}

impl Drop for ConnectionGauge {
    fn drop(&mut self) {
        self.add(-1);
    }
}

/// One unit of a gauge, given back when it is dropped.
#[must_use = "the gauge counts one more for as long as this lives"]
pub struct GaugeGuard(Gauge);

impl GaugeGuard {
    pub(super) fn new(gauge: &Gauge) -> Self {
        gauge.increment(1);
        GaugeGuard(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}
