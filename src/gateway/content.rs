//! A body as it is taken out of its framing, piece by piece.
//!
//! Invariants: what is not exactly a body of its framing is an error and never passed on as one (RFC 9112 section 7.1); chunk
//! extensions and trailers are bounded and thrown away. It reads no socket.

use std::fmt;

use super::answer::Framing;

/// Most bytes of extensions and trailers in one body.
const THROWN_AWAY_MAX_BYTES: u32 = 16 * 1024;

/// A chunked body is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentError;

impl fmt::Display for ContentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body is not chunked as it says")
    }
}

impl std::error::Error for ContentError {}

/// How much of a body is still to come.
#[derive(Debug)]
pub enum Content {
    /// Nothing.
    Done,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked(Chunked),
}

/// Where in a chunked body the next byte is.
#[derive(Debug)]
pub struct Chunked {
    at: At,
    // What is left of a chunk, or what has been read of its size.
    size: u64,
    thrown_away: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// The size's first digit.
    Size,
    /// A further digit, or what ends the size.
    Digits(u8),
    Extension(Extension),
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The start of a line behind the last chunk.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
}

/// Where in a chunk's extensions (RFC 9112 section 7.1.1) the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    /// White space before a semicolon.
    Before,
    NameStart,
    Name,
    NameEnd,
    ValueStart,
    Value,
    Quoted,
    Escaped,
    QuotedEnd,
}

impl Content {
    /// A body of which nothing has been read.
    pub fn new(framing: Framing) -> Self {
        match framing {
            Framing::Empty | Framing::Close | Framing::Length(0) => Content::Done,
            Framing::Length(length) => Content::Length(length),
            Framing::Chunked => Content::Chunked(Chunked { at: At::Size, size: 0, thrown_away: 0 }),
        }
    }

    /// Whether all of it has been read.
    pub fn is_done(&self) -> bool {
        matches!(self, Content::Done)
    }

    /// Bytes that are still to come, where that is known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Content::Done => Some(0),
            Content::Length(length) => Some(*length),
            Content::Chunked(_) => None,
        }
    }

    /// Appends the body's bytes to `out` and tells how many of the given ones belong to the body: fewer than all only at its end.
    ///
    /// # Errors
    /// [`ContentError`]; nothing more can be read then.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, ContentError> {
        match self {
            Content::Done => Ok(0),
            Content::Length(length) => {
                let taken = bytes.len().min(usize::try_from(*length).unwrap_or(usize::MAX));
                out.extend_from_slice(&bytes[..taken]);
                *length -= taken as u64;
                if *length == 0 {
                    *self = Content::Done;
                }
                Ok(taken)
            }
            Content::Chunked(chunked) => {
                let (taken, done) = chunked.take(bytes, out)?;
                if done {
                    *self = Content::Done;
                }
                Ok(taken)
            }
        }
    }
}

