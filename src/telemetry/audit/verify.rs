//! Verifying a chain: every number, every hash, every seal, and the head that was kept elsewhere.
//!
//! What it cannot see: lines after the last seal can be forged by whoever can write the file, and a chain that was cut
//! right after a seal looks whole unless a head is given. The report tells of the first, `--head` finds the second.

use std::fmt;
use std::io;
use std::path::Path;

use serde::Deserialize;

use super::line::{AuditKeys, Chain, hash, unhex};
use super::segment::{Lines, Piece, list};
use crate::names::hex;

/// A point of a chain: the number and the hash of a line. Its text is `<seq>:<64 hex digits>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    seq: u64,
    hash: [u8; 32],
}

impl Head {
    pub(super) fn of(chain: &Chain) -> Self {
        Head { seq: chain.seq, hash: chain.hash }
    }

    /// Reads `<seq>:<64 hex digits>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (seq, hash) = text.trim().split_once(':')?;
        Some(Head { seq: seq.parse().ok()?, hash: unhex(hash)? })
    }

    /// Number of the line; 0 before the first.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// SHA-256 of the line, in hex.
    pub fn hash(&self) -> String {
        hex(&self.hash)
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, hex(&self.hash))
    }
}

/// What is wrong with a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The file cannot be read.
    Unreadable(io::ErrorKind),
    /// The segment before this one is missing.
    MissingSegment,
    /// The line is not a record of the log.
    Malformed,
    /// The segment breaks off within the line, and it is not the last one.
    Torn,
    /// Its number is not the one after the line before.
    Sequence,
    /// It does not hold the hash of the line before.
    Link,
    /// The seal was not made with this key over this chain.
    Seal,
    /// The line with the head's number has another hash.
    HeadDiffers,
    /// The chain ends before the head: its end was cut off.
    HeadMissing,
}

impl FaultKind {
    /// What is wrong, for a person.
    pub fn as_str(self) -> &'static str {
        match self {
            FaultKind::Unreadable(_) => "cannot be read",
            FaultKind::MissingSegment => "the segment before it is missing",
            FaultKind::Malformed => "is not a record",
            FaultKind::Torn => "breaks off",
            FaultKind::Sequence => "is out of sequence",
            FaultKind::Link => "does not follow the line before it",
            FaultKind::Seal => "its seal is wrong, or was made under another master key or one that was given up",
            FaultKind::HeadDiffers => "differs from the given head",
            FaultKind::HeadMissing => "the chain ends before the given head",
        }
    }
}

/// The first place where a chain is not as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Number of the segment; 0 when there is none.
    pub segment: u32,
    /// Line within the segment, from 1; 0 for the segment as a whole.
    pub line: u64,
    /// What is wrong there.
    pub what: FaultKind,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "audit segment {:08}, line {}: {}", self.segment, self.line, self.what.as_str())?;
        match self.what {
            FaultKind::Unreadable(kind) => write!(f, ": {kind}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

/// What a chain that holds looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Segments read.
    pub segments: usize,
    /// Lines read.
    pub lines: u64,
    /// Number of the first line: above 1 when earlier segments were moved away.
    pub first_seq: u64,
    /// The last line.
    pub head: Head,
    /// Lines after the last seal, for which only the hashes speak.
    pub unsealed: u64,
    /// Bytes of an unfinished last line: being written, or torn by a crash and cut at the next start.
    pub torn_bytes: u64,
}

/// The fields that every line has.
#[derive(Deserialize)]
pub(super) struct Header<'a> {
    pub(super) seq: u64,
    #[expect(dead_code, reason = "a line without it is malformed")]
    at: u64,
    pub(super) kind: &'a str,
    prev: &'a str,
    mac: Option<&'a str>,
}

/// Follows a chain line by line.
pub(super) struct Walk<'k> {
    keys: &'k AuditKeys,
    /// Place of the oldest key that may still seal.
    oldest: usize,
    /// The last line; `None` before the first one of a chain whose beginning is elsewhere.
    pub(super) chain: Option<Chain>,
    pub(super) unsealed: u64,
}

