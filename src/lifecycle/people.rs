//! People: make known, refuse, let back in.

use crate::identity::SessionParts;
use crate::names::{Login, Role, Uid};
use crate::store::{NewPerson, PersonRow, PersonState, SessionFilter, SessionRow, StoreError};

use super::error::is_refusal;
use super::load::idle_of;
use super::{Caller, Control, ControlError};

/// Rows that one page of sessions brings.
const PAGE: usize = 10_000;

impl Control {
    /// Makes a person known. They can sign in once they have a bot and a session.
    ///
    /// # Errors
    /// The login is taken, or the store failed.
    pub async fn add_person(&self, caller: Caller, login: Login, role: Role) -> Result<PersonRow, ControlError> {
        let row = {
            let _changing = self.changing().await;
            let row = self.store().add_person(NewPerson { login, role, gateway: None }).await?;
            self.person_is_known(&row);
            row
        };
        let detail = [("role", row.role.to_string())];
        self.record(caller, "user.add", row.login.as_str(), &detail).await?;
        Ok(row)
    }

    /// All people, by login.
    ///
    /// # Errors
    /// The store failed.
    pub async fn list_people(&self) -> Result<Vec<PersonRow>, ControlError> {
        Ok(self.store().list_people().await?)
    }

    /// The person of a login.
    ///
    /// # Errors
    /// There is none, or the store failed.
    pub async fn person(&self, login: &Login) -> Result<PersonRow, ControlError> {
        let row = self.store().person(login.clone()).await?;
        row.ok_or_else(|| ControlError::NoSuchPerson(login.clone()))
    }

    /// Refuses a person and cuts what they run. Their sessions count again after [`Control::enable`].
    ///
    /// # Errors
    /// There is no such person, they are being deleted, or the store failed; in the last case they are refused all the
    /// same until this process ends.
    pub async fn disable(&self, caller: Caller, login: &Login) -> Result<PersonRow, ControlError> {
        self.cut_off(login);
        let row = {
            let _changing = self.changing().await;
            match self.store().set_state(login.clone(), PersonState::Disabled).await {
                Ok(row) => {
                    self.sessions().disable(&row.uid);
                    row
                }
                Err(error) if is_refusal(&error) => return Err(error.into()),
                Err(error) => {
                    // Who has no bot is refused anyway.
                    let Some(bot) = self.directory().bot(login) else { return Err(error.into()) };
                    self.sessions().disable(bot.uid());
                    return Err(ControlError::NotStored(error));
                }
            }
        };
        self.record(caller, "user.disable", login.as_str(), &[]).await?;
        Ok(row)
    }

    /// Lets a disabled person back in, with the sessions that were not revoked meanwhile.
    ///
    /// # Errors
    /// There is no such person, they are being deleted, or the store failed.
    pub async fn enable(&self, caller: Caller, login: &Login) -> Result<PersonRow, ControlError> {
        let row = {
            let _changing = self.changing().await;
            let row = self.store().set_state(login.clone(), PersonState::Active).await?;
            // Who is in already keeps what they run.
            if self.sessions().person(&row.uid).is_none_or(|person| person.cancelled().is_cancelled()) {
                let live = self.live_sessions_of(&row.uid).await?;
                // What the store holds is what counts: the map starts anew for this person.
                self.sessions().revoke_person(&row.uid);
                self.sessions().enable(&row.uid);
                for session in live {
                    self.session_is_live(session);
                }
            }
            row
        };
        self.record(caller, "user.enable", login.as_str(), &[]).await?;
        Ok(row)
    }

    /// Refuses a person on the live edge ahead of the store: a long import may be before them in line. Who has no bot is
    /// refused anyway.
    pub(super) fn cut_off(&self, login: &Login) {
        if let Some(bot) = self.directory().bot(login) {
            self.sessions().disable(bot.uid());
        }
    }

    async fn live_sessions_of(&self, uid: &Uid) -> Result<Vec<SessionRow>, StoreError> {
        let mut all: Vec<SessionRow> = Vec::new();
        loop {
            let after = all.last().map(|row| row.id.clone());
            let filter = SessionFilter { uid: Some(uid.clone()), kind: None, live_only: true, after, limit: PAGE };
            let page = self.store().list_sessions(filter).await?;
            let full = page.len() >= PAGE;
            all.extend(page);
            if !full {
                return Ok(all);
            }
        }
    }

    pub(super) fn person_is_known(&self, row: &PersonRow) {
        let enabled = row.state == PersonState::Active;
        self.sessions().add_person(row.uid.clone(), row.login.clone(), row.role.clone(), enabled);
    }

    pub(super) fn session_is_live(&self, row: SessionRow) {
        let idle = idle_of(&row);
        let SessionRow { id, digest, uid, kind, label, created_at, expires_at, .. } = row;
        self.sessions().insert(&uid, SessionParts { id, digest, kind, label, created_at, expires_at, idle });
    }
}
