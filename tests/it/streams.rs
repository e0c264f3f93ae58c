//! Streams: passed on as they come, never longer than the client takes them, and broken-looking when they broke.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use botgate::cli::stand_in::{Misbehave, Misbehaviour};

use crate::support::edge::{TestEdge, config};
use crate::support::raw_gateway::RawGateway;
use crate::support::wire::{End, Wire, chat, contains, ends_cleanly, head, post};
use crate::support::{eventually, poll_for};

const CHAT: &str = "/v1/chat/completions";

/// A streamed turn whose connection ends with it, so that the end can be seen.
fn stream(edge: &TestEdge, login: &str, text: &str) -> Wire {
    let body = chat(text, true);
    let mut wire = Wire::connect(edge.address);
    let head = head("POST", CHAT, edge.token(login));
    wire.send(format!("{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    wire
}

#[test]
fn comments_pass_through_a_silence_of_25_seconds() {
    let edge = TestEdge::start();
    let mut wire = stream(&edge, "alice", "SILENCE:25");
    let since = Instant::now();
    wire.until("I am bot-alice");
    assert!(since.elapsed() < Duration::from_secs(5));
    for at in [10, 20] {
        wire.until(": keepalive");
        let elapsed = since.elapsed();
        let expected = Duration::from_secs(at);
        assert!(
            elapsed > expected - Duration::from_secs(1) && elapsed < expected + Duration::from_secs(4),
            "{elapsed:?}"
        );
    }
    let (rest, end) = wire.rest(Duration::from_secs(10));
    assert!(contains(&rest, "[DONE]") && ends_cleanly(&rest) && end == End::Closed, "{end:?}");
    edge.settles();
}

#[test]
fn a_stream_that_the_gateway_breaks_off_looks_broken() {
    const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (what, ending) in [("between chunks", "5\r\nhello\r\n"), ("inside a chunk", "5\r\nhello\r\n40\r\nhalf")] {
        let gateway = RawGateway::start(move |upstream| {
            upstream.request();
            upstream.say(format!("{EVENTS}{ending}"));
        });
        let edge = TestEdge::in_front_of(config(), gateway.address());
        let mut wire = stream(&edge, "alice", "hello");
        wire.until("hello");
        let (rest, end) = wire.rest(Duration::from_secs(10));
        assert!(end != End::Open && !ends_cleanly(&rest), "{what}: {:?}", String::from_utf8_lossy(&rest));
        let line = "botgate_upstream_errors_total{gateway=\"main\",kind=\"body\"}";
        eventually(what, Duration::from_secs(2), || edge.metric(line) == Some(1.0));
        edge.settles();
    }
}

#[test]
fn an_answer_shorter_than_its_length_is_never_filled_up() {
    let gateway = RawGateway::start(|upstream| {
        upstream.request();
        upstream.say("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"half\":");
    });
    let edge = TestEdge::in_front_of(config(), gateway.address());
    let mut wire = Wire::connect(edge.address);
    wire.send(post(CHAT, edge.token("alice"), &chat("hello", false)));
    let head = wire.head();
    assert!(head.iter().any(|line| line == "content-length: 100"), "{head:?}");
    let (rest, end) = wire.rest(Duration::from_secs(10));
    assert!(rest.len() < 100 && end != End::Open);
    edge.settles();
}

#[test]
fn an_answer_whose_only_end_is_its_connections_is_refused() {
    let gateway = RawGateway::start(|upstream| {
        upstream.request();
        upstream.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: all of it\n\n");
    });
    let edge = TestEdge::in_front_of(config(), gateway.address());
    let answer = stream(&edge, "alice", "hello").answer();
    // Nobody could tell it from one that was cut.
    assert_eq!((answer.status(), answer.header("x-should-retry")), (502, Some("false")));
    edge.settles();
}

#[test]
fn a_revoked_stream_looks_broken() {
    let edge = TestEdge::start();
    let mut wire = stream(&edge, "alice", "WORDS:1000:0.02");
    wire.until("w3 ");
    edge.edge.parts().sessions.revoke_session(&edge.person("alice").session);
    let (rest, end) = wire.rest(Duration::from_secs(1));
    assert!(end != End::Open && !ends_cleanly(&rest) && !contains(&rest, "[DONE]"));
    edge.settles();
    assert_eq!(edge.stand_in.interrupted(), 1);
}

#[test]
fn shutdown_lets_turns_end_and_then_cuts_visibly() {
    let mut config = config();
    config.deadlines.drain = Duration::from_secs(2);
    let mut edge = TestEdge::with(config, |_| {});
    let mut short = stream(&edge, "alice", "SILENCE:0.7");
    let mut long = stream(&edge, "bob", "WORDS:1000:0.05");
    let mut idle = Wire::connect(edge.address);
    idle.send(crate::support::wire::get("/v1/models", edge.token("carol")));
    assert_eq!(idle.answer().status(), 200);
    short.until("I am");
    long.until("w3 ");
    assert!(!edge.drain(), "the long turn had to be cut");
    let (rest, end) = short.rest(Duration::from_secs(5));
    assert!(contains(&rest, "[DONE]") && ends_cleanly(&rest) && end == End::Closed, "{end:?}");
    let (rest, end) = long.rest(Duration::from_secs(5));
    assert!(!ends_cleanly(&rest) && !contains(&rest, "[DONE]") && end != End::Open, "{end:?}");
    assert_ne!(idle.rest(Duration::from_secs(5)).1, End::Open, "an idle connection is closed");
    edge.settles();
}

#[test]
fn a_gateway_without_an_answer_in_time_is_a_504() {
    let mut config = config();
    config.deadlines.response_head = Duration::from_millis(800);
    let edge = TestEdge::with(config, |options| {
        options.misbehave = Some(Misbehave::always(Misbehaviour::NeverAnswer));
    });
    let mut wire = Wire::connect(edge.address);
    let since = Instant::now();
    wire.send(post(CHAT, edge.token("alice"), &chat("hello", true)));
    let answer = wire.answer();
    assert_eq!((answer.status(), answer.header("x-should-retry")), (504, Some("false")));
    assert!(since.elapsed() >= Duration::from_millis(700) && since.elapsed() < Duration::from_secs(5));
    eventually("the gateway's connection is closed", Duration::from_secs(2), || edge.stand_in.connections() == 0);
    edge.settles();
}

#[test]
fn a_stream_that_falls_silent_is_cut() {
    let mut config = config();
    config.deadlines.idle = Duration::from_secs(1);
    let edge = TestEdge::with(config, |options| options.keepalive = Duration::from_secs(600));
    let mut wire = stream(&edge, "alice", "SILENCE:600");
    wire.until("I am");
    let (rest, end) = wire.rest(Duration::from_secs(5));
    assert!(end != End::Open && !ends_cleanly(&rest));
    eventually("the gateway's turn is interrupted", Duration::from_secs(1), || edge.stand_in.interrupted() == 1);
    edge.settles();
}

#[test]
fn comments_keep_a_stream_alive() {
    let mut config = config();
    config.deadlines.idle = Duration::from_secs(1);
    let edge = TestEdge::with(config, |options| options.keepalive = Duration::from_millis(200));
    let mut wire = stream(&edge, "alice", "SILENCE:3");
    wire.until("[DONE]");
    edge.settles();
}

#[test]
fn twenty_five_silent_seconds_pass_with_nothing_but_comments() {
    let edge = TestEdge::with(config(), |options| options.keepalive = Duration::from_secs(10));
    let seen = stream(&edge, "alice", "SILENCE:25").until("[DONE]");
    let comments = String::from_utf8_lossy(&seen).matches(": keepalive").count();
    assert_eq!(comments, 2);
    edge.settles();
}

#[test]
fn a_slow_reader_slows_the_gateway_down() {
    const TOTAL: usize = 200 << 20;
    const PIECE: usize = 64 << 10;
    let said = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&said);
    let gateway = RawGateway::start(move |upstream| {
        if upstream.request().is_none() {
            return;
        }
        upstream.say(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {TOTAL}\r\n\r\n"));
        for _ in 0..TOTAL / PIECE {
            upstream.say([b'x'; PIECE]);
            counted.fetch_add(PIECE, Ordering::SeqCst);
        }
    });
    let edge = TestEdge::in_front_of(config(), gateway.address());
    let mut wire = stream(&edge, "alice", "hello");
    wire.until("\r\n\r\n");
    let mut last = 0;
    let stalled = poll_for(Duration::from_secs(20), || {
        std::thread::sleep(Duration::from_millis(300));
        let now = said.load(Ordering::SeqCst);
        (std::mem::replace(&mut last, now) == now).then_some(now)
    });
    // Four socket buffers of at most a few MiB each lie between the gateway and the client.
    let stalled = stalled.expect("the gateway is held up");
    assert!(stalled < 60 << 20, "the edge took {stalled} bytes that nobody has read");
    let (rest, _) = wire.rest(Duration::from_secs(60));
    assert!(rest.len() <= TOTAL && rest.len() > TOTAL - (1 << 20), "{}", rest.len());
    edge.settles();
}

#[test]
fn a_client_that_had_more_to_ask_takes_its_turn_with_it_too() {
    for ahead in ["\r\n", "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"] {
        let edge = TestEdge::with(config(), |options| options.keepalive = Duration::from_secs(600));
        let mut wire = Wire::connect(edge.address);
        wire.send(post(CHAT, edge.token("alice"), &chat("SILENCE:60", true)) + ahead);
        wire.until("I am");
        drop(wire);
        eventually("the turn is interrupted", Duration::from_secs(1), || edge.stand_in.interrupted() == 1);
        edge.settles();
    }
}
