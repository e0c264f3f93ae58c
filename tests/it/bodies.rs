//! Bodies and waits: sizes to the byte, clients that are slow, silent or deaf, and answers that the client can read.

use std::time::{Duration, Instant};

use crate::support::edge::{TestEdge, config};
use crate::support::eventually;
use crate::support::raw_gateway::{RawGateway, json};
use crate::support::wire::{End, Raw, Wire, chat, get, head, post};

const CHAT: &str = "/v1/chat/completions";
const LIMIT: usize = 10_000_000;

/// A turn's body of exactly this length.
fn body_of(length: usize) -> String {
    let empty = chat("", false).len();
    chat(&"y".repeat(length - empty), false)
}

fn declared(token: &str, body: &str) -> Vec<u8> {
    post(CHAT, token, body).into_bytes()
}

fn chunked(token: &str, body: &str) -> Vec<u8> {
    let mut bytes = format!("{}Transfer-Encoding: chunked\r\n\r\n", head("POST", CHAT, token)).into_bytes();
    for chunk in body.as_bytes().chunks(60_000) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// Sends everything, whatever comes back meanwhile, and reads the answer only then.
#[track_caller]
fn send_whole(edge: &TestEdge, bytes: &[u8]) -> (Raw, End) {
    let mut wire = Wire::connect(edge.address);
    wire.send(bytes);
    let answer = wire.answer();
    let (rest, end) = wire.rest(Duration::from_millis(200));
    assert!(rest.is_empty());
    (answer, end)
}

#[test]
fn a_body_at_the_limit_passes() {
    let edge = TestEdge::start();
    let body = body_of(LIMIT);
    assert_eq!(body.len(), LIMIT);
    for bytes in [declared(edge.token("alice"), &body), chunked(edge.token("alice"), &body)] {
        let (answer, end) = send_whole(&edge, &bytes);
        assert_eq!((answer.status(), end), (200, End::Open), "{}", String::from_utf8_lossy(&answer.body));
    }
    let received: Vec<_> = edge.stand_in.requests().iter().map(|request| request.body_bytes()).collect();
    assert_eq!(received, [LIMIT as u64, LIMIT as u64]);
    edge.settles();
}

#[test]
fn a_body_of_one_byte_more_is_refused_and_the_client_reads_why() {
    let edge = TestEdge::start();
    let body = body_of(LIMIT + 1);
    for _ in 0..5 {
        for bytes in [declared(edge.token("alice"), &body), chunked(edge.token("alice"), &body)] {
            let (answer, end) = send_whole(&edge, &bytes);
            assert_eq!((answer.status(), end), (413, End::Closed));
            assert_eq!(answer.header("x-should-retry"), Some("false"));
        }
    }
    edge.settles();
    assert_eq!(edge.stand_in.finished(), 0, "no turn ran");
    for request in edge.stand_in.requests() {
        assert!(request.body_bytes() <= LIMIT as u64, "{request:?}");
    }
}

#[test]
fn a_body_far_over_the_limit_is_answered_too() {
    let edge = TestEdge::start();
    let body = body_of(3 * LIMIT);
    for bytes in [declared(edge.token("alice"), &body), chunked(edge.token("alice"), &body)] {
        let (answer, end) = send_whole(&edge, &bytes);
        assert_eq!((answer.status(), end), (413, End::Closed));
    }
    edge.settles();
}

#[test]
fn an_encoded_body_and_a_strange_expectation_are_refused_unread() {
    let edge = TestEdge::start();
    for (line, status) in
        [("Content-Encoding: gzip", 415), ("Content-Encoding: identity, br", 415), ("Expect: a-miracle", 417)]
    {
        let mut wire = Wire::connect(edge.address);
        let head = head("POST", CHAT, edge.token("alice"));
        wire.send(format!("{head}{line}\r\nContent-Length: 1000000\r\n\r\n"));
        assert_eq!(wire.answer().status(), status, "{line}");
        assert_eq!(wire.rest(Duration::from_secs(5)).1, End::Closed);
    }
    assert!(edge.stand_in.requests().is_empty());
}

/// Waits for the edge to end a connection; gives what it said and how long it took.
#[track_caller]
fn ends(wire: &mut Wire) -> (Vec<u8>, Duration) {
    let since = Instant::now();
    let (said, end) = wire.rest(Duration::from_secs(20));
    assert_ne!(end, End::Open, "the connection is still open");
    (said, since.elapsed())
}

#[test]
fn a_connection_that_sends_nothing_is_ended() {
    let mut config = config();
    config.deadlines.first_byte = Duration::from_millis(600);
    let edge = TestEdge::with(config, |_| {});
    let (said, took) = ends(&mut Wire::connect(edge.address));
    assert!(said.is_empty());
    assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(5), "{took:?}");
    eventually("the connection is forgotten", Duration::from_secs(2), || edge.connections() == 0);
}

