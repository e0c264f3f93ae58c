//! Rotation of the master key.
//!
//! Invariants: at every moment, also after a kill, exactly one of `master.key` and `master.key.next` opens the database, and
//! the next start puts it in its place. The steps: the next key is on disk; everything is sealed anew in one transaction; the
//! next key takes the master key's name. The caller holds the lock on the data directory.

use std::path::Path;

use super::error::StoreError;
use super::seal::audit_key;
use super::sqlite::reseal::Resealed;
use super::{master, sqlite};
use crate::secret::MasterKey;
use crate::telemetry::audit::AuditKeys;

/// What a rotation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotated {
    /// Everything is sealed under the new key, which is in place.
    Done(Resealed),
    /// The same, and the credential still holds the old key.
    InCredential(Resealed),
    /// It was before.
    Already,
}

/// The master key that opens the database, after finishing or undoing a rotation that broke off. The lock must be held.
///
/// # Errors
/// As [`super::master_key`]; or a file cannot be moved.
pub fn settled_master_key(data_dir: &Path) -> Result<MasterKey, StoreError> {
    match master::next_key(data_dir) {
        Ok(None) => {}
        Ok(Some(next)) if sqlite::opens(data_dir, &next)? => {
            master::adopt_next_key(data_dir)?;
            tracing::warn!("a rotation of the master key had broken off; it is finished now");
        }
        // Half written: nothing is sealed before all of it is on disk.
        Ok(Some(_)) | Err(StoreError::MalformedMasterKey { .. }) => master::drop_next_key(data_dir)?,
        Err(error) => return Err(error),
    }
    master::master_key(data_dir)
}

/// Seals everything under a new master key, `given` or a fresh one, and puts it in the place of `master.key`. Where the master
/// key is a credential, the caller has to put it in that one's place. The lock must be held. Blocks.
///
/// # Errors
/// The master key is a credential and none is given; or the database or a file cannot be used. Nothing was changed, or the
/// next [`settled_master_key`] finishes it.
pub fn rotate_master_key(data_dir: &Path, given: Option<&MasterKey>) -> Result<Rotated, StoreError> {
    let (fresh, is_credential) = (MasterKey::generate(), master::is_credential()?);
    let new = match given {
        Some(new) if sqlite::opens(data_dir, new)? => return Ok(Rotated::Already),
        Some(new) => new,
        None if is_credential => return Err(StoreError::KeyIsCredential),
        None => &fresh,
    };
    let old = settled_master_key(data_dir)?;
    if !is_credential {
        master::write_next_key(data_dir, new)?;
    }
    let done = sqlite::reseal_all(data_dir, &old, new, audit_key(&old))?;
    match is_credential {
        true => Ok(Rotated::InCredential(done)),
        false => master::adopt_next_key(data_dir).map(|()| Rotated::Done(done)),
    }
}

/// Whether a master key opens the database.
///
/// # Errors
/// The database cannot be read.
pub fn is_sealed_with(data_dir: &Path, master: &MasterKey) -> Result<bool, StoreError> {
    sqlite::opens(data_dir, master)
}

/// The keys of the audit log's seals, under this master key and those before it. Blocks.
///
/// # Errors
/// The database cannot be read, or was sealed with another master key.
pub fn audit_keys(data_dir: &Path, master: &MasterKey) -> Result<AuditKeys, StoreError> {
    Ok(AuditKeys::new(sqlite::past_audit_keys(data_dir, master)?, audit_key(master)))
}
