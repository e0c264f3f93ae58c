//! Requests by route, method and status: a table of counts, a row of which is made at its first use.

use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::histogram::{self, Buckets};

const REQUESTS: &str = "botgate_requests_total";
const REQUEST_DURATION: &str = "botgate_request_duration_seconds";
const FIRST_BYTE: &str = "botgate_time_to_first_byte_seconds";

/// The label of a route index that is not in the table.
const OTHER: &str = "other";
/// Methods with a label of their own; every other is [`OTHER`].
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
/// Statuses with a label of their own; every other is [`OTHER`], so that a gateway cannot grow the label set.
const STATUSES: [u16; 43] = [
    100, 101, 200, 201, 202, 203, 204, 205, 206, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 406,
    408, 409, 410, 411, 413, 414, 415, 416, 417, 421, 422, 426, 429, 431, 499, 500, 501, 502, 503, 504,
];
/// Position of every status in [`STATUSES`]; one past the end when it has none.
const SLOT: [u8; 600] = {
    let mut slots = [STATUSES.len() as u8; 600];
    let mut at = 0;
    while at < STATUSES.len() {
        slots[STATUSES[at] as usize] = at as u8;
        at += 1;
    }
    slots
};

/// One method of a route: a count for each status and one for the others.
type Row = Box<[AtomicU64; STATUSES.len() + 1]>;

/// Each is in an allocation of its own thread's table; the alignment keeps two tables off one cache line.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Route {
    duration: Buckets,
    first_byte: Buckets,
    /// A row is made at the method's first request: most pairs of route and method never occur.
    methods: [OnceLock<Row>; METHODS.len() + 1],
}

/// The table. Routes are addressed by their index; an index past the end counts as [`OTHER`].
#[derive(Debug)]
pub(super) struct Requests {
    routes: Box<[Route]>,
}

impl Requests {
    pub(super) fn new(routes: usize) -> Self {
        Requests { routes: (0..=routes).map(|_| Route::default()).collect() }
    }

    pub(super) fn finished(
        &self,
        route: usize,
        method: &str,
        status: u16,
        duration: Duration,
        first_byte: Option<Duration>,
    ) {
        // The table always holds `other` at its end.
        let route = &self.routes[route.min(self.routes.len() - 1)];
        let method = METHODS.iter().position(|known| *known == method).unwrap_or(METHODS.len());
        let slot = SLOT.get(usize::from(status)).map_or(STATUSES.len(), |slot| usize::from(*slot));
        let row = route.methods[method].get_or_init(|| Box::new([const { AtomicU64::new(0) }; STATUSES.len() + 1]));
        row[slot].fetch_add(1, Ordering::Relaxed);
        route.duration.record(duration);
        if let Some(first_byte) = first_byte {
            route.first_byte.record(first_byte);
        }
    }
}

/// Writes the sum of several tables of the same routes.
pub(super) fn render(out: &mut String, tables: &[&Requests], routes: &[&'static str]) {
    let labels = || routes.iter().chain(std::iter::once(&OTHER)).enumerate();
    let parts = |route: usize| tables.iter().filter_map(move |table| table.routes.get(route));
    // Writing to a String cannot fail.
    let begin = |out: &mut String, name: &str, kind: &str, help: &str| {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    };
    begin(out, REQUESTS, "counter", "Requests answered, by route, method and status.");
    for (at, label) in labels() {
        for (method_at, method) in METHODS.iter().chain(std::iter::once(&OTHER)).enumerate() {
            let rows: Vec<&Row> = parts(at).filter_map(|route| route.methods[method_at].get()).collect();
            for slot in 0..=STATUSES.len() {
                let count: u64 = rows.iter().map(|row| row[slot].load(Ordering::Relaxed)).sum();
                if count > 0 {
                    let status = STATUSES.get(slot).map_or_else(|| OTHER.to_owned(), u16::to_string);
                    let _ = writeln!(
                        out,
                        "{REQUESTS}{{route=\"{label}\",method=\"{method}\",status=\"{status}\"}} {count}"
                    );
                }
            }
        }
    }
    out.push('\n');
    begin(out, REQUEST_DURATION, "histogram", "Time from a request's head to the last byte of its answer.");
    for (at, label) in labels() {
        histogram::write(out, REQUEST_DURATION, &format!("route=\"{label}\""), parts(at).map(|route| &route.duration));
    }
    out.push('\n');
    begin(out, FIRST_BYTE, "histogram", "Time from a request's head to the first byte of its answer.");
    for (at, label) in labels() {
        histogram::write(out, FIRST_BYTE, &format!("route=\"{label}\""), parts(at).map(|route| &route.first_byte));
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_in_its_own_place() {
        for number in STATUSES {
            assert_eq!(STATUSES[usize::from(SLOT[usize::from(number)])], number);
        }
    }

    #[test]
    fn unknown_routes_methods_and_statuses_share_one_label() {
        let (one, other) = (Requests::new(1), Requests::new(1));
        for (table, route, method, status) in
            [(&one, 7, "BREW", 418), (&other, usize::MAX, "X", 9999), (&one, 1, "Y", 599)]
        {
            table.finished(route, method, status, Duration::ZERO, None);
        }
        let mut text = String::new();
        render(&mut text, &[&one, &other], &["models"]);
        assert!(text.contains("botgate_requests_total{route=\"other\",method=\"other\",status=\"other\"} 3"), "{text}");
    }
}
