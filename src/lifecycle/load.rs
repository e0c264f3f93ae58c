//! Loading: what the store holds becomes the live edge, once, before anything is served.

use std::collections::HashMap;
use std::sync::Arc;

use crate::directory::Bot;
use crate::identity::Idle;
use crate::names::Uid;
use crate::store::{BotKey, PersonState, RowProblem, RunRow, SessionRow};

use super::{Control, ControlError};

/// What a load came to.
#[derive(Debug)]
pub struct LoadReport {
    /// People known.
    pub people: usize,
    /// Bots served.
    pub bots: usize,
    /// Sessions and personal tokens that count.
    pub sessions: usize,
    /// Runs that were not seen to end.
    pub runs: Vec<RunRow>,
    /// Bots of people who are being deleted: not served, but what they still run has to be stopped.
    pub leaving: Vec<Arc<Bot>>,
    /// Rows that cannot be used, and bots at a gateway that is not configured any more.
    pub problems: Vec<String>,
}

impl Control {
    /// Fills the live maps from the store.
    ///
    /// # Errors
    /// The store failed.
    pub async fn load(&self) -> Result<LoadReport, ControlError> {
        let loaded = self.store().load().await?;
        let mut problems: Vec<String> = loaded.problems.iter().map(RowProblem::to_string).collect();
        let mut states: HashMap<Uid, PersonState> = HashMap::with_capacity(loaded.people.len());
        for person in &loaded.people {
            self.person_is_known(person);
            states.insert(person.uid.clone(), person.state);
        }
        let deleting = |uid: &Uid| states.get(uid) == Some(&PersonState::Deleting);
        self.set_orphans(states.values().filter(|&&state| state == PersonState::Deleting).count());
        let mut bots = Vec::with_capacity(loaded.bots.len());
        let mut leaving = Vec::new();
        for key in loaded.bots {
            let name = format!("bot of {} at gateway {}", key.login, key.gateway);
            match self.bot_of(key) {
                Ok(bot) if deleting(bot.uid()) => leaving.push(Arc::new(bot)),
                Ok(bot) => bots.push(bot),
                Err(error) => problems.push(format!("{name}: {error}")),
            }
        }
        let report = LoadReport {
            people: states.len(),
            bots: bots.len(),
            sessions: loaded.sessions.len(),
            runs: loaded.runs,
            leaving,
            problems,
        };
        self.directory().insert(bots);
        for session in loaded.sessions {
            self.session_is_live(session);
        }
        Ok(report)
    }

    /// The live form of a stored bot.
    pub(super) fn bot_of(&self, key: BotKey) -> Result<Bot, ControlError> {
        let gateway = self.gateway(&key.gateway)?.clone();
        // Names that share the live person's text are found equal to theirs without being read.
        let (login, uid) = match self.sessions().person(&key.uid) {
            Some(person) if *person.login() == key.login => (person.login().clone(), person.uid().clone()),
            _ => (key.login, key.uid),
        };
        // The store hands out no other profile than the login's.
        Bot::new(login, uid, key.profile, gateway, key.key).ok_or(ControlError::Store(crate::store::StoreError::NoBot))
    }
}

/// The idle end of a stored session. Its length is what is left of it at issue: the row holds no other.
pub(super) fn idle_of(row: &SessionRow) -> Option<Idle> {
    let expires_at = row.idle_expires_at?;
    let since = row.last_used_at.unwrap_or(row.created_at);
    Some(Idle { length_ms: (expires_at - since).max(0), expires_at })
}
