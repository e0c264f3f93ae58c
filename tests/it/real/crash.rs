//! `kill -9` while people use their bots: the next start serves them again, and nothing of the record is lost.

use serde_json::json;

use super::{Pair, SOON, chat};
use crate::support::http::Call;
use crate::support::model::End;
use crate::support::{eventually, poll_for};

#[test]
fn after_a_kill_sessions_hold_open_turns_are_closed_as_lost_and_runs_are_taken_up() {
    let mut pair = Pair::serve();
    let personal = pair.botgate.run(&["token", "create", "bob", "--label", "laptop"]).done().trim().to_owned();
    let revoked = pair.botgate.session("bob");
    let ids = pair.botgate.session_ids("bob");
    assert_eq!(ids.len(), 2);
    pair.botgate.run(&["session", "revoke", "--login", "bob"]).done();
    let bob = pair.botgate.session("bob");

    let run = Call::post("/v1/runs", &json!({"input": "SLEEP:12 in a run over a kill"})).bearer(&bob);
    let run = run.send(pair.botgate.address());
    assert_eq!(run.status, 202, "{}", run.body);
    let run = run.json()["run_id"].as_str().expect("a run has an id").to_owned();
    let text = "WORDS:2000:0.05 until the kill";
    let call = Call::post("/v1/chat/completions", &chat(text, true)).bearer(&pair.alice);
    let mut stream = call.open(pair.botgate.address());
    stream.read_until("w1 ");
    let stream_id = stream.header("x-request-id").expect("every answer has one").to_owned();
    assert_eq!(pair.botgate.turns(), (2.0, 0.0));

    pair.botgate.kill();
    assert!(poll_for(SOON, || cut(&mut stream)).is_some(), "the stream breaks off");
    let calls = || pair.gateway.model().turns_with(text);
    eventually("the gateway ends the turn that nobody reads", SOON, || {
        calls().iter().all(|call| call.end == End::Abandoned)
    });
    pair.botgate.run(&["audit", "--verify"]).done();
    let open = pair.botgate.audit();
    assert!(open.iter().any(|record| record["kind"] == "open" && record["request_id"] == stream_id.as_str()));

    pair.botgate.serve();
    assert_eq!(pair.botgate.turns().0, 1.0, "the run is taken up before anything is served, the stream is not");
    pair.botgate.becomes_ready();
    let lost = pair.botgate.audit();
    let closed = lost.iter().find(|record| record["kind"] == "lost" && record["request_id"] == stream_id.as_str());
    assert_eq!(closed.map(|record| record["outcome"].clone()), Some(json!("lost")), "{lost:#?}");
    let get = |token: &str| Call::get("/v1/models").bearer(token).send(pair.botgate.address()).status;
    assert_eq!([get(&pair.alice), get(&bob), get(&personal), get(&revoked), get(&pair.bob)], [200, 200, 200, 401, 401]);

    let look = |token: &str| Call::get(&format!("/v1/runs/{run}")).bearer(token).send(pair.botgate.address());
    assert_eq!(look(&pair.alice).status, 404);
    eventually("the run ends", SOON, || look(&bob).json()["status"] == "completed");
    eventually("its permit is given back", SOON, || pair.botgate.turns() == (0.0, 0.0));
    let turn = Call::post("/v1/chat/completions", &chat("ECHO:again", false)).bearer(&pair.alice);
    assert_eq!(turn.send(pair.botgate.address()).json()["choices"][0]["message"]["content"], "again");
    assert!(pair.botgate.stop(), "{}", pair.botgate.output());
    pair.botgate.run(&["audit", "--verify"]).done();

    // A row that is left would be taken up by every later start.
    pair.botgate.serve();
    assert_eq!(pair.botgate.turns(), (0.0, 0.0));
}

#[test]
fn a_run_whose_session_was_revoked_while_the_edge_was_down_is_stopped() {
    let mut pair = Pair::serve();
    let text = "WORDS:2000:0.1 in a run that loses its session";
    let run = Call::post("/v1/runs", &json!({ "input": text })).bearer(&pair.bob).send(pair.botgate.address());
    assert_eq!(run.status, 202, "{}", run.body);
    let calls = || pair.gateway.model().turns_with(text);
    eventually("the run is at work", SOON, || !calls().is_empty());
    pair.botgate.kill();
    pair.botgate.run(&["session", "revoke", "--login", "bob"]).done();
    assert!(calls().iter().all(|call| call.end != End::Abandoned), "the run outlives the edge");
    pair.botgate.serve();
    eventually("the run is stopped", SOON, || calls().iter().all(|call| call.end == End::Abandoned));
    eventually("its permit is given back", SOON, || pair.botgate.turns() == (0.0, 0.0));
    assert!(pair.botgate.stop(), "{}", pair.botgate.output());
}

/// Reads on; something once the stream has broken off, which must not look like its end.
fn cut(stream: &mut crate::support::http::Incoming) -> Option<()> {
    match stream.try_next_chunk() {
        Ok(Some(_)) => None,
        Ok(None) => panic!("a stream that was cut must not end cleanly"),
        Err(_) => Some(()),
    }
}
