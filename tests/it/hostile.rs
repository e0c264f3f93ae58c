//! A broken or hostile gateway: what must not pass does not, keys stay on their side, and no answer reaches the next
//! request.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use botgate::cli::stand_in::{Misbehave, Misbehaviour};

use crate::support::edge::{TestEdge, config};
use crate::support::eventually;
use crate::support::raw_gateway::{RawGateway, json};
use crate::support::wire::{End, Wire, chat, contains, ends_cleanly, get, post};

const CHAT: &str = "/v1/chat/completions";

/// What the client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// An answer of the edge's, after which the connection is as before.
    Status(u16),
    /// A head of 200 and a body that breaks off.
    Cut,
}
use Expected::{Cut, Status};

const CASES: [(Misbehaviour, Expected, Option<&str>); 12] = [
    (Misbehaviour::Unasked101, Status(502), Some("hostile")),
    (Misbehaviour::Redirect, Status(502), Some("hostile")),
    (Misbehaviour::EchoKey, Status(502), Some("hostile")),
    (Misbehaviour::TruncatedChunked, Cut, Some("body")),
    (Misbehaviour::TruncatedLength, Cut, Some("body")),
    (Misbehaviour::RefuseRightKey, Status(401), Some("unauthorized")),
    (Misbehaviour::DisownProfile, Status(401), Some("unknown_profile")),
    (Misbehaviour::CloseUnanswered, Status(502), Some("head")),
    (Misbehaviour::CloseAfterHead, Cut, Some("body")),
    (Misbehaviour::Junk, Status(502), Some("head")),
    (Misbehaviour::TwoLengths, Status(502), Some("head")),
    (Misbehaviour::NeverAnswer, Status(504), Some("head_timeout")),
];

#[track_caller]
fn assert_no_key(edge: &TestEdge, bytes: &[u8], what: &str) {
    for login in ["alice", "bob", "carol"] {
        assert!(!contains(bytes, &edge.person(login).key), "{what}: the key of {login} came through");
    }
}

/// Sends a request on a connection of its own and compares what comes with what is expected.
#[track_caller]
fn meets(edge: &TestEdge, request: &str, expected: Expected, what: &str) {
    let mut wire = Wire::connect(edge.address);
    wire.send(request);
    let bytes = match expected {
        Status(status) => {
            let answer = wire.answer();
            assert_eq!(answer.status(), status, "{what}: {answer:?}");
            assert_eq!(answer.header("location"), None, "{what}");
            assert_eq!(answer.header("x-should-retry"), Some("false"), "{what}: the gateway may have begun");
            answer.blanked().into_bytes()
        }
        Cut => {
            let (seen, end) = wire.rest(Duration::from_secs(10));
            assert!(seen.starts_with(b"HTTP/1.1 200 OK\r\n"), "{what}: {:?}", String::from_utf8_lossy(&seen));
            assert!(end != End::Open && !ends_cleanly(&seen), "{what}: {:?}", String::from_utf8_lossy(&seen));
            seen
        }
    };
    assert_no_key(edge, &bytes, what);
}

