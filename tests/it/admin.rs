//! What an operator does takes effect on the live edge at once, is stored, and is in the audit log.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use botgate::cli::stand_in::Isolation;
use botgate::directory::{BotStanding, GatewayStanding};
use botgate::secret::ApiServerKey;
use botgate::telemetry::audit::{Filter, Reader};
use botgate::telemetry::reason::Reason;
use serde_json::{Value, json};

use super::support::control::{Ground, Operator, login, profile};

/// Most time that ten thousand of something may take here; a release build on a quiet machine needs a fraction.
const TEN_THOUSAND: Duration = Duration::from_secs(20);

fn by(name: &str) -> Value {
    json!({ "login": name })
}

#[tokio::test]
async fn a_session_opens_until_it_is_revoked_and_what_runs_is_cut() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    let (token, id) = operator.sign_in("alice").await;
    let held = operator.look_up(&token).expect("a fresh session opens");
    let (other, _) = operator.sign_in("alice").await;
    let asked = json!({ "kind": "session", "ids": [id, "0123456789abcdef"], "login": null });
    let revoked = Operator::done(operator.call("/session/revoke", asked).await);
    assert_eq!(revoked, json!({ "revoked": 1, "unknown": ["0123456789abcdef"] }));
    assert!(held.cancelled().is_cancelled());
    assert_eq!(operator.look_up(&token).err(), Some(Reason::CredentialUnknown));
    assert!(operator.look_up(&other).is_ok());
    operator.close().await;
    let (operator, report) = ground.open().await;
    assert_eq!(report.sessions, 1, "a revoked session does not come back");
    assert!(operator.look_up(&other).is_ok() && operator.look_up(&token).is_err());
}

#[tokio::test]
async fn kinds_are_listed_and_revoked_apart() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    let (session, _) = operator.sign_in("alice").await;
    let asked = json!({ "logins": ["alice"], "count": 1, "ttl_ms": 1000, "label": "laptop" });
    Operator::done(operator.call("/session/create", asked).await);
    let list = json!({ "kind": "personal", "login": "alice", "after": null });
    let listed = Operator::done(operator.call("/session/list", list.clone()).await);
    assert_eq!(listed["sessions"][0]["label"], "laptop");
    let all = json!({ "kind": "personal", "ids": [], "login": "alice" });
    assert_eq!(Operator::done(operator.call("/session/revoke", all).await)["revoked"], 1);
    assert!(Operator::done(operator.call("/session/list", list).await)["sessions"].as_array().unwrap().is_empty());
    assert!(operator.look_up(&session).is_ok());
}

#[tokio::test]
async fn a_refused_key_is_kept_but_its_bot_is_not_served() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("bob", &ground.bob).await;
    Operator::done(operator.call("/user/add", json!({ "login": "alice", "role": "member" })).await);
    let adopt = |key: &ApiServerKey| json!({ "login": "alice", "gateway": "main", "api_server_key": key.expose() });
    let adopted = Operator::done(operator.call("/bot/adopt", adopt(&ApiServerKey::generate())).await);
    assert_eq!(adopted["proof"]["verdict"], "wrong_key");
    let standing = || operator.control.directory().bot(&login("alice")).expect("the bot is registered").standing();
    assert_eq!(standing(), BotStanding::Refused);
    // The same command with the right key mends it.
    let adopted = Operator::done(operator.call("/bot/adopt", adopt(&ground.alice)).await);
    assert_eq!(adopted["proof"]["verdict"], "proved");
    assert_eq!(standing(), BotStanding::Proved);
}

#[tokio::test]
async fn a_key_that_is_somebody_elses_is_refused_before_it_breaks_the_proof() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    Operator::done(operator.call("/user/add", json!({ "login": "bob", "role": "member" })).await);
    for key in [&ground.alice, &ground.default] {
        let asked = json!({ "login": "bob", "gateway": null, "api_server_key": key.expose() });
        let (status, failed) = operator.call("/bot/adopt", asked).await;
        assert_eq!((status, &failed["code"]), (StatusCode::CONFLICT, &json!("key_taken")), "{failed}");
    }
    let line = json!({ "login": "carol", "api_server_key": ground.alice.expose() });
    let imported = Operator::done(operator.call("/user/import", line).await);
    assert_eq!((&imported["added"], &imported["refused"]), (&json!(0), &json!(1)), "{imported}");
    assert_eq!(operator.control.gateways()[0].standing(), GatewayStanding::Proved);
}

