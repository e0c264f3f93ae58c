//! Credentials do not cross: none of them stands in anything that is written or answered.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use botgate::cli::stand_in::{Misbehave, Misbehaviour};
use botgate::identity::SessionParts;
use botgate::names::Uid;
use botgate::proxy::now_ms;
use botgate::secret::{FreshToken, TokenKind};
use botgate::telemetry::trace;

use crate::support::edge::{TestEdge, config};
use crate::support::eventually;
use crate::support::wire::{Wire, chat, contains, get, head, post};

const CHAT: &str = "/v1/chat/completions";
/// Where a child of this test writes what must not be found; set only for the child.
const CANARIES: &str = "BOTGATE_TEST_CANARIES";
/// Not credentials, but no business of a log either.
const PRIVATE: [&str; 3] = ["canary-of-the-query", "canary-of-the-body", "canary-of-another-cookie"];

/// A secret's part that tells it, so that a shortened form is found too.
fn telling(secret: &str) -> String {
    let start = secret.len() / 4;
    secret[start..start + 16].to_owned()
}

fn holds_none(text: &[u8], canaries: &[String], what: &str) {
    for canary in canaries {
        assert!(!contains(text, canary), "{what} holds {canary}");
    }
}

/// Everything that is in the audit log.
fn audit_text(edge: &TestEdge) -> Vec<u8> {
    let mut text = Vec::new();
    for entry in std::fs::read_dir(&edge.audit_dir).expect("the audit log is there") {
        let path = entry.expect("an entry").path();
        text.extend(std::fs::read(path).expect("a segment can be read"));
    }
    text
}

