//! Reading the log: filtered, and followed while it grows.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::segment::{Lines, Piece, list};

/// Which lines a reader gives. Every condition that is set must hold.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Lines that name this login: as the person, as what was acted on, or in a summary.
    pub login: Option<String>,
    /// Lines with this request identifier.
    pub request_id: Option<String>,
    /// Lines from this time on, in UTC milliseconds.
    pub since: Option<u64>,
    /// Seals too.
    pub seals: bool,
}

/// One line of the log.
#[derive(Debug, Clone)]
pub struct Entry {
    text: String,
    value: Value,
}

impl Entry {
    /// The line as it stands in the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line's fields.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// UTC milliseconds of the event.
    pub fn at(&self) -> u64 {
        self.value["at"].as_u64().unwrap_or(0)
    }

    /// The record's kind.
    pub fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or("")
    }

    fn names(&self, login: &str) -> bool {
        let is = |value: &Value| value.as_str() == Some(login);
        let in_rows = |rows: &Value| rows.as_array().is_some_and(|rows| rows.iter().any(|row| is(&row["login"])));
        is(&self.value["login"])
            || is(&self.value["object"])
            || in_rows(&self.value["people"])
            || in_rows(&self.value["turns"])
    }
}

impl Filter {
    fn lets(&self, entry: &Entry) -> bool {
        (self.seals || entry.kind() != "mac")
            && self.since.is_none_or(|since| entry.at() >= since)
            && self.login.as_ref().is_none_or(|login| entry.names(login))
            && self.request_id.as_ref().is_none_or(|id| entry.value["request_id"].as_str() == Some(id))
    }
}

/// Reads a log from its first segment on. At the end it answers `None`; asked again later, it gives what has been added
/// meanwhile. It does not verify: see [`super::verify`].
pub struct Reader {
    dir: PathBuf,
    filter: Filter,
    segment: u32,
    lines: Option<Lines>,
    line: Vec<u8>,
}

impl Reader {
    /// A reader at the log's beginning.
    pub fn new(dir: &Path, filter: Filter) -> Self {
        Reader { dir: dir.to_owned(), filter, segment: 0, lines: None, line: Vec::new() }
    }

    /// The next line that the filter lets through; `None` when there is none yet. Blocks: reads files.
    ///
    /// # Errors
    /// A segment cannot be read, or holds a line that is not a record.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        loop {
            let Some(lines) = &mut self.lines else {
                if self.next_segment()? {
                    continue;
                }
                return Ok(None);
            };
            match lines.next(&mut self.line)? {
                Some(Piece::Line) => {
                    let entry = entry(&self.line)?;
                    if self.filter.lets(&entry) {
                        return Ok(Some(entry));
                    }
                }
                // It may be being written, or torn by a crash and cut at the next start.
                Some(Piece::Torn) => {
                    lines.rewind()?;
                    return Ok(None);
                }
                Some(Piece::TooLong) => return Err(invalid()),
                None if self.next_segment()? => {}
                None => return Ok(None),
            }
        }
    }

    /// Opens the segment after the present one, if there is one.
    fn next_segment(&mut self) -> io::Result<bool> {
        let Some(next) = list(&self.dir)?.into_iter().find(|number| *number > self.segment) else { return Ok(false) };
        // Lines may have been added between the present segment's end and the making of the next one.
        if let Some(lines) = &mut self.lines
            && lines.has_more()?
        {
            return Ok(true);
        }
        self.lines = Some(Lines::open(&self.dir, next)?);
        self.segment = next;
        Ok(true)
    }
}

fn entry(line: &[u8]) -> io::Result<Entry> {
    let text = String::from_utf8(line.to_vec()).map_err(|_| invalid())?;
    let value: Value = serde_json::from_str(&text).map_err(|_| invalid())?;
    Ok(Entry { text, value })
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a line of the audit log is not a record")
}
