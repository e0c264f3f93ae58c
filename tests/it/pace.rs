//! Slow peers are cut by their progress: a slow one early, a steady one never, however long it takes.

use std::io::Read;
use std::time::{Duration, Instant};

use botgate::config::Config;

use crate::support::edge::{TestEdge, config};
use crate::support::eventually;
use crate::support::raw_gateway::{RawGateway, json};
use crate::support::wire::{End, Wire, chat, ends_cleanly, get, head, post};

const CHAT: &str = "/v1/chat/completions";
/// Every deadline but those of the gateway's own waits.
const SHORT: Duration = Duration::from_millis(800);
/// How long what must not be cut takes.
const LONG: Duration = Duration::from_secs(4);

fn impatient() -> Config {
    let mut config = config();
    let deadlines = &mut config.deadlines;
    for deadline in [
        &mut deadlines.first_byte,
        &mut deadlines.header,
        &mut deadlines.keep_alive,
        &mut deadlines.write,
        &mut deadlines.body,
    ] {
        *deadline = SHORT;
    }
    config
}

#[test]
fn a_long_download_goes_on_as_long_as_it_is_read() {
    let gateway = RawGateway::start(|upstream| {
        if upstream.request().is_none() {
            return;
        }
        upstream.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        let since = Instant::now();
        let chunk = format!("5000\r\n{}\r\n", "x".repeat(0x5000));
        while since.elapsed() < LONG {
            upstream.say(&chunk);
            std::thread::sleep(Duration::from_millis(25));
        }
        upstream.say("0\r\n\r\n");
    });
    let edge = TestEdge::in_front_of(impatient(), gateway.address());
    let mut wire = Wire::connect(edge.address);
    wire.send(post(CHAT, edge.token("alice"), &chat("x", true)));
    let (said, _) = wire.rest(LONG + Duration::from_secs(2));
    assert!(said.len() > 1_000_000 && ends_cleanly(&said), "{} bytes", said.len());
}

#[test]
fn a_slow_reader_is_served_as_long_as_it_makes_progress() {
    let edge = TestEdge::with(impatient(), |_| {});
    let mut wire = Wire::connect_narrow(edge.address);
    wire.send(post(CHAT, edge.token("alice"), &chat("SIZE:60000000", true)));
    wire.until("I am");
    let (since, mut taken) = (Instant::now(), 0);
    let mut piece = vec![0; 64 * 1024];
    while since.elapsed() < LONG {
        wire.stream().read_exact(&mut piece).expect("a reader that takes its answer is not cut");
        taken += piece.len();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(edge.stand_in.interrupted(), 0);
    assert!(taken < 20_000_000, "it was slow: {taken}");
    drop(wire);
    edge.settles();
}

#[test]
fn a_reader_that_takes_a_byte_now_and_then_is_cut_and_its_turn_ends() {
    let edge = TestEdge::with(impatient(), |_| {});
    let mut wire = Wire::connect_narrow(edge.address);
    wire.send(post(CHAT, edge.token("alice"), &chat("SIZE:60000000", true)));
    wire.until("I am");
    let since = Instant::now();
    while edge.connections() > 0 && since.elapsed() < Duration::from_secs(20) {
        // What has come before the cut is still there to be read.
        let _ = wire.stream().read(&mut [0]);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(since.elapsed() >= SHORT / 2 && since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    eventually("the gateway's turn is interrupted", Duration::from_secs(10), || edge.stand_in.interrupted() == 1);
    edge.settles();
}

#[test]
fn a_long_upload_goes_on_as_long_as_it_makes_progress() {
    let gateway = RawGateway::start(|upstream| {
        while upstream.request().is_some() {
            upstream.say(json("200 OK", "{}"));
        }
    });
    let edge = TestEdge::in_front_of(impatient(), gateway.address());
    let mut wire = Wire::connect(edge.address);
    let pieces: u32 = 80;
    wire.send(format!("{}Content-Length: {}\r\n\r\n", head("POST", CHAT, edge.token("alice")), pieces * 1000));
    let since = Instant::now();
    for _ in 0..pieces {
        wire.send([b' '; 1000]);
        std::thread::sleep(LONG / pieces);
    }
    assert_eq!(wire.answer().status(), 200);
    assert!(since.elapsed() >= LONG);
    wire.send(get("/v1/models", edge.token("alice")));
    assert_eq!(wire.answer().status(), 200);
    assert_eq!(wire.rest(Duration::from_secs(20)).1, End::Closed, "idle connections still end");
}
