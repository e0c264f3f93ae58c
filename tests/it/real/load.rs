//! Many people at once on the real gateway: every answer is one's own, and nothing is left counted afterwards.

use super::{SOON, chat, setup};
use crate::support::botgate::{Botgate, Setup};
use crate::support::eventually;
use crate::support::hermes::{Bot, RealGateway, Release};
use crate::support::http::{Answer, Call, KeptConnection};

/// Reads at once, and how many each makes.
const READERS: usize = 8;
const READS: usize = 25;
/// Turns at once that are waited for, and turns that are left in the middle.
const TURNS: usize = 20;
const LEFT: usize = 6;

/// What a streamed or a plain answer says.
fn said(answer: &Answer) -> String {
    if answer.header("content-type") != Some("text/event-stream") {
        return answer.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().trim().to_owned();
    }
    let events = answer.body.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = events.filter_map(|event| serde_json::from_str::<serde_json::Value>(event).ok());
    let words: Vec<_> =
        events.filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect();
    words.concat().trim().to_owned()
}

#[test]
fn two_hundred_reads_and_twenty_turns_at_once_are_each_ones_own() {
    let people = ["alice", "bob"];
    let gateway = RealGateway::start(Release::Current, &people.map(Bot::of));
    let limits = "turns_per_person = 10\nqueue_per_person = 20\nqueue_wait = \"120s\"".to_owned();
    let mut botgate = Botgate::new(&Setup { limits, ..setup(&gateway) });
    let tokens = people.map(|login| {
        botgate.add(login, &Bot::of(login));
        botgate.session(login)
    });
    botgate.serve_until_ready();
    let (address, tokens) = (botgate.address(), &tokens);

    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(move || {
                let mut connection = KeptConnection::to(address);
                for read in 0..READS {
                    // Two people behind one connection, as behind a forwarder.
                    let whose = read % 2;
                    let answer = connection.send(&Call::get("/v1/models").bearer(&tokens[whose]));
                    let id = answer.json()["data"][0]["id"].clone();
                    assert_eq!((answer.status, id), (200, format!("bot-{}", people[whose]).into()));
                }
                assert_eq!(connection.opened, 1, "connections are kept");
            });
        }
        for turn in 0..TURNS {
            scope.spawn(move || {
                let whose = turn % 2;
                let nonce = format!("nonce-{}-{turn}", people[whose]);
                let body = chat(&format!("ECHO:{nonce} and nothing else"), turn % 4 < 2);
                let answer = Call::post("/v1/chat/completions", &body).bearer(&tokens[whose]).send(address);
                assert_eq!((answer.status, said(&answer)), (200, nonce), "{}", answer.body);
            });
        }
        for turn in 0..LEFT {
            scope.spawn(move || {
                let body = chat(&format!("WORDS:2000:0.05 left {turn}"), turn != 0);
                let call = Call::post("/v1/chat/completions", &body).bearer(&tokens[turn % 2]);
                if turn == 0 {
                    // Left before there is any answer; its words all come, so that the turn ends in time.
                    let body = chat("WORDS:3:0.1 left before its answer", false);
                    drop(Call::post("/v1/chat/completions", &body).bearer(&tokens[0]).send_only(address));
                    return;
                }
                let mut answer = call.open(address);
                assert_eq!(answer.status, 200);
                answer.read_until("w1 ");
                drop(answer);
            });
        }
    });

    for person in people {
        let calls = gateway.model().turns_with(&format!("nonce-{person}-"));
        assert_eq!(calls.len(), TURNS / 2, "each turn ran once");
        let key = Bot::of(person).provider_key;
        assert!(calls.iter().all(|call| call.provider_key == key), "{calls:?}");
    }
    botgate.settles();
    let zero = |line: &str| eventually(line, SOON, || botgate.metric(line) == 0.0);
    zero("botgate_connections{state=\"active\"}");
    zero("botgate_connections{state=\"idle\"}");
    zero("botgate_upstream_connections{gateway=\"main\",state=\"active\"}");
    zero("botgate_audit_queue_records");
    let (opened, closed) = {
        let records = botgate.audit();
        let count = |kind: &str| records.iter().filter(|record| record["kind"] == kind).count();
        (count("open"), count("close"))
    };
    assert_eq!(opened, closed);
    assert!((TURNS..=TURNS + LEFT).contains(&opened), "{opened}");
    assert!(botgate.stop(), "{}", botgate.output());
    drop(gateway);
}

/// The gateway counts a silent stream that was left until it next writes; whoever waits is let in after that, not refused.
#[test]
fn a_turn_that_waits_gets_the_place_of_a_silent_stream_that_was_left() {
    let people = ["alice", "bob"];
    let gateway = RealGateway::start(Release::Current, &people.map(Bot::of));
    let limits = "turns_per_person = 10\nqueue_wait = \"60s\"".to_owned();
    let mut botgate = Botgate::new(&Setup { limits, ..setup(&gateway) });
    let [alice, bob] = people.map(|login| {
        botgate.add(login, &Bot::of(login));
        botgate.session(login)
    });
    botgate.serve_until_ready();
    let address = botgate.address();
    let hold = |n| {
        let call = Call::post("/v1/chat/completions", &chat(&format!("HOLD number {n}"), true)).bearer(&alice);
        let mut stream = call.open(address);
        assert_eq!(stream.status, 200);
        stream.read_until("data:");
        stream
    };
    let mut held: Vec<_> = (0..10).map(hold).collect();
    let bobs = Call::post("/v1/chat/completions", &chat("ECHO:his-turn", true)).bearer(&bob);
    let waiting = std::thread::spawn(move || bobs.open(address));
    eventually("bob's turn waits", SOON, || botgate.turns() == (10.0, 1.0));
    drop(held.remove(0));
    let answer = waiting.join().expect("bob is answered");
    assert_eq!(answer.status, 200);
    // The gateway has fewer threads than turns: bob's would wait behind those that are held.
    gateway.model().release();
    assert_eq!(said(&answer.finish()), "his-turn");
    drop(held);
    botgate.settles();
}
