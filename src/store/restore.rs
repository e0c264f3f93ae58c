//! Restore: a backup takes the place of the database, and what was revoked since stays revoked.
//!
//! Invariants: a credential counts afterwards only if it counted in the database that was there until then; without one that
//! can be read, no credential of the backup counts. Who was disabled or deleted stays so; without a database that tells,
//! everybody is disabled, unless the operator vouches for the backup. At every moment, also after a kill, the database is wholly
//! the old or wholly the new one; the old one is kept. The caller holds the lock on the data directory.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::StoreError;
use super::seal::audit_key;
use super::sqlite;
use crate::secret::MasterKey;

/// What to restore, and how.
#[derive(Debug)]
pub struct Restore<'a> {
    /// The backup.
    pub backup: &'a Path,
    /// The master key that it was sealed with, when it is not the present one.
    pub sealed_with: Option<&'a MasterKey>,
    /// People are what they were in the backup also when no database tells who was disabled or deleted since.
    pub trust_people: bool,
}

/// What a restore came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Whether the database that was there until then told what was revoked since the backup.
    pub compared: bool,
    /// People in it.
    pub people: usize,
    /// Those who are refused now and were not in the backup.
    pub people_refused: usize,
    /// Sessions and personal tokens that count.
    pub sessions: usize,
    /// Credentials that counted in the backup and do not now.
    pub revoked: usize,
    /// Where the database that was there until then is kept.
    pub kept: Option<PathBuf>,
}

/// Puts a backup in the database's place. The lock must be held. Blocks.
///
/// # Errors
/// The backup is none, damaged, or sealed with another master key; the database in place belongs to something else. Nothing was
/// changed then.
pub fn restore(data_dir: &Path, master: &MasterKey, how: &Restore<'_>) -> Result<Restored, StoreError> {
    let sealed_with = how.sealed_with.filter(|key| key.expose() != master.expose());
    let given_up = sealed_with.map(|key| (key, audit_key(key)));
    sqlite::replace(data_dir, master, how.backup, given_up, how.trust_people)
}
