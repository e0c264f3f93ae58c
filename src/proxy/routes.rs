//! The routes that are served: a table of (method, template, kind), default-deny.
//!
//! Invariants: what is not in the table is not forwarded; nothing that the gateway answers without an API key is in it; a
//! route's index is its metric label's. The table is built once from the configuration.

use RouteKind::{Change, Read, RunStart, Turn};

use crate::config::{RouteGroup, Routes as RouteConfig};
use crate::names::Identifier;

/// What a route does at the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteKind {
    /// Reads: no audit record.
    Read,
    /// Changes something without running the agent: one audit record.
    Change,
    /// Runs the agent while the request lasts: a permit, an `open` and a `close` record.
    Turn,
    /// Starts a run that outlives the request: a permit until the run is terminal.
    RunStart,
}

impl RouteKind {
    /// Whether the request needs a permit.
    pub fn is_turn(self) -> bool {
        matches!(self, RouteKind::Turn | RouteKind::RunStart)
    }
}

/// One served route.
#[derive(Debug, Clone)]
pub struct Route {
    method: &'static str,
    template: &'static str,
    kind: RouteKind,
    index: usize,
}

impl Route {
    /// The method.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// The template: label of metrics and word of the audit log.
    pub fn template(&self) -> &'static str {
        self.template
    }

    /// What it does.
    pub fn kind(&self) -> RouteKind {
        self.kind
    }

    /// Its place among the metric labels.
    pub fn label(&self) -> usize {
        self.index
    }
}

const BASE: &[(&str, &str, RouteKind)] = &[
    ("POST", "/v1/chat/completions", Turn),
    ("GET", "/v1/models", Read),
    ("POST", "/v1/responses", Turn),
    ("GET", "/v1/responses/{id}", Read),
    ("DELETE", "/v1/responses/{id}", Change),
    ("POST", "/v1/runs", RunStart),
    ("GET", "/v1/runs/{id}", Read),
    ("GET", "/v1/runs/{id}/events", Read),
    ("POST", "/v1/runs/{id}/stop", Change),
    ("POST", "/v1/runs/{id}/steer", Change),
    ("POST", "/v1/runs/{id}/approval", Change),
    ("GET", "/api/model/options", Read),
    ("GET", "/v1/capabilities", Read),
    ("GET", "/v1/skills", Read),
    ("GET", "/v1/toolsets", Read),
];

const SESSIONS: &[(&str, &str, RouteKind)] = &[
    ("GET", "/api/sessions", Read),
    ("POST", "/api/sessions", Change),
    ("GET", "/api/sessions/{id}", Read),
    ("PATCH", "/api/sessions/{id}", Change),
    ("DELETE", "/api/sessions/{id}", Change),
    ("GET", "/api/sessions/{id}/messages", Read),
    ("POST", "/api/sessions/{id}/fork", Change),
    ("POST", "/api/sessions/{id}/chat", Turn),
    ("POST", "/api/sessions/{id}/chat/stream", Turn),
    ("POST", "/api/sessions/{id}/model", Change),
];

// A job runs the agent later, at times of its own: starting one is recorded, the runs it makes do not pass the edge.
const JOBS: &[(&str, &str, RouteKind)] = &[
    ("GET", "/api/jobs", Read),
    ("POST", "/api/jobs", Change),
    ("GET", "/api/jobs/{id}", Read),
    ("PATCH", "/api/jobs/{id}", Change),
    ("DELETE", "/api/jobs/{id}", Change),
    ("POST", "/api/jobs/{id}/pause", Change),
    ("POST", "/api/jobs/{id}/resume", Change),
    ("POST", "/api/jobs/{id}/run", Change),
];

/// Label of requests that reach no route.
pub const NO_ROUTE: usize = 0;
/// Label of the edge's own pages.
pub const OWN_PAGE: usize = 1;
const OWN_LABELS: [&str; 2] = ["none", "/health"];

/// Why a path and method have no route.
#[derive(Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// No such path.
    Path,
    /// The path, with these methods only.
    Method(String),
}

/// The table.
#[derive(Debug)]
pub struct Routes {
    routes: Vec<Route>,
    labels: Vec<&'static str>,
}

