//! Requests by route, method and status: a table of handles, each registered at its first use.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Histogram};

use super::registry::{FIRST_BYTE, REQUEST_DURATION, REQUESTS, Registry};

/// The label of a route index that is not in the table.
const OTHER: &str = "other";
/// Methods with a label of their own; every other is [`OTHER`].
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
/// Statuses with a label of their own; every other is [`OTHER`], so that a gateway cannot grow the label set.
const STATUSES: [u16; 43] = [
    100, 101, 200, 201, 202, 203, 204, 205, 206, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 406,
    408, 409, 410, 411, 413, 414, 415, 416, 417, 421, 422, 426, 429, 431, 499, 500, 501, 502, 503, 504,
];
const STATUS_TEXTS: [&str; 43] = [
    "100", "101", "200", "201", "202", "203", "204", "205", "206", "300", "301", "302", "303", "304", "307", "308",
    "400", "401", "402", "403", "404", "405", "406", "408", "409", "410", "411", "413", "414", "415", "416", "417",
    "421", "422", "426", "429", "431", "499", "500", "501", "502", "503", "504",
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

/// One method of a route: a counter for each status and one for the others.
type Row = Box<[OnceLock<Counter>; STATUSES.len() + 1]>;

struct Route {
    name: &'static str,
    duration: Histogram,
    first_byte: Histogram,
    /// A row is made at the method's first request: most pairs of route and method never occur.
    methods: [OnceLock<Row>; METHODS.len() + 1],
}

/// The table. Routes are addressed by their index; an index past the end counts as `other`.
pub(super) struct Requests {
    routes: Box<[Route]>,
}

impl Requests {
    pub(super) fn new(registry: &Registry, routes: &[&'static str]) -> Self {
        registry.describe_counter(REQUESTS, "Requests answered, by route, method and status.");
        registry.describe_histogram(REQUEST_DURATION, "Time from a request's head to the last byte of its answer.");
        registry.describe_histogram(FIRST_BYTE, "Time from a request's head to the first byte of its answer.");
        let routes = routes
            .iter()
            .chain(std::iter::once(&OTHER))
            .map(|&name| Route {
                name,
                duration: registry.histogram(REQUEST_DURATION, &[("route", name)]),
                first_byte: registry.histogram(FIRST_BYTE, &[("route", name)]),
                methods: [const { OnceLock::new() }; METHODS.len() + 1],
            })
            .collect();
        let table = Requests { routes };
        // The name exists from the first scrape on.
        let _ = table.counter(registry, usize::MAX, "GET", 404);
        table
    }

    pub(super) fn finished(
        &self,
        registry: &Registry,
        route: usize,
        method: &str,
        status: u16,
        duration: Duration,
        first_byte: Option<Duration>,
    ) {
        self.counter(registry, route, method, status).increment(1);
        let route = self.route(route);
        route.duration.record(duration.as_secs_f64());
        if let Some(first_byte) = first_byte {
            route.first_byte.record(first_byte.as_secs_f64());
        }
    }

    fn route(&self, index: usize) -> &Route {
        // The table always holds `other` at its end.
        &self.routes[index.min(self.routes.len() - 1)]
    }

    fn counter(&self, registry: &Registry, route: usize, method: &str, status: u16) -> &Counter {
        let route = self.route(route);
        let method = METHODS.iter().position(|known| *known == method).unwrap_or(METHODS.len());
        let row = route.methods[method].get_or_init(|| Box::new([const { OnceLock::new() }; STATUSES.len() + 1]));
        let slot = SLOT.get(usize::from(status)).map_or(STATUSES.len(), |slot| usize::from(*slot));
        row[slot].get_or_init(|| {
            let method = METHODS.get(method).unwrap_or(&OTHER);
            let status = STATUS_TEXTS.get(slot).unwrap_or(&OTHER);
            registry.counter(REQUESTS, &[("route", route.name), ("method", method), ("status", status)])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_agree() {
        for (number, text) in STATUSES.iter().zip(STATUS_TEXTS) {
            assert_eq!(number.to_string(), text);
            assert_eq!(STATUSES[usize::from(SLOT[usize::from(*number)])], *number);
        }
    }

    #[test]
    fn unknown_routes_methods_and_statuses_share_one_label() {
        let registry = Registry::new();
        let table = Requests::new(&registry, &["models"]);
        for (route, method, status) in [(7, "BREW", 418), (usize::MAX, "X", 9999), (1, "Y", 599)] {
            table.finished(&registry, route, method, status, Duration::ZERO, None);
        }
        let text = registry.handle().render();
        assert!(text.contains("botgate_requests_total{route=\"other\",method=\"other\",status=\"other\"} 3"), "{text}");
    }
}
