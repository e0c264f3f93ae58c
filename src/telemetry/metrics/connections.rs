//! Connections by what they are doing: a guard moves between two gauges and leaves both when it is dropped.

use std::sync::Arc;

use metrics::Gauge;

use super::labels::ConnectionState;

/// A gauge for each state of a set of connections.
#[derive(Clone)]
pub(super) struct StateGauges(Arc<[Gauge; 2]>);

impl StateGauges {
    pub(super) fn new(gauge: impl Fn(ConnectionState) -> Gauge) -> Self {
        StateGauges(Arc::new([gauge(ConnectionState::Active), gauge(ConnectionState::Idle)]))
    }

    fn of(&self, state: ConnectionState) -> &Gauge {
        match state {
            ConnectionState::Active => &self.0[0],
            ConnectionState::Idle => &self.0[1],
        }
    }

    pub(super) fn opened(&self, state: ConnectionState) -> ConnectionGauge {
        self.of(state).increment(1);
        ConnectionGauge { gauges: self.clone(), state }
    }
}

/// One connection, counted in the state it is in until it is dropped.
#[must_use = "the connection counts as open for as long as this lives"]
pub struct ConnectionGauge {
    gauges: StateGauges,
    state: ConnectionState,
}

impl ConnectionGauge {
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
            self.gauges.of(self.state).decrement(1);
            self.gauges.of(state).increment(1);
            self.state = state;
        }
    }
}

impl Drop for ConnectionGauge {
    fn drop(&mut self) {
        self.gauges.of(self.state).decrement(1);
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
