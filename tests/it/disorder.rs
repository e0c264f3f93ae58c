//! Disorder: clients and a gateway that do everything they can at once. Nobody gets another's answer, and nothing stays behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::edge::{TestEdge, config};
use crate::support::eventually;
use crate::support::raw_gateway::{RawGateway, Upstream, json};
use crate::support::wire::{End, Wire, contains, get, head, post};

const CHAT: &str = "/v1/chat/completions";
/// Requests of each client.
const ROUNDS: usize = 150;

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Answers one connection's requests in every way that a gateway can, each answer with its request's line; false: it is over.
fn answers_somehow(upstream: &mut Upstream, dice: &mut Dice) -> bool {
    let mut seen = Vec::new();
    while !contains(&seen, "\r\n\r\n") {
        let bytes = upstream.bytes();
        if bytes.is_empty() {
            return false;
        }
        seen.extend_from_slice(&bytes);
    }
    let text = String::from_utf8_lossy(&seen).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").expect("it is there");
    let line = head.lines().next().unwrap_or_default().to_owned();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let early = dice.roll(4) == 0;
    let (mut got, length) = (body.len(), length.unwrap_or(0));
    let mut tail = body.to_owned();
    while !early && (if chunked { !tail.ends_with("0\r\n\r\n") } else { got < length }) {
        let bytes = upstream.bytes();
        if bytes.is_empty() {
            return false;
        }
        got += bytes.len();
        tail += &String::from_utf8_lossy(&bytes);
    }
    let chunks = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{line}\r\n4;x=y\r\n end\r\n0\r\n\r\n",
        line.len()
    );
    let plain = String::from_utf8(json("200 OK", &serde_json::json!({ "whose": line }).to_string())).expect("text");
    match dice.roll(8) {
        0 => upstream.say(plain),
        1 => upstream.say(chunks),
        2 => chunks.as_bytes().iter().for_each(|byte| upstream.say([*byte])),
        3 => plain.as_bytes().iter().for_each(|byte| upstream.say([*byte])),
        4 => upstream.say(plain + "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n?m=stale"),
        5 => {
            upstream.say(&chunks[..dice.roll(chunks.len() as u64) as usize]);
            return false;
        }
        6 => return false,
        _ => {
            upstream.say("HTTP/1.1 100 Continue\r\n\r\n");
            upstream.say(plain);
        }
    }
    !early
}

#[test]
fn whatever_clients_and_gateway_do_everything_is_given_back() {
    let seeds = AtomicUsize::new(1);
    let gateway = RawGateway::start(move |upstream| {
        let mut dice = Dice((0x9e37_79b9 * (seeds.fetch_add(1, Ordering::Relaxed) as u64)) | 1);
        while answers_somehow(upstream, &mut dice) {}
    });
    let mut config = config();
    config.deadlines.response_head = Duration::from_secs(3);
    config.deadlines.body = Duration::from_secs(1);
    let mut edge = TestEdge::in_front_of(config, gateway.address());
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (place, login) in ["alice", "bob", "carol", "alice", "bob", "carol"].into_iter().enumerate() {
            let (edge, answered) = (&edge, &answered);
            scope.spawn(move || {
                let mut dice = Dice((0x1234_5678_9abc * (place as u64 + 1)) | 1);
                let mut wire = Wire::connect(edge.address);
                for number in 0..ROUNDS {
                    let own = format!("?m={place}.{number}.");
                    let filler = "x".repeat(dice.roll(3) as usize * 40_000 + 1);
                    let request = match dice.roll(4) {
                        0 => get(&format!("/v1/models{own}"), edge.token(login)),
                        1 => post(&format!("{CHAT}{own}"), edge.token(login), ""),
                        2 => post(&format!("{CHAT}{own}"), edge.token(login), &filler),
                        _ => format!(
                            "{}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{filler}\r\n0\r\n\r\n",
                            head("POST", &format!("{CHAT}{own}"), edge.token(login)),
                            filler.len()
                        ),
                    };
                    let cut = dice.roll(request.len() as u64 + 1) as usize;
                    let (one, two) = request.split_at(if dice.roll(3) == 0 { cut } else { request.len() });
                    let mut sent = wire.try_send(one).is_ok();
                    if !two.is_empty() {
                        if dice.roll(3) == 0 {
                            wire = Wire::connect(edge.address);
                            continue;
                        }
                        std::thread::sleep(Duration::from_millis(dice.roll(5)));
                        sent = sent && wire.try_send(two).is_ok();
                    }
                    let mut said = Vec::new();
                    let since = Instant::now();
                    let mut end = End::Open;
                    while end == End::Open && !is_whole(&said) && since.elapsed() < Duration::from_secs(20) {
                        let (more, how) = wire.rest(Duration::from_millis(1));
                        said.extend_from_slice(&more);
                        end = how;
                    }
                    assert!(is_whole(&said) || end != End::Open, "{own} {sent}: hangs with {said:?}");
                    let text = content(&said);
                    for (at, _) in text.match_indices("?m=") {
                        let found = &text[at..text.len().min(at + own.len())];
                        assert!(own.starts_with(found), "{own}: {text}");
                    }
                    answered.fetch_add(usize::from(text.contains(&own)), Ordering::Relaxed);
                    if end != End::Open || !text.contains(" 200 ") {
                        wire = Wire::connect(edge.address);
                    }
                }
            });
        }
    });
    edge.settles();
    eventually("no client is left", Duration::from_secs(10), || edge.connections() == 0);
    let active = "botgate_upstream_connections{gateway=\"main\",state=\"active\"}";
    eventually("no call is under way", Duration::from_secs(10), || edge.metric(active) == Some(0.0));
    for line in ["botgate_connections{state=\"active\"}", "botgate_connections{state=\"idle\"}"] {
        assert_eq!(edge.metric(line), Some(0.0), "{line}");
    }
    let (answered, asked) = (answered.into_inner(), 6 * ROUNDS);
    assert!(answered > asked / 3, "{answered} of {asked}");
    assert!(edge.drain());
}

/// Whether an answer has come to its end.
fn is_whole(said: &[u8]) -> bool {
    let text = String::from_utf8_lossy(said).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    match head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok()) {
        Some(length) => body.len() >= length,
        None => body.ends_with("0\r\n\r\n"),
    }
}

/// An answer's head and, as far as it has come, its body without its framing.
fn content(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said).into_owned();
    let Some((head, mut rest)) = text.split_once("\r\n\r\n") else { return text };
    if !head.contains("transfer-encoding: chunked") {
        return text;
    }
    let mut whole = head.to_owned();
    while let Some((size, data)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk's size").min(data.len());
        whole += &data[..size];
        rest = data.get(size + 2..).unwrap_or_default();
    }
    whole
}
