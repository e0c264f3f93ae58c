//! Lock: one botgate at a time on a data directory.
//!
//! The kernel drops the lock with its holder, however that ends, so nothing has to be cleaned up. The lock file itself
//! is never removed: two processes could then hold locks on two files of one name.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::error::StoreError;
use super::files;

/// Name of the lock file.
const LOCK_FILE: &str = "lock";

/// The right to work on a data directory, until dropped.
#[derive(Debug)]
pub struct DataDirLock {
    _file: File,
}

impl DataDirLock {
    /// Takes the lock without waiting.
    ///
    /// # Errors
    /// [`StoreError::Locked`] with the holder's process; or the directory cannot be used.
    pub fn acquire(data_dir: &Path) -> Result<Self, StoreError> {
        let dir = files::check_data_dir(data_dir)?;
        let path = dir.join(LOCK_FILE);
        files::check_file(&path)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&path)
            .map_err(|source| files::io_error(&path, source))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(StoreError::Locked { path: dir, holder: holder(&mut file) }),
            Err(error) => return Err(files::io_error(&path, error.into())),
        }
        // The number is a hint for people; the lock holds without it, also on a full disk.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(DataDirLock { _file: file })
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_and_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDirLock::acquire(dir.path()).unwrap();
        match DataDirLock::acquire(dir.path()) {
            Err(StoreError::Locked { holder, .. }) => assert_eq!(holder, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(first);
        DataDirLock::acquire(dir.path()).unwrap();
    }
}
