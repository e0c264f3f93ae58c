//! A histogram of times with fixed bounds, for what happens with every request.
//!
//! The exporter's own keeps each sample with its time until it is folded in, which costs more than the rest of a request's
//! accounting. Here a sample is two additions.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::registry::REQUEST_SECONDS;

const BOUNDS: usize = REQUEST_SECONDS.len();
/// The same bounds, in whole nanoseconds.
const NANOSECONDS: [u64; BOUNDS] = {
    let mut bounds = [0; BOUNDS];
    let mut at = 0;
    while at < BOUNDS {
        bounds[at] = (REQUEST_SECONDS[at] * 1e9 + 0.5) as u64;
        at += 1;
    }
    bounds
};

/// Samples by bucket, and their sum.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    // The last one has no upper bound.
    counts: [AtomicU64; BOUNDS + 1],
    nanoseconds: AtomicU64,
}

impl Buckets {
    pub(super) fn record(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = NANOSECONDS.partition_point(|bound| *bound < nanoseconds);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// Writes one histogram, the sum of several, under `label`, a label with its value or nothing.
pub(super) fn write<'b>(out: &mut String, name: &str, label: &str, parts: impl Iterator<Item = &'b Buckets>) {
    let (mut counts, mut nanoseconds) = ([0_u64; BOUNDS + 1], 0_u64);
    for part in parts {
        for (sum, count) in counts.iter_mut().zip(&part.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
        nanoseconds = nanoseconds.wrapping_add(part.nanoseconds.load(Ordering::Relaxed));
    }
    let mut below = 0;
    // Writing to a String cannot fail.
    for (count, bound) in counts.iter().zip(REQUEST_SECONDS) {
        below += count;
        let _ = writeln!(out, "{name}_bucket{{{label},le=\"{bound}\"}} {below}");
    }
    let total = below + counts[BOUNDS];
    let _ = writeln!(out, "{name}_bucket{{{label},le=\"+Inf\"}} {total}");
    let _ = writeln!(out, "{name}_sum{{{label}}} {}", nanoseconds as f64 / 1e9);
    let _ = writeln!(out, "{name}_count{{{label}}} {total}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        let (one, other) = (Buckets::default(), Buckets::default());
        one.record(Duration::from_millis(1));
        one.record(Duration::from_nanos(1_000_001));
        other.record(Duration::from_secs(601));
        let mut text = String::new();
        write(&mut text, "t", "route=\"r\"", [&one, &other].into_iter());
        for line in [
            "t_bucket{route=\"r\",le=\"0.001\"} 1",
            "t_bucket{route=\"r\",le=\"0.0025\"} 2",
            "t_bucket{route=\"r\",le=\"600\"} 2",
            "t_bucket{route=\"r\",le=\"+Inf\"} 3",
            "t_sum{route=\"r\"} 601.002000001",
            "t_count{route=\"r\"} 3",
        ] {
            assert!(text.lines().any(|given| given == line), "{line} in {text}");
        }
    }
}
