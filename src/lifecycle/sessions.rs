//! Sessions and personal tokens: issue, list, revoke.

use std::collections::HashMap;
use std::time::Duration;

use crate::names::{Login, Uid};
use crate::secret::{FreshToken, TokenKind};
use crate::store::{NewSession, PersonRow, PersonState, SessionFilter, SessionRow, StoreError};

use super::error::is_refusal;
use super::{Caller, Control, ControlError, now_ms};

/// Most credentials that one call issues.
pub const ISSUE_MAX: usize = 10_000;

/// What to issue.
#[derive(Debug)]
pub struct Issue {
    /// For whom; a name may stand more than once.
    pub logins: Vec<Login>,
    /// How many for each.
    pub count: usize,
    /// How long they count.
    pub ttl: Duration,
    /// A label makes them personal tokens.
    pub label: Option<String>,
}

/// One issued credential.
#[derive(Debug)]
pub struct Issued {
    /// Whose it is.
    pub login: Login,
    /// Its text, to be shown once.
    pub token: FreshToken,
    /// Its row.
    pub row: SessionRow,
}

/// What a revocation came to.
#[derive(Debug, Default)]
pub struct Revocation {
    /// How many were revoked.
    pub revoked: usize,
    /// Rows that are none.
    pub unknown: Vec<Uid>,
}

