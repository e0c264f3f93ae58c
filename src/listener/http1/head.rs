//! A request head as a client sends it: read in one way, or refused (RFC 9112 sections 2 to 6).
//!
//! Invariants: each line ends with CRLF and nothing else does; a body has one framing, told once; names are in lower case from
//! here on. Which Host, target and sizes are served is not judged here.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::Method;
use httparse::{ParserConfig, Status};
use smallvec::SmallVec;

use crate::gateway::answer::Framing;
use crate::gateway::span::{Field, Span, digits};
use crate::proxy::{HeadView, LINES_MAX, Line, Lines};
use crate::telemetry::reason::Reason;

/// Largest request head, in bytes: 96 lines of which few are long.
pub(super) const HEAD_MAX_BYTES: usize = u16::MAX as usize;

/// A request head.
#[derive(Debug)]
pub(super) struct RequestHead {
    bytes: Vec<u8>,
    method: Span,
    authority: Option<Span>,
    path: Option<Span>,
    fields: SmallVec<[Field; 20]>,
    framing: Framing,
    is_last: bool,
    expects_continue: bool,
    is_http_11: bool,
}

/// What has been received of a head.
#[derive(Debug, Default)]
pub(super) struct Unread {
    bytes: Vec<u8>,
    // Up to here every line has been looked at.
    scanned: usize,
    // The one empty line that may stand before a request has been.
    overlooked: bool,
}

impl Unread {
    /// Whether nothing has been received.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes have been received.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes so many bytes out, if they are there.
    pub(super) fn split(&mut self, length: usize) -> Option<Bytes> {
        if self.bytes.len() < length {
            return None;
        }
        let rest = self.bytes.split_off(length);
        Some(Bytes::from(std::mem::replace(&mut self.bytes, rest)))
    }

    /// Adds what has been received.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes out what has been received, for whoever reads a body.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.scanned = 0;
        std::mem::take(&mut self.bytes)
    }

    /// Takes a head out, once it is whole.
    ///
    /// # Errors
    /// Why it is refused. What follows it cannot be told from it.
    pub(super) fn head(&mut self) -> Result<Option<RequestHead>, Reason> {
        // One empty line before a request is overlooked (RFC 9112 section 2.2).
        if !self.overlooked && self.scanned == 0 && self.bytes.starts_with(b"\r\n") {
            self.bytes.drain(..2);
            self.overlooked = true;
        }
        match self.bytes.first() {
            None => return Ok(None),
            Some(b'\r') if self.bytes.len() == 1 && !self.overlooked => return Ok(None),
            // Nobody has to wait to learn that this is no request: another protocol's first byte.
            Some(byte) if !byte.is_ascii_alphabetic() => return Err(Reason::BadRequest),
            Some(_) => {}
        }
        let Some(length) = self.end()? else {
            return match self.bytes.len() > HEAD_MAX_BYTES {
                true if self.bytes.contains(&b'\n') => Err(Reason::HeadTooLarge),
                true => Err(Reason::TargetTooLong),
                false => Ok(None),
            };
        };
        if length > HEAD_MAX_BYTES {
            return Err(Reason::HeadTooLarge);
        }
        let rest = self.bytes.split_off(length);
        let bytes = std::mem::replace(&mut self.bytes, rest);
        (self.scanned, self.overlooked) = (0, false);
        RequestHead::parse(bytes).map(Some)
    }

    /// The head's length, if its end is there. A line that ends with LF alone is one that others read differently.
    fn end(&mut self) -> Result<Option<usize>, Reason> {
        for at in memchr::memchr_iter(b'\n', &self.bytes[self.scanned..]) {
            let line = &self.bytes[..self.scanned + at];
            match line {
                [.., b'\r', b'\n', b'\r'] => return Ok(Some(line.len() + 1)),
                [.., b'\r'] => {}
                _ => return Err(Reason::BadRequest),
            }
        }
        self.scanned = self.bytes.len();
        Ok(None)
    }
}

