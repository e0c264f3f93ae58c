//! The old gateway takes the default key everywhere and a bot's own nowhere: it is found out, named and never served.

use serde_json::json;

use super::{SOON, chat, setup};
use crate::support::botgate::{Botgate, Setup};
use crate::support::hermes::{Bot, RealGateway};
use crate::support::http::Call;
use crate::support::poll_for;

const TEXT: &str = "nothing of this may reach the old gateway";

/// Every kind of request by each of two people.
#[track_caller]
fn answers(botgate: &Botgate, tokens: &[String; 2]) -> Vec<(u16, serde_json::Value)> {
    let calls = [
        Call::get("/v1/models"),
        Call::post("/v1/chat/completions", &chat(TEXT, false)),
        Call::post("/v1/chat/completions", &chat(TEXT, true)),
        Call::post("/v1/responses", &json!({"model": "any", "input": TEXT})),
        Call::post("/v1/runs", &json!({"input": TEXT})),
    ];
    let send = |call: &Call, token: &str| call.clone().bearer(token).send(botgate.address());
    let both = calls.iter().flat_map(|call| tokens.iter().map(move |token| send(call, token)));
    both.map(|answer| (answer.status, answer.json()["error"]["code"].clone())).collect()
}

fn served(setup: &Setup) -> (Botgate, [String; 2]) {
    let mut botgate = Botgate::new(setup);
    let tokens = ["alice", "bob"].map(|login| {
        botgate.add(login, &Bot::of(login));
        botgate.session(login)
    });
    botgate.serve();
    (botgate, tokens)
}

#[test]
fn with_the_default_key_at_hand_the_proof_says_that_it_opens_bots_and_nothing_is_served() {
    let gateway = RealGateway::shared_old();
    let (botgate, tokens) = served(&setup(gateway));
    for (status, code) in answers(&botgate, &tokens) {
        assert_eq!((status, code), (503, json!("gateway_unavailable")));
    }
    let fault = json!("default_key_accepted");
    let told = poll_for(SOON, || (botgate.readyz().json()["gateways"][0]["fault"] == fault).then_some(()));
    assert!(told.is_some(), "{}", botgate.readyz().body);
    let ready = botgate.readyz();
    assert_eq!((ready.status, ready.json()["gateways"][0]["isolation"].clone()), (503, json!("broken")));
    for (status, code) in answers(&botgate, &tokens) {
        assert_eq!((status, code), (503, json!("gateway_unavailable")));
    }
    assert_eq!(botgate.metric("botgate_binding_proof_success{gateway=\"main\"}"), 0.0);
    let results = |verdict| botgate.metric(&format!("botgate_bot_proofs{{gateway=\"main\",verdict=\"{verdict}\"}}"));
    assert!(
        poll_for(SOON, || (results("default_key_accepted") == 2.0).then_some(())).is_some(),
        "{}",
        botgate.metrics()
    );
    assert_eq!(results("proved"), 0.0);
    let doctor = botgate.run(&["doctor"]);
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.stdout.contains("default key accepted"), "{doctor:?}");
    let adopt = botgate.run_with(&["bot", "adopt", "bob", "--api-server-key-stdin"], &Bot::of("bob").api_key);
    let why = adopt.failed();
    assert!(why.contains("default key accepted") && why.contains("Hermes 0.20 or later"), "{why}");
    assert!(gateway.model().calls_with(TEXT).is_empty());
}

#[test]
fn without_the_default_key_its_refusal_of_bots_own_keys_is_told_and_nothing_is_served() {
    let gateway = RealGateway::shared_old();
    let (botgate, tokens) = served(&Setup::at(gateway.address()));
    let results = |verdict| botgate.metric(&format!("botgate_bot_proofs{{gateway=\"main\",verdict=\"{verdict}\"}}"));
    assert!(poll_for(SOON, || (results("wrong_key") == 2.0).then_some(())).is_some(), "{}", botgate.metrics());
    for (status, code) in answers(&botgate, &tokens) {
        assert_eq!((status, code), (401, json!("unauthorized")));
    }
    let ready = botgate.readyz();
    assert_eq!(ready.status, 503);
    assert_eq!(ready.json()["gateways"][0]["verdicts"], json!({"wrong_key": 2}), "{}", ready.body);
    let doctor = botgate.run(&["doctor"]);
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.stdout.contains("wrong key"), "{doctor:?}");
    assert!(gateway.model().calls_with(TEXT).is_empty());
}
