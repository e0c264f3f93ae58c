//! Places in a head, which stay right when the head moves, and numbers as heads write them.

use std::ops::Range;

/// A part of a head of at most 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: u16,
    length: u16,
}

impl Span {
    /// The place of a part that lies in `whole`; `whole` is at most [`u16::MAX`] bytes long.
    pub fn of(part: &[u8], whole: &[u8]) -> Self {
        Span { start: (part.as_ptr().addr() - whole.as_ptr().addr()) as u16, length: part.len() as u16 }
    }

    /// The same place as a range.
    pub fn range(self) -> Range<usize> {
        let start = usize::from(self.start);
        start..start + usize::from(self.length)
    }
}

/// Where a header line's name and value are in the head.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The name.
    pub name: Span,
    /// The value, without outer white space.
    pub value: Span,
}

/// A number of plain digits that fits: the one spelling of Content-Length (RFC 9110 section 8.6).
pub fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}
