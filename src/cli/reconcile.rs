//! `reconcile`: what is left to do about people who are being deleted.

use super::client::with_admin;
use super::out::{Failure, Out, or_dash, table};
use crate::admin::wire::{Deleted, Reconcile, Reconciled};
use crate::config::Config;

pub(super) fn run(apply: bool, config: &Config, out: Out) -> Result<(), Failure> {
    let done: Reconciled = with_admin(config, |admin| admin.call("/reconcile", &Reconcile { apply }))?;
    out.show(&done, || {
        let row = |d: &Deleted| {
            let state = match (d.finished, d.profile.is_some()) {
                (true, _) => "deleted".to_owned(),
                (false, true) => {
                    format!("waits: {}", d.message.as_deref().unwrap_or("the profile is not gone for certain"))
                }
                (false, false) => "ready: reconcile --apply frees the login".to_owned(),
            };
            [d.login.to_string(), or_dash(d.profile.as_ref()), or_dash(d.gateway.as_ref()), state]
        };
        let rows: Vec<_> = done.orphans.iter().map(row).collect();
        table(["LOGIN", "PROFILE", "GATEWAY", "STATE"], &rows, "nothing to do")
    })?;
    let waiting: Vec<&Deleted> = done.orphans.iter().filter(|d| !d.finished && d.profile.is_some()).collect();
    if waiting.is_empty() {
        return Ok(());
    }
    let profiles: Vec<String> = waiting.iter().filter_map(|d| d.profile.as_ref()).map(ToString::to_string).collect();
    Err(Failure::with_next(
        format!("not gone for certain: {}", profiles.join(" ")),
        "delete each at its gateway (hermes profile delete PROFILE -y), then: botgate reconcile --apply",
    ))
}
