//! Same-origin proof for cookies, which browsers send by themselves, also for another site's page (CSRF).
//!
//! A bearer token is put on a request by whoever holds it and needs no such proof.

use super::head::HeadView;

/// Whether a request with a cookie may be its person's own wish: an Origin, if there is one, is the edge's own, and a request
/// that changes something has one, or the browser's word that it comes from the same origin. Over TLS (`secure`) a page that
/// came without is another origin: whoever sits on the way may have written it.
pub(super) fn is_own(head: &HeadView<'_>, secure: bool) -> bool {
    let host = head.values("host").next().unwrap_or_default();
    let mut origins = head.values("origin");
    let from_own_page = match (origins.next(), origins.next()) {
        (None, _) => head.values("sec-fetch-site").eq([&b"same-origin"[..]]),
        (Some(origin), None) if authority(origin, secure).is_some_and(|own| own.eq_ignore_ascii_case(host)) => true,
        _ => return false,
    };
    from_own_page || matches!(head.method, "GET" | "HEAD")
}

/// Host and port of a serialized origin; none of `null`.
fn authority(origin: &[u8], secure: bool) -> Option<&[u8]> {
    let plain = || if secure { None } else { origin.strip_prefix(b"http://") };
    origin.strip_prefix(b"https://").or_else(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::head::Line;

    fn own(method: &str, lines: &[(&str, &str)]) -> bool {
        owned(method, lines, false)
    }

    fn owned(method: &str, lines: &[(&str, &str)], secure: bool) -> bool {
        let mut all = vec![Line { name: "host", value: b"edge.example:8080" }];
        all.extend(lines.iter().map(|(name, value)| Line { name, value: value.as_bytes() }));
        is_own(&HeadView { method, authority: None, path_and_query: "/", lines: &all }, secure)
    }

    #[test]
    fn another_sites_page_cannot_act_by_cookie() {
        assert!(own("GET", &[]));
        assert!(own("POST", &[("origin", "http://Edge.example:8080")]));
        assert!(own("POST", &[("sec-fetch-site", "same-origin")]));
        for lines in [
            &[][..],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "null")],
            &[("origin", "http://evil.example")],
            &[("origin", "http://edge.example:8081"), ("sec-fetch-site", "same-origin")],
            &[("origin", "http://edge.example:8080"), ("origin", "http://evil.example")],
        ] {
            assert!(!own("POST", lines), "{lines:?}");
        }
        assert!(!own("GET", &[("origin", "http://evil.example")]));
    }

    #[test]
    fn over_tls_a_page_without_is_another_origin() {
        let of = |origin| owned("POST", &[("origin", origin)], true);
        assert!(of("https://edge.example:8080"));
        assert!(!of("http://edge.example:8080"));
        assert!(own("POST", &[("origin", "https://edge.example:8080")]));
    }
}
