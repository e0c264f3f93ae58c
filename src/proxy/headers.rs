//! Allow-lists of header fields, both ways.
//!
//! Invariants: what is not listed does not pass. Neither list holds a credential, a cookie, a hop-by-hop or a forwarding
//! field, so that neither side can speak for the edge.

use super::head::HeadView;
use crate::config::HeaderText;

/// Whether a request header field passes, by its lower-case name. Content-Length does not: the upstream engine frames the body
/// anew.
pub fn request_passes(name: &str, extra: &[HeaderText]) -> bool {
    // A match, which is compiled to one jump by length, and not a list to be searched for every line.
    matches!(
        name,
        "accept"
            | "accept-language"
            | "cache-control"
            | "content-type"
            | "idempotency-key"
            | "last-event-id"
            | "traceparent"
            | "tracestate"
            | "user-agent"
            | "x-hermes-session-id"
            | "x-hermes-session-key"
    ) || name.starts_with("x-stainless-")
        || extra.iter().any(|extra| extra.as_str() == name)
}

/// Whether the request's Connection fields name this field as hop-by-hop (RFC 9110 section 7.6.1).
pub fn is_nominated(head: &HeadView<'_>, name: &str) -> bool {
    connection_options(head).any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
}

/// Whether the Connection fields may name a field that could pass: most hold but the two words for the connection itself.
pub fn nominates(head: &HeadView<'_>) -> bool {
    connection_options(head).any(|option| !matches!(option, b"keep-alive" | b"close"))
}

fn connection_options<'a>(head: &HeadView<'a>) -> impl Iterator<Item = &'a [u8]> {
    head.values("connection").flat_map(|value| value.split(|&b| b == b',')).map(<[u8]>::trim_ascii)
}

/// Whether a response header field passes, whatever the case of its letters. `artifact`: Content-Disposition does too.
pub fn response_passes(name: &[u8], artifact: bool) -> bool {
    let is = |listed: &[u8]| name.eq_ignore_ascii_case(listed);
    match name.len() {
        11 if is(b"retry-after") => true,
        12 if is(b"content-type") => true,
        13 if is(b"cache-control") => true,
        17 if is(b"x-accel-buffering") => true,
        19 if is(b"content-disposition") => artifact,
        _ => name.get(..9).is_some_and(|start| start.eq_ignore_ascii_case(b"x-hermes-")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::head::Line;

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
            assert!(!response_passes(name.as_bytes(), true), "{name}");
        }
    }

    #[test]
    fn a_connection_field_nominates_what_it_names() {
        let named = |value: &'static str| {
            let lines = [Line { name: "connection", value: value.as_bytes() }];
            let head = HeadView { method: "GET", authority: None, path_and_query: "/", lines: &lines };
            (nominates(&head), is_nominated(&head, "accept"))
        };
        for value in ["", "keep-alive", "close", "close , keep-alive", "accepts"] {
            assert!(!named(value).1, "{value}");
        }
        assert!(!named("close , keep-alive").0);
        for value in ["accept", "keep-alive,Accept", "close, ACCEPT ,x"] {
            assert_eq!(named(value), (true, true), "{value}");
        }
    }

    #[test]
    fn an_operator_can_add_names() {
        let extra = [HeaderText::parse("X-Chat-Id").unwrap()];
        assert!(request_passes("x-chat-id", &extra));
        assert!(!request_passes("x-chat-id", &[]));
    }
}
