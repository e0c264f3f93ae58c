//! Files: the data directory and what lies in it belong to the edge's user alone.
//!
//! Invariants: what another user owns is refused; what others can reach is closed to them, or refused when that fails;
//! a symbolic link is never followed to a file of the store; a directory that is more than botgate's is left as it is.
//! Not here: what the files hold.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::master::KEY_FILE;
use super::sqlite::DATABASE_FILE;

/// Permission bits of group and others.
pub(super) const OTHERS: u32 = 0o077;

/// Makes the data directory for its owner alone, or checks one that exists as [`super::Store::open`] does.
///
/// # Errors
/// It cannot be made, is no directory, or another user owns it.
pub fn prepare_data_dir(data_dir: &Path) -> Result<(), StoreError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(data_dir).map_err(|source| io_error(data_dir, source))?;
    check_data_dir(data_dir).map(drop)
}

/// The directory's true path, once it is known to be ours and closed to others.
pub(super) fn check_data_dir(data_dir: &Path) -> Result<PathBuf, StoreError> {
    let path = fs::canonicalize(data_dir).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => {
            unsafe_file(data_dir, "the data directory does not exist; `botgate init` makes it".to_owned())
        }
        _ => io_error(data_dir, source),
    })?;
    let metadata = fs::metadata(&path).map_err(|source| io_error(&path, source))?;
    if !metadata.is_dir() {
        return Err(unsafe_file(&path, "is not a directory".to_owned()));
    }
    check_owner(&path, &metadata)?;
    if is_open(&metadata) && !is_botgates(&path, &metadata).map_err(|source| io_error(&path, source))? {
        let why = "others can reach it, and it holds no data of botgate's; give a directory of its own".to_owned();
        return Err(unsafe_file(&path, why));
    }
    tighten(&path, &metadata)?;
    Ok(path)
}

/// Whether nobody else can lose by a directory's being closed: it is empty, or holds the store already. What is written
/// in a configuration file by mistake, such as `/` or `/tmp`, must not be closed to everybody.
fn is_botgates(path: &Path, metadata: &Metadata) -> io::Result<bool> {
    const STICKY: u32 = 0o1000;
    let holds = |name: &str| path.join(name).symlink_metadata().is_ok();
    if holds(KEY_FILE) || holds(DATABASE_FILE) {
        return Ok(true);
    }
    Ok(metadata.permissions().mode() & STICKY == 0 && fs::read_dir(path)?.next().is_none())
}

/// Checks a file of the store if it is there; whether it is.
pub(super) fn check_file(path: &Path) -> Result<bool, StoreError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(io_error(path, source)),
    };
    if !metadata.is_file() {
        return Err(unsafe_file(path, "is not a regular file".to_owned()));
    }
    check_owner(path, &metadata)?;
    tighten(path, &metadata)?;
    Ok(true)
}

/// Makes a file that its owner alone can read and write.
pub(super) fn create_private(path: &Path) -> Result<File, StoreError> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|source| io_error(path, source))
}

/// Makes a new name in a directory survive a crash of the machine.
pub(super) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|source| io_error(dir, source))
}

pub(super) fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), StoreError> {
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() == own {
        return Ok(());
    }
    let why = format!("is owned by uid {}, and this process runs as uid {own}; run as its owner", metadata.uid());
    Err(unsafe_file(path, why))
}

fn is_open(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & OTHERS != 0
}

fn tighten(path: &Path, metadata: &Metadata) -> Result<(), StoreError> {
    let mode = metadata.permissions().mode() & 0o7777;
    if !is_open(metadata) {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o700)).map_err(|error| {
        unsafe_file(path, format!("others can reach it (mode {mode:04o}), and that cannot be changed: {error}"))
    })
}

pub(super) fn io_error(path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { path: path.to_owned(), source }
}

pub(super) fn unsafe_file(path: &Path, why: String) -> StoreError {
    StoreError::Unsafe { path: path.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_new_data_dir_is_the_owners_alone() {
        let outer = tempfile::tempdir().unwrap();
        let dir = outer.path().join("a/b");
        prepare_data_dir(&dir).unwrap();
        assert_eq!(mode(&dir), 0o700);
        prepare_data_dir(&dir).unwrap();
    }

    #[test]
    fn what_others_can_reach_is_closed_to_them() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        check_data_dir(dir.path()).unwrap();
        assert_eq!(mode(dir.path()), 0o700);
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let file = dir.path().join(DATABASE_FILE);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        check_data_dir(dir.path()).unwrap();
        assert!(check_file(&file).unwrap());
        assert_eq!((mode(dir.path()), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn a_directory_of_other_things_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        assert!(matches!(check_data_dir(dir.path()), Err(StoreError::Unsafe { .. })));
        fs::write(dir.path().join("theirs"), "").unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let error = check_data_dir(dir.path()).unwrap_err().to_string();
        assert!(error.contains("no data of botgate's"), "{error}");
        assert_eq!(mode(dir.path()), 0o755);
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        check_data_dir(dir.path()).unwrap();
    }

    #[test]
    fn what_another_user_owns_is_refused() {
        // Root gives a directory away; anybody else finds one of root.
        let dir = tempfile::tempdir().unwrap();
        let foreign = if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path(), Some(65_534), None).unwrap();
            dir.path()
        } else {
            Path::new("/usr")
        };
        let error = check_data_dir(foreign).unwrap_err().to_string();
        assert!(error.contains("is owned by uid"), "{error}");
    }

    #[test]
    fn a_link_or_a_directory_in_a_files_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(matches!(check_file(&link), Err(StoreError::Unsafe { .. })));
        assert!(matches!(check_file(dir.path()), Err(StoreError::Unsafe { .. })));
        assert!(!check_file(&dir.path().join("none")).unwrap());
    }

    #[test]
    fn a_missing_data_dir_says_what_makes_it() {
        let dir = tempfile::tempdir().unwrap();
        let error = check_data_dir(&dir.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("botgate init"), "{error}");
    }
}
