//! Bots: register a profile that exists, tell what the proof says, issue its MCP token.

use crate::config::Gateway;
use crate::directory::Bot;
use crate::names::{GatewayName, Login};
use crate::secret::{ApiServerKey, FreshToken, TokenKind};
use crate::store::{BotKey, BotTokenRow, PersonRow, PersonState, StoreError};

use super::open::default_key;
use super::{Caller, Control, ControlError, Proof};

impl Control {
    /// Registers a profile that exists as the person's bot, or takes over the new key of one that is registered.
    ///
    /// While serving it is proved at once, and the proof told. A refused key is stored all the same: the bot is not
    /// served until it proves.
    ///
    /// # Errors
    /// No such person or gateway, a key that is somebody else's, or the store failed.
    pub async fn adopt(
        &self,
        caller: Caller,
        login: &Login,
        gateway: Option<&GatewayName>,
        key: ApiServerKey,
    ) -> Result<(BotKey, Option<Proof>), ControlError> {
        let stored = {
            let _changing = self.changing().await;
            let person = self.person(login).await?;
            self.refuse_foreign_key(login, &key)?;
            let stored = self.store_key(&person, gateway, key).await?;
            self.directory().insert([self.bot_of(stored.clone())?]);
            stored
        };
        let detail = [("gateway", stored.gateway.to_string()), ("generation", stored.generation.to_string())];
        self.record(caller, "bot.adopt", login.as_str(), &detail).await?;
        let proof = match self.is_serving() {
            true => Some(self.prove(login).await?),
            false => None,
        };
        Ok((stored, proof))
    }

    async fn store_key(
        &self,
        person: &PersonRow,
        gateway: Option<&GatewayName>,
        key: ApiServerKey,
    ) -> Result<BotKey, ControlError> {
        if person.state == PersonState::Deleting {
            return Err(StoreError::WrongState(person.state).into());
        }
        if person.profile.is_some() {
            let current = person.gateway.as_ref();
            if let (Some(asked), Some(current)) = (gateway, current)
                && asked != current
            {
                return Err(ControlError::OtherGateway(current.clone()));
            }
            return Ok(self.store().set_bot_key(person.login.clone(), key).await?);
        }
        let gateway = self.choose_gateway(gateway, person.gateway.as_ref())?;
        self.room_at(&gateway, 1)?;
        Ok(self.store().adopt_bot(person.login.clone(), gateway.name, key).await?.1)
    }

    /// The gateway that was named, or the person's own, or the only one.
    pub(super) fn choose_gateway(
        &self,
        named: Option<&GatewayName>,
        own: Option<&GatewayName>,
    ) -> Result<Gateway, ControlError> {
        let configured = &self.config().gateways;
        match (named.or(own), &configured[..]) {
            (Some(name), all) => {
                let found = all.iter().find(|gateway| gateway.name == *name);
                found.cloned().ok_or_else(|| ControlError::NoSuchGateway(name.clone()))
            }
            (None, [only]) => Ok(only.clone()),
            (None, _) => Err(ControlError::GatewayNeeded),
        }
    }

    /// Refuses when a gateway has no room for more bots.
    pub(super) fn room_at(&self, gateway: &Gateway, more: usize) -> Result<(), ControlError> {
        let Some(most) = gateway.max_bots else { return Ok(()) };
        let has = self.directory().snapshot().values().filter(|bot| *bot.gateway().name() == gateway.name).count();
        if has + more > most {
            return Err(ControlError::GatewayFull { gateway: gateway.name.clone(), most });
        }
        Ok(())
    }

    /// A key shared by two profiles would make the proof take the whole gateway out of service.
    fn refuse_foreign_key(&self, login: &Login, key: &ApiServerKey) -> Result<(), ControlError> {
        if let Some((gateway, _)) =
            self.default_keys().into_iter().find(|(_, default)| default.expose() == key.expose())
        {
            return Err(ControlError::DefaultKey(gateway));
        }
        let bots = self.directory().snapshot();
        let taken = bots.values().find(|bot| bot.login() != login && bot.key().expose() == key.expose());
        match taken {
            Some(bot) => Err(ControlError::KeyTaken(bot.login().clone())),
            None => Ok(()),
        }
    }

    /// The default profiles' keys. A file that cannot be read is told at the start and by doctor.
    pub(super) fn default_keys(&self) -> Vec<(GatewayName, ApiServerKey)> {
        let read = |gateway: &Gateway| Some((gateway.name.clone(), default_key(gateway).ok().flatten()?));
        self.config().gateways.iter().filter_map(read).collect()
    }

    /// A live bot.
    ///
    /// # Errors
    /// The person has none, or there is no such person.
    pub async fn live_bot(&self, login: &Login) -> Result<std::sync::Arc<Bot>, ControlError> {
        match self.directory().bot(login) {
            Some(bot) => Ok(bot),
            None => {
                self.person(login).await?;
                Err(StoreError::NoBot.into())
            }
        }
    }

    /// Issues the bot's MCP token. The one before it ends.
    ///
    /// # Errors
    /// The person has no bot or is not active, or the store failed.
    pub async fn issue_bot_token(
        &self,
        caller: Caller,
        login: &Login,
    ) -> Result<(FreshToken, BotTokenRow), ControlError> {
        let token = FreshToken::generate(TokenKind::Bot);
        let row = {
            let _changing = self.changing().await;
            let person = self.person(login).await?;
            self.store().issue_bot_token(person.uid, token.digest(), false).await?
        };
        self.record(caller, "bot.token", login.as_str(), &[("id", row.id.to_string())]).await?;
        Ok((token, row))
    }
}
