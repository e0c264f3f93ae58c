//! Lockdown: refuse and cut off one person, or everybody, at once.

use crate::names::{GatewayName, Login, ProfileName, Uid};
use crate::store::{LockedDown, StoreError};

use super::{Caller, Control, ControlError};

/// What a lockdown cut off.
#[derive(Debug)]
pub struct Lockdown {
    /// People who are refused now.
    pub people: usize,
    /// Sessions and personal tokens revoked.
    pub sessions: usize,
    /// Keys that somebody has to change by hand: an agent may know them.
    pub keys: Vec<(Login, ProfileName, GatewayName)>,
}

impl Control {
    /// Disables one person, or everybody, revokes their credentials and cuts what they run.
    ///
    /// # Errors
    /// No such person, or the store failed; in the last case they are refused all the same until this process ends.
    pub async fn lockdown(&self, caller: Caller, login: Option<&Login>) -> Result<Lockdown, ControlError> {
        // Ahead of the store, which may have a long import before this.
        for uid in self.live_people(login) {
            self.sessions().disable(&uid);
        }
        let locked = {
            let _changing = self.changing().await;
            match self.store().lockdown(login.cloned()).await {
                Ok(locked) => {
                    for person in &locked.people {
                        self.sessions().revoke_person(&person.uid);
                    }
                    locked
                }
                Err(StoreError::NoSuchPerson) => {
                    return Err(
                        login.map_or(StoreError::NoSuchPerson.into(), |l| ControlError::NoSuchPerson(l.clone()))
                    );
                }
                Err(error) => {
                    for uid in self.live_people(login) {
                        self.sessions().revoke_person(&uid);
                    }
                    return Err(ControlError::NotStored(error));
                }
            }
        };
        let LockedDown { people, sessions, .. } = locked;
        let records = people.iter().map(|person| (person.login.as_str(), Vec::new())).collect();
        self.record_all(caller, "lockdown", records).await?;
        let mut keys: Vec<_> =
            people.iter().filter_map(|p| Some((p.login.clone(), p.profile.clone()?, p.gateway.clone()?))).collect();
        keys.sort();
        Ok(Lockdown { people: people.len(), sessions, keys })
    }

    fn live_people(&self, login: Option<&Login>) -> Vec<Uid> {
        match login {
            Some(login) => self.directory().bot(login).map(|bot| bot.uid().clone()).into_iter().collect(),
            None => self.sessions().people(),
        }
    }
}
