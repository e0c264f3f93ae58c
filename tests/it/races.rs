//! Revocation at every point of a request's way: nothing is served after it, and what was begun is stopped.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use botgate::cli::stand_in::{Misbehave, Misbehaviour};
use botgate::names::Uid;

use crate::support::edge::{TestEdge, config};
use crate::support::raw_gateway::{RawGateway, json};
use crate::support::wire::{End, Wire, chat, contains, ends_cleanly, get, post};
use crate::support::{eventually, poll_for};

const CHAT: &str = "/v1/chat/completions";
/// Within which a revocation is to have its effect.
const SOON: Duration = Duration::from_secs(1);

/// Takes a session's right away: the edge, the session's row, the person's row.
type Revoke = fn(&TestEdge, &Uid, &Uid);

/// Each way to do so.
const WAYS: [(&str, Revoke); 5] = [
    ("the session is revoked", |edge, session, _| {
        assert!(edge.edge.parts().sessions.revoke_session(session));
    }),
    ("the person is disabled", |edge, _, person| edge.edge.parts().sessions.disable(person)),
    ("the person is disabled and enabled again", |edge, _, person| {
        edge.edge.parts().sessions.disable(person);
        edge.edge.parts().sessions.enable(person);
    }),
    ("the person's sessions are revoked", |edge, _, person| {
        assert!(edge.edge.parts().sessions.revoke_person(person) > 0);
    }),
    ("the person is removed", |edge, _, person| edge.edge.parts().sessions.remove_person(person)),
];

/// Runs a race once for each way: `begin` brings alice's request to the point and gives her client; then she is revoked, and
/// `check` looks at what follows.
fn at_the_point<G>(
    start: impl Fn() -> (TestEdge, G),
    begin: impl Fn(&TestEdge, &G, &str) -> Wire,
    check: impl Fn(&TestEdge, &G, Wire, &str),
) {
    for (way, revoke) in WAYS {
        let (edge, gateway) = start();
        let (session, token) = edge.sign_in("alice");
        let wire = begin(&edge, &gateway, &token);
        revoke(&edge, &session, &edge.person("alice").uid);
        check(&edge, &gateway, wire, way);
        edge.settles();
    }
}

#[track_caller]
fn is_refused(wire: &mut Wire, way: &str) {
    let since = Instant::now();
    let answer = wire.answer();
    assert_eq!(answer.status(), 401, "{way}: {answer:?}");
    assert!(since.elapsed() < SOON, "{way}: {:?}", since.elapsed());
}

#[test]
fn while_it_waits_in_the_queue() {
    at_the_point(
        || {
            let mut config = config();
            config.gateways[0].max_turns = 1;
            let edge = TestEdge::with(config, |_| {});
            let mut running = Wire::connect(edge.address);
            running.send(post(CHAT, edge.token("bob"), &chat("SILENCE:60", true)));
            running.until("I am");
            (edge, running)
        },
        |edge, _, token| {
            let mut wire = Wire::connect(edge.address);
            wire.send(post(CHAT, token, &chat("hello", true)));
            eventually("it waits", Duration::from_secs(5), || edge.turns.queued() == 1);
            wire
        },
        |edge, running, mut wire, way| {
            is_refused(&mut wire, way);
            assert_eq!((edge.turns.queued(), edge.stand_in.requests().len()), (0, 1), "{way}");
            // Bob's turn went on; its client leaves now.
            running.stream().shutdown(std::net::Shutdown::Both).expect("an open connection");
        },
    );
}

/// A listener whose queue is full: a connection attempt hangs until room is made.
struct Busy {
    listener: TcpListener,
    _fillers: Vec<TcpStream>,
}

impl Busy {
    fn start() -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(&any.into()).expect("a free port");
        socket.listen(0).expect("a bound socket listens");
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().expect("a bound socket has an address");
        let fill = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
        let fillers = std::iter::from_fn(fill).take(64).collect();
        Busy { listener, _fillers: fillers }
    }
}

