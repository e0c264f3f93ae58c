//! Bounds on connections, or on handshakes: all together and per address (IPv6: per /64).

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::proxy::Subscriber;

/// The bounds and what is open. Clones are handles on the same counts.
#[derive(Debug, Clone)]
pub struct ConnectionLimits(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    total: AtomicUsize,
    per_address: AtomicUsize,
    open: AtomicUsize,
    // Holds only addresses with an open connection, so `total` bounds it.
    by_address: DashMap<Subscriber, usize>,
}

/// One connection's place; dropping it gives the place back.
#[derive(Debug)]
pub struct ConnectionPermit {
    counts: Arc<Counts>,
    // None: a forwarder's, behind whose address are many clients.
    address: Option<Subscriber>,
}

impl ConnectionLimits {
    /// Bounds with nothing open.
    pub fn new(total: usize, per_address: usize) -> Self {
        let (total, per_address) = (AtomicUsize::new(total), AtomicUsize::new(per_address));
        ConnectionLimits(Arc::new(Counts { total, per_address, open: AtomicUsize::new(0), by_address: DashMap::new() }))
    }

    /// Other bounds; what is open stays open.
    pub fn set(&self, total: usize, per_address: usize) {
        self.0.total.store(total, Ordering::Relaxed);
        self.0.per_address.store(per_address, Ordering::Relaxed);
    }

    /// A place for a connection from this address; `None` when there is none.
    pub fn admit(&self, address: IpAddr) -> Option<ConnectionPermit> {
        let (counts, address) = (&self.0, Subscriber::of(address));
        let mut here = counts.by_address.entry(address).or_insert(0);
        let full = *here >= counts.per_address.load(Ordering::Relaxed) || !counts.take();
        if full {
            let unused = *here == 0;
            drop(here);
            if unused {
                counts.by_address.remove_if(&address, |_, here| *here == 0);
            }
            return None;
        }
        *here += 1;
        drop(here);
        Some(ConnectionPermit { counts: Arc::clone(counts), address: Some(address) })
    }

    /// A place for a connection of a trusted forwarder, which is bounded with all together only.
    pub fn admit_forwarder(&self) -> Option<ConnectionPermit> {
        self.0.take().then(|| ConnectionPermit { counts: Arc::clone(&self.0), address: None })
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }
}

impl Counts {
    /// Counts one more, unless all together are as many as may be.
    fn take(&self) -> bool {
        let one_more = |open| (open < self.total.load(Ordering::Relaxed)).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
        let Some(address) = self.address else { return };
        if let Entry::Occupied(mut here) = self.counts.by_address.entry(address) {
            *here.get_mut() -= 1;
            if *here.get() == 0 {
                here.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_given_back() {
        let limits = ConnectionLimits::new(3, 2);
        let (a, b) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let first = limits.admit(a).unwrap();
        let _second = limits.admit(a).unwrap();
        assert!(limits.admit(a).is_none());
        let third = limits.admit(b).unwrap();
        assert!(limits.admit(b).is_none());
        assert_eq!(limits.open(), 3);
        drop((first, third));
        assert_eq!(limits.open(), 1);
        assert!(limits.admit(a).is_some());
        assert!(!limits.0.by_address.contains_key(&Subscriber::of(b)));
    }
    #[test]
    fn whoever_has_one_address_of_an_ipv6_network_has_them_all() {
        let limits = ConnectionLimits::new(10, 2);
        let from = |text: &str| limits.admit(text.parse().unwrap());
        let _held = (from("2001:db8::1").unwrap(), from("2001:db8::ffff:2").unwrap());
        assert!(from("2001:db8::3").is_none());
        assert!(from("2001:db8:0:1::3").is_some());
    }

    #[test]
    fn a_forwarders_clients_share_all_places_and_no_address() {
        let limits = ConnectionLimits::new(3, 1);
        let held: Vec<_> = std::iter::repeat_with(|| limits.admit_forwarder()).take(3).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(limits.admit_forwarder().is_none());
        drop(held);
        assert_eq!(limits.open(), 0);
    }
}