impl Routes {
    /// The default table with the groups and templates that the configuration adds. Call once per process: the
    /// operator's own templates become labels that live as long as it does.
    pub fn new(config: &RouteConfig) -> Self {
        let mut routes = Routes { routes: Vec::new(), labels: OWN_LABELS.to_vec() };
        routes.add_all(BASE);
        for group in &config.groups {
            routes.add_all(match group {
                RouteGroup::Sessions => SESSIONS,
                RouteGroup::Jobs => JOBS,
            });
        }
        for extra in &config.extra {
            let kind = match (extra.turn, extra.method) {
                (true, _) => Turn,
                (false, "GET") => Read,
                (false, _) => Change,
            };
            routes.add(extra.method, Box::leak(extra.template.clone().into_boxed_str()), kind);
        }
        routes
    }

    fn add_all(&mut self, table: &[(&'static str, &'static str, RouteKind)]) {
        for (method, template, kind) in table {
            self.add(method, template, *kind);
        }
    }

    fn add(&mut self, method: &'static str, template: &'static str, kind: RouteKind) {
        let index = self.labels.iter().position(|label| *label == template).unwrap_or_else(|| {
            self.labels.push(template);
            self.labels.len() - 1
        });
        self.routes.push(Route { method, template, kind, index });
    }

    /// Every label, in the order of [`Route::label`].
    pub fn labels(&self) -> &[&'static str] {
        &self.labels
    }

    /// The route of a method and a path below the profile.
    ///
    /// # Errors
    /// [`NoRoute`]
    pub fn find(&self, method: &str, path: &str) -> Result<&Route, NoRoute> {
        let mut allowed = String::new();
        for route in self.routes.iter().filter(|route| matches(route.template, path)) {
            if route.method == method {
                return Ok(route);
            }
            if !allowed.is_empty() {
                allowed.push_str(", ");
            }
            allowed.push_str(route.method);
        }
        if allowed.is_empty() { Err(NoRoute::Path) } else { Err(NoRoute::Method(allowed)) }
    }
}

fn matches(template: &str, path: &str) -> bool {
    if !template.contains('{') {
        return template == path;
    }
    let (mut expected, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (expected.next(), given.next()) {
            (None, None) => return true,
            (Some("{id}"), Some(segment)) => {
                if !Identifier::is_valid(segment) {
                    return false;
                }
            }
            (Some(literal), Some(segment)) if literal == segment => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(routes: &Routes, method: &str, path: &str) -> Option<&'static str> {
        routes.find(method, path).ok().map(Route::template)
    }

    #[test]
    fn the_table_is_default_deny() {
        let routes = Routes::new(&RouteConfig::default());
        assert_eq!(find(&routes, "GET", "/v1/models"), Some("/v1/models"));
        assert_eq!(find(&routes, "GET", "/v1/runs/run_1:a~b/events"), Some("/v1/runs/{id}/events"));
        for (method, path) in [
            ("GET", ""),
            ("GET", "/"),
            ("GET", "/health"),
            ("GET", "/v1/health"),
            ("GET", "/v1/models/"),
            ("GET", "/v1/runs/"),
            ("GET", "/v1/runs/a/b/events"),
            ("GET", "/v1/runs/{id}"),
            ("GET", "/api/sessions"),
            ("POST", "/api/jobs"),
            ("GET", "/health/detailed"),
            ("POST", "/api/cron/fire"),
            ("get", "/v1/models"),
            ("GET", "/v1/artifacts/download/x"),
        ] {
            assert_eq!(find(&routes, method, path), None, "{method} {path}");
        }
    }

    #[test]
    fn a_wrong_method_is_told_the_right_ones() {
        let routes = Routes::new(&RouteConfig::default());
        assert_eq!(routes.find("PUT", "/v1/responses/x").unwrap_err(), NoRoute::Method("GET, DELETE".into()));
        assert_eq!(routes.find("HEAD", "/v1/models").unwrap_err(), NoRoute::Method("GET".into()));
    }

    #[test]
    fn groups_and_templates_are_added_by_name() {
        let extra = crate::config::ExtraRoute { method: "GET", template: "/v1/things/{id}".into(), turn: false };
        let config = RouteConfig { groups: vec![RouteGroup::Sessions], extra: vec![extra] };
        let routes = Routes::new(&config);
        assert_eq!(routes.find("POST", "/api/sessions/s1/chat/stream").unwrap().kind(), Turn);
        assert_eq!(find(&routes, "GET", "/v1/things/7"), Some("/v1/things/{id}"));
        let mut labels = routes.labels().to_vec();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), routes.labels().len());
    }
}
