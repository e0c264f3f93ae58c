//! Refusals: one place where a reason becomes a status, fixed text and headers.
//!
//! Invariants: every reason of promise 3 gives the same bytes; the client never learns a reason beyond the status; errors
//! have the shape of OpenAI's API; `x-should-retry` is `true` only where no byte of a turn has left, because the official
//! SDKs obey it and a turn must not run twice.

use std::sync::LazyLock;

use bytes::Bytes;
use http::StatusCode;

use super::body::EdgeBody;
use super::reply::{OwnFields, Reply};
use crate::telemetry::reason::Reason;

/// A request that is not served, and why.
#[derive(Debug)]
pub struct Refusal {
    reason: Reason,
    allow: Option<String>,
    sent: bool,
}

/// Seconds in Retry-After: what is full or starting now is usually free again soon, and a rate lets one more request pass
/// each second at the latest.
const RETRY_AFTER_SECONDS: &str = "1";

/// What the client sees of a reason.
struct Shown {
    status: StatusCode,
    kind: &'static str,
    code: &'static str,
    message: &'static str,
    retry: bool,
}

const fn shown(status: StatusCode, kind: &'static str, code: &'static str, message: &'static str) -> Shown {
    Shown { status, kind, code, message, retry: false }
}

const fn later(status: StatusCode, kind: &'static str, code: &'static str, message: &'static str) -> Shown {
    Shown { status, kind, code, message, retry: true }
}

/// The body for each reason, in the order of [`Reason::ALL`], which is that of its values. Made once: strangers have refusals
/// made as often as they like.
static BODIES: LazyLock<Box<[&'static str]>> = LazyLock::new(|| {
    let body = |reason: &Reason| {
        let Shown { message, kind, code, .. } = show(*reason);
        let text = format!(r#"{{"error":{{"message":"{message}","type":"{kind}","param":null,"code":"{code}"}}}}"#);
        // Never freed: a share that is counted would be a cache line between the threads.
        &*Box::leak(text.into_boxed_str())
    };
    Reason::ALL.iter().map(body).collect()
});

impl Refusal {
    /// A refusal for this reason.
    pub fn of(reason: Reason) -> Self {
        Refusal { reason, allow: None, sent: false }
    }

    /// A 405 that tells the methods which are served.
    pub fn method(allow: String) -> Self {
        Refusal { allow: Some(allow), ..Refusal::of(Reason::UnknownMethod) }
    }

    /// The same, when bytes of the request have left: the client must not repeat it.
    pub fn after_sending(self) -> Self {
        Refusal { sent: true, ..self }
    }

    /// Why. For metrics, log and audit only.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The status that the client sees.
    pub fn status(&self) -> StatusCode {
        show(self.reason).status
    }

    /// The response. `close` ends the connection after it, as it must where a request body stays unread.
    pub fn into_reply(self, close: bool) -> Reply {
        let shown = show(self.reason);
        let retry = shown.retry && !self.sent;
        let mut fields = OwnFields::with_capacity(8);
        fields.push(("content-type", "application/json".into()));
        fields.push(("cache-control", "no-store".into()));
        fields.push(("x-content-type-options", "nosniff".into()));
        // What OpenAI's SDKs read before they repeat a request.
        fields.push(("x-should-retry", if retry { "true" } else { "false" }.into()));
        if shown.status == StatusCode::UNAUTHORIZED {
            fields.push(("www-authenticate", "Bearer".into()));
        }
        if retry {
            fields.push(("retry-after", RETRY_AFTER_SECONDS.into()));
        }
        if let Some(allow) = self.allow {
            fields.push(("allow", allow.into()));
        }
        let body = EdgeBody::whole(Bytes::from_static(BODIES[self.reason as usize].as_bytes()));
        let reply = Reply::own(shown.status, fields, body);
        if close { reply.closing() } else { reply }
    }
}

