//! The official client straight at the gateway: what it must also get through the edge.

use serde_json::json;

use crate::support::client::openai;
use crate::support::hermes::{Bot, RealGateway};

#[test]
fn the_official_client_works_with_a_bots_own_key_and_path_only() {
    let gateway = RealGateway::shared();
    let (alice, bob) = (Bot::of("alice"), Bot::of("bob"));
    let base_url = format!("http://{}{}", gateway.address(), alice.path("/v1"));
    let seen = openai(&base_url, &alice.api_key, &alice.profile, "by the official client");
    let hello = "hello from stub";
    let expected = json!({"models": ["bot-alice"], "plain": hello, "streamed": hello, "response": hello});
    assert_eq!(seen, expected, "{}", gateway.output());
    let calls = gateway.model().calls_with("by the official client");
    assert!(calls.iter().all(|call| call.provider_key == alice.provider_key), "{calls:?}");

    let refused = openai(&base_url, &bob.api_key, &alice.profile, "with a neighbour's key");
    let error = json!({"status": 401, "error": "AuthenticationError", "code": "gateway_auth_failed"});
    assert_eq!(refused, json!({"refused": error}));
    assert!(gateway.model().calls_with("with a neighbour's key").is_empty());
}