#[test]
fn while_it_connects() {
    at_the_point(
        || {
            let mut config = config();
            config.deadlines.connect = Duration::from_secs(20);
            let busy = Busy::start();
            let address = busy.listener.local_addr().expect("a bound socket has an address");
            (TestEdge::in_front_of(config, address), busy)
        },
        |edge, _, token| {
            let mut wire = Wire::connect(edge.address);
            wire.send(post(CHAT, token, &chat("hello", true)));
            eventually("it has its permit", Duration::from_secs(5), || edge.turns.in_flight() == 1);
            wire
        },
        |edge, busy, mut wire, way| {
            is_refused(&mut wire, way);
            eventually("the permit is back", SOON, || edge.turns.in_flight() == 0);
            // Whoever had got through is accepted now, and has nothing to say.
            busy.listener.set_nonblocking(true).expect("a listener takes the option");
            while let Ok((mut stream, _)) = busy.listener.accept() {
                stream.set_nonblocking(true).expect("a socket takes the option");
                let read = std::io::Read::read(&mut stream, &mut [0; 16]);
                assert!(!matches!(read, Ok(1..)), "{way}: something reached the gateway");
            }
        },
    );
}

#[test]
fn after_it_was_sent_and_before_the_answers_head() {
    for stream in [false, true] {
        at_the_point(
            || {
                let misbehave = Misbehave::always(Misbehaviour::NeverAnswer);
                (TestEdge::with(config(), |options| options.misbehave = Some(misbehave)), ())
            },
            |edge, (), token| {
                let mut wire = Wire::connect(edge.address);
                wire.send(post(CHAT, token, &chat("hello", stream)));
                eventually("it is sent", Duration::from_secs(5), || edge.stand_in.requests().len() == 1);
                wire
            },
            |edge, (), mut wire, way| {
                is_refused(&mut wire, way);
                eventually("the gateway's connection is closed", SOON, || edge.stand_in.connections() == 0);
            },
        );
    }
}

/// A gateway that says `bytes` to the first request and then waits to be left; the receiver hears when it was.
fn saying(bytes: &'static str) -> (RawGateway, Receiver<Instant>) {
    let (left, hear): (Sender<Instant>, _) = channel();
    let left = std::sync::Mutex::new(left);
    let gateway = RawGateway::start(move |upstream| {
        upstream.request();
        upstream.say(bytes);
        if upstream.is_closed_by_the_edge() {
            let _ = left.lock().expect("no test panics under the lock").send(Instant::now());
        }
    });
    (gateway, hear)
}

