//! The request target: accepted only in the one canonical spelling, and split into profile, path and query.
//!
//! The gateway decodes and strips the profile segment, so `/p/bot%2Dalice/` would reach bot-alice there. That is why no
//! spelling but the plain one passes, and why the segment is compared and then thrown away, never forwarded.

use super::refusal::Refusal;
use crate::telemetry::reason::Reason;

/// Longest path and query, in bytes, before the bot's prefix is put in front.
const TARGET_MAX_BYTES: usize = 8190 - "/p/".len() - 64;

/// A canonical target. Every part is a slice of what the client sent.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    raw: &'a str,
    profile: Option<&'a str>,
    path: &'a str,
    below: &'a str,
}

impl<'a> Target<'a> {
    /// Checks and splits a path and query.
    ///
    /// # Errors
    /// 400 unless it is canonical, 414 when it is too long.
    pub fn parse(raw: &'a str) -> Result<Self, Refusal> {
        if raw.len() > TARGET_MAX_BYTES {
            return Err(Refusal::of(Reason::TargetTooLong));
        }
        let (full, query) = match raw.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (raw, None),
        };
        let query_is_plain = query.is_none_or(|query| query.bytes().all(|b| b.is_ascii_graphic() && b != b'#'));
        if !full.starts_with('/') || !query_is_plain || !is_canonical(full.as_bytes()) {
            return Err(Refusal::of(Reason::BadTarget));
        }
        let (profile, start) = match full.strip_prefix("/p/") {
            Some(rest) => {
                let profile = rest.split('/').next().unwrap_or_default();
                (Some(profile), "/p/".len() + profile.len())
            }
            None => (None, 0),
        };
        Ok(Target { raw, profile, path: &full[start..], below: &raw[start..] })
    }

    /// Path and query, as received.
    pub fn raw(&self) -> &'a str {
        self.raw
    }

    /// The segment after `/p/`, if the path has that form.
    pub fn profile(&self) -> Option<&'a str> {
        self.profile
    }

    /// The path below the profile: `/v1/…`, or empty.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// The path below the profile, and the query, which is forwarded byte for byte and has no meaning here.
    pub fn below(&self) -> &'a str {
        self.below
    }
}

/// No empty, `.` or `..` segment, no escape, no parameter, and nothing that is in no path (RFC 3986 section 3.3).
fn is_canonical(path: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,=:@".contains(byte);
    if !path.iter().all(is_plain) {
        return false;
    }
    let segments = || path[1..].split(|&b| b == b'/');
    let last = segments().count() - 1;
    segments().enumerate().all(|(at, segment)| match segment {
        b"" => at == last,
        b"." | b".." => false,
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_targets_are_split() {
        let target = Target::parse("/p/bot-alice/v1/models?a=%20b").unwrap();
        assert_eq!(
            (target.profile(), target.path(), target.below()),
            (Some("bot-alice"), "/v1/models", "/v1/models?a=%20b")
        );
        let target = Target::parse("/v1/models").unwrap();
        assert_eq!((target.profile(), target.path(), target.below()), (None, "/v1/models", "/v1/models"));
        let target = Target::parse("/p/bot-alice?x").unwrap();
        assert_eq!((target.profile(), target.path(), target.below()), (Some("bot-alice"), "", "?x"));
        assert_eq!(Target::parse("/p/").unwrap().profile(), Some(""));
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        for bad in [
            "",
            "*",
            "v1/models",
            "//v1/models",
            "/v1//models",
            "/v1/./models",
            "/v1/../models",
            "/v1/..",
            "/.",
            "/p/bot%2Dalice/v1",
            "/v1/models%00",
            "/v1\\models",
            "/v1;x/models",
            "/v1/mo dels",
            "/v1/m\u{e9}",
            "/v1/models#x",
            "/v1/models<x>",
            "/v1/{models}",
            "/v1/mod|els",
            "/v1/\"models\"",
            "/v1/models?a#b",
            "/v1?\u{e9}",
            "/p//v1/models",
            "/p/bot-alice//v1/models",
            "/v1/\t",
        ] {
            assert!(Target::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Target::parse(&format!("/{}", "x".repeat(8190))).is_err());
    }
}