fn show(reason: Reason) -> Shown {
    const REQUEST: &str = "invalid_request_error";
    const LIMIT: &str = "rate_limit_error";
    const SERVER: &str = "server_error";
    match reason {
        Reason::BadRequest | Reason::BadForwarding => {
            shown(StatusCode::BAD_REQUEST, REQUEST, "bad_request", "The request is not well formed.")
        }
        Reason::HttpVersion => shown(
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            REQUEST,
            "http_version",
            "HTTP/1.1 or later is needed: an older client cannot tell a cut answer from a whole one.",
        ),
        Reason::BadTarget => shown(
            StatusCode::BAD_REQUEST,
            REQUEST,
            "bad_target",
            "The request target is not in its plain form: no escapes, no empty or dot segments.",
        ),
        Reason::MisdirectedHost => shown(
            StatusCode::MISDIRECTED_REQUEST,
            REQUEST,
            "unknown_host",
            "This host name is not served here; see listen.public_url and listen.additional_hosts.",
        ),
        Reason::TargetTooLong => {
            shown(StatusCode::URI_TOO_LONG, REQUEST, "target_too_long", "The request target is too long.")
        }
        Reason::HeadTooLarge => shown(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            REQUEST,
            "head_too_large",
            "The request head is too large.",
        ),
        Reason::ForbiddenMethod | Reason::UnknownMethod => {
            shown(StatusCode::METHOD_NOT_ALLOWED, REQUEST, "method_not_allowed", "This method is not served here.")
        }
        Reason::CredentialMissing
        | Reason::CredentialMalformed
        | Reason::CredentialAmbiguous
        | Reason::CredentialUnknown
        | Reason::CredentialKind
        | Reason::CrossOrigin
        | Reason::SessionExpired
        | Reason::SessionRevoked
        | Reason::PersonDisabled
        | Reason::NoBot
        | Reason::NotOwnBot
        | Reason::BotRefused
        | Reason::McpCredential => shown(
            StatusCode::UNAUTHORIZED,
            "authentication_error",
            "unauthorized",
            "No valid credential for this bot was given.",
        ),
        Reason::UnknownRoute => shown(StatusCode::NOT_FOUND, REQUEST, "not_found", "This path is not served."),
        Reason::ContentEncoding => shown(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            REQUEST,
            "content_encoding",
            "Request bodies with a content coding are not accepted.",
        ),
        Reason::BodyTooLarge => {
            shown(StatusCode::PAYLOAD_TOO_LARGE, REQUEST, "body_too_large", "The request body is too large.")
        }
        Reason::BodyTooSlow => {
            shown(StatusCode::REQUEST_TIMEOUT, REQUEST, "body_too_slow", "The request body came too slowly.")
        }
        Reason::Expectation => {
            shown(StatusCode::EXPECTATION_FAILED, REQUEST, "expectation_failed", "Only 100-continue can be expected.")
        }
        Reason::AddressRate | Reason::PersonRate => later(
            StatusCode::TOO_MANY_REQUESTS,
            LIMIT,
            "rate_limit_exceeded",
            "Too many requests came in too short a time; try again shortly.",
        ),
        // The last three end a connection and are never an answer.
        Reason::QueueFull
        | Reason::QueueTimeout
        | Reason::ConnectionLimit
        | Reason::HandshakeLimit
        | Reason::FrameFlood => later(
            StatusCode::TOO_MANY_REQUESTS,
            LIMIT,
            "rate_limit_exceeded",
            "Too many turns are running or waiting; try again shortly.",
        ),
        Reason::StoreStale | Reason::AuditFull | Reason::AuditFailed => {
            later(StatusCode::SERVICE_UNAVAILABLE, SERVER, "unavailable", "The edge cannot serve requests right now.")
        }
        Reason::Draining => {
            later(StatusCode::SERVICE_UNAVAILABLE, SERVER, "draining", "The edge is shutting down or restarting.")
        }
        Reason::GatewayStarting | Reason::ProofFailed | Reason::GatewayUnreachable => later(
            StatusCode::SERVICE_UNAVAILABLE,
            SERVER,
            "gateway_unavailable",
            "The gateway cannot be used right now.",
        ),
        Reason::GatewayBroke | Reason::GatewayHostile => {
            shown(StatusCode::BAD_GATEWAY, SERVER, "bad_gateway", "The gateway's answer could not be used.")
        }
        Reason::GatewayTimeout => {
            shown(StatusCode::GATEWAY_TIMEOUT, SERVER, "gateway_timeout", "The gateway did not answer in time.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_401_is_the_same_401() {
        let mut seen: Vec<String> = Vec::new();
        for reason in Reason::ALL {
            let refusal = Refusal::of(*reason);
            if refusal.status() == StatusCode::UNAUTHORIZED {
                let response = refusal.into_reply(false).into_response();
                seen.push(format!("{:?} {:?}", response.headers(), response.body()));
            }
        }
        assert!(seen.len() >= 12);
        seen.dedup();
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn each_reason_has_its_own_text() {
        for reason in Reason::ALL {
            let text = BODIES[*reason as usize];
            assert!(text.contains(show(*reason).message), "{reason:?}: {text}");
        }
    }

    #[test]
    fn the_sdk_is_told_to_repeat_only_what_never_left() {
        for reason in Reason::ALL {
            let response = Refusal::of(*reason).into_reply(false).into_response();
            let repeatable =
                matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
            let expected = if repeatable { "true" } else { "false" };
            assert_eq!(response.headers()["x-should-retry"], expected, "{reason:?}");
            assert_eq!(response.headers().contains_key("retry-after"), repeatable, "{reason:?}");
        }
    }
}
