//! The audit records of an operator's actions.

use serde::{Deserialize, Serialize};

use crate::names::Login;
use crate::store::Restored;
use crate::telemetry::audit::{ActionRecord, Actor, Outcome};

use super::{Caller, Control, ControlError};

/// Records that are queued before one is waited for.
const RECORDS_AT_ONCE: usize = 1_000;

/// Further facts about an action; never a secret.
pub(super) type Detail = [(&'static str, String)];

/// Work on the database as a whole.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum Upkeep {
    /// A copy is made.
    Backup {
        /// Where.
        path: String,
    },
    /// The master key is about to be rotated.
    KeyRotation,
    /// A backup took the database's place.
    Restore {
        /// Which.
        path: String,
        /// What came of it.
        restored: Restored,
    },
}

impl Control {
    /// Records one action that was done, and waits until the record is written.
    pub(super) async fn record(
        &self,
        caller: Caller,
        action: &'static str,
        object: &str,
        detail: &Detail,
    ) -> Result<(), ControlError> {
        self.record_all(caller, action, vec![(object, detail.to_vec())]).await
    }

    /// Records the same action on several objects, and waits until the records are written.
    pub(super) async fn record_all(
        &self,
        caller: Caller,
        action: &'static str,
        objects: Vec<(&str, Vec<(&'static str, String)>)>,
    ) -> Result<(), ControlError> {
        let mut objects = objects.into_iter().peekable();
        let mut queued = 0;
        while let Some((object, detail)) = objects.next() {
            let by = Actor::Operator { unix_uid: caller.uid };
            let mut record = ActionRecord::new(by, action, object, Outcome::Finished);
            for (name, value) in detail {
                record = record.with(name, value);
            }
            queued += 1;
            // Records are written in order: waiting for one waits for those before it, and keeps within the queue.
            let outcome = match objects.peek().is_none() || queued % RECORDS_AT_ONCE == 0 {
                true => self.audit().record_written(record).await,
                false => self.audit().record(record),
            };
            outcome.map_err(|_| ControlError::NotRecorded)?;
        }
        Ok(())
    }

    /// Records that an edge has taken over changed keys of its configuration.
    ///
    /// # Errors
    /// The audit log does not take records.
    pub async fn config_is_changed(&self, caller: Caller, keys: &str) -> Result<(), ControlError> {
        self.record(caller, "config.reload", "configuration", &[("keys", keys.to_owned())]).await
    }

    /// Records that somebody reads the log, and so waits until everything before that is written.
    ///
    /// # Errors
    /// The audit log does not take records.
    pub async fn audit_is_read(&self, caller: Caller, login: Option<&Login>) -> Result<(), ControlError> {
        self.record(caller, "audit.read", login.map_or("", Login::as_str), &[]).await
    }

    /// Records work on the database as a whole, which is done from outside.
    ///
    /// # Errors
    /// The audit log does not take records.
    pub async fn note_upkeep(&self, caller: Caller, upkeep: &Upkeep) -> Result<(), ControlError> {
        match upkeep {
            Upkeep::Backup { path } => self.record(caller, "backup", path, &[]).await,
            Upkeep::KeyRotation => self.record(caller, "key.rotate", "", &[]).await,
            Upkeep::Restore { path, restored } => {
                let detail = [
                    ("compared", restored.compared.to_string()),
                    ("people_refused", restored.people_refused.to_string()),
                    ("revoked", restored.revoked.to_string()),
                ];
                self.record(caller, "restore", path, &detail).await
            }
        }
    }
}
