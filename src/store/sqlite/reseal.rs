//! SQL about the master key: everything sealed is sealed anew, in the caller's transaction.

use rusqlite::{OptionalExtension, Transaction, params};

use super::super::error::StoreError;
use super::super::seal::{Binding, Sealer};
use super::read;
use crate::names::{GatewayName, Login, ProfileName, Uid};

/// Name of the row that knows the master key again.
pub(super) const MASTER_CHECK: &str = "master_check";
/// Name of the row with the audit log's keys that were given up.
pub(super) const AUDIT_KEYS: &str = "audit_keys";
/// Rows that are held at once.
const PAGE: i64 = 1000;

/// What was sealed anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resealed {
    /// Keys that open under the new master key.
    pub keys: usize,
    /// Keys that opened under no master key, and do not now.
    pub unopened: usize,
}

/// Seals every key, and the audit log's keys with the one that is given up now, under another master key.
pub(crate) fn reseal(
    tx: &Transaction<'_>,
    old: &Sealer,
    new: &Sealer,
    given_up: [u8; 32],
) -> Result<Resealed, StoreError> {
    let mut audit_keys = past_audit_keys(tx, old)?;
    audit_keys.push(given_up);
    let mut put =
        tx.prepare("INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2")?;
    put.execute(params![AUDIT_KEYS, new.seal_audit_keys(&audit_keys)])?;
    put.execute(params![MASTER_CHECK, new.check_value()])?;
    let mut done = Resealed { keys: 0, unopened: 0 };
    let mut select = tx.prepare(
        "SELECT k.profile, k.gateway, k.sealed, k.generation, u.uid, u.login
         FROM bot_keys AS k JOIN users AS u ON u.bot_profile = k.profile AND u.gateway = k.gateway
         WHERE k.profile > ?1 ORDER BY k.profile LIMIT ?2",
    )?;
    let mut update = tx.prepare("UPDATE bot_keys SET sealed = ?2 WHERE profile = ?1")?;
    let mut after = String::new();
    loop {
        let mut page = Vec::new();
        let mut rows = select.query(params![after, PAGE])?;
        while let Some(row) = rows.next()? {
            let profile: String = row.get(0)?;
            page.push((profile, resealed(row, old, new)));
        }
        drop(rows);
        for (profile, sealed) in &page {
            match sealed {
                Some(sealed) => {
                    update.execute(params![profile, sealed])?;
                    done.keys += 1;
                }
                // The row stays as it is: its person's trouble, and told at each start.
                None => done.unopened += 1,
            }
        }
        match page.pop() {
            Some((profile, _)) => after = profile,
            None => return Ok(done),
        }
    }
}

/// One row's key under the new master key; `None` when it does not open.
fn resealed(row: &rusqlite::Row<'_>, old: &Sealer, new: &Sealer) -> Option<Vec<u8>> {
    let (profile, gateway) = (read::name(row, 0, ProfileName::parse)?, read::name(row, 1, GatewayName::parse)?);
    let (uid, login) = (read::name(row, 4, Uid::parse)?, read::name(row, 5, Login::parse)?);
    let sealed: Vec<u8> = row.get(2).ok()?;
    let generation = row.get(3).ok()?;
    let binding = Binding { uid: &uid, login: &login, profile: &profile, gateway: &gateway, generation };
    old.open_key(&sealed, binding).map(|key| new.seal_key(&key, binding))
}

/// The audit log's keys that were given up, oldest first.
pub(crate) fn past_audit_keys(tx: &Transaction<'_>, sealer: &Sealer) -> Result<Vec<[u8; 32]>, StoreError> {
    let sealed: Option<Vec<u8>> =
        tx.query_row("SELECT value FROM meta WHERE name = ?1", [AUDIT_KEYS], |row| row.get(0)).optional()?;
    match sealed {
        None => Ok(Vec::new()),
        Some(sealed) => sealer.open_audit_keys(&sealed).ok_or(StoreError::MalformedRow),
    }
}
