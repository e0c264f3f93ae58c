//! Calls about bots.

use axum::extract::State;
use axum::{Extension, Json};
use zeroize::Zeroizing;

use super::answer::{Answer, Body};
use super::wire::{Adopt, Adopted, BotInfo, ByLogin, Empty, IssuedToken, ProofInfo};
use crate::directory::BotStanding;
use crate::lifecycle::{Caller, Control, ControlError, Proof};
use crate::secret::ApiServerKey;

type Ctl = State<Control>;
type By = Extension<Caller>;

pub(super) async fn adopt(ctl: Ctl, by: By, Body(bot): Body<Adopt>) -> Answer<Adopted> {
    let text = Zeroizing::new(bot.api_server_key);
    let key = ApiServerKey::parse(&text).map_err(ControlError::from)?;
    let (stored, proof) = ctl.adopt(*by, &bot.login, bot.gateway.as_ref(), key).await?;
    Ok(Json(Adopted { login: stored.login, profile: stored.profile, gateway: stored.gateway, proof: proof.map(info) }))
}

pub(super) async fn list(ctl: Ctl, Body(Empty {}): Body<Empty>) -> Answer<Vec<BotInfo>> {
    let mut bots: Vec<BotInfo> = (ctl.directory().snapshot().values())
        .map(|bot| {
            let off = ctl.sessions().person(bot.uid()).is_none_or(|person| person.cancelled().is_cancelled());
            let standing = match bot.standing() {
                _ if off => "off",
                BotStanding::Proved => "proved",
                BotStanding::Unproved => "unproved",
                BotStanding::Refused => "refused",
            };
            BotInfo {
                login: bot.login().clone(),
                profile: bot.profile().clone(),
                gateway: bot.gateway().name().clone(),
                standing: standing.to_owned(),
            }
        })
        .collect();
    bots.sort_by(|a, b| a.login.cmp(&b.login));
    Ok(Json(bots))
}

pub(super) async fn prove(ctl: Ctl, Body(bot): Body<ByLogin>) -> Answer<ProofInfo> {
    Ok(Json(info(ctl.prove(&bot.login).await?)))
}

pub(super) async fn token(ctl: Ctl, by: By, Body(bot): Body<ByLogin>) -> Answer<IssuedToken> {
    let (token, row) = ctl.issue_bot_token(*by, &bot.login).await?;
    let token = token.expose().to_owned();
    Ok(Json(IssuedToken { login: bot.login, id: row.id, token, expires_at: None }))
}

fn info(proof: Proof) -> ProofInfo {
    ProofInfo {
        proved: proof.is_proved(),
        verdict: proof.verdict.as_str().to_owned(),
        message: proof.verdict.to_string(),
        login: proof.login,
        profile: proof.profile,
        gateway: proof.gateway,
    }
}
