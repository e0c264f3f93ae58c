//! The bridge between engines: hyper's parsed head becomes a head view, and an outbound head the bytes that go to the gateway.
//!
//! The stages see a head only as these views; answers and refusals are made of the `http` crate's types.

use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Version, request};
use http_body::Body;
use hyper::body::Incoming;
use smallvec::SmallVec;

use super::head::{HeadView, Line};
use super::refusal::Refusal;
use super::rewrite::Outbound;
use crate::gateway::outgoing::RequestHead;
use crate::telemetry::reason::Reason;

/// Request identifier, towards both sides.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Room for a request head towards a gateway, in bytes; longer ones grow.
const HEAD_BYTES: usize = 768;

/// Header lines of one head; those of most clients fit in without an allocation.
pub type Lines<'a> = SmallVec<[Line<'a>; 24]>;

/// The header lines of a parsed head, in the map's order. HTTP/2 names its host in `:authority`, mostly alone: it is then the
/// line that later stages look for.
pub fn lines(parts: &request::Parts) -> Lines<'_> {
    let mut lines: Lines<'_> =
        parts.headers.iter().map(|(name, value)| Line { name: name.as_str(), value: value.as_bytes() }).collect();
    if parts.version == Version::HTTP_2
        && let Some(authority) = parts.uri.authority()
        && !parts.headers.contains_key(HOST)
    {
        lines.push(Line { name: "host", value: authority.as_str().as_bytes() });
    }
    lines
}

/// What RFC 9113 asks of a request beyond what the engine refuses by itself: the scheme is that of the connection (section
/// 8.3.1, RFC 9110 section 7.4), and no value has outer white space (section 8.2.1), which two readers might see differently.
///
/// # Errors
/// A [`Refusal`] of 400.
pub fn http2_rules(parts: &request::Parts, secure: bool) -> Result<(), Refusal> {
    let scheme = if secure { "https" } else { "http" };
    // CONNECT has none, and is refused as such.
    let own = parts.uri.scheme_str().is_none_or(|given| given.eq_ignore_ascii_case(scheme));
    let padded = |value: &HeaderValue| matches!(value.as_bytes(), [b' ' | b'\t', ..] | [.., b' ' | b'\t']);
    if own && !parts.headers.values().any(padded) { Ok(()) } else { Err(Refusal::of(Reason::BadRequest)) }
}

/// The head view of a parsed head and its lines.
pub fn view<'a>(parts: &'a request::Parts, lines: &'a [Line<'a>]) -> HeadView<'a> {
    HeadView {
        method: parts.method.as_str(),
        authority: parts.uri.authority().map(http::uri::Authority::as_str),
        path_and_query: parts.uri.path_and_query().map_or("", PathAndQuery::as_str),
        lines,
    }
}

/// Whether a parsed head declares a body.
pub fn has_body(body: &Incoming, headers: &HeaderMap) -> bool {
    !body.is_end_stream() || headers.contains_key(http::header::TRANSFER_ENCODING)
}

/// The head that goes to the gateway: every line is copied once, straight into what is sent.
pub fn outgoing(view: &HeadView<'_>, outbound: &Outbound<'_>, request_id: &HeaderValue) -> RequestHead {
    let bot = outbound.grant().bot();
    let [prefix, below] = outbound.target();
    let mut lines = Vec::with_capacity(HEAD_BYTES);
    for part in [view.method.as_bytes(), b" ", prefix.as_bytes(), below.as_bytes(), b" HTTP/1.1\r\n"] {
        lines.extend_from_slice(part);
    }
    let mut push = |name: &str, value: &[u8]| {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            lines.extend_from_slice(part);
        }
    };
    push("host", bot.gateway().host().as_bytes());
    push("authorization", bot.authorization().as_bytes());
    for (place, line) in view.lines.iter().enumerate() {
        if outbound.kept().contains(place) {
            push(line.name, line.value);
        }
    }
    push("x-forwarded-for", outbound.client().forwarded_for().as_bytes());
    push("x-forwarded-proto", outbound.client().forwarded_proto().as_bytes());
    // Screening has found exactly one Host, equal to one of ours.
    push("x-forwarded-host", view.values("host").next().unwrap_or_default());
    push("x-request-id", request_id.as_bytes());
    RequestHead { lines, tells_absence: !matches!(view.method, "GET" | "HEAD") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(version: Version, uri: &str, lines: &[(&str, &str)]) -> request::Parts {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_authority_of_http2_is_its_host_line_unless_it_has_one() {
        let hosts = |parts: request::Parts| {
            let hosts = lines(&parts).into_iter().filter(|line| line.name == "host").map(|line| line.value.to_vec());
            hosts.collect::<Vec<_>>()
        };
        assert_eq!(hosts(parts(Version::HTTP_2, "https://a/x", &[])), [b"a"]);
        assert_eq!(hosts(parts(Version::HTTP_2, "https://a/x", &[("host", "b")])), [b"b"]);
        assert_eq!(hosts(parts(Version::HTTP_2, "/x", &[])), [b""; 0]);
        assert_eq!(hosts(parts(Version::HTTP_11, "http://a/x", &[])), [b""; 0]);
    }

    #[test]
    fn a_request_of_http2_has_the_scheme_of_its_connection_and_no_padded_value() {
        let rules = |uri, lines: &[_], secure| http2_rules(&parts(Version::HTTP_2, uri, lines), secure).is_ok();
        assert!(rules("https://a/x", &[("a", "b c"), ("b", "")], true));
        assert!(rules("http://a/x", &[], false));
        assert!(!rules("http://a/x", &[], true));
        assert!(!rules("ftp://a/x", &[], true));
        for padded in [" b", "b ", "\tb", "b\t", " "] {
            assert!(!rules("https://a/x", &[("a", padded)], true), "{padded:?}");
        }
    }
}
