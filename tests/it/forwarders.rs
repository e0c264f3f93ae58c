//! What a request says about its client counts only from a trusted forwarder, and never reaches the gateway in any case.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use botgate::config::Config;
use botgate::telemetry::audit::{Filter, Reader};

use crate::support::edge::{TestEdge, config};
use crate::support::poll_for;
use crate::support::wire::{Raw, Wire, chat, head};

const CHAT: &str = "/v1/chat/completions";
/// In the trusted network.
const FORWARDER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 7, 1));
/// Outside of it.
const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));
/// Every way to speak about a client that some server heeds.
const CLAIMS: &str = "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.example\r\n\
    X-Forwarded-Port: 443\r\nX-Forwarded-Server: evil.example\r\nX-Forwarded-User: bob\r\nX-Forwarded: for=192.0.2.7\r\n\
    Forwarded: for=192.0.2.7;proto=https;host=evil.example\r\nX-Real-IP: 192.0.2.7\r\nX_Forwarded_For: 192.0.2.7\r\n\
    X_Real_IP: 192.0.2.7\r\nX-Forwarded_Proto: https\r\nX-Client-IP: 192.0.2.7\r\nTrue-Client-IP: 192.0.2.7\r\n\
    CF-Connecting-IP: 192.0.2.7\r\nX-Original-Forwarded-For: 192.0.2.7\r\nX-ProxyUser-Ip: 192.0.2.7\r\nVia: 1.1 evil\r\n";

fn behind() -> Config {
    let mut config = config();
    config.listen.trusted_forwarders = vec!["127.0.7.0/24".parse().expect("a network")];
    config
}

fn ask(edge: &TestEdge, source: IpAddr, request: &str) -> Raw {
    let mut wire = Wire::connect_from(source, edge.address);
    wire.send(request);
    wire.answer()
}

fn with(edge: &TestEdge, lines: &str) -> String {
    format!("{}{lines}\r\n", head("GET", "/v1/models", edge.token("alice")))
}

/// What the gateway was told about the last request's client.
#[track_caller]
fn passed(edge: &TestEdge) -> (String, String) {
    let requests = edge.stand_in.requests();
    let last = requests.last().expect("a request arrived");
    let known = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-request-id"];
    for (name, value) in &last.headers {
        let read_as = name.replace('_', "-");
        let claim = ["forward", "real-ip", "client-ip", "connecting-ip", "proxyuser", "via"];
        let is_claim = claim.iter().any(|word| read_as.contains(word));
        assert!(!is_claim || known.contains(&name.as_str()), "{name} passed");
        assert!(!value.windows(4).any(|window| window == b"evil"), "{name} passed");
    }
    let one = |name| {
        let values: Vec<_> = last.header(name).map(|value| String::from_utf8_lossy(value).into_owned()).collect();
        assert_eq!(values.len(), 1, "{name}: {values:?}");
        values.concat()
    };
    (one("x-forwarded-for"), one("x-forwarded-proto"))
}

#[test]
fn a_strangers_word_about_itself_never_counts_and_never_passes() {
    for config in [config(), behind()] {
        let edge = TestEdge::with_encrypted_cookies(config);
        assert_eq!(ask(&edge, STRANGER, &with(&edge, CLAIMS)).status(), 200);
        assert_eq!(passed(&edge), ("127.0.0.1".to_owned(), "http".to_owned()));
        // Nor does it make a cookie count, or a malformed one do harm.
        let cookie = format!("Cookie: __Host-botgate={}\r\n", edge.token("alice"));
        let request = format!("{}{cookie}{CLAIMS}\r\n", head("GET", "/v1/models", ""));
        assert_eq!(ask(&edge, STRANGER, &request).status(), 401);
        assert_eq!(ask(&edge, STRANGER, &with(&edge, "X-Forwarded-For: nonsense\r\n")).status(), 200);
    }
}

#[test]
fn a_forwarders_word_is_told_to_the_gateway_and_nothing_else_is() {
    let edge = TestEdge::with(behind(), |_| {});
    assert_eq!(ask(&edge, FORWARDER, &with(&edge, CLAIMS)).status(), 200);
    assert_eq!(passed(&edge), ("192.0.2.7".to_owned(), "https".to_owned()));
    for (lines, address, proto) in [
        ("", "127.0.7.1", "http"),
        ("X-Forwarded-For: 203.0.113.9, 192.0.2.7, 127.0.7.9\r\n", "192.0.2.7", "http"),
        ("X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-For: 2001:db8::7\r\n", "2001:db8::7", "http"),
        ("X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n", "192.0.2.7", "http"),
    ] {
        assert_eq!(ask(&edge, FORWARDER, &with(&edge, lines)).status(), 200);
        assert_eq!(passed(&edge), (address.to_owned(), proto.to_owned()), "{lines}");
    }
}

