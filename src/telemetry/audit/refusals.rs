//! The budget of refusals: what is recorded one by one, and what is only counted.
//!
//! Invariants: a person has ten records in a window (a second: the writer takes the counts each second); strangers
//! are counted by network; the maps and the summary are bounded, and what finds no row is counted as `others`. The
//! hot path takes one of 16 short locks and never waits for the writer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::records::RefusalRecord;
use crate::names::{Login, Uid};
use crate::telemetry::reason::Reason;

/// Records that one person gets in a window.
const PER_PERSON: u32 = 10;
const SHARDS: usize = 16;
/// Persons, and networks, that one shard tells apart in a window.
const ROWS_PER_SHARD: usize = 64;
/// Persons, and networks, that one summary names: those with the most refusals.
const ROWS_PER_SUMMARY: usize = 32;

/// A stranger's network: /24 of IPv4, /48 of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Network(IpAddr);

impl Network {
    fn of(peer: IpAddr) -> Self {
        match peer.to_canonical() {
            IpAddr::V4(v4) => Network(Ipv4Addr::from(u32::from(v4) & 0xffff_ff00).into()),
            IpAddr::V6(v6) => Network(Ipv6Addr::from(u128::from(v6) & !0 << 80).into()),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, if self.0.is_ipv4() { 24 } else { 48 })
    }
}

/// How often each reason occurred. Reasons are few, so a list is shorter and faster than a map.
#[derive(Default)]
struct Counts(Vec<(Reason, u32)>);

impl Counts {
    fn add(&mut self, reason: Reason, times: u32) {
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count = count.saturating_add(times),
            None => self.0.push((reason, times)),
        }
    }

    fn add_all(&mut self, other: Counts) {
        other.0.into_iter().for_each(|(reason, times)| self.add(reason, times));
    }

    fn total(&self) -> u64 {
        self.0.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Counts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(reason, count)| (reason.as_str(), count)))
    }
}

struct Person {
    login: Login,
    recorded: u32,
    over: Counts,
}

#[derive(Default)]
struct Shard {
    people: HashMap<Uid, Person>,
    networks: HashMap<Network, Counts>,
    others: Counts,
}

thread_local! {
    /// Where this thread counts strangers.
    static OWN_SHARD: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
}

/// Counts since the last summary.
pub(super) struct Budget {
    shards: [Mutex<Shard>; SHARDS],
}

impl Budget {
    pub(super) fn new() -> Self {
        Budget { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Counts a refusal. True when it is to be recorded by itself, which `room` must allow.
    pub(super) fn record(&self, refusal: &RefusalRecord<'_>, room: impl FnOnce() -> bool) -> bool {
        let Some((login, uid)) = refusal.person else {
            self.count_stranger(Network::of(refusal.peer), refusal.reason);
            return false;
        };
        let mut shard = self.shard(uid.as_str().as_bytes());
        let known = shard.people.len();
        let person = match shard.people.entry(uid.clone()) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(row) if known < ROWS_PER_SHARD => {
                row.insert(Person { login: login.clone(), recorded: 0, over: Counts::default() })
            }
            Entry::Vacant(_) => {
                shard.others.add(refusal.reason, 1);
                return false;
            }
        };
        if person.recorded < PER_PERSON && room() {
            person.recorded += 1;
            return true;
        }
        person.over.add(refusal.reason, 1);
        false
    }

    /// Each thread counts strangers by itself: most come from few networks, and their number is not ours to choose.
    fn count_stranger(&self, network: Network, reason: Reason) {
        let mut shard = self.lock(OWN_SHARD.with(|own| *own));
        let known = shard.networks.len();
        match shard.networks.entry(network) {
            Entry::Occupied(mut row) => row.get_mut().add(reason, 1),
            Entry::Vacant(row) if known < ROWS_PER_SHARD => row.insert(Counts::default()).add(reason, 1),
            Entry::Vacant(_) => shard.others.add(reason, 1),
        }
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let hash = key.iter().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(*byte)));
        self.lock(hash as usize)
    }

    fn lock(&self, place: usize) -> MutexGuard<'_, Shard> {
        // Counts are whole after every step, so a panic elsewhere leaves nothing broken behind.
        self.shards[place % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the counts and begins a new window; `None` when everything was recorded one by one.
    pub(super) fn take(&self) -> Option<Summary> {
        let mut summary = Summary::default();
        let mut others = Counts::default();
        let mut networks: HashMap<Network, Counts> = HashMap::new();
        for shard in &self.shards {
            let shard = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            for (uid, person) in shard.people {
                if !person.over.is_empty() {
                    let count = person.over.total();
                    summary.people.push(PersonRow { login: person.login, uid, count, reasons: person.over });
                }
            }
            for (network, reasons) in shard.networks {
                networks.entry(network).or_default().add_all(reasons);
            }
            others.add_all(shard.others);
        }
        for (network, reasons) in networks {
            let count = reasons.total();
            summary.networks.push(NetworkRow { network: network.to_string(), count, reasons });
        }
        summary.people.sort_by_key(|row| std::cmp::Reverse(row.count));
        summary.networks.sort_by_key(|row| std::cmp::Reverse(row.count));
        for row in summary.people.split_off(summary.people.len().min(ROWS_PER_SUMMARY)) {
            others.add_all(row.reasons);
        }
        for row in summary.networks.split_off(summary.networks.len().min(ROWS_PER_SUMMARY)) {
            others.add_all(row.reasons);
        }
        summary.others = others;
        (!summary.is_empty()).then_some(summary)
    }
}

