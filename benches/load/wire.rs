//! HTTP/1.1 as far as both ends of the bench need it.

use httparse::{EMPTY_HEADER, Header, Status};

/// Most header lines in a head.
pub const LINES: usize = 32;

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(usize),
    Chunked,
}

/// What an answer's head says.
#[derive(Debug, Clone, Copy)]
pub struct AnswerHead {
    pub status: u16,
    pub framing: Framing,
    /// Bytes of the head.
    pub length: usize,
}

/// Reads an answer's head; `None` while it is not whole.
///
/// # Errors
/// It is no HTTP.
pub fn answer_head(bytes: &[u8]) -> Result<Option<AnswerHead>, httparse::Error> {
    let mut lines = [EMPTY_HEADER; LINES];
    let mut head = httparse::Response::new(&mut lines);
    Ok(match head.parse(bytes)? {
        Status::Partial => None,
        Status::Complete(length) => {
            Some(AnswerHead { status: head.code.unwrap_or(0), framing: framing(head.headers), length })
        }
    })
}

/// How the body after these header lines ends; without any line about it there is none.
pub fn framing(lines: &[Header<'_>]) -> Framing {
    for line in lines {
        if line.name.eq_ignore_ascii_case("content-length") {
            return Framing::Length(
                std::str::from_utf8(line.value).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0),
            );
        }
        if line.name.eq_ignore_ascii_case("transfer-encoding") {
            return Framing::Chunked;
        }
    }
    Framing::Length(0)
}

/// Bytes of a body at the start of `bytes`, with its framing; `None` while it is not whole.
///
/// # Errors
/// Its chunks are none.
pub fn body_length(bytes: &[u8], framing: Framing) -> Result<Option<usize>, httparse::InvalidChunkSize> {
    if let Framing::Length(length) = framing {
        return Ok((bytes.len() >= length).then_some(length));
    }
    let mut at = 0;
    loop {
        match httparse::parse_chunk_size(&bytes[at..])? {
            Status::Partial => return Ok(None),
            Status::Complete((line, size)) => {
                let end = at + line + usize::try_from(size).unwrap_or(usize::MAX / 2) + 2;
                if end > bytes.len() {
                    return Ok(None);
                }
                if size == 0 {
                    return Ok(Some(end));
                }
                at = end;
            }
        }
    }
}

/// Whether `text` is somewhere in `bytes`.
pub fn holds(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}
