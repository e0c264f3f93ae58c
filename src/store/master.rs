//! Master key: a 0600 file of the edge's user, or a systemd credential. Never in the database.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::error::StoreError;
use super::files;
use crate::secret::MasterKey;

/// The key's file in the data directory.
pub(super) const KEY_FILE: &str = "master.key";
/// The key that is to take its place, while it is rotated.
const NEXT_KEY_FILE: &str = "master.key.next";
/// The key's name as a systemd credential.
const CREDENTIAL: &str = "botgate-master-key";
/// Longest file that is read in search of 64 digits, in bytes.
const FILE_MAX_BYTES: u64 = 1024;

/// Loads the master key: the systemd credential `botgate-master-key` if there is one, else `master.key` in the data
/// directory.
///
/// # Errors
/// [`StoreError::NoMasterKey`], [`StoreError::MalformedMasterKey`], or [`StoreError::Unsafe`] when others can read it.
#[expect(clippy::disallowed_methods, reason = "systemd tells a credential's place in the environment only")]
pub fn master_key(data_dir: &Path) -> Result<MasterKey, StoreError> {
    load(data_dir, std::env::var_os("CREDENTIALS_DIRECTORY"))
}

fn load(data_dir: &Path, credentials: Option<OsString>) -> Result<MasterKey, StoreError> {
    if let Some(key) = credential(credentials)? {
        return Ok(key);
    }
    let path = files::check_data_dir(data_dir)?.join(KEY_FILE);
    read(&path, files::OTHERS, true)?.ok_or(StoreError::NoMasterKey { path })
}

fn credential(credentials: Option<OsString>) -> Result<Option<MasterKey>, StoreError> {
    let Some(dir) = credentials else { return Ok(None) };
    // systemd opens a credential to a service's user by an access list, which shows as group bits, and may keep the owner:
    // only what everybody can read is refused.
    read(&Path::new(&dir).join(CREDENTIAL), 0o007, false)
}

/// Whether the master key is a systemd credential, which only whoever configures the service can change.
#[expect(clippy::disallowed_methods, reason = "systemd tells a credential's place in the environment only")]
pub(super) fn is_credential() -> Result<bool, StoreError> {
    credential(std::env::var_os("CREDENTIALS_DIRECTORY")).map(|key| key.is_some())
}

/// A master key from a file of the operator's: a backup's, kept elsewhere.
///
/// # Errors
/// It cannot be read, others can read it, or it is none.
pub fn read_master_key(path: &Path) -> Result<MasterKey, StoreError> {
    read(path, files::OTHERS, false)?.ok_or_else(|| StoreError::NoMasterKey { path: path.to_owned() })
}

/// The key that was about to take the master key's place when a rotation broke off.
pub(super) fn next_key(data_dir: &Path) -> Result<Option<MasterKey>, StoreError> {
    read(&files::check_data_dir(data_dir)?.join(NEXT_KEY_FILE), files::OTHERS, true)
}

/// Writes the key that is to take the master key's place.
pub(super) fn write_next_key(data_dir: &Path, key: &MasterKey) -> Result<(), StoreError> {
    let dir = files::check_data_dir(data_dir)?;
    let path = dir.join(NEXT_KEY_FILE);
    let mut file = files::create_private(&path)?;
    write_key(&mut file, key).map_err(|source| files::io_error(&path, source))?;
    files::sync_dir(&dir)
}

/// The next key takes the master key's place.
pub(super) fn adopt_next_key(data_dir: &Path) -> Result<(), StoreError> {
    let dir = files::check_data_dir(data_dir)?;
    let path = dir.join(NEXT_KEY_FILE);
    fs::rename(&path, dir.join(KEY_FILE)).map_err(|source| files::io_error(&path, source))?;
    files::sync_dir(&dir)
}

/// Removes a next key under which nothing was sealed.
pub(super) fn drop_next_key(data_dir: &Path) -> Result<(), StoreError> {
    let dir = files::check_data_dir(data_dir)?;
    let path = dir.join(NEXT_KEY_FILE);
    fs::remove_file(&path).map_err(|source| files::io_error(&path, source))?;
    files::sync_dir(&dir)
}

/// Writes a copy of the master key to a new file.
pub(super) fn copy_master_key(key: &MasterKey, path: &Path) -> Result<(), StoreError> {
    let mut file = files::create_private(path)?;
    write_key(&mut file, key).map_err(|source| files::io_error(path, source))
}

