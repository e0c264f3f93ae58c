//! TLS: what holds in the clear holds encrypted, and the handshake is bounded, chosen by name and renewed while serving.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use botgate::config::{self, ClientCertificates, Config};
use rustls::HandshakeKind;

use crate::support::botgate::{Botgate, Setup};
use crate::support::edge::{self, TestEdge};
use crate::support::eventually;
use crate::support::tls::{Authority, Offer, shake, shown, write_key};
use crate::support::wire::{End, Wire, chat, contains, ends_cleanly, get, head, post};

const CHAT: &str = "/v1/chat/completions";

/// A configuration with one certificate of this authority, for the fixture's address.
pub(crate) fn config(authority: &Authority) -> Config {
    let mut config = edge::config();
    config.listen.tls =
        Some(config::Tls { certificates: vec![authority.pair("server", &["127.0.0.1", "localhost"])], clients: None });
    config
}

fn connect(edge: &TestEdge, authority: &Authority) -> Wire {
    let client = authority.client(Offer::default());
    Wire::encrypted(shake(&client, "127.0.0.1", edge.address).expect("the handshake succeeds"))
}

fn handshakes(edge: &TestEdge, outcome: &str) -> Option<f64> {
    edge.metric(&format!("botgate_tls_handshakes_total{{outcome=\"{outcome}\"}}"))
}

#[test]
fn both_versions_serve_and_the_gateway_is_told_https() {
    let authority = Authority::new();
    let edge = TestEdge::with(config(&authority), |_| {});
    for versions in [[&rustls::version::TLS13], [&rustls::version::TLS12]] {
        for alpn in [&["http/1.1"][..], &[]] {
            let client = authority.client(Offer { versions: &versions, alpn, ..Offer::default() });
            let mut wire = Wire::encrypted(shake(&client, "127.0.0.1", edge.address).expect("the handshake succeeds"));
            for _ in 0..2 {
                wire.send(get("/v1/models", edge.token("alice")));
                assert_eq!(wire.answer().status(), 200);
            }
        }
    }
    let requests = edge.stand_in.requests();
    assert_eq!(requests.len(), 8);
    for request in requests {
        assert_eq!(request.header("x-forwarded-proto").collect::<Vec<_>>(), [b"https"]);
        assert_eq!(request.header("x-forwarded-for").collect::<Vec<_>>(), [b"127.0.0.1"]);
    }
    assert_eq!((handshakes(&edge, "full"), handshakes(&edge, "failed")), (Some(4.0), Some(0.0)));
    let plain = TestEdge::start();
    let mut wire = Wire::connect(plain.address);
    wire.send(get("/v1/models", plain.token("alice")));
    assert_eq!(wire.answer().status(), 200);
    assert_eq!(plain.stand_in.requests()[0].header("x-forwarded-proto").collect::<Vec<_>>(), [b"http"]);
}

#[test]
fn what_is_not_tls_is_not_answered_in_the_clear() {
    let authority = Authority::new();
    let edge = TestEdge::with(config(&authority), |_| {});
    let mut wire = Wire::connect(edge.address);
    wire.send(get("/v1/models", edge.token("alice")));
    let (seen, end) = wire.rest(Duration::from_secs(10));
    // At most an alert.
    assert!(seen.len() < 16 && !contains(&seen, "HTTP") && end != End::Open, "{seen:?}");
    let offer = Offer { alpn: &["spdy/3"], ..Offer::default() };
    assert!(shake(&authority.client(offer), "127.0.0.1", edge.address).is_err());
    eventually("both failed", Duration::from_secs(2), || handshakes(&edge, "failed") == Some(2.0));
    assert!(edge.stand_in.requests().is_empty());
}

#[test]
fn a_cookie_counts_over_tls_and_only_from_a_page_that_came_over_it() {
    let authority = Authority::new();
    let edge = TestEdge::with(config(&authority), |_| {});
    let cookie = format!("Cookie: __Host-botgate={}\r\n", edge.token("alice"));
    for (lines, status) in [
        ("", 200),
        ("Origin: https://127.0.0.1\r\n", 200),
        ("Origin: http://127.0.0.1\r\n", 401),
        ("Origin: https://evil.example\r\n", 401),
    ] {
        let mut wire = connect(&edge, &authority);
        wire.send(format!("{}{cookie}{lines}\r\n", head("GET", "/v1/models", "")));
        assert_eq!(wire.answer().status(), status, "{lines:?}");
    }
}

