use super::*;
use crate::telemetry::reason::Reason;

fn fixture() -> Arc<Metrics> {
    Metrics::new(&[GatewayName::parse("main").unwrap()], &["models", "chat_completions"])
}

/// The value of one series, `None` when the text has no such line.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn every_documented_name_is_there_from_the_first_scrape() {
    let text = fixture().render();
    for name in [
        "botgate_requests_total",
        "botgate_request_duration_seconds",
        "botgate_time_to_first_byte_seconds",
        "botgate_refusals_total",
        "botgate_turns_in_flight",
        "botgate_turns_queued",
        "botgate_turn_queue_wait_seconds",
        "botgate_tunnels_in_flight",
        "botgate_connections",
        "botgate_upstream_connections",
        "botgate_upstream_errors_total",
        "botgate_sessions",
        "botgate_bots",
        "botgate_orphan_profiles",
        "botgate_binding_proof_success",
        "botgate_binding_proof_timestamp_seconds",
        "botgate_revocation_seconds",
        "botgate_mcp_calls_total",
        "botgate_audit_records_total",
        "botgate_audit_queue_records",
        "botgate_config_reloads_total",
        "botgate_build_info",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
        "process_threads",
    ] {
        assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1, "TYPE of {name}");
        assert_eq!(text.matches(&format!("# HELP {name} ")).count(), 1, "HELP of {name}");
    }
    assert!(!text.contains(" summary\n"), "every distribution is a histogram");
    assert_eq!(value(&text, "botgate_refusals_total{reason=\"not_own_bot\"}"), Some(0.0));
}

#[test]
fn a_finished_request_counts_once_and_lands_in_its_bucket() {
    let metrics = fixture();
    metrics.shard().request_finished(1, "POST", 200, Duration::from_millis(40), Some(Duration::from_millis(4)));
    let text = metrics.render();
    let labels = "{route=\"chat_completions\",method=\"POST\",status=\"200\"}";
    assert_eq!(value(&text, &format!("botgate_requests_total{labels}")), Some(1.0));
    let bucket = |name: &str, le: &str| {
        value(&text, &format!("botgate_{name}_seconds_bucket{{route=\"chat_completions\",le=\"{le}\"}}"))
    };
    assert_eq!(bucket("request_duration", "0.025"), Some(0.0));
    assert_eq!(bucket("request_duration", "0.05"), Some(1.0));
    assert_eq!(bucket("time_to_first_byte", "0.0025"), Some(0.0));
    assert_eq!(bucket("time_to_first_byte", "0.005"), Some(1.0));
}

#[test]
fn each_reason_has_its_own_counter() {
    let metrics = fixture();
    let shard = metrics.shard();
    for (times, reason) in Reason::ALL.iter().enumerate() {
        (0..times).for_each(|_| shard.refused(*reason));
    }
    let text = metrics.render();
    for (times, reason) in Reason::ALL.iter().enumerate() {
        let series = format!("botgate_refusals_total{{reason=\"{}\"}}", reason.as_str());
        assert_eq!(value(&text, &series), Some(times as f64), "{series}");
    }
}

#[test]
fn a_connection_is_counted_in_one_state_until_it_is_dropped() {
    let metrics = fixture();
    let counts = || {
        let text = metrics.render();
        ["active", "idle"].map(|state| {
            let upstream = format!("botgate_upstream_connections{{gateway=\"main\",state=\"{state}\"}}");
            (value(&text, &format!("botgate_connections{{state=\"{state}\"}}")), value(&text, &upstream))
        })
    };
    let mut client = metrics.shard().connection_opened(ConnectionState::Idle);
    let mut upstream = metrics.shard().upstream_connection(0, ConnectionState::Active);
    let _nowhere = metrics.shard().upstream_connection(1, ConnectionState::Active);
    assert_eq!(counts(), [(Some(0.0), Some(1.0)), (Some(1.0), Some(0.0))]);
    client.active();
    client.active();
    upstream.idle();
    assert_eq!(counts(), [(Some(1.0), Some(0.0)), (Some(0.0), Some(1.0))]);
    drop((client, upstream));
    assert_eq!(counts(), [(Some(0.0), Some(0.0)); 2]);
}

#[test]
fn figures_of_gateways_proofs_and_outcomes_are_set() {
    let metrics = fixture();
    metrics.turns_in_flight(0).increment(2);
    metrics.turns_in_flight(9).increment(2);
    metrics.upstream_error(0, UpstreamErrorKind::Hostile);
    metrics.upstream_error(9, UpstreamErrorKind::Hostile);
    metrics.proof(0, true, 1.5e9);
    metrics.set_bots(BotState::Refused, 3);
    metrics.mcp_call(McpOutcome::Failed);
    metrics.config_reload(ReloadOutcome::Rejected);
    let tunnel = metrics.tunnel_opened();
    let text = metrics.render();
    for (series, expected) in [
        ("botgate_turns_in_flight{gateway=\"main\"}", 2.0),
        ("botgate_upstream_errors_total{gateway=\"main\",kind=\"hostile\"}", 1.0),
        ("botgate_binding_proof_success{gateway=\"main\"}", 1.0),
        ("botgate_binding_proof_timestamp_seconds{gateway=\"main\"}", 1.5e9),
        ("botgate_bots{state=\"refused\"}", 3.0),
        ("botgate_mcp_calls_total{outcome=\"failed\"}", 1.0),
        ("botgate_config_reloads_total{outcome=\"rejected\"}", 1.0),
        ("botgate_tunnels_in_flight", 1.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}");
    }
    drop(tunnel);
    assert_eq!(value(&metrics.render(), "botgate_tunnels_in_flight"), Some(0.0));
    assert!(!text.contains(GATEWAY_RESIDENT) && !text.contains(CERTIFICATE_EXPIRY));
    metrics.set_gateway_resident(0, 7);
    metrics.set_certificate_expiry(0, 8.0);
    let text = metrics.render();
    assert_eq!(value(&text, "botgate_gateway_resident_bytes{gateway=\"main\"}"), Some(7.0));
    assert_eq!(value(&text, "botgate_tls_certificate_expiry_seconds{certificate=\"0\"}"), Some(8.0));
}

#[test]
fn the_process_tells_its_own_figures() {
    let text = fixture().render();
    assert!(value(&text, "process_resident_memory_bytes").unwrap() > 1e5);
    assert!(value(&text, "process_open_fds").unwrap() >= 3.0);
    assert!(value(&text, "process_max_fds").unwrap() >= value(&text, "process_open_fds").unwrap());
    assert!(value(&text, "process_start_time_seconds").unwrap() > 1.5e9);
    assert!(value(&text, "process_threads").unwrap() >= 1.0);
    assert!(value(&text, "process_cpu_seconds_total").unwrap() >= 0.0);
}
