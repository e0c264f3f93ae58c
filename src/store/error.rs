//! Errors of the store: typed, so that the admin side can answer each as it deserves.
//!
//! No message holds a secret; `Display` tells its own level only, the cause is the `source`.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::names::Login;

use super::model::PersonState;

/// Why the store did not do what it was asked. Unless a variant says otherwise, nothing was changed.
#[derive(Debug)]
pub enum StoreError {
    /// A file or directory could not be read, written or made.
    Io {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file or directory is not safe to use: its owner, kind or mode.
    Unsafe {
        /// Which.
        path: PathBuf,
        /// What is wrong and what to do.
        why: String,
    },
    /// Another botgate works on this data directory.
    Locked {
        /// The directory.
        path: PathBuf,
        /// Its process, when the lock file tells.
        holder: Option<u32>,
    },
    /// There is no master key.
    NoMasterKey {
        /// Where it should be.
        path: PathBuf,
    },
    /// The master key's file does not hold 64 hex digits.
    MalformedMasterKey {
        /// The file.
        path: PathBuf,
    },
    /// The master key is a systemd credential: its file is not botgate's to change.
    KeyIsCredential,
    /// A master key exists, or a database that was sealed with one.
    MasterKeyExists {
        /// The file in the way.
        path: PathBuf,
    },
    /// What was written is not what can be read back.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The database was sealed with another master key.
    WrongMasterKey {
        /// The database.
        path: PathBuf,
    },
    /// The file is a database, but not botgate's.
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// A newer botgate wrote this database.
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that this botgate knows.
        known: i64,
    },
    /// The database could not be opened: it is damaged, read-only, full or held by another process.
    Opening {
        /// The database.
        path: PathBuf,
        /// Why.
        source: Box<StoreError>,
    },
    /// The file is damaged or no database.
    Corrupt {
        /// The database's own words.
        source: rusqlite::Error,
    },
    /// No space left for the database.
    Full,
    /// The database cannot be written.
    ReadOnly,
    /// Too much is waiting for the store, or another process holds the database.
    Busy,
    /// The store did not answer in time; the change may yet have been made.
    Timeout,
    /// The store's thread has ended.
    Stopped,
    /// No such person.
    NoSuchPerson,
    /// The login is taken.
    LoginTaken {
        /// Which.
        login: Login,
        /// State of whoever has it.
        state: PersonState,
    },
    /// Not possible while the person is in this state.
    WrongState(PersonState),
    /// The person has a bot already.
    BotExists,
    /// The person has no bot.
    NoBot,
    /// No such session or token.
    NoSuchToken,
    /// The row holds what this version cannot read.
    MalformedRow,
    /// More rows in one call than allowed.
    TooMany {
        /// How many are allowed.
        most: usize,
    },
    /// A constraint of the database refused the change.
    Conflict {
        /// The database's own words.
        source: rusqlite::Error,
    },
    /// Anything else that the database reports.
    Database {
        /// The database's own words.
        source: rusqlite::Error,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Io { path, .. } => write!(f, "{}: cannot be used", path.display()),
            StoreError::Unsafe { path, why } => write!(f, "{}: {why}", path.display()),
            StoreError::Locked { path, holder: Some(pid) } => {
                write!(f, "{}: in use by another botgate, process {pid}", path.display())
            }
            StoreError::Locked { path, holder: None } => write!(f, "{}: in use by another botgate", path.display()),
            StoreError::NoMasterKey { path } => {
                write!(f, "{}: there is no master key; `botgate init` makes one", path.display())
            }
            StoreError::MalformedMasterKey { path } => {
                write!(f, "{}: a master key is 64 hex digits, and this is not", path.display())
            }
            StoreError::KeyIsCredential => f.write_str(
                "the master key is a systemd credential, whose file botgate cannot change; give the new key with --new-key",
            ),
            StoreError::MasterKeyExists { path } => {
                write!(f, "{}: exists; a new master key would not open what it seals", path.display())
            }
            StoreError::Damaged { path, why } => write!(f, "{}: is damaged: {why}", path.display()),
            StoreError::WrongMasterKey { path } => {
                write!(f, "{}: was sealed with another master key", path.display())
            }
            StoreError::NotOurs { path } => write!(f, "{}: is a database, but not botgate's", path.display()),
            StoreError::NewerSchema { path, found, known } => write!(
                f,
                "{}: schema version {found} is from a newer botgate; this one knows up to {known}",
                path.display()
            ),
            StoreError::Opening { path, .. } => write!(f, "{}: cannot be opened", path.display()),
            StoreError::Corrupt { .. } => f.write_str("the database is damaged, or the file is none"),
            StoreError::Full => f.write_str("no space is left for the database; nothing was changed"),
            StoreError::ReadOnly => f.write_str("the database is read-only; nothing was changed"),
            StoreError::Busy => f.write_str("the store is busy; nothing was changed"),
            StoreError::Timeout => {
                f.write_str("the store did not answer in time; whether the change was made is not known")
            }
            StoreError::Stopped => f.write_str("the store has stopped"),
            StoreError::NoSuchPerson => f.write_str("there is no such person"),
            StoreError::LoginTaken { login, state: PersonState::Deleting } => {
                write!(f, "{login} is still being deleted; the login is free once the bot is proved gone")
            }
            StoreError::LoginTaken { login, state } => write!(f, "{login} exists already and is {}", state.as_str()),
            StoreError::WrongState(state) => write!(f, "not possible: the person is {}", state.as_str()),
            StoreError::BotExists => f.write_str("the person has a bot already"),
            StoreError::NoBot => f.write_str("the person has no bot"),
            StoreError::NoSuchToken => f.write_str("there is no such session or token"),
            StoreError::MalformedRow => f.write_str("the row holds what this version cannot read"),
            StoreError::TooMany { most } => write!(f, "at most {most} rows in one call"),
            StoreError::Conflict { .. } => f.write_str("a constraint of the database refused the change"),
            StoreError::Database { .. } => f.write_str("the database failed"),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StoreError::Io { source, .. } => Some(source),
            StoreError::Opening { source, .. } => Some(source),
            StoreError::Corrupt { source } | StoreError::Conflict { source } | StoreError::Database { source } => {
                Some(source)
            }
            _ => None,
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(source: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::Full,
            Some(ErrorCode::ReadOnly) => StoreError::ReadOnly,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt { source },
            Some(ErrorCode::ConstraintViolation) => StoreError::Conflict { source },
            _ => StoreError::Database { source },
        }
    }
}
