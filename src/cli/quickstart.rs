//! `quickstart`: try botgate out.

use std::process::ExitCode;

/// Nothing to choose yet.
#[derive(Debug, clap::Args)]
pub(super) struct QuickstartArgs {}

pub(super) async fn run(_: QuickstartArgs) -> Result<ExitCode, std::io::Error> {
    Err(std::io::Error::other("quickstart: not built yet"))
}
