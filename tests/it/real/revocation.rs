//! What is revoked over the admin socket ends at once, streams included, and nobody else notices.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Pair, SOON, chat};
use crate::support::eventually;
use crate::support::http::{Call, Incoming};
use crate::support::model::End;

/// Longest time from the end of the command to the end of the stream.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A stream of words that goes on for longer than any test.
#[track_caller]
fn stream(pair: &Pair, token: &str, marker: &str) -> Incoming {
    let text = format!("WORDS:20000:0.02 {marker}");
    let call = Call::post("/v1/chat/completions", &chat(&text, true)).bearer(token);
    let mut stream = call.open(pair.botgate.address());
    assert_eq!(stream.status, 200, "{}", pair.botgate.output());
    stream.read_until("w1 ");
    stream
}

/// Reads on to the end; when it was, and whether it looked broken.
fn ends(mut stream: Incoming) -> (Instant, bool) {
    loop {
        match stream.try_next_chunk() {
            Ok(Some(_)) => {}
            Ok(None) => return (Instant::now(), false),
            Err(_) => return (Instant::now(), true),
        }
    }
}

/// Runs a command while alice streams; her stream must break off at once and her turn end at the gateway.
#[track_caller]
fn cuts(pair: &Pair, token: &str, marker: &str, command: &[&str]) {
    let stream = stream(pair, token, marker);
    let reader = std::thread::spawn(move || ends(stream));
    pair.botgate.run(command).done();
    let done = Instant::now();
    let (ended, broken) = reader.join().expect("the reader ends");
    assert!(ended.saturating_duration_since(done) < AT_ONCE, "{command:?}: {:?}", ended - done);
    assert!(broken, "{command:?}: a cut stream must not end like a whole one");
    let calls = || pair.gateway.model().turns_with(marker);
    eventually("the turn ends at the gateway", SOON, || calls().iter().all(|call| call.end == End::Abandoned));
    let get = Call::get("/v1/models").bearer(token).send(pair.botgate.address());
    assert_eq!(get.status, 401, "{command:?}");
}

#[test]
fn revoking_disabling_and_lockdown_cut_live_streams_at_once_and_nobody_elses() {
    let pair = Pair::serve();
    let botgate = &pair.botgate;
    let mut bobs = stream(&pair, &pair.bob, "bob's own stream");
    let status = |token: &str| Call::get("/v1/models").bearer(token).send(botgate.address()).status;

    let id = botgate.session_ids("alice").remove(0);
    cuts(&pair, &pair.alice, "cut by session revoke", &["session", "revoke", &id]);
    let token = botgate.run(&["token", "create", "alice", "--label", "sdk"]).done().trim().to_owned();
    assert_eq!(status(&token), 200, "a new token counts at once");
    cuts(&pair, &token, "cut by token revoke", &["token", "revoke", "--login", "alice"]);

    let session = botgate.session("alice");
    cuts(&pair, &session, "cut by user disable", &["user", "disable", "alice"]);
    botgate.run(&["session", "create", "alice"]).failed();
    botgate.run(&["user", "enable", "alice"]).done();
    assert_eq!(status(&session), 200, "who is enabled again keeps sessions that were not revoked");

    let run = Call::post("/v1/runs", &json!({"input": "HOLD a run until the lockdown"})).bearer(&session);
    assert_eq!(run.send(botgate.address()).status, 202);
    let runs = || pair.gateway.model().turns_with("HOLD a run until the lockdown");
    eventually("the run calls the model", SOON, || !runs().is_empty());
    cuts(&pair, &session, "cut by lockdown", &["lockdown", "alice"]);
    eventually("the run is stopped too", SOON, || runs().iter().all(|call| call.end != End::Open));
    eventually("only bob's turn is left", SOON, || botgate.turns() == (1.0, 0.0));
    botgate.run(&["user", "enable", "alice"]).done();
    assert_eq!(status(&session), 401, "a lockdown revokes sessions for good");
    let session = botgate.session("alice");
    assert_eq!(status(&session), 200);

    bobs.read_until("w");
    drop(bobs);
    botgate.settles();
    let records = botgate.audit();
    let revoked = records.iter().filter(|record| record["kind"] == "close" && record["outcome"] == "revoked").count();
    assert_eq!(revoked, 5, "four streams and a run: {records:#?}");
    let left = records.iter().filter(|record| record["kind"] == "close" && record["login"] == "bob");
    assert_eq!(left.map(|record| record["outcome"].clone()).collect::<Vec<_>>(), [json!("client_gone")]);
}
