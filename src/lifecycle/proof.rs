//! What the proof says about one bot, and whether a deleted one is gone.

use crate::directory::Bot;
use crate::gateway::probe::Verdict;
use crate::names::{GatewayName, Login, ProfileName};

use super::{Control, ControlError};

/// What the proof of one bot says.
#[derive(Debug)]
pub struct Proof {
    /// The person.
    pub login: Login,
    /// The profile.
    pub profile: ProfileName,
    /// Where it is.
    pub gateway: GatewayName,
    /// The typed verdict.
    pub verdict: Verdict,
}

impl Proof {
    /// Whether the bot's key opens its path and others do not.
    pub fn is_proved(&self) -> bool {
        self.verdict == Verdict::Proved
    }
}

impl Control {
    /// Proves a bot now.
    ///
    /// # Errors
    /// The person has no bot, or there is no such person.
    pub async fn prove(&self, login: &Login) -> Result<Proof, ControlError> {
        let bot = self.live_bot(login).await?;
        let verdict = self.prover().prove_now(login).await;
        Ok(Proof {
            login: login.clone(),
            profile: bot.profile().clone(),
            gateway: bot.gateway().name().clone(),
            verdict,
        })
    }

    /// Whether the gateway says that the profile does not exist; else what it said.
    pub(super) async fn profile_is_gone(&self, bot: &Bot) -> Result<(), String> {
        match self.prover().look_at(bot).await {
            Verdict::UnservedProfile => Ok(()),
            Verdict::Proved => Err("the gateway still serves it".to_owned()),
            verdict => Err(verdict.to_string()),
        }
    }
}
