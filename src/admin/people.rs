//! Calls about people.

use axum::extract::{Query, State};
use axum::{Extension, Json};

use super::answer::{Answer, Body};
use super::import::read_lines;
use super::wire::{
    AddPerson, ByLogin, Deleted, Empty, ImportTo, Imported, KeyToChange, LineProblem, LockedDown, MaybeLogin,
    PersonInfo, Reconcile, Reconciled,
};
use crate::lifecycle::{Caller, Control, Deletion, Remains, Upkeep};
use crate::store::PersonRow;

/// Lines of an import whose trouble is told one by one.
const PROBLEMS_TOLD: usize = 100;

type Ctl = State<Control>;
type By = Extension<Caller>;

pub(super) async fn add(ctl: Ctl, by: By, Body(person): Body<AddPerson>) -> Answer<PersonInfo> {
    Ok(Json(info(ctl.add_person(*by, person.login, person.role).await?)))
}

pub(super) async fn list(ctl: Ctl, Body(Empty {}): Body<Empty>) -> Answer<Vec<PersonInfo>> {
    Ok(Json(ctl.list_people().await?.into_iter().map(info).collect()))
}

pub(super) async fn disable(ctl: Ctl, by: By, Body(person): Body<ByLogin>) -> Answer<PersonInfo> {
    Ok(Json(info(ctl.disable(*by, &person.login).await?)))
}

pub(super) async fn enable(ctl: Ctl, by: By, Body(person): Body<ByLogin>) -> Answer<PersonInfo> {
    Ok(Json(info(ctl.enable(*by, &person.login).await?)))
}

pub(super) async fn delete(ctl: Ctl, by: By, Body(person): Body<ByLogin>) -> Answer<Deleted> {
    Ok(Json(deleted(ctl.delete_person(*by, &person.login).await?)))
}

pub(super) async fn import(ctl: Ctl, by: By, to: Query<ImportTo>, body: axum::body::Body) -> Answer<Imported> {
    let (items, mut problems) = read_lines(body).await?;
    let report = ctl.import(*by, to.gateway.as_ref(), items).await?;
    problems.extend(report.refused);
    problems.sort_by_key(|(line, _)| *line);
    let refused = problems.len();
    problems.truncate(PROBLEMS_TOLD);
    let problems = problems.into_iter().map(|(line, message)| LineProblem { line, message }).collect();
    Ok(Json(Imported { added: report.added, bots: report.bots, refused, problems }))
}

pub(super) async fn lockdown(ctl: Ctl, by: By, Body(whom): Body<MaybeLogin>) -> Answer<LockedDown> {
    let done = ctl.lockdown(*by, whom.login.as_ref()).await?;
    let keys = done.keys.into_iter().map(|(login, profile, gateway)| KeyToChange { login, profile, gateway });
    Ok(Json(LockedDown { people: done.people, sessions: done.sessions, keys: keys.collect() }))
}

pub(super) async fn reconcile(ctl: Ctl, by: By, Body(how): Body<Reconcile>) -> Answer<Reconciled> {
    let orphans = ctl.reconcile(*by, how.apply).await?.into_iter().map(deleted).collect();
    Ok(Json(Reconciled { orphans }))
}

pub(super) async fn audit_read(ctl: Ctl, by: By, Body(whom): Body<MaybeLogin>) -> Answer<Empty> {
    ctl.audit_is_read(*by, whom.login.as_ref()).await?;
    Ok(Json(Empty {}))
}

pub(super) async fn upkeep(ctl: Ctl, by: By, Body(upkeep): Body<Upkeep>) -> Answer<Empty> {
    ctl.note_upkeep(*by, &upkeep).await?;
    Ok(Json(Empty {}))
}

fn info(row: PersonRow) -> PersonInfo {
    PersonInfo {
        login: row.login,
        uid: row.uid,
        role: row.role,
        state: row.state.as_str().to_owned(),
        gateway: row.gateway,
        profile: row.profile,
        created_at: row.created_at,
    }
}

fn deleted(deletion: Deletion) -> Deleted {
    let Deletion { login, remains } = deletion;
    match remains {
        Remains::Nothing => Deleted { login, finished: true, profile: None, gateway: None, message: None },
        Remains::Row => {
            let message = Some("the profile is gone; the login is freed by reconcile --apply".to_owned());
            Deleted { login, finished: false, profile: None, gateway: None, message }
        }
        Remains::Profile { profile, gateway, said } => {
            Deleted { login, finished: false, profile: Some(profile), gateway: Some(gateway), message: Some(said) }
        }
    }
}
