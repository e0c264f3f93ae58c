//! Backup: a copy of the database as it is at one moment, also while an edge serves.
//!
//! Invariants: the copy holds keys sealed and tokens as digests, as the database does, and nothing that was deleted from it;
//! a file of that name is never replaced, and what has that name is whole and was read back. It holds no master key.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::{files, master, sqlite};
use crate::secret::MasterKey;

/// A backup that was made.
#[derive(Debug)]
pub struct Backup {
    /// The copy.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// The copy of the master key, when it was asked for.
    pub master_key: Option<PathBuf>,
}

/// Copies the database to `path`, a new file, and the master key beside it when it is given. Blocks.
///
/// # Errors
/// The database cannot be read, a file of that name exists, or the copy cannot be written.
pub fn backup(data_dir: &Path, path: &Path, key: Option<&MasterKey>) -> Result<Backup, StoreError> {
    let name = path.file_name().ok_or_else(|| files::unsafe_file(path, "is no name for a file".to_owned()))?;
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let beside = |suffix: &str| {
        let mut name = name.to_owned();
        name.push(suffix);
        dir.join(name)
    };
    let key_path = key.map(|_| beside(".master.key"));
    for taken in [Some(path), key_path.as_deref()].into_iter().flatten() {
        if taken.symlink_metadata().is_ok() {
            return Err(files::io_error(taken, io::ErrorKind::AlreadyExists.into()));
        }
    }
    let part = beside(".part");
    // Not removed when it is there: another backup may be writing it.
    files::create_private(&part)?;
    let made = copy(data_dir, &part, path);
    let removed = fs::remove_file(&part).map_err(|source| files::io_error(&part, source));
    let bytes = made?;
    removed?;
    if let (Some(key), Some(key_path)) = (key, &key_path) {
        master::copy_master_key(key, key_path)?;
    }
    files::sync_dir(dir)?;
    Ok(Backup { path: path.to_owned(), bytes, master_key: key_path })
}

fn copy(data_dir: &Path, part: &Path, path: &Path) -> Result<u64, StoreError> {
    sqlite::copy(data_dir, part)?;
    let length = File::open(part).and_then(|file| file.sync_all().and_then(|()| file.metadata()));
    let bytes = length.map_err(|source| files::io_error(part, source))?.len();
    // Unlike a rename it does not replace what has appeared there meanwhile.
    fs::hard_link(part, path).map_err(|source| files::io_error(path, source))?;
    Ok(bytes)
}
