//! What holds for any head that a client may send; tried by the property tests below and by the fuzz targets.
//!
//! The first line of the bytes is method and target, each further one a header line; what hyper would not let through is
//! left out, so that the stages see what they can see.

use std::sync::{Arc, LazyLock};

use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, Uri, request};

use super::authorize::Grant;
use super::client::Client;
use super::engine::{self, Head};
use super::head::{AllowedHosts, Screened};
use super::headers::{is_nominated, request_passes, response_passes};
use super::rewrite::Outbound;
use super::routes::{NoRoute, Routes};
use crate::config::{GatewayUrl, HeaderText, Host};
use crate::directory::{Bot, Directory, GatewayTarget};
use crate::identity::{Carrier, SessionParts, Sessions, credential};
use crate::names::{GatewayName, Identifier, Login, ProfileName, Role, Uid};
use crate::secret::{ApiServerKey, FreshToken, TokenKind};

const HOST: &str = "edge.example";
const KEY: &str = "fixture-key-of-alice-0001";

/// What every input is tried against.
struct Fixture {
    hosts: AllowedHosts,
    routes: Routes,
    grant: Grant,
    client: Client,
}

// Fixed texts, all of which parse.
static FIXTURE: LazyLock<Option<Fixture>> = LazyLock::new(|| {
    let login = Login::parse("alice").ok()?;
    let url = GatewayUrl::parse("http://127.0.0.1:8642").ok()?;
    let gateway = Arc::new(GatewayTarget::new(GatewayName::parse("main").ok()?, 0, url));
    let (directory, sessions, uid) = (Directory::new(), Sessions::new(), Uid::random());
    let profile = ProfileName::of(&login);
    directory.insert(Bot::new(login.clone(), uid.clone(), profile, gateway, ApiServerKey::parse(KEY).ok()?));
    sessions.add_person(uid.clone(), login, Role::parse("member").ok()?, true);
    let token = FreshToken::generate(TokenKind::Session);
    let parts = SessionParts {
        id: Uid::random(),
        digest: token.digest(),
        kind: TokenKind::Session,
        label: None,
        created_at: 0,
        expires_at: i64::MAX,
        idle: None,
    };
    sessions.insert(&uid, parts)?;
    let presented = crate::secret::PresentedToken::parse(token.expose().as_bytes())?;
    let session = sessions.lookup(&presented, 1).ok()?;
    Some(Fixture {
        hosts: AllowedHosts::new([&Host::parse(HOST, 80)?]),
        routes: Routes::new(&crate::config::Routes::default()),
        grant: Grant::new(session, &directory, None).ok()?,
        client: Client::new([127, 0, 0, 1].into(), false),
    })
});

/// A parsed head from bytes, with a right Host in front of its lines if the bytes begin with `!`.
fn parts(bytes: &[u8]) -> Option<request::Parts> {
    let (bytes, hosted) = bytes.strip_prefix(b"!").map_or((bytes, false), |rest| (rest, true));
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let first = lines.next()?;
    let at = first.iter().position(|&byte| byte == b' ')?;
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(&first[..at]).ok()?;
    *request.uri_mut() = Uri::try_from(&first[at + 1..]).ok()?;
    let headers = request.headers_mut();
    if hosted {
        headers.append("host", HeaderValue::from_static(HOST));
    }
    for line in lines {
        let Some(at) = line.iter().position(|&byte| byte == b':') else { continue };
        let value = HeaderValue::from_bytes(line[at + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&line[..at]), value) {
            headers.try_append(name, value).ok()?;
        }
    }
    Some(request.into_parts().0)
}