#[test]
fn after_the_answers_head_and_before_its_first_byte() {
    at_the_point(
        || {
            let (gateway, left) =
                saying("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            (TestEdge::in_front_of(config(), gateway.address()), (gateway, left))
        },
        |edge, _, token| {
            let mut wire = Wire::connect(edge.address);
            wire.send(post(CHAT, token, &chat("hello", true)));
            assert_eq!(wire.head()[0], "HTTP/1.1 200 OK");
            wire
        },
        |_, (_, left), mut wire, way| {
            let (rest, end) = wire.rest(SOON);
            assert!(rest.is_empty() && end != End::Open, "{way}: {rest:?} {end:?}");
            left.recv_timeout(SOON).expect("the gateway's connection is closed");
        },
    );
}

#[test]
fn while_a_short_refusal_of_the_gateway_is_read() {
    at_the_point(
        || {
            let (gateway, left) =
                saying("HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{");
            (TestEdge::in_front_of(config(), gateway.address()), (gateway, left))
        },
        |edge, _, token| {
            let mut wire = Wire::connect(edge.address);
            wire.send(get("/v1/runs/run_1", token));
            let active = "botgate_upstream_connections{gateway=\"main\",state=\"active\"}";
            eventually("it is sent", Duration::from_secs(5), || edge.metric(active) == Some(1.0));
            wire
        },
        |_, (_, left), mut wire, way| {
            is_refused(&mut wire, way);
            left.recv_timeout(SOON).expect("the gateway's connection is closed");
        },
    );
}

#[test]
fn in_the_middle_of_a_stream() {
    at_the_point(
        || (TestEdge::start(), ()),
        |edge, (), token| {
            let mut wire = Wire::connect(edge.address);
            wire.send(post(CHAT, token, &chat("WORDS:10000:0.005", true)));
            wire.until("w10 ");
            wire
        },
        |edge, (), mut wire, way| {
            let (rest, end) = wire.rest(SOON);
            assert!(end != End::Open && !ends_cleanly(&rest) && !contains(&rest, "[DONE]"), "{way}");
            eventually("the turn is interrupted", SOON, || edge.stand_in.interrupted() == 1);
        },
    );
}

#[test]
fn in_the_middle_of_a_stream_that_its_client_does_not_read() {
    at_the_point(
        || {
            let said = Arc::new(AtomicUsize::new(0));
            let (left, counted) = (Arc::new(AtomicBool::new(false)), Arc::clone(&said));
            let leaves = Arc::clone(&left);
            let gateway = RawGateway::start(move |upstream| {
                upstream.request();
                upstream
                    .say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000000000\r\n\r\n");
                while upstream.try_say([b'x'; 65_536]) {
                    counted.fetch_add(65_536, Ordering::SeqCst);
                }
                leaves.store(true, Ordering::SeqCst);
            });
            (TestEdge::in_front_of(config(), gateway.address()), (gateway, said, left))
        },
        |edge, (_, said, _), token| {
            let mut wire = Wire::connect(edge.address);
            wire.send(post(CHAT, token, &chat("hello", true)));
            wire.until("\r\n\r\n");
            let mut last = 0;
            let stalled = poll_for(Duration::from_secs(20), || {
                std::thread::sleep(Duration::from_millis(200));
                let now = said.load(Ordering::SeqCst);
                (std::mem::replace(&mut last, now) == now).then_some(())
            });
            stalled.expect("the gateway is held up");
            wire
        },
        |edge, (_, _, left), _wire, way| {
            eventually(&format!("{way}: the gateway is left"), SOON, || left.load(Ordering::SeqCst));
            eventually("the permit is back", 5 * SOON, || edge.turns.in_flight() == 0);
            eventually("the client's connection is gone", SOON, || edge.connections() == 0);
        },
    );
}

#[test]
fn a_run_that_starts_while_its_person_is_revoked_is_stopped() {
    for (way, revoke) in WAYS {
        let (started, arrived) = channel();
        let (say, said) = channel();
        let hands = std::sync::Mutex::new((started, said));
        let gateway = RawGateway::answering(move |_, request| {
            if request.line.starts_with("POST /p/bot-alice/v1/runs HTTP") {
                let hands = hands.lock().expect("no test panics under the lock");
                let _ = hands.0.send(());
                // The run exists from here on; the answer that names it is late.
                let _ = hands.1.recv_timeout(Duration::from_secs(10));
                return json("202 Accepted", r#"{"run_id":"run_7","status":"started"}"#);
            }
            json("200 OK", r#"{"run_id":"run_7","status":"running"}"#)
        });
        let edge = TestEdge::in_front_of(config(), gateway.address());
        let (session, token) = edge.sign_in("alice");
        let mut wire = Wire::connect(edge.address);
        wire.send(post("/v1/runs", &token, r#"{"input":"hello"}"#));
        arrived.recv_timeout(Duration::from_secs(5)).expect("the run is asked for");
        revoke(&edge, &session, &edge.person("alice").uid);
        let _ = say.send(());
        assert_eq!(wire.answer().status(), 401, "{way}");
        let stop = "POST /p/bot-alice/v1/runs/run_7/stop HTTP/1.1";
        eventually(&format!("{way}: the run is stopped"), Duration::from_secs(5), || {
            gateway.arrived().iter().any(|request| request.line == stop)
        });
    }
}

#[test]
fn a_running_run_is_stopped() {
    for (way, revoke) in WAYS {
        let edge = TestEdge::start();
        let (session, token) = edge.sign_in("alice");
        let mut wire = Wire::connect(edge.address);
        wire.send(post("/v1/runs", &token, r#"{"input":"SLEEP:60"}"#));
        assert_eq!(wire.answer().status() / 100, 2, "{way}");
        eventually("it runs", Duration::from_secs(5), || edge.stand_in.running() == 1);
        revoke(&edge, &session, &edge.person("alice").uid);
        eventually(&format!("{way}: the run is stopped"), SOON, || edge.stand_in.interrupted() == 1);
        edge.settles();
    }
}

#[test]
fn at_any_moment() {
    let edge = TestEdge::start();
    let gone = |edge: &TestEdge| edge.stand_in.running() == 0;
    for round in 0..60_u64 {
        let (session, token) = edge.sign_in("alice");
        let mut wire = Wire::connect(edge.address);
        wire.send(post(CHAT, &token, &chat("WORDS:2000:0.005", true)));
        // Spread over what a request takes here, from its first byte to its first events.
        let until = Instant::now() + Duration::from_micros(round * 150);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(edge.edge.parts().sessions.revoke_session(&session));
        let (seen, end) = wire.rest(Duration::from_secs(5));
        let refused = seen.starts_with(b"HTTP/1.1 401 ");
        let cut = end != End::Open && !ends_cleanly(&seen) && !contains(&seen, "[DONE]");
        assert!(refused || cut, "{round}: {end:?} {:?}", String::from_utf8_lossy(&seen));
        eventually("the gateway's turn is over", SOON, || gone(&edge));
    }
    edge.settles();
    assert_eq!(edge.stand_in.finished(), 0);
}
