//! Who counts as one client where clients are counted by address.

use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that name a network; whoever has one has all its addresses (RFC 6177).
const IPV6_PREFIX_BITS: u32 = 64;

/// An address as bounds count it: IPv4 whole, IPv6 by its /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subscriber(IpAddr);

impl Subscriber {
    /// Whose address it is.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => {
                Subscriber(Ipv6Addr::from_bits(v6.to_bits() & !0 << (Ipv6Addr::BITS - IPV6_PREFIX_BITS)).into())
            }
            v4 => Subscriber(v4),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_subscriber() {
        let of = |text: &str| Subscriber::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
    }
}
