//! `doctor --gateway-contract`: the facts about the gateway that botgate relies on.

use super::out::{Failure, Out};
use crate::config::Config;

pub(super) fn run(_: &Config, _: Out) -> Result<(), Failure> {
    Err(Failure::Usage("doctor --gateway-contract: not in this version; the name is reserved".to_owned()))
}
