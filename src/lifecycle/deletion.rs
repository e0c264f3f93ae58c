//! Deleting people whose profile somebody else deletes: cut off at once, finished once the gateway answers 404.
//!
//! Repeatable at every step: who is `deleting` stays refused over restarts, and the next look at the gateway goes on.

use crate::names::{GatewayName, Login, ProfileName};
use crate::store::{BotKey, PersonRow, PersonState};

use super::error::is_refusal;
use super::{Caller, Control, ControlError};

/// What is left of somebody who is being deleted.
#[derive(Debug)]
pub enum Remains {
    /// Nothing: the login is free.
    Nothing,
    /// Nothing at the gateway; the row waits to be removed.
    Row,
    /// The profile exists, or may.
    Profile {
        /// Which.
        profile: ProfileName,
        /// Where.
        gateway: GatewayName,
        /// What the gateway said.
        said: String,
    },
}

/// One person who is being deleted.
#[derive(Debug)]
pub struct Deletion {
    /// The person.
    pub login: Login,
    /// What is left.
    pub remains: Remains,
}

impl Control {
    /// Cuts a person off for good; their rows go once the gateway says that the profile is gone.
    ///
    /// # Errors
    /// No such person, or the store failed; in the last case they are refused all the same until this process ends.
    pub async fn delete_person(&self, caller: Caller, login: &Login) -> Result<Deletion, ControlError> {
        self.cut_off(login);
        let (person, counted) = {
            let _changing = self.changing().await;
            let deleting = match self.store().delete_person(login.clone()).await {
                Ok(deleting) => deleting,
                Err(error) if is_refusal(&error) => return Err(error.into()),
                Err(error) => {
                    let Some(bot) = self.directory().bot(login) else { return Err(error.into()) };
                    self.sessions().revoke_person(bot.uid());
                    return Err(ControlError::NotStored(error));
                }
            };
            self.sessions().revoke_person(&deleting.person.uid);
            self.directory().remove(login);
            (deleting.person, self.count_orphans().await)
        };
        self.record(caller, "user.delete", login.as_str(), &[]).await?;
        counted?;
        let keys = self.store().load().await?.bots;
        let remains = self.look(&person, &keys).await;
        self.finish(caller, person, remains).await
    }

    /// Everybody who is being deleted, and what is left of them. With `apply`, those of whom nothing is left at the
    /// gateway are finished.
    ///
    /// # Errors
    /// The store failed.
    pub async fn reconcile(&self, caller: Caller, apply: bool) -> Result<Vec<Deletion>, ControlError> {
        let loaded = self.store().load().await?;
        let mut deletions = Vec::new();
        for person in loaded.people.into_iter().filter(|person| person.state == PersonState::Deleting) {
            let remains = self.look(&person, &loaded.bots).await;
            deletions.push(match apply {
                true => self.finish(caller, person, remains).await?,
                false => Deletion { login: person.login, remains },
            });
        }
        Ok(deletions)
    }

    /// Asks the gateway whether the profile is gone; asks nothing about who never had one.
    async fn look(&self, person: &PersonRow, keys: &[BotKey]) -> Remains {
        let (Some(profile), Some(gateway)) = (person.profile.clone(), person.gateway.clone()) else {
            return Remains::Row;
        };
        let key = keys.iter().find(|key| key.uid == person.uid).cloned();
        let said = match key.map(|key| self.bot_of(key)) {
            Some(Ok(bot)) => match self.profile_is_gone(&bot).await {
                Ok(()) => return Remains::Row,
                Err(said) => said,
            },
            Some(Err(error)) => error.to_string(),
            None => "its key does not open, so the gateway cannot be asked".to_owned(),
        };
        Remains::Profile { profile, gateway, said }
    }

    async fn finish(&self, caller: Caller, person: PersonRow, remains: Remains) -> Result<Deletion, ControlError> {
        if !matches!(remains, Remains::Row) {
            return Ok(Deletion { login: person.login, remains });
        }
        let counted = {
            let _changing = self.changing().await;
            self.store().finish_delete(person.uid.clone()).await?;
            self.sessions().remove_person(&person.uid);
            self.count_orphans().await
        };
        self.record(caller, "user.deleted", person.login.as_str(), &[]).await?;
        counted?;
        Ok(Deletion { login: person.login, remains: Remains::Nothing })
    }

    async fn count_orphans(&self) -> Result<(), ControlError> {
        let people = self.store().list_people().await?;
        self.set_orphans(people.iter().filter(|person| person.state == PersonState::Deleting).count());
        Ok(())
    }
}