impl Chunked {
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(usize, bool), ContentError> {
        let mut place = 0;
        while let Some(&byte) = bytes.get(place) {
            if self.at == At::Data {
                let rest = &bytes[place..];
                let taken = rest.len().min(usize::try_from(self.size).unwrap_or(usize::MAX));
                out.extend_from_slice(&rest[..taken]);
                self.size -= taken as u64;
                place += taken;
                if self.size == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            place += 1;
            self.at = match (self.at, byte) {
                (At::EndLf, b'\n') => return Ok((place, true)),
                (at, byte) => self.next(at, byte)?,
            };
        }
        Ok((place, false))
    }

    /// Where the byte after a byte of the framing is.
    fn next(&mut self, at: At, byte: u8) -> Result<At, ContentError> {
        Ok(match (at, byte) {
            (At::Size, _) => {
                self.size = digit(byte)?;
                At::Digits(1)
            }
            (At::Digits(_), b'\r') => At::SizeLf,
            (At::Digits(_), b';') => self.throw(At::Extension(Extension::NameStart))?,
            (At::Digits(_), b' ' | b'\t') => self.throw(At::Extension(Extension::Before))?,
            // Sixteen digits are 64 bits.
            (At::Digits(16), _) => return Err(ContentError),
            (At::Digits(count), _) => {
                self.size = self.size << 4 | digit(byte)?;
                At::Digits(count + 1)
            }
            (At::Extension(at), b'\r') if at.may_end() => At::SizeLf,
            (At::Extension(at), _) => self.throw(At::Extension(at.next(byte)?))?,
            (At::SizeLf, b'\n') if self.size == 0 => At::TrailerStart,
            (At::SizeLf, b'\n') => At::Data,
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Size,
            (At::TrailerStart, b'\r') => At::EndLf,
            (At::TrailerName, b':') => self.throw(At::TrailerValue)?,
            (At::TrailerStart | At::TrailerName, _) if is_token(byte) => self.throw(At::TrailerName)?,
            (At::TrailerValue, b'\r') => At::TrailerLf,
            (At::TrailerValue, _) if is_text(byte) => self.throw(At::TrailerValue)?,
            (At::TrailerLf, b'\n') => At::TrailerStart,
            (
                At::SizeLf
                | At::Data
                | At::DataCr
                | At::DataLf
                | At::TrailerStart
                | At::TrailerName
                | At::TrailerValue
                | At::TrailerLf
                | At::EndLf,
                _,
            ) => return Err(ContentError),
        })
    }

    fn throw(&mut self, at: At) -> Result<At, ContentError> {
        self.thrown_away += 1;
        if self.thrown_away > THROWN_AWAY_MAX_BYTES { Err(ContentError) } else { Ok(at) }
    }
}

impl Extension {
    /// Whether the size's line may end here.
    fn may_end(self) -> bool {
        matches!(self, Extension::Name | Extension::Value | Extension::QuotedEnd)
    }

    fn next(self, byte: u8) -> Result<Self, ContentError> {
        use Extension::{Before, Escaped, Name, NameEnd, NameStart, Quoted, QuotedEnd, Value, ValueStart};
        Ok(match (self, byte) {
            (Before | NameStart | NameEnd | ValueStart, b' ' | b'\t') => self,
            (Before | Name | NameEnd | Value | QuotedEnd, b';') => NameStart,
            (Name | NameEnd, b'=') => ValueStart,
            (Name, b' ' | b'\t') => NameEnd,
            (Value | QuotedEnd, b' ' | b'\t') => Before,
            (ValueStart, b'"') => Quoted,
            (Quoted, b'"') => QuotedEnd,
            (Quoted, b'\\') => Escaped,
            (Quoted | Escaped, _) if is_text(byte) => Quoted,
            (NameStart | Name, _) if is_token(byte) => Name,
            (ValueStart | Value, _) if is_token(byte) => Value,
            _ => return Err(ContentError),
        })
    }
}

/// RFC 9110 section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// What a field's value or a quoted text may hold (RFC 9110 section 5.5).
fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

fn digit(byte: u8) -> Result<u64, ContentError> {
    char::from(byte).to_digit(16).map(u64::from).ok_or(ContentError)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of these bytes, however they are cut, and how many of them belong to it.
    fn read(bytes: &[u8], piece: usize) -> Result<Option<(Vec<u8>, usize)>, ContentError> {
        let (mut content, mut out, mut taken) = (Content::new(Framing::Chunked), Vec::new(), 0);
        for part in bytes.chunks(piece) {
            taken += content.take(part, &mut out)?;
            if content.is_done() {
                return Ok(Some((out, taken)));
            }
        }
        Ok(None)
    }

    #[test]
    fn chunks_are_joined_however_they_are_cut() {
        let text = b"5\r\nhello\r\n0A;name=\"v\"\r\n, 10 bytes\r\n1;a\r\n!\r\n000\r\nX-T: 1\r\nY:\r\n\r\nHTTP/1.1";
        for piece in 1..text.len() + 1 {
            let (body, taken) = read(text, piece).unwrap().unwrap();
            assert_eq!((body.as_slice(), &text[taken..]), (&b"hello, 10 bytes!"[..], &b"HTTP/1.1"[..]), "{piece}");
        }
    }

    #[test]
    fn what_is_no_chunk_is_an_error() {
        for text in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "0x1\r\na\r\n",
            "1\na\r\n",
            "1\r\nab\r\n",
            "1\r\na\n0\r\n\r\n",
            "1\r\na0\r\n\r\n",
            "1;a\n\r\n",
            "1\r\r\n",
            "0\r\nX: 1\n\r\n",
            "0\r\n\n",
            "0\r\n\r\r",
            "10000000000000000\r\n",
        ] {
            assert_eq!(read(text.as_bytes(), 64), Err(ContentError), "{text:?}");
            assert_eq!(read(text.as_bytes(), 1), Err(ContentError), "{text:?}");
        }
        let extension = format!("1;{}", "x".repeat(THROWN_AWAY_MAX_BYTES as usize));
        let trailer = format!("0\r\nX: {}", "x".repeat(THROWN_AWAY_MAX_BYTES as usize));
        assert!(read(extension.as_bytes(), 1 << 20).is_err() && read(trailer.as_bytes(), 1 << 20).is_err());
    }