impl RequestHead {
    fn parse(mut bytes: Vec<u8>) -> Result<Self, Reason> {
        let mut space = [MaybeUninit::uninit(); LINES_MAX];
        let mut request = httparse::Request::new(&mut []);
        let parsed = ParserConfig::default().parse_request_with_uninit_headers(&mut request, &bytes, &mut space);
        let whole = match parsed {
            Ok(Status::Complete(length)) => length == bytes.len(),
            Ok(Status::Partial) => false,
            Err(httparse::Error::TooManyHeaders) => return Err(Reason::HeadTooLarge),
            Err(_) => return Err(Reason::BadRequest),
        };
        let (Some(method), Some(target), true) = (request.method, request.path, whole) else {
            return Err(Reason::BadRequest);
        };
        let (authority, path) = split(target);
        let span = |part: &str| Span::of(part.as_bytes(), &bytes);
        let (method, authority, path) = (span(method), authority.map(span), path.map(span));
        let is_http_11 = request.version == Some(1);
        let fields: SmallVec<[Field; 20]> = request
            .headers
            .iter()
            .map(|line| Field { name: span(line.name), value: Span::of(line.value, &bytes) })
            .collect();
        for field in &fields {
            bytes[field.name.range()].make_ascii_lowercase();
        }
        let (mut declared, mut chunked, mut is_last, mut expects_continue) = (None, false, false, false);
        for field in &fields {
            let value = &bytes[field.value.range()];
            match &bytes[field.name.range()] {
                // RFC 9112 section 6.3: a second length, a length beside a coding and a coding that is not exactly `chunked` are how
                // requests are smuggled.
                b"content-length" => {
                    let length = digits(value).ok_or(Reason::BadRequest)?;
                    if declared.replace(length).is_some() {
                        return Err(Reason::BadRequest);
                    }
                }
                b"transfer-encoding" => {
                    if chunked || !is_http_11 || !value.eq_ignore_ascii_case(b"chunked") {
                        return Err(Reason::BadRequest);
                    }
                    chunked = true;
                }
                b"connection" => {
                    let mut options = value.split(|&byte| byte == b',');
                    is_last |= options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"));
                }
                b"expect" => expects_continue |= value.eq_ignore_ascii_case(b"100-continue"),
                _ => {}
            }
        }
        let framing = match (declared, chunked) {
            (Some(_), true) => return Err(Reason::BadRequest),
            (None, true) => Framing::Chunked,
            (Some(0) | None, false) => Framing::Empty,
            (Some(length), false) => Framing::Length(length),
        };
        is_last |= !is_http_11;
        Ok(RequestHead { bytes, method, authority, path, fields, framing, is_last, expects_continue, is_http_11 })
    }

    /// How its body ends; never with the connection.
    pub(super) fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether no request follows it on its connection.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Whether its client sends the body only when it is told to (RFC 9110 section 10.1.1).
    pub(super) fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// Whether the answer has a head alone.
    pub(super) fn is_for_head(&self) -> bool {
        self.part(self.method) == "HEAD"
    }

    /// A part that the parser has shown to be text.
    fn part(&self, span: Span) -> &str {
        std::str::from_utf8(&self.bytes[span.range()]).unwrap_or_default()
    }
}

/// Authority and path with query of a target. One in another form than origin-form or absolute-form is left whole, to be refused
/// as a path.
fn split(target: &str) -> (Option<&str>, Option<&str>) {
    if target.starts_with('/') {
        return (None, Some(target));
    }
    match target.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") => {
            let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let path = &rest[at..];
            (Some(&rest[..at]), (!path.is_empty()).then_some(path))
        }
        _ => (None, Some(target)),
    }
}

impl crate::proxy::Head for RequestHead {
    fn method(&self) -> Method {
        // A token, which is all that a method has to be.
        Method::from_bytes(&self.bytes[self.method.range()]).unwrap_or_default()
    }

