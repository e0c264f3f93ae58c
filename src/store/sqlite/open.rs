//! Opening: the file's safety, whose it is, its version and its master key, and only then its migrations.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::super::error::StoreError;
use super::super::files;
use super::super::now_ms;
use super::super::seal::Sealer;
use super::reseal::MASTER_CHECK;

/// The database in the data directory.
pub(crate) const DATABASE_FILE: &str = "botgate.db";
/// Marks a SQLite file as botgate's: "botg".
const APPLICATION_ID: i64 = 0x626f_7467;
/// Schema changes in order; the version of a database is how many of them it has had.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_initial.sql")];
/// Longest wait for another process that holds the database, such as a copy being made.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// The write-ahead log is cut back to this after a large transaction, in bytes.
const WAL_KEPT_BYTES: i64 = 16 << 20;

pub(super) fn open(data_dir: &Path, sealer: &Sealer) -> Result<Connection, StoreError> {
    let dir = files::check_data_dir(data_dir)?;
    let path = dir.join(DATABASE_FILE);
    for suffix in ["-wal", "-shm", "-journal"] {
        files::check_file(&with_suffix(&path, suffix))?;
    }
    if !files::check_file(&path)? {
        // SQLite would make it as the umask says; its side files take the modes of this one.
        files::create_private(&path)?;
        files::sync_dir(&dir)?;
    }
    connect(&path, sealer).map_err(|error| match error {
        // Those that name the file themselves.
        StoreError::NotOurs { .. } | StoreError::NewerSchema { .. } | StoreError::WrongMasterKey { .. } => error,
        source => StoreError::Opening { path, source: Box::new(source) },
    })
}

pub(super) fn connect(path: &Path, sealer: &Sealer) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_WAIT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    let version = version(&connection, path)?;
    if version > 0 {
        check_master_key(&connection, sealer, path)?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "journal_size_limit", WAL_KEPT_BYTES)?;
    connection.set_prepared_statement_cache_capacity(64);
    migrate(&mut connection, version, sealer)?;
    check_writable(&mut connection)?;
    Ok(connection)
}

/// A connection that changes nothing, also beside the process that serves; `None`: there is no database.
pub(super) fn look(path: &Path) -> Result<Option<Connection>, StoreError> {
    if !files::check_file(path)? {
        return Ok(None);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_WAIT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    if version(&connection, path)? == 0 { Ok(None) } else { Ok(Some(connection)) }
}

/// The schema's version; 0 for a new file. Refuses what is not ours and what is newer.
fn version(connection: &Connection, path: &Path) -> Result<usize, StoreError> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application == 0 && version == 0 && tables == 0 {
        return Ok(0);
    }
    if application != APPLICATION_ID || version < 1 {
        return Err(StoreError::NotOurs { path: path.to_owned() });
    }
    let known = MIGRATIONS.len();
    match usize::try_from(version) {
        Ok(version) if version <= known => Ok(version),
        _ => Err(StoreError::NewerSchema { path: path.to_owned(), found: version, known: known as i64 }),
    }
}

pub(super) fn check_master_key(connection: &Connection, sealer: &Sealer, path: &Path) -> Result<(), StoreError> {
    let value: Option<Vec<u8>> =
        connection.query_row("SELECT value FROM meta WHERE name = ?1", [MASTER_CHECK], |row| row.get(0)).optional()?;
    match value {
        Some(value) if sealer.opens_check_value(&value) => Ok(()),
        _ => Err(StoreError::WrongMasterKey { path: path.to_owned() }),
    }
}

/// Brings the schema up to date: all steps and the mark of the last in one transaction.
fn migrate(connection: &mut Connection, version: usize, sealer: &Sealer) -> Result<(), StoreError> {
    if version == MIGRATIONS.len() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in &MIGRATIONS[version..] {
        transaction.execute_batch(step)?;
    }
    if version == 0 {
        let mut insert = transaction.prepare("INSERT INTO meta (name, value) VALUES (?1, ?2)")?;
        insert.execute(params![MASTER_CHECK, sealer.check_value()])?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", MIGRATIONS.len() as i64)?;
    transaction.commit()?;
    Ok(())
}

/// Writes, so that a read-only or full disk is found at the start and not at the first revocation.
fn check_writable(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(
        "INSERT INTO meta (name, value) VALUES ('opened_at', ?1)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [now_ms().to_be_bytes()],
    )?;
    Ok(transaction.commit()?)
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
