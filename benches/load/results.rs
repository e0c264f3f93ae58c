//! Samples become figures: medians over rounds, and medians of what was compared within one round.

use crate::drivers::median;
use crate::rounds::Sample;
use crate::scenarios::Scenario;

/// Which figure of a sample.
pub type Figure = fn(&Sample) -> Option<f64>;

/// CPU time for each unit, in microseconds.
pub const CPU_US: Figure = |sample| sample.cpu_us;
/// Median latency or delay, in microseconds.
pub const P50_US: Figure = |sample| sample.p50_us;
/// Memory for each connection or stream, in KiB.
pub const KIB: Figure = |sample| sample.kib;
/// Sessions made a second.
pub const MADE: Figure = |sample| sample.made_per_second;

/// All samples of a run.
#[derive(Debug)]
pub struct Results(pub Vec<Sample>);

impl Results {
    /// The median of a figure.
    pub fn median(&self, scenario: Scenario, subject: &str, figure: Figure) -> Option<f64> {
        middle(self.of(scenario, subject, figure).map(|(_, value)| value).collect())
    }

    /// The median of what one subject's figure is in proportion to another's in the same round.
    pub fn ratio(&self, scenario: Scenario, subject: &str, base: &str, figure: Figure) -> Option<f64> {
        middle(self.pairs(scenario, subject, base, figure).map(|(value, base)| value / base).collect())
    }

    /// The median of what one subject's figure is above another's in the same round.
    pub fn excess(&self, scenario: Scenario, subject: &str, base: &str, figure: Figure) -> Option<f64> {
        middle(self.pairs(scenario, subject, base, figure).map(|(value, base)| value - base).collect())
    }

    fn pairs(&self, scenario: Scenario, subject: &str, base: &str, figure: Figure) -> impl Iterator<Item = (f64, f64)> {
        let bases: Vec<(u32, f64)> = self.of(scenario, base, figure).collect();
        self.of(scenario, subject, figure)
            .filter_map(move |(round, value)| bases.iter().find(|(of, _)| *of == round).map(|(_, base)| (value, *base)))
    }

    fn of(&self, scenario: Scenario, subject: &str, figure: Figure) -> impl Iterator<Item = (u32, f64)> {
        let samples = self.0.iter().filter(move |sample| sample.scenario == scenario && sample.subject == subject);
        samples.filter_map(move |sample| figure(sample).map(|value| (sample.round, value)))
    }
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    (!values.is_empty()).then(|| median(&mut values))
}
