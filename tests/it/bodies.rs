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

/// An answer that streams, without its end.
const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n";

/// Reads on until the request's head and `text` behind it have come; gives everything.
fn arrives(upstream: &mut crate::support::raw_gateway::Upstream, text: &str) -> Vec<u8> {
    let mut seen = Vec::new();
    while !crate::support::wire::contains(&seen, text) {
        let bytes = upstream.bytes();
        if bytes.is_empty() {
            break;
        }
        seen.extend_from_slice(&bytes);
    }
    seen
}

#[test]
fn a_body_is_sent_on_behind_an_answer_that_came_early() {
    let (tell, told) = std::sync::mpsc::channel();
    let gateway = RawGateway::start(move |upstream| {
        let mut seen = arrives(upstream, "first");
        upstream.say(STREAM);
        seen.extend_from_slice(&arrives(upstream, "0\r\n\r\n"));
        upstream.say("4\r\nlate\r\n0\r\n\r\n");
        // The test has ended when nobody listens.
        let _ = tell.send(seen);
        upstream.is_closed_by_the_edge();
    });
    let edge = TestEdge::in_front_of(config(), gateway.address());
    let mut wire = Wire::connect(edge.address);
    wire.send(format!("{}Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n", head("POST", CHAT, edge.token("alice"))));
    wire.until("early");
    wire.send("6\r\nsecond\r\n");
    wire.send("0\r\n\r\n");
    wire.until("0\r\n\r\n");
    let seen = told.recv_timeout(Duration::from_secs(20)).expect("the gateway has read the request");
    let seen = String::from_utf8(seen).expect("text");
    let (head, body) = seen.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.to_ascii_lowercase().contains("transfer-encoding: chunked") && !head.contains("ontent-"), "{head}");
    assert_eq!(body, "5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n");
    edge.settles();
    let idle = "botgate_upstream_connections{gateway=\"main\",state=\"idle\"}";
    eventually("the connection is kept", Duration::from_secs(2), || edge.metric(idle) == Some(1.0));
}

#[test]
fn a_client_that_leaves_its_body_ends_an_answer_that_came_early() {
    for framing in ["Content-Length: 5000\r\n\r\nfirst", "Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"] {
        let (tell, told) = std::sync::mpsc::channel();
        let gateway = RawGateway::start(move |upstream| {
            arrives(upstream, "first");
            upstream.say(STREAM);
            let _ = tell.send(upstream.is_closed_by_the_edge());
        });
        let edge = TestEdge::in_front_of(config(), gateway.address());
        let mut wire = Wire::connect(edge.address);
        wire.send(format!("{}{framing}", head("POST", CHAT, edge.token("alice"))));
        wire.until("early");
        let left = Instant::now();
        drop(wire);
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(true), "{framing}");
        edge.settles();
        assert!(left.elapsed() < Duration::from_secs(5), "{framing}: {:?}", left.elapsed());
        let active = "botgate_upstream_connections{gateway=\"main\",state=\"active\"}";
        assert_eq!(edge.metric(active), Some(0.0));
    }
}

#[test]
fn a_body_that_is_echoed_as_it_comes_passes_whole() {
    const SIZE: usize = 8_000_000;
    let gateway = RawGateway::start(|upstream| {
        let seen = arrives(upstream, "\r\n\r\n");
        let start = seen.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
        upstream.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
        upstream.say(&seen[start..]);
        let mut echoed = seen.len() - start;
        while echoed < SIZE {
            let bytes = upstream.bytes();
            if bytes.is_empty() || !upstream.try_say(&bytes) {
                return;
            }
            echoed += bytes.len();
        }
        upstream.is_closed_by_the_edge();
    });
    let edge = TestEdge::in_front_of(config(), gateway.address());
    let mut wire = Wire::connect(edge.address);
    let body: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
    let request =
        [head("POST", CHAT, edge.token("alice")).as_bytes(), b"Content-Length: 8000000\r\n\r\n", &body].concat();
    let mut sending = wire.stream().try_clone().expect("a socket can be cloned");
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut sending, &request));
    let answer = wire.answer();
    sender.join().expect("it does not panic").expect("the edge takes the body");
    assert!(answer.body == body);
    edge.settles();
}

#[test]
fn empty_bodies_are_framed_as_such() {
    for (framing, expected, unexpected) in [
        ("Content-Length: 0\r\n\r\n", "content-length: 0\r\n\r\n", "transfer-encoding"),
        ("\r\n", "content-length: 0\r\n\r\n", "transfer-encoding"),
        (
            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "content-length",
        ),
    ] {
        let (tell, told) = std::sync::mpsc::channel();
        let gateway = RawGateway::start(move |upstream| {
            let seen = arrives(upstream, if expected.contains("chunked") { "0\r\n\r\n" } else { "\r\n\r\n" });
            upstream.say(json("200 OK", "{}"));
            let _ = tell.send(seen);
        });
        let edge = TestEdge::in_front_of(config(), gateway.address());
        let mut wire = Wire::connect(edge.address);
        wire.send(format!("{}{framing}", head("POST", CHAT, edge.token("alice"))));
        assert_eq!(wire.answer().status(), 200, "{framing}");
        let seen = told.recv_timeout(Duration::from_secs(20)).expect("the gateway has read the request");
        let seen = String::from_utf8(seen).expect("text").to_ascii_lowercase();
        assert!(seen.ends_with(expected) && !seen.contains(unexpected), "{framing:?}: {seen}");
        edge.settles();
    }
}

#[test]
fn a_client_that_asks_to_go_on_and_then_says_nothing_is_answered_408() {
    let mut config = config();
    config.deadlines.body = Duration::from_millis(500);
    config.gateways[0].max_turns = 1;
    let edge = TestEdge::with(config, |_| {});
    for framing in ["Content-Length: 500", "Transfer-Encoding: chunked"] {
        let mut wire = Wire::connect(edge.address);
        wire.send(format!("{}Expect: 100-continue\r\n{framing}\r\n\r\n", head("POST", CHAT, edge.token("alice"))));
        wire.until("HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(edge.turns.in_flight(), 1, "it has been admitted");
        assert_eq!(wire.answer().status(), 408, "{framing}");
        edge.settles();
    }
}

#[test]
fn a_gateway_that_does_not_read_is_left_at_the_deadline() {
    for leaves in [false, true] {
        let mut config = config();
        config.deadlines.response_head = Duration::from_secs(2);
        config.limits.max_body_bytes = 100_000_000;
        let gateway = RawGateway::start(|_| std::thread::sleep(Duration::from_secs(8)));
        let edge = TestEdge::in_front_of(config, gateway.address());
        let wire = Wire::connect(edge.address);
        let mut sending = wire.stream().try_clone().expect("a socket can be cloned");
        let request = post(CHAT, edge.token("alice"), &body_of(50_000_000));
        let sender = std::thread::spawn(move || std::io::Write::write_all(&mut sending, request.as_bytes()));
        eventually("the turn runs", Duration::from_secs(5), || edge.turns.in_flight() == 1);
        let since = Instant::now();
        if leaves {
            wire.stream().shutdown(std::net::Shutdown::Both).expect("a connection can be ended");
        } else {
            let mut wire = wire;
            assert_eq!(wire.answer().status(), 504);
        }
        let _ = sender.join().expect("it does not panic");
        edge.settles();
        assert!(since.elapsed() < Duration::from_secs(6), "{leaves}: {:?}", since.elapsed());
    }
}
