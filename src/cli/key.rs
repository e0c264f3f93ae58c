//! `key rotate`: everything sealed is sealed anew under another master key.

use std::path::Path;

use super::client::Admin;
use super::out::{Failure, Out};
use crate::config::Config;
use crate::lifecycle::Upkeep;
use crate::secret::MasterKey;
use crate::store::{DataDirLock, Resealed, Rotated, StoreError, is_sealed_with, read_master_key, rotate_master_key};

pub(super) fn rotate(new_key: Option<&Path>, config: &Config, out: Out) -> Result<(), Failure> {
    let given = new_key.map(given).transpose()?;
    let lock = alone(config)?;
    let failed = |error: StoreError| Failure::from_error(&error);
    // A credential that holds the old key still opens nothing more, not even the audit log.
    let already = given.as_ref().map_or(Ok(false), |key| is_sealed_with(&config.data_dir, key)).map_err(failed)?;
    let (rotated, _lock) = match already {
        true => (Rotated::Already, lock),
        false => {
            // Ahead of the work: afterwards the record might be lost, and one too many does less harm.
            let lock = Admin::alone(config, lock, "/audit/upkeep", &Upkeep::KeyRotation)?;
            (rotate_master_key(&config.data_dir, given.as_ref()).map_err(failed)?, lock)
        }
    };
    let (keys, unopened) = match rotated {
        Rotated::Done(Resealed { keys, unopened }) | Rotated::InCredential(Resealed { keys, unopened }) => {
            (keys, unopened)
        }
        Rotated::Already => (0, 0),
    };
    let value = serde_json::json!({
        "rotated": rotated != Rotated::Already, "keys": keys, "unopened": unopened,
        "credential": matches!(rotated, Rotated::InCredential(_)),
    });
    out.show(&value, || match rotated {
        Rotated::Already => "it was rotated before: everything is sealed under this key".to_owned(),
        Rotated::InCredential(_) => format!(
            "{keys} keys are sealed under the new master key\n\
             \x20 next: put the new key in the credential's place; until then botgate does not start"
        ),
        Rotated::Done(_) => format!(
            "{keys} keys are sealed under the new master key; the old one opens nothing any more\n\
             \x20 next: make a backup, because older ones need the old key"
        ),
    })
}

/// The lock, which a serving edge would have.
pub(super) fn alone(config: &Config) -> Result<DataDirLock, Failure> {
    DataDirLock::acquire(&config.data_dir).map_err(|error| match error {
        StoreError::Locked { .. } => Failure::with_next(error, "stop it, and then try again"),
        other => Failure::from_error(&other),
    })
}

/// A master key from a file.
pub(super) fn given(path: &Path) -> Result<MasterKey, Failure> {
    read_master_key(path).map_err(|error| match error {
        StoreError::NoMasterKey { path } => Failure::new(format!("{}: there is no such file", path.display())),
        other => Failure::from_error(&other),
    })
}
