//! Answers: the bodies, headers and errors that the stand-in sends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, SERVER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// A body that is there as a whole, or one that comes piece by piece.
#[derive(Debug)]
pub(super) enum Answer {
    Whole(Bytes),
    /// An error in the channel cuts the connection without a proper end.
    Stream(mpsc::Receiver<io::Result<Bytes>>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Answer::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Answer::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Answer::Stream(pieces) => pieces.poll_recv(cx).map(|piece| piece.map(|bytes| bytes.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Answer::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Answer::Stream(_) => SizeHint::default(),
        }
    }
}

/// What every JSON answer of the real one carries.
const SECURITY: [(HeaderName, HeaderValue); 6] = [
    (http::header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'")),
    (http::header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000; includeSubDomains")),
    (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (http::header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (http::header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), microphone=(), geolocation=()"),
    ),
];

fn bare(status: StatusCode, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(SERVER, HeaderValue::from_static("botgate-stand-in"));
    response
}

/// A JSON answer whose text is at hand.
pub(super) fn json_text(status: StatusCode, text: Bytes) -> Response<Answer> {
    let mut response = bare(status, Answer::Whole(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    for (name, value) in SECURITY {
        headers.insert(name, value);
    }
    response
}

/// A JSON answer.
pub(super) fn json_value(status: StatusCode, value: &Value) -> Response<Answer> {
    json_text(status, Bytes::from(value.to_string()))
}

/// A 200 in JSON.
pub(super) fn ok(value: &Value) -> Response<Answer> {
    json_value(StatusCode::OK, value)
}

/// A text answer, as the real one gives for what it does not route.
pub(super) fn text(status: StatusCode, text: &'static str) -> Response<Answer> {
    let mut response = bare(status, Answer::Whole(Bytes::from_static(text.as_bytes())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// An event stream.
pub(super) fn stream(pieces: mpsc::Receiver<io::Result<Bytes>>) -> Response<Answer> {
    let mut response = bare(StatusCode::OK, Answer::Stream(pieces));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// An OpenAI-shaped error.
pub(super) fn error(status: StatusCode, message: &str, kind: &str, code: Option<&str>) -> Response<Answer> {
    json_value(status, &json!({"error": {"message": message, "type": kind, "param": null, "code": code}}))
}

/// 400 for a request that cannot be understood.
pub(super) fn bad(message: &str) -> Response<Answer> {
    error(StatusCode::BAD_REQUEST, message, "invalid_request_error", None)
}

/// 404 with a code.
pub(super) fn not_found(message: &str, code: Option<&str>) -> Response<Answer> {
    error(StatusCode::NOT_FOUND, message, "invalid_request_error", code)
}

/// 409 with a code.
pub(super) fn conflict(message: &str, code: &str) -> Response<Answer> {
    error(StatusCode::CONFLICT, message, "invalid_request_error", Some(code))
}

/// The refusal of a wrong or missing key.
pub(super) fn wrong_key() -> Response<Answer> {
    json_value(
        StatusCode::UNAUTHORIZED,
        &json!({"error": {
            "message": "This API_SERVER_KEY is not the profile's.",
            "type": "gateway_auth_error",
            "code": "gateway_auth_failed",
        }}),
    )
}

/// The refusal of a profile that is not served: the error is a string.
pub(super) fn unknown_profile() -> Response<Answer> {
    json_value(StatusCode::NOT_FOUND, &json!({"error": "Unknown or unconfigured profile"}))
}

/// Marks an answer as worth repeating in a second.
pub(super) fn retry_later(mut response: Response<Answer>) -> Response<Answer> {
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Marks an answer as the connection's last.
pub(super) fn last(mut response: Response<Answer>) -> Response<Answer> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Seconds since 1970.
pub(super) fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// An identifier as the gateway makes them: a prefix and random hex digits.
pub(super) fn fresh_id(prefix: &str) -> String {
    format!("{prefix}{}", crate::names::Uid::random())
}
