//! Runs through the edge: their owner follows and stops them, nobody else finds them, and each keeps its permit to its end.

use serde_json::{Value, json};

use super::{Pair, SOON};
use crate::support::http::{Answer, Call};
use crate::support::{eventually, poll_for};

fn get(pair: &Pair, token: &str, target: &str) -> Answer {
    Call::get(target).bearer(token).send(pair.botgate.address())
}

#[track_caller]
fn start(pair: &Pair, token: &str, input: &str) -> String {
    let answer = Call::post("/v1/runs", &json!({"input": input})).bearer(token).send(pair.botgate.address());
    assert_eq!(answer.status, 202, "{}\n{}", answer.body, pair.botgate.output());
    answer.json()["run_id"].as_str().expect("a run has an id").to_owned()
}

#[track_caller]
fn becomes(pair: &Pair, token: &str, run: &str, status: &str) {
    let mut last = Value::Null;
    let found = poll_for(SOON, || {
        last = get(pair, token, &format!("/v1/runs/{run}")).json();
        (last["status"] == status).then_some(())
    });
    assert!(found.is_some(), "the run is not {status} but {last}\n{}", pair.botgate.output());
}

#[test]
fn a_run_is_its_owners_alone_and_keeps_its_permit_until_it_has_ended() {
    let pair = Pair::serve();
    let run = start(&pair, &pair.alice, "SLEEP:4 in a run through the edge");
    assert_eq!(pair.botgate.turns(), (1.0, 0.0), "the answer came, the run goes on");
    becomes(&pair, &pair.alice, &run, "running");
    for rest in ["", "/events"] {
        let answer = get(&pair, &pair.bob, &format!("/v1/runs/{run}{rest}"));
        assert_eq!(answer.status, 404, "{rest}: {}", answer.body);
        assert!(!answer.body.contains("alice"), "{}", answer.body);
    }
    let stop = Call::post(&format!("/v1/runs/{run}/stop"), &json!({})).bearer(&pair.bob);
    assert_eq!(stop.send(pair.botgate.address()).status, 404);
    let named = get(&pair, &pair.bob, &format!("/p/bot-alice/v1/runs/{run}"));
    assert_eq!(named.status, 401, "{}", named.body);

    let events = Call::get(&format!("/v1/runs/{run}/events")).bearer(&pair.alice);
    let mut events = events.open(pair.botgate.address());
    assert_eq!((events.status, events.header("content-type")), (200, Some("text/event-stream")));
    let seen = events.read_until(": stream closed\n\n");
    assert!(seen.contains("\"run.completed\""), "{seen}");
    becomes(&pair, &pair.alice, &run, "completed");
    eventually("the ended run gives its permit back", SOON, || pair.botgate.turns() == (0.0, 0.0));
    let calls = pair.gateway.model().calls_with("in a run through the edge");
    assert!(!calls.is_empty() && calls.iter().all(|call| call.provider_key == "sk-provider-alice"), "{calls:?}");
}

#[test]
fn a_run_that_its_owner_stops_is_cancelled_and_recorded() {
    let pair = Pair::serve();
    let run = start(&pair, &pair.bob, "HOLD the run that bob stops");
    eventually("the run calls the model", SOON, || {
        !pair.gateway.model().calls_with("HOLD the run that bob stops").is_empty()
    });
    let stop = Call::post(&format!("/v1/runs/{run}/stop"), &json!({})).bearer(&pair.bob);
    assert_eq!(stop.send(pair.botgate.address()).status, 200);
    becomes(&pair, &pair.bob, &run, "cancelled");
    eventually("the stopped run gives its permit back", SOON, || pair.botgate.turns() == (0.0, 0.0));
    let records = pair.botgate.audit();
    let turn: Vec<_> = records.iter().filter(|record| record["kind"] == "open").collect();
    assert!(turn.len() == 1 && turn[0]["login"] == "bob", "{records:#?}");
    let closed = records.iter().find(|record| record["kind"] == "close").expect("the run's end is recorded");
    assert_eq!(closed["run_id"], run.as_str(), "{closed}");
}
