//! The order of decisions: nothing later is revealed before something earlier holds, and no body is asked for before
//! admission.

use std::time::Duration;

use botgate::directory::GatewayStanding;
use botgate::names::Login;

use crate::support::edge::{TestEdge, config};
use crate::support::eventually;
use crate::support::wire::{End, Wire, chat, get, head};

const CHAT: &str = "/v1/chat/completions";

/// What can be wrong with a request, in the order in which it is looked at, and the answer to it.
const FAULTS: [(&str, u16); 10] = [
    ("target", 400),
    ("host", 421),
    ("credential", 401),
    ("another's bot", 401),
    ("route", 404),
    ("method", 405),
    ("encoding", 415),
    ("length", 413),
    ("expectation", 417),
    ("gateway", 503),
];

/// A turn with the faults whose bits are set. `GATEWAY` is not the request's own.
fn request(faults: usize, token: &str) -> String {
    let has = |name: &str| FAULTS.iter().position(|fault| fault.0 == name).is_some_and(|bit| faults >> bit & 1 == 1);
    let body = chat("hello", false);
    let pick = |fault, bad: &str, good: &str| if has(fault) { bad.to_owned() } else { good.to_owned() };
    let mut text = pick("method", "PUT ", "POST ");
    text += &pick("another's bot", "/p/bot-bob", "/p/bot-alice");
    text += &pick("target", "/.", "");
    text += &pick("route", "/v1/nothing", CHAT);
    text += " HTTP/1.1\r\nHost: ";
    text += &pick("host", "elsewhere.example\r\n", "127.0.0.1\r\n");
    text += &pick("credential", "", &format!("Authorization: Bearer {token}\r\n"));
    text += &pick("encoding", "Content-Encoding: gzip\r\n", "");
    text += &pick("expectation", "Expect: a-miracle\r\n", "");
    text += &pick("length", "Content-Length: 10000001\r\n", &format!("Content-Length: {}\r\n", body.len()));
    text + "\r\n" + &pick("length", "", &body)
}

#[test]
fn of_all_that_is_wrong_the_first_decides() {
    let edge = TestEdge::start();
    let alice = edge.edge.parts().directory.bot(&Login::parse("alice").expect("a login")).expect("alice has a bot");
    let gateway = 1 << (FAULTS.len() - 1);
    for faults in 0..1 << FAULTS.len() {
        let starting = faults & gateway != 0;
        alice.gateway().set_standing(if starting { GatewayStanding::Starting } else { GatewayStanding::Proved });
        let first = FAULTS.iter().enumerate().find(|(bit, _)| faults >> bit & 1 == 1);
        let expected = first.map_or(200, |(_, fault)| fault.1);
        let mut wire = Wire::connect(edge.address);
        wire.send(request(faults, edge.token("alice")));
        let names: Vec<_> = (0..FAULTS.len()).filter(|bit| faults >> bit & 1 == 1).map(|bit| FAULTS[bit].0).collect();
        assert_eq!(wire.answer().status(), expected, "{names:?}");
    }
    assert_eq!(edge.stand_in.requests().len(), 1, "only the faultless one is forwarded");
}

#[test]
fn a_wrong_method_is_told_only_to_whom_the_bot_belongs() {
    let edge = TestEdge::start();
    let ask = |target: &str, token: &str| {
        let mut wire = Wire::connect(edge.address);
        wire.send(head("DELETE", target, token) + "\r\n");
        let answer = wire.answer();
        (answer.status(), answer.header("allow").map(str::to_owned))
    };
    assert_eq!(ask("/v1/models", edge.token("alice")), (405, Some("GET".to_owned())));
    assert_eq!(ask("/p/bot-bob/v1/models", edge.token("alice")), (401, None));
    assert_eq!(ask("/v1/models", ""), (401, None));
}

/// A turn without a credential whose body comes in these transfer codings.
fn coded(codings: &str) -> String {
    format!("POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: {codings}\r\n\r\n0\r\n\r\n")
}

