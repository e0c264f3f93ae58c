//! `backup` and `restore`: the database as a whole.

use std::path::{Path, PathBuf};

use super::args::RestoreArgs;
use super::client::{Admin, with_admin};
use super::key::{alone, given};
use super::out::{Failure, Out};
use crate::admin::wire::Empty;
use crate::config::Config;
use crate::lifecycle::Upkeep;
use crate::store::{Restore, backup, master_key, restore, settled_master_key};

pub(super) fn run(path: &Path, with_master_key: bool, config: &Config, out: Out) -> Result<(), Failure> {
    let failed = |error: crate::store::StoreError| Failure::from_error(&error);
    let path = named(path)?;
    let key = with_master_key.then(|| master_key(&config.data_dir)).transpose().map_err(failed)?;
    let made = with_admin(config, |admin| {
        let upkeep = Upkeep::Backup { path: path.display().to_string() };
        admin.call::<Empty>("/audit/upkeep", &upkeep)?;
        backup(&config.data_dir, &path, key.as_ref()).map_err(failed)
    })?;
    let value = serde_json::json!({ "path": made.path, "bytes": made.bytes, "master_key": made.master_key });
    out.show(&value, || {
        let kept = match &made.master_key {
            Some(key) => {
                format!("{}: the master key; keep it elsewhere, for both together open every bot's key", key.display())
            }
            None => "without the master key it opens nothing: keep a copy of that elsewhere".to_owned(),
        };
        format!("{}: {} bytes\n{kept}", made.path.display(), made.bytes)
    })
}

/// The file to make: a directory gets one named after the time.
fn named(path: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    if !path.is_dir() {
        return Ok(path);
    }
    Ok(path.join(format!("botgate-{}.db", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%3fZ"))))
}

pub(super) fn restored(args: &RestoreArgs, config: &Config, out: Out) -> Result<(), Failure> {
    let failed = |error: crate::store::StoreError| Failure::from_error(&error);
    let sealed_with = args.master_key.as_deref().map(given).transpose()?;
    let file = std::path::absolute(&args.file).map_err(Failure::new)?;
    let lock = alone(config)?;
    let master = settled_master_key(&config.data_dir).map_err(failed)?;
    let how = Restore { backup: &file, sealed_with: sealed_with.as_ref(), trust_people: args.trust_people };
    let done = restore(&config.data_dir, &master, &how).map_err(|error| match error {
        error @ crate::store::StoreError::WrongMasterKey { .. } => {
            Failure::with_next(error, "give the master key that it was sealed with: --master-key FILE")
        }
        other => failed(other),
    })?;
    let upkeep = Upkeep::Restore { path: file.display().to_string(), restored: done.clone() };
    Admin::alone(config, lock, "/audit/upkeep", &upkeep)?;
    out.show(&done, || {
        let mut text = format!("restored: {} people; {} sessions and tokens count\n", done.people, done.sessions);
        text.push_str(&match done.compared {
            true => format!(
                "refused because the database before it says so: {} people, {} credentials\n",
                done.people_refused, done.revoked
            ),
            false => format!(
                "no database tells what was revoked since: {} credentials revoked, {} people disabled\n\
                 \x20 next: botgate user enable LOGIN for each who may come in\n",
                done.revoked, done.people_refused
            ),
        });
        if let Some(kept) = &done.kept {
            text.push_str(&format!("the database before it: {}\n", kept.display()));
        }
        text
    })
}
