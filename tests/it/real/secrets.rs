//! No secret gets out: not to the log, metrics, audit, arguments, environment, database or answers.

use std::fs;

use serde_json::Value;

use super::{Pair, SOON, chat};
use crate::support::eventually;
use crate::support::hermes::Bot;
use crate::support::http::Call;

/// Whether `text` is somewhere in `bytes`.
fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn no_secret_is_let_out_by_anything_that_happens() {
    let pair = Pair::serve();
    let Pair { gateway, botgate, .. } = &pair;
    let address = botgate.address();
    let personal = botgate.run(&["token", "create", "alice", "--label", "canary"]).done().trim().to_owned();
    let mcp = botgate.run(&["bot", "token", "alice"]).done().trim().to_owned();
    let ended = botgate.session("alice");
    let unknown = format!("{}x", &pair.bob[..pair.bob.len() - 1]);
    let wrong_key = "fixture-api-key-that-no-profile-has-0123456789";

    let mut answers = Vec::new();
    let mut note = |call: Call| {
        let answer = call.send(address);
        answers.push(format!("{answer:?}"));
        answer.status
    };
    let get = |token: &str| Call::get("/v1/models?key=canary-in-the-query").bearer(token);
    let turn = |stream| Call::post("/v1/chat/completions", &chat("ECHO:ok canary-in-the-body", stream));
    for token in [&pair.alice, &pair.bob, &personal] {
        assert_eq!(note(get(token)), 200);
        assert_eq!(note(turn(true).bearer(token)), 200);
    }
    let cookie = format!("__Host-botgate={}; other=canary-in-a-cookie", pair.alice);
    assert_eq!(note(Call::get("/v1/models").header("Cookie", &cookie)), 200);
    let from_own_page = turn(false).header("Cookie", &cookie).header("Origin", "http://127.0.0.1");
    assert_eq!(note(from_own_page), 200);
    for refused in [
        get(&unknown),
        get(&mcp),
        get(&Bot::of("alice").api_key),
        get(gateway.default_key()),
        get(&pair.alice).bearer(&pair.bob),
        get(&pair.alice).header("Cookie", &cookie),
        turn(false).header("Cookie", &cookie),
        Call::get("/p/bot-bob/v1/models").bearer(&pair.alice),
        Call::get("/mcp").bearer(&mcp),
        Call::get(&format!("/v1/models?key={}", pair.alice)),
    ] {
        assert_eq!(note(refused), 401);
    }
    assert_eq!(note(Call::get(&format!("/v1/{}", pair.alice)).bearer(&pair.alice)), 404);
    assert_eq!(note(Call::get("/v1/models/%41").bearer(&pair.alice)), 400);

    // A key that is refused, somebody else's key, and sessions that end.
    botgate.run_with(&["bot", "adopt", "bob", "--api-server-key-stdin"], wrong_key).failed();
    botgate.run_with(&["bot", "adopt", "bob", "--api-server-key-stdin"], &Bot::of("alice").api_key).failed();
    assert_eq!(note(get(&pair.bob)), 401);
    botgate.run_with(&["bot", "adopt", "bob", "--api-server-key-stdin"], &Bot::of("bob").api_key).done();
    let listed = botgate.run(&["--json", "session", "list", "alice"]).json();
    let newest = listed.as_array().and_then(|all| all.iter().max_by_key(|session| session["created_at"].as_i64()));
    let id = newest.and_then(|session| session["id"].as_str()).expect("alice has sessions").to_owned();
    botgate.run(&["session", "revoke", &id]).done();
    let (doctor, people) = (botgate.run(&["doctor"]), botgate.run(&["user", "list"]));
    let shown: Vec<String> = [&["bot", "list"][..], &["session", "list"], &["token", "list"], &["audit"]]
        .iter()
        .map(|arguments| botgate.run(arguments).done())
        .collect();

    let control: Value = serde_json::from_slice(&fs::read(botgate.path("data/admin/control.json")).expect("it serves"))
        .expect("the control file is JSON");
    let control = control["token"].as_str().expect("it has the token").to_owned();
    let master = fs::read_to_string(botgate.path("data/master.key")).expect("the master key is text");
    let secrets = [
        pair.alice.as_str(),
        pair.bob.as_str(),
        &personal,
        &mcp,
        &ended,
        &unknown,
        wrong_key,
        gateway.default_key(),
        &Bot::of("alice").api_key,
        &Bot::of("bob").api_key,
        &control,
        master.trim(),
        "canary-in-the-query",
        "canary-in-the-body",
        "canary-in-a-cookie",
        "sk-provider-",
    ];
    assert!(secrets.iter().all(|secret| secret.len() >= 10));
    eventually("the access log is written", SOON, || botgate.output().matches("/v1/models").count() >= 3);
    eventually("the audit log is written", SOON, || botgate.audit().iter().any(|record| record["kind"] == "close"));

    let mut everything = botgate.let_out();
    everything.extend(botgate.data_files());
    everything.extend(answers.into_iter().map(|answer| ("an answer".to_owned(), answer.into_bytes())));
    everything.extend(shown.into_iter().map(|text| ("standard output".to_owned(), text.into_bytes())));
    everything.push(("doctor".to_owned(), doctor.stdout.into_bytes()));
    everything.push(("people".to_owned(), people.stdout.into_bytes()));
    // The same search finds what may be there.
    for (place, text) in [
        ("output.1", "bot-alice"),
        ("data/audit/", "alice"),
        ("metrics", "botgate_refusals_total"),
        ("botgate.db", "SQLite"),
    ] {
        let found = everything.iter().any(|(name, bytes)| name.contains(place) && holds(bytes, text));
        let names: Vec<_> = everything.iter().map(|(name, _)| name).collect();
        assert!(found, "{text} in {place}, of {names:?}");
    }
    for (name, bytes) in &everything {
        for (at, secret) in secrets.iter().enumerate() {
            assert!(!holds(bytes, secret), "secret {at} is in {name}:\n{}", String::from_utf8_lossy(bytes));
        }
    }
}
