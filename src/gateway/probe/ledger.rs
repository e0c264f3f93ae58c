//! Ledger: what the proofs of one gateway have found, and what follows from it. No I/O, so that each rule can be tested.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Verdict, Weight};
use crate::directory::{Bot, BotStanding, GatewayStanding};
use crate::names::Login;

/// Bots of one interval pass.
pub(super) const PASS: usize = 8;
/// Of those, kept for bots that are fine, so that many refused ones do not keep the others from being proved again.
const PASS_KEPT: usize = 2;

/// The last result of one bot.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) bot: Arc<Bot>,
    pub(super) verdict: Verdict,
    at: Instant,
}

/// What is known of one gateway.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Last results, by login; never more than there are bots.
    entries: HashMap<Login, Entry>,
    /// Bots that opened with a wrong key, and nothing else since.
    accused: HashMap<Login, Verdict>,
    /// Whether some bot has been proved since the gateway last fell silent for too long.
    proved: bool,
    /// Since when proofs find nothing.
    silent_since: Option<Instant>,
}

/// What a pass may choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Accused,
    Open,
    Fine,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Ledger { entries: HashMap::new(), accused: HashMap::new(), proved: false, silent_since: None }
    }

    /// Takes in a verdict: sets the bot's standing.
    pub(super) fn note(&mut self, bot: &Arc<Bot>, verdict: Verdict, now: Instant) {
        let login = bot.login();
        if verdict.weight() != Weight::Nothing {
            self.silent_since = None;
        }
        match verdict.weight() {
            Weight::Good => {
                self.proved = true;
                self.accused.remove(login);
                bot.set_standing(BotStanding::Proved);
            }
            Weight::BotFault => {
                self.accused.remove(login);
                bot.set_standing(BotStanding::Refused);
            }
            Weight::GatewayFault => {
                self.accused.insert(login.clone(), verdict);
            }
            Weight::Nothing => {
                self.silent_since.get_or_insert(now);
            }
        }
        self.entries.insert(login.clone(), Entry { bot: Arc::clone(bot), verdict, at: now });
    }

    /// Forgets bots that are no more, or are others than those that were proved. An accused login is forgotten only
    /// when it has no bot here: a new key does not clear the gateway.
    pub(super) fn retain(&mut self, bots: &HashMap<Login, Arc<Bot>>) {
        self.entries.retain(|login, entry| bots.get(login).is_some_and(|bot| Arc::ptr_eq(bot, &entry.bot)));
        self.accused.retain(|login, _| bots.contains_key(login));
    }

    /// What follows for the gateway; silence for `stands` takes a proof away.
    pub(super) fn standing(&mut self, now: Instant, stands: Duration) -> GatewayStanding {
        if self.silent_since.is_some_and(|since| now.duration_since(since) >= stands) {
            self.proved = false;
        }
        match (self.accused.is_empty(), self.proved) {
            (false, _) => GatewayStanding::ProofFailed,
            (true, true) => GatewayStanding::Proved,
            (true, false) => GatewayStanding::Starting,
        }
    }

    /// The verdict that takes the gateway out of service.
    pub(super) fn fault(&self) -> Option<Verdict> {
        self.accused.values().copied().next()
    }

    /// The last result of a bot, if it is about this very bot.
    pub(super) fn verdict(&self, bot: &Arc<Bot>) -> Option<Verdict> {
        self.entries.get(bot.login()).filter(|entry| Arc::ptr_eq(&entry.bot, bot)).map(|entry| entry.verdict)
    }

    /// The bots whose turn it is, at most eight: those that stand against the gateway, then those never proved or
    /// refused, then the ones proved longest ago. Places are kept for the last kind.
    pub(super) fn pass(&self, bots: &HashMap<Login, Arc<Bot>>) -> Vec<Arc<Bot>> {
        let mut waiting: Vec<_> = bots.values().map(|bot| (self.rank(bot), bot)).collect();
        let fine = |rank: &(Class, Option<Instant>)| rank.0 == Class::Fine;
        waiting.sort_unstable_by_key(|(rank, _)| *rank);
        let first_fine = waiting.partition_point(|(rank, _)| !fine(rank));
        let kept = PASS_KEPT.min(waiting.len() - first_fine);
        let urgent = first_fine.min(PASS - kept);
        let fine = &waiting[first_fine..];
        waiting[..urgent].iter().chain(&fine[..fine.len().min(PASS - urgent)]).map(|(_, bot)| Arc::clone(bot)).collect()
    }

    fn rank(&self, bot: &Arc<Bot>) -> (Class, Option<Instant>) {
        let entry = self.entries.get(bot.login()).filter(|entry| Arc::ptr_eq(&entry.bot, bot));
        let at = entry.map(|entry| entry.at);
        match (self.accused.contains_key(bot.login()), bot.standing()) {
            (true, _) => (Class::Accused, at),
            (false, BotStanding::Proved) => (Class::Fine, at),
            (false, BotStanding::Unproved | BotStanding::Refused) => (Class::Open, at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GatewayUrl;
    use crate::directory::GatewayTarget;
    use crate::gateway::test_gateway;
    use crate::names::GatewayName;

    const STANDS: Duration = Duration::from_secs(600);

    fn bots(count: usize) -> HashMap<Login, Arc<Bot>> {
        let url = GatewayUrl::parse("http://127.0.0.1:1").unwrap();
        let target = Arc::new(GatewayTarget::new(GatewayName::parse("main").unwrap(), 0, url));
        (0..count)
            .map(|n| Arc::new(test_gateway::bot(&format!("p{n}"), &target)))
            .map(|bot| (bot.login().clone(), bot))
            .collect()
    }

    fn named<'b>(bots: &'b HashMap<Login, Arc<Bot>>, login: &str) -> &'b Arc<Bot> {
        &bots[&Login::parse(login).unwrap()]
    }

    #[test]
    fn a_wrong_key_accepted_takes_the_gateway_out_until_that_bot_is_fine_again() {
        let (mut ledger, bots, now) = (Ledger::new(), bots(2), Instant::now());
        assert_eq!(ledger.standing(now, STANDS), GatewayStanding::Starting);
        ledger.note(named(&bots, "p0"), Verdict::Proved, now);
        assert_eq!(ledger.standing(now, STANDS), GatewayStanding::Proved);
        ledger.note(named(&bots, "p1"), Verdict::NeighbourKeyAccepted, now);
        ledger.note(named(&bots, "p0"), Verdict::Proved, now);
        ledger.note(named(&bots, "p1"), Verdict::Unreachable, now);
        assert_eq!(ledger.standing(now, STANDS), GatewayStanding::ProofFailed);
        assert_eq!(ledger.fault(), Some(Verdict::NeighbourKeyAccepted));
        ledger.note(named(&bots, "p1"), Verdict::Proved, now);
        assert_eq!(ledger.standing(now, STANDS), GatewayStanding::Proved);
    }

    #[test]
    fn an_accused_bot_that_is_gone_accuses_no_more_but_a_new_key_does_not_clear_it() {
        let (mut ledger, mut bots, now) = (Ledger::new(), bots(2), Instant::now());
        ledger.note(named(&bots, "p0"), Verdict::Proved, now);
        ledger.note(named(&bots, "p1"), Verdict::NoKeyAccepted, now);
        let renewed = Arc::new(test_gateway::bot("p1", named(&bots, "p1").gateway()));
        bots.insert(renewed.login().clone(), renewed);
        ledger.retain(&bots);
        assert_eq!(ledger.standing(now, STANDS), GatewayStanding::ProofFailed);
        bots.remove(&Login::parse("p1").unwrap());
        ledger.retain(&bots);
        assert_eq!(ledger.standing(now, STANDS), GatewayStanding::Proved);
    }

    #[test]
    fn a_refused_bot_is_refused_alone() {
        let (mut ledger, bots, now) = (Ledger::new(), bots(2), Instant::now());
        ledger.note(named(&bots, "p0"), Verdict::Proved, now);
        ledger.note(named(&bots, "p1"), Verdict::WrongKey, now);
        assert_eq!(ledger.standing(now, STANDS), GatewayStanding::Proved);
        assert_eq!(named(&bots, "p1").standing(), BotStanding::Refused);
        assert_eq!(named(&bots, "p0").standing(), BotStanding::Proved);
    }

    #[test]
    fn silence_leaves_the_last_result_for_ten_minutes() {
        let (mut ledger, bots, now) = (Ledger::new(), bots(1), Instant::now());
        let bot = named(&bots, "p0");
        ledger.note(bot, Verdict::Proved, now);
        ledger.note(bot, Verdict::Unreachable, now);
        ledger.note(bot, Verdict::Unexpected(503), now + Duration::from_secs(300));
        let standing = |ledger: &mut Ledger, seconds| ledger.standing(now + Duration::from_secs(seconds), STANDS);
        assert_eq!(standing(&mut ledger, 599), GatewayStanding::Proved);
        assert_eq!(bot.standing(), BotStanding::Proved);
        assert_eq!(standing(&mut ledger, 600), GatewayStanding::Starting);
        // One answer and it counts again from the start.
        ledger.note(bot, Verdict::Proved, now + Duration::from_secs(601));
        assert_eq!(standing(&mut ledger, 5000), GatewayStanding::Proved);
    }

    #[test]
    fn a_pass_takes_the_accused_then_the_open_then_the_oldest_and_keeps_places() {
        let (mut ledger, bots, now) = (Ledger::new(), bots(30), Instant::now());
        for n in 0..10_u64 {
            ledger.note(named(&bots, &format!("p{n}")), Verdict::Proved, now + Duration::from_secs(100 - n));
        }
        for n in 10..20_u64 {
            ledger.note(named(&bots, &format!("p{n}")), Verdict::WrongKey, now + Duration::from_secs(n));
        }
        ledger.note(named(&bots, "p29"), Verdict::DefaultKeyAccepted, now);
        let pass: Vec<_> = ledger.pass(&bots).iter().map(|bot| bot.login().as_str().to_owned()).collect();
        assert_eq!((pass.len(), pass[0].as_str()), (PASS, "p29"));
        // p20 to p28 were never proved: they come before the refused ones.
        assert!(pass[1..6].iter().all(|login| (20..29).any(|n| *login == format!("p{n}"))), "{pass:?}");
        assert_eq!(pass[6..], ["p9", "p8"]);
    }

    #[test]
    fn every_bot_gets_its_turn() {
        let (mut ledger, bots, now) = (Ledger::new(), bots(50), Instant::now());
        let mut seen = std::collections::HashSet::new();
        for round in 0..8 {
            for bot in ledger.pass(&bots) {
                seen.insert(bot.login().clone());
                ledger.note(&bot, Verdict::Proved, now + Duration::from_secs(round));
            }
        }
        // Eight in the first pass; in each later one two places are kept for bots that are fine.
        assert_eq!(seen.len(), 50);
    }
}
