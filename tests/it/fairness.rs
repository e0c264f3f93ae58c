//! Many turns at once: everyone gets their own answer, people take turns, and every permit comes back.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::support::edge::{TestEdge, config};
use crate::support::eventually;
use crate::support::wire::{Raw, Wire, chat, contains, get, head, post};

const CHAT: &str = "/v1/chat/completions";

/// A stream that is held open.
fn held(edge: &TestEdge, login: &str) -> Wire {
    let mut wire = Wire::connect(edge.address);
    wire.send(post(CHAT, edge.token(login), &chat("SILENCE:60", true)));
    wire.until("I am");
    wire
}

/// A plain turn that is sent and not waited for.
fn asked(edge: &TestEdge, login: &str, text: &str) -> Wire {
    let mut wire = Wire::connect(edge.address);
    wire.send(post(CHAT, edge.token(login), &chat(text, false)));
    wire
}

#[track_caller]
fn is_full(answer: &Raw) {
    assert_eq!(answer.status(), 429, "{answer:?}");
    assert_eq!(answer.header("x-should-retry"), Some("true"));
    let seconds = answer.header("retry-after").and_then(|seconds| seconds.parse::<u64>().ok());
    assert!(seconds.is_some_and(|seconds| seconds > 0), "{answer:?}");
}

