//! The store's methods about open runs.

use super::model::RunRow;
use super::sqlite::runs as sql;
use super::{Backend, Store, StoreError};
use crate::names::Identifier;

impl Store {
    /// Notes a run that was started. Repeatable for the same person.
    ///
    /// # Errors
    /// [`StoreError::NoSuchPerson`]; [`StoreError::Conflict`] when another person has a run of that name.
    pub async fn put_run(&self, run: RunRow) -> Result<(), StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::put(tx, &run)).await
    }

    /// Forgets a run that was seen to end; whether it was known.
    ///
    /// # Errors
    /// The database failed.
    pub async fn remove_run(&self, run_id: Identifier) -> Result<bool, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::remove(tx, &run_id)).await
    }
}
