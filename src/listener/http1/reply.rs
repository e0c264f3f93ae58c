//! A response as it is written: its head, and its body in the framing that the head tells.
//!
//! Invariants: a body is as long as its head says, or ends with its last chunk, or the connection is cut; an answer that has no
//! body by its status or its request's method never gets one (RFC 9112 section 6.3).

use std::cell::RefCell;
use std::io::Write;
use std::time::SystemTime;

use http::StatusCode;

use crate::proxy::Reply;

/// How a response body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none.
    Empty,
    /// So many bytes are still to be written.
    Length(u64),
    /// In chunks.
    Chunked,
}

impl Framing {
    /// The framing of a body of this length, if that is known. `to_head`: it answers a HEAD request.
    pub(super) fn of(status: StatusCode, to_head: bool, length: Option<u64>) -> Self {
        let bodiless =
            to_head || status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match length {
            _ if bodiless => Framing::Empty,
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        }
    }

    /// Appends a piece of the body. What is over the length that was told is left out, and the answer is then not whole: false.
    pub(super) fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            _ if piece.is_empty() => true,
            Framing::Empty => false,
            Framing::Length(left) => {
                let fits = usize::try_from(*left).unwrap_or(usize::MAX).min(piece.len());
                *left -= fits as u64;
                out.extend_from_slice(&piece[..fits]);
                fits == piece.len()
            }
            Framing::Chunked => {
                // Writing to a Vec cannot fail.
                let _ = write!(out, "{:x}\r\n", piece.len());
                out.extend_from_slice(piece);
                out.extend_from_slice(b"\r\n");
                true
            }
        }
    }

    /// Appends the body's end; false: it is not as long as its head said.
    pub(super) fn end(self, out: &mut Vec<u8>) -> bool {
        match self {
            Framing::Empty => true,
            Framing::Length(left) => left == 0,
            Framing::Chunked => {
                out.extend_from_slice(b"0\r\n\r\n");
                true
            }
        }
    }
}

/// Appends a response head. `close`: no answer follows it on its connection.
pub(super) fn head(reply: &Reply, framing: Framing, close: bool, out: &mut Vec<u8>) {
    let status = reply.status();
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or("Other").as_bytes());
    out.extend_from_slice(b"\r\n");
    reply.fields(|name, value| {
        for part in [name, b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    });
    match framing {
        Framing::Empty => {}
        Framing::Length(length) => {
            let mut digits = itoa::Buffer::new();
            for part in [b"content-length: ", digits.format(length).as_bytes(), b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    if close {
        out.extend_from_slice(b"connection: close\r\n");
    }
    date(out);
    out.extend_from_slice(b"\r\n");
}

/// Appends the Date line (RFC 9110 section 6.6.1), whose text is made once a second.
fn date(out: &mut Vec<u8>) {
    thread_local! {
        static LINE: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let now = SystemTime::now();
    let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LINE.with_borrow_mut(|(made_at, line)| {
        if *made_at != second || line.is_empty() {
            (*made_at, *line) = (second, format!("date: {}\r\n", httpdate::fmt_http_date(now)));
        }
        out.extend_from_slice(line.as_bytes());
    });
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::proxy::EdgeBody;

    fn written(status: u16, to_head: bool, length: Option<u64>, pieces: &[&str], close: bool) -> (String, bool) {
        let status = StatusCode::from_u16(status).unwrap();
        let mut framing = Framing::of(status, to_head, length);
        let mut out = Vec::new();
        let fields = [("x-a", "1".into())].into_iter().collect();
        head(&Reply::own(status, fields, EdgeBody::whole(Bytes::new())), framing, close, &mut out);
        let whole = pieces.iter().all(|piece| framing.push(piece.as_bytes(), &mut out)) && framing.end(&mut out);
        let text = String::from_utf8(out).unwrap();
        let (before, rest) = text.split_once("date: ").unwrap();
        (format!("{before}|{}", rest.split_once("\r\n").unwrap().1), whole)
    }

    #[test]
    fn a_body_is_framed_as_its_head_says() {
        for (status, to_head, length, pieces, expected) in [
            (200, false, Some(5), &["hel", "lo"][..], "HTTP/1.1 200 OK\r\nx-a: 1\r\ncontent-length: 5\r\n|\r\nhello"),
            (200, false, Some(0), &[], "HTTP/1.1 200 OK\r\nx-a: 1\r\ncontent-length: 0\r\n|\r\n"),
            (
                404,
                false,
                None,
                &["hello, 16 bytes!", "", "x"],
                "HTTP/1.1 404 Not Found\r\nx-a: 1\r\ntransfer-encoding: chunked\r\n|\r\n10\r\nhello, 16 bytes!\r\n1\r\nx\r\n0\r\n\r\n",
            ),
            (204, false, None, &[], "HTTP/1.1 204 No Content\r\nx-a: 1\r\n|\r\n"),
            (200, true, None, &[], "HTTP/1.1 200 OK\r\nx-a: 1\r\n|\r\n"),
            (599, false, Some(0), &[], "HTTP/1.1 599 Other\r\nx-a: 1\r\ncontent-length: 0\r\n|\r\n"),
        ] {
            assert_eq!(written(status, to_head, length, pieces, false), (expected.into(), true));
        }
        assert!(written(200, false, Some(0), &[], true).0.contains("connection: close\r\n"));
    }

    #[test]
    fn a_body_of_another_length_is_not_whole() {
        for (status, length, pieces) in
            [(200, Some(5), &["hell"][..]), (200, Some(5), &["hello!"]), (204, None, &["x"]), (200, Some(0), &["x"])]
        {
            assert!(!written(status, false, length, pieces, false).1, "{pieces:?}");
        }
    }
}
