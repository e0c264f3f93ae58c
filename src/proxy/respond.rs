//! What the gateway's answer may be, and what of its head reaches the client.
//!
//! Invariants: no header that holds the bot's key or is longer than a request's may be, no redirect, no unasked upgrade, no
//! content coding and no body without an end of its own passes; a 401 and an unknown profile become the one 401; header
//! fields pass by allow-list, with the edge's own after them.

use http::{HeaderValue, StatusCode};

use super::body::EdgeBody;
use super::head::VALUE_MAX_BYTES;
use super::reply::Reply;
use crate::directory::Bot;
use crate::gateway::answer::{Answer, Framing};
use crate::telemetry::reason::Reason;

/// Longest 404 body that can be the gateway's word for an unknown profile, in bytes.
pub const UNKNOWN_PROFILE_MAX_BYTES: u64 = 1024;

/// Judges a response head.
///
/// # Errors
/// The reason why it must not pass.
pub fn judge(head: &Answer, bot: &Bot) -> Result<(), Reason> {
    let status = head.status();
    if status == StatusCode::UNAUTHORIZED {
        return Err(Reason::BotRefused);
    }
    let redirect = status.is_redirection() && status != StatusCode::NOT_MODIFIED;
    // A body that ends with its connection ends like a whole one also when the gateway dies in the middle.
    if status.is_informational() || redirect || head.framing() == Framing::Close {
        return Err(Reason::GatewayHostile);
    }
    let key = bot.key().expose().as_bytes();
    let leaks = |text: &[u8]| text.len() >= key.len() && text.windows(key.len()).any(|window| window == key);
    for (name, value) in head.lines() {
        let value = value.bytes();
        // A client's own limit must not be what fails.
        if value.len() > VALUE_MAX_BYTES || leaks(value) || leaks(name) {
            return Err(Reason::GatewayHostile);
        }
        if name.eq_ignore_ascii_case(b"content-encoding") {
            return Err(Reason::GatewayHostile);
        }
    }
    Ok(())
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
pub fn is_event_stream(head: &Answer) -> bool {
    head.value("content-type")
        .and_then(|value| value.get(..17))
        .is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"))
}

/// The response to the client: the gateway's status and listed fields, the edge's own fields, this body. `turn`: it
/// answers one, which must not run twice.
pub fn response(head: Box<Answer>, request_id: HeaderValue, turn: bool, body: EdgeBody) -> Reply {
    let once = turn && must_not_repeat(head.status());
    Reply::passed(head, once, request_id, body)
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

    fn answer(status: u16, lines: &[(&str, &str)]) -> Box<Answer> {
        let lines: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = format!("HTTP/1.1 {status} Told\r\n{lines}\r\n");
        Answer::of(text.as_bytes())
    }

    fn judged(status: u16, lines: &[(&str, &str)]) -> Result<(), Reason> {
        judge(&answer(status, &[&[("Content-Length", "2")], lines].concat()), &bot())
    }

    #[test]
    fn hostile_answers_do_not_pass() {
        assert_eq!(judged(200, &[("content-type", "application/json")]), Ok(()));
        assert_eq!(judged(401, &[]), Err(Reason::BotRefused));
        for status in [101, 301, 302, 307, 308] {
            assert_eq!(judged(status, &[]), Err(Reason::GatewayHostile), "{status}");
        }
        assert_eq!(judged(200, &[("x-hermes-debug", "k=fixture-key-of-alice-0001;")]), Err(Reason::GatewayHostile));
        assert_eq!(judged(200, &[("fixture-key-of-alice-0001", "x")]), Err(Reason::GatewayHostile));
        assert_eq!(judged(200, &[("Content-Encoding", "gzip")]), Err(Reason::GatewayHostile));
        assert_eq!(judged(200, &[("x-hermes-a", &"x".repeat(VALUE_MAX_BYTES + 1))]), Err(Reason::GatewayHostile));
    }

    #[test]
    fn a_body_needs_an_end_of_its_own() {
        for (status, lines, expected) in [
            (200, &[("content-length", "2")][..], Ok(())),
            (200, &[("transfer-encoding", "Chunked")], Ok(())),
            (204, &[], Ok(())),
            (200, &[], Err(Reason::GatewayHostile)),
            (500, &[("content-type", "text/plain")], Err(Reason::GatewayHostile)),
        ] {
            assert_eq!(judge(&answer(status, lines), &bot()), expected, "{status} {lines:?}");
        }
    }

    #[test]
    fn listed_fields_pass_as_often_as_they_come() {
        let lines = [
            ("Content-Type", "text/plain"),
            ("X-Hermes-Run", "r1"),
            ("x-hermes-run", "r2"),
            ("Set-Cookie", "a=b"),
            ("Content-Length", "2"),
            ("X-Request-Id", "theirs"),
        ];
        let id = HeaderValue::from_static("ours");
        let response = response(answer(500, &lines), id, true, EdgeBody::whole(bytes::Bytes::new())).into_response();
        let headers = response.headers();
        assert_eq!(headers.get_all("x-hermes-run").iter().collect::<Vec<_>>(), ["r1", "r2"]);
        for (name, value) in [("content-type", "text/plain"), ("x-request-id", "ours"), ("x-should-retry", "false")] {
            assert_eq!(headers[name], value);
        }
        assert_eq!(headers.len(), 6);
    }

    #[test]
    fn an_unknown_profile_is_told_from_other_404s() {
        assert!(is_unknown_profile(br#"{"error": "Unknown or unconfigured profile"}"#));
        assert!(!is_unknown_profile(br#"{"error": {"message": "no such run", "code": "run_not_found"}}"#));
        assert!(!is_unknown_profile(b"404: Not Found"));
    }

    #[test]
    fn event_streams_are_known_by_type() {
        assert!(!is_event_stream(&answer(200, &[])));
        assert!(!is_event_stream(&answer(200, &[("Content-Type", "text/plain")])));
        assert!(is_event_stream(&answer(200, &[("content-type", "Text/Event-Stream; charset=utf-8")])));
    }
}