/// What is screened has one allowed Host, one framing and a path without a second spelling.
pub fn screen(bytes: &[u8]) {
    let (Some(fixture), Some(parts)) = (FIXTURE.as_ref(), parts(bytes)) else { return };
    let lines = parts.lines();
    let head = parts.view(&lines);
    let Ok(screened) = Screened::new(head, &fixture.hosts) else { return };
    let hosts: Vec<_> = head.values("host").collect();
    assert!(
        hosts.len() == 1 && [HOST, "edge.example:80"].iter().any(|own| hosts[0].eq_ignore_ascii_case(own.as_bytes()))
    );
    assert!(head.values("content-length").count() <= 1 && head.values("transfer-encoding").count() <= 1);
    assert!(!matches!(head.method, "CONNECT" | "TRACE"));
    let target = screened.target();
    let path = target.raw().split('?').next().unwrap_or_default();
    assert!(path.starts_with('/') && path.is_ascii() && !path.contains(['%', '\\', ';', '#', ' ']));
    assert!(!path.contains("//") && !path.split('/').any(|segment| matches!(segment, "." | "..")));
    let prefix = target.profile().map_or(String::new(), |profile| format!("/p/{profile}"));
    assert_eq!(target.raw(), format!("{prefix}{}", target.below()));
    assert!(target.below().starts_with(target.path()));
    assert!(target.profile().is_none_or(|profile| !profile.contains('/')));
    assert_eq!(screened.asked().below(head.path_and_query), target.below());
}

/// A route is found only for its own method and for a path of its own form.
pub fn route(bytes: &[u8]) {
    let Some(fixture) = FIXTURE.as_ref() else { return };
    let text = String::from_utf8_lossy(bytes);
    let (method, path) = text.split_once(' ').unwrap_or((&text, ""));
    match fixture.routes.find(method, path) {
        Ok(route) => {
            assert_eq!(route.method(), method);
            let (template, path): (Vec<_>, Vec<_>) = (route.template().split('/').collect(), path.split('/').collect());
            assert_eq!(template.len(), path.len());
            for (expected, given) in template.iter().zip(&path) {
                assert!(expected == given || (*expected == "{id}" && Identifier::is_valid(given)));
            }
        }
        Err(NoRoute::Method(allow)) => assert!(allow.split(", ").all(|allowed| allowed != method)),
        Err(NoRoute::Path) => {}
    }
}

/// What leaves for the gateway is exactly one request, to the grant's own path with its own key, and nothing of the client's but
/// what is listed.
pub fn rewrite(bytes: &[u8]) {
    let (Some(fixture), Some(parts)) = (FIXTURE.as_ref(), parts(bytes)) else { return };
    let lines = parts.lines();
    let head = parts.view(&lines);
    let Ok(screened) = Screened::new(head, &fixture.hosts) else { return };
    let outbound = Outbound::new(&fixture.grant, &head, screened.asked(), &[], &fixture.client);
    let sent = engine::outgoing(&head, &outbound, &HeaderValue::from_static("0123456789abcdef")).lines;
    let text = sent.strip_suffix(b"\r\n").unwrap_or_default();
    let all: Vec<&[u8]> =
        text.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    assert!(all.iter().all(|line| !line.is_empty() && !line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))));
    let first: Vec<&[u8]> = all[0].split(|&byte| byte == b' ').collect();
    let [method, target, version] = first[..] else { panic!("a request line of three parts: {:?}", all[0]) };
    assert_eq!((method, version), (head.method.as_bytes(), &b"HTTP/1.1"[..]));
    let expected = format!("/p/bot-alice{}", screened.target().below());
    assert_eq!(target, expected.as_bytes());
    let mut own = 0;
    for line in &all[1..] {
        let at = line.iter().position(|&byte| byte == b':').unwrap_or_default();
        let (name, value) = (&line[..at], line[at + 1..].trim_ascii());
        let name = std::str::from_utf8(name).unwrap_or_default();
        let fixed: Option<&[u8]> = match name {
            "authorization" => Some(b"Bearer fixture-key-of-alice-0001"),
            "host" => Some(b"127.0.0.1:8642"),
            "x-forwarded-for" => Some(b"127.0.0.1"),
            "x-forwarded-proto" => Some(b"http"),
            "x-request-id" => Some(b"0123456789abcdef"),
            "x-forwarded-host" => head.values("host").next(),
            _ => None,
        };
        match fixed {
            Some(fixed) => {
                own += 1;
                assert_eq!(value, fixed, "{name}");
            }
            None => assert!(request_passes(name, &[]) && !is_nominated(&head, name), "{name}"),
        }
    }
    assert_eq!(own, 6, "the edge's own lines are there once each");
}

