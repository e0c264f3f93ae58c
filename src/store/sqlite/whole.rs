//! The database as a whole: copied, sealed anew, replaced. Each call has a connection of its own.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior, params};

use super::super::error::StoreError;
use super::super::files;
use super::super::restore::Restored;
use super::super::seal::Sealer;
use super::open::{self, DATABASE_FILE};
use super::reseal::{self, Resealed};
use super::restore::{self, Lost};
use crate::secret::MasterKey;

/// The backup on its way to the database's place.
const RESTORING_FILE: &str = "botgate.db.restoring";
/// The database that a backup has replaced.
const KEPT_FILE: &str = "botgate.db.before-restore";
/// What SQLite keeps beside a database.
const SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Whether there is a database that was sealed with this master key.
pub(crate) fn opens(data_dir: &Path, master: &MasterKey) -> Result<bool, StoreError> {
    let path = files::check_data_dir(data_dir)?.join(DATABASE_FILE);
    let Some(connection) = open::look(&path)? else { return Ok(false) };
    match open::check_master_key(&connection, &Sealer::new(master), &path) {
        Ok(()) => Ok(true),
        Err(StoreError::WrongMasterKey { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The audit log's keys that were given up, oldest first.
pub(crate) fn past_audit_keys(data_dir: &Path, master: &MasterKey) -> Result<Vec<[u8; 32]>, StoreError> {
    let path = files::check_data_dir(data_dir)?.join(DATABASE_FILE);
    let Some(mut connection) = open::look(&path)? else { return Ok(Vec::new()) };
    let sealer = Sealer::new(master);
    open::check_master_key(&connection, &sealer, &path)?;
    reseal::past_audit_keys(&connection.transaction()?, &sealer)
}

/// Seals everything under another master key, in one transaction.
pub(crate) fn reseal_all(
    data_dir: &Path,
    old: &MasterKey,
    new: &MasterKey,
    given_up: [u8; 32],
) -> Result<Resealed, StoreError> {
    let (old, new) = (Sealer::new(old), Sealer::new(new));
    let mut connection = open::open(data_dir, &old)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = reseal::reseal(&transaction, &old, &new, given_up)?;
    transaction.commit()?;
    // What was sealed with the old key stays in no log.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(done)
}

/// Copies the database, as one moment shows it, into an empty file. What was deleted from it is not in the copy.
pub(crate) fn copy(data_dir: &Path, to: &Path) -> Result<(), StoreError> {
    let path = files::check_data_dir(data_dir)?.join(DATABASE_FILE);
    let Some(connection) = open::look(&path)? else {
        return Err(files::io_error(&path, io::ErrorKind::NotFound.into()));
    };
    connection.execute("VACUUM INTO ?1", params![text(to)?])?;
    let Some(copy) = open::look(to)? else {
        return Err(StoreError::Damaged { path: to.to_owned(), why: "it is empty".to_owned() });
    };
    check(&copy, to)
}

/// Reads a whole database, and says what is wrong with it.
fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(StoreError::Damaged { path: path.to_owned(), why: found }) }
}

fn text(path: &Path) -> Result<&str, StoreError> {
    path.to_str().ok_or_else(|| files::unsafe_file(path, "is a name that the database cannot use".to_owned()))
}

/// The database in place, as far as it can be asked.
enum Present {
    Missing,
    Unreadable,
    Readable,
}

/// Puts a backup in the database's place, once what it grants was confirmed. `sealed_with`: the backup's own master key, and
/// the audit log's key under it.
pub(crate) fn replace(
    data_dir: &Path,
    master: &MasterKey,
    backup: &Path,
    sealed_with: Option<(&MasterKey, [u8; 32])>,
    trust_people: bool,
) -> Result<Restored, StoreError> {
    let dir = files::check_data_dir(data_dir)?;
    let (path, restoring) = (dir.join(DATABASE_FILE), dir.join(RESTORING_FILE));
    let sealer = Sealer::new(master);
    let present = present(&path, &sealer)?;
    take_in(backup, &restoring)?;
    let built = build(&restoring, &path, &sealer, sealed_with, &present, trust_people);
    let (lost, people, sessions) = match built {
        Ok(built) => built,
        Err(error) => {
            remove(&restoring)?;
            // The copy's name means nothing to whoever asked.
            return Err(match error {
                StoreError::WrongMasterKey { .. } => StoreError::WrongMasterKey { path: backup.to_owned() },
                StoreError::NotOurs { .. } => StoreError::NotOurs { path: backup.to_owned() },
                StoreError::Damaged { why, .. } => StoreError::Damaged { path: backup.to_owned(), why },
                other => other,
            });
        }
    };
    let kept = keep(&dir, &path, &present)?;
    fs::rename(&restoring, &path).map_err(|source| files::io_error(&path, source))?;
    files::sync_dir(&dir)?;
    let compared = matches!(present, Present::Readable);
    Ok(Restored { compared, people, people_refused: lost.people, sessions, revoked: lost.credentials, kept })
}

/// Looks whether the database in place can tell what was revoked. One of somebody else's, or from a newer version, is an error.
fn present(path: &Path, sealer: &Sealer) -> Result<Present, StoreError> {
    // All of a young database may still be in its log.
    let empty = || path.metadata().is_ok_and(|data| data.len() == 0);
    if !files::check_file(path)? || (empty() && !open::with_suffix(path, "-wal").exists()) {
        return Ok(Present::Missing);
    }
    // Migrated, so that it has the backup's tables, and in one file, so that nothing of it is left beside its successor.
    let readable = open::connect(path, sealer).and_then(|connection| {
        check(&connection, path)?;
        connection.pragma_update(None, "journal_mode", "DELETE")?;
        connection.close().map_err(|(_, error)| error.into())
    });
    match readable {
        Ok(()) => Ok(Present::Readable),
        Err(
            error @ (StoreError::NotOurs { .. } | StoreError::NewerSchema { .. } | StoreError::WrongMasterKey { .. }),
        ) => Err(error),
        Err(error @ (StoreError::Full | StoreError::Busy | StoreError::ReadOnly)) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "the database in place cannot be read, and so confirms nothing");
            Ok(Present::Unreadable)
        }
    }
}

