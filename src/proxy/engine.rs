//! The bridge between engines: hyper's parsed head becomes a head view, and an outbound head the bytes that go to the gateway.
//!
//! The stages see a head only as these views; answers and refusals are made of the `http` crate's types.

use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Version, request};
use smallvec::SmallVec;

use super::head::{HeadView, Line};
use super::rewrite::Outbound;
use crate::gateway::outgoing::RequestHead;
use crate::telemetry::reason::Reason;

/// Room for a request head towards a gateway, in bytes; longer ones grow.
const HEAD_BYTES: usize = 768;

/// Header lines of one head; those of most clients fit in without an allocation.
pub type Lines<'a> = SmallVec<[Line<'a>; 24]>;

/// A request's head, as an engine holds it.
pub trait Head: Send + Sync + 'static {
    /// The method.
    fn method(&self) -> Method;
    /// The header lines, in order.
    fn lines(&self) -> Lines<'_>;
    /// The view of the head and its lines.
    fn view<'a>(&'a self, lines: &'a [Line<'a>]) -> HeadView<'a>;
    /// What its version asks beyond what the engine refuses by itself. `secure`: its client speaks TLS.
    ///
    /// # Errors
    /// Why it is refused.
    fn check(&self, secure: bool) -> Result<(), Reason>;
}

/// A head that hyper has parsed. HTTP/2 names its host in `:authority`, mostly alone: it is then the line that later stages look
/// for.
impl Head for request::Parts {
    fn method(&self) -> Method {
        self.method.clone()
    }

    fn lines(&self) -> Lines<'_> {
        let mut lines: Lines<'_> =
            self.headers.iter().map(|(name, value)| Line { name: name.as_str(), value: value.as_bytes() }).collect();
        if self.version == Version::HTTP_2
            && let Some(authority) = self.uri.authority()
            && !self.headers.contains_key(HOST)
        {
            lines.push(Line { name: "host", value: authority.as_str().as_bytes() });
        }
        lines
    }

    fn view<'a>(&'a self, lines: &'a [Line<'a>]) -> HeadView<'a> {
        HeadView {
            method: self.method.as_str(),
            authority: self.uri.authority().map(http::uri::Authority::as_str),
            path_and_query: self.uri.path_and_query().map_or("", PathAndQuery::as_str),
            lines,
        }
    }

    fn check(&self, secure: bool) -> Result<(), Reason> {
        match self.version {
            Version::HTTP_11 => Ok(()),
            Version::HTTP_2 => http2_rules(self, secure),
            _ => Err(Reason::HttpVersion),
        }
    }
}

/// What RFC 9113 asks of a request beyond what the engine refuses by itself: the scheme is that of its connection, which is
/// always TLS, or else of the client that a forwarder tells of (section 8.3.1, RFC 9110 section 7.4); and no value has outer white
/// space (section 8.2.1), which two readers might see differently.
fn http2_rules(parts: &request::Parts, secure: bool) -> Result<(), Reason> {
    let fits = |scheme: &str| scheme.eq_ignore_ascii_case("https") || (!secure && scheme.eq_ignore_ascii_case("http"));
    // CONNECT has none, and is refused as such.
    let own = parts.uri.scheme_str().is_none_or(fits);
    let padded = |value: &HeaderValue| matches!(value.as_bytes(), [b' ' | b'\t', ..] | [.., b' ' | b'\t']);
    if own && !parts.headers.values().any(padded) { Ok(()) } else { Err(Reason::BadRequest) }
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
            let hosts = parts.lines().into_iter().filter(|line| line.name == "host").map(|line| line.value.to_vec());
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
        assert!(rules("http://a/x", &[], false) && rules("https://a/x", &[], false));
        assert!(!rules("http://a/x", &[], true));
        assert!(!rules("ftp://a/x", &[], true));
        for padded in [" b", "b ", "\tb", "b\t", " "] {
            assert!(!rules("https://a/x", &[("a", padded)], true), "{padded:?}");
        }
    }
}
