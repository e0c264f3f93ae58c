//! Scrape configuration, alert rules and dashboard, on a real Prometheus that scrapes running edges.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use super::selectors::{grouped_by, selectors};
use super::{config, deploy, run, text, yaml};
use crate::support::botgate::{Botgate, Setup};
use crate::support::child::{Child, Program};
use crate::support::http::Call;
use crate::support::site::Site;
use crate::support::tls::Authority;
use crate::support::{eventually, poll_for};

/// Longest wait for a scrape, and for a start.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn every_alert_fires_when_it_must_and_only_then() {
    let folder = deploy("prometheus");
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "botgate.rules.yml"],
        ["test", "rules", "botgate.rules.test.yml"],
    ] {
        let (done, said) = run("promtool", &arguments, &folder);
        assert!(done, "{arguments:?}: {said}");
    }
    let (rules, tests) = (yaml("prometheus/botgate.rules.yml"), yaml("prometheus/botgate.rules.test.yml"));
    let alerts: BTreeSet<&str> = all(&rules["groups"])
        .iter()
        .flat_map(|group| all(&group["rules"]))
        .filter_map(|rule| rule["alert"].as_str())
        .collect();
    assert!(alerts.len() >= 10, "{alerts:?}");
    let tried = |fires: bool| -> BTreeSet<&str> {
        let tests = all(&tests["tests"]).iter().flat_map(|test| all(&test["alert_rule_test"]));
        tests
            .filter(|test| all(&test["exp_alerts"]).is_empty() != fires)
            .filter_map(|test| test["alertname"].as_str())
            .collect()
    };
    assert_eq!((tried(true), tried(false)), (alerts.clone(), alerts), "each alert is tried both ways");
}

fn all(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A Prometheus with the shipped configuration, but for where the edges are and how often they are asked.
struct Prometheus {
    address: SocketAddr,
    _child: Child,
    _place: tempfile::TempDir,
}

impl Prometheus {
    #[track_caller]
    fn scraping(edges: &[&Botgate]) -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let shipped = text("prometheus/prometheus.yml");
        let target = config("systemd/botgate.toml").metrics_address.expect("metrics are served").to_string();
        assert!(shipped.contains(&format!("[\"{target}\"]")), "it scrapes what the service serves");
        let targets: Vec<_> = edges.iter().map(|edge| format!("\"{}\"", edge.metrics_address())).collect();
        let changed = shipped.replace(&format!("\"{target}\""), &targets.join(", ")).replace("15s", "1s");
        fs::write(place.path().join("prometheus.yml"), changed).expect("a file is written");
        fs::copy(deploy("prometheus/botgate.rules.yml"), place.path().join("botgate.rules.yml")).expect("a copy");
        let arguments =
            ["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0"];
        let program = Program {
            path: "/usr/bin/prometheus".into(),
            arguments: arguments.map(str::to_owned).to_vec(),
            environment: Vec::new(),
            directory: place.path().to_owned(),
            input: String::new(),
        };
        let child = Child::start(program, &place.path().join("output"));
        let address = poll_for(SOON, || {
            let output = child.output();
            let (_, address) = output.split_once("msg=\"Listening on\" address=")?;
            address.split_whitespace().next()?.parse().ok()
        });
        let Some(address) = address else { panic!("Prometheus does not come up: {}", child.output()) };
        let prometheus = Prometheus { address, _child: child, _place: place };
        eventually("every edge is scraped", SOON, || {
            prometheus.ask("/api/v1/status/runtimeinfo").is_some()
                && prometheus.series("up{job=\"botgate\"} == 1").len() == edges.len()
        });
        prometheus
    }

    /// The data of an answer; `None` when there is none.
    fn ask(&self, target: &str) -> Option<Value> {
        let answer = Call::get(target).header("Connection", "close").send(self.address);
        let answer: Value = serde_json::from_str(&answer.body).ok()?;
        (answer["status"] == "success").then(|| answer["data"].clone())
    }

    /// The labels of each series that an expression gives now.
    #[track_caller]
    fn series(&self, expression: &str) -> Vec<Value> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let data = self.ask(&format!("/api/v1/query?query={encoded}"));
        let data = data.unwrap_or_else(|| panic!("Prometheus does not take {expression}"));
        all(&data["result"]).iter().map(|series| series["metric"].clone()).collect()
    }

    /// Checks an expression: it is taken, every selector in it finds something, and has the labels that are used.
    #[track_caller]
    fn check(&self, expression: &str, legend: &str) {
        let expression = expression.replace("$instance", ".*").replace("$__rate_interval", "1m");
        self.series(&expression);
        let selectors = selectors(&expression);
        assert!(!selectors.is_empty(), "{expression} selects nothing of botgate's");
        let shown = legend.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")).map(|(label, _)| label.trim());
        let used: BTreeSet<&str> = grouped_by(&expression).into_iter().chain(shown).collect();
        for selector in selectors {
            let found = poll_for(Duration::from_secs(10), || {
                let found = self.series(&selector);
                (!found.is_empty()).then_some(found)
            });
            let Some(found) = found else { panic!("{selector} finds nothing, in {expression}") };
            for label in &used {
                assert!(
                    found.iter().all(|series| series[label].is_string()),
                    "{selector} has no label {label}: {found:?}"
                );
            }
        }
    }
}