#[test]
fn a_word_that_cannot_be_understood_is_refused_whatever_the_credential() {
    let edge = TestEdge::with(behind(), |_| {});
    for value in ["", "unknown", "192.0.2.7,", "_hidden, 127.0.7.9", "192.0.2.7;x"] {
        let lines = format!("X-Forwarded-For: {value}\r\n");
        assert_eq!(ask(&edge, FORWARDER, &with(&edge, &lines)).status(), 400, "{value}");
        let nobody = format!("{}{lines}\r\n", head("GET", "/health", ""));
        assert_eq!(ask(&edge, FORWARDER, &nobody).status(), 400, "{value}");
    }
    assert!(edge.stand_in.requests().is_empty());
    assert_eq!(edge.metric("botgate_refusals_total{reason=\"bad_forwarding\"}"), Some(10.0));
}

#[test]
fn cookies_count_behind_a_forwarder_that_says_https() {
    let edge = TestEdge::with_encrypted_cookies(behind());
    let cookie = format!("Cookie: __Host-botgate={}\r\n", edge.token("alice"));
    let asked = |lines: &str| {
        let request = format!("{}{cookie}X-Forwarded-For: 192.0.2.7\r\n{lines}\r\n", head("GET", "/v1/models", ""));
        ask(&edge, FORWARDER, &request).status()
    };
    assert_eq!(asked("X-Forwarded-Proto: https\r\n"), 200);
    for lines in ["", "X-Forwarded-Proto: http\r\n", "X_Forwarded_Proto: https\r\n", "Forwarded: proto=https\r\n"] {
        assert_eq!(asked(lines), 401, "{lines}");
    }
}

#[test]
fn rates_and_records_are_the_clients_and_not_the_forwarders() {
    let mut config = behind();
    config.limits.requests_per_second_per_address = NonZeroU32::new(3);
    config.limits.connections_per_address = 2;
    let edge = TestEdge::with(config, |_| {});
    let flood = with(&edge, "X-Forwarded-For: 192.0.2.7\r\n");
    let mut wire = Wire::connect_from(FORWARDER, edge.address);
    let limited = (0..40).any(|_| {
        wire.send(&flood);
        wire.answer().status() == 429
    });
    assert!(limited, "one client is limited");
    for other in 1..10 {
        wire.send(with(&edge, &format!("X-Forwarded-For: 198.51.100.{other}\r\n")));
        assert_eq!(wire.answer().status(), 200, "others behind the same forwarder are not");
    }
    let held: Vec<_> = (0..5).map(|_| Wire::connect_from(FORWARDER, edge.address)).collect();
    for mut wire in held {
        wire.send(with(&edge, "X-Forwarded-For: 198.51.100.77\r\n"));
        assert!(matches!(wire.answer().status(), 200 | 429), "a forwarder may have many connections");
    }

    let body = chat("hello", false);
    let turn = format!(
        "{}X-Forwarded-For: 198.51.100.99\r\nContent-Length: {}\r\n\r\n{body}",
        head("POST", CHAT, edge.token("alice")),
        body.len()
    );
    assert_eq!(ask(&edge, FORWARDER, &turn).status(), 200);
    let record = |filter: fn(&serde_json::Value) -> bool| {
        poll_for(Duration::from_secs(10), || {
            let mut reader = Reader::new(&edge.audit_dir, Filter::default());
            let records = std::iter::from_fn(|| reader.next_entry().expect("the log can be read"));
            records.map(|entry| entry.value().clone()).find(filter)
        })
    };
    let open = record(|record| record["kind"] == "open").expect("the turn is recorded");
    assert_eq!(open["peer"], "198.51.100.99");
    let summed = record(|record| record.to_string().contains("address_rate")).expect("refusals are summed up");
    assert!(summed.to_string().contains("192.0.2.0/24"), "{summed}");
    assert!(!summed.to_string().contains("127.0.7"), "{summed}");
}
