//! The end of an edge: nobody is reset, what runs gets its time, what is asked is answered, and what is cut looks cut.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::edge::{TestEdge, config};
use crate::support::site::Site;
use crate::support::tls::{Authority, Offer, shake};
use crate::support::wire::{End, Raw, Wire, chat, contains, ends_cleanly, get, post};
use crate::support::{eventually, poll_for};
use crate::tls;

const CHAT: &str = "/v1/chat/completions";
const SOON: Duration = Duration::from_secs(20);

#[track_caller]
fn stream(address: std::net::SocketAddr, token: &str, text: &str) -> Wire {
    let mut wire = Wire::connect(address);
    wire.send(post(CHAT, token, &chat(text, true)));
    wire.until("I am");
    wire
}

fn is_last(answer: &Raw) -> bool {
    answer.header("connection") == Some("close")
}

#[track_caller]
fn closes(wire: &mut Wire) {
    let (rest, end) = wire.rest(SOON);
    assert!(rest.is_empty() && end == End::Closed, "{end:?} {:?}", String::from_utf8_lossy(&rest));
}

#[test]
fn what_the_system_has_accepted_is_answered_and_not_reset() {
    let mut site = Site::of(&["alice"]);
    site.botgate.serve_until_ready();
    let (token, address) = (site.botgate.session("alice"), site.botgate.address());
    let pid = Pid::from_raw(site.botgate.pid()).expect("a process");
    let signal = |signal| kill_process(pid, signal).expect("it runs");
    // While it stands still the system accepts in its place.
    signal(Signal::STOP);
    let waiting: Vec<Wire> = (0..400)
        .map(|_| {
            let mut wire = Wire::connect(address);
            wire.send(get("/v1/models", &token));
            wire
        })
        .collect();
    signal(Signal::TERM);
    signal(Signal::CONT);
    for mut wire in waiting {
        let answer = wire.answer();
        assert!(answer.status() == 200 && is_last(&answer), "{answer:?}");
        closes(&mut wire);
    }
    assert_eq!(site.botgate.ended(), Some(0), "{}", site.botgate.output());
}

