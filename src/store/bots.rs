//! The store's methods about bots: their keys and their MCP tokens.

use super::model::{BotKey, BotTokenRow, PersonRow};
use super::sqlite::bots as sql;
use super::{Backend, Store, StoreError, bounded};
use crate::names::{GatewayName, Login, Uid};
use crate::secret::{ApiServerKey, TokenDigest};

impl Store {
    /// Registers a profile that exists as the person's bot.
    ///
    /// # Errors
    /// [`StoreError::NoSuchPerson`], [`StoreError::BotExists`], or [`StoreError::WrongState`] for a person who is being
    /// deleted.
    pub async fn adopt_bot(
        &self,
        login: Login,
        gateway: GatewayName,
        key: ApiServerKey,
    ) -> Result<(PersonRow, BotKey), StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, sealer| sql::adopt(tx, sealer, &login, &gateway, &key)).await
    }

    /// Replaces a bot's key under the next generation. It also repairs a row that does not open.
    ///
    /// # Errors
    /// [`StoreError::NoSuchPerson`] or [`StoreError::NoBot`].
    pub async fn set_bot_key(&self, login: Login, key: ApiServerKey) -> Result<BotKey, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, sealer| sql::set_key(tx, sealer, &login, &key)).await
    }

    /// Stores a bot's new MCP token.
    ///
    /// With `keep_current` the token that was current stays valid beside the new one, so that the bot can change over;
    /// older ones, and without `keep_current` all others, are revoked in the same transaction.
    ///
    /// # Errors
    /// [`StoreError::NoSuchPerson`]; [`StoreError::NoBot`]; [`StoreError::WrongState`] unless the person is active.
    pub async fn issue_bot_token(
        &self,
        uid: Uid,
        digest: TokenDigest,
        keep_current: bool,
    ) -> Result<BotTokenRow, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::issue_token(tx, &uid, digest, keep_current)).await
    }

    /// Revokes a bot token. Repeatable; the first time counts.
    ///
    /// # Errors
    /// [`StoreError::NoSuchToken`].
    pub async fn revoke_bot_token(&self, id: Uid) -> Result<BotTokenRow, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::revoke_token(tx, &id)).await
    }

    /// A person's bot tokens that are not revoked, the newest first: at most two.
    ///
    /// # Errors
    /// The database could not be read.
    pub async fn bot_tokens(&self, uid: Uid) -> Result<Vec<BotTokenRow>, StoreError> {
        let Backend::Sqlite(database) = &self.backend;
        database.read(move |tx, _| sql::valid_tokens(tx, &uid)).await
    }

    /// Notes when bot tokens were last used: row and UTC milliseconds.
    ///
    /// # Errors
    /// [`StoreError::TooMany`], or the database failed.
    pub async fn flush_bot_tokens(&self, used: Vec<(Uid, i64)>) -> Result<(), StoreError> {
        bounded(&used)?;
        let Backend::Sqlite(database) = &self.backend;
        database.write(move |tx, _| sql::flush_tokens(tx, &used)).await
    }
}
