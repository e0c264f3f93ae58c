//! Audit names a human: every turn has its records, whatever becomes of it, and no answer is ahead of them.

use std::time::Duration;

use botgate::cli::stand_in::{Misbehave, Misbehaviour};
use botgate::telemetry::audit::{Filter, Reader, verify};
use serde_json::{Value, json};

use crate::support::edge::{TestEdge, config};
use crate::support::wire::{Raw, Wire, chat, get, post};
use crate::support::{eventually, poll_for};

const CHAT: &str = "/v1/chat/completions";

/// The records that a filter lets through, as written so far.
fn written(edge: &TestEdge, filter: Filter) -> Vec<Value> {
    let mut reader = Reader::new(&edge.audit_dir, filter);
    let next = || reader.next_entry().expect("the log can be read").map(|entry| entry.value().clone());
    std::iter::from_fn(next).collect()
}

fn of_request(edge: &TestEdge, id: &str) -> Vec<Value> {
    written(edge, Filter { request_id: Some(id.to_owned()), ..Filter::default() })
}

fn of_kind(edge: &TestEdge, kind: &str) -> Vec<Value> {
    written(edge, Filter::default()).into_iter().filter(|record| record["kind"] == kind).collect()
}

/// The one turn's records, once it is closed.
#[track_caller]
fn closed(edge: &TestEdge) -> (Value, Value) {
    let close = poll_for(Duration::from_secs(10), || of_kind(edge, "close").pop()).expect("the turn is closed");
    let opens = of_kind(edge, "open");
    let [open] = opens.as_slice() else { panic!("one turn: {opens:?}") };
    assert_eq!(of_kind(edge, "close").len(), 1);
    assert_eq!(close["open"], open["seq"]);
    (open.clone(), close)
}

#[track_caller]
fn id(answer: &Raw) -> String {
    answer.header("x-request-id").expect("every answer has one").to_owned()
}

fn ask(edge: &TestEdge, request: String) -> Raw {
    let mut wire = Wire::connect(edge.address);
    wire.send(request);
    wire.answer()
}

#[test]
fn a_turn_has_an_open_and_a_close_record_with_its_person() {
    let edge = TestEdge::start();
    let body = chat("hello", false);
    let answer = ask(&edge, post(CHAT, edge.token("alice"), &body));
    assert_eq!(answer.status(), 200);
    let (open, close) = closed(&edge);
    let person = edge.person("alice");
    for (field, expected) in [
        ("request_id", json!(id(&answer))),
        ("login", json!("alice")),
        ("uid", json!(person.uid)),
        ("session", json!(person.session)),
        ("credential", json!("session")),
        ("profile", json!(person.profile)),
        ("gateway", json!("main")),
        ("method", json!("POST")),
        ("route", json!(CHAT)),
        ("peer", json!("127.0.0.1")),
    ] {
        assert_eq!(open[field], expected, "{field}: {open}");
    }
    for (field, expected) in [
        ("login", json!("alice")),
        ("status", json!(200)),
        ("outcome", json!("finished")),
        ("bytes_in", json!(body.len())),
        ("bytes_out", json!(answer.body.len())),
    ] {
        assert_eq!(close[field], expected, "{field}: {close}");
    }
}

