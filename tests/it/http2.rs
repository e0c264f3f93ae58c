//! HTTP/2 on the same stages: streams end alone and never mix, what is malformed reaches nobody, and what a client can have kept,
//! done or waited for is bounded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use botgate::config::Config;
use bytes::Bytes;
use h2::Reason;
use http::StatusCode;
use rustls::ClientConfig;

use crate::support::edge::TestEdge;
use crate::support::eventually;
use crate::support::http2::{Bare, Frame, Http2, PING, client, request};
use crate::support::tls::Authority;
use crate::support::wire::{Wire, chat};
use crate::tls::config;

mod frames;

const CHAT: &str = "/v1/chat/completions";

fn start() -> (TestEdge, Arc<ClientConfig>) {
    start_with(|_| {})
}

fn start_with(change: impl FnOnce(&mut Config)) -> (TestEdge, Arc<ClientConfig>) {
    let authority = Authority::new();
    let mut config = config(&authority);
    change(&mut config);
    (TestEdge::with(config, |_| {}), client(&authority))
}

fn turn(token: &str) -> http::request::Builder {
    request("POST", CHAT, token).header("content-type", "application/json")
}

#[test]
fn requests_are_served_as_on_http1() {
    let (edge, client) = start();
    let mut http2 = Http2::connect(edge.address, &client);
    let models = http2.send(request("GET", "/v1/models", edge.token("alice")), None);
    assert_eq!((models.status, models.end), (StatusCode::OK, Ok(())));
    assert_eq!(models.headers["x-request-id"].len(), 32);
    assert!(models.headers.contains_key("date"));
    let body = chat("hello", false);
    let declared = turn(edge.token("alice")).header("content-length", body.len());
    for request in [turn(edge.token("alice")), declared] {
        let answer = http2.send(request, Some(body.as_bytes()));
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        assert!(String::from_utf8_lossy(&answer.body).contains("bot-alice"));
    }
    let streamed = http2.send(turn(edge.token("bob")), Some(chat("hello", true).as_bytes()));
    assert!(String::from_utf8_lossy(&streamed.body).ends_with("data: [DONE]\n\n"), "{streamed:?}");
    let [models, chunked, declared, _] = edge.stand_in.requests().try_into().expect("four requests");
    assert_eq!(models.body_bytes(), 0);
    for request in [&models, &chunked, &declared] {
        assert!(request.target.starts_with("/p/bot-alice/v1/"));
        assert_eq!(request.header("x-forwarded-proto").collect::<Vec<_>>(), [b"https"]);
        assert_eq!(request.header("x-forwarded-host").collect::<Vec<_>>(), [b"127.0.0.1"]);
    }
    assert_eq!([&chunked, &declared].map(|request| request.body_bytes()), [body.len() as u64; 2]);
    edge.settles();
}

#[test]
fn a_head_request_has_an_answer_without_a_body() {
    let (edge, client) = start();
    let mut http2 = Http2::connect(edge.address, &client);
    for _ in 0..2 {
        let answer = http2.send(request("HEAD", "/v1/models", ""), None);
        assert_eq!((answer.status, answer.body.len(), answer.end), (StatusCode::UNAUTHORIZED, 0, Ok(())));
        assert!(answer.headers["content-length"].to_str().is_ok_and(|length| length != "0"));
    }
}

#[test]
fn interleaved_streams_of_two_people_never_mix() {
    let (edge, client) = start_with(|config| {
        (config.limits.turns_per_person, config.gateways[0].max_turns) = (100, 200);
    });
    let mut http2 = Http2::connect(edge.address, &client);
    for round in 0..3 {
        let streams: Vec<_> = (0..80)
            .map(|number| {
                let login = if number % 2 == 0 { "alice" } else { "bob" };
                let mark = format!("ECHO-{round}-{number}");
                let text = if number % 4 < 2 { mark.clone() } else { "WORDS:40:0.001".to_owned() };
                let body = chat(&text, number % 3 != 0);
                // Half of each body comes later, so that bodies interleave too.
                let (first, second) = body.split_at(body.len() / 2);
                let stream = http2.begin(turn(edge.token(login)), Some(first.as_bytes()), true);
                (login, text, second.to_owned(), stream)
            })
            .collect();
        let mut begun = Vec::new();
        for (login, asked, rest, mut stream) in streams.into_iter().rev() {
            stream.body.send_data(Bytes::from(rest), true).expect("the stream is open");
            begun.push((login, asked, stream));
        }
        for (login, asked, stream) in begun {
            let other = if login == "alice" { "bot-bob" } else { "bot-alice" };
            let answer = http2.finish(stream);
            let text = String::from_utf8_lossy(&answer.body);
            assert_eq!((answer.status, &answer.end), (StatusCode::OK, &Ok(())), "{text}");
            assert!(text.contains(&format!("bot-{login}")) && !text.contains(other), "{login}: {text}");
            let repeated = if asked.starts_with("WORDS") { "w39" } else { asked.as_str() };
            assert!(text.contains(repeated), "{asked}: {text}");
        }
    }
    edge.settles();
    for request in edge.stand_in.requests() {
        let keys = ["alice", "bob"].map(|login| format!("Bearer {}", edge.person(login).key));
        let own = if request.target.starts_with("/p/bot-alice/") { &keys[0] } else { &keys[1] };
        assert_eq!(request.header("authorization").collect::<Vec<_>>(), [own.as_bytes()]);
    }
}

