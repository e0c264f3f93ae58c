//! The bridge to hyper: its parsed head becomes a head view, and an outbound head becomes its request.
//!
//! This is the only place of the pipeline that knows hyper's header types on the way in.

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Request, Uri, request};
use smallvec::SmallVec;

use super::head::{HeadView, Line};
use super::rewrite::Outbound;
use crate::gateway::request_body::RequestBody;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Request identifier, towards both sides.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Lines that a request to a gateway has beside the client's own.
const ADDED_LINES: usize = 6;

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

/// The request to send; `None` when the target does not fit a request line or there is no Host, which screening has ruled out.
pub fn request(
    parts: &request::Parts,
    outbound: &Outbound<'_>,
    request_id: &HeaderValue,
    body: RequestBody,
) -> Option<Request<RequestBody>> {
    let target = PathAndQuery::from_maybe_shared(Bytes::from(outbound.target().concat())).ok()?;
    let mut request = Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = Uri::from(target);
    let map = request.headers_mut();
    map.reserve(parts.headers.len() + ADDED_LINES);
    let bot = outbound.grant().bot();
    map.insert(HOST, bot.gateway().host().clone());
    map.insert(AUTHORIZATION, bot.authorization().clone());
    for (place, (name, value)) in parts.headers.iter().enumerate() {
        if outbound.kept().contains(place) {
            map.append(name.clone(), value.clone());
        }
    }
    map.insert(X_FORWARDED_FOR, outbound.forwarded_for().clone());
    map.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
    // Screening has found exactly one Host, equal to one of ours.
    map.insert(X_FORWARDED_HOST, parts.headers.get(HOST)?.clone());
    map.insert(X_REQUEST_ID, request_id.clone());
    Some(request)
}
