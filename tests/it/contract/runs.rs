//! Runs: whose they are, the words for their states, and how they end.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::hermes::{Bot, RealGateway};
use crate::support::http::{Answer, Call};
use crate::support::{eventually, poll_for};

const SOON: Duration = Duration::from_secs(60);

fn start(gateway: &RealGateway, bot: &Bot, input: &str) -> String {
    let call = Call::post(&bot.path("/v1/runs"), &json!({"input": input})).bearer(&bot.api_key);
    let answer = call.send(gateway.address());
    assert_eq!(answer.status, 202, "{}\n{}", answer.body, gateway.output());
    let run = answer.json();
    let id = run["run_id"].as_str().expect("a run has an id").to_owned();
    assert_eq!(run, json!({"run_id": id, "status": "started", "replayed": false}));
    id
}

fn look(gateway: &RealGateway, bot: &Bot, run: &str) -> Answer {
    Call::get(&bot.path(&format!("/v1/runs/{run}"))).bearer(&bot.api_key).send(gateway.address())
}

fn stop(gateway: &RealGateway, bot: &Bot, run: &str) -> Answer {
    let call = Call::post(&bot.path(&format!("/v1/runs/{run}/stop")), &json!({}));
    call.bearer(&bot.api_key).send(gateway.address())
}

/// Polls until the run has that status, and gives what was told of it then.
fn becomes(gateway: &RealGateway, bot: &Bot, run: &str, status: &str) -> Value {
    let mut last = Value::Null;
    let found = poll_for(SOON, || {
        last = look(gateway, bot, run).json();
        (last["status"] == status).then(|| last.clone())
    });
    found.unwrap_or_else(|| panic!("the run is not {status} but {last}\n{}", gateway.output()))
}

#[test]
fn a_run_outlives_its_request_and_completes() {
    let gateway = RealGateway::shared();
    let alice = Bot::of("alice");
    let run = start(gateway, &alice, "SLEEP:2 in a run");
    let running = becomes(gateway, &alice, &run, "running");
    assert_eq!(running["object"], "hermes.run");
    assert_eq!(running["run_id"], run);
    let done = becomes(gateway, &alice, &run, "completed");
    assert_eq!(done["output"], "hello from stub");
    let late = stop(gateway, &alice, &run);
    assert_eq!((late.status, late.json()["status"].clone()), (200, json!("completed")));
}

#[test]
fn a_stopped_run_is_cancelled() {
    let gateway = RealGateway::shared();
    let alice = Bot::of("alice");
    let run = start(gateway, &alice, "HOLD the run that is stopped");
    eventually("the run calls the model", SOON, || {
        !gateway.model().calls_with("HOLD the run that is stopped").is_empty()
    });
    let stopping = stop(gateway, &alice, &run);
    assert_eq!(stopping.status, 200);
    assert_eq!(stopping.json(), json!({"run_id": run, "status": "stopping"}));
    let cancelled = becomes(gateway, &alice, &run, "cancelled");
    assert_eq!(cancelled["interrupted"], true);
}

#[test]
fn a_run_whose_provider_refuses_has_failed() {
    let gateway = RealGateway::shared();
    let bob = Bot::of("bob");
    let run = start(gateway, &bob, "FAIL:401 in a run");
    let failed = becomes(gateway, &bob, &run, "failed");
    assert!(failed["error"].is_string(), "{failed}");
}

#[test]
fn another_bots_run_is_not_found() {
    let gateway = RealGateway::shared();
    let (alice, bob) = (Bot::of("alice"), Bot::of("bob"));
    let run = start(gateway, &alice, "SLEEP:1 in a run of alice");
    for answer in [look(gateway, &bob, &run), stop(gateway, &bob, &run)] {
        assert_eq!(answer.status, 404, "{}", answer.body);
        assert_eq!(answer.json()["error"]["code"], "run_not_found");
    }
    let bare = Call::get(&format!("/v1/runs/{run}")).bearer(gateway.default_key()).send(gateway.address());
    assert_eq!(bare.status, 404, "{}", bare.body);
    becomes(gateway, &alice, &run, "completed");
}

#[test]
fn a_runs_events_begin_and_end_with_a_comment() {
    let gateway = RealGateway::shared();
    let bob = Bot::of("bob");
    let run = start(gateway, &bob, "a run with events");
    let call = Call::get(&bob.path(&format!("/v1/runs/{run}/events"))).bearer(&bob.api_key);
    let mut answer = call.open(gateway.address());
    assert_eq!(answer.status, 200);
    let events = answer.read_until(": stream closed\n\n");
    assert!(events.starts_with(": open\n\n"), "{events}");
    assert!(events.contains("\"run.completed\""), "{events}");
}
