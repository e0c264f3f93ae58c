//! Store: people, bots, sessions and open runs, kept over restarts.
//!
//! Invariants: each method is one transaction, so that it happens wholly or not at all; `API_SERVER_KEY`s are sealed to
//! their person, of tokens only digests are kept; what is revoked or being deleted never comes back; a row that cannot
//! be used harms its own person only; a method that returned `Ok` survives a crash of the process and of the machine.
//! One thread owns the database and works through a bounded queue, so that nothing here blocks a runtime.
//! The store changes rows, not the live edge, and the data path never waits for it.

mod backup;
mod bots;
mod error;
mod files;
mod lock;
mod master;
mod model;
mod people;
mod restore;
mod rotation;
mod runs;
mod seal;
mod sessions;
mod sqlite;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use backup::{Backup, backup};
pub use error::StoreError;
pub use files::prepare_data_dir;
pub use lock::DataDirLock;
pub use master::{create_master_key, master_key, read_master_key};
pub use model::{
    BotKey, BotTokenRow, Deleting, IdleFlush, ImportLine, ImportOutcome, Loaded, LockedDown, NewPerson, NewSession,
    PersonRow, PersonState, RowFault, RowProblem, RunRow, SessionFilter, SessionRefused, SessionRow,
};
pub use restore::{Restore, Restored, restore};
pub use rotation::{Rotated, audit_keys, is_sealed_with, rotate_master_key, settled_master_key};
pub use sqlite::reseal::Resealed;

use crate::secret::MasterKey;

/// Most rows that one call takes.
pub const MAX_BATCH: usize = 100_000;

/// A handle on the database; clones share it. The last one to go closes it.
///
/// A call whose future is dropped before its turn is withdrawn; one whose turn has come runs to its end.
#[derive(Debug, Clone)]
pub struct Store {
    backend: Backend,
}

/// Which database is behind the store. Every method takes this apart, so that another one cannot be forgotten.
#[derive(Debug, Clone)]
enum Backend {
    Sqlite(sqlite::Handle),
}

impl Store {
    /// Opens `botgate.db` in the data directory, makes or migrates its schema, and starts its thread. Blocks.
    ///
    /// Hold a [`DataDirLock`] first: the live edge would not see what a second process changes.
    ///
    /// # Errors
    /// The directory or a file is missing, unsafe, read-only or damaged; a newer botgate wrote the database; it was
    /// sealed with another master key.
    pub fn open(data_dir: &Path, master: &MasterKey) -> Result<Self, StoreError> {
        Ok(Store { backend: Backend::Sqlite(sqlite::Handle::open(data_dir, master)?) })
    }

    /// Everything that the edge needs at its start. Rows that cannot be used come out as problems.
    ///
    /// # Errors
    /// The database could not be read.
    pub async fn load(&self) -> Result<Loaded, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.read(sqlite::load::load).await
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// It does not, or not in time.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.read(|tx, _| Ok(tx.query_row("SELECT count(*) FROM meta", [], |_| Ok(()))?)).await
    }

    /// Finishes what is queued and closes the database; later calls answer [`StoreError::Stopped`].
    ///
    /// # Errors
    /// The database did not close in time.
    pub async fn close(&self) -> Result<(), StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.close().await
    }
}

/// Now, in UTC milliseconds.
fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Refuses a batch over the bound.
fn bounded<T>(batch: &[T]) -> Result<(), StoreError> {
    if batch.len() > MAX_BATCH { Err(StoreError::TooMany { most: MAX_BATCH }) } else { Ok(()) }
}