impl Control {
    /// Issues sessions or personal tokens in one transaction; nothing for those who may not come in.
    ///
    /// # Errors
    /// More than [`ISSUE_MAX`], or the store failed: then none was issued.
    pub async fn issue(
        &self,
        caller: Caller,
        issue: Issue,
    ) -> Result<(Vec<Issued>, Vec<(Login, String)>), ControlError> {
        let Issue { logins, count, ttl, label } = issue;
        if logins.len().saturating_mul(count) > ISSUE_MAX {
            return Err(ControlError::TooMuch(format!("at most {ISSUE_MAX} in one call")));
        }
        let kind = if label.is_some() { TokenKind::Personal } else { TokenKind::Session };
        let created_at = now_ms();
        let expires_at = created_at.saturating_add(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
        let (mut issued, mut refused) = (Vec::new(), Vec::new());
        {
            let _changing = self.changing().await;
            let people = self.people_of(&logins).await?;
            let (mut fresh, mut rows) = (Vec::new(), Vec::new());
            for login in logins {
                match people.get(&login) {
                    Some(person) if person.state == PersonState::Active => {
                        for _ in 0..count {
                            let token = FreshToken::generate(kind);
                            rows.push(NewSession {
                                uid: person.uid.clone(),
                                digest: token.digest(),
                                kind,
                                label: label.clone(),
                                created_at,
                                expires_at,
                                idle_expires_at: None,
                            });
                            fresh.push((login.clone(), token));
                        }
                    }
                    Some(person) => refused.push((login, StoreError::WrongState(person.state).to_string())),
                    None => refused.push((login, StoreError::NoSuchPerson.to_string())),
                }
            }
            for ((login, token), outcome) in fresh.into_iter().zip(self.store().create_sessions(rows).await?) {
                match outcome {
                    Ok(row) => {
                        self.session_is_live(row.clone());
                        issued.push(Issued { login, token, row });
                    }
                    Err(why) => refused.push((login, why.to_string())),
                }
            }
        }
        self.record_issue(caller, kind, &issued).await?;
        Ok((issued, refused))
    }

    async fn people_of(&self, logins: &[Login]) -> Result<HashMap<Login, PersonRow>, ControlError> {
        let rows = match logins {
            [only] => self.store().person(only.clone()).await?.into_iter().collect(),
            _ => self.store().list_people().await?,
        };
        Ok(rows.into_iter().map(|row| (row.login.clone(), row)).collect())
    }

    /// One record for each person.
    async fn record_issue(&self, caller: Caller, kind: TokenKind, issued: &[Issued]) -> Result<(), ControlError> {
        let action = if kind == TokenKind::Personal { "token.create" } else { "session.create" };
        let mut counts: HashMap<&Login, (usize, &Uid)> = HashMap::new();
        for one in issued {
            counts.entry(&one.login).or_insert((0, &one.row.id)).0 += 1;
        }
        let mut records = Vec::with_capacity(counts.len());
        for (login, (count, first)) in counts {
            records.push((login.as_str(), vec![("count", count.to_string()), ("first_id", first.to_string())]));
        }
        self.record_all(caller, action, records).await
    }

    /// One page of live credentials of a kind, by row; `more` tells whether there are further ones.
    ///
    /// # Errors
    /// No such person, or the store failed.
    pub async fn list_sessions(
        &self,
        kind: TokenKind,
        login: Option<&Login>,
        after: Option<Uid>,
        limit: usize,
    ) -> Result<(Vec<(Login, SessionRow)>, bool), ControlError> {
        let uid = match login {
            Some(login) => Some(self.person(login).await?.uid),
            None => None,
        };
        let filter = SessionFilter { uid, kind: Some(kind), live_only: true, after, limit };
        let rows = self.store().list_sessions(filter).await?;
        let more = rows.len() >= limit;
        let named = rows.into_iter().filter_map(|row| {
            let login = self.sessions().person(&row.uid)?.login().clone();
            Some((login, row))
        });
        Ok((named.collect(), more))
    }

    /// Revokes credentials by row, whatever their kind, and cuts what they opened.
    ///
    /// # Errors
    /// The store failed; they are refused all the same until this process ends.
    pub async fn revoke_ids(&self, caller: Caller, ids: Vec<Uid>) -> Result<Revocation, ControlError> {
        // Ahead of the store, which may have a long import before this.
        for id in &ids {
            self.sessions().revoke_session(id);
        }
        let mut revocation = Revocation::default();
        let mut revoked = Vec::new();
        let mut failed = None;
        {
            let _changing = self.changing().await;
            for id in ids {
                match self.store().revoke_session(id.clone()).await {
                    Ok(row) => {
                        self.sessions().revoke_session(&row.id);
                        let login = self.sessions().person(&row.uid).map(|person| person.login().to_string());
                        revoked.push((login.unwrap_or_default(), row));
                    }
                    Err(StoreError::NoSuchToken) => revocation.unknown.push(id),
                    Err(error) => {
                        failed = Some(ControlError::NotStored(error));
                        break;
                    }
                }
            }
        }
        revocation.revoked = revoked.len();
        for kind in [TokenKind::Session, TokenKind::Personal] {
            let of_kind = revoked.iter().filter(|(_, row)| row.kind == kind);
            let records = of_kind.map(|(login, row)| (login.as_str(), vec![("id", row.id.to_string())])).collect();
            self.record_all(caller, revoke_action(kind), records).await?;
        }
        failed.map_or(Ok(revocation), Err)
    }

    /// Revokes all of a person's credentials of a kind, and cuts what they opened.
    ///
    /// # Errors
    /// No such person, or the store failed; in the last case they are refused all the same until this process ends.
    pub async fn revoke_of(&self, caller: Caller, kind: TokenKind, login: &Login) -> Result<Revocation, ControlError> {
        // Ahead of the store, which may have a long import before this. Who has no bot is refused anyway.
        let bot = self.directory().bot(login);
        if let Some(bot) = &bot {
            self.sessions().revoke_kinds(bot.uid(), &[kind]);
        }
        let revoked = match self.revoke_stored(kind, login).await {
            Err(ControlError::Store(error)) if bot.is_some() && !is_refusal(&error) => {
                return Err(ControlError::NotStored(error));
            }
            other => other?,
        };
        self.record(caller, revoke_action(kind), login.as_str(), &[("count", revoked.to_string())]).await?;
        Ok(Revocation { revoked, unknown: Vec::new() })
    }

    async fn revoke_stored(&self, kind: TokenKind, login: &Login) -> Result<usize, ControlError> {
        let _changing = self.changing().await;
        let person = self.person(login).await?;
        let rows = self.store().revoke_sessions_of(person.uid.clone(), vec![kind]).await?;
        self.sessions().revoke_kinds(&person.uid, &[kind]);
        Ok(rows.len())
    }
}

fn revoke_action(kind: TokenKind) -> &'static str {
    if kind == TokenKind::Personal { "token.revoke" } else { "session.revoke" }
}
