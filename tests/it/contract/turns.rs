//! Turns: whose provider key they carry, how they are framed, what ends them, how many there may be.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::hermes::{Bot, RealGateway, Release};
use crate::support::http::Call;
use crate::support::model::End;

const SOON: Duration = Duration::from_secs(60);

pub(super) fn turn(bot: &Bot, text: &str, stream: bool) -> Call {
    let message = json!({"role": "user", "content": text});
    let body = json!({"model": bot.profile, "stream": stream, "messages": [message]});
    Call::post(&bot.path("/v1/chat/completions"), &body).bearer(&bot.api_key)
}

#[test]
fn a_turn_calls_the_model_with_its_own_profiles_provider_key() {
    let gateway = RealGateway::shared();
    for bot in [Bot::of("alice"), Bot::of("bob")] {
        let text = format!("whose key is it, {}", bot.profile);
        let answer = turn(&bot, &text, false).send(gateway.address());
        assert_eq!(answer.status, 200, "{}\n{}", answer.body, gateway.output());
        assert_eq!(answer.json()["choices"][0]["message"]["content"], "hello from stub");
        assert!(answer.header("content-length").is_some());
        let calls = gateway.model().calls_with(&text);
        assert!(!calls.is_empty());
        for call in &calls {
            assert_eq!(call.provider_key, bot.provider_key);
        }
        let introduced = format!("You are {}.", bot.profile);
        assert!(calls.iter().any(|call| call.system.contains(&introduced)), "{calls:?}");
    }
}

#[test]
fn a_silent_stream_is_chunked_and_carries_keepalive_comments() {
    let gateway = RealGateway::shared();
    let mut answer = turn(&Bot::of("alice"), "SLEEP:12 of silence", true).open(gateway.address());
    assert_eq!(answer.status, 200);
    assert!(answer.is_chunked());
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    let before = answer.read_until(": keepalive\n\n");
    assert!(before.starts_with("data: ") && before.contains("\"role\""), "{before}");
    let rest = answer.read_until("data: [DONE]\n\n");
    let words: Vec<_> = rest.lines().filter_map(content).collect();
    assert_eq!(words.concat().trim(), "hello from stub");
    assert_eq!(answer.next_chunk(), None);
}

fn content(line: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
    event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)
}

#[test]
fn a_client_that_leaves_a_moving_stream_ends_the_turn_at_once() {
    leave_a_stream("WORDS:1000:0.1 in the stream that is left", Duration::from_secs(5));
}

/// Silence hides a client's leaving until the next keepalive comment: until then the gateway counts the turn.
#[test]
fn a_client_that_leaves_a_silent_stream_ends_the_turn_at_the_next_comment() {
    leave_a_stream("HOLD the stream that is left", Duration::from_secs(15));
}

fn leave_a_stream(text: &str, limit: Duration) {
    let gateway = RealGateway::shared();
    let answer = turn(&Bot::of("alice"), text, true).open(gateway.address());
    let calls = || gateway.model().turns_with(text);
    eventually("the turn calls the model", SOON, || calls().iter().any(|call| call.end == End::Open));
    drop(answer);
    eventually("the model call is cut", limit, || calls().iter().all(|call| call.end == End::Abandoned));
}

/// Why the edge reads a plain turn to its end: the gateway works on, so the permit is not free.
#[test]
fn a_client_that_leaves_its_plain_turn_does_not_end_it() {
    let gateway = RealGateway::shared();
    let text = "SLEEP:4 in the plain turn that is left";
    let call = turn(&Bot::of("bob"), text, false);
    let connection = call.send_only(gateway.address());
    let calls = || gateway.model().turns_with(text);
    eventually("the turn calls the model", SOON, || calls().iter().any(|call| call.end == End::Open));
    drop(connection);
    eventually("the model call is over", SOON, || calls().iter().all(|call| call.end != End::Open));
    assert_eq!(calls()[0].end, End::Finished);
}

#[test]
fn the_eleventh_turn_is_refused_whosever_it_is() {
    let (alice, bob) = (Bot::of("alice"), Bot::of("bob"));
    let gateway = RealGateway::start(Release::Current, &[alice.clone(), bob.clone()]);
    let held: Vec<_> =
        (0..10).map(|n| turn(&alice, &format!("HOLD number {n}"), true).open(gateway.address())).collect();
    assert!(held.iter().all(|answer| answer.status == 200));
    let run = Call::post(&bob.path("/v1/runs"), &json!({"input": "one too many"})).bearer(&bob.api_key);
    for call in [turn(&bob, "one too many", true), turn(&bob, "one too many", false), run] {
        let refused = call.send(gateway.address());
        assert_eq!(refused.status, 429, "{}", refused.body);
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    }
    let models = Call::get(&bob.path("/v1/models")).bearer(&bob.api_key).send(gateway.address());
    assert_eq!(models.status, 200, "what is no turn is not counted");
    drop(held);
    eventually("the turns that were left free their places", SOON, || {
        turn(&bob, "after them", false).send(gateway.address()).status == 200
    });
}

#[test]
fn a_draining_gateway_refuses_new_turns_and_finishes_those_it_has() {
    let alice = Bot::of("alice");
    let gateway = RealGateway::start(Release::Current, std::slice::from_ref(&alice));
    let mut held = gateway.begin("HOLD", || turn(&alice, "HOLD until the drain", true).open(gateway.address()));
    gateway.terminate();
    let mut last = None;
    eventually("new turns are refused", SOON, || {
        let answer = turn(&alice, "too late", false).send(gateway.address());
        let refused = answer.status == 503;
        last = Some(answer);
        refused
    });
    let refused = last.expect("the loop ran");
    assert_eq!(refused.json()["error"]["code"], "gateway_draining");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let health = Call::get("/health").send(gateway.address());
    assert_eq!(health.status, 200, "health says nothing about draining");
    gateway.model().release();
    let rest = held.read_until("data: [DONE]\n\n");
    assert!(rest.contains("stub"), "{rest}");
}