    fn lines(&self) -> Lines<'_> {
        self.fields
            .iter()
            .map(|field| Line { name: self.part(field.name), value: &self.bytes[field.value.range()] })
            .collect()
    }

    fn view<'a>(&'a self, lines: &'a [Line<'a>]) -> HeadView<'a> {
        HeadView {
            method: self.part(self.method),
            authority: self.authority.map(|authority| self.part(authority)),
            // RFC 9112 section 3.2.2: an absolute form without a path means the root.
            path_and_query: self.path.map_or("/", |path| self.part(path)),
            lines,
        }
    }

    fn check(&self, _secure: bool) -> Result<(), Reason> {
        if self.is_http_11 { Ok(()) } else { Err(Reason::HttpVersion) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::Head;

    fn read(bytes: &[u8]) -> Result<Option<RequestHead>, Reason> {
        let mut unread = Unread::default();
        unread.push(bytes);
        unread.head()
    }

    fn head(lines: &str) -> Result<RequestHead, Reason> {
        Ok(read(format!("POST /v1/x HTTP/1.1\r\n{lines}\r\n").as_bytes())?.expect("a whole head"))
    }

    #[test]
    fn a_head_is_found_however_it_is_cut_and_what_follows_stays() {
        let text = b"\r\nGET /v1/models?a=b HTTP/1.1\r\nHost: h\r\nX-Mixed-Case:  A b \r\n\r\nGET /next";
        for piece in 1..text.len() {
            let (mut unread, mut found) = (Unread::default(), None);
            for part in text.chunks(piece) {
                unread.push(part);
                if found.is_none() {
                    found = unread.head().unwrap();
                }
            }
            let found = found.unwrap();
            let lines = found.lines();
            let view = found.view(&lines);
            assert_eq!((view.method, view.authority, view.path_and_query), ("GET", None, "/v1/models?a=b"));
            assert_eq!((lines[1].name, lines[1].value), ("x-mixed-case", &b"A b"[..]));
            assert_eq!(unread.take(), b"GET /next");
        }
    }

    #[test]
    fn a_body_is_framed_in_one_way_or_the_head_is_refused() {
        for (lines, framing) in [
            ("", Framing::Empty),
            ("Content-Length: 0\r\n", Framing::Empty),
            ("content-LENGTH:5\r\n", Framing::Length(5)),
            ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
        ] {
            assert_eq!(head(lines).unwrap().framing(), framing, "{lines:?}");
        }
        for lines in [
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 5 5\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding:\r\n",
        ] {
            assert_eq!(head(lines).unwrap_err(), Reason::BadRequest, "{lines:?}");
        }
    }

    #[test]
    fn there_is_one_spelling_of_a_line() {
        for lines in [
            "A: 1\n",
            "A: 1\n\r\n",
            "A : 1\r\n",
            " A: 1\r\n",
            "A: 1\r\n 2\r\n",
            "A: 1\r\n\t2\r\n",
            "A\r\n",
            ": 1\r\n",
            "A: \0\r\n",
            "A: 1\r2\r\n",
            "A: \u{7f}\r\n",
            "A\u{e9}: 1\r\n",
        ] {
            assert!(head(lines).is_err(), "{lines:?}");
        }
        for line in [
            "GET  / HTTP/1.1",
            "GET /  HTTP/1.1",
            "GET\t/ HTTP/1.1",
            " GET / HTTP/1.1",
            "GET / HTTP/1.1 ",
            "GET / HTTP/2.0",
            "GET / http/1.1",
            "GET / HTTP/1.10",
            "GET /",
            "GET",
            "G(T / HTTP/1.1",
        ] {
            assert!(read(format!("{line}\r\nHost: h\r\n\r\n").as_bytes()).is_err(), "{line:?}");
        }
        for first in ["\r\n\r\nGET / HTTP/1.1\r\n\r\n", "\nGET / HTTP/1.1\r\n\r\n", "\x16\x03\x01", "\0"] {
            assert!(read(first.as_bytes()).is_err(), "{first:?}");
        }
    }

    #[test]
    fn one_empty_line_is_overlooked_and_no_second_however_they_come() {
        for piece in 1..5 {
            let mut unread = Unread::default();
            let read = b"\r\n\r\nGET / HTTP/1.1\r\n\r\n".chunks(piece).try_for_each(|part| {
                unread.push(part);
                unread.head().map(|_| ())
            });
            assert_eq!(read, Err(Reason::BadRequest), "{piece}");
        }
    }

    #[test]
    fn older_and_absolute_forms_are_told_apart() {
        let old = read(b"GET / HTTP/1.0\r\nHost: h\r\n\r\n").unwrap().unwrap();
        assert_eq!((old.check(false), old.is_last()), (Err(Reason::HttpVersion), true));
        for (target, authority, path) in [
            ("http://h:1/v1?a", Some("h:1"), "/v1?a"),
            ("HTTPS://h", Some("h"), "/"),
            ("http://h?a", Some("h"), "?a"),
            ("http://u@h/", Some("u@h"), "/"),
            ("ftp://h/", None, "ftp://h/"),
            ("*", None, "*"),
            ("h:443", None, "h:443"),
        ] {
            let head = read(format!("GET {target} HTTP/1.1\r\n\r\n").as_bytes()).unwrap().unwrap();
            let lines = head.lines();
            let view = head.view(&lines);
            assert_eq!((view.authority, view.path_and_query), (authority, path), "{target}");
        }
    }

    #[test]
    fn what_the_connection_is_told_is_heard() {
        assert!(head("Connection: Keep-Alive , CLOSE\r\n").unwrap().is_last());
        assert!(!head("Connection: keep-alive\r\n").unwrap().is_last());
        assert!(head("Expect: 100-Continue\r\nContent-Length: 1\r\n").unwrap().expects_continue());
    }

    #[test]
    fn a_head_is_bounded() {
        let endless = [b"GET /".as_slice(), &vec![b'x'; HEAD_MAX_BYTES]].concat();
        assert_eq!(read(&endless).unwrap_err(), Reason::TargetTooLong);
        let endless = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &vec![b'x'; HEAD_MAX_BYTES]].concat();
        assert_eq!(read(&endless).unwrap_err(), Reason::HeadTooLarge);
        assert!(head(&"a: 1\r\n".repeat(LINES_MAX)).is_ok());
        assert_eq!(head(&"a: 1\r\n".repeat(LINES_MAX + 1)).unwrap_err(), Reason::HeadTooLarge);
    }
}