#[test]
fn a_header_section_that_trickles_is_ended() {
    let mut config = config();
    config.deadlines.header = Duration::from_millis(800);
    let edge = TestEdge::with(config, |_| {});
    for first in [String::new(), get("/v1/models", edge.token("alice"))] {
        let mut wire = Wire::connect(edge.address);
        if !first.is_empty() {
            wire.send(&first);
            assert_eq!(wire.answer().status(), 200);
        }
        let since = Instant::now();
        let mut trickle = "GET /v1/models HTTP/1.1\r\nX-Slow: ".bytes().chain(std::iter::repeat(b'x'));
        let mut ended = End::Open;
        while ended == End::Open && since.elapsed() < Duration::from_secs(10) {
            let byte = trickle.next().expect("it goes on for ever");
            ended = wire.try_send([byte]).map_or(End::Reset, |()| wire.rest(Duration::from_millis(50)).1);
        }
        assert_ne!(ended, End::Open);
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
        assert!(since.elapsed() >= Duration::from_millis(700), "{:?}", since.elapsed());
    }
}

#[test]
fn a_connection_that_stays_idle_is_ended() {
    let mut config = config();
    config.deadlines.keep_alive = Duration::from_millis(600);
    let edge = TestEdge::with(config, |_| {});
    let mut wire = Wire::connect(edge.address);
    wire.send(get("/v1/models", edge.token("alice")));
    assert_eq!(wire.answer().status(), 200);
    let (said, took) = ends(&mut wire);
    assert!(said.is_empty());
    assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_long_turn_is_not_idle() {
    let mut config = config();
    config.deadlines.keep_alive = Duration::from_millis(300);
    config.deadlines.header = Duration::from_millis(300);
    config.deadlines.first_byte = Duration::from_millis(300);
    config.deadlines.body = Duration::from_millis(300);
    config.deadlines.write = Duration::from_millis(300);
    let edge = TestEdge::with(config, |_| {});
    for stream in [false, true] {
        let mut wire = Wire::connect(edge.address);
        wire.send(post(CHAT, edge.token("alice"), &chat("SILENCE:1.5", stream)));
        wire.until(if stream { "[DONE]" } else { "You said" });
    }
}

#[test]
fn a_body_that_stops_or_trickles_is_answered_408() {
    let mut config = config();
    config.deadlines.body = Duration::from_millis(700);
    let edge = TestEdge::with(config, |_| {});
    let head = head("POST", CHAT, edge.token("alice"));
    for (framing, start, piece) in [
        ("Content-Length: 5000", "{", ""),
        ("Content-Length: 5000", "", ""),
        ("Transfer-Encoding: chunked", "1\r\n{\r\n", ""),
        ("Content-Length: 5000", "{", " "),
        ("Transfer-Encoding: chunked", "1\r\n{\r\n", "1\r\n \r\n"),
    ] {
        let mut wire = Wire::connect(edge.address);
        let since = Instant::now();
        wire.send(format!("{head}{framing}\r\n\r\n{start}"));
        let mut said = Vec::new();
        while said.is_empty() && since.elapsed() < Duration::from_secs(10) {
            wire.try_send(piece).expect("the edge still listens");
            said = wire.rest(Duration::from_millis(50)).0;
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.starts_with("HTTP/1.1 408 "), "{framing} {piece:?}: {said}");
        assert!(said.contains("x-should-retry: false"), "{said}");
        assert!(since.elapsed() >= Duration::from_millis(600), "{framing} {piece:?}: {:?}", since.elapsed());
    }
    edge.settles();
    assert_eq!(edge.stand_in.finished(), 0);
}

#[test]
fn a_client_that_was_fast_may_not_be_silent_for_longer() {
    let mut config = config();
    config.deadlines.body = Duration::from_millis(700);
    let edge = TestEdge::with(config, |_| {});
    let mut wire = Wire::connect(edge.address);
    let head = head("POST", CHAT, edge.token("alice"));
    wire.send(format!("{head}Content-Length: 2000000\r\n\r\n{{{}", " ".repeat(1_000_000)));
    let (said, took) = ends(&mut wire);
    assert!(said.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&said));
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_slow_gateway_is_not_the_clients_fault() {
    let mut config = config();
    config.deadlines.body = Duration::from_millis(300);
    config.limits.max_body_bytes = 100_000_000;
    let gateway = RawGateway::start(|upstream| {
        // Longer than the client may be silent; its body does not fit into the buffers meanwhile.
        std::thread::sleep(Duration::from_millis(1_500));
        if upstream.request().is_some() {
            upstream.say(json("200 OK", "{}"));
        }
    });
    let edge = TestEdge::in_front_of(config, gateway.address());
    let mut wire = Wire::connect(edge.address);
    wire.send(post(CHAT, edge.token("alice"), &body_of(50_000_000)));
    assert_eq!(wire.answer().status(), 200);
}

#[test]
fn a_client_that_stops_reading_is_cut_and_takes_its_turn_with_it() {
    let mut config = config();
    config.deadlines.write = Duration::from_millis(700);
    let edge = TestEdge::with(config, |_| {});
    let mut wire = Wire::connect(edge.address);
    wire.send(post(CHAT, edge.token("alice"), &chat("SIZE:60000000", true)));
    wire.until("I am");
    eventually("the gateway's turn is interrupted", Duration::from_secs(10), || edge.stand_in.interrupted() == 1);
    eventually("the connection is gone", Duration::from_secs(5), || edge.connections() == 0);
    edge.settles();
}