#[test]
fn a_revoked_stream_is_reset_alone() {
    let (edge, client) = start();
    let mut http2 = Http2::connect(edge.address, &client);
    let mut streams = Vec::new();
    for login in ["alice", "bob"] {
        let stream = http2.begin(turn(edge.token(login)), Some(chat("WORDS:300:0.01", true).as_bytes()), false);
        let (head, mut body) = http2.head(stream).expect("an answer");
        assert_eq!(head.status, StatusCode::OK);
        http2.until(&mut body, "w3 ");
        streams.push(body);
    }
    let since = Instant::now();
    edge.edge.parts().sessions.revoke_session(&edge.person("alice").session);
    let (_, end) = http2.rest(&mut streams[0]);
    assert!(end.is_err() && since.elapsed() < Duration::from_secs(1), "{end:?} after {:?}", since.elapsed());
    let (rest, end) = http2.rest(&mut streams[1]);
    assert!(end == Ok(()) && String::from_utf8_lossy(&rest).ends_with("data: [DONE]\n\n"));
    assert_eq!(http2.send(request("GET", "/v1/models", edge.token("bob")), None).status, StatusCode::OK);
    edge.settles();
    assert_eq!((edge.stand_in.interrupted(), edge.stand_in.finished()), (1, 1));
}

/// A connection whose client takes so many bytes of each answer, until it says more.
fn with_window(edge: &TestEdge, client: &Arc<ClientConfig>, bytes: u32) -> Http2 {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(bytes);
    Http2::with(edge.address, client, builder)
}

#[test]
fn a_stream_whose_client_takes_nothing_is_reset_when_it_is_revoked() {
    let (edge, client) = start();
    let mut http2 = with_window(&edge, &client, 1_000);
    let stream = http2.begin(turn(edge.token("alice")), Some(chat("WORDS:100000", true).as_bytes()), false);
    let (_, mut body) = http2.head(stream).expect("an answer");
    eventually("the turn runs", Duration::from_secs(5), || edge.turns.in_flight() == 1);
    eventually("its window is used up", Duration::from_secs(5), || body.flow_control().used_capacity() == 1_000);
    let since = Instant::now();
    edge.edge.parts().sessions.revoke_session(&edge.person("alice").session);
    eventually("the turn ends", Duration::from_secs(1), || edge.stand_in.interrupted() == 1);
    // What had come before can still be taken; then the reset shows.
    let (taken, end) = http2.rest(&mut body);
    assert!(end == Err(Some(Reason::CANCEL)) && taken.len() <= 1_000, "{end:?} {}", taken.len());
    assert!(since.elapsed() < Duration::from_secs(3));
    assert_eq!(http2.send(request("GET", "/v1/models", edge.token("bob")), None).status, StatusCode::OK);
    edge.settles();
}

#[test]
fn a_client_that_takes_nothing_of_its_answer_loses_the_stream_and_not_the_connection() {
    let (edge, client) = start_with(|config| config.deadlines.write = Duration::from_secs(1));
    let mut http2 = with_window(&edge, &client, 1_000);
    let stream = http2.begin(turn(edge.token("alice")), Some(chat("WORDS:100000", true).as_bytes()), false);
    let (_, mut body) = http2.head(stream).expect("an answer");
    eventually("the turn ends", Duration::from_secs(10), || edge.stand_in.interrupted() == 1);
    let (_, end) = http2.rest(&mut body);
    assert_eq!(end, Err(Some(Reason::CANCEL)));
    assert_eq!(http2.send(request("GET", "/v1/models", edge.token("bob")), None).status, StatusCode::OK);
    edge.settles();
}

