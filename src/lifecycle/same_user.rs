//! Promise 12: the gateway is another user. What an agent can read, its gateway's user can read.
//!
//! The owner of a listening socket tells the gateway's user without any right over its process. A gateway on another
//! machine, or one that does not listen at the moment, cannot be told this way and is not refused.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::config::Gateway;
use crate::names::GatewayName;

/// A gateway that can read what the edge must keep from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SameUser {
    /// Which.
    pub gateway: GatewayName,
    /// What tells so.
    pub what: String,
}

impl fmt::Display for SameUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gateway {}: {}: an agent there can read the edge's keys; run them as two users, or set \
             allow_same_user = true for trying out",
            self.gateway, self.what
        )
    }
}

impl std::error::Error for SameUser {}

/// Refuses a gateway whose process or home belongs to the edge's own user, unless its `allow_same_user` is set.
///
/// # Errors
/// The first such gateway.
pub fn same_user(gateways: &[Gateway]) -> Result<(), SameUser> {
    let own = rustix::process::geteuid().as_raw();
    for gateway in gateways.iter().filter(|gateway| !gateway.allow_same_user && gateway.url.is_loopback()) {
        let Some(uid) = listener_uid(&gateway.url) else { continue };
        let refused = |what| SameUser { gateway: gateway.name.clone(), what };
        if uid == own {
            return Err(refused(format!("its process runs as the edge's own user ({own})")));
        }
        if let Some(home) = home_of(uid).map(|home| home.join(".hermes"))
            && home.metadata().is_ok_and(|metadata| metadata.uid() == own)
        {
            return Err(refused(format!("its home {} belongs to the edge's own user ({own})", home.display())));
        }
    }
    Ok(())
}

/// The user that listens on a loopback port, by the kernel's table.
pub(super) fn listener_uid(url: &crate::config::GatewayUrl) -> Option<u32> {
    let wanted: Option<IpAddr> = url.host().parse().ok();
    let mut any = None;
    for (address, port, uid) in ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().flat_map(listeners) {
        if port != url.port() {
            continue;
        }
        if wanted.is_some_and(|wanted| wanted == address) {
            return Some(uid);
        }
        // A name, or a listener on every address.
        if address.is_unspecified() || (wanted.is_none() && address.is_loopback()) {
            any = Some(uid);
        }
    }
    any
}

/// The kernel's word for a listening socket.
const LISTENING: &str = "0A";

/// The listening sockets of a table. The kernel tells them before all others, of which an edge has thousands; these are not
/// read.
fn listeners(path: &str) -> Vec<(IpAddr, u16, u32)> {
    let Ok(table) = File::open(path) else { return Vec::new() };
    let lines = BufReader::new(table).lines().skip(1).map_while(Result::ok);
    lines
        .take_while(|line| line.split_ascii_whitespace().nth(3) == Some(LISTENING))
        .filter_map(|line| listener(&line))
        .collect()
}

/// Address, port and user of one line of the table, if it is a listening socket.
fn listener(line: &str) -> Option<(IpAddr, u16, u32)> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    let uid = fields.nth(3)?.parse().ok()?;
    if state != LISTENING {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    Some((address_of(address)?, u16::from_str_radix(port, 16).ok()?, uid))
}

/// The table holds each 32-bit word of an address in the machine's byte order.
fn address_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match hex.len() {
        8 => Some(IpAddr::from(word(0)?)),
        32 => {
            let mut bytes = [0_u8; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at * 8)?);
            }
            Some(IpAddr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

/// The home directory of a user, by the system's list.
fn home_of(uid: u32) -> Option<PathBuf> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.nth(2)?.parse() == Ok(uid)).then_some(())?;
        fields.nth(2).map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn gateways(port: u16, allow: bool) -> Vec<Gateway> {
        let text =
            format!("[[gateway]]\nname = \"main\"\nurl = \"http://127.0.0.1:{port}\"\nallow_same_user = {allow}\n");
        parse(&text, std::path::Path::new("/")).unwrap().gateways
    }

    #[test]
    fn a_gateway_of_the_edges_own_user_is_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(same_user(&gateways(port, false)).unwrap_err().to_string().contains("own user"));
        assert!(same_user(&gateways(port, true)).is_ok());
        drop(listener);
        assert!(same_user(&gateways(port, false)).is_ok(), "nobody listens");
    }

    #[test]
    fn the_kernels_table_is_understood() {
        let line = "   1: 0100007F:21C2 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1";
        assert_eq!(listener(line), Some(("127.0.0.1".parse().unwrap(), 8642, 1000)));
        assert_eq!(listener(&line.replace(" 0A ", " 01 ")), None);
        let six = line.replace("0100007F", "0000000000000000FFFF00000100007F");
        assert_eq!(listener(&six).unwrap().0, "127.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(listener("  sl  local_address rem_address   st"), None);
    }
}
