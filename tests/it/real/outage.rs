//! The gateway stops and starts under a serving edge: told as 503 that may be repeated, and over by itself.

use serde_json::json;

use super::{SOON, chat, setup};
use crate::support::botgate::Botgate;
use crate::support::hermes::{Bot, RealGateway, Release};
use crate::support::http::{Answer, Call};
use crate::support::{eventually, poll_for};

#[track_caller]
fn is_told_to_repeat(answer: &Answer) {
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert_eq!(answer.json()["error"]["code"], "gateway_unavailable");
    assert_eq!((answer.header("retry-after"), answer.header("x-should-retry")), (Some("1"), Some("true")));
}

#[test]
fn a_gateway_that_stops_and_starts_is_waited_for() {
    let alice = Bot::of("alice");
    let mut gateway = RealGateway::start(Release::Current, std::slice::from_ref(&alice));
    let mut botgate = Botgate::new(&setup(&gateway));
    botgate.add("alice", &alice);
    let token = botgate.session("alice");
    botgate.serve_until_ready();
    let get = |botgate: &Botgate| Call::get("/v1/models").bearer(&token).send(botgate.address());
    let turn = |botgate: &Botgate, word: &str| {
        let call = Call::post("/v1/chat/completions", &chat(&format!("ECHO:{word}"), false));
        call.bearer(&token).send(botgate.address())
    };
    // Connections to the gateway are kept from now on.
    assert_eq!((get(&botgate).status, turn(&botgate, "before").status), (200, 200));

    gateway.stop();
    for answer in [get(&botgate), turn(&botgate, "meanwhile")] {
        is_told_to_repeat(&answer);
    }
    assert_eq!(botgate.turns(), (0.0, 0.0), "what was refused holds no permit");
    // The last proof stands for a while: an edge whose gateway restarts is not taken out of service.
    assert_eq!(botgate.readyz().status, 200);
    assert!(botgate.metric("botgate_upstream_errors_total{gateway=\"main\",kind=\"connect\"}") >= 2.0);
    let doctor = botgate.run(&["doctor"]);
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.stdout.contains("unreachable"), "{}", doctor.stdout);
    assert_eq!(botgate.readyz().json()["gateways"][0]["reachable"], false);

    gateway.start_again();
    let answer = turn(&botgate, "after");
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "after", "{}", answer.body);
    assert_eq!(get(&botgate).status, 200);

    // Restarted between two requests, so that every kept connection is stale: the turn must not notice.
    gateway.stop();
    gateway.start_again();
    let answer = turn(&botgate, "stale");
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "stale", "{}", answer.body);

    // An edge that starts before its gateway.
    assert!(botgate.stop(), "{}", botgate.output());
    gateway.stop();
    botgate.serve();
    for answer in [get(&botgate), turn(&botgate, "too early")] {
        is_told_to_repeat(&answer);
    }
    let told = poll_for(SOON, || {
        (botgate.readyz().json()["gateways"][0]["verdicts"] == json!({"unreachable": 1})).then_some(())
    });
    assert!(told.is_some(), "{}", botgate.readyz().body);
    assert_eq!(botgate.readyz().status, 503);
    gateway.start_again();
    botgate.becomes_ready();
    assert_eq!(get(&botgate).status, 200);
    assert!(gateway.model().calls_with("meanwhile").is_empty() && gateway.model().calls_with("too early").is_empty());
}

#[test]
fn a_draining_gateway_finishes_its_streams_and_refuses_new_turns() {
    let alice = Bot::of("alice");
    let gateway = RealGateway::start(Release::Current, std::slice::from_ref(&alice));
    let mut botgate = Botgate::new(&setup(&gateway));
    botgate.add("alice", &alice);
    let token = botgate.session("alice");
    botgate.serve_until_ready();
    let call = Call::post("/v1/chat/completions", &chat("HOLD until the drain", true)).bearer(&token);
    let mut held = gateway.begin("HOLD", || call.open(botgate.address()));
    gateway.terminate();
    let late = Call::post("/v1/chat/completions", &chat("too late", false)).bearer(&token);
    let mut last = None;
    eventually("new turns are refused", SOON, || {
        let answer = late.send(botgate.address());
        let refused = answer.status == 503;
        last = Some(answer);
        refused
    });
    let refused = last.expect("the loop ran");
    assert_eq!(refused.header("retry-after"), Some("1"), "{}", refused.body);
    gateway.model().release();
    let rest = held.read_until("data: [DONE]\n\n");
    assert!(rest.contains("stub"), "{rest}");
    assert_eq!(held.next_chunk(), None, "a whole stream ends like one");
    let gone = || Call::get("/v1/models").bearer(&token).send(botgate.address());
    eventually("the gateway is gone", SOON, || gone().status == 503);
    is_told_to_repeat(&gone());
    botgate.settles();
}
