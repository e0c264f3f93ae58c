//! What a running gateway takes up without a restart.

use std::time::Duration;

use crate::support::eventually;
use crate::support::hermes::{Bot, RealGateway, Release};
use crate::support::http::Call;

fn status(gateway: &RealGateway, bot: &Bot, key: &str) -> u16 {
    Call::get(&bot.path("/v1/models")).bearer(key).send(gateway.address()).status
}

#[test]
fn profiles_and_keys_change_at_once() {
    let gateway = RealGateway::start(Release::Current, &[Bot::of("alice")]);
    let mut carol = Bot::of("carol");
    assert_eq!(status(&gateway, &carol, &carol.api_key), 404);

    gateway.add_bot(&carol);
    assert_eq!(status(&gateway, &carol, &carol.api_key), 200, "a profile is served from its rename on");
    assert_eq!(status(&gateway, &carol, gateway.default_key()), 401);
    assert_eq!(status(&gateway, &carol, &Bot::of("alice").api_key), 401);

    let old = std::mem::replace(&mut carol.api_key, "fixture-next-api-key-of-carol-0123456789".to_owned());
    gateway.rewrite_keys(&carol);
    assert_eq!(status(&gateway, &carol, &carol.api_key), 200, "a new key counts at once");
    assert_eq!(status(&gateway, &carol, &old), 401, "and the old one no more");

    carol.api_key = "too-short".to_owned();
    gateway.rewrite_keys(&carol);
    assert_eq!(status(&gateway, &carol, "too-short"), 401, "a weak key opens nothing");
    assert_eq!(status(&gateway, &carol, gateway.default_key()), 401, "nor does the default one instead");

    std::fs::remove_dir_all(gateway.home().join("profiles/bot-carol")).expect("the profile is there");
    eventually("the profile is gone", Duration::from_secs(5), || status(&gateway, &carol, &carol.api_key) == 404);
}