fn read(path: &Path, refused_bits: u32, check_owner: bool) -> Result<Option<MasterKey>, StoreError> {
    // NONBLOCK: a named pipe in the file's place must not hang the start.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(files::io_error(path, source)),
    };
    let metadata = file.metadata().map_err(|source| files::io_error(path, source))?;
    if !metadata.is_file() {
        return Err(files::unsafe_file(path, "is not a regular file".to_owned()));
    }
    if check_owner {
        files::check_owner(path, &metadata)?;
    }
    let mode = metadata.mode() & 0o7777;
    if mode & refused_bits != 0 {
        // Not closed quietly: whoever could read it may have done so.
        let why = format!("others can read the master key (mode {mode:04o}); use chmod 0600, and think of a new key");
        return Err(files::unsafe_file(path, why));
    }
    let mut text = Zeroizing::new(String::with_capacity(FILE_MAX_BYTES as usize));
    match file.take(FILE_MAX_BYTES).read_to_string(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
        Err(source) => return Err(files::io_error(path, source)),
    }
    MasterKey::parse(&text).map(Some).ok_or_else(|| StoreError::MalformedMasterKey { path: path.to_owned() })
}

/// Makes `master.key` in a data directory that has neither a key nor a database yet.
///
/// # Errors
/// [`StoreError::MasterKeyExists`], or the file cannot be made.
pub fn create_master_key(data_dir: &Path) -> Result<MasterKey, StoreError> {
    let dir = files::check_data_dir(data_dir)?;
    let (path, draft, database) =
        (dir.join(KEY_FILE), dir.join(format!(".{KEY_FILE}.draft")), dir.join(super::sqlite::DATABASE_FILE));
    if files::check_file(&database)? {
        return Err(StoreError::MasterKeyExists { path: database });
    }
    let key = MasterKey::generate();
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(files::io_error(&draft, error)),
        _ => {}
    }
    let mut file = files::create_private(&draft)?;
    let written = write_key(&mut file, &key).map_err(|source| files::io_error(&draft, source));
    // A hard link, unlike a rename, does not replace a key that appeared meanwhile, and shows the whole file at once.
    let linked = written.and_then(|()| {
        fs::hard_link(&draft, &path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => StoreError::MasterKeyExists { path: path.clone() },
            _ => files::io_error(&path, source),
        })
    });
    let removed = fs::remove_file(&draft).map_err(|source| files::io_error(&draft, source));
    linked.and(removed)?;
    files::sync_dir(&dir)?;
    Ok(key)
}

fn write_key(file: &mut File, key: &MasterKey) -> io::Result<()> {
    file.write_all(key.to_file_text().as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_created_key_loads_again_and_is_never_replaced() {
        let dir = dir();
        assert!(matches!(load(dir.path(), None), Err(StoreError::NoMasterKey { .. })));
        let key = create_master_key(dir.path()).unwrap();
        assert_eq!(load(dir.path(), None).unwrap().expose(), key.expose());
        assert_eq!(fs::metadata(dir.path().join(KEY_FILE)).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(create_master_key(dir.path()), Err(StoreError::MasterKeyExists { .. })));
        assert_eq!(load(dir.path(), None).unwrap().expose(), key.expose());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a draft was left behind");
    }

    #[test]
    fn a_new_key_is_not_made_beside_a_database() {
        let dir = dir();
        fs::write(dir.path().join(crate::store::sqlite::DATABASE_FILE), "").unwrap();
        assert!(matches!(create_master_key(dir.path()), Err(StoreError::MasterKeyExists { .. })));
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let dir = dir();
        create_master_key(dir.path()).unwrap();
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(dir.path().join(KEY_FILE), Permissions::from_mode(mode)).unwrap();
            assert!(matches!(load(dir.path(), None), Err(StoreError::Unsafe { .. })), "{mode:o}");
        }
    }

    #[test]
    fn a_link_a_pipe_and_nonsense_are_refused() {
        let dir = dir();
        let path = dir.path().join(KEY_FILE);
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(load(dir.path(), None).is_err());
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"\xff\xfe not hex").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(load(dir.path(), None), Err(StoreError::MalformedMasterKey { .. })));
    }

    #[test]
    fn a_systemd_credential_comes_first() {
        let (dir, credentials) = (dir(), dir());
        create_master_key(dir.path()).unwrap();
        let other = MasterKey::generate();
        let path = credentials.path().join(CREDENTIAL);
        fs::write(&path, other.to_file_text().as_bytes()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o440)).unwrap();
        let from = || load(dir.path(), Some(credentials.path().into()));
        assert_eq!(from().unwrap().expose(), other.expose());
        fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        assert!(matches!(from(), Err(StoreError::Unsafe { .. })));
    }
}
