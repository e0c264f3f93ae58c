//! SQL about open runs.

use rusqlite::{Transaction, params};

use super::super::error::StoreError;
use super::super::model::RunRow;
use super::people;
use crate::names::Identifier;

pub(crate) fn put(tx: &Transaction<'_>, run: &RunRow) -> Result<(), StoreError> {
    if people::find_uid(tx, &run.uid)?.is_none() {
        return Err(StoreError::NoSuchPerson);
    }
    // The same row again is no change; another person's run of that name fails on the primary key.
    tx.execute(
        "INSERT INTO open_runs (run_id, uid, session_id, profile, gateway, started_at)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6
         WHERE NOT EXISTS (SELECT 1 FROM open_runs WHERE run_id = ?1 AND uid = ?2 AND gateway = ?5)",
        params![
            run.run_id.as_str(),
            run.uid.as_str(),
            run.session_id.as_str(),
            run.profile.as_str(),
            run.gateway.as_str(),
            run.started_at
        ],
    )?;
    Ok(())
}

pub(crate) fn remove(tx: &Transaction<'_>, run_id: &Identifier) -> Result<bool, StoreError> {
    Ok(tx.execute("DELETE FROM open_runs WHERE run_id = ?1", [run_id.as_str()])? == 1)
}