/// No list lets through what speaks for someone, and a name passes under its own spelling alone.
pub fn headers(bytes: &[u8]) {
    const NEVER: [&str; 14] = [
        "authorization",
        "cookie",
        "set-cookie",
        "host",
        "origin",
        "connection",
        "content-length",
        "transfer-encoding",
        "location",
        "forwarded",
        "x-forwarded-for",
        "www-authenticate",
        "te",
        "upgrade",
    ];
    let name = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let extra: Vec<HeaderText> = Vec::new();
    if request_passes(&name, &extra) {
        assert!(
            !NEVER.contains(&&*name) && !name.starts_with("x-botgate-") && !name.contains(['\r', '\n', ':', ' '])
                || name.starts_with("x-stainless-")
        );
    }
    for artifact in [false, true] {
        assert!(!response_passes(bytes, artifact) || !NEVER.contains(&&*name));
    }
}

/// A credential is found only where there is one, in one of its two places.
pub fn one_credential(bytes: &[u8]) {
    let lines: Vec<(&[u8], &[u8])> = bytes
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let at = line.iter().position(|&byte| byte == b':')?;
            Some((&line[..at], line[at + 1..].trim_ascii()))
        })
        .collect();
    let named = |name: &[u8]| {
        lines.iter().filter(|line| line.0.eq_ignore_ascii_case(name)).map(|line| line.1).collect::<Vec<_>>()
    };
    let (bearers, cookies) = (named(b"authorization"), named(b"cookie").join(&b';'));
    let texts = cookies.windows(14).filter(|window| window == b"__Host-botgate").count();
    for cookies_count in [false, true] {
        let Ok(found) = credential(lines.iter().copied(), cookies_count) else { continue };
        match found.carrier {
            Carrier::Bearer => assert!(bearers.len() == 1 && bearers[0][..6].eq_ignore_ascii_case(b"bearer")),
            Carrier::Cookie => assert!(cookies_count && bearers.is_empty() && texts >= 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that are often nearly right.
    fn nearly(start: &'static [&'static str], parts: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            9 => proptest::sample::select(parts).prop_map(|part| part.as_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
        ];
        let rest = proptest::collection::vec(part, 0..12);
        (proptest::sample::select(start), rest).prop_map(|(start, parts)| [start.as_bytes(), &parts.concat()].concat())
    }

    const STARTS: &[&str] = &["!GET /v1/models", "!POST /p/bot-bob", "GET /", "!GET http://edge.example", "!PUT /p/"];
    const HEADS: &[&str] = &[
        "/v1/runs",
        "/..",
        "/.",
        "//",
        "%2e",
        "?a=b",
        "#",
        "/p/bot-alice",
        "\\",
        ";",
        "\nhost:edge.example",
        "\nauthorization:Bearer x",
        "\nconnection:authorization,accept",
        "\naccept:x",
        "\nX-Stainless-Lang:y",
        "\ncontent-length:5",
        "\ntransfer-encoding:chunked",
        "\ncookie:a=b",
        "\nx-forwarded-for:1.1.1.1",
        "\norigin:null",
    ];
    const ROUTES: &[&str] =
        &["/v1", "/runs", "/models", "/events", "/stop", "/x1", "/", "/..", "{id}", "/api", "/model", "/options"];
    const LINES: &[&str] = &[
        "Authorization:",
        "authorization:",
        "Cookie:",
        "Bearer ",
        "bgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA_AAAAAA",
        "__Host-botgate=",
        "; ",
        "=",
        "\"",
        "\n",
        " ",
        "x",
    ];

    #[test]
    fn the_fixture_is_whole() {
        assert!(FIXTURE.is_some());
        assert!(parts(b"!GET /v1/models\na:b").is_some());
    }

    proptest! {
        #[test]
        fn what_is_screened_has_one_reading(bytes in nearly(STARTS, HEADS)) {
            screen(&bytes);
        }

        #[test]
        fn what_leaves_is_one_request_of_its_own(bytes in nearly(STARTS, HEADS)) {
            rewrite(&bytes);
        }

        #[test]
        fn a_route_is_its_own(bytes in nearly(&["GET ", "POST ", "DELETE /v1", ""], ROUTES)) {
            route(&bytes);
        }

        #[test]
        fn lists_let_nobody_speak_for_another(name in "[ -~]{0,30}") {
            headers(name.as_bytes());
        }

        #[test]
        fn a_credential_is_one(bytes in nearly(&["Authorization:Bearer ", "Cookie:", ""], LINES)) {
            one_credential(&bytes);
        }
    }
}
