//! Room for records: counters that bound the queue before anything is put into it.
//!
//! Invariants: a unit is taken before its record exists and given back once when the record is written or the guard
//! is dropped unused. A person's share is bounded, so that one person's flood leaves room for the others; persons
//! share stripes of counters by a hash, which needs no map and no lock.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::names::Uid;

/// Records that may be reserved or waiting, for all persons together.
const RECORDS: usize = 131_072;
/// One stripe's share of them.
const RECORDS_PER_STRIPE: usize = RECORDS / 4;
const STRIPES: usize = 1_024;

/// On a cache line of its own, so that its changes do not slow down who reads its neighbours.
#[repr(align(64))]
pub(super) struct OwnLine<T>(pub(super) T);

/// A counter with a bound.
pub(super) struct Bounded {
    taken: AtomicUsize,
    limit: usize,
}

impl Bounded {
    pub(super) fn new(limit: usize) -> Self {
        Bounded { taken: AtomicUsize::new(0), limit }
    }

    pub(super) fn take(&self, units: usize) -> bool {
        // Adding first and taking back on failure needs no loop; a moment's overcount only refuses earlier.
        let free = self.taken.fetch_add(units, Ordering::Relaxed) + units <= self.limit;
        if !free {
            self.give(units);
        }
        free
    }

    pub(super) fn give(&self, units: usize) {
        self.taken.fetch_sub(units, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// The stripe of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stripe(u16);

impl Stripe {
    pub(super) fn of(person: &Uid) -> Self {
        // FNV-1a: identifiers are random already.
        let hash = person
            .as_str()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Stripe((hash % STRIPES as u64) as u16)
    }
}

/// Room for the records of turns and of persons' changes.
pub(super) struct Room {
    all: OwnLine<Bounded>,
    stripes: Box<[Bounded]>,
}

impl Room {
    pub(super) fn new() -> Self {
        Self::bounded(RECORDS, RECORDS_PER_STRIPE)
    }

    pub(super) fn bounded(all: usize, stripe: usize) -> Self {
        Room { all: OwnLine(Bounded::new(all)), stripes: (0..STRIPES).map(|_| Bounded::new(stripe)).collect() }
    }

    pub(super) fn take(&self, stripe: Stripe, units: usize) -> bool {
        if !self.all.0.take(units) {
            return false;
        }
        let free = self.stripes[usize::from(stripe.0)].take(units);
        if !free {
            self.give_all(units);
        }
        free
    }

    pub(super) fn give(&self, stripe: Stripe, units: usize) {
        self.give_stripe(stripe, units);
        self.give_all(units);
    }

    /// Half of giving back, which [`Room::give_all`] completes.
    pub(super) fn give_stripe(&self, stripe: Stripe, units: usize) {
        self.stripes[usize::from(stripe.0)].give(units);
    }

    /// The other half.
    pub(super) fn give_all(&self, units: usize) {
        self.all.0.give(units);
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.all.0.taken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_cannot_take_everybodys_room() {
        let room = Room::bounded(8, 4);
        let (a, b, c) = (Stripe(1), Stripe(2), Stripe(3));
        assert!(room.take(a, 2) && room.take(a, 2) && !room.take(a, 1));
        assert!(room.take(b, 2) && room.take(b, 2));
        assert!(!room.take(c, 1), "everybody's room is bounded too");
        room.give(a, 2);
        assert!(room.take(c, 2) && !room.take(a, 1));
        assert_eq!(room.taken(), 8);
    }
}
