//! The head view: what the stages see of a request, whichever engine read it; and the checks that come before any other.
//!
//! Invariants: a [`Screened`] head has one allowed Host, a canonical target and bounded lines. Nothing here depends on a
//! credential, and nothing is normalised: what is not already canonical is refused.

use super::refusal::Refusal;
use super::target::Target;
use crate::config::Host;
use crate::telemetry::reason::Reason;

/// Most header lines in a request.
pub const LINES_MAX: usize = 96;
/// Longest header value, in bytes: the gateway's own limit.
pub const VALUE_MAX_BYTES: usize = 8190;

/// One header line: its name in lower case and its value, as received.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// Lower-case name.
    pub name: &'a str,
    /// Raw value.
    pub value: &'a [u8],
}

/// A request's head, borrowed from the engine that read it.
#[derive(Debug, Clone, Copy)]
pub struct HeadView<'a> {
    /// Method, as received.
    pub method: &'a str,
    /// Authority of an absolute-form target.
    pub authority: Option<&'a str>,
    /// Path and query, as received.
    pub path_and_query: &'a str,
    /// Header lines in order.
    pub lines: &'a [Line<'a>],
}

impl<'a> HeadView<'a> {
    /// Values of all lines with this lower-case name.
    pub fn values(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
        self.lines.iter().filter(move |line| line.name == name).map(|line| line.value)
    }

    /// Whether a line with this lower-case name is there.
    pub fn has(&self, name: &'static str) -> bool {
        self.values(name).next().is_some()
    }
}

/// The authorities that requests may name, each spelling that a client may use for them.
#[derive(Debug, Clone)]
pub struct AllowedHosts(Vec<Box<str>>);

impl AllowedHosts {
    /// Accepts these authorities; those with a default port also without it.
    pub fn new<'h>(hosts: impl IntoIterator<Item = &'h Host>) -> Self {
        let mut spellings = Vec::new();
        for host in hosts {
            let full = host.as_str();
            spellings.push(full.into());
            for default in [":80", ":443"] {
                spellings.extend(full.strip_suffix(default).map(Into::into));
            }
        }
        AllowedHosts(spellings)
    }

    fn allows(&self, authority: &[u8]) -> bool {
        self.0.iter().any(|spelling| spelling.as_bytes().eq_ignore_ascii_case(authority))
    }
}

/// A head that has passed the first decision of the pipeline.
#[derive(Debug, Clone, Copy)]
pub struct Screened<'a> {
    head: HeadView<'a>,
    target: Target<'a>,
}

impl<'a> Screened<'a> {
    /// Checks framing, Host, target and sizes (RFC 9112 sections 2 and 3.2; RFC 9110 section 7.2).
    ///
    /// # Errors
    /// A [`Refusal`] of 400, 405, 414, 421 or 431.
    pub fn new(head: HeadView<'a>, hosts: &AllowedHosts) -> Result<Self, Refusal> {
        if head.lines.len() > LINES_MAX || head.lines.iter().any(|line| line.value.len() > VALUE_MAX_BYTES) {
            return Err(Refusal::of(Reason::HeadTooLarge));
        }
        if matches!(head.method, "CONNECT" | "TRACE") {
            return Err(Refusal::of(Reason::ForbiddenMethod));
        }
        let mut named = head.values("host");
        let (Some(host), None) = (named.next(), named.next()) else {
            return Err(Refusal::of(Reason::BadRequest));
        };
        if head.authority.is_some_and(|authority| !authority.as_bytes().eq_ignore_ascii_case(host)) {
            return Err(Refusal::of(Reason::BadRequest));
        }
        if head.values("content-length").count() > 1 {
            return Err(Refusal::of(Reason::BadRequest));
        }
        // One coding, once: the engine takes any list that ends in chunked, and what is inside it is not taken out here.
        let mut codings = head.values("transfer-encoding");
        if codings.next().is_some_and(|coding| !coding.eq_ignore_ascii_case(b"chunked")) || codings.next().is_some() {
            return Err(Refusal::of(Reason::BadRequest));
        }
        let target = Target::parse(head.path_and_query)?;
        if !hosts.allows(host) {
            return Err(Refusal::of(Reason::MisdirectedHost));
        }
        Ok(Screened { head, target })
    }

    /// The head.
    pub fn head(&self) -> &HeadView<'a> {
        &self.head
    }

    /// The canonical target.
    pub fn target(&self) -> &Target<'a> {
        &self.target
    }

    /// What later stages need to know of it, without what it borrows.
    pub fn asked(&self) -> Asked {
        Asked { below: self.target.raw().len() - self.target.below().len() }
    }
}

/// What was found in a head that has been screened. It makes sense with that head's own path and query alone.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    below: usize,
}

impl Asked {
    /// The part of this path and query that is below the profile.
    pub fn below(self, path_and_query: &str) -> &str {
        path_and_query.get(self.below..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(authority: Option<&str>, target: &str, lines: &[(&str, &str)]) -> Result<(), Reason> {
        let lines: Vec<_> = lines.iter().map(|(name, value)| Line { name, value: value.as_bytes() }).collect();
        let head = HeadView { method: "GET", authority, path_and_query: target, lines: &lines };
        let hosts = AllowedHosts::new(&[Host::parse("edge.example", 80).unwrap()]);
        Screened::new(head, &hosts).map(|_| ()).map_err(|refusal| refusal.reason())
    }

    #[test]
    fn the_host_must_be_one_of_ours_and_only_one() {
        let path = "/v1/models";
        assert_eq!(screen(None, path, &[("host", "EDGE.example")]), Ok(()));
        assert_eq!(screen(None, path, &[("host", "edge.example:80")]), Ok(()));
        assert_eq!(screen(None, path, &[]), Err(Reason::BadRequest));
        assert_eq!(screen(None, path, &[("host", "edge.example"), ("host", "edge.example")]), Err(Reason::BadRequest));
        for bad in ["", "evil.example", "edge.example:81", "edge.example.", "edge.example, evil", "u@edge.example"] {
            assert_eq!(screen(None, path, &[("host", bad)]), Err(Reason::MisdirectedHost), "{bad}");
        }
        assert_eq!(screen(Some("edge.example"), path, &[("host", "edge.example")]), Ok(()));
        assert_eq!(screen(Some("evil.example"), path, &[("host", "edge.example")]), Err(Reason::BadRequest));
    }

    #[test]
    fn sizes_are_bounded() {
        let long = "x".repeat(VALUE_MAX_BYTES + 1);
        assert_eq!(screen(None, "/", &[("host", "edge.example"), ("a", &long)]), Err(Reason::HeadTooLarge));
        let many = vec![("host", "edge.example"); LINES_MAX + 1];
        assert_eq!(screen(None, "/", &many), Err(Reason::HeadTooLarge));
    }
}
