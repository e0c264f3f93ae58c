//! What the gateway's answer may be, and what of its head reaches the client.
//!
//! Invariants: no header that holds the bot's key or is longer than a request's may be, no redirect, no unasked upgrade and no content coding passes; a 401 and an
//! unknown profile become the one 401; header fields pass by allow-list, with the edge's own after them.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode, response};

use super::body::EdgeBody;
use super::engine::X_REQUEST_ID;
use super::head::VALUE_MAX_BYTES;
use super::headers::response_passes;
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

/// The response to the client: the gateway's status and listed fields, the edge's own fields, this body.
pub fn response(head: response::Parts, request_id: &HeaderValue, body: EdgeBody) -> Response<EdgeBody> {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    let headers = response.headers_mut();
    headers.reserve(8);
    for (name, value) in &head.headers {
        if response_passes(name, false) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_REQUEST_ID, request_id.clone());
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
        let mut builder = Response::builder().status(status);
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