#[tokio::test]
async fn disabling_refuses_and_cuts_and_enabling_brings_sessions_back_also_after_a_restart() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    let (token, _) = operator.sign_in("alice").await;
    let held = operator.look_up(&token).expect("a fresh session opens");
    Operator::done(operator.call("/user/disable", by("alice")).await);
    assert!(held.cancelled().is_cancelled());
    assert_eq!(operator.look_up(&token).err(), Some(Reason::PersonDisabled));
    let asked = json!({ "logins": ["alice", "nobody"], "count": 1, "ttl_ms": 1000, "label": null });
    let issued = Operator::done(operator.call("/session/create", asked).await);
    assert_eq!((issued["tokens"].as_array().unwrap().len(), issued["refused"].as_array().unwrap().len()), (0, 2));
    operator.close().await;
    let (operator, _) = ground.open().await;
    assert!(operator.look_up(&token).is_err());
    Operator::done(operator.call("/user/enable", by("alice")).await);
    assert!(operator.look_up(&token).is_ok());
    assert!(held.cancelled().is_cancelled(), "what was cut stays cut");
}

#[tokio::test]
async fn enabling_somebody_who_is_in_cuts_nothing() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    let (token, _) = operator.sign_in("alice").await;
    let held = operator.look_up(&token).expect("a fresh session opens");
    Operator::done(operator.call("/user/enable", by("alice")).await);
    assert!(!held.cancelled().is_cancelled() && operator.look_up(&token).is_ok());
}

#[tokio::test]
async fn lockdown_revokes_for_good_and_names_the_keys_to_change() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    operator.with_bot("bob", &ground.bob).await;
    let ((alice, _), (bob, _)) = (operator.sign_in("alice").await, operator.sign_in("bob").await);
    let locked = Operator::done(operator.call("/lockdown", by("alice")).await);
    assert_eq!((&locked["people"], &locked["sessions"]), (&json!(1), &json!(1)));
    assert!(operator.look_up(&alice).is_err() && operator.look_up(&bob).is_ok());
    let locked = Operator::done(operator.call("/lockdown", json!({ "login": null })).await);
    let keys: Vec<_> = locked["keys"].as_array().unwrap().iter().map(|key| key["profile"].clone()).collect();
    assert_eq!(keys, ["bot-alice", "bot-bob"]);
    Operator::done(operator.call("/user/enable", by("bob")).await);
    assert_eq!(operator.look_up(&bob).err(), Some(Reason::CredentialUnknown));
}

#[tokio::test]
async fn who_is_to_be_refused_is_refused_also_when_the_store_fails() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    operator.with_bot("bob", &ground.bob).await;
    let ((alice, _), (bob, _)) = (operator.sign_in("alice").await, operator.sign_in("bob").await);
    operator.control.store().close().await.expect("the store closes");
    let (status, failed) = operator.call("/user/disable", by("alice")).await;
    assert_eq!((status, &failed["code"]), (StatusCode::INTERNAL_SERVER_ERROR, &json!("not_stored")), "{failed}");
    assert!(operator.look_up(&alice).is_err() && operator.look_up(&bob).is_ok());
    let (_, failed) = operator.call("/lockdown", json!({ "login": null })).await;
    assert_eq!(failed["code"], "not_stored");
    assert!(operator.look_up(&bob).is_err());
}

#[tokio::test]
async fn what_is_to_be_revoked_is_cut_also_when_the_store_fails() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    let ((first, id), (second, _)) = (operator.sign_in("alice").await, operator.sign_in("alice").await);
    operator.control.store().close().await.expect("the store closes");
    for (ids, login, still) in [(json!([id]), json!(null), true), (json!([]), json!("alice"), false)] {
        let asked = json!({ "kind": "session", "ids": ids, "login": login });
        let (_, failed) = operator.call("/session/revoke", asked).await;
        assert_eq!(failed["code"], "not_stored", "{failed}");
        assert!(operator.look_up(&first).is_err());
        assert_eq!(operator.look_up(&second).is_ok(), still);
    }
}

