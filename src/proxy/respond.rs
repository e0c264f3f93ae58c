//! What the gateway's answer may be, and what of its head reaches the client.
//!
//! Invariants: no header that holds the bot's key or is longer than a request's may be, no redirect, no unasked upgrade, no
//! content coding and no body without an end of its own passes; a 401 and an unknown profile become the one 401; header
//! fields pass by allow-list, with the edge's own after them.

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode, response};

use super::body::EdgeBody;
use super::engine::X_REQUEST_ID;
use super::head::VALUE_MAX_BYTES;
use super::headers::response_passes;
use super::refusal::X_SHOULD_RETRY;
use crate::directory::Bot;
use crate::telemetry::reason::Reason;

/// Longest 404 body that can be the gateway's word for an unknown profile, in bytes.
pub const UNKNOWN_PROFILE_MAX_BYTES: u64 = 1024;

/// Judges a response head.
///
/// # Errors
/// The reason why it must not pass.
pub fn judge(head: &response::Parts, bot: &Bot) -> Result<(), Reason> {
    if head.status == StatusCode::UNAUTHORIZED {
        return Err(Reason::BotRefused);
    }
    let redirect = head.status.is_redirection() && head.status != StatusCode::NOT_MODIFIED;
    if head.status.is_informational() || redirect || head.headers.contains_key(CONTENT_ENCODING) {
        return Err(Reason::GatewayHostile);
    }
    // A body that ends with its connection ends like a whole one also when the gateway dies in the middle.
    if !is_delimited(head) {
        return Err(Reason::GatewayHostile);
    }
    // A client's own limit must not be what fails.
    if head.headers.values().any(|value| value.len() > VALUE_MAX_BYTES) {
        return Err(Reason::GatewayHostile);
    }
    let key = bot.key().expose().as_bytes();
    let leaks = |text: &[u8]| text.len() >= key.len() && text.windows(key.len()).any(|window| window == key);
    if head.headers.iter().any(|(name, value)| leaks(value.as_bytes()) || leaks(name.as_str().as_bytes())) {
        return Err(Reason::GatewayHostile);
    }
    Ok(())
}

/// Whether the body's end can be told from a connection that breaks off (RFC 9112 section 6.3).
fn is_delimited(head: &response::Parts) -> bool {
    let bodiless = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let last_coding = head.headers.get_all(TRANSFER_ENCODING).iter().next_back().map(|value| value.as_bytes());
    let chunked = last_coding
        .and_then(|codings| codings.rsplit(|&b| b == b',').next())
        .is_some_and(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"));
    bodiless || chunked || (last_coding.is_none() && head.headers.contains_key(CONTENT_LENGTH))
}

/// Whether the SDKs would by themselves repeat what is answered with this status, although the turn may have run.
fn must_not_repeat(status: StatusCode) -> bool {
    // 429 and 503 are the gateway's words for a turn that it has not begun.
    let refused = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    !refused && (status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT))
}

/// Whether a 404 is the gateway's word for a profile that it does not serve: `{"error": "<text>"}`, where other errors
/// have an object.
pub fn is_unknown_profile(body: &[u8]) -> bool {
    let error = serde_json::from_slice::<serde_json::Value>(body).ok();
    error.as_ref().and_then(|body| body.get("error")).is_some_and(serde_json::Value::is_string)
}

/// Whether the answer is a stream of events.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().get(..17).is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"))
    })
}

/// The response to the client: the gateway's status and listed fields, the edge's own fields, this body. `turn`: it
/// answers one, which must not run twice.
pub fn response(head: response::Parts, request_id: HeaderValue, turn: bool, body: EdgeBody) -> Response<EdgeBody> {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    let headers = response.headers_mut();
    headers.reserve(8);
    let mut named = None;
    // A further value of the same name comes without it.
    for (name, value) in head.headers {
        named = name.or(named);
        if let Some(name) = named.as_ref().filter(|name| response_passes(name, false)) {
            headers.append(name.clone(), value);
        }
    }
    if turn && must_not_repeat(head.status) {
        headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_REQUEST_ID, request_id);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GatewayUrl;
    use crate::directory::GatewayTarget;
    use crate::names::{GatewayName, Login, ProfileName, Uid};
    use crate::secret::ApiServerKey;
    use std::sync::Arc;

    fn bot() -> Bot {
        let login = Login::parse("alice").unwrap();
        let url = GatewayUrl::parse("http://127.0.0.1:1").unwrap();
        let gateway = Arc::new(GatewayTarget::new(GatewayName::parse("main").unwrap(), 0, url));
        let key = ApiServerKey::parse("fixture-key-of-alice-0001").unwrap();
        Bot::new(login.clone(), Uid::random(), ProfileName::of(&login), gateway, key).unwrap()
    }

    fn judged(status: u16, headers: &[(&str, &str)]) -> Result<(), Reason> {
        let mut builder = Response::builder().status(status).header("content-length", "2");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        judge(&builder.body(()).unwrap().into_parts().0, &bot())
    }

    #[test]
    fn hostile_answers_do_not_pass() {
        assert_eq!(judged(200, &[("content-type", "application/json")]), Ok(()));
        assert_eq!(judged(401, &[]), Err(Reason::BotRefused));
        for status in [101, 301, 302, 307, 308] {
            assert_eq!(judged(status, &[]), Err(Reason::GatewayHostile), "{status}");
        }
        assert_eq!(judged(200, &[("x-hermes-debug", "k=fixture-key-of-alice-0001;")]), Err(Reason::GatewayHostile));
        assert_eq!(judged(200, &[("content-encoding", "gzip")]), Err(Reason::GatewayHostile));
    }

    #[test]
    fn a_body_needs_an_end_of_its_own() {
        for (status, headers, expected) in [
            (200, &[("content-length", "2")][..], true),
            (200, &[("transfer-encoding", "Chunked")], true),
            (200, &[("transfer-encoding", "gzip, chunked")], true),
            (204, &[], true),
            (200, &[], false),
            (500, &[("content-type", "text/plain")], false),
            (200, &[("transfer-encoding", "gzip"), ("content-length", "2")], false),
        ] {
            let mut builder = Response::builder().status(status);
            for (name, value) in headers {
                builder = builder.header(*name, *value);
            }
            assert_eq!(is_delimited(&builder.body(()).unwrap().into_parts().0), expected, "{status} {headers:?}");
        }
    }

    #[test]
    fn an_unknown_profile_is_told_from_other_404s() {
        assert!(is_unknown_profile(br#"{"error": "Unknown or unconfigured profile"}"#));
        assert!(!is_unknown_profile(br#"{"error": {"message": "no such run", "code": "run_not_found"}}"#));
        assert!(!is_unknown_profile(b"404: Not Found"));
    }

    #[test]
    fn event_streams_are_known_by_type() {
        let mut headers = HeaderMap::new();
        assert!(!is_event_stream(&headers));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("Text/Event-Stream; charset=utf-8"));
        assert!(is_event_stream(&headers));
    }
}
