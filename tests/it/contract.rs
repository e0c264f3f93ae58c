//! The facts about the gateway that botgate relies on, tried on the real packages.

mod change;
mod client;
mod runs;
mod turns;

use botgate::lifecycle::contract::{Gateway, Outcome, Subject, Verdict, check};

use super::support::hermes::{Bot, RealGateway};
use super::support::http::Call;

fn outcomes(gateway: &RealGateway) -> Vec<Outcome> {
    let subject = |bot: Bot| Subject::new(&bot.profile, &bot.api_key).expect("fixture keys fit a header");
    let target = Gateway::new(gateway.address(), subject(Bot::of("alice")))
        .with_neighbour(subject(Bot::of("bob")))
        .with_default_key(gateway.default_key());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(check(&target))
}

#[test]
fn the_current_gateway_holds_every_cheap_fact() {
    let gateway = RealGateway::shared();
    let failed: Vec<_> = outcomes(gateway)
        .into_iter()
        .filter(|outcome| outcome.verdict != Verdict::Holds)
        .map(|outcome| outcome.to_string())
        .collect();
    assert!(failed.is_empty(), "{failed:#?}\n{}", gateway.output());
}

#[test]
fn the_old_gateway_fails_by_name() {
    let outcomes = outcomes(RealGateway::shared_old());
    let broken: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| match &outcome.verdict {
            Verdict::Broken(how) => Some((outcome.name, how.as_str())),
            Verdict::Holds | Verdict::Untried(_) => None,
        })
        .collect();
    let expected = [
        ("own-key", "status 401 instead of 200"),
        ("default-key-refused", "status 200 instead of 401"),
        ("refusal-code", "status 401, but another error code"),
        ("capabilities", "status 401 instead of 200"),
        ("absent-run", "status 401 instead of 404"),
    ];
    assert_eq!(broken, expected);
}

#[test]
fn facts_without_their_key_or_gateway_are_untried() {
    let own = Subject::new("bot-alice", "a-key-for-nobody").expect("it fits a header");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let target = Gateway::new(nobody.expect("a loopback port"), own);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    for outcome in runtime.expect("a runtime").block_on(check(&target)) {
        assert!(matches!(outcome.verdict, Verdict::Untried(_)), "{outcome}");
    }
}

/// Why the edge builds the upstream path itself: other spellings of a profile reach it too.
#[test]
fn an_encoded_profile_name_reaches_the_bot() {
    let gateway = RealGateway::shared();
    let alice = Bot::of("alice");
    for segment in ["bot%2Dalice", "bot-alice%20", "%20bot-alice", "bot-alice%0a"] {
        let answer = Call::get(&format!("/p/{segment}/v1/models")).bearer(&alice.api_key).send(gateway.address());
        assert_eq!((segment, answer.status), (segment, 200));
        assert_eq!(answer.json()["data"][0]["id"], "bot-alice");
    }
}

/// Why the edge never lets a client's own Authorization through beside its own.
#[test]
fn of_two_keys_the_first_counts() {
    let gateway = RealGateway::shared();
    let (alice, bob) = (Bot::of("alice"), Bot::of("bob"));
    let status = |first: &Bot, second: &Bot| {
        let call = Call::get(&alice.path("/v1/models")).bearer(&first.api_key).bearer(&second.api_key);
        call.send(gateway.address()).status
    };
    assert_eq!(status(&alice, &bob), 200);
    assert_eq!(status(&bob, &alice), 401);
}
