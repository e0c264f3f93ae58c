//! Pingora: the peer of `benches/load/pingora`, with a map in memory.

use std::path::Path;

use super::{Ground, Peer, Proxy, free_address, lines, written};
use crate::process::Child;
use crate::trouble::Outcome;

pub(super) fn start(ground: &Ground, dir: &Path) -> Outcome<Proxy> {
    let address = free_address()?;
    let bots = lines(&ground.people, |person| {
        format!("{}\t{}\t{}", person.token, person.profile.as_str(), person.key.expose())
    });
    let bots = written(dir, "bots", &bots)?;
    let arguments =
        [address.to_string(), ground.upstream.to_string(), bots.display().to_string(), ground.cores.to_string()];
    let child = Child::start(&ground.pingora, &arguments, dir.join("output"))?;
    Ok(Proxy::with(Peer::Pingora, address, child))
}
