//! The stand-in against what the contract sheet says of the real one, over plain sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;

const ALICE: &str = "alice-fixture-key-0123456789";
const BOB: &str = "bob-fixture-key-0123456789ab";
const DEFAULT: &str = "default-fixture-key-01234567";

fn key(text: &str) -> ApiServerKey {
    ApiServerKey::parse(text).unwrap()
}

fn profile(text: &str) -> ProfileName {
    ProfileName::parse(text).unwrap()
}

fn options() -> Options {
    let bots = vec![(profile("bot-alice"), key(ALICE)), (profile("bot-bob"), key(BOB))];
    Options { record: 100, ..Options::new(bots, key(DEFAULT)) }
}

fn started(options: Options) -> StandIn {
    serve(TcpListener::bind("127.0.0.1:0").unwrap(), options).unwrap()
}

fn dial(stand_in: &StandIn) -> TcpStream {
    let socket = TcpStream::connect(stand_in.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

fn send(stand_in: &StandIn, raw: &[u8]) -> TcpStream {
    let mut socket = dial(stand_in);
    socket.write_all(raw).unwrap();
    socket
}

/// Sends one request and reads to the end of the connection.
fn raw(stand_in: &StandIn, raw: &[u8]) -> String {
    let mut answer = Vec::new();
    let _ = send(stand_in, raw).read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn request(method: &str, path: &str, key: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn ask(stand_in: &StandIn, method: &str, path: &str, key: &str, body: &str) -> (u16, String) {
    let answer = raw(stand_in, request(method, path, key, body).as_bytes());
    (status(&answer), answer)
}

fn status(answer: &str) -> u16 {
    answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn chat(message: &str, stream: bool) -> String {
    serde_json::json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": message}]}).to_string()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn keys_are_bound_to_paths() {
    let stand_in = started(options());
    let cases = [
        ("/p/bot-alice/v1/models", ALICE, 200),
        ("/p/bot-alice/v1/models", BOB, 401),
        ("/p/bot-alice/v1/models", DEFAULT, 401),
        ("/p/bot-alice/v1/models", "", 401),
        ("/p/bot%2Dalice/v1/models", ALICE, 200),
        ("/p/%20bot-alice%0a/v1/models", ALICE, 200),
        ("/p/BOT-ALICE/v1/models", ALICE, 404),
        ("/p/bot-carol/v1/models", ALICE, 404),
        ("/v1/models", DEFAULT, 200),
        ("/p/default/v1/models", DEFAULT, 200),
        ("/v1/models", ALICE, 401),
        ("/health", "", 200),
        ("/p/bot-alice/health", "", 200),
        ("/p/bot-carol/v1/health", "", 404),
        ("/p/bot-alice/health/detailed", "", 401),
        ("/p/bot-alice/v1//models", ALICE, 404),
        ("/p/bot-alice/v1/nothing", ALICE, 404),
    ];
    for (path, key, expected) in cases {
        assert_eq!(ask(&stand_in, "GET", path, key, "").0, expected, "{path} {key}");
    }
    let (_, answer) = ask(&stand_in, "GET", "/p/bot-alice/v1/models", ALICE, "");
    assert!(answer.contains("server: botgate-stand-in") && answer.contains(r#""id":"bot-alice""#), "{answer}");
    assert!(ask(&stand_in, "GET", "/p/bot-carol/v1/models", ALICE, "").1.contains(r#"{"error":"Unknown"#));
    assert!(ask(&stand_in, "GET", "/p/bot-alice/v1/models", BOB, "").1.contains("gateway_auth_failed"));
    let lower =
        format!("GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: bearer {DEFAULT}\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&raw(&stand_in, lower.as_bytes())), 401);
    let origin = lower.replace("bearer", "Bearer").replace("Host: x", "Host: x\r\nOrigin: http://x");
    assert_eq!(status(&raw(&stand_in, origin.as_bytes())), 403);
    let recorded = stand_in.requests();
    assert_eq!(recorded[0].target, "/p/bot-alice/v1/models");
    assert_eq!(recorded[0].header("authorization").next().unwrap(), format!("Bearer {ALICE}").as_bytes());
    assert!(!format!("{recorded:?}").contains(ALICE));
}

#[test]
fn keys_change_at_once() {
    let stand_in = started(options());
    let alice = profile("bot-alice");
    let models = |key| ask(&stand_in, "GET", "/p/bot-alice/v1/models", key, "").0;
    stand_in.set_bot(&alice, &key("another-fixture-key-0123"));
    assert_eq!((models(ALICE), models("another-fixture-key-0123")), (401, 200));
    stand_in.clear_key(&alice);
    assert_eq!((models(ALICE), models("another-fixture-key-0123"), models("")), (401, 401, 401));
    stand_in.remove_bot(&alice);
    assert_eq!(models(ALICE), 404);
}

#[test]
fn a_plain_answer_and_a_stream_say_who_speaks() {
    let stand_in = started(options());
    let path = "/p/bot-bob/v1/chat/completions";
    let (code, answer) = ask(&stand_in, "POST", path, BOB, &chat("hello", false));
    assert_eq!(code, 200);
    assert!(
        answer.contains("I am bot-bob. You said: hello") && answer.contains("x-hermes-session-id: api-"),
        "{answer}"
    );
    let (_, answer) = ask(&stand_in, "POST", path, BOB, &chat("WORDS:2:0 TOOL:terminal", true));
    for piece in [r#""delta":{"role":"assistant"}"#, "I am bot-bob. ", "w1 ", "event: hermes.tool.progress", "usage"] {
        assert!(answer.contains(piece), "{piece} in {answer}");
    }
    assert!(answer.contains("data: [DONE]\n\n") && answer.contains("content-type: text/event-stream"), "{answer}");
    assert_eq!((stand_in.running(), stand_in.finished(), stand_in.interrupted()), (0, 2, 0));
    assert_eq!(stand_in.requests()[0].body_bytes(), chat("hello", false).len() as u64);
}

#[test]
fn silence_carries_comments() {
    let stand_in = started(Options { keepalive: Duration::from_millis(50), ..options() });
    let (_, answer) =
        ask(&stand_in, "POST", "/p/bot-bob/v1/chat/completions", BOB, &chat("SILENCE:0.4 WORDS:1:0", true));
    assert!(answer.matches(": keepalive\n\n").count() >= 3, "{answer}");
    assert!(answer.contains("[DONE]"));
}

#[test]
fn a_client_that_leaves_ends_a_stream_and_not_a_plain_turn() {
    let stand_in = started(options());
    let path = "/p/bot-alice/v1/chat/completions";
    let streaming = send(&stand_in, request("POST", path, ALICE, &chat("SLEEP:600", true)).as_bytes());
    until("the stream runs", || stand_in.running() == 1);
    drop(streaming);
    until("the stream is interrupted", || stand_in.running() == 0 && stand_in.interrupted() == 1);
    let plain = send(&stand_in, request("POST", path, ALICE, &chat("SLEEP:0.5", false)).as_bytes());
    until("the plain turn runs", || stand_in.running() == 1);
    plain.shutdown(Shutdown::Both).unwrap();
    until("its connection is gone", || stand_in.connections() == 0);
    until("the plain turn ends by itself", || stand_in.running() == 0);
    assert_eq!((stand_in.finished(), stand_in.interrupted()), (1, 1));
}

#[test]
fn the_cap_counts_all_bots_together() {
    let stand_in = started(Options { max_turns: 2, ..options() });
    let path = |bot: &str| format!("/p/{bot}/v1/chat/completions");
    let held: Vec<TcpStream> = [("bot-alice", ALICE), ("bot-bob", BOB)]
        .iter()
        .map(|(bot, key)| send(&stand_in, request("POST", &path(bot), key, &chat("SLEEP:600", true)).as_bytes()))
        .collect();
    until("both run", || stand_in.running() == 2);
    let (code, answer) = ask(&stand_in, "POST", &path("bot-bob"), BOB, &chat("hello", false));
    assert_eq!(code, 429);
    assert!(answer.contains("retry-after: 1") && answer.contains("rate_limit_exceeded"), "{answer}");
    drop(held);
    until("both are interrupted", || stand_in.running() == 0);
    assert_eq!(stand_in.peak(), 2);
    stand_in.drain();
    let (code, answer) = ask(&stand_in, "POST", &path("bot-bob"), BOB, &chat("hello", false));
    assert!(code == 503 && answer.contains("gateway_draining"), "{answer}");
    assert_eq!(ask(&stand_in, "GET", "/health", "", "").0, 200);
}

#[test]
fn a_declared_length_is_refused_before_the_key() {
    let stand_in = started(options());
    let head = "POST /p/bot-alice/v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 10000001\r\n\r\n";
    let mut socket = send(&stand_in, head.as_bytes());
    let mut answer = [0; 4096];
    let read = socket.read(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer[..read]).starts_with("HTTP/1.1 413"));
    // It lingers: what is sent now is read and thrown away, not answered with a reset.
    for _ in 0..50 {
        socket.write_all(&[b'x'; 4096]).unwrap();
    }
    assert_eq!(socket.read(&mut answer).unwrap(), 0);
    assert_eq!(stand_in.connections(), 1);
}

#[test]
fn responses_are_numbered_stored_and_deleted() {
    let stand_in = started(options());
    let path = "/p/bot-alice/v1/responses";
    let (code, answer) = ask(&stand_in, "POST", path, ALICE, r#"{"input":"hello","stream":true}"#);
    assert_eq!(code, 200);
    for event in ["response.created", "response.output_text.delta", "response.completed"] {
        assert!(answer.contains(&format!("event: {event}\n")), "{event} in {answer}");
    }
    assert!(answer.contains(r#""sequence_number":0"#) && !answer.contains("[DONE]"), "{answer}");
    let id = answer.split(r#""id":""#).find_map(|rest| rest.strip_prefix("resp_")).unwrap();
    let one = format!("{path}/resp_{}", &id[..32]);
    assert_eq!(ask(&stand_in, "GET", &one, ALICE, "").0, 200);
    let others = one.replace("bot-alice", "bot-bob");
    assert_eq!(ask(&stand_in, "GET", &others, BOB, "").0, 404);
    assert_eq!(ask(&stand_in, "DELETE", &one, ALICE, "").0, 200);
    assert_eq!(ask(&stand_in, "GET", &one, ALICE, "").0, 404);
}

fn run_id(answer: &str) -> String {
    let (_, id) = answer.split_once(r#""run_id":""#).unwrap_or_else(|| panic!("no run in {answer}"));
    id[..36].to_owned()
}

#[test]
fn a_run_belongs_to_its_bot_and_outlives_its_request() {
    let stand_in = started(options());
    let path = "/p/bot-alice/v1/runs";
    let (code, answer) = ask(&stand_in, "POST", path, ALICE, r#"{"input":"SLEEP:600 hello"}"#);
    assert_eq!(code, 202);
    let one = format!("{path}/{}", run_id(&answer));
    let others = one.replace("bot-alice", "bot-bob");
    for (method, end) in [("GET", ""), ("GET", "/events"), ("POST", "/stop")] {
        let (code, answer) = ask(&stand_in, method, &format!("{others}{end}"), BOB, "");
        assert!(code == 404 && answer.contains("run_not_found"), "{method} {end}: {answer}");
    }
    until("it runs", || ask(&stand_in, "GET", &one, ALICE, "").1.contains(r#""status":"running""#));
    assert_eq!(ask(&stand_in, "POST", &format!("{one}/steer"), ALICE, r#"{"input":"left"}"#).0, 200);
    assert!(ask(&stand_in, "POST", &format!("{one}/stop"), ALICE, "").1.contains(r#""status":"stopping""#));
    until("it is stopped", || ask(&stand_in, "GET", &one, ALICE, "").1.contains(r#""status":"cancelled""#));
    assert_eq!((stand_in.running(), stand_in.interrupted()), (0, 1));
    let (_, events) = ask(&stand_in, "GET", &format!("{one}/events"), ALICE, "");
    assert!(events.contains(": open\n\n") && events.contains(": stream closed\n\n"), "{events}");
    assert!(events.contains("run.cancelled") && events.contains("id: 0\n"), "{events}");
}

#[test]
fn a_run_waits_for_approval() {
    let stand_in = started(options());
    let path = "/p/bot-alice/v1/runs";
    let one = format!("{path}/{}", run_id(&ask(&stand_in, "POST", path, ALICE, r#"{"input":"APPROVE"}"#).1));
    until("it waits", || ask(&stand_in, "GET", &one, ALICE, "").1.contains("waiting_for_approval"));
    assert_eq!(ask(&stand_in, "POST", &format!("{one}/approval"), ALICE, r#"{"choice":"maybe"}"#).0, 400);
    assert_eq!(ask(&stand_in, "POST", &format!("{one}/approval"), ALICE, r#"{"choice":"once"}"#).0, 200);
    until("it ends", || ask(&stand_in, "GET", &one, ALICE, "").1.contains(r#""status":"completed""#));
    assert_eq!(ask(&stand_in, "POST", &format!("{one}/approval"), ALICE, r#"{"choice":"once"}"#).0, 409);
}

#[test]
fn a_run_is_started_once_for_one_idempotency_key() {
    let stand_in = started(options());
    let start = |input: &str| {
        let body = format!(r#"{{"input":"{input}"}}"#);
        let request = request("POST", "/p/bot-alice/v1/runs", ALICE, &body);
        raw(&stand_in, request.replace("Host: x", "Host: x\r\nIdempotency-Key: once").as_bytes())
    };
    let first = start("hello");
    let again = start("hello");
    assert_eq!(run_id(&first), run_id(&again));
    assert!(again.contains("idempotency-replayed: true"), "{again}");
    let other = start("other");
    assert!(status(&other) == 409 && other.contains("idempotency_key_conflict"), "{other}");
}

#[test]
fn sessions_and_jobs_are_kept_for_each_bot() {
    let stand_in = started(options());
    assert_eq!(ask(&stand_in, "POST", "/p/bot-alice/api/sessions", ALICE, r#"{"id":"s1"}"#).0, 201);
    assert_eq!(ask(&stand_in, "GET", "/p/bot-alice/api/sessions/s1", ALICE, "").0, 200);
    assert_eq!(ask(&stand_in, "GET", "/p/bot-bob/api/sessions/s1", BOB, "").0, 404);
    let (_, answer) = ask(&stand_in, "POST", "/p/bot-alice/api/sessions/s1/chat/stream", ALICE, r#"{"message":"hi"}"#);
    assert!(answer.contains("event: assistant.delta") && answer.contains("event: done"), "{answer}");
    assert_eq!(ask(&stand_in, "POST", "/p/bot-alice/api/jobs", ALICE, r#"{"name":"n","schedule":"1h"}"#).0, 200);
    assert!(ask(&stand_in, "GET", "/p/bot-alice/api/jobs", ALICE, "").1.contains("job_"));
    assert!(!ask(&stand_in, "GET", "/p/bot-bob/api/jobs", BOB, "").1.contains("job_"));
}

#[test]
fn failures_look_as_the_real_ones_do() {
    let stand_in = started(options());
    let path = "/p/bot-alice/v1/chat/completions";
    let (code, answer) = ask(&stand_in, "POST", path, ALICE, &chat("FAIL:401", false));
    assert!(code == 200 && answer.contains(r#""finish_reason":"error""#), "{answer}");
    let (code, _) = ask(&stand_in, "POST", path, ALICE, &chat("FAIL:502", true));
    assert_eq!(code, 502);
    assert_eq!(ask(&stand_in, "POST", path, ALICE, "{").0, 400);
    assert_eq!((stand_in.running(), stand_in.interrupted()), (0, 0));
}

#[test]
fn misbehaviour_begins_after_the_proof() {
    let stand_in = started(options());
    let models = request("GET", "/p/bot-alice/v1/models", ALICE, "");
    let probe = models.replace("Host: x", "Host: x\r\nUser-Agent: botgate-proof");
    let cases = [
        (Misbehaviour::Unasked101, "HTTP/1.1 101 "),
        (Misbehaviour::Redirect, "HTTP/1.1 307 "),
        (Misbehaviour::EchoKey, "HTTP/1.1 200 "),
        (Misbehaviour::TruncatedChunked, "HTTP/1.1 200 "),
        (Misbehaviour::TruncatedLength, "HTTP/1.1 200 "),
        (Misbehaviour::RefuseRightKey, "HTTP/1.1 401 "),
        (Misbehaviour::DisownProfile, "HTTP/1.1 404 "),
        (Misbehaviour::CloseUnanswered, ""),
        (Misbehaviour::CloseAfterHead, "HTTP/1.1 200 "),
        (Misbehaviour::Junk, "\u{1}\u{2}junk"),
        (Misbehaviour::TwoLengths, "HTTP/1.1 200 "),
        (Misbehaviour::Slow(Duration::from_millis(5)), "HTTP/1.1 200 "),
        (Misbehaviour::Status(500), "HTTP/1.1 500 "),
    ];
    for (how, begins) in cases {
        stand_in.misbehave(Some(Misbehave::after_proof(how)));
        let answer = raw(&stand_in, models.as_bytes());
        assert!(answer.starts_with(begins), "{how:?}: {answer}");
        assert!(answer.contains(r#""id":"bot-alice""#) == matches!(how, Misbehaviour::Slow(_)), "{how:?}: {answer}");
        assert!(raw(&stand_in, probe.as_bytes()).contains(r#""id":"bot-alice""#), "{how:?}");
    }
    stand_in.misbehave(Some(Misbehave::always(Misbehaviour::NeverAnswer)));
    let mut socket = send(&stand_in, probe.as_bytes());
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(socket.read(&mut [0; 1]).is_err());
    stand_in.misbehave(None);
    assert_eq!(status(&raw(&stand_in, models.as_bytes())), 200);
}

#[test]
fn isolation_can_be_broken_in_every_way() {
    let stand_in = started(options());
    let opens = |path: &str| [ALICE, BOB, DEFAULT, ""].map(|key| ask(&stand_in, "GET", path, key, "").0 == 200);
    let alice = "/p/bot-alice/v1/models";
    for (isolation, expected) in [
        (Isolation::PerProfile, [true, false, false, false]),
        (Isolation::DefaultKeyOnly, [false, false, true, false]),
        (Isolation::DefaultKeyToo, [true, false, true, false]),
        (Isolation::AnyKey, [true, true, true, false]),
        (Isolation::NoKey, [true, true, true, true]),
        (Isolation::PrefixIgnored, [true, true, true, false]),
    ] {
        stand_in.set_isolation(isolation);
        assert_eq!(opens(alice), expected, "{isolation:?}");
    }
    assert!(opens("/p/bot-nobody/v1/models")[0]);
}

#[test]
fn the_provider_answers_in_the_name_of_its_caller() {
    let provider = provider::serve(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let key = provider::provider_key(&profile("bot-alice"));
    let mut socket = TcpStream::connect(provider.address()).unwrap();
    socket.write_all(request("POST", "/v1/chat/completions", &key, &chat("hello", false)).as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("I am bot-alice. You said: hello"), "{answer}");
    provider.stop();
}

#[test]
fn a_stop_cuts_what_is_left() {
    let stand_in = started(options());
    let path = "/p/bot-alice/v1/chat/completions";
    let mut socket = send(&stand_in, request("POST", path, ALICE, &chat("SLEEP:600", true)).as_bytes());
    until("it runs", || stand_in.running() == 1);
    let address = stand_in.address();
    stand_in.stop();
    let mut answer = String::new();
    let _ = socket.read_to_string(&mut answer);
    assert!(!answer.contains("[DONE]") && !answer.contains("\r\n0\r\n"), "{answer}");
    assert!(TcpStream::connect(address).is_err());
}
