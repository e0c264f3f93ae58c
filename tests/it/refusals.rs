//! The one 401: whatever is wrong with a credential, its person or its bot, the client sees the same bytes and the same
//! fate of its connection, and the gateway sees nothing that it need not see.

use std::collections::HashMap;
use std::time::Duration;

use botgate::directory::{Bot, BotStanding};
use botgate::identity::SessionParts;
use botgate::names::{Login, ProfileName, Role, Uid};
use botgate::proxy::now_ms;
use botgate::secret::{ApiServerKey, FreshToken, TokenKind};

use crate::support::edge::TestEdge;
use crate::support::eventually;
use crate::support::http2::{self, Http2};
use crate::support::tls::{Authority, Offer, shake};
use crate::support::wire::{Wire, get};
use crate::tls::config;

/// Something that must be refused.
struct Case {
    name: &'static str,
    /// The reason that metrics and audit are told.
    reason: &'static str,
    /// Header lines with the credential.
    lines: String,
    /// What stands before `/v1`.
    prefix: String,
    /// In place of the whole target.
    target: Option<&'static str>,
}

fn case(name: &'static str, reason: &'static str, lines: impl Into<String>) -> Case {
    Case { name, reason, lines: lines.into(), prefix: String::new(), target: None }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn cookie(token: &str) -> String {
    format!("Cookie: __Host-botgate={token}\r\n")
}

/// A request's form.
struct Shape {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    lines: &'static str,
    body: &'static str,
    stays_open: bool,
}

const fn shape(name: &'static str, method: &'static str, path: &'static str) -> Shape {
    Shape { name, method, path, lines: "", body: "", stays_open: true }
}

const fn closing(shape: Shape, lines: &'static str, body: &'static str) -> Shape {
    Shape { lines, body, stays_open: false, ..shape }
}

const CHAT: &str = "/v1/chat/completions";

/// A body that is not read ends the connection; how much of it has come must not matter.
const SHAPES: [Shape; 9] = [
    shape("GET", "GET", "/v1/models"),
    closing(shape("GET, closing", "GET", "/v1/models"), "Connection: close\r\n", ""),
    closing(shape("GET with a body", "GET", "/v1/models"), "Content-Length: 2\r\n", "{}"),
    Shape { lines: "Content-Length: 0\r\n", ..shape("POST without a body", "POST", CHAT) },
    closing(shape("POST", "POST", CHAT), "Content-Length: 15\r\n", r#"{"messages":[]}"#),
    closing(shape("POST, chunked", "POST", CHAT), "Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"),
    closing(shape("POST, half a body", "POST", CHAT), "Content-Length: 15\r\n", r#"{"mess"#),
    closing(shape("POST, body withheld", "POST", CHAT), "Transfer-Encoding: chunked\r\n", ""),
    closing(shape("POST of a run", "POST", "/v1/runs"), "Content-Length: 13\r\n", r#"{"input":"x"}"#),
];

fn target(case: &Case, shape: &Shape) -> String {
    case.target.map_or_else(|| format!("{}{}", case.prefix, shape.path), str::to_owned)
}

/// The same on HTTP/2, where nothing of this ends a connection.
fn seen_on_http2(http2: &mut Http2, case: &Case, shape: &Shape) -> String {
    let mut request = http2::request(shape.method, &target(case, shape), "");
    for line in case.lines.lines().chain(shape.lines.lines()) {
        let (name, value) = line.split_once(':').expect("a header line");
        if !matches!(name, "Connection" | "Transfer-Encoding") {
            request = request.header(name, value.trim().as_bytes());
        }
    }
    let body = match shape.lines {
        "Transfer-Encoding: chunked\r\n" => shape.body.split("\r\n").nth(1).unwrap_or_default(),
        _ => shape.body,
    };
    let (has_body, whole) = (!body.is_empty(), !shape.name.contains("half") && !shape.name.contains("withheld"));
    let stream = http2.begin(request, has_body.then_some(body.as_bytes()), !whole);
    let answer = http2.finish(stream);
    let next = http2.send(http2::request("GET", "/health", ""), None);
    format!("{}\nopen: {}", answer.blanked(), next.status.as_u16())
}

/// What a client sees: the answer, and whether the connection then takes another request.
fn seen(mut wire: Wire, case: &Case, shape: &Shape) -> String {
    let target = target(case, shape);
    wire.send(format!(
        "{} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{}{}\r\n{}",
        shape.method, case.lines, shape.lines, shape.body
    ));
    let answer = wire.answer();
    let reused = wire.try_send("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").and_then(|()| wire.try_answer());
    let fate = match reused {
        Ok(next) => format!("open: {}", next.status()),
        Err(error) => format!("{:?}", error.kind()),
    };
    format!("{}\n{fate}", answer.blanked())
}

/// A person beyond the fixture's, with a session.
fn person(edge: &TestEdge, login: &str, expires_at: i64) -> (Uid, String) {
    let (uid, sessions) = (Uid::random(), &edge.edge.parts().sessions);
    let (login, role) = (Login::parse(login).expect("a login"), Role::parse("member").expect("a role"));
    sessions.add_person(uid.clone(), login, role, true);
    (uid.clone(), session(edge, &uid, TokenKind::Session, expires_at))
}

fn session(edge: &TestEdge, uid: &Uid, kind: TokenKind, expires_at: i64) -> String {
    let token = FreshToken::generate(kind);
    let parts = SessionParts {
        id: Uid::random(),
        digest: token.digest(),
        kind,
        label: None,
        created_at: 0,
        expires_at,
        idle: None,
    };
    edge.edge.parts().sessions.insert(uid, parts).expect("the person is known");
    token.expose().to_owned()
}

fn bot(edge: &TestEdge, login: &str, uid: &Uid) -> ApiServerKey {
    let (login, directory) = (Login::parse(login).expect("a login"), &edge.edge.parts().directory);
    let alice = directory.bot(&Login::parse("alice").expect("a login")).expect("alice has a bot");
    let (key, profile) = (ApiServerKey::generate(), ProfileName::of(&login));
    directory.insert(Bot::new(login, uid.clone(), profile, alice.gateway().clone(), key.clone()));
    key
}

fn cases(edge: &TestEdge) -> Vec<Case> {
    let later = now_ms() + 3_600_000;
    let alice = edge.token("alice");
    let wrong = |kind| FreshToken::generate(kind).expose().to_owned();
    let (_, expired) = person(edge, "expired", now_ms() - 1);
    let (revoked_id, revoked) = edge.sign_in("alice");
    assert!(edge.edge.parts().sessions.revoke_session(&revoked_id));
    let (disabled_uid, disabled) = person(edge, "disabled", later);
    bot(edge, "disabled", &disabled_uid);
    edge.edge.parts().sessions.disable(&disabled_uid);
    let (_, botless) = person(edge, "botless", later);
    let (reborn_uid, _) = person(edge, "reborn", later);
    bot(edge, "reborn", &reborn_uid);
    let (_, reborn) = person(edge, "reborn", later);
    let (refused_uid, refused) = person(edge, "refused", later);
    bot(edge, "refused", &refused_uid);
    let refused_bot = edge.edge.parts().directory.bot(&Login::parse("refused").expect("a login")).expect("just put in");
    refused_bot.set_standing(BotStanding::Refused);
    let (rotated_uid, rotated) = person(edge, "rotated", later);
    bot(edge, "rotated", &rotated_uid);
    let profile = ProfileName::of(&Login::parse("rotated").expect("a login"));
    edge.stand_in.set_bot(&profile, &ApiServerKey::generate());
    let (unserved_uid, unserved) = person(edge, "unserved", later);
    bot(edge, "unserved", &unserved_uid);
    let of = |prefix: &str, case: Case| Case { prefix: prefix.to_owned(), ..case };
    let own = |case: Case| Case { prefix: "/p/bot-alice".to_owned(), ..case };
    let at_mcp = |name, lines: String| Case { target: Some("/mcp"), ..case(name, "mcp_credential", lines) };
    let mut typo = alice.to_owned();
    typo.push('x');
    vec![
        case("missing", "credential_missing", ""),
        own(case("missing on a profile's path", "credential_missing", "")),
        of("/p/bot-nobody", case("missing on a path of nobody", "credential_missing", "")),
        case("in another header", "credential_missing", format!("X-Api-Key: {alice}\r\n")),
        case("empty", "credential_malformed", "Authorization: \r\n"),
        case("no token", "credential_malformed", "Authorization: Bearer\r\n"),
        case("another scheme", "credential_malformed", "Authorization: Basic YTpi\r\n"),
        case("mistyped", "credential_malformed", bearer(&typo)),
        case("no token of ours", "credential_malformed", bearer("sk-0123456789")),
        case("bytes beyond ASCII", "credential_malformed", bearer("\u{e9}\u{df}")),
        case("empty cookie", "credential_malformed", cookie("")),
        case("unknown", "credential_unknown", bearer(&wrong(TokenKind::Session))),
        case("unknown personal token", "credential_unknown", bearer(&wrong(TokenKind::Personal))),
        case("unknown cookie", "credential_unknown", cookie(&wrong(TokenKind::Session))),
        case("expired", "session_expired", bearer(&expired)),
        case("revoked", "credential_unknown", bearer(&revoked)),
        own(case("revoked, own path", "credential_unknown", bearer(&revoked))),
        case("two bearers", "credential_ambiguous", bearer(alice) + &bearer(alice)),
        case("two bearers, one wrong", "credential_ambiguous", bearer(alice) + &bearer("x")),
        case("bearer and cookie", "credential_ambiguous", bearer(alice) + &cookie(alice)),
        case("two cookies", "credential_ambiguous", cookie(alice) + &cookie(alice)),
        case("two cookies in a line", "credential_ambiguous", cookie(&format!("{alice}; __Host-botgate={alice}"))),
        case("a cookie from another site's page", "cross_origin", cookie(alice) + "Origin: http://evil.example\r\n"),
        case("a bot's token", "credential_kind", bearer(&wrong(TokenKind::Bot))),
        at_mcp("a session at /mcp", bearer(alice)),
        at_mcp("nothing at /mcp", String::new()),
        at_mcp("a bot's token at /mcp", bearer(&wrong(TokenKind::Bot))),
        case("disabled", "person_disabled", bearer(&disabled)),
        case("without a bot", "no_bot", bearer(&botless)),
        of("/p/bot-botless", case("without a bot, own path", "no_bot", bearer(&botless))),
        case("a bot of an earlier person of that name", "no_bot", bearer(&reborn)),
        of("/p/bot-bob", case("another person's bot", "not_own_bot", bearer(alice))),
        of("/p/bot-nobody", case("a bot that does not exist", "not_own_bot", bearer(alice))),
        of("/p/BOT-ALICE", case("its own in other case", "not_own_bot", bearer(alice))),
        of("/p/default", case("the default profile", "not_own_bot", bearer(alice))),
        Case { target: Some("/p/bot-bob/health"), ..case("another's health", "not_own_bot", bearer(alice)) },
        Case { target: Some("/p/bot-bob/nothing"), ..case("another's nothing", "not_own_bot", bearer(alice)) },
        Case { target: Some("/p/bot-bob"), ..case("another's bare path", "not_own_bot", bearer(alice)) },
        Case { target: Some("/p/bot-alice"), ..case("missing on a bare path", "credential_missing", "") },
        case("a bot known to be refused", "bot_refused", bearer(&refused)),
        // From here on the gateway is the one that refuses.
        case("a key that is not taken any more", "bot_refused", bearer(&rotated)),
        of("/p/bot-rotated", case("the same, own path", "bot_refused", bearer(&rotated))),
        case("a profile that is not served", "bot_refused", bearer(&unserved)),
    ]
}

#[test]
fn every_refused_credential_gets_the_same_bytes_and_the_same_fate() {
    let edge = TestEdge::start();
    all_are_alike(&edge, |case, shape| {
        let text = seen(Wire::connect(edge.address), case, shape);
        assert!(text.starts_with("HTTP/1.1 401 Unauthorized\n"), "{}: {text}", shape.name);
        assert_eq!(text.ends_with("\nopen: 200"), shape.stays_open, "{}: {text}", shape.name);
        text
    });
}

#[test]
fn the_same_holds_over_tls() {
    let authority = Authority::new();
    let (edge, client) = (TestEdge::with(config(&authority), |_| {}), authority.client(Offer::default()));
    all_are_alike(&edge, |case, shape| {
        let stream = shake(&client, "127.0.0.1", edge.address).expect("the handshake succeeds");
        let text = seen(Wire::encrypted(stream), case, shape);
        assert!(text.starts_with("HTTP/1.1 401 Unauthorized\n"), "{}: {text}", shape.name);
        assert_eq!(text.ends_with("\nopen: 200"), shape.stays_open, "{}: {text}", shape.name);
        text
    });
}

#[test]
fn the_same_holds_on_http2() {
    let authority = Authority::new();
    let (edge, client) = (TestEdge::with(config(&authority), |_| {}), http2::client(&authority));
    // One connection for all, so that none can change what becomes of it.
    let mut http2 = Http2::connect(edge.address, &client);
    all_are_alike(&edge, |case, shape| {
        let text = seen_on_http2(&mut http2, case, shape);
        assert!(text.starts_with("401 Unauthorized\n") && text.ends_with("\nOk(())\nopen: 200"), "{text}");
        text
    });
}

fn all_are_alike(edge: &TestEdge, mut seen: impl FnMut(&Case, &Shape) -> String) {
    let cases = cases(edge);
    let mut expected: HashMap<&str, u32> = HashMap::new();
    for shape in &SHAPES {
        let reference = seen(&cases[0], shape);
        *expected.entry(cases[0].reason).or_default() += 1;
        for case in &cases {
            assert_eq!(seen(case, shape), reference, "{} ({})", case.name, shape.name);
            *expected.entry(case.reason).or_default() += 1;
        }
    }
    let asked = edge.stand_in.requests();
    let refusable = ["/p/bot-rotated/", "/p/bot-unserved/"];
    for request in &asked {
        assert!(refusable.iter().any(|own| request.target.starts_with(own)), "reached the gateway: {request:?}");
    }
    for (reason, count) in expected {
        let line = format!("botgate_refusals_total{{reason=\"{reason}\"}}");
        eventually(reason, Duration::from_secs(2), || edge.metric(&line) == Some(f64::from(count)));
    }
    assert!(edge.suspects.load(std::sync::atomic::Ordering::Relaxed) > 0, "a refused bot is to be proved anew");
    edge.settles();
    assert_eq!(edge.stand_in.finished() + edge.stand_in.interrupted(), 0, "no turn ran");
}

#[test]
fn what_only_narrows_is_told_apart_from_a_refusal() {
    let edge = TestEdge::start();
    for (target, status) in
        [("/v1/nothing", 404), ("/p/bot-alice/health", 404), ("/p/bot-alice", 404), ("/v1/models", 200)]
    {
        let mut wire = Wire::connect(edge.address);
        wire.send(get(target, edge.token("alice")));
        assert_eq!(wire.answer().status(), status, "{target}");
    }
}
