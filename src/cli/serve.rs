//! `serve`: run the edge.

use std::process::ExitCode;

use super::out::Failure;
use crate::config::Config;

pub(super) fn run(_: Config) -> Result<ExitCode, Failure> {
    Err(Failure::new("serve: not built yet"))
}