#[test]
fn no_byte_of_an_answer_is_ahead_of_its_open_record() {
    let edge = TestEdge::start();
    for round in 0..30 {
        let request = match round % 3 {
            0 => post(CHAT, edge.token("alice"), &chat("hello", false)),
            1 => post(CHAT, edge.token("alice"), &chat("WORDS:3", true)),
            _ => post("/v1/runs", edge.token("alice"), r#"{"input":"hello"}"#),
        };
        let mut wire = Wire::connect(edge.address);
        wire.send(request);
        let head = wire.head();
        let records = of_request(&edge, &id(&Raw { head, body: Vec::new() }));
        assert!(records.iter().any(|record| record["kind"] == "open"), "{round}: {records:?}");
        drop(wire);
        edge.settles();
    }
}

/// How a turn of alice's is closed that this does.
#[track_caller]
fn closes_as(edge: &mut TestEdge, outcome: &str, end: impl FnOnce(&mut TestEdge, &mut Wire)) -> Value {
    let mut wire = Wire::connect(edge.address);
    wire.send(post(CHAT, edge.token("alice"), &chat("SILENCE:60", true)));
    wire.until("I am");
    end(edge, &mut wire);
    drop(wire);
    let (open, close) = closed(edge);
    assert_eq!((&open["login"], &close["outcome"]), (&json!("alice"), &json!(outcome)), "{close}");
    close
}

#[test]
fn an_interrupted_turn_is_closed_as_what_it_was() {
    let close = closes_as(&mut TestEdge::start(), "client_gone", |_, _| {});
    assert_eq!(close["status"], 200);
    closes_as(&mut TestEdge::start(), "revoked", |edge, _| {
        edge.edge.parts().sessions.revoke_session(&edge.person("alice").session);
    });
    closes_as(&mut TestEdge::start(), "revoked", |edge, _| {
        edge.edge.parts().sessions.disable(&edge.person("alice").uid);
    });
    let mut config = config();
    config.deadlines.drain = Duration::from_millis(200);
    closes_as(&mut TestEdge::with(config.clone(), |_| {}), "shutdown", |edge, _| assert!(!edge.drain()));
    config.deadlines.idle = Duration::from_millis(500);
    let silent = |options: &mut botgate::cli::stand_in::Options| options.keepalive = Duration::from_secs(600);
    closes_as(&mut TestEdge::with(config, silent), "timed_out", |_, wire| drop(wire.rest(Duration::from_secs(5))));
}

#[test]
fn a_turn_that_the_gateway_breaks_off_is_closed_as_such() {
    for (how, outcome, status) in [
        (Misbehaviour::TruncatedLength, "gateway_broke", 200),
        (Misbehaviour::CloseUnanswered, "refused", 502),
        (Misbehaviour::RefuseRightKey, "refused", 401),
    ] {
        let edge = TestEdge::with(config(), |options| options.misbehave = Some(Misbehave::always(how)));
        let mut wire = Wire::connect(edge.address);
        wire.send(post(CHAT, edge.token("alice"), &chat("hello", false)));
        wire.rest(Duration::from_millis(300));
        let (_, close) = closed(&edge);
        assert_eq!((&close["outcome"], &close["status"]), (&json!(outcome), &json!(status)), "{how:?}: {close}");
    }
}

#[test]
fn a_plain_turn_whose_client_left_is_closed_when_the_gateway_is_done() {
    let edge = TestEdge::start();
    let mut wire = Wire::connect(edge.address);
    wire.send(post(CHAT, edge.token("alice"), &chat("SLEEP:1", false)));
    eventually("it runs", Duration::from_secs(5), || edge.stand_in.running() == 1);
    drop(wire);
    eventually("the edge has noticed", Duration::from_secs(1), || edge.connections() == 0);
    assert!(of_kind(&edge, "close").is_empty());
    let (_, close) = closed(&edge);
    assert_eq!(close["outcome"], "client_gone");
    assert_eq!(edge.stand_in.finished(), 1);
}

#[test]
fn a_run_is_closed_at_its_end_with_its_identifier() {
    let edge = TestEdge::start();
    let answer = ask(&edge, post("/v1/runs", edge.token("alice"), r#"{"input":"SLEEP:1"}"#));
    let run: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert!(of_kind(&edge, "close").is_empty(), "the run goes on");
    let (open, close) = closed(&edge);
    assert_eq!(open["route"], "/v1/runs");
    assert_eq!((&close["outcome"], &close["run_id"]), (&json!("finished"), &run["run_id"]), "{close}");
}

#[test]
fn a_change_has_one_record_and_a_read_has_none() {
    let edge = TestEdge::start();
    let answer = ask(&edge, post("/v1/runs/run_1/steer", edge.token("alice"), r#"{"text":"left"}"#));
    assert_eq!(answer.status(), 404);
    let change = id(&answer);
    let reads = ["/v1/models", "/v1/capabilities", "/v1/runs/run_1", "/health"]
        .map(|target| id(&ask(&edge, get(target, edge.token("alice")))));
    let records =
        poll_for(Duration::from_secs(5), || Some(of_request(&edge, &change)).filter(|found| !found.is_empty()));
    let records = records.expect("the change is recorded");
    let [record] = records.as_slice() else { panic!("one record: {records:?}") };
    assert_eq!(
        (&record["kind"], &record["login"], &record["status"]),
        (&json!("action"), &json!("alice"), &json!(404))
    );
    assert_eq!(record["detail"]["route"], "/v1/runs/{id}/steer");
    for read in reads {
        assert!(of_request(&edge, &read).is_empty());
    }
    assert!(of_kind(&edge, "open").is_empty());
}

#[test]
fn refusals_are_recorded_under_a_budget() {
    let edge = TestEdge::start();
    for _ in 0..40 {
        assert_eq!(ask(&edge, get("/p/bot-bob/v1/models", edge.token("alice"))).status(), 401);
    }
    for _ in 0..7 {
        assert_eq!(ask(&edge, get("/v1/models", "")).status(), 401);
    }
    let counted = |edge: &TestEdge| {
        let single = of_kind(edge, "refusal").len() as u64;
        let (mut alice, mut strangers) = (single, 0);
        for summary in of_kind(edge, "refusals") {
            let sum = |rows: &Value, name: &str, value: &str| -> u64 {
                let rows = rows.as_array().into_iter().flatten().filter(|row| row[name] == value);
                rows.map(|row| row["count"].as_u64().unwrap_or(0)).sum()
            };
            alice += sum(&summary["people"], "login", "alice");
            strangers += sum(&summary["networks"], "network", "127.0.0.0/24");
        }
        (single, alice, strangers)
    };
    eventually("every refusal is in the log", Duration::from_secs(5), || {
        let (_, alice, strangers) = counted(&edge);
        (alice, strangers) == (40, 7)
    });
    let (single, ..) = counted(&edge);
    assert!((10..=30).contains(&single), "{single} records for 40 refusals");
    let refusal = &of_kind(&edge, "refusal")[0];
    assert_eq!((&refusal["login"], &refusal["reason"]), (&json!("alice"), &json!("not_own_bot")));
}

#[test]
fn the_chain_of_a_busy_edge_verifies_to_its_head() {
    let mut edge = TestEdge::start();
    std::thread::scope(|scope| {
        for login in ["alice", "bob", "carol"] {
            let edge = &edge;
            scope.spawn(move || {
                for round in 0..10 {
                    let mut wire = Wire::connect(edge.address);
                    wire.send(post(CHAT, edge.token(login), &chat("hello", round % 2 == 0)));
                    if round % 3 > 0 {
                        wire.until("hello");
                    }
                    ask(edge, get("/v1/nothing", edge.token(login)));
                }
            });
        }
    });
    edge.settles();
    edge.drain();
    let opens = || of_kind(&edge, "open").len();
    eventually("every turn is closed", Duration::from_secs(10), || of_kind(&edge, "close").len() == opens());
    let head = edge.edge.audit().head();
    verify(&edge.audit_dir, [7; 32], Some(&head)).expect("the chain holds");
    assert!(verify(&edge.audit_dir, [8; 32], Some(&head)).is_err(), "under another key it does not");
    assert!(opens() >= 20, "{}", opens());
}
