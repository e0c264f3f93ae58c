//! `botgate attack`: passes on an edge that is sound, fails on one that is not, and asks before it leaves loopback.

use std::net::TcpListener;

use botgate::cli::stand_in::{self, Options};
use botgate::names::{Login, ProfileName};
use botgate::secret::ApiServerKey;

use crate::support::botgate::{Botgate, Setup};
use crate::support::hermes::Bot;
use crate::support::raw_gateway::{RawGateway, Upstream, json};
use crate::support::site::Site;
use crate::support::tls::Authority;

#[test]
fn a_sound_edge_passes() {
    let keys = ["alice", "bob"].map(|login| (login, ApiServerKey::generate()));
    let bots = keys.iter().map(|(login, key)| (ProfileName::of(&Login::parse(login).expect("a login")), key.clone()));
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let stand_in = stand_in::serve(socket, Options::new(bots.collect(), ApiServerKey::generate())).expect("it starts");
    let limits = "[deadlines]\nfirst_byte = \"2s\"\nheader = \"2s\"\n".to_owned();
    let mut botgate = Botgate::new(&Setup { limits, ..Setup::at(stand_in.address()) });
    for (login, key) in &keys {
        let api_key = key.expose().to_owned();
        botgate.add(login, &Bot { profile: format!("bot-{login}"), api_key, provider_key: String::new(), mcp: None });
    }
    botgate.serve_until_ready();
    let sessions = botgate.run_with(&["session", "create", "--stdin"], "alice\nbob\n").done();
    let url = format!("http://{}", botgate.address());
    let ran = botgate.run_with(&["--json", "attack", &url], &sessions);
    let report = ran.json();
    let failed: Vec<_> =
        report["cases"].as_array().into_iter().flatten().filter(|case| !case["failure"].is_null()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!((ran.code, report["failed"].as_u64(), report["left_out"].as_u64()), (Some(0), Some(0), Some(0)));
    assert!(report["passed"].as_u64() >= Some(400) && report["neighbour"] == report["passed"], "{}", ran.stdout);
    for token in sessions.lines().filter_map(|line| line.split_once('\t')) {
        assert!(!ran.stdout.contains(token.1) && !ran.stderr.contains(token.1), "a token is printed");
    }
}

/// An edge that looks right and is not: it takes the path's word for whose bot is asked, and answers in HTTP as it comes.
fn unsound(upstream: &mut Upstream) {
    loop {
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            match upstream.bytes() {
                bytes if bytes.is_empty() => return,
                bytes => seen.extend_from_slice(&bytes),
            }
        }
        let text = String::from_utf8_lossy(&seen).to_lowercase();
        let whose = if text.contains("bot-bob") || text.contains("token-of-bob") { "bob" } else { "alice" };
        let answer = match text.contains("token-of-") {
            true => json("200 OK", whose),
            false => json("401 Unauthorized", "no"),
        };
        upstream.say(answer);
    }
}

#[test]
fn an_unsound_edge_fails() {
    let gateway = RawGateway::start(unsound);
    let botgate = Botgate::new(&Setup::at(gateway.address()));
    let file = botgate.path("sessions");
    std::fs::write(&file, "alice\ttoken-of-alice\nbob\ttoken-of-bob\n").expect("the file can be written");
    let url = format!("http://{}", gateway.address());
    let ran = botgate.run(&[
        "--json",
        "attack",
        &url,
        "--only",
        "path",
        "--only",
        "header",
        "--only",
        "credential",
        "--sessions",
        &file.display().to_string(),
    ]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let report = ran.json();
    let failed = |name: &str| {
        report["cases"].as_array().into_iter().flatten().any(|case| case["name"] == name && !case["failure"].is_null())
    };
    for name in ["path: a neighbour's", "credential: two persons'", "header: a profile"] {
        assert!(failed(name), "{name} passed: {}", ran.stdout);
    }
}

#[test]
fn what_is_not_ones_own_is_not_attacked() {
    let botgate = Botgate::new(&Setup::at("127.0.0.1:1".parse().expect("an address")));
    let sessions = "alice\ta\nbob\tb\n";
    let ran = botgate.run_with(&["attack", "http://192.0.2.1"], sessions);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--i-operate-this"), "{ran:?}");
    let ran = botgate.run_with(&["attack", "http://127.0.0.1:1"], "alice\ta\n");
    assert!(ran.failed().contains("two lines are needed"));
    let ran = botgate.run_with(&["attack", "http://127.0.0.1:1"], sessions);
    assert!(ran.failed().contains("no connection"));
}

#[test]
fn a_sound_edge_passes_over_tls() {
    let authority = Authority::new();
    let files = authority.pair("server", &["127.0.0.1", "localhost"]);
    let mut site = Site::of(&["alice", "bob"]);
    let file = site.botgate.path("botgate.toml");
    let text = std::fs::read_to_string(&file).expect("the configuration is there");
    let tls = format!(
        "[listen]\ntls = [{{ certificate = \"{}\", key = \"{}\" }}]\n",
        files.certificate.display(),
        files.key.display()
    );
    let text = text.replace("[listen]\n", &tls).replace("http://localhost:8080", "https://localhost:8080");
    std::fs::write(&file, text).expect("the configuration can be written");
    site.botgate.serve_until_ready();
    let sessions = site.botgate.run_with(&["session", "create", "--stdin"], "alice\nbob\n").done();
    let url = format!("https://{}", site.botgate.address());
    let ca = authority.own_file().display().to_string();
    let classes = ["--only", "header", "--only", "credential", "--only", "body"];
    let ran = site.botgate.run_with(&[&["--json", "attack", &url, "--ca", &ca], &classes[..]].concat(), &sessions);
    let report = ran.json();
    let failed: Vec<_> =
        report["cases"].as_array().into_iter().flatten().filter(|case| !case["failure"].is_null()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!((ran.code, report["left_out"].as_u64()), (Some(0), Some(0)));
    assert!(report["passed"].as_u64() >= Some(200), "{}", ran.stdout);
    let untrusted = site.botgate.run_with(&["attack", &url], &sessions);
    assert_eq!(untrusted.code, Some(1), "a certificate of nobody's is not trusted: {untrusted:?}");
}