#[test]
fn a_certificate_is_chosen_by_name() {
    let authority = Authority::new();
    let mut config = config(&authority);
    let tls = config.listen.tls.as_mut().expect("it has TLS");
    tls.certificates.push(authority.pair("second", &["second.example"]));
    tls.certificates.push(authority.pair("wild", &["*.wild.example"]));
    let edge = TestEdge::with(config, |_| {});
    let client = authority.client(Offer::default());
    let mut seen = Vec::new();
    for name in ["127.0.0.1", "localhost", "second.example", "SECOND.example", "a.wild.example", "b.wild.example"] {
        seen.push(shown(&shake(&client, name, edge.address).expect(name).conn));
    }
    assert!(seen[0] == seen[1] && seen[2] == seen[3] && seen[4] == seen[5]);
    assert!(seen[0] != seen[2] && seen[2] != seen[4]);
    // The default, which this client does not take for the name that it asked for.
    let error = shake(&client, "a.b.wild.example", edge.address).expect_err("no certificate fits");
    assert!(error.to_string().contains("not valid for name"), "{error}");
    for place in 0..3 {
        let ends = edge.metric(&format!("botgate_tls_certificate_expiry_seconds{{certificate=\"{place}\"}}"));
        assert!(ends.is_some_and(|ends| ends > 1e9), "{ends:?}");
    }
}

#[test]
fn certificates_change_while_connections_go_on_and_a_bad_file_changes_nothing() {
    let authority = Authority::new();
    let edge = TestEdge::with(config(&authority), |_| {});
    let tls = edge.tls.clone().expect("the edge has TLS");
    let client = authority.client(Offer::default());
    let now_shown = || shown(&shake(&client, "localhost", edge.address).expect("the handshake succeeds").conn);
    let mut open = connect(&edge, &authority);
    open.send(get("/v1/models", edge.token("alice")));
    assert_eq!(open.answer().status(), 200);
    let first = now_shown();

    authority.pair("server", &["127.0.0.1", "localhost"]);
    assert_eq!(now_shown(), first, "nobody has looked yet");
    tls.reload().expect("the new pair is right");
    let second = now_shown();
    assert_ne!(first, second);
    open.send(get("/v1/models", edge.token("alice")));
    assert_eq!(open.answer().status(), 200, "the old connection goes on");

    let right = std::fs::read_to_string(authority.path("server.pem")).expect("a certificate");
    let (expired, key) = authority.signed(&["localhost"], |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let (other, _) = authority.signed(&["localhost"], |_| {});
    let bad: [(&str, &dyn Fn()); 4] = [
        ("no certificate", &|| std::fs::write(authority.path("server.pem"), "").expect("a file")),
        ("another's certificate", &|| std::fs::write(authority.path("server.pem"), other.pem()).expect("a file")),
        ("expired", &|| drop(authority.write("server", &expired.pem(), &key.serialize_pem()))),
        ("missing", &|| std::fs::remove_file(authority.path("server.key")).expect("a file")),
    ];
    let key = std::fs::read_to_string(authority.path("server.key")).expect("a key");
    for (what, change) in bad {
        authority.write("server", &right, &key);
        change();
        tls.reload().expect_err(what);
        assert_eq!(now_shown(), second, "{what}");
    }
    let count = |outcome| edge.metric(&format!("botgate_config_reloads_total{{outcome=\"{outcome}\"}}"));
    assert_eq!((count("applied"), count("rejected")), (Some(1.0), Some(4.0)));
}

#[test]
fn a_handshake_has_a_deadline_and_there_is_a_bound_on_them() {
    let authority = Authority::new();
    let mut config = config(&authority);
    config.deadlines.handshake = Duration::from_secs(2);
    config.limits.handshakes = 3;
    let edge = TestEdge::with(config, |_| {});
    let mut stalled: Vec<_> = (0..3).map(|_| TcpStream::connect(edge.address).expect("the edge accepts")).collect();
    // One of them has begun.
    stalled[0].write_all(&[22, 3, 1, 2, 0]).expect("the edge takes bytes");
    eventually("the edge has accepted them", Duration::from_secs(5), || edge.connections() == 3);
    let begun = Instant::now();
    let client = authority.client(Offer::default());
    assert!(shake(&client, "127.0.0.1", edge.address).is_err());
    let refused = "botgate_refusals_total{reason=\"handshake_limit\"}";
    eventually("the refusal is counted", Duration::from_secs(1), || edge.metric(refused) == Some(1.0));
    for stream in &mut stalled {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket takes a timeout");
        let _ = stream.read(&mut [0; 64]);
    }
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    eventually("they are counted", Duration::from_secs(2), || handshakes(&edge, "timed_out") == Some(3.0));
    shake(&client, "127.0.0.1", edge.address).expect("there is room again");
}

#[test]
fn a_client_that_says_nothing_after_its_handshake_is_left_and_one_between_requests_is_told() {
    let authority = Authority::new();
    let mut config = config(&authority);
    (config.deadlines.first_byte, config.deadlines.keep_alive) = (Duration::from_secs(1), Duration::from_secs(1));
    let edge = TestEdge::with(config, |_| {});
    let mut silent = connect(&edge, &authority);
    let mut waiting = connect(&edge, &authority);
    waiting.send(get("/v1/models", edge.token("alice")));
    assert_eq!(waiting.answer().status(), 200);
    for wire in [&mut silent, &mut waiting] {
        assert_eq!(wire.rest(Duration::from_secs(10)), (Vec::new(), End::Closed));
    }
}

#[test]
fn certificates_of_clients_are_asked_for_as_configured() {
    let (authority, of_clients, strange) = (Authority::new(), Authority::new(), Authority::new());
    let offer = |by| authority.client(Offer { certified_by: by, ..Offer::default() });
    for (required, expected) in [(true, [false, true, false]), (false, [true, true, false])] {
        let mut config = config(&authority);
        config.listen.tls.as_mut().expect("it has TLS").clients =
            Some(ClientCertificates { authorities: of_clients.own_file(), required });
        let edge = TestEdge::with(config, |_| {});
        for (by, expected) in [None, Some(&of_clients), Some(&strange)].into_iter().zip(expected) {
            // With TLS 1.3 a client learns what became of its certificate only when it reads.
            let served = shake(&offer(by), "127.0.0.1", edge.address).is_ok_and(|stream| {
                let mut wire = Wire::encrypted(stream);
                let sent = wire.try_send(get("/v1/models", edge.token("alice")));
                sent.is_ok() && wire.try_answer().is_ok_and(|answer| answer.status() == 200)
            });
            assert_eq!(served, expected, "required {required}, shown {}", by.is_some());
        }
    }
}

#[test]
fn a_session_is_resumed_and_nothing_is_taken_early() {
    let authority = Authority::new();
    let edge = TestEdge::with(config(&authority), |_| {});
    for (times, versions) in [[&rustls::version::TLS13], [&rustls::version::TLS12]].into_iter().enumerate() {
        let mut client = authority.client(Offer { versions: &versions, ..Offer::default() });
        std::sync::Arc::get_mut(&mut client).expect("nobody has it yet").enable_early_data = true;
        let mut kinds = Vec::new();
        for _ in 0..3 {
            let mut stream = shake(&client, "127.0.0.1", edge.address).expect("the handshake succeeds");
            kinds.push(stream.conn.handshake_kind());
            assert!(!stream.conn.is_early_data_accepted() && stream.conn.early_data().is_none());
            // The ticket comes with, or before, the answer.
            stream.write_all(get("/v1/models", edge.token("alice")).as_bytes()).expect("the edge takes the request");
            let mut wire = Wire::encrypted(stream);
            assert_eq!(wire.answer().status(), 200);
        }
        assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed].map(Some));
        assert_eq!(handshakes(&edge, "resumed"), Some(2.0 * (times + 1) as f64));
    }
}

