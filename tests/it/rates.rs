//! Request rates: of an address whatever its credential, of a person whatever their address; and nobody else pays.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use botgate::config::Config;
use botgate::telemetry::audit::{Filter, Reader};

use crate::support::edge::{TestEdge, config};
use crate::support::poll_for;
use crate::support::wire::{Raw, Wire, chat, get, post};

const RATE: u32 = 4;

fn limited(change: impl FnOnce(&mut Config, Option<NonZeroU32>)) -> TestEdge {
    let mut config = config();
    change(&mut config, NonZeroU32::new(RATE));
    TestEdge::with(config, |_| {})
}

/// Sends the same request so often over one connection; gives the answers, after seeing that about as many passed as may.
#[track_caller]
fn burst(wire: &mut Wire, request: &str, times: usize, passes: u16) -> Vec<Raw> {
    let since = Instant::now();
    let answers: Vec<_> = (0..times)
        .map(|_| {
            wire.send(request);
            wire.answer()
        })
        .collect();
    let passed = answers.iter().filter(|answer| answer.status() == passes).count();
    let most = f64::from(RATE) * (1.0 + since.elapsed().as_secs_f64());
    assert!(passed >= RATE as usize && passed as f64 <= most + 1.0, "{passed} passed, {most} may");
    assert!(answers.iter().all(|answer| answer.status() == passes || answer.status() == 429));
    assert!(passed < times, "nothing was refused");
    answers
}

#[track_caller]
fn is_refused(answer: &Raw) {
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("x-should-retry"), Some("true"));
    let body: serde_json::Value = serde_json::from_slice(&answer.body).expect("an error is JSON");
    assert_eq!(body["error"]["code"], "rate_limit_exceeded");
}

#[test]
fn an_address_is_limited_whatever_it_asks_for() {
    let edge = limited(|config, rate| config.limits.requests_per_second_per_address = rate);
    for (target, token, passes) in [
        ("/v1/models", edge.token("alice"), 200),
        ("/v1/models", "nonsense", 401),
        ("/health", "", 200),
        ("/mcp", "", 401),
    ] {
        // Each from an address of its own, so that none waits for another.
        let source = IpAddr::from([127, 0, 7, target.len() as u8 + token.len() as u8]);
        let mut wire = Wire::connect_from(source, edge.address);
        let answers = burst(&mut wire, &get(target, token), 40, passes);
        answers.iter().filter(|answer| answer.status() == 429).for_each(is_refused);
        wire.send("GET /v1//models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        assert_eq!(wire.answer().status(), 400, "what is no request is told so first");
        let again = poll_for(Duration::from_secs(20), || {
            wire.send(get(target, token));
            (wire.answer().status() == passes).then_some(())
        });
        assert!(again.is_some(), "the address may never ask again");
    }
    let mut other = Wire::connect_from(IpAddr::from([127, 0, 8, 1]), edge.address);
    other.send(get("/v1/models", edge.token("alice")));
    assert_eq!(other.answer().status(), 200, "another address has its own rate");
    let refused = edge.metric("botgate_refusals_total{reason=\"address_rate\"}");
    assert!(refused.is_some_and(|refused| refused > 0.0), "{refused:?}");
    let recorded = poll_for(Duration::from_secs(10), || {
        let mut reader = Reader::new(&edge.audit_dir, Filter::default());
        let mut records = std::iter::from_fn(|| reader.next_entry().expect("the log can be read"));
        let summed = |text: String| text.contains("address_rate") && text.contains("127.0.7.0/24");
        records.any(|record| summed(record.value().to_string())).then_some(())
    });
    assert!(recorded.is_some(), "the audit log sums them up by network");
}

#[test]
fn a_person_is_limited_over_all_their_sessions_and_addresses() {
    let edge = limited(|config, rate| config.limits.requests_per_second_per_person = rate);
    let (_, second) = edge.sign_in("alice");
    let body = chat("hello", false);
    let request = post("/v1/chat/completions", edge.token("alice"), &body);
    let mut wire = Wire::connect(edge.address);
    // The answer to a request whose body stays unread ends the connection.
    let since = Instant::now();
    let mut statuses = Vec::new();
    while !statuses.contains(&429) && since.elapsed() < Duration::from_secs(20) {
        wire.send(get("/v1/models", edge.token("alice")));
        statuses.push(wire.answer().status());
    }
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    let before = edge.stand_in.requests().len();
    let mut refused = 0;
    for _ in 0..20 {
        for (token, source) in [(edge.token("alice"), 1), (second.as_str(), 2)] {
            let mut wire = Wire::connect_from(IpAddr::from([127, 0, 9, source]), edge.address);
            wire.send(get("/v1/models", token));
            let answer = wire.answer();
            if answer.status() == 429 {
                is_refused(&answer);
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    let passed = edge.stand_in.requests().len() - before;
    assert_eq!(passed, 40 - refused, "what is refused does not reach the gateway");
    let mut turn = Wire::connect(edge.address);
    turn.send(&request);
    assert!(matches!(turn.answer().status(), 200 | 429));

    let mut wire = Wire::connect(edge.address);
    wire.send(get("/v1/nothing", edge.token("alice")));
    assert_eq!(wire.answer().status(), 404, "what is not served is told first");
    wire.send(get("/v1/models", edge.token("bob")));
    assert_eq!(wire.answer().status(), 200, "nobody else pays");
    let counted = edge.metric("botgate_refusals_total{reason=\"person_rate\"}");
    assert!(counted.is_some_and(|counted| counted >= refused as f64), "{counted:?}");
    edge.settles();
}

#[test]
fn without_a_rate_nobody_is_limited() {
    let edge = TestEdge::start();
    let mut wire = Wire::connect(edge.address);
    for _ in 0..300 {
        wire.send(get("/v1/models", edge.token("alice")));
        assert_eq!(wire.answer().status(), 200);
    }
}
