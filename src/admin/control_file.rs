//! The control file: where the admin socket of this start is, and the token that opens it.
//!
//! Both are new at each start and live in a directory that only the edge's user can enter.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::names::Uid;
use crate::secret::SecretText;

const DIRECTORY: &str = "admin";
const FILE: &str = "control.json";
const DRAFT: &str = ".control.draft";
const SOCKET_SUFFIX: &str = ".sock";
/// Longest control file, in bytes.
const FILE_MAX_BYTES: u64 = 4096;

/// Why the control file cannot be made or read.
#[derive(Debug)]
pub enum ControlFileError {
    /// The system's refusal.
    Io {
        /// Of which path.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// The directory is not the edge's own and private.
    Unsafe(PathBuf),
    /// Not a control file of botgate's.
    Malformed(PathBuf),
}

impl fmt::Display for ControlFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlFileError::Io { path, .. } => write!(f, "{}: cannot be used", path.display()),
            ControlFileError::Unsafe(path) => {
                write!(f, "{}: must be a directory of the edge's own user with mode 0700", path.display())
            }
            ControlFileError::Malformed(path) => write!(f, "{}: is not a control file", path.display()),
        }
    }
}

impl std::error::Error for ControlFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ControlFileError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Where the admin socket is, and the token that opens it.
#[derive(Debug)]
pub struct ControlFile {
    directory: PathBuf,
    socket: String,
    token: SecretText,
}

#[derive(Serialize, Deserialize)]
struct Stored<'t> {
    socket: std::borrow::Cow<'t, str>,
    token: std::borrow::Cow<'t, str>,
}

impl ControlFile {
    /// Chooses a socket name and a token for this start, and clears what an earlier start left. Nothing is told yet.
    pub(super) fn prepare(data_dir: &Path) -> Result<Self, ControlFileError> {
        let directory = data_dir.join(DIRECTORY);
        let io = |source| ControlFileError::Io { path: directory.clone(), source };
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io(error)),
            _ => {}
        }
        let metadata = directory.symlink_metadata().map_err(io)?;
        let own = rustix::process::geteuid().as_raw();
        if !metadata.is_dir() || metadata.uid() != own || metadata.mode() & 0o077 != 0 {
            return Err(ControlFileError::Unsafe(directory));
        }
        for entry in fs::read_dir(&directory).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(SOCKET_SUFFIX) || name == FILE || name == DRAFT {
                fs::remove_file(entry.path()).map_err(io)?;
            }
        }
        let socket = format!("{}{SOCKET_SUFFIX}", Uid::random());
        Ok(ControlFile { directory, socket, token: SecretText::generate() })
    }

    /// Tells callers about the socket: from now on they find it.
    pub(super) fn publish(&self) -> Result<(), ControlFileError> {
        let (draft, file) = (self.directory.join(DRAFT), self.directory.join(FILE));
        let stored = Stored { socket: (&*self.socket).into(), token: self.token.expose().into() };
        let io = |source| ControlFileError::Io { path: file.clone(), source };
        let text = Zeroizing::new(serde_json::to_vec(&stored).map_err(|error| io(error.into()))?);
        let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(io)?;
        to.write_all(&text).and_then(|()| to.sync_all()).map_err(io)?;
        fs::rename(&draft, &file).map_err(io)
    }

    /// Reads what a running edge has told; `None` when there is nothing.
    ///
    /// # Errors
    /// The file cannot be read, or is not one.
    pub fn read(data_dir: &Path) -> Result<Option<Self>, ControlFileError> {
        let directory = data_dir.join(DIRECTORY);
        let path = directory.join(FILE);
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(ControlFileError::Io { path, source }),
        };
        let mut text = Zeroizing::new(Vec::new());
        let read = file.take(FILE_MAX_BYTES).read_to_end(&mut text);
        read.map_err(|source| ControlFileError::Io { path: path.clone(), source })?;
        let stored: Stored<'_> =
            serde_json::from_slice(&text).map_err(|_| ControlFileError::Malformed(path.clone()))?;
        let plain = stored.socket.strip_suffix(SOCKET_SUFFIX).is_some_and(|name| Uid::parse(name).is_ok());
        if !plain {
            return Err(ControlFileError::Malformed(path));
        }
        let (socket, token) = (stored.socket.into_owned(), SecretText::new(stored.token.into_owned()));
        Ok(Some(ControlFile { directory, socket, token }))
    }

    /// The directory that holds the socket.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The socket's name in it.
    pub(super) fn socket(&self) -> &str {
        &self.socket
    }

    /// The token that every call carries.
    pub fn token(&self) -> &SecretText {
        &self.token
    }

    /// Takes back what was told.
    pub(super) fn remove(&self) {
        // Left over, they are cleared by the next start and lead nowhere meanwhile.
        let _ = fs::remove_file(self.directory.join(FILE));
        let _ = fs::remove_file(self.directory.join(&self.socket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_one_start_tells_is_read_back_and_renewed_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ControlFile::read(dir.path()).unwrap().is_none());
        let first = ControlFile::prepare(dir.path()).unwrap();
        assert!(ControlFile::read(dir.path()).unwrap().is_none(), "nothing is told before publish");
        first.publish().unwrap();
        let read = ControlFile::read(dir.path()).unwrap().unwrap();
        assert!(read.token().matches(first.token().expose().as_bytes()) && read.socket() == first.socket());
        let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(dir.path().join("admin")), 0o700);
        assert_eq!(mode(dir.path().join("admin/control.json")), 0o600);
        let second = ControlFile::prepare(dir.path()).unwrap();
        assert!(second.socket() != first.socket() && ControlFile::read(dir.path()).unwrap().is_none());
    }

    #[test]
    fn an_open_directory_and_a_foreign_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let admin = dir.path().join("admin");
        fs::create_dir(&admin).unwrap();
        fs::set_permissions(&admin, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(ControlFile::prepare(dir.path()), Err(ControlFileError::Unsafe(_))));
        fs::write(admin.join("control.json"), "{\"socket\":\"../x.sock\",\"token\":\"fixture\"}").unwrap();
        assert!(matches!(ControlFile::read(dir.path()), Err(ControlFileError::Malformed(_))));
    }
}
