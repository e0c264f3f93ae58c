//! The facts about the gateway that botgate relies on, tried on the real packages.

use botgate::lifecycle::contract::{Gateway, Outcome, Subject, Verdict, check};

use super::support::hermes::{Bot, RealGateway};

fn outcomes(gateway: &RealGateway) -> Vec<Outcome> {
    let subject =
        |bot: Bot| Subject::new(&bot.profile, &bot.api_key).expect("fixture keys fit a header");
    let target = Gateway::new(gateway.address(), subject(Bot::of("alice")))
        .with_neighbour(subject(Bot::of("bob")))
        .with_default_key(gateway.default_key());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
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
    let gateway = RealGateway::shared_old();
    let outcomes = outcomes(gateway);
    let verdict = |name: &str| {
        outcomes
            .iter()
            .find(|outcome| outcome.name == name)
            .map(|o| &o.verdict)
    };
    let broken = |text: &str| Some(Verdict::Broken(text.to_owned()));
    assert_eq!(
        verdict("own-key").cloned(),
        broken("status 401 instead of 200")
    );
    assert_eq!(
        verdict("default-key-refused").cloned(),
        broken("status 200 instead of 401")
    );
    for outcome in &outcomes {
        println!("{outcome}");
    }
}
