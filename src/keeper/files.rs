//! Files below a directory handle: made anew, owner-only, never through a link.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat};

/// Owner only, as a directory and as a file.
const DIRECTORY: Mode = Mode::RWXU;
const FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A directory that is open, and stays the same one whatever happens to its name.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

impl Directory {
    const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

    /// Opens a directory by its path; the last component may not be a link.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Directory(rustix::fs::open(path, Self::OPEN, Mode::empty())?))
    }

    /// Opens a directory below this one.
    pub(super) fn child(&self, name: &str) -> io::Result<Self> {
        Ok(Directory(rustix::fs::openat(&self.0, name, Self::OPEN, Mode::empty())?))
    }

    /// Makes a directory below this one, 0700 whatever the umask, and opens it.
    pub(super) fn make_child(&self, name: &str) -> io::Result<Self> {
        rustix::fs::mkdirat(&self.0, name, DIRECTORY)?;
        let child = self.child(name)?;
        rustix::fs::fchmod(&child.0, DIRECTORY)?;
        Ok(child)
    }

    /// Makes a file that is not there yet, 0600 whatever the umask, and waits until it is on the disk.
    pub(super) fn make_file(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&self.0, name, flags, FILE)?);
        rustix::fs::fchmod(&file, FILE)?;
        file.write_all(content)?;
        file.sync_all()
    }

    /// Whether something has this name, a dangling link included.
    pub(super) fn has(&self, name: &str) -> io::Result<bool> {
        match self.stat(name) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a file or link; that it is gone already is fine.
    pub(super) fn remove_file(&self, name: &str) -> io::Result<()> {
        gone(rustix::fs::unlinkat(&self.0, name, AtFlags::empty()))
    }

    /// Removes an empty directory; that it is gone already is fine.
    pub(super) fn remove_child(&self, name: &str) -> io::Result<()> {
        gone(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR))
    }

    /// Renames below this directory; fails with `AlreadyExists` in place of replacing anything.
    pub(super) fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat_with(&self.0, from, &self.0, to, RenameFlags::NOREPLACE)?)
    }

    /// Whether a name in this directory is that open directory, and not something put in its place.
    pub(super) fn holds(&self, name: &str, child: &Directory) -> io::Result<bool> {
        let (named, open): (Stat, Stat) = (self.stat(name)?, rustix::fs::fstat(&child.0)?);
        Ok(named.st_dev == open.st_dev && named.st_ino == open.st_ino)
    }

    /// Waits until the names in this directory are on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }

    fn stat(&self, name: &str) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

fn gone(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}
