//! `serve`: run the edge.

use super::out::Failure;
use crate::config::Config;

pub(super) fn run(_: Config) -> Result<(), Failure> {
    Err(Failure::new("serve: not built yet"))
}
