//! `quickstart`: try botgate out.

use super::out::Failure;

/// Nothing to choose yet.
#[derive(Debug, clap::Args)]
pub(super) struct QuickstartArgs {}

pub(super) fn run(_: QuickstartArgs) -> Result<(), Failure> {
    Err(Failure::new("quickstart: not built yet"))
}
