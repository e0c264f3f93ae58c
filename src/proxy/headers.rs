//! Allow-lists of header fields, both ways.
//!
//! Invariants: what is not listed does not pass. Neither list holds a credential, a cookie, a hop-by-hop or a forwarding
//! field, so that neither side can speak for the edge.

use http::HeaderName;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, RETRY_AFTER};

use super::head::HeadView;
use crate::config::HeaderText;

/// Request header fields that pass. Content-Length is not among them: the upstream engine frames the body anew.
const REQUEST: &[&str] = &[
    "accept",
    "accept-language",
    "cache-control",
    "content-type",
    "idempotency-key",
    "last-event-id",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-hermes-session-id",
    "x-hermes-session-key",
];
const REQUEST_PREFIX: &str = "x-stainless-";

/// Whether a request header field passes, by its lower-case name.
pub fn request_passes(name: &str, extra: &[HeaderText]) -> bool {
    REQUEST.contains(&name) || name.starts_with(REQUEST_PREFIX) || extra.iter().any(|extra| extra.as_str() == name)
}

/// Whether the request's Connection field names this field as hop-by-hop (RFC 9110 section 7.6.1).
pub fn is_nominated(head: &HeadView<'_>, name: &str) -> bool {
    head.values("connection").any(|value| {
        value.split(|&b| b == b',').any(|option| option.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
    })
}

/// Whether a response header field passes. `artifact`: Content-Disposition does too.
pub fn response_passes(name: &HeaderName, artifact: bool) -> bool {
    *name == CONTENT_TYPE
        || *name == CACHE_CONTROL
        || *name == RETRY_AFTER
        || (artifact && *name == CONTENT_DISPOSITION)
        || name.as_str() == "x-accel-buffering"
        || name.as_str().starts_with("x-hermes-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_list_lets_a_credential_or_identity_through() {
        for name in [
            "authorization",
            "cookie",
            "host",
            "origin",
            "connection",
            "forwarded",
            "x-forwarded-for",
            "x-real-ip",
            "x-api-key",
            "x-botgate-login",
            "x-forwarded-user",
            "proxy-authorization",
            "transfer-encoding",
            "content-length",
            "te",
            "upgrade",
            "x-request-id",
            "content-encoding",
            "x-stainless",
            "expect",
            "keep-alive",
        ] {
            assert!(!request_passes(name, &[]), "{name}");
        }
        for name in
            ["set-cookie", "server", "location", "www-authenticate", "connection", "transfer-encoding", "x-request-id"]
        {
            assert!(!response_passes(&HeaderName::from_static(name), true), "{name}");
        }
    }

    #[test]
    fn an_operator_can_add_names() {
        let extra = [HeaderText::parse("X-Chat-Id").unwrap()];
        assert!(request_passes("x-chat-id", &extra));
        assert!(!request_passes("x-chat-id", &[]));
    }
}
