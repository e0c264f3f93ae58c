//! Registering handles: the one place that names a metric to the exporter.

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// Upper bounds of request times, in seconds: from an edge's own answer to the longest that SDKs wait.
pub(super) const REQUEST_SECONDS: [f64; 18] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Upper bounds of the wait for a turn's permit, in seconds.
const QUEUE_SECONDS: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0];
/// Upper bounds of the time from a revocation to its last effect, in seconds; promised is 1 s.
const REVOCATION_SECONDS: &[f64] = &[0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

pub(super) const QUEUE_WAIT: &str = "botgate_turn_queue_wait_seconds";
pub(super) const REVOCATION: &str = "botgate_revocation_seconds";

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// The exporter's recorder, never installed globally: handles come from here and nowhere else.
pub(super) struct Registry {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl Registry {
    pub(super) fn new() -> Self {
        let mut builder = PrometheusBuilder::new();
        for (name, buckets) in [(QUEUE_WAIT, QUEUE_SECONDS), (REVOCATION, REVOCATION_SECONDS)] {
            // The one error is an empty list of buckets, and each list above holds some.
            builder = builder
                .set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)
                .expect("the list of buckets is not empty");
        }
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        Registry { recorder, handle }
    }

    pub(super) fn handle(&self) -> &PrometheusHandle {
        &self.handle
    }

    pub(super) fn describe_counter(&self, name: &'static str, help: &'static str) {
        self.recorder.describe_counter(KeyName::from_const_str(name), None, SharedString::const_str(help));
    }

    pub(super) fn counter(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Counter {
        self.recorder.register_counter(&key(name, labels), &METADATA)
    }

    pub(super) fn described_counter(&self, name: &'static str, help: &'static str) -> Counter {
        self.describe_counter(name, help);
        self.counter(name, &[])
    }

    pub(super) fn describe_gauge(&self, name: &'static str, help: &'static str) {
        self.recorder.describe_gauge(KeyName::from_const_str(name), None, SharedString::const_str(help));
    }

    pub(super) fn gauge(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
        self.recorder.register_gauge(&key(name, labels), &METADATA)
    }

    pub(super) fn described_gauge(&self, name: &'static str, help: &'static str) -> Gauge {
        self.describe_gauge(name, help);
        self.gauge(name, &[])
    }

    pub(super) fn describe_histogram(&self, name: &'static str, help: &'static str) {
        self.recorder.describe_histogram(KeyName::from_const_str(name), None, SharedString::const_str(help));
    }

    pub(super) fn histogram(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Histogram {
        self.recorder.register_histogram(&key(name, labels), &METADATA)
    }
}

fn key(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    Key::from_parts(name, labels.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).collect::<Vec<_>>())
}
