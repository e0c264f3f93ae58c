//! The bridge between engines: hyper's parsed head becomes a head view, and an outbound head the bytes that go to the gateway.
//!
//! The stages see a head only as these views; answers and refusals are made of the `http` crate's types.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, request};
use http_body::Body;
use hyper::body::Incoming;
use smallvec::SmallVec;

use super::head::{HeadView, Line};
use super::rewrite::Outbound;
use crate::gateway::outgoing::RequestHead;

/// Request identifier, towards both sides.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Room for a request head towards a gateway, in bytes; longer ones grow.
const HEAD_BYTES: usize = 768;

/// Header lines of one head; those of most clients fit in without an allocation.
pub type Lines<'a> = SmallVec<[Line<'a>; 24]>;

/// The header lines of a parsed head, in the map's order.
pub fn lines(parts: &request::Parts) -> Lines<'_> {
    parts.headers.iter().map(|(name, value)| Line { name: name.as_str(), value: value.as_bytes() }).collect()
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