#[derive(Serialize)]
struct PersonRow {
    login: Login,
    uid: Uid,
    count: u64,
    reasons: Counts,
}

#[derive(Serialize)]
struct NetworkRow {
    network: String,
    count: u64,
    reasons: Counts,
}

/// What was counted in one window and not recorded one by one.
#[derive(Default)]
pub(super) struct Summary {
    people: Vec<PersonRow>,
    networks: Vec<NetworkRow>,
    others: Counts,
}

impl Summary {
    /// Persons over their budget.
    pub(super) fn people(&self) -> &impl Serialize {
        &self.people
    }

    /// Strangers.
    pub(super) fn networks(&self) -> &impl Serialize {
        &self.networks
    }

    /// What has no row, by reason.
    pub(super) fn others(&self) -> &impl Serialize {
        &self.others
    }

    fn is_empty(&self) -> bool {
        self.people.is_empty() && self.networks.is_empty() && self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stranger(peer: IpAddr) -> RefusalRecord<'static> {
        RefusalRecord { person: None, peer, reason: Reason::CredentialUnknown, request_id: "r", route: None }
    }

    fn shown(budget: &Budget) -> serde_json::Value {
        let summary = budget.take().unwrap();
        serde_json::json!({"people": summary.people(), "networks": summary.networks(), "others": summary.others()})
    }

    #[test]
    fn a_person_gets_ten_records_and_then_a_count() {
        let (budget, login, uid) = (Budget::new(), Login::parse("alice").unwrap(), Uid::parse("a1").unwrap());
        let refusal = RefusalRecord {
            person: Some((&login, &uid)),
            reason: Reason::NotOwnBot,
            ..stranger(IpAddr::from([192, 0, 2, 7]))
        };
        let recorded = (0..25).filter(|_| budget.record(&refusal, || true)).count();
        assert_eq!(recorded, 10);
        let row = serde_json::json!([{"login": "alice", "uid": "a1", "count": 15, "reasons": {"not_own_bot": 15}}]);
        assert_eq!(shown(&budget)["people"], row);
        assert!(budget.record(&refusal, || true), "a new window");
        assert!(budget.take().is_none());
        assert!(!budget.record(&refusal, || false), "no room");
        assert_eq!(shown(&budget)["people"][0]["count"], 1);
    }

    #[test]
    fn strangers_are_counted_by_network() {
        let budget = Budget::new();
        for peer in ["192.0.2.1", "192.0.2.200", "::ffff:192.0.2.9", "2001:db8:1:2::3", "2001:db8:1:ffff::1"] {
            assert!(!budget.record(&stranger(peer.parse().unwrap()), || true));
        }
        let shown = shown(&budget);
        let networks: Vec<_> =
            shown["networks"].as_array().unwrap().iter().map(|row| (&row["network"], &row["count"])).collect();
        assert_eq!(networks[0], (&"192.0.2.0/24".into(), &3.into()));
        assert_eq!(networks[1], (&"2001:db8:1::/48".into(), &2.into()));
    }

    #[test]
    fn a_flood_from_many_networks_stays_bounded_and_is_all_counted() {
        let budget = Budget::new();
        for number in 0..10_000_u32 {
            budget.record(&stranger(Ipv4Addr::from(number << 8).into()), || true);
        }
        let shown = shown(&budget);
        let rows = shown["networks"].as_array().unwrap();
        assert_eq!(rows.len(), ROWS_PER_SUMMARY);
        let named: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
        assert_eq!(named + shown["others"]["credential_unknown"].as_u64().unwrap(), 10_000);
    }
}
