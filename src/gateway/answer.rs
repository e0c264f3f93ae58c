//! A gateway's response head, and how the body behind it is framed.
//!
//! Invariants: there is one way to read a head, or none: a second length, a length beside a coding, a coding other than `chunked`
//! and a number that is not plain digits are refused (RFC 9112 section 6.3). A head is bounded in bytes and lines. What its fields
//! say otherwise is not judged here.

use std::fmt;
use std::mem::MaybeUninit;

use bytes::Bytes;
use http::StatusCode;
use httparse::{ParserConfig, Status};
use smallvec::SmallVec;

use super::span::{Field, Span, digits};

/// Largest response head, in bytes, and most bytes of interim answers before one.
pub(super) const HEAD_MAX_BYTES: usize = u16::MAX as usize;
/// Most header lines in a response head.
const LINES_MAX: usize = 100;

/// Why a response head cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerError {
    /// Not HTTP/1.
    Syntax(httparse::Error),
    /// Over the bound.
    TooLarge,
    /// The body's length is told twice or in a way that is not understood.
    Framing,
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnswerError::Syntax(error) => write!(f, "the response head is not HTTP/1: {error}"),
            AnswerError::TooLarge => f.write_str("the response head is too large"),
            AnswerError::Framing => f.write_str("the response does not tell its length in one clear way"),
        }
    }
}

impl std::error::Error for AnswerError {}

/// How a response body ends (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    Empty,
    /// After so many bytes.
    Length(u64),
    /// With its last chunk.
    Chunked,
    /// With the connection: a whole body cannot be told from a broken one.
    Close,
}

/// A response head.
#[derive(Debug)]
pub struct Answer {
    status: StatusCode,
    framing: Framing,
    persistent: bool,
    head: Bytes,
    fields: SmallVec<[Field; 12]>,
}

/// What the first bytes of an answer are.
#[derive(Debug)]
pub(super) enum Parsed {
    /// Not a whole head yet.
    Partial,
    /// An interim answer of so many bytes, which nobody asked for.
    Interim(usize),
    /// The answer's head, and how many bytes it took.
    Head(Box<Answer>, usize),
}

impl Answer {
    /// Reads a head. `to_head`: it answers a HEAD request.
    pub(super) fn parse(bytes: &[u8], to_head: bool) -> Result<Parsed, AnswerError> {
        // The parser would skip empty lines; they are no part of an answer (RFC 9112 section 2.2 speaks of requests).
        if matches!(bytes.first(), Some(b'\r' | b'\n')) {
            return Err(AnswerError::Syntax(httparse::Error::Version));
        }
        let mut lines = [MaybeUninit::uninit(); LINES_MAX];
        let mut response = httparse::Response::new(&mut []);
        let parsed = ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut lines);
        let parsed = parsed.map_err(|error| match error {
            httparse::Error::TooManyHeaders => AnswerError::TooLarge,
            error => AnswerError::Syntax(error),
        });
        let length = match parsed? {
            Status::Partial if bytes.len() > HEAD_MAX_BYTES => return Err(AnswerError::TooLarge),
            Status::Partial => return Ok(Parsed::Partial),
            Status::Complete(length) if length > HEAD_MAX_BYTES => return Err(AnswerError::TooLarge),
            Status::Complete(length) => length,
        };
        let code = response.code.unwrap_or_default();
        let status = StatusCode::from_u16(code).map_err(|_| AnswerError::Syntax(httparse::Error::Status))?;
        if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Parsed::Interim(length));
        }
        let bytes = &bytes[..length];
        let is_http_11 = response.version == Some(1);
        let (mut persistent, mut declared, mut chunked) = (is_http_11, None, false);
        let mut fields = SmallVec::new();
        for line in response.headers.iter() {
            match line.name.len() {
                14 if line.name.eq_ignore_ascii_case("content-length")
                    && declared.replace(digits(line.value).ok_or(AnswerError::Framing)?).is_some() =>
                {
                    return Err(AnswerError::Framing);
                }
                17 if line.name.eq_ignore_ascii_case("transfer-encoding") => {
                    if chunked || !is_http_11 || !line.value.eq_ignore_ascii_case(b"chunked") {
                        return Err(AnswerError::Framing);
                    }
                    chunked = true;
                }
                10 if line.name.eq_ignore_ascii_case("connection") => {
                    let mut options = line.value.split(|&byte| byte == b',');
                    persistent &= !options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"));
                }
                _ => {}
            }
            let (name, value) = (Span::of(line.name.as_bytes(), bytes), Span::of(line.value, bytes));
            fields.push(Field { name, value });
        }
        let bodiless =
            to_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) || status.is_informational();
        let framing = match (declared, chunked) {
            (Some(_), true) => return Err(AnswerError::Framing),
            _ if bodiless => Framing::Empty,
            (Some(length), false) => Framing::Length(length),
            (None, true) => Framing::Chunked,
            (None, false) => Framing::Close,
        };
        // What may still come on such a connection would be read as the next request's answer: the rest of a body without an end
        // of its own, another protocol, a body where none may be (RFC 9110 section 8.6).
        let unclear = status == StatusCode::SWITCHING_PROTOCOLS
            || (status == StatusCode::NO_CONTENT && (chunked || declared.is_some_and(|length| length > 0)));
        persistent &= framing != Framing::Close && !unclear;
        let answer = Answer { status, framing, persistent, head: Bytes::copy_from_slice(bytes), fields };
        Ok(Parsed::Head(Box::new(answer), length))
    }

    /// A head that is whole and right, for tests.
    #[cfg(test)]
    pub fn of(bytes: &[u8]) -> Box<Answer> {
        match Answer::parse(bytes, false) {
            Ok(Parsed::Head(answer, _)) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// How its body ends.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether the connection can carry another request after it.
    pub(super) fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// The header lines: names as the gateway spells them, values without outer white space.
    pub fn lines(&self) -> impl Iterator<Item = (&[u8], Value<'_>)> {
        self.fields.iter().map(|field| (&self.head[field.name.range()], Value { head: &self.head, span: field.value }))
    }

    /// The first value under a name in lower case.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.lines().find(|(given, _)| given.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value.bytes())
    }
}