    #[test]
    fn extensions_and_trailers_are_those_of_the_grammar() {
        for extension in
            [";a", ";a=b", " ;a", "\t; a = b ;c", ";a=\"\"", ";a=\"x;\\\" y\"", ";a=\"x\" ;b", ";!#=~", ";a=\"\u{e9}\""]
        {
            let text = format!("1{extension}\r\nx\r\n0{extension}\r\n\r\n");
            for piece in [1, text.len()] {
                assert_eq!(read(text.as_bytes(), piece), Ok(Some((b"x".to_vec(), text.len()))), "{extension}");
            }
        }
        for extension in [
            " ",
            ";",
            "; ",
            ";=",
            ";=b",
            ";a=",
            ";a ",
            ";a=b ",
            ";a b",
            ";a=b c",
            ";a=\"x",
            ";a=\"x\"y",
            ";a=\"\u{7}\"",
            ";a=\"\\",
            ";a\u{0}",
            ";a\n",
            ";\"a\"",
            " a",
            ",a",
            ";a=\"\n\"",
            ";\u{e9}",
        ] {
            let text = format!("1{extension}\r\nx\r\n0\r\n\r\n");
            assert_eq!(read(text.as_bytes(), 64), Err(ContentError), "{extension:?}");
            assert_eq!(read(text.as_bytes(), 1), Err(ContentError), "{extension:?}");
        }
        for trailer in ["X", "X y: 1", " X: 1", ": 1", "X : 1", "X: \u{0}", "X: 1\r\n 2", "\u{e9}: 1"] {
            let text = format!("0\r\n{trailer}\r\n\r\n");
            assert_eq!(read(text.as_bytes(), 64), Err(ContentError), "{trailer:?}");
        }
    }

    #[test]
    fn a_broken_off_body_is_never_done() {
        let text = b"5\r\nhello\r\n0\r\nX: 1\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(read(&text[..end], 64), Ok(None), "{end}");
        }
    }

    #[test]
    fn a_length_is_counted_down() {
        let (mut content, mut out) = (Content::new(Framing::Length(5)), Vec::new());
        assert_eq!((content.take(b"he", &mut out), content.length()), (Ok(2), Some(3)));
        assert_eq!((content.take(b"llo!", &mut out), content.is_done()), (Ok(3), true));
        assert_eq!(out, b"hello");
        assert!(Content::new(Framing::Empty).is_done() && Content::new(Framing::Length(0)).is_done());
    }
}