#[test]
fn every_misbehaviour_is_contained() {
    for (how, expected, kind) in CASES {
        let mut config = config();
        config.deadlines.response_head = Duration::from_millis(700);
        let edge = TestEdge::with(config, |_| {});
        let mut client = Wire::connect(edge.address);
        let mut good = |number: usize| {
            client.send(get(&format!("/v1/models?{number}"), edge.token("alice")));
            let answer = client.answer();
            assert_eq!(answer.status(), 200, "{how:?} {number}");
            assert!(contains(&answer.body, "bot-alice"), "{how:?} {number}: not its own answer");
        };
        // Connections are in the pool of both threads when the gateway turns bad.
        for number in 0..8 {
            good(number);
            let mut other = Wire::connect(edge.address);
            other.send(get("/v1/models", edge.token("bob")));
            assert_eq!(other.answer().status(), 200);
        }
        edge.stand_in.misbehave(Some(Misbehave::always(how)));
        for (what, request) in [
            ("read", get("/v1/models", edge.token("bob"))),
            ("plain turn", post(CHAT, edge.token("bob"), &chat("hello", false))),
            ("stream", post(CHAT, edge.token("bob"), &chat("hello", true))),
            ("run", post("/v1/runs", edge.token("bob"), r#"{"input":"hello"}"#)),
            ("change", post("/v1/runs/run_1/stop", edge.token("bob"), "{}")),
        ] {
            // A run's short answer is read whole, so that it is broken before it is passed on.
            let expected = if what == "run" && expected == Cut { Status(502) } else { expected };
            meets(&edge, &request, expected, &format!("{how:?}, {what}"));
        }
        edge.stand_in.misbehave(None);
        for number in 8..16 {
            good(number);
        }
        edge.settles();
        if let Some(kind) = kind {
            let line = format!("botgate_upstream_errors_total{{gateway=\"main\",kind=\"{kind}\"}}");
            assert!(edge.metric(&line) >= Some(5.0), "{how:?}: {:?}", edge.metric(&line));
        }
    }
}

#[test]
fn a_failing_gateway_is_passed_on_as_it_is() {
    let edge = TestEdge::start();
    for status in [400, 409, 429, 500, 503] {
        edge.stand_in.misbehave(Some(Misbehave::always(Misbehaviour::Status(status))));
        let mut wire = Wire::connect(edge.address);
        wire.send(post(CHAT, edge.token("alice"), &chat("hello", false)));
        let answer = wire.answer();
        assert_eq!(answer.status(), status);
        assert!(contains(&answer.body, "told to fail"));
        // SDKs repeat all of these but the 400 by themselves; what may have run must not run again.
        let told = matches!(status, 409 | 500).then_some("false");
        assert_eq!(answer.header("x-should-retry"), told, "{status}");
    }
    edge.settles();
}

/// The edge's answer to a gateway that says exactly these bytes.
fn answer_to(bytes: impl Into<Vec<u8>>) -> (TestEdge, Vec<u8>) {
    let bytes = bytes.into();
    let gateway = RawGateway::answering(move |_, _| bytes.clone());
    let edge = TestEdge::in_front_of(config(), gateway.address());
    let mut wire = Wire::connect(edge.address);
    wire.send(get("/v1/models", edge.token("alice")).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    let (seen, end) = wire.rest(Duration::from_secs(10));
    assert_ne!(end, End::Open);
    (edge, seen)
}

#[test]
fn heads_that_must_not_pass() {
    let many = "X-Hermes-Many: x\r\n".repeat(200);
    let long = "x".repeat(100_000);
    for (what, head) in [
        ("a content coding", "Content-Encoding: gzip\r\n".to_owned()),
        ("a content coding of none", "Content-Encoding: identity\r\n".to_owned()),
        ("too many lines", many),
        ("a line too long", format!("X-Hermes-Long: {long}\r\n")),
        ("a folded line", "X-Hermes-A: a\r\n b\r\n".to_owned()),
        ("a broken line", "X-Hermes-A\r\n".to_owned()),
        ("a length that is none", "Content-Length: 2, 3\r\n".to_owned()),
    ] {
        let (_edge, seen) = answer_to(format!("HTTP/1.1 200 OK\r\n{head}Content-Length: 2\r\n\r\n{{}}"));
        assert!(seen.starts_with(b"HTTP/1.1 502 "), "{what}: {:?}", String::from_utf8_lossy(&seen));
    }
}

#[test]
fn only_listed_fields_pass_and_early_hints_do_not() {
    let (edge, seen) = answer_to(
        "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n\
         HTTP/1.1 200 Sure\r\nContent-Type: application/json\r\nX-Hermes-Session-Id: s1\r\nServer: aiohttp\r\n\
         Set-Cookie: __Host-botgate=x\r\nWWW-Authenticate: Basic\r\nLocation: /elsewhere\r\nX-Request-Id: theirs\r\n\
         Access-Control-Allow-Origin: *\r\nRetry-After: 3\r\nCache-Control: no-cache\r\n\
         Content-Length: 2\r\n\r\n{}",
    );
    let seen = String::from_utf8(seen).expect("text");
    let (head, body) = seen.split_once("\r\n\r\n").expect("a head and a body");
    assert_eq!(body, "{}");
    let lower = head.to_ascii_lowercase();
    let mut names: Vec<_> = lower.lines().skip(1).map(|line| line.split(':').next().unwrap_or_default()).collect();
    names.sort_unstable();
    let passed = ["cache-control", "connection", "content-length", "content-type", "date", "retry-after"];
    let own = ["x-content-type-options", "x-hermes-session-id", "x-request-id"];
    assert_eq!(names, [&passed[..], &own[..]].concat(), "{head}");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(!head.contains("theirs"), "{head}");
    edge.settles();
}

#[test]
fn interim_answers_are_bounded_in_bytes_and_in_time() {
    for (pause, status) in [(0, 502), (100, 504)] {
        let gateway = RawGateway::start(move |upstream| {
            let said = "HTTP/1.1 102 Processing\r\n\r\n".repeat(if pause == 0 { 1000 } else { 1 });
            let Some(_) = upstream.request() else { return };
            let until = Instant::now() + Duration::from_secs(8);
            while Instant::now() < until && upstream.try_say(&said) {
                std::thread::sleep(Duration::from_millis(pause));
            }
        });
        let mut config = config();
        config.deadlines.response_head = Duration::from_secs(1);
        let edge = TestEdge::in_front_of(config, gateway.address());
        let mut client = Wire::connect(edge.address);
        let asked = Instant::now();
        client.send(post(CHAT, edge.token("alice"), &chat("hello", false)));
        assert_eq!(client.answer().status(), status);
        assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
        edge.settles();
    }
}

#[test]
fn trailers_and_chunk_extensions_do_not_pass() {
    let (_edge, seen) = answer_to(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nTrailer: X-Hermes-T\r\n\r\n\
         5;secret=canary\r\nhello\r\n0\r\nX-Hermes-T: canary\r\n\r\n",
    );
    assert!(contains(&seen, "hello") && ends_cleanly(&seen), "{:?}", String::from_utf8_lossy(&seen));
    assert!(!contains(&seen, "canary"));
}

#[test]
fn bytes_behind_an_answer_are_never_the_next_answer() {
    let stale = json("200 OK", r#"{"whose":"stale"}"#);
    for (what, extra) in [("an answer", stale), ("junk", b"junk".to_vec()), ("an empty line", b"\r\n".to_vec())] {
        for late in [false, true] {
            let extra = extra.clone();
            let (said, heard) = std::sync::mpsc::channel();
            let gateway = RawGateway::start(move |upstream| {
                while let Some(request) = upstream.request() {
                    let own = json("200 OK", &serde_json::json!({ "whose": request.line }).to_string());
                    if late {
                        upstream.say(own);
                        std::thread::sleep(Duration::from_millis(20));
                        upstream.say(&extra);
                        // The test has ended when nobody listens.
                        let _ = said.send(());
                    } else {
                        upstream.say([own, extra.clone()].concat());
                    }
                }
            });
            let edge = TestEdge::in_front_of(config(), gateway.address());
            let mut client = Wire::connect(edge.address);
            for number in 0..20 {
                client.send(get(&format!("/v1/models?{number}"), edge.token("alice")));
                let answer = client.answer();
                assert_eq!(answer.status(), 200, "{what}, late: {late}, {number}");
                let own = format!("/p/bot-alice/v1/models?{number} ");
                assert!(contains(&answer.body, &own), "{what}, late: {late}, {number}: {answer:?}");
                if late {
                    heard.recv_timeout(Duration::from_secs(20)).expect("the gateway says more");
                }
            }
        }
    }
}

#[test]
fn an_answer_before_the_whole_body_leaves_no_connection_to_reuse() {
    let gateway = RawGateway::start(|upstream| {
        // The first request's body is never read; what comes next on this connection would be its rest.
        upstream.say_after_head(json("200 OK", r#"{"early":true}"#));
    });
    let edge = TestEdge::in_front_of(config(), gateway.address());
    let mut wire = Wire::connect(edge.address);
    let head = crate::support::wire::head("POST", CHAT, edge.token("alice"));
    wire.send(format!("{head}Content-Length: 1000000\r\n\r\n{{"));
    let answer = wire.answer();
    assert_eq!((answer.status(), answer.body.as_slice()), (200, &br#"{"early":true}"#[..]));
    drop(wire);
    edge.settles();
    let idle = "botgate_upstream_connections{gateway=\"main\",state=\"idle\"}";
    assert_eq!(edge.metric(idle), Some(0.0));
}

#[test]
fn a_gateway_that_is_not_there_is_503_and_may_be_tried_again() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("a bound socket has an address");
    drop(socket);
    let edge = TestEdge::in_front_of(config(), address);
    let mut wire = Wire::connect(edge.address);
    wire.send(post(CHAT, edge.token("alice"), &chat("hello", false)));
    let answer = wire.answer();
    assert_eq!((answer.status(), answer.header("x-should-retry")), (503, Some("true")));
    assert!(answer.header("retry-after").is_some());
    edge.settles();
}

#[test]
fn a_gateway_that_closes_idle_connections_costs_no_request() {
    let gateway = RawGateway::start(|upstream| {
        // One answer for each connection, then the end.
        if let Some(request) = upstream.request() {
            upstream.say(json("200 OK", &serde_json::json!({ "line": request.line }).to_string()));
        }
    });
    let edge = TestEdge::in_front_of(config(), gateway.address());
    let mut client = Wire::connect(edge.address);
    for number in 0..100 {
        client.send(get(&format!("/v1/models?{number}"), edge.token("alice")));
        assert_eq!(client.answer().status(), 200, "{number}");
    }
    let errors = "botgate_upstream_errors_total{gateway=\"main\",kind=\"head\"}";
    eventually("no request failed", Duration::from_secs(1), || edge.metric(errors) == Some(0.0));
}

#[test]
fn a_turn_is_never_sent_twice_and_a_read_once_more() {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&log);
    // Each connection answers once; the next request on it is taken and never answered.
    let gateway = RawGateway::start(move |upstream| {
        for number in 0..2 {
            let Some(request) = upstream.request() else { return };
            kept.lock().expect("no test panics under the lock").push(request.line);
            if number == 0 {
                upstream.say(json("200 OK", "{}"));
            }
        }
    });
    let edge = TestEdge::in_front_of(config(), gateway.address());
    let sent = |target: &str| {
        let log = log.lock().expect("no test panics under the lock");
        log.iter().filter(|line| line.contains(target)).count()
    };
    let token = edge.token("alice");
    let mut client = Wire::connect(edge.address);
    let mut ask = |request: String| {
        client.send(request);
        client.answer().status()
    };
    assert_eq!(ask(get("/v1/models?warm", token)), 200);
    assert_eq!(ask(get("/v1/models?again", token)), 200, "on a fresh connection");
    assert_eq!(sent("?again"), 2);
    assert_eq!(ask(post("/v1/runs/run_1/stop", token, "")), 502, "a change may have been made");
    assert_eq!(sent("/stop"), 1);
    assert_eq!(ask(get("/v1/models?warm", token)), 200);
    assert_eq!(ask(post(CHAT, token, &chat("hello", false))), 502);
    assert_eq!(sent(CHAT), 1);
    edge.settles();
}