/// Edges that have done everything that is counted.
fn busy_edges() -> (Site, Botgate, Authority) {
    let mut site = Site::of(&["alice", "bob"]);
    site.botgate.serve_until_ready();
    let token = site.botgate.session("alice");
    let turn = |text: &str, stream: bool| {
        let body = serde_json::json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}]});
        Call::post("/v1/chat/completions", &body).bearer(&token).header("Connection", "close")
    };
    assert_eq!(site.status(&token), 200);
    assert_eq!(site.status("nobody"), 401);
    assert_eq!(turn("hello", false).send(site.botgate.address()).status, 200);
    let mut stream = turn("SILENCE:30", true).open(site.botgate.address());
    stream.read_until("data:");
    let id = site.botgate.session_ids("alice").remove(0);
    site.botgate.run(&["session", "revoke", &id]).done();
    while let Ok(Some(_)) = stream.try_next_chunk() {}
    eventually("the revocation is counted", SOON, || {
        site.botgate
            .metrics()
            .lines()
            .any(|line| line.starts_with("botgate_revocation_seconds_count") && !line.ends_with(" 0"))
    });

    let authority = Authority::new();
    let files = authority.pair("server", &["localhost"]);
    let mut encrypted = Botgate::new(&Setup::at(([127, 0, 0, 1], 1).into()));
    let file = encrypted.path("botgate.toml");
    let tls = format!(
        "[listen]\ntls = [{{ certificate = \"{}\", key = \"{}\" }}]\n",
        files.certificate.display(),
        files.key.display()
    );
    let text = fs::read_to_string(&file).expect("a configuration");
    fs::write(&file, text.replace("[listen]\n", &tls)).expect("the configuration is written");
    encrypted.serve();
    (site, encrypted, authority)
}

#[test]
fn every_query_of_dashboard_and_alerts_finds_what_the_binary_exposes() {
    let (site, encrypted, _authority) = busy_edges();
    let prometheus = Prometheus::scraping(&[&site.botgate, &encrypted]);
    let rules = yaml("prometheus/botgate.rules.yml");
    for rule in all(&rules["groups"]).iter().flat_map(|group| all(&group["rules"])) {
        let legend = rule["annotations"]["summary"].as_str().expect("a summary").replace("$labels.", "");
        let legend: String = legend
            .split("{{")
            .map(|part| match part.contains("$value") {
                true => part.split_once("}}").map_or("", |(_, after)| after).to_owned(),
                false => format!("{{{{{part}"),
            })
            .collect();
        prometheus.check(rule["expr"].as_str().expect("an expression"), &legend);
    }
    let loaded = prometheus.ask("/api/v1/rules").expect("rules are listed");
    let loaded: Vec<_> = all(&loaded["groups"]).iter().flat_map(|group| all(&group["rules"])).collect();
    assert_eq!(loaded.len(), all(&rules["groups"]).iter().map(|group| all(&group["rules"]).len()).sum::<usize>());
    assert!(loaded.iter().all(|rule| rule["health"] != "err"), "{loaded:?}");

    let dashboard: Value = serde_json::from_str(&text("grafana/botgate.json")).expect("the dashboard is JSON");
    for panel in all(&dashboard["panels"]).iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        assert!(!all(&panel["targets"]).is_empty(), "{panel}");
        for target in all(&panel["targets"]) {
            let (expression, legend) = (target["expr"].as_str().expect("a query"), target["legendFormat"].as_str());
            assert!(expression.contains("instance=~\"$instance\""), "{expression}");
            prometheus.check(expression, legend.expect("a legend"));
        }
    }
    let variables = all(&dashboard["templating"]["list"]);
    let query = variables.iter().find(|variable| variable["name"] == "instance").expect("a variable")["query"].as_str();
    assert_eq!(query, Some("label_values(botgate_build_info, instance)"));
    prometheus.check("botgate_build_info", "{{instance}}");
}

#[test]
fn the_panels_of_the_dashboard_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(&text("grafana/botgate.json")).expect("the dashboard is JSON");
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in all(&dashboard["panels"]) {
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{panel}");
        assert!(at("x") + at("w") <= 24, "{panel}");
        for (x, y) in (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y))) {
            assert!(taken.insert((x, y)), "{} lies over another", panel["title"]);
        }
    }
}
