//! The store's methods about people.

use super::model::{Deleting, ImportLine, ImportOutcome, LockedDown, NewPerson, PersonRow, PersonState};
use super::sqlite::people as sql;
use super::{Backend, Store, StoreError, bounded};
use crate::names::{Login, Uid};

impl Store {
    /// Adds a person without a bot.
    ///
    /// # Errors
    /// [`StoreError::LoginTaken`], also while whoever had the login is still being deleted.
    pub async fn add_person(&self, person: NewPerson) -> Result<PersonRow, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::add(tx, &person)).await
    }

    /// Adds many people, and adopts the bots of those whose line has a key, in one transaction.
    ///
    /// The outcomes stand in the order of the lines. A taken login is left as it is.
    ///
    /// # Errors
    /// [`StoreError::TooMany`] over [`super::MAX_BATCH`] lines, or the database failed: then no line was imported.
    pub async fn import_people(&self, lines: Vec<ImportLine>) -> Result<Vec<ImportOutcome>, StoreError> {
        bounded(&lines)?;
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, sealer| sql::import(tx, sealer, &lines)).await
    }

    /// The person of a login.
    ///
    /// # Errors
    /// The database could not be read.
    pub async fn person(&self, login: Login) -> Result<Option<PersonRow>, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.read(move |tx, _| sql::find(tx, &login)).await
    }

    /// All people whose row can be read, by login. Before anything is deleted for want of a person, ask
    /// [`super::Loaded::people_are_complete`].
    ///
    /// # Errors
    /// The database could not be read.
    pub async fn list_people(&self) -> Result<Vec<PersonRow>, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.read(|tx, _| sql::list(tx)).await
    }

    /// Enables or disables a person. Sessions stay as they are; [`Store::list_sessions`] finds those to bring back.
    ///
    /// # Errors
    /// [`StoreError::NoSuchPerson`]; [`StoreError::WrongState`] for a person who is being deleted, or when `state` is
    /// [`PersonState::Deleting`], which only [`Store::delete_person`] sets.
    pub async fn set_state(&self, login: Login, state: PersonState) -> Result<PersonRow, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::set_state(tx, &login, state)).await
    }

    /// Begins to delete a person: state `deleting`, sessions, personal tokens and bot tokens revoked. Repeatable.
    ///
    /// The row, the profile and the key stay until [`Store::finish_delete`], and so does the claim on the login.
    ///
    /// # Errors
    /// [`StoreError::NoSuchPerson`].
    pub async fn delete_person(&self, login: Login) -> Result<Deleting, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::delete(tx, &login)).await
    }

    /// Removes a person's rows once the bot is proved gone; only then can the login be used again.
    ///
    /// # Errors
    /// [`StoreError::NoSuchPerson`]; [`StoreError::WrongState`] unless the person is being deleted.
    pub async fn finish_delete(&self, uid: Uid) -> Result<(), StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::finish_delete(tx, &uid)).await
    }

    /// Disables one person, or everybody, and revokes sessions, personal tokens and bot tokens.
    ///
    /// # Errors
    /// [`StoreError::NoSuchPerson`].
    pub async fn lockdown(&self, login: Option<Login>) -> Result<LockedDown, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::lockdown(tx, login.as_ref())).await
    }
}