#[test]
fn whoever_connects_around_the_signal_is_answered_or_refused_and_never_reset() {
    let mut site = Site::of(&["alice"]);
    site.botgate.serve();
    let (address, asked) = (site.botgate.address(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                // Refused: it is over.
                while let Ok(mut wire) = Wire::try_connect(address) {
                    wire.send(get("/health", ""));
                    assert_eq!(wire.answer().status(), 200);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        eventually("all connect", SOON, || asked.load(Ordering::Relaxed) > 300);
        site.botgate.terminate();
    });
    assert_eq!(site.botgate.ended(), Some(0), "{}", site.botgate.output());
}

#[test]
fn a_run_goes_on_without_the_edge_and_is_followed_by_the_next() {
    let mut site = Site::of(&["alice"]);
    site.botgate.serve_until_ready();
    let mut wire = Wire::connect(site.botgate.address());
    wire.send(post("/v1/runs", &site.botgate.session("alice"), r#"{"input":"SLEEP:6"}"#));
    assert_eq!(wire.answer().status(), 202);
    eventually("its row is written", SOON, || site.botgate.turns().0 == 1.0);
    site.botgate.terminate();
    assert_eq!(site.botgate.ended(), Some(0), "{}", site.botgate.output());
    assert_eq!(outcomes(&site), ["shutdown"]);
    site.botgate.serve();
    assert_eq!(site.botgate.turns().0, 1.0, "it is taken up before anything is served");
    site.botgate.settles();
    assert!(site.botgate.stop());
}

/// Asks without a pause until told that the connection ends; every answer is a good one.
fn asks_until_told(edge: &TestEdge, mut wire: Wire, number: usize, with_turns: bool, asked: &AtomicUsize) {
    let token = edge.token(["alice", "bob", "carol"][number % 3]);
    for round in 0.. {
        if with_turns && round % 4 == 0 {
            wire.send(post(CHAT, token, &chat("hello", false)));
        } else {
            wire.send(get("/v1/models", token));
        }
        let answer = wire.try_answer().unwrap_or_else(|error| panic!("{number}: unanswered in round {round}: {error}"));
        assert_eq!(answer.status(), 200, "{number}: {answer:?}");
        asked.fetch_add(1, Ordering::Relaxed);
        if is_last(&answer) {
            return closes(&mut wire);
        }
    }
}

#[test]
fn a_client_that_asks_without_a_pause_is_told_before_its_connection_closes() {
    let authority = Authority::new();
    let client = authority.client(Offer::default());
    for (replaced, encrypted) in [(false, false), (true, false), (false, true)] {
        let mut edge = TestEdge::with(if encrypted { tls::config(&authority) } else { config() }, |_| {});
        let connect = || match encrypted {
            false => Wire::connect(edge.address),
            true => Wire::encrypted(shake(&client, "127.0.0.1", edge.address).expect("the handshake succeeds")),
        };
        let asked = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for number in 0..9 {
                let (edge, wire, asked) = (&edge, connect(), &asked);
                scope.spawn(move || asks_until_told(edge, wire, number, replaced, asked));
            }
            eventually("all ask", SOON, || asked.load(Ordering::Relaxed) > 200);
            let ending = &edge.edge.parts().ending;
            if replaced { ending.replace() } else { ending.drain() }
        });
        assert!(edge.drain(), "nothing had to be cut");
    }
}

#[test]
fn a_request_on_its_way_is_answered_and_an_idle_connection_closes_soon_after() {
    let mut edge = TestEdge::start();
    let used = || {
        let mut wire = Wire::connect(edge.address);
        wire.send(get("/v1/models", edge.token("alice")));
        assert!(!is_last(&wire.answer()));
        wire
    };
    let (mut late, mut turn, mut idle, mut new) = (used(), used(), used(), Wire::connect(edge.address));
    eventually("all are accepted", SOON, || edge.connections() == 4);
    let since = Instant::now();
    edge.edge.parts().ending.drain();
    std::thread::sleep(Duration::from_millis(300));
    late.send(get("/v1/models", edge.token("alice")));
    let answer = late.answer();
    assert!(answer.status() == 200 && is_last(&answer), "{answer:?}");
    turn.send(post(CHAT, edge.token("bob"), &chat("hello", true)));
    let answer = turn.answer();
    assert!(answer.status() == 503 && is_last(&answer), "{answer:?}");
    assert_eq!(answer.header("x-should-retry"), Some("true"));
    assert!(answer.header("retry-after").is_some() && contains(&answer.body, "draining"), "{answer:?}");
    for wire in [&mut late, &mut turn, &mut idle, &mut new] {
        closes(wire);
    }
    let took = since.elapsed();
    assert!(took > Duration::from_millis(900) && took < Duration::from_secs(5), "{took:?}");
    assert!(edge.drain());
    assert_eq!(edge.stand_in.finished(), 0, "the turn never left");
}

/// Accepts on any of these sockets.
#[track_caller]
fn accepted(sockets: &[TcpListener]) -> std::net::TcpStream {
    let next = || sockets.iter().find_map(|socket| socket.accept().ok());
    let (stream, _) = poll_for(SOON, next).expect("somebody waits");
    stream.set_nonblocking(false).expect("a socket takes the option");
    stream
}

#[test]
fn a_replaced_edge_serves_what_it_has_and_leaves_the_rest_to_its_successor() {
    let mut config = config();
    // Of a drain; there is no limit to this.
    config.deadlines.drain = Duration::from_millis(100);
    let mut edge = TestEdge::with(config, |_| {});
    let mut long = stream(edge.address, edge.token("alice"), "WORDS:60:0.05");
    let mut kept = Wire::connect(edge.address);
    kept.send(get("/v1/models", edge.token("bob")));
    assert_eq!(kept.answer().status(), 200);
    let sockets = edge.sockets().expect("it listens").into_inner();
    edge.edge.parts().ending.replace();
    eventually("it accepts no more", SOON, || !edge.accepts());
    assert!(edge.sockets().is_err());
    let mut waiting: Vec<Wire> = (0..20)
        .map(|_| {
            let mut wire = Wire::connect(edge.address);
            wire.send(get("/health", ""));
            wire
        })
        .collect();
    for _ in 0..waiting.len() {
        let mut client = accepted(&sockets);
        let mut asked = [0; 11];
        client.read_exact(&mut asked).expect("it has asked");
        assert_eq!(&asked, b"GET /health");
        client.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").expect("it reads");
    }
    for wire in &mut waiting {
        assert_eq!(wire.answer().status(), 204);
    }
    kept.send(post(CHAT, edge.token("bob"), &chat("hello", false)));
    let answer = kept.answer();
    assert!(answer.status() == 200 && is_last(&answer), "{answer:?}");
    let (rest, end) = long.rest(SOON);
    assert!(contains(&rest, "[DONE]") && ends_cleanly(&rest) && end == End::Closed, "{end:?}");
    assert!(edge.drain(), "nothing had to be cut");
}

/// The outcomes of the turns that are closed.
fn outcomes(site: &Site) -> Vec<Value> {
    let closed = site.botgate.audit().into_iter().filter(|record| record["kind"] == "close");
    closed.map(|record| record["outcome"].clone()).collect()
}

#[test]
fn the_program_says_that_it_drains_and_lets_a_stream_end() {
    let mut site = Site::of(&["alice"]);
    site.botgate.serve_until_ready();
    let mut wire = stream(site.botgate.address(), &site.botgate.session("alice"), "WORDS:60:0.05");
    site.botgate.terminate();
    let out = poll_for(Duration::from_secs(1), || Some(site.botgate.readyz()).filter(|answer| answer.status == 503));
    let out = out.expect("out at once");
    assert_eq!((&out.json()["draining"], &out.json()["gateways"][0]["servable"]), (&true.into(), &true.into()));
    let (rest, end) = wire.rest(SOON);
    assert!(contains(&rest, "[DONE]") && ends_cleanly(&rest) && end == End::Closed, "{end:?}");
    assert_eq!(site.botgate.ended(), Some(0), "{}", site.botgate.output());
    assert!(site.botgate.output().contains("every request came to its own end"), "{}", site.botgate.output());
    assert_eq!(outcomes(&site), ["finished"]);
}

#[test]
fn the_program_cuts_visibly_at_its_limit_and_at_a_second_signal() {
    for (configured, again) in [("[deadlines]\ndrain = \"1s\"", false), ("", true)] {
        let mut site = Site::configured(&["alice"], configured);
        site.botgate.serve_until_ready();
        let mut wire = stream(site.botgate.address(), &site.botgate.session("alice"), "WORDS:2000:0.05");
        let since = Instant::now();
        site.botgate.terminate();
        if again {
            eventually("it drains", SOON, || site.botgate.readyz().status == 503);
            site.botgate.terminate();
        }
        let (rest, end) = wire.rest(SOON);
        assert!(!contains(&rest, "[DONE]") && !ends_cleanly(&rest) && end != End::Open, "{end:?}");
        assert_eq!(site.botgate.ended(), Some(0), "{}", site.botgate.output());
        assert!(since.elapsed() < Duration::from_secs(10));
        let output = site.botgate.output();
        assert!(output.contains("cut") && output.contains("requests were cut"), "{output}");
        assert_eq!(outcomes(&site), ["shutdown"]);
    }
}