/// A field's value.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    head: &'a Bytes,
    span: Span,
}

impl<'a> Value<'a> {
    /// Its bytes.
    pub fn bytes(self) -> &'a [u8] {
        &self.head[self.span.range()]
    }

    /// Its bytes as a share of the head, so that they are not copied again.
    pub fn shared(self) -> Bytes {
        self.head.slice(self.span.range())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &str) -> Result<Box<Answer>, AnswerError> {
        let text = format!("HTTP/1.1 200 OK\r\n{lines}\r\nrest");
        match Answer::parse(text.as_bytes(), false)? {
            Parsed::Head(answer, length) => {
                assert_eq!(&text[length..], "rest");
                Ok(answer)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_body_is_framed_in_one_way_or_refused() {
        for (lines, framing) in [
            ("Content-Length: 5\r\n", Framing::Length(5)),
            ("content-length:0\r\n", Framing::Length(0)),
            ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
            ("X-Other: 1\r\n", Framing::Close),
        ] {
            assert_eq!(head(lines).unwrap().framing(), framing, "{lines}");
        }
        for lines in [
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 5 5\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: xchunked\r\n",
        ] {
            assert_eq!(head(lines).unwrap_err(), AnswerError::Framing, "{lines}");
        }
    }

    #[test]
    fn heads_that_are_not_http_are_refused() {
        for text in [
            "HTTQ/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA b: c\r\n\r\n",
            "hello\r\n\r\n",
            "\r\nHTTP/1.1 200 OK\r\n\r\n",
            "\nHTTP/1.1 200 OK\r\n\r\n",
        ] {
            assert!(matches!(Answer::parse(text.as_bytes(), false), Err(AnswerError::Syntax(_))), "{text:?}");
        }
        for lines in [" folded: 1\r\n", "a: 1\r\n 2\r\n", "a : 1\r\n", "a: \0\r\n"] {
            assert!(head(lines).is_err(), "{lines:?}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(HEAD_MAX_BYTES));
        assert_eq!(Answer::parse(endless.as_bytes(), false).unwrap_err(), AnswerError::TooLarge);
        assert!(head(&"a: 1\r\n".repeat(LINES_MAX)).is_ok());
        assert_eq!(head(&"a: 1\r\n".repeat(LINES_MAX + 1)).unwrap_err(), AnswerError::TooLarge);
    }

    #[test]
    fn interim_and_partial_heads_are_told_from_whole_ones() {
        assert!(matches!(Answer::parse(b"HTTP/1.1 100 Continue\r\n\r\nHTTP", false), Ok(Parsed::Interim(25))));
        assert!(matches!(Answer::parse(b"HTTP/1.1 200 OK\r\nA: b\r\n", false), Ok(Parsed::Partial)));
        assert!(matches!(Answer::parse(b"", false), Ok(Parsed::Partial)));
        for text in ["HTTP/1.1 101 Switching\r\n\r\n", "HTTP/1.1 204 None\r\nContent-Length: 4\r\n\r\n"] {
            let Ok(Parsed::Head(answer, _)) = Answer::parse(text.as_bytes(), false) else { panic!("{text:?}") };
            assert_eq!(answer.framing(), Framing::Empty);
        }
    }

    #[test]
    fn a_connection_is_kept_only_where_both_can() {
        assert!(head("Content-Length: 0\r\n").unwrap().is_persistent());
        assert!(!head("Content-Length: 0\r\nConnection: foo, Close\r\n").unwrap().is_persistent());
        let Ok(Parsed::Head(answer, _)) = Answer::parse(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", false) else {
            panic!("a head of HTTP/1.0")
        };
        assert!(!answer.is_persistent());
    }

    #[test]
    fn a_connection_on_which_more_may_come_is_not_kept() {
        for text in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
            "HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 204 None\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(!Answer::of(text.as_bytes()).is_persistent(), "{text:?}");
        }
        for text in ["HTTP/1.1 204 None\r\n\r\n", "HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n"] {
            assert!(Answer::of(text.as_bytes()).is_persistent(), "{text:?}");
        }
    }

    #[test]
    fn fields_are_found_by_name_and_shared() {
        let answer = head("X-Hermes-Run: r1\r\ncontent-type:  text/plain \r\nX-Empty:\r\n").unwrap();
        assert_eq!(answer.value("content-type"), Some(&b"text/plain"[..]));
        assert_eq!(answer.value("x-empty"), Some(&b""[..]));
        assert_eq!(answer.value("x-none"), None);
        let (name, value) = answer.lines().next().unwrap();
        assert_eq!((name, value.shared()), (&b"X-Hermes-Run"[..], Bytes::from_static(b"r1")));
    }
}
