//! Misbehaviour: what a broken or hostile gateway would do. Only tests switch it on.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde_json::json;

use super::answer::{self, Answer};
use super::server::Wire;

/// How keys are bound to paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Each profile's own key opens its path and nothing else does, as in 0.22.
    #[default]
    PerProfile,
    /// The default key opens every path and profiles' own keys open none, as in 0.19.
    DefaultKeyOnly,
    /// The default key opens every path, beside the profile's own.
    DefaultKeyToo,
    /// Any profile's key opens every path.
    AnyKey,
    /// Nobody needs a key.
    NoKey,
    /// `/p/<anything>` is the default profile, and any known key opens it.
    PrefixIgnored,
}

/// One thing that a broken or hostile gateway does in place of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misbehaviour {
    /// A 101 that nobody asked for, and bytes behind it.
    Unasked101,
    /// A redirect to another host.
    Redirect,
    /// An answer with the presented key in a header.
    EchoKey,
    /// A chunked body that stops inside a chunk.
    TruncatedChunked,
    /// A body that ends before its Content-Length.
    TruncatedLength,
    /// 401 for the right key.
    RefuseRightKey,
    /// The unknown-profile 404 for a profile that is served.
    DisownProfile,
    /// The connection is closed once the request is read, without an answer.
    CloseUnanswered,
    /// The head of an answer, then the end of the connection.
    CloseAfterHead,
    /// Bytes that are not HTTP in front of the status line.
    Junk,
    /// Two Content-Length headers that differ.
    TwoLengths,
    /// No answer, ever.
    NeverAnswer,
    /// The answer after a wait.
    Slow(Duration),
    /// A status of its own, with an OpenAI-shaped error.
    Status(u16),
}

/// A misbehaviour and what it applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misbehave {
    /// What is done.
    pub how: Misbehaviour,
    /// Also to the requests of a proof. Otherwise a gateway that was proved turns bad afterwards.
    pub probes_too: bool,
}

impl Misbehave {
    /// To everything but the requests of a proof.
    pub fn after_proof(how: Misbehaviour) -> Self {
        Misbehave { how, probes_too: false }
    }

    /// To everything.
    pub fn always(how: Misbehaviour) -> Self {
        Misbehave { how, probes_too: true }
    }

    pub(super) fn applies(&self, headers: &HeaderMap) -> bool {
        let agent = headers.get(http::header::USER_AGENT);
        self.probes_too || agent.is_none_or(|agent| agent.as_bytes() != b"botgate-proof")
    }
}

/// Misbehaves. Whoever calls has waited already for [`Misbehaviour::Slow`].
pub(super) async fn act(how: Misbehaviour, headers: &HeaderMap, wire: &Wire) -> Response<Answer> {
    let json = "Server: botgate-stand-in\r\nContent-Type: application/json\r\n";
    let raw = match how {
        Misbehaviour::Unasked101 => {
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\u{1}\u{2}".to_owned()
        }
        Misbehaviour::TruncatedChunked => {
            format!("HTTP/1.1 200 OK\r\n{json}Transfer-Encoding: chunked\r\n\r\n4\r\n{{\"a\"\r\n40\r\n:1")
        }
        Misbehaviour::TruncatedLength => format!("HTTP/1.1 200 OK\r\n{json}Content-Length: 100\r\n\r\n{{\"a\":"),
        Misbehaviour::CloseUnanswered => String::new(),
        Misbehaviour::CloseAfterHead => format!("HTTP/1.1 200 OK\r\n{json}Content-Length: 100\r\n\r\n"),
        Misbehaviour::Junk => format!("\u{1}\u{2}junk\r\nHTTP/1.1 200 OK\r\n{json}Content-Length: 2\r\n\r\n{{}}"),
        Misbehaviour::TwoLengths => {
            format!("HTTP/1.1 200 OK\r\n{json}Content-Length: 2\r\nContent-Length: 30\r\n\r\n{{}}")
        }
        Misbehaviour::Redirect => {
            let mut response = answer::json_value(StatusCode::TEMPORARY_REDIRECT, &json!({}));
            response.headers_mut().insert(LOCATION, HeaderValue::from_static("http://127.0.0.1:9/elsewhere"));
            return response;
        }
        Misbehaviour::EchoKey => {
            let mut response = answer::ok(&json!({}));
            if let Some(presented) = headers.get(AUTHORIZATION) {
                response.headers_mut().insert(HeaderName::from_static("x-hermes-echo"), presented.clone());
            }
            return response;
        }
        Misbehaviour::RefuseRightKey => return answer::wrong_key(),
        Misbehaviour::DisownProfile => return answer::unknown_profile(),
        Misbehaviour::NeverAnswer => std::future::pending().await,
        Misbehaviour::Slow(_) => return answer::ok(&json!({})),
        Misbehaviour::Status(status) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return answer::error(status, "The stand-in was told to fail.", "server_error", None);
        }
    };
    wire.replace(Bytes::from(raw));
    answer::last(answer::ok(&json!({})))
}