#[test]
fn connect_trace_and_large_heads_are_refused_before_any_credential() {
    let edge = TestEdge::start();
    let long = "x".repeat(8_191);
    let many = "X-Stainless-Lang: x\r\n".repeat(97);
    let target = format!("/v1/models?{}", "x".repeat(8_190));
    for (request, status) in [
        ("TRACE /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned(), 405),
        ("CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned(), 405),
        (format!("GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: {long}\r\n\r\n"), 431),
        (format!("GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n{many}\r\n"), 431),
        (format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"), 414),
        ("GET /v1/models HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".to_owned(), 505),
        ("GET /v1/models HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned(), 400),
        ("GET http://127.0.0.2/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned(), 400),
        ("OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned(), 400),
        (coded("gzip, chunked"), 400),
        (coded("chunked, chunked"), 400),
        (coded(",chunked"), 400),
        (coded("chunked\r\nTransfer-Encoding: chunked"), 400),
        (coded("identity\r\nTransfer-Encoding: chunked"), 400),
        (coded("Chunked"), 401),
    ] {
        let mut wire = Wire::connect(edge.address);
        wire.send(&request);
        assert_eq!(wire.answer().status(), status, "{}", request.get(..60).unwrap_or(&request));
    }
    assert!(edge.stand_in.requests().is_empty());
}

#[test]
fn the_edges_own_pages_come_before_the_credential() {
    let edge = TestEdge::start();
    for (target, token, status) in [
        ("/health", "", 200),
        ("/health", "nonsense", 200),
        ("/.botgate/anything", "", 404),
        ("/mcp", edge.token("alice"), 401),
        ("/p/bot-alice/health", edge.token("alice"), 404),
    ] {
        let mut wire = Wire::connect(edge.address);
        wire.send(get(target, token));
        assert_eq!(wire.answer().status(), status, "{target} {token}");
    }
}

#[test]
fn a_store_that_is_silent_too_long_is_told_whatever_the_credential() {
    let edge = TestEdge::stale();
    for token in ["", "nonsense", edge.token("alice")] {
        let mut wire = Wire::connect(edge.address);
        wire.send(get("/p/bot-bob/v1/nothing", token));
        let answer = wire.answer();
        assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("1")), "{token}");
    }
    let mut wire = Wire::connect(edge.address);
    wire.send(get("/health", ""));
    assert_eq!(wire.answer().status(), 200, "the edge's own page does not need the store");
}

/// A turn that asks before it sends its body.
fn asking_first(target: &str, token: &str, body: &str) -> String {
    format!("{}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", head("POST", target, token), body.len())
}

#[test]
fn a_body_is_asked_for_only_once_the_request_is_admitted() {
    let edge = TestEdge::start();
    let body = chat("hello", false);
    for (target, token, status) in [
        (CHAT, "", 401),
        (CHAT, "bgs_nonsense", 401),
        ("/p/bot-bob/v1/chat/completions", edge.token("alice"), 401),
        ("/v1/nothing", edge.token("alice"), 404),
        ("/v1/models", edge.token("alice"), 405),
    ] {
        let mut wire = Wire::connect(edge.address);
        wire.send(asking_first(target, token, &body));
        assert_eq!(wire.answer().status(), status, "{target}: no 100 before it");
    }
    let mut wire = Wire::connect(edge.address);
    wire.send(asking_first(CHAT, edge.token("alice"), &body));
    assert_eq!(wire.head(), ["HTTP/1.1 100 Continue"]);
    wire.send(&body);
    assert_eq!(wire.answer().status(), 200);
}

#[test]
fn a_body_is_not_read_while_its_turn_waits() {
    let mut config = config();
    config.limits.turns_per_person = 1;
    config.limits.max_body_bytes = 1 << 30;
    let edge = TestEdge::with(config, |_| {});
    let mut running = Wire::connect(edge.address);
    running.send(crate::support::wire::post(CHAT, edge.token("alice"), &chat("SILENCE:60", true)));
    running.until("I am");

    let body = chat("hello", false);
    let mut asking = Wire::connect(edge.address);
    asking.send(asking_first(CHAT, edge.token("alice"), &body));
    let mut sending = Wire::connect(edge.address);
    sending.send(format!("{}Content-Length: {}\r\n\r\n", head("POST", CHAT, edge.token("alice")), 1 << 28));
    eventually("both wait", Duration::from_secs(5), || edge.turns.queued() == 2);
    sending.stream().set_write_timeout(Some(Duration::from_secs(1))).expect("a socket takes a timeout");
    assert!(sending.try_send(vec![b'x'; 1 << 28]).is_err(), "256 MiB were taken before the turn was admitted");
    drop(sending);
    let (early, end) = asking.rest(Duration::from_millis(200));
    assert!(early.is_empty() && end == End::Open, "{:?}", String::from_utf8_lossy(&early));
    drop(running);
    eventually("the left turn's permit passes on", Duration::from_secs(20), || edge.turns.queued() < 2);
    assert_eq!(asking.head(), ["HTTP/1.1 100 Continue"]);
    asking.send(&body);
    assert_eq!(asking.answer().status(), 200);
    edge.settles();
}
