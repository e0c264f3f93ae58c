//! What a start finds: the end of the chain, a torn last line, and turns that were never closed.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::error::AuditError;
use super::line::{AuditKeys, Chain};
use super::segment::{Lines, Piece, Segment, failed, list, path};
use super::verify::{FaultKind, Walk, fault};
use crate::names::{GatewayName, Login, ProfileName, Uid};

/// An open turn, as later segments and the record of its loss name it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct OpenTurnRow {
    /// Number of its `open` record.
    pub(super) open: u64,
    pub(super) request_id: String,
    pub(super) login: Login,
    pub(super) uid: Uid,
    pub(super) profile: ProfileName,
    pub(super) gateway: GatewayName,
}

/// What a start found.
pub(super) struct Recovered {
    pub(super) segment: Segment,
    pub(super) chain: Chain,
    /// Turns without an end, by the number of their `open` record.
    pub(super) open: BTreeMap<u64, OpenTurnRow>,
    /// Bytes of a torn last line that were cut off.
    pub(super) repaired_bytes: u64,
    /// Whole lines that the last process left without a seal.
    pub(super) unsealed: u64,
}

#[derive(Deserialize)]
struct OpenFields {
    request_id: String,
    login: Login,
    uid: Uid,
    profile: ProfileName,
    gateway: GatewayName,
}

#[derive(Deserialize)]
struct ClosedFields {
    open: u64,
}

#[derive(Deserialize)]
struct CarriedFields {
    turns: Vec<OpenTurnRow>,
}

/// Reads the last two segments: what is open in the last one was opened there, carried into it, or, if a crash came
/// between its making and its first line, is in the one before.
pub(super) fn recover(dir: &Path, keys: &AuditKeys) -> Result<Recovered, AuditError> {
    let numbers = list(dir).map_err(|source| failed("list the directory", dir, source))?;
    let Some(&last) = numbers.last() else {
        return Ok(Recovered {
            segment: Segment::create(dir, 1)?,
            chain: Chain::START,
            open: BTreeMap::new(),
            repaired_bytes: 0,
            unsealed: 0,
        });
    };
    let read = &numbers[numbers.len().saturating_sub(2)..];
    let missing = || AuditError::Corrupt(fault(last, 0, FaultKind::MissingSegment));
    if read.len() == 2 && read[0] + 1 != last {
        return Err(missing());
    }
    let mut walk = Walk::from_segment(keys, read[0]);
    let mut open = BTreeMap::new();
    let (mut len, mut torn) = (0, 0);
    for &number in read {
        (len, torn) = read_segment(dir, number, number == last, &mut walk, &mut open)?;
    }
    // Without a line in them, segments after the first do not tell where the chain stands.
    let chain = walk.chain.ok_or_else(missing)?;
    let segment = Segment::open(dir, last, len)?;
    Ok(Recovered { segment, chain, open, repaired_bytes: torn, unsealed: walk.unsealed })
}

/// Returns the bytes of whole lines and those of a torn one after them.
fn read_segment(
    dir: &Path,
    number: u32,
    last: bool,
    walk: &mut Walk<'_>,
    open: &mut BTreeMap<u64, OpenTurnRow>,
) -> Result<(u64, u64), AuditError> {
    let unreadable = |source| failed("read the audit segment", &path(dir, number), source);
    let mut lines = Lines::open(dir, number).map_err(unreadable)?;
    let mut line = Vec::new();
    while let Some(piece) = lines.next(&mut line).map_err(unreadable)? {
        let corrupt = |at, what| AuditError::Corrupt(fault(number, at, what));
        match piece {
            Piece::Line => {}
            Piece::Torn if last => return Ok((lines.offset, line.len() as u64)),
            // A power cut can leave a file longer than what reached the disk.
            Piece::TooLong if last && line.iter().all(|byte| *byte == 0) => {
                let len = path(dir, number).metadata().map_err(unreadable)?.len();
                return Ok((lines.offset, len.saturating_sub(lines.offset)));
            }
            Piece::Torn => return Err(corrupt(lines.number + 1, FaultKind::Torn)),
            Piece::TooLong => return Err(corrupt(lines.number + 1, FaultKind::Malformed)),
        }
        let header = walk.step(&line).map_err(|what| corrupt(lines.number, what))?;
        note(header.seq, header.kind, &line, open).ok_or_else(|| corrupt(lines.number, FaultKind::Malformed))?;
    }
    Ok((lines.offset, 0))
}

/// Keeps the set of open turns; `None` when a record lacks what its kind has.
fn note(seq: u64, kind: &str, line: &[u8], open: &mut BTreeMap<u64, OpenTurnRow>) -> Option<()> {
    match kind {
        "open" => {
            let OpenFields { request_id, login, uid, profile, gateway } = serde_json::from_slice(line).ok()?;
            open.insert(seq, OpenTurnRow { open: seq, request_id, login, uid, profile, gateway });
        }
        "close" | "lost" => {
            let closed: ClosedFields = serde_json::from_slice(line).ok()?;
            open.remove(&closed.open);
        }
        "carried" => {
            let carried: CarriedFields = serde_json::from_slice(line).ok()?;
            open.extend(carried.turns.into_iter().map(|turn| (turn.open, turn)));
        }
        _ => {}
    }
    Some(())
}