impl<'k> Walk<'k> {
    /// Begins at a segment. Only the very first segment's first line has a known predecessor.
    pub(super) fn from_segment(keys: &'k AuditKeys, segment: u32) -> Self {
        Walk { keys, oldest: 0, chain: (segment == 1).then_some(Chain::START), unsealed: 0 }
    }

    pub(super) fn step<'l>(&mut self, line: &'l [u8]) -> Result<Header<'l>, FaultKind> {
        let header: Header<'l> = serde_json::from_slice(line).map_err(|_| FaultKind::Malformed)?;
        let prev = unhex(header.prev).ok_or(FaultKind::Malformed)?;
        if let Some(chain) = self.chain {
            if header.seq != chain.seq + 1 {
                return Err(FaultKind::Sequence);
            }
            if prev != chain.hash {
                return Err(FaultKind::Link);
            }
        }
        if header.kind == "mac" {
            let seal = header.mac.ok_or(FaultKind::Malformed)?;
            self.oldest = self.keys.verifies(self.oldest, header.seq, &prev, seal).ok_or(FaultKind::Seal)?;
            self.unsealed = 0;
        } else {
            self.unsealed += 1;
        }
        self.chain = Some(Chain { seq: header.seq, hash: hash(line) });
        Ok(header)
    }
}

/// Verifies the log in a directory, from its first segment to its end, and that it reaches a head kept elsewhere.
///
/// Safe to call while the log is being written. Blocks: reads every segment.
///
/// # Errors
/// The first fault.
pub fn verify(dir: &Path, keys: impl Into<AuditKeys>, head: Option<&Head>) -> Result<Report, Fault> {
    let keys = keys.into();
    let unreadable = |segment| move |error: io::Error| fault(segment, 0, FaultKind::Unreadable(error.kind()));
    let segments = list(dir).map_err(unreadable(0))?;
    let first = segments.first().copied().unwrap_or(1);
    let mut walk = Walk::from_segment(&keys, first);
    let mut report = Report {
        segments: segments.len(),
        lines: 0,
        first_seq: 0,
        head: Head::of(&Chain::START),
        unsealed: 0,
        torn_bytes: 0,
    };
    let mut buffer = Vec::new();
    for (at, &segment) in segments.iter().enumerate() {
        if u32::try_from(at).ok().and_then(|at| first.checked_add(at)) != Some(segment) {
            return Err(fault(segment, 0, FaultKind::MissingSegment));
        }
        let mut lines = Lines::open(dir, segment).map_err(unreadable(segment))?;
        while let Some(piece) = lines.next(&mut buffer).map_err(unreadable(segment))? {
            match piece {
                Piece::Line => {}
                Piece::Torn if at + 1 == segments.len() => {
                    report.torn_bytes = buffer.len() as u64;
                    break;
                }
                Piece::Torn => return Err(fault(segment, lines.number + 1, FaultKind::Torn)),
                Piece::TooLong => return Err(fault(segment, lines.number + 1, FaultKind::Malformed)),
            }
            let header = walk.step(&buffer).map_err(|what| fault(segment, lines.number, what))?;
            if report.lines == 0 {
                report.first_seq = header.seq;
            }
            report.lines += 1;
            if let (Some(chain), Some(head)) = (walk.chain, head)
                && chain.seq == head.seq
                && chain.hash != head.hash
            {
                return Err(fault(segment, lines.number, FaultKind::HeadDiffers));
            }
        }
    }
    let end = walk.chain.unwrap_or(Chain::START);
    if head.is_some_and(|head| head.seq > end.seq) {
        return Err(fault(segments.last().copied().unwrap_or(0), 0, FaultKind::HeadMissing));
    }
    Ok(Report { head: Head::of(&end), unsealed: walk.unsealed, ..report })
}

pub(super) fn fault(segment: u32, line: u64, what: FaultKind) -> Fault {
    Fault { segment, line, what }
}
