//! Trusted forwarders: the configured networks whose word about a client counts.
//!
//! Invariants: what a request says about its client counts only when it came from such a network, and then from the right:
//! each forwarder appends what it has seen itself, so that what stands left of an address that is no forwarder may be the
//! client's invention and is not looked at. What a forwarder says and cannot be understood is refused, because whose rate and
//! whose audit record it would be is not known. `Forwarded` (RFC 7239) and X-Real-IP are never read.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::client::Client;
use super::head::Line;
use crate::telemetry::reason::Reason;

/// Most addresses that are looked at: more forwarders than any client is behind.
const HOPS_MAX: usize = 16;

/// The networks whose word counts.
#[derive(Debug, Clone, Default)]
pub struct Forwarders(Box<[IpNet]>);

impl Forwarders {
    /// These networks.
    pub fn new(networks: &[IpNet]) -> Self {
        Forwarders(networks.into())
    }

    /// Whether an address is a forwarder's.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The client of a request that came over a forwarder's connection.
    ///
    /// # Errors
    /// [`Reason::BadForwarding`]
    pub(super) fn client(&self, forwarder: &Client, lines: &[Line<'_>]) -> Result<Client, Reason> {
        let address = self.farthest(lines).ok_or(Reason::BadForwarding)?;
        // Several words agree, or the connection may have been open to others somewhere.
        let mut told = values(lines, "x-forwarded-proto").flat_map(|value| value.split(|&b| b == b','));
        let secure = match told.next() {
            None => forwarder.is_secure(),
            Some(first) => [first].into_iter().chain(told).all(|word| word.trim_ascii().eq_ignore_ascii_case(b"https")),
        };
        Ok(Client::new(address.unwrap_or(forwarder.address()), secure))
    }

    /// The first address from the right that is no forwarder's, or the last of them; the inner `None`: nothing is said. The
    /// outer: what is said cannot be understood.
    fn farthest(&self, lines: &[Line<'_>]) -> Option<Option<IpAddr>> {
        let mut farthest = None;
        let hops = values(lines, "x-forwarded-for").rev().flat_map(|value| value.rsplit(|&b| b == b','));
        for (place, hop) in hops.enumerate() {
            let address = address(hop.trim_ascii()).filter(|_| place < HOPS_MAX)?;
            farthest = Some(address);
            if !self.contains(address) {
                break;
            }
        }
        Some(farthest)
    }
}

/// Values of all lines with this name.
fn values<'a>(lines: &'a [Line<'a>], name: &'static str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
    lines.iter().filter(move |line| line.name == name).map(|line| line.value)
}

/// An address, alone or with a port, as forwarders write it.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = || text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    Some(bare().or_else(with_port).or_else(bracketed)?.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[(&'static str, &'static str)]) -> Result<(String, bool), Reason> {
        let forwarders = Forwarders::new(&["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()]);
        let lines: Vec<_> = lines.iter().map(|(name, value)| Line { name, value: value.as_bytes() }).collect();
        let forwarder = Client::new(IpAddr::from([10, 0, 0, 1]), false);
        forwarders.client(&forwarder, &lines).map(|client| (client.address().to_string(), client.is_secure()))
    }

    fn from(value: &'static str) -> Result<String, Reason> {
        told(&[("x-forwarded-for", value)]).map(|(address, _)| address)
    }

    #[test]
    fn the_first_address_from_the_right_that_is_no_forwarder_counts() {
        for (value, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("198.51.100.1, 192.0.2.7", "192.0.2.7"),
            ("192.0.2.7, 10.1.1.1,10.2.2.2", "192.0.2.7"),
            ("nonsense, 192.0.2.7 , 10.1.1.1", "192.0.2.7"),
            ("10.1.1.1", "10.1.1.1"),
            ("10.3.3.3, 10.1.1.1", "10.3.3.3"),
            ("192.0.2.7:51234", "192.0.2.7"),
            ("[2001:DB9::7]:443", "2001:db9::7"),
            ("[2001:db9::7]", "2001:db9::7"),
            ("2001:db9::7, 2001:db8::1", "2001:db9::7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("192.0.2.7, ::ffff:10.0.0.9", "192.0.2.7"),
        ] {
            assert_eq!(from(value).as_deref(), Ok(expected), "{value}");
        }
        let split =
            [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "192.0.2.7"), ("x-forwarded-for", "10.1.1.1")];
        assert_eq!(told(&split).unwrap().0, "192.0.2.7");
        assert_eq!(told(&[]).unwrap().0, "10.0.0.1", "nothing is said");
        assert_eq!(told(&[("x-real-ip", "192.0.2.7"), ("forwarded", "for=192.0.2.7")]).unwrap().0, "10.0.0.1");
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        for value in
            ["", "unknown", "192.0.2", "192.0.2.7,", "192.0.2.7 10.1.1.1", "nonsense, 10.1.1.1", "[192.0.2.7]", "a:b:c"]
        {
            assert_eq!(from(value), Err(Reason::BadForwarding), "{value}");
        }
        let many = Box::leak("10.1.1.1, ".repeat(HOPS_MAX).into_boxed_str());
        assert_eq!(from(many.trim_end_matches(", ")).as_deref(), Ok("10.1.1.1"));
        let more = Box::leak(format!("192.0.2.7, {}10.1.1.1", "10.1.1.1, ".repeat(HOPS_MAX - 1)).into_boxed_str());
        assert_eq!(from(more), Err(Reason::BadForwarding));
    }

    #[test]
    fn a_connection_counts_as_encrypted_when_every_forwarder_says_so() {
        let secure = |lines: &[(&'static str, &'static str)]| told(lines).unwrap().1;
        assert!(secure(&[("x-forwarded-proto", "https")]));
        assert!(secure(&[("x-forwarded-proto", "HTTPS , https")]));
        for value in ["http", "https,http", "http,https", "", "https,", "wss", "httpss"] {
            assert!(!secure(&[("x-forwarded-proto", value)]), "{value}");
        }
        assert!(!secure(&[("x-forwarded-proto", "https"), ("x-forwarded-proto", "http")]));
        assert!(!secure(&[]));
    }
}
