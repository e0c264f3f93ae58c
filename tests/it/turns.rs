//! Turns through the edge: every answer is one's own, streamed as it comes, and over when the gateway's work is.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::edge::TestEdge;
use crate::support::eventually;
use crate::support::http::Call;

fn chat(text: &str, stream: bool) -> serde_json::Value {
    json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}]})
}

#[test]
fn a_plain_turn_is_answered_by_ones_own_bot() {
    let edge = TestEdge::start();
    for login in ["alice", "bob"] {
        let answer =
            Call::post("/v1/chat/completions", &chat("hello", false)).bearer(edge.token(login)).send(edge.address);
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.body.contains(&format!("I am bot-{login}.")), "{}", answer.body);
        assert!(answer.header("x-request-id").is_some());
        assert_eq!(answer.header("server"), None);
    }
    edge.settles();
}

#[test]
fn the_gateway_sees_the_bots_path_and_key_and_nothing_of_the_client() {
    let edge = TestEdge::start();
    let answer = Call::get("/v1/models?a=b")
        .bearer(edge.token("alice"))
        .header("Cookie", "theme=dark")
        .header("Connection", "authorization, x-stainless-os")
        .header("X-Stainless-Os", "Linux")
        .header("X-Stainless-Lang", "python")
        .header("X-Forwarded-For", "10.9.9.9")
        .header("Origin", "https://evil.example")
        .header("X-Botgate-Login", "bob")
        .send(edge.address);
    assert_eq!(answer.status, 200);
    let seen = edge.stand_in.requests();
    let [request] = seen.as_slice() else { panic!("one request: {seen:?}") };
    let one = |name: &str| {
        let values: Vec<String> =
            request.header(name).map(|value| String::from_utf8_lossy(value).into_owned()).collect();
        values.join("|")
    };
    assert_eq!(request.target, "/p/bot-alice/v1/models?a=b");
    assert_eq!(one("authorization"), format!("Bearer {}", edge.person("alice").key));
    assert_eq!(one("x-forwarded-for"), "127.0.0.1");
    assert_eq!(one("x-stainless-lang"), "python");
    for absent in ["cookie", "origin", "x-botgate-login", "x-stainless-os"] {
        assert_eq!(one(absent), "", "{absent}");
    }
    assert_eq!(one("x-request-id"), answer.header("x-request-id").unwrap());
}

#[test]
fn a_stream_comes_as_it_is_made() {
    let edge = TestEdge::start();
    let started = Instant::now();
    let mut answer =
        Call::post("/v1/chat/completions", &chat("WORDS:20:0.2", true)).bearer(edge.token("alice")).open(edge.address);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    answer.read_until("data:");
    assert!(started.elapsed() < Duration::from_secs(2), "the first event waits for the last");
    answer.read_until("[DONE]");
    edge.settles();
}

#[test]
fn a_client_that_leaves_a_stream_takes_the_turn_with_it() {
    let edge = TestEdge::start();
    let mut answer = Call::post("/v1/chat/completions", &chat("WORDS:1000:0.1", true))
        .bearer(edge.token("alice"))
        .open(edge.address);
    answer.read_until("data:");
    assert_eq!(edge.turns.in_flight(), 1);
    drop(answer);
    eventually("the gateway's turn is interrupted", Duration::from_secs(1), || edge.stand_in.interrupted() == 1);
    edge.settles();
}

#[test]
fn a_client_that_leaves_a_plain_turn_leaves_the_permit_to_it() {
    let edge = TestEdge::start();
    let stream = Call::post("/v1/chat/completions", &chat("SLEEP:1.5", false))
        .bearer(edge.token("alice"))
        .send_only(edge.address);
    eventually("the turn runs", Duration::from_secs(5), || edge.stand_in.running() == 1);
    drop(stream);
    eventually("the edge has noticed", Duration::from_secs(1), || edge.connections() == 0);
    assert_eq!((edge.turns.in_flight(), edge.stand_in.running()), (1, 1), "the gateway runs it anyway");
    eventually("it ends", Duration::from_secs(5), || edge.stand_in.finished() == 1);
    edge.settles();
}

#[test]
fn a_run_keeps_its_permit_until_it_is_terminal() {
    let edge = TestEdge::start();
    let answer = Call::post("/v1/runs", &json!({"input": "SLEEP:1.5"})).bearer(edge.token("alice")).send(edge.address);
    assert!((200..300).contains(&answer.status), "{} {}", answer.status, answer.body);
    let run = answer.json()["run_id"].as_str().expect("the answer names the run").to_owned();
    assert_eq!(edge.turns.in_flight(), 1);
    let status = Call::get(&format!("/v1/runs/{run}")).bearer(edge.token("alice")).send(edge.address);
    assert_eq!(status.status, 200);
    let other = Call::get(&format!("/v1/runs/{run}")).bearer(edge.token("bob")).send(edge.address);
    assert_eq!(other.status, 404, "another person's run does not exist");
    edge.settles();
    assert_eq!(edge.stand_in.finished(), 1);
}

#[test]
fn revocation_cuts_a_live_stream_visibly() {
    let edge = TestEdge::start();
    let (session, token) = edge.sign_in("alice");
    let mut answer = Call::post("/v1/chat/completions", &chat("SILENCE:60", true)).bearer(&token).open(edge.address);
    answer.read_until("data:");
    edge.edge.parts().sessions.revoke_session(&session);
    eventually("the gateway's turn is interrupted", Duration::from_secs(1), || edge.stand_in.interrupted() == 1);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| answer.read_until("[DONE]"))).is_err());
    let again = Call::get("/v1/models").bearer(&token).send(edge.address);
    assert_eq!(again.status, 401);
    edge.settles();
}

#[test]
fn keep_alive_connections_are_reused_towards_the_gateway() {
    let edge = TestEdge::start();
    for _ in 0..20 {
        let answer = Call::get("/v1/models").bearer(edge.token("alice")).send(edge.address);
        assert_eq!(answer.status, 200);
    }
    assert!(edge.stand_in.connections() <= 2, "one for each thread, not {}", edge.stand_in.connections());
}