/// What one client of the crowd does.
fn take_part(edge: &TestEdge, number: usize) {
    let login = ["alice", "bob"][number % 2];
    let token = edge.token(login);
    let mine = |round: usize| format!("marker-{number}-{round}-end");
    // Spread without a random source, so that a failure repeats: 0 to 100 ms.
    let pause = Duration::from_millis((number as u64 * 37) % 100);
    let owns = |seen: &[u8], round: usize| {
        assert!(contains(seen, &format!("I am bot-{login}.")), "{number}: {:?}", String::from_utf8_lossy(seen));
        assert!(contains(seen, &mine(round)), "{number}: {:?}", String::from_utf8_lossy(seen));
        assert_eq!(seen.windows(7).filter(|window| window == b"marker-").count(), 1, "{number}: someone else's too");
    };
    let mut wire = Wire::connect(edge.address);
    match number % 5 {
        // Three plain turns and reads on one connection.
        0 | 1 => {
            for round in 0..3 {
                wire.send(post(CHAT, token, &chat(&format!("SLEEP:0.03 {}", mine(round)), false)));
                let answer = wire.answer();
                assert_eq!(answer.status(), 200, "{number}: {answer:?}");
                owns(&answer.body, round);
                wire.send(get(&format!("/v1/models?{number}"), token));
                assert!(contains(&wire.answer().body, &format!("bot-{login}")), "{number}");
                std::thread::sleep(pause);
            }
        }
        // A stream to its end, on a connection that has been used.
        2 => {
            wire.send(get("/v1/models", token));
            assert_eq!(wire.answer().status(), 200);
            let body = chat(&format!("SILENCE:0.05 {}", mine(0)), true);
            let close = format!("Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            wire.send(head("POST", CHAT, token) + &close);
            let (seen, _) = wire.rest(Duration::from_secs(60));
            assert!(contains(&seen, "[DONE]"), "{number}: {:?}", String::from_utf8_lossy(&seen));
            owns(&seen, 0);
        }
        // A stream that is left in its middle.
        3 => {
            wire.send(post(CHAT, token, &chat(&format!("WORDS:500:0.01 {}", mine(0)), true)));
            let seen = wire.until("w1 ");
            assert!(contains(&seen, &format!("I am bot-{login}.")), "{number}");
        }
        // A plain turn that is left before its answer, perhaps while it waits.
        _ => {
            wire.send(post(CHAT, token, &chat(&format!("SLEEP:0.1 {}", mine(0)), false)));
            std::thread::sleep(pause);
        }
    }
}

#[test]
fn two_hundred_turns_at_once_each_get_their_own_answer() {
    let mut config = config();
    config.limits.turns_per_person = 10;
    config.limits.queue_per_person = 200;
    let edge = TestEdge::with(config, |_| {});
    let start = Barrier::new(200);
    std::thread::scope(|scope| {
        for number in 0..200 {
            let (edge, start) = (&edge, &start);
            scope.spawn(move || {
                start.wait();
                take_part(edge, number);
            });
        }
    });
    edge.settles();
    assert!(edge.stand_in.peak() <= 10, "{} turns at once", edge.stand_in.peak());
    eventually("connections return to zero", Duration::from_secs(5), || edge.connections() == 0);
    for (line, most) in [
        ("botgate_turns_in_flight{gateway=\"main\"}", 0.0),
        ("botgate_turns_queued{gateway=\"main\"}", 0.0),
        ("botgate_connections{state=\"active\"}", 0.0),
        ("botgate_connections{state=\"idle\"}", 0.0),
        ("botgate_upstream_connections{gateway=\"main\",state=\"active\"}", 0.0),
        ("botgate_upstream_connections{gateway=\"main\",state=\"idle\"}", 128.0),
    ] {
        eventually(line, Duration::from_secs(5), || edge.metric(line).is_some_and(|value| value <= most));
    }
    for reason in ["queue_full", "queue_timeout", "gateway_broke", "gateway_unreachable"] {
        assert_eq!(edge.metric(&format!("botgate_refusals_total{{reason=\"{reason}\"}}")), Some(0.0), "{reason}");
    }
}

#[test]
fn one_persons_eighth_turn_is_told_to_come_back() {
    let edge = TestEdge::start();
    let running: Vec<_> = (0..3).map(|_| held(&edge, "alice")).collect();
    let waiting: Vec<_> = (0..4).map(|_| asked(&edge, "alice", "hello")).collect();
    eventually("four wait", Duration::from_secs(5), || edge.turns.queued() == 4);
    for _ in 0..3 {
        is_full(&asked(&edge, "alice", "hello").answer());
    }
    let run = |login: &str| {
        let mut wire = Wire::connect(edge.address);
        wire.send(post("/v1/runs", edge.token(login), r#"{"input":"hello"}"#));
        wire.answer()
    };
    is_full(&run("alice"));
    // Nobody else is held up, and neither are her reads.
    assert_eq!(asked(&edge, "bob", "hello").answer().status(), 200);
    assert_eq!(run("bob").status() / 100, 2);
    let mut wire = Wire::connect(edge.address);
    wire.send(get("/v1/models", edge.token("alice")));
    assert_eq!(wire.answer().status(), 200);
    assert_eq!(edge.turns.queued(), 4);
    drop(running);
    for mut wire in waiting {
        assert_eq!(wire.answer().status(), 200);
    }
    edge.settles();
}

#[test]
fn a_hundred_waiting_turns_of_one_person_let_anothers_in_next() {
    let mut config = config();
    config.gateways[0].max_turns = 1;
    config.limits.queue_per_person = 100;
    let edge = TestEdge::with(config, |_| {});
    let running = held(&edge, "alice");
    let crowd: Vec<_> = (0..100).map(|_| asked(&edge, "alice", "SLEEP:0.2")).collect();
    eventually("a hundred wait", Duration::from_secs(10), || edge.turns.queued() == 100);
    let mut bob = asked(&edge, "bob", "hello");
    eventually("bob waits", Duration::from_secs(5), || edge.turns.queued() == 101);
    drop(running);
    assert_eq!(bob.answer().status(), 200);
    let order: Vec<_> = edge.stand_in.requests().iter().map(|request| request.target.clone()).collect();
    assert_eq!(order[1], "/p/bot-bob/v1/chat/completions", "{order:?}");
    drop(crowd);
    edge.settles();
    assert!(edge.stand_in.finished() < 20, "those who left do not wait on");
}

#[test]
fn everybodys_queue_is_bounded_too() {
    let mut config = config();
    config.gateways[0].max_turns = 1;
    config.limits.queue_total = 3;
    let edge = TestEdge::with(config, |_| {});
    let _running = held(&edge, "alice");
    let _waiting = ["alice", "bob", "bob"].map(|login| asked(&edge, login, "hello"));
    eventually("three wait", Duration::from_secs(5), || edge.turns.queued() == 3);
    is_full(&asked(&edge, "carol", "hello").answer());
}

#[test]
fn a_turn_that_waits_too_long_is_told_to_come_back() {
    let mut config = config();
    config.limits.turns_per_person = 1;
    config.limits.queue_wait = Duration::from_millis(600);
    let edge = TestEdge::with(config, |_| {});
    let _running = held(&edge, "alice");
    let since = Instant::now();
    is_full(&asked(&edge, "alice", "hello").answer());
    let took = since.elapsed();
    assert!(took >= Duration::from_millis(600) && took < Duration::from_secs(5), "{took:?}");
    let line = "botgate_refusals_total{reason=\"queue_timeout\"}";
    eventually("it is counted", Duration::from_secs(1), || edge.metric(line) == Some(1.0));
    assert_eq!(edge.turns.queued(), 0);
    assert_eq!(edge.stand_in.requests().len(), 1, "nothing of it reached the gateway");
}

#[test]
fn a_drain_tells_those_who_wait_at_once() {
    let mut config = config();
    config.limits.turns_per_person = 1;
    config.deadlines.drain = Duration::from_secs(1);
    let mut edge = TestEdge::with(config, |_| {});
    let _running = held(&edge, "alice");
    let mut waiting = asked(&edge, "alice", "hello");
    eventually("it waits", Duration::from_secs(5), || edge.turns.queued() == 1);
    let seen = std::thread::spawn(move || waiting.answer());
    edge.drain();
    let answer = seen.join().expect("an answer");
    assert_eq!((answer.status(), answer.header("x-should-retry")), (503, Some("true")));
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
}

#[test]
fn permits_come_back_however_a_turn_ends() {
    let edge = Arc::new(TestEdge::start());
    for round in 0..30 {
        let text = ["SLEEP:0.01", "FAIL:500", "FAIL:429", "WORDS:3", "SIZE:100000", "TOOL:x"][round % 6];
        let stream = round % 2 == 0;
        let mut wire = Wire::connect(edge.address);
        let body = chat(text, stream);
        let close = format!("Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        wire.send(head("POST", CHAT, edge.token("alice")) + &close);
        if round % 7 != 0 {
            wire.rest(Duration::from_secs(20));
        }
    }
    // Bodies that end before their length, and clients that leave in the middle of them.
    for _ in 0..5 {
        let mut wire = Wire::connect(edge.address);
        wire.send(head("POST", CHAT, edge.token("alice")) + "Content-Length: 1000\r\n\r\n{\"mod");
        eventually("it is admitted", Duration::from_secs(5), || edge.turns.in_flight() > 0);
        wire.end_writing();
    }
    edge.settles();
}

#[test]
fn each_request_of_a_connection_is_its_own_persons() {
    let edge = TestEdge::start();
    let mut wire = Wire::connect(edge.address);
    for round in 0..20 {
        let login = ["alice", "bob", "carol"][round % 3];
        wire.send(post(CHAT, edge.token(login), &chat("hello", false)));
        let answer = wire.answer();
        assert!(contains(&answer.body, &format!("I am bot-{login}.")), "{round}: {answer:?}");
        wire.send(get("/v1/models", ""));
        assert_eq!(wire.answer().status(), 401, "{round}: the one before it lends nothing");
    }
    // Sent all at once, answered in order.
    let batch: String = ["alice", "bob", "carol", "bob"].map(|login| get("/v1/models", edge.token(login))).concat();
    wire.send(batch);
    for login in ["alice", "bob", "carol", "bob"] {
        assert!(contains(&wire.answer().body, &format!("bot-{login}")));
    }
    edge.settles();
}
