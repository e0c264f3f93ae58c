//! The throw-away directory: owner-only, with a name that nobody can guess, removed with all it holds.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::names::Uid;

/// A directory that goes when this value goes.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    removed: bool,
}

impl Scratch {
    /// Makes it in the system's place for temporary files; fails when the name is taken.
    pub(super) fn make() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("botgate-quickstart-{}", Uid::random()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Scratch { path, removed: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory in it, 0700.
    pub(super) fn directory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    }

    /// Makes a file in it, 0600; a file that is there already is an error.
    pub(super) fn file(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?.write_all(text.as_bytes())?;
        Ok(path)
    }

    /// Removes it; a child that is just ending may still write, so it is tried more than once.
    pub(super) fn remove(mut self) -> io::Result<()> {
        self.removed = true;
        for _ in 0..5 {
            match fs::remove_dir_all(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                ended => return ended,
            }
        }
        fs::remove_dir_all(&self.path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.removed {
            // Nobody is left to hear of an error here; `remove` is the way that tells.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_the_owners_alone_and_leaves_nothing() {
        let scratch = Scratch::make().unwrap();
        let path = scratch.path().to_owned();
        let file = scratch.file("secret", "x").unwrap();
        scratch.directory("below").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&file), mode(&path.join("below"))), (0o700, 0o600, 0o700));
        assert!(scratch.file("secret", "y").is_err());
        drop(scratch);
        assert!(!path.exists());
        let scratch = Scratch::make().unwrap();
        let path = scratch.path().to_owned();
        scratch.remove().unwrap();
        assert!(!path.exists());
    }
}