/// Copies the backup into the data directory.
fn take_in(backup: &Path, restoring: &Path) -> Result<(), StoreError> {
    let failed = |source| files::io_error(backup, source);
    let mut from = File::open(backup).map_err(failed)?;
    if !from.metadata().map_err(failed)?.is_file() {
        return Err(files::unsafe_file(backup, "is not a regular file".to_owned()));
    }
    remove(restoring)?;
    let mut to = files::create_private(restoring)?;
    io::copy(&mut from, &mut to).and_then(|_| to.sync_all()).map_err(failed)
}

fn remove(path: &Path) -> Result<(), StoreError> {
    for suffix in ["", SIDE_FILES[0], SIDE_FILES[1], SIDE_FILES[2]] {
        let path = open::with_suffix(path, suffix);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(files::io_error(&path, error)),
            _ => {}
        }
    }
    Ok(())
}

/// Makes the backup what it is to be, in one file.
fn build(
    restoring: &Path,
    path: &Path,
    sealer: &Sealer,
    sealed_with: Option<(&MasterKey, [u8; 32])>,
    present: &Present,
    trust_people: bool,
) -> Result<(Lost, usize, usize), StoreError> {
    match open::look(restoring)? {
        Some(connection) => check(&connection, restoring)?,
        None => return Err(StoreError::NotOurs { path: restoring.to_owned() }),
    }
    let own = sealed_with.map(|(key, given_up)| (Sealer::new(key), given_up));
    let mut connection = open::connect(restoring, own.as_ref().map_or(sealer, |(own, _)| own))?;
    if matches!(present, Present::Readable) {
        connection.execute("ATTACH DATABASE ?1 AS present", params![text(path)?])?;
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let Some((own, given_up)) = &own {
        reseal::reseal(&transaction, own, sealer, *given_up)?;
    }
    let lost = match present {
        Present::Readable => restore::confirm(&transaction)?,
        Present::Missing | Present::Unreadable => restore::distrust(&transaction, trust_people)?,
    };
    let (people, sessions) = restore::counts(&transaction)?;
    transaction.commit()?;
    if matches!(present, Present::Readable) {
        connection.execute("DETACH DATABASE present", [])?;
    }
    connection.pragma_update(None, "journal_mode", "DELETE")?;
    connection.close().map_err(|(_, error)| error)?;
    // The rename that follows must not come to the disk ahead of it.
    File::open(restoring).and_then(|file| file.sync_all()).map_err(|source| files::io_error(restoring, source))?;
    Ok((lost, people, sessions))
}

/// Keeps the database in place under another name as well; what SQLite left beside one that cannot be read goes with it.
fn keep(dir: &Path, path: &Path, present: &Present) -> Result<Option<PathBuf>, StoreError> {
    let kept = dir.join(KEPT_FILE);
    if matches!(present, Present::Missing) {
        remove(path)?;
        return Ok(None);
    }
    remove(&kept)?;
    for suffix in SIDE_FILES {
        let (from, to) = (open::with_suffix(path, suffix), open::with_suffix(&kept, suffix));
        match fs::rename(&from, to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(files::io_error(&from, error)),
            _ => {}
        }
    }
    fs::hard_link(path, &kept).map_err(|source| files::io_error(&kept, source))?;
    files::sync_dir(dir)?;
    Ok(Some(kept))
}
