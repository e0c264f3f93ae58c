//! Keys changed by hand and profiles deleted at the gateway: that bot alone is refused, and what heals it.

use serde_json::json;

use super::{SOON, chat, setup};
use crate::support::botgate::Botgate;
use crate::support::eventually;
use crate::support::hermes::{Bot, RealGateway};
use crate::support::http::{Answer, Call};

const REFUSED: &str = "botgate_upstream_errors_total{gateway=\"main\",kind=\"unauthorized\"}";
const UNKNOWN: &str = "botgate_upstream_errors_total{gateway=\"main\",kind=\"unknown_profile\"}";

/// bob and somebody with a bot of this test's own at the shared gateway.
struct Two {
    gateway: &'static RealGateway,
    botgate: Botgate,
    login: &'static str,
    bot: Bot,
    token: String,
    bob: String,
}

impl Two {
    #[track_caller]
    fn serve(login: &'static str) -> Self {
        let (gateway, bot) = (RealGateway::shared(), Bot::of(login));
        gateway.add_bot(&bot);
        let mut botgate = Botgate::new(&setup(gateway));
        botgate.add(login, &bot);
        botgate.add("bob", &Bot::of("bob"));
        let (token, bob) = (botgate.session(login), botgate.session("bob"));
        botgate.serve_until_ready();
        let two = Self { gateway, botgate, login, bot, token, bob };
        assert_eq!((two.models(&two.token).status, two.models(&two.bob).status), (200, 200));
        two
    }

    fn models(&self, token: &str) -> Answer {
        Call::get("/v1/models").bearer(token).send(self.botgate.address())
    }

    /// The standing of the bot, as `bot list` tells it.
    fn standing(&self) -> serde_json::Value {
        let bots = self.botgate.run(&["--json", "bot", "list"]).json();
        let own = bots.as_array().into_iter().flatten().find(|bot| bot["login"] == self.login);
        own.map(|bot| bot["standing"].clone()).unwrap_or_default()
    }
}

/// What the client sees of an answer, but for what may differ.
fn seen(answer: &Answer) -> (u16, String, Option<String>) {
    (answer.status, answer.body.clone(), answer.header("www-authenticate").map(str::to_owned))
}

#[test]
fn a_key_changed_in_the_profile_refuses_that_bot_alone_until_the_new_one_is_adopted() {
    let two = Two::serve("rotated");
    let renewed = Bot { api_key: "fixture-renewed-key-0123456789abcdef0123".to_owned(), ..two.bot.clone() };
    two.gateway.rewrite_keys(&renewed);

    let refused = two.models(&two.token);
    let stranger = two.models("bgs_nobody");
    assert_eq!(seen(&refused), seen(&stranger), "the one 401");
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert!(two.botgate.metric(REFUSED) >= 1.0, "an alarm");
    eventually("it is proved anew", SOON, || two.standing() == "refused");
    for stream in [false, true] {
        let turn = Call::post("/v1/chat/completions", &chat("by a bot whose key is refused", stream));
        assert_eq!(seen(&turn.bearer(&two.token).send(two.botgate.address())), seen(&stranger));
    }
    assert!(two.gateway.model().calls_with("by a bot whose key is refused").is_empty());
    assert_eq!(two.models(&two.bob).status, 200, "others are unaffected");
    assert_eq!(two.botgate.readyz().status, 200);
    let why = two.botgate.run(&["bot", "prove", "rotated"]).failed();
    assert!(why.contains("wrong key") && why.contains("bot adopt"), "{why}");

    let adopt = ["bot", "adopt", "rotated", "--api-server-key-stdin"];
    assert!(two.botgate.run_with(&adopt, &two.bot.api_key).failed().contains("wrong key"));
    assert_eq!(two.models(&two.token).status, 401, "the old key heals nothing");
    two.botgate.run_with(&adopt, &renewed.api_key).done();
    assert_eq!(two.models(&two.token).status, 200);
    let turn = Call::post("/v1/chat/completions", &chat("ECHO:healed", false)).bearer(&two.token);
    let answer = turn.send(two.botgate.address());
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "healed", "{}", answer.body);
}

#[test]
fn a_deleted_profile_is_refused_and_its_persons_deletion_ends() {
    let two = Two::serve("gone");
    two.gateway.remove_bot(&two.bot);
    let refused = two.models(&two.token);
    assert_eq!(seen(&refused), seen(&two.models("bgs_nobody")), "the one 401");
    assert!(two.botgate.metric(UNKNOWN) >= 1.0, "an alarm");
    eventually("it is proved anew", SOON, || two.standing() == "refused");
    assert_eq!(two.models(&two.bob).status, 200);
    let why = two.botgate.run(&["bot", "prove", "gone"]).failed();
    assert!(why.contains("unserved profile"), "{why}");
    two.botgate.run(&["user", "delete", "gone"]).done();
    assert_eq!(two.models(&two.token).status, 401);
    assert_eq!(two.botgate.metric("botgate_orphan_profiles"), 0.0);
    two.botgate.run(&["user", "add", "gone"]).done();
    assert_eq!(two.models(&two.token).status, 401, "the login's next person is somebody else");
}

#[test]
fn a_deletion_waits_for_the_profile_and_is_finished_later() {
    let two = Two::serve("leaving");
    let why = two.botgate.run(&["user", "delete", "leaving"]).failed();
    assert!(why.contains("bot-leaving") && why.contains("hermes profile delete bot-leaving"), "{why}");
    assert_eq!(two.models(&two.token).status, 401, "cut off at once");
    assert_eq!(two.botgate.metric("botgate_orphan_profiles"), 1.0);
    two.botgate.run(&["user", "add", "leaving"]).failed();
    two.botgate.run(&["user", "delete", "leaving"]).failed();
    let people = two.botgate.run(&["--json", "user", "list"]).json();
    let states: Vec<_> = people.as_array().into_iter().flatten().map(|p| json!([p["login"], p["state"]])).collect();
    assert!(states.contains(&json!(["leaving", "deleting"])), "{people}");

    two.gateway.remove_bot(&two.bot);
    two.botgate.run(&["user", "delete", "leaving"]).done();
    assert_eq!(two.botgate.metric("botgate_orphan_profiles"), 0.0);
    assert_eq!(two.models(&two.token).status, 401);
    assert_eq!(two.models(&two.bob).status, 200);
    two.botgate.run(&["user", "add", "leaving"]).done();
}