#[tokio::test]
async fn a_deleted_person_stays_an_orphan_until_the_profile_is_gone() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    let (token, _) = operator.sign_in("alice").await;
    let deleted = Operator::done(operator.call("/user/delete", by("alice")).await);
    assert_eq!((&deleted["finished"], &deleted["profile"]), (&json!(false), &json!("bot-alice")), "{deleted}");
    assert!(operator.look_up(&token).is_err() && operator.control.directory().bot(&login("alice")).is_none());
    assert_eq!(operator.control.orphans(), 1);
    let (_, failed) = operator.call("/user/add", json!({ "login": "alice", "role": "member" })).await;
    assert_eq!(failed["code"], "login_taken");
    operator.close().await;
    let (operator, report) = ground.open().await;
    assert_eq!((operator.control.orphans(), report.bots), (1, 0), "it stays so over a restart");
    let leaving: Vec<_> = report.leaving.iter().map(|bot| bot.profile().as_str()).collect();
    assert_eq!(leaving, ["bot-alice"], "what the bot still runs can be stopped");
    let reconciled = Operator::done(operator.call("/reconcile", json!({ "apply": true })).await);
    assert_eq!(reconciled["orphans"][0]["finished"], false, "the profile is still there");
    ground.stand_in.remove_bot(&profile("alice"));
    let reconciled = Operator::done(operator.call("/reconcile", json!({ "apply": false })).await);
    assert_eq!(reconciled["orphans"][0]["finished"], false, "a plan changes nothing");
    let reconciled = Operator::done(operator.call("/reconcile", json!({ "apply": true })).await);
    assert_eq!(reconciled["orphans"][0]["finished"], true);
    assert_eq!(operator.control.orphans(), 0);
    Operator::done(operator.call("/user/add", json!({ "login": "alice", "role": "member" })).await);
}

#[tokio::test]
async fn a_silent_gateway_is_no_proof_that_a_profile_is_gone() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    let Ground { stand_in, dir: _kept, .. } = ground;
    stand_in.stop();
    let deleted = Operator::done(operator.call("/user/delete", by("alice")).await);
    assert_eq!(deleted["finished"], false, "{deleted}");
    assert_eq!(operator.control.orphans(), 1);
}

#[tokio::test]
async fn ten_thousand_people_and_sessions_take_seconds() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    let mut lines = Vec::new();
    for number in 0..10_000 {
        let key = ApiServerKey::generate();
        let line = json!({ "login": format!("person-{number}"), "role": "member", "api_server_key": key.expose() });
        lines.extend_from_slice(line.to_string().as_bytes());
        lines.push(b'\n');
    }
    let since = Instant::now();
    let imported = Operator::done(operator.send("/user/import", lines.clone()).await);
    assert_eq!((&imported["added"], &imported["bots"]), (&json!(10_000), &json!(10_000)), "{imported}");
    let logins: Vec<String> = (0..10_000).map(|number| format!("person-{number}")).collect();
    let asked = json!({ "logins": logins, "count": 1, "ttl_ms": 3_600_000, "label": null });
    let issued = Operator::done(operator.call("/session/create", asked).await);
    assert_eq!(issued["tokens"].as_array().unwrap().len(), 10_000);
    assert!(since.elapsed() < TEN_THOUSAND, "{:?}", since.elapsed());
    assert_eq!(operator.control.sessions().len(), 10_000);
    let again = Operator::done(operator.send("/user/import", lines).await);
    assert_eq!((&again["added"], &again["refused"]), (&json!(0), &json!(10_000)));
    assert_eq!(again["problems"].as_array().unwrap().len(), 100, "the trouble that is told is bounded");
    let (status, _) = operator
        .call("/session/create", json!({ "logins": ["person-1"], "count": 10_001, "ttl_ms": 1, "label": null }))
        .await;
    assert_eq!(status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_call_that_is_not_one_is_refused_and_repeats_no_secret() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    let secret = "fixture-secret-0123456789";
    for (path, body) in [
        ("/user/add", "{".to_owned()),
        ("/user/add", json!({ "login": " alice", "role": "member" }).to_string()),
        ("/user/add", json!({ "login": "alice", "role": "member", "more": 1 }).to_string()),
        ("/bot/adopt", json!({ "login": "alice", "api_server_key": [secret] }).to_string()),
        ("/bot/adopt", json!({ "login": "alice", "gateway": null, "api_server_key": secret }).to_string()),
        ("/session/create", json!({ "logins": ["a"], "count": 1, "ttl_ms": 0, "label": null }).to_string()),
        ("/session/revoke", json!({ "kind": "session", "ids": ["aa"], "login": "alice" }).to_string()),
        ("/no/such", "{}".to_owned()),
    ] {
        let (status, failed) = operator.send(path, body.clone().into_bytes()).await;
        assert!(status.is_client_error(), "{path} {body}: {status}");
        assert!(failed["message"].is_string() && !failed.to_string().contains(secret), "{failed}");
    }
}