#[test]
fn an_answer_that_is_cut_looks_cut_and_one_that_ends_looks_ended() {
    let authority = Authority::new();
    let edge = TestEdge::with(config(&authority), |_| {});
    let stream = |text: &str| {
        let (body, mut wire) = (chat(text, true), connect(&edge, &authority));
        let head = head("POST", CHAT, edge.token("alice"));
        wire.send(format!("{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        wire
    };
    let (seen, end) = stream("WORDS:20:0.01").rest(Duration::from_secs(20));
    assert!(ends_cleanly(&seen) && end == End::Closed, "{end:?}");
    let mut wire = stream("WORDS:1000:0.02");
    wire.until("w3 ");
    edge.edge.parts().sessions.revoke_session(&edge.person("alice").session);
    let (seen, end) = wire.rest(Duration::from_secs(1));
    assert!(!ends_cleanly(&seen) && matches!(end, End::Cut | End::Reset), "{end:?}");
    edge.settles();
}

#[test]
fn a_client_that_leaves_takes_its_stream_along_however_it_leaves() {
    let authority = Authority::new();
    let edge = TestEdge::with(config(&authority), |_| {});
    let pipelined = get("/v1/models", edge.token("bob"));
    for (number, (further, told)) in
        [("", false), ("", true), (&*pipelined, false), (&*pipelined, true)].iter().enumerate()
    {
        let mut wire = connect(&edge, &authority);
        wire.send(post(CHAT, edge.token("bob"), &chat("SILENCE:40", true)) + further);
        wire.until("I am bot-bob");
        match told {
            true => wire.close_notify(),
            false => wire.end_writing(),
        }
        eventually("the turn is interrupted", Duration::from_secs(5), || edge.stand_in.interrupted() == number + 1);
        drop(wire);
    }
    edge.settles();
}

#[test]
fn a_reader_that_stands_still_is_cut() {
    let authority = Authority::new();
    let mut config = config(&authority);
    config.deadlines.write = Duration::from_secs(1);
    let edge = TestEdge::with(config, |_| {});
    let mut wire = connect(&edge, &authority);
    wire.send(post(CHAT, edge.token("alice"), &chat("WORDS:2000000", true)));
    wire.until("w3 ");
    eventually("the connection is cut", Duration::from_secs(20), || edge.connections() == 0);
    edge.settles();
}

/// The configuration of a binary's directory with TLS.
fn with_tls(botgate: &Botgate, lines: &str) {
    let file = botgate.path("botgate.toml");
    let text = std::fs::read_to_string(&file).expect("a configuration");
    let plain: Vec<_> =
        text.lines().filter(|line| !line.starts_with("tls = ") && !line.starts_with("client_")).collect();
    let text = plain.join("\n").replace("[listen]\n", &format!("[listen]\n{lines}\n"));
    std::fs::write(&file, text).expect("the configuration is written");
}

#[test]
fn check_tells_what_is_wrong_with_certificates_and_keys() {
    let authority = Authority::new();
    let botgate = Botgate::new(&Setup::at("127.0.0.1:1".parse().expect("an address")));
    let path = |name: &str| authority.path(name).display().to_string();
    authority.pair("good", &["localhost"]);
    authority.pair("other", &["localhost"]);
    let (expired, key) = authority.signed(&["localhost"], |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    authority.write("old", &expired.pem(), &key.serialize_pem());
    write_key(&authority.path("open.key"), &std::fs::read_to_string(path("good.key")).expect("a key"));
    std::fs::set_permissions(path("open.key"), std::fs::Permissions::from_mode(0o644)).expect("a mode is set");
    std::fs::write(path("empty.pem"), "").expect("a file");
    let pair = |certificate: &str, key: &str| {
        let (certificate, key) = (path(certificate), path(key));
        format!("tls = [{{ certificate = \"{certificate}\", key = \"{key}\" }}]")
    };
    with_tls(&botgate, &pair("good.pem", "good.key"));
    assert!(botgate.run(&["check"]).done().contains("https://"));
    let clients = format!("\nclient_certificate = \"required\"\nclient_ca = \"{}\"", path("empty.pem"));
    for (lines, told) in [
        (
            pair("none.pem", "good.key"),
            &["listen.tls[0].certificate", "none.pem", "cannot be read", "give a PEM file"][..],
        ),
        (pair("empty.pem", "good.key"), &["listen.tls[0].certificate", "holds no certificate"]),
        (pair("good.pem", "none.key"), &["listen.tls[0].key", "none.key", "cannot be read"]),
        (pair("good.pem", "good.pem"), &["listen.tls[0].key", "is open to everybody"]),
        (pair("good.pem", "open.key"), &["listen.tls[0].key", "mode 0644", "0600 or 0640"]),
        (pair("good.pem", "other.key"), &["listen.tls[0].key", "does not fit the certificate", "good.pem"]),
        (pair("old.pem", "old.key"), &["listen.tls[0].certificate", "expired at 2020-01-01", "holds now"]),
        (pair("none.pem", "none.key"), &["listen.tls[0].certificate", "listen.tls[0].key"]),
        (pair("good.pem", "good.key") + &clients, &["listen.client_ca", "holds no certificate"]),
    ] {
        with_tls(&botgate, &lines);
        let said = botgate.run(&["check"]).failed();
        for told in told {
            assert!(said.contains(told), "{told:?} is missing in {said}");
        }
        assert!(said.contains("botgate.toml") && !said.contains("PRIVATE KEY"), "{said}");
    }
    with_tls(&botgate, &pair("good.pem", "other.key"));
    assert!(botgate.run(&["serve"]).failed().contains("does not fit"));
}

#[test]
fn the_program_serves_tls_and_sees_its_files_change() {
    let authority = Authority::new();
    let mut botgate = Botgate::new(&Setup::at("127.0.0.1:1".parse().expect("an address")));
    let files = authority.pair("server", &["localhost"]);
    let (certificate, key) = (files.certificate.display(), files.key.display());
    with_tls(&botgate, &format!("tls = [{{ certificate = \"{certificate}\", key = \"{key}\" }}]"));
    botgate.serve();
    assert!(botgate.output().contains("listening on https://"));
    let client = authority.client(Offer::default());
    let now_shown = || shown(&shake(&client, "localhost", botgate.address()).expect("the handshake succeeds").conn);
    let first = now_shown();
    assert_eq!(now_shown(), first);
    authority.pair("server", &["localhost"]);
    eventually("the new certificate is shown", Duration::from_secs(20), || now_shown() != first);
    assert!(botgate.stop());
}
