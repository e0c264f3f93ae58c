//! Request rates: how often a person, and an address, may ask.
//!
//! Invariants: a rate that is not set costs nothing; what is remembered is bounded, whoever asks from wherever; a short lock
//! among [`SHARDS`] is all that requests share. Rates are the generic cell rate algorithm: a second's worth may come at once,
//! and what is refused counts for nothing.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::{Quota, RateLimiter};

use super::subscriber::Subscriber;
use crate::config::Limits;
use crate::names::Uid;
use crate::telemetry::reason::Reason;

const SHARDS: usize = 64;
/// Keys that one shard holds in each of its two generations.
const SHARD_KEYS: usize = 1024;

/// The rates that are set.
pub struct Rates {
    people: Option<Rate<Uid>>,
    addresses: Option<Rate<Subscriber>>,
}

impl Rates {
    /// The rates of a configuration.
    pub fn new(limits: &Limits) -> Self {
        Rates {
            people: limits.requests_per_second_per_person.map(|most| Rate::new(most, MonotonicClock)),
            addresses: limits.requests_per_second_per_address.map(|most| Rate::new(most, MonotonicClock)),
        }
    }

    /// A request from this address.
    ///
    /// # Errors
    /// [`Reason::AddressRate`]
    pub fn asks_from(&self, address: IpAddr) -> Result<(), Reason> {
        match &self.addresses {
            Some(rate) if !rate.allows(&Subscriber::of(address)) => Err(Reason::AddressRate),
            _ => Ok(()),
        }
    }

    /// A request by this person.
    ///
    /// # Errors
    /// [`Reason::PersonRate`]
    pub fn asks(&self, person: &Uid) -> Result<(), Reason> {
        match &self.people {
            Some(rate) if !rate.allows(person) => Err(Reason::PersonRate),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Rates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rates(..)")
    }
}

/// One rate, for many keys.
struct Rate<K: Hash + Eq + Clone, C: Clock = MonotonicClock>(RateLimiter<K, Recent<K>, C, NoOpMiddleware<C::Instant>>);

impl<K: Hash + Eq + Clone, C: Clock> Rate<K, C> {
    fn new(per_second: NonZeroU32, clock: C) -> Self {
        Rate(RateLimiter::new(Quota::per_second(per_second), Recent::new(SHARD_KEYS), clock))
    }

    fn allows(&self, key: &K) -> bool {
        self.0.check_key(key).is_ok()
    }
}

/// The state of the keys that asked lately. What is forgotten begins anew, with a whole second's worth: only who has more
/// keys than are held can make use of that, and each of their keys has a rate of its own anyway.
struct Recent<K> {
    hasher: foldhash::fast::RandomState,
    shard_keys: usize,
    shards: Box<[Mutex<Generations<K>>]>,
}

/// Keys move to the young half when they are used; when it is full it becomes the old one, which is forgotten.
struct Generations<K> {
    young: HashMap<K, Nanos, foldhash::fast::RandomState>,
    old: HashMap<K, Nanos, foldhash::fast::RandomState>,
}

impl<K> Recent<K> {
    fn new(shard_keys: usize) -> Self {
        let hasher = foldhash::fast::RandomState::default();
        let empty = || Mutex::new(Generations { young: HashMap::default(), old: HashMap::default() });
        Recent { hasher, shard_keys, shards: std::iter::repeat_with(empty).take(SHARDS).collect() }
    }
}

impl<K: Hash + Eq + Clone> StateStore for Recent<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let place = self.hasher.hash_one(key) as usize % SHARDS;
        // A state is whole after every step, so a panic elsewhere leaves nothing broken behind.
        let mut shard = self.shards[place].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = shard.young.get_mut(key) {
            let (outcome, next) = measure(Some(*state))?;
            *state = next;
            return Ok(outcome);
        }
        let known = shard.old.get(key).copied();
        let measured = measure(known);
        // Who is refused stays known: asking on must not be how to be forgotten.
        if let Some(state) = measured.as_ref().map_or(known, |(_, next)| Some(*next)) {
            shard.young.insert(key.clone(), state);
        }
        if shard.young.len() >= self.shard_keys {
            shard.old = std::mem::take(&mut shard.young);
        }
        measured.map(|(outcome, _)| outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor::clock::FakeRelativeClock;
    use std::time::Duration;

    fn rate(per_second: u32, shard_keys: usize) -> (Rate<u32, FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        let quota = Quota::per_second(NonZeroU32::new(per_second).unwrap());
        (Rate(RateLimiter::new(quota, Recent::new(shard_keys), clock.clone())), clock)
    }

    fn granted(rate: &Rate<u32, FakeRelativeClock>, key: u32, asked: usize) -> usize {
        (0..asked).filter(|_| rate.allows(&key)).count()
    }

    #[test]
    fn a_seconds_worth_comes_at_once_and_then_the_rate() {
        let (rate, clock) = rate(10, SHARD_KEYS);
        assert_eq!(granted(&rate, 1, 50), 10);
        assert_eq!(granted(&rate, 2, 50), 10, "another key has its own");
        clock.advance(Duration::from_millis(500));
        assert_eq!(granted(&rate, 1, 50), 5);
        clock.advance(Duration::from_secs(3600));
        assert_eq!(granted(&rate, 1, 50), 10, "no more than a second's worth is saved up");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_is_in_use_stays() {
        let (rate, _clock) = rate(5, 16);
        assert_eq!(granted(&rate, 0, 6), 5);
        for other in 1..100_000 {
            assert!(rate.allows(&other));
            assert!(other % 64 != 0 || !rate.allows(&0), "a key that goes on asking was forgotten");
        }
        let held: usize = rate
            .0
            .into_state_store()
            .shards
            .iter()
            .map(|shard| {
                let shard = shard.lock().unwrap();
                shard.young.len() + shard.old.len()
            })
            .sum();
        assert!(held <= 2 * 16 * SHARDS, "{held}");
    }
}