#[tokio::test]
async fn every_action_is_in_the_audit_log_with_its_caller() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    let (_, id) = operator.sign_in("alice").await;
    operator.call("/session/revoke", json!({ "kind": "session", "ids": [id], "login": null })).await;
    let token = Operator::done(operator.call("/bot/token", by("alice")).await);
    operator.call("/user/disable", by("alice")).await;
    operator.call("/user/enable", by("alice")).await;
    operator.call("/lockdown", by("alice")).await;
    operator.call("/user/delete", by("alice")).await;
    operator.send("/user/import", b"{\"login\":\"zoe\"}".to_vec()).await;
    operator.close().await;
    let mut reader = Reader::new(&ground.data_dir().join("audit"), Filter::default());
    let (mut actions, mut text) = (Vec::new(), String::new());
    while let Some(entry) = reader.next_entry().expect("the log can be read") {
        text.push_str(entry.text());
        if entry.kind() == "action" {
            assert_eq!(entry.value()["unix_uid"], 4242);
            actions.push(entry.value()["action"].as_str().expect("a word").to_owned());
        }
    }
    let expected = [
        "user.add",
        "bot.adopt",
        "session.create",
        "session.revoke",
        "bot.token",
        "user.disable",
        "user.enable",
        "lockdown",
        "user.delete",
        "user.import",
    ];
    assert_eq!(actions, expected);
    for secret in [ground.alice.expose(), token["token"].as_str().expect("a token")] {
        assert!(!text.contains(secret));
    }
}

#[tokio::test]
async fn doctor_tells_a_gateway_that_takes_the_default_key() {
    let ground = Ground::new();
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    let wrong = |found: &Value| {
        let findings = found["findings"].as_array().unwrap().clone();
        findings.into_iter().filter(|finding| finding["state"] == "wrong").collect::<Vec<_>>()
    };
    let found = Operator::done(operator.call("/doctor", json!({})).await);
    assert!(wrong(&found).is_empty(), "{found:#}");
    ground.stand_in.set_isolation(Isolation::DefaultKeyToo);
    let found = Operator::done(operator.call("/doctor", json!({})).await);
    assert!(wrong(&found).iter().any(|f| f["message"].as_str().unwrap().contains("default key accepted")), "{found:#}");
    let tried = Operator::done(operator.call("/doctor/contract", json!({})).await);
    let facts = tried["gateways"][0]["facts"].as_array().unwrap().clone();
    let broken: Vec<_> = facts.iter().filter(|fact| fact["state"] == "broken").map(|fact| &fact["name"]).collect();
    assert!(broken.contains(&&json!("default-key-refused")), "{broken:?}");
}

#[tokio::test]
async fn a_gateway_that_comes_up_as_the_edges_own_user_is_not_served() {
    let ground = Ground::new();
    let text = std::fs::read_to_string(ground.config()).expect("the configuration file");
    std::fs::write(ground.config(), text.replace("allow_same_user = true\n", "")).expect("the configuration file");
    let (operator, _) = ground.open().await;
    operator.with_bot("alice", &ground.alice).await;
    let gateway = &operator.control.gateways()[0];
    assert_eq!(gateway.standing(), GatewayStanding::Proved);
    operator.control.look_at_users().await;
    assert_eq!(gateway.standing(), GatewayStanding::ProofFailed);
    let proved = operator.call("/bot/prove", by("alice")).await;
    assert_eq!(Operator::done(proved)["verdict"], "proved");
    assert_eq!(gateway.standing(), GatewayStanding::ProofFailed, "no proof brings it back");
    ground.stand_in.stop();
    operator.control.look_at_users().await;
    assert_eq!(gateway.standing(), GatewayStanding::ProofFailed, "who does not listen is nobody else");
}
