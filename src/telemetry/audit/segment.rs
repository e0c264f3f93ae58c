//! Segments: the files `00000001.jsonl`, `00000002.jsonl` … of one chain.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::AuditError;

/// Longest line that a reader takes, in bytes; the writer's are far shorter.
const LINE_MAX_BYTES: u64 = 1024 * 1024;

/// Path of a segment.
pub(super) fn path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:08}.jsonl"))
}

/// Numbers of the segments in a directory, ascending. Other files are none of ours.
pub(super) fn list(dir: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
        if let Some(digits) = digits.filter(|d| d.len() == 8 && d.bytes().all(|b| b.is_ascii_digit())) {
            numbers.extend(digits.parse::<u32>().ok().filter(|number| *number > 0));
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Makes the directory, for its owner alone.
pub(super) fn create_dir(dir: &Path) -> Result<(), AuditError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| failed("create the directory", dir, source))
}

pub(super) fn failed(what: &'static str, path: &Path, source: io::Error) -> AuditError {
    AuditError::Io { what, path: path.to_owned(), source }
}

/// The segment that is written to.
pub(super) struct Segment {
    pub(super) number: u32,
    pub(super) len: u64,
    file: Arc<File>,
    /// Bytes that the disk still takes.
    #[cfg(test)]
    pub(super) quota: Option<Arc<AtomicU64>>,
}

impl Segment {
    /// Makes the segment; an existing file is an error.
    pub(super) fn create(dir: &Path, number: u32) -> Result<Self, AuditError> {
        let path = path(dir, number);
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|source| failed("create the audit segment", &path, source))?;
        // Without it a power cut could lose the file's name along with everything in it.
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(|source| failed("sync the directory", dir, source))?;
        Ok(Segment::of(file, number, 0))
    }

    /// Opens the last segment to go on, after cutting what follows byte `len`.
    pub(super) fn open(dir: &Path, number: u32, len: u64) -> Result<Self, AuditError> {
        let path = path(dir, number);
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.map_err(|source| failed("open the audit segment", &path, source))?;
        let cut = file.metadata().and_then(|data| if data.len() > len { file.set_len(len) } else { Ok(()) });
        cut.map_err(|source| failed("repair the audit segment", &path, source))?;
        Ok(Segment::of(file, number, len))
    }

    fn of(file: File, number: u32, len: u64) -> Self {
        Segment {
            number,
            len,
            file: Arc::new(file),
            #[cfg(test)]
            quota: None,
        }
    }

    /// Writes as much as the disk takes; returns how much that was, and the error that ended it.
    pub(super) fn write(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut written = 0;
        while written < bytes.len() {
            match self.write_some(&bytes[written..]) {
                Ok(0) => return (written, Err(ErrorKind::WriteZero.into())),
                Ok(count) => {
                    written += count;
                    self.len += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }

    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(test)]
        if let Some(quota) = &self.quota {
            let left = quota.load(Ordering::SeqCst).min(bytes.len() as u64) as usize;
            if left == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            let count = (&*self.file).write(&bytes[..left])?;
            quota.fetch_sub(count as u64, Ordering::SeqCst);
            return Ok(count);
        }
        (&*self.file).write(bytes)
    }

    /// The file, for whoever syncs it.
    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }
}

/// One piece of a segment, up to and without its newline.
pub(super) enum Piece {
    /// A line.
    Line,
    /// The file's end came first.
    Torn,
    /// No newline within the longest length that a line may have.
    TooLong,
}

/// Reads a segment line by line.
pub(super) struct Lines {
    reader: BufReader<File>,
    /// Bytes of the whole lines read so far.
    pub(super) offset: u64,
    /// Number of the last line read, from 1.
    pub(super) number: u64,
}

impl Lines {
    pub(super) fn open(dir: &Path, segment: u32) -> io::Result<Self> {
        Ok(Lines { reader: BufReader::with_capacity(64 * 1024, File::open(path(dir, segment))?), offset: 0, number: 0 })
    }

    /// Reads the next piece into `line`; `None` at the end of the file.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Option<Piece>> {
        line.clear();
        io::Read::take(&mut self.reader, LINE_MAX_BYTES + 1).read_until(b'\n', line)?;
        if line.last() == Some(&b'\n') {
            self.offset += line.len() as u64;
            self.number += 1;
            line.pop();
            return Ok(Some(Piece::Line));
        }
        Ok(match line.len() as u64 {
            0 => None,
            len if len > LINE_MAX_BYTES => Some(Piece::TooLong),
            _ => Some(Piece::Torn),
        })
    }

    /// Goes back to the end of the last whole line: what follows may be written anew.
    pub(super) fn rewind(&mut self) -> io::Result<()> {
        self.reader.seek(SeekFrom::Start(self.offset)).map(drop)
    }

    /// Whether the file goes on.
    pub(super) fn has_more(&mut self) -> io::Result<bool> {
        Ok(!self.reader.fill_buf()?.is_empty())
    }
}
