//! The store's methods about sessions and personal tokens.

use super::model::{IdleFlush, NewSession, SessionFilter, SessionRefused, SessionRow};
use super::sqlite::sessions as sql;
use super::{Backend, Store, StoreError, bounded};
use crate::names::Uid;
use crate::secret::TokenKind;

impl Store {
    /// Stores sessions or personal tokens in one transaction; the outcomes stand in the order given.
    ///
    /// # Errors
    /// [`StoreError::TooMany`] over [`super::MAX_BATCH`], or the database failed: then none was stored.
    pub async fn create_sessions(
        &self,
        sessions: Vec<NewSession>,
    ) -> Result<Vec<Result<SessionRow, SessionRefused>>, StoreError> {
        bounded(&sessions)?;
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::create(tx, &sessions)).await
    }

    /// Revokes one session or personal token. Repeatable; the first time counts.
    ///
    /// # Errors
    /// [`StoreError::NoSuchToken`].
    pub async fn revoke_session(&self, id: Uid) -> Result<SessionRow, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::revoke(tx, &id)).await
    }

    /// Revokes a person's sessions of the given kinds and returns those that this call revoked.
    ///
    /// # Errors
    /// The database failed.
    pub async fn revoke_sessions_of(&self, uid: Uid, kinds: Vec<TokenKind>) -> Result<Vec<SessionRow>, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::revoke_of(tx, &uid, &kinds)).await
    }

    /// One page of sessions, by id.
    ///
    /// # Errors
    /// The database could not be read.
    pub async fn list_sessions(&self, filter: SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.read(move |tx, _| sql::list(tx, &filter)).await
    }

    /// Writes down the use of sessions since the last flush. A revoked session stays as it is; no end moves nearer.
    ///
    /// # Errors
    /// [`StoreError::TooMany`], or the database failed.
    pub async fn flush_idle(&self, used: Vec<IdleFlush>) -> Result<(), StoreError> {
        bounded(&used)?;
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::flush_idle(tx, &used)).await
    }

    /// Removes rows of sessions whose end lies before the given time; how many. At most [`super::MAX_BATCH`] a call.
    ///
    /// # Errors
    /// The database failed.
    pub async fn prune_sessions(&self, ended_before: i64) -> Result<usize, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::prune(tx, ended_before)).await
    }
}