#[test]
fn a_day_at_the_edge_tells_no_secret() {
    let child = std::env::var_os(CANARIES);
    if child.is_some() {
        trace::init(None).expect("the child has no other subscriber");
    }
    let mut config = config();
    config.deadlines.response_head = Duration::from_millis(500);
    let edge = if child.is_some() { TestEdge::with_access_log(config) } else { TestEdge::with(config, |_| {}) };
    let personal = FreshToken::generate(TokenKind::Personal);
    let parts = SessionParts {
        id: Uid::random(),
        digest: personal.digest(),
        kind: TokenKind::Personal,
        label: Some("laptop".to_owned()),
        created_at: now_ms(),
        expires_at: now_ms() + 3_600_000,
        idle: None,
    };
    edge.edge.parts().sessions.insert(&edge.person("alice").uid, parts).expect("alice is known");
    let (session, token) = edge.sign_in("alice");
    let [unknown, bot] =
        [TokenKind::Session, TokenKind::Bot].map(|kind| FreshToken::generate(kind).expose().to_owned());
    let cookie = edge.sign_in("bob").1;
    let secrets = [edge.token("alice"), &token, personal.expose(), &unknown, &bot, &cookie, "sk-0123456789abcdef0123"];
    let keys = ["alice", "bob", "carol"].map(|login| edge.person(login).key.as_str());
    let secrets: Vec<String> = secrets.iter().chain(&keys).map(|secret| telling(secret)).collect();
    let logged: Vec<String> = secrets.iter().cloned().chain(PRIVATE.map(str::to_owned)).collect();
    if let Some(path) = &child {
        std::fs::write(path, logged.join("\n")).expect("the canaries can be handed over");
    }

    let ask = |request: String| {
        let mut wire = Wire::connect(edge.address);
        wire.send(request);
        let answer = wire.answer();
        let text = answer.blanked().into_bytes();
        // An answer of the stand-in repeats the body; the edge's own never does.
        holds_none(&text, if answer.status() == 200 { &secrets } else { &logged }, "an answer");
        assert!(!contains(&text, PRIVATE[2]), "an answer holds a cookie");
        answer.status()
    };
    let body = chat(PRIVATE[1], false);
    let turn = |token: &str| post(&format!("{CHAT}?q={}", PRIVATE[0]), token, &body);
    for token in [edge.token("alice"), personal.expose()] {
        assert_eq!(ask(turn(token)), 200);
    }
    let by_cookie = format!("Cookie: other={}; __Host-botgate={cookie}\r\n\r\n", PRIVATE[2]);
    assert_eq!(ask(head("GET", "/v1/models", "") + &by_cookie), 200);
    for token in [&unknown, &bot, "sk-0123456789abcdef0123", keys[0], ""] {
        assert_eq!(ask(turn(token)), 401);
    }
    let basic = format!("Authorization: Basic {}\r\nAuthorization: Bearer {token}\r\n\r\n", keys[1]);
    assert_eq!(ask(head("GET", "/v1/models", "") + &basic), 401);
    assert_eq!(ask(get(&format!("/p/bot-bob/v1/models?key={}", keys[1]), &token)), 401);
    assert_eq!(ask(get(&format!("/v1/nothing/{}", PRIVATE[0]), &token)), 404);
    assert_eq!(ask(get(&format!("/v1/../{token}"), &token)), 400);
    assert_eq!(ask(get("/v1/models", &token).replace("127.0.0.1", keys[2])), 421);
    assert_eq!(ask(format!("{token} /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n{basic}")), 401);
    assert_eq!(ask(post("/v1/runs/run_1/stop", &token, &body)), 404);
    for (how, status) in [
        (Misbehaviour::EchoKey, 502),
        (Misbehaviour::Junk, 502),
        (Misbehaviour::NeverAnswer, 504),
        (Misbehaviour::RefuseRightKey, 401),
        (Misbehaviour::DisownProfile, 401),
        (Misbehaviour::CloseUnanswered, 502),
    ] {
        edge.stand_in.misbehave(Some(Misbehave::always(how)));
        assert_eq!(ask(turn(&token)), status, "{how:?}");
    }
    edge.stand_in.misbehave(None);
    let mut wire = Wire::connect(edge.address);
    wire.send(post(CHAT, &token, &chat("SILENCE:60", true)));
    wire.until("I am");
    edge.edge.parts().sessions.revoke_session(&session);
    holds_none(&wire.rest(Duration::from_secs(5)).0, &logged, "a cut stream");
    edge.settles();

    // Refusals of strangers are told once a second.
    eventually("the audit log is written", Duration::from_secs(10), || contains(&audit_text(&edge), "\"refusals\""));
    let audit = audit_text(&edge);
    assert!(contains(&audit, "\"alice\""));
    holds_none(&audit, &logged, "the audit log");
    let metrics = edge.edge.metrics().render();
    assert!(metrics.contains("botgate_refusals_total"));
    holds_none(metrics.as_bytes(), &logged, "the metrics");
    holds_none(format!("{:?}", edge.edge.parts().sessions).as_bytes(), &logged, "the sessions' debug output");
    let directory = &edge.edge.parts().directory;
    holds_none(format!("{:?}", directory.snapshot()).as_bytes(), &logged, "the directory's debug output");
    if let Some(log) = edge.edge.access_log() {
        assert!(log.flush(Duration::from_secs(5)));
    }
}

#[test]
fn access_log_and_diagnostics_tell_no_secret() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("canaries");
    let output = Command::new(std::env::current_exe().expect("this test's own program"))
        .args(["--exact", "secrets::a_day_at_the_edge_tells_no_secret", "--nocapture"])
        .env(CANARIES, &path)
        .env("RUST_LOG", "trace")
        .output()
        .expect("this test's own program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let canaries = canaries(&path);
    assert!(contains(&output.stdout, "\"login\":\"alice\""), "there is an access log");
    assert!(contains(&output.stderr, "must not pass"), "there are diagnostics");
    holds_none(&output.stdout, &canaries, "the access log");
    holds_none(&output.stderr, &canaries, "the diagnostics");
}

fn canaries(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("the child has written its canaries");
    let canaries: Vec<_> = text.lines().map(str::to_owned).collect();
    assert!(canaries.len() >= 12);
    canaries
}