#[test]
fn a_client_that_resets_its_stream_takes_the_turn_along() {
    let (edge, client) = start();
    let mut http2 = Http2::connect(edge.address, &client);
    for (number, text) in ["SILENCE:40", "WORDS:1000:0.05"].into_iter().enumerate() {
        let stream = http2.begin(turn(edge.token("alice")), Some(chat(text, true).as_bytes()), false);
        let (_, mut body) = http2.head(stream).expect("an answer");
        http2.until(&mut body, "data");
        http2.run(async { drop(body) });
        eventually("the turn is interrupted", Duration::from_secs(5), || edge.stand_in.interrupted() == number + 1);
    }
    // Before its answer's head: a plain turn, which the gateway runs to its end.
    let stream = http2.begin(turn(edge.token("alice")), Some(chat("SLEEP:1", false).as_bytes()), false);
    eventually("the turn runs", Duration::from_secs(5), || edge.stand_in.running() == 1);
    http2.run(async { drop(stream) });
    eventually("the turn ends by itself", Duration::from_secs(10), || edge.stand_in.finished() == 1);
    edge.settles();
}

#[test]
fn shutdown_says_goodbye_and_lets_streams_end() {
    let (mut edge, client) = start();
    let mut http2 = Http2::connect(edge.address, &client);
    let idle = Http2::connect(edge.address, &client);
    let stream = http2.begin(turn(edge.token("alice")), Some(chat("WORDS:60:0.02", true).as_bytes()), false);
    let (_, mut body) = http2.head(stream).expect("an answer");
    http2.until(&mut body, "w3 ");
    edge.edge.parts().ending.drain();
    let ended = idle.ends(Duration::from_secs(5)).expect("an idle connection ends at once");
    assert!(ended.is_ok(), "{ended:?}");
    let (rest, end) = http2.rest(&mut body);
    assert!(end == Ok(()) && String::from_utf8_lossy(&rest).contains("[DONE]"));
    assert!(http2.ends(Duration::from_secs(5)).is_some_and(|ended| ended.is_ok()));
    assert!(edge.drain(), "nothing had to be cut");
}

#[test]
fn shutdown_cuts_visibly_what_does_not_end() {
    let (mut edge, client) = start_with(|config| config.deadlines.drain = Duration::from_secs(1));
    let mut http2 = Http2::connect(edge.address, &client);
    let stream = http2.begin(turn(edge.token("alice")), Some(chat("WORDS:1000:0.05", true).as_bytes()), false);
    let (_, mut body) = http2.head(stream).expect("an answer");
    http2.until(&mut body, "w3 ");
    assert!(!edge.drain());
    let (rest, end) = http2.rest(&mut body);
    assert!(end.is_err() && !String::from_utf8_lossy(&rest).contains("[DONE]"), "{end:?}");
}

#[test]
fn a_connection_without_a_stream_is_told_to_leave() {
    let (edge, client) = start_with(|config| {
        (config.deadlines.keep_alive, config.deadlines.first_byte) = (Duration::from_secs(1), Duration::from_secs(1));
    });
    let mut used = Http2::connect(edge.address, &client);
    let unused = Http2::connect(edge.address, &client);
    let mut silent = Bare::silent(edge.address, &client);
    assert_eq!(used.send(request("GET", "/v1/models", edge.token("alice")), None).status, StatusCode::OK);
    assert!(used.ends(Duration::from_secs(4)).is_some_and(|ended| ended.is_ok()));
    assert!(unused.ends(Duration::from_secs(4)).is_some_and(|ended| ended.is_ok()));
    assert!(silent.ends(Duration::from_secs(4)).0);
    // Control frames are no reason to stay.
    let mut pinging = Bare::connect(edge.address, &client);
    let since = Instant::now();
    while pinging.send(Frame::new(PING, 0, 0, [1; 8]).bytes()).is_ok() {
        assert!(since.elapsed() < Duration::from_secs(12), "the connection lives by pings");
        std::thread::sleep(Duration::from_millis(50));
    }
    eventually("all have gone", Duration::from_secs(8), || edge.connections() == 0);
}

#[test]
fn plaintext_stays_http1() {
    let edge = TestEdge::start();
    let mut wire = Wire::connect(edge.address);
    wire.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let (seen, _) = wire.rest(Duration::from_secs(10));
    assert!(seen.is_empty() || seen.starts_with(b"HTTP/1.1 400"), "{:?}", String::from_utf8_lossy(&seen));
    let upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    let mut wire = Wire::connect(edge.address);
    wire.send(format!("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n{upgrade}\r\n"));
    assert_eq!(wire.answer().status(), 200);
}
