//! The official client through the edge: each person reaches their own bot, with its own provider key.

use serde_json::json;

use super::Pair;
use crate::support::client::{openai, openai_responses};
use crate::support::hermes::Bot;

#[test]
fn alice_and_bob_use_their_own_bots_through_the_official_client() {
    let pair = Pair::serve();
    let base_url = pair.botgate.base_url();
    for (login, token) in [("alice", &pair.alice), ("bob", &pair.bob)] {
        let (bot, text) = (Bot::of(login), format!("through the edge for {login}"));
        let seen = openai(&base_url, token, &bot.profile, &text);
        let hello = "hello from stub";
        let expected = json!({"models": [bot.profile], "plain": hello, "streamed": hello, "response": hello});
        assert_eq!(seen, expected, "{}", pair.botgate.output());
        let calls = pair.gateway.model().calls_with(&text);
        assert!(calls.len() >= 3 && calls.iter().all(|call| call.provider_key == bot.provider_key), "{calls:?}");
        let introduced = format!("You are {}.", bot.profile);
        assert!(calls.iter().any(|call| call.system.contains(&introduced)), "{calls:?}");
    }
    pair.botgate.settles();
}

#[test]
fn ones_own_path_works_and_another_persons_is_the_one_401() {
    let pair = Pair::serve();
    let base_url = |login| format!("http://{}/p/bot-{login}/v1", pair.botgate.address());
    let own = openai(&base_url("alice"), &pair.alice, "bot-alice", "on the long path");
    assert_eq!(own["models"], json!(["bot-alice"]), "{own}");
    let refused = openai(&base_url("bob"), &pair.alice, "bot-bob", "at bob's path");
    let error = json!({"status": 401, "error": "AuthenticationError", "code": "unauthorized"});
    assert_eq!(refused, json!({"refused": error}));
    assert!(pair.gateway.model().calls_with("at bob's path").is_empty());
}

#[test]
fn responses_are_made_streamed_found_again_and_deleted_by_their_owner_alone() {
    let pair = Pair::serve();
    let base_url = pair.botgate.base_url();
    for (token, other) in [(&pair.alice, &pair.bob), (&pair.bob, &pair.alice)] {
        let seen = openai_responses(&base_url, token, other, "kept for later");
        let hello = "hello from stub";
        let expected = json!({
            "created": hello, "streamed": hello, "last_event": "response.completed", "retrieved": hello,
            "by_other": 404, "deleted_by_other": 404, "deleted": true, "after": 404,
        });
        assert_eq!(seen, expected, "{}", pair.botgate.output());
    }
    pair.botgate.settles();
}
