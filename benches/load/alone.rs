//! botgate beside itself: what a request costs with many sessions, and what it takes while sessions are made.

use crate::drivers::{Creations, OpenLoop, Prepared, Wrk};
use crate::peers::{Botgate, Proxy};
use crate::people::{Ask, PEOPLE, Person};
use crate::rounds::{Bench, Sample, WARM_UP};
use crate::scenarios::{CREATIONS_PER_SECOND, OPEN_PER_SECOND, Scenario};
use crate::trouble::{Outcome, Trouble};

/// People of the botgate with few sessions, one for each.
const FEW: usize = 1_000;
/// Sessions of each person in the botgate with many.
const MANY_EACH: usize = 100;
/// Of the many sessions so many are used, spread over all: more than there are requests in a few seconds.
const SPREAD: usize = 200_000;

/// Subjects of the two scenarios, the plain one first.
pub const SESSIONS: [&str; 2] = ["1,000 sessions", "1,000,000 sessions"];
pub const CREATIONS: [&str; 2] = ["none made", "sessions made"];

impl Bench {
    /// A request's cost with a thousand and with a million sessions.
    ///
    /// # Errors
    /// botgate, wrk or the upstream says that something is wrong.
    pub fn sessions(&self) -> Outcome<Vec<Sample>> {
        let people = &self.ground.people;
        let few = people.get(..FEW).unwrap_or(people);
        let subjects = [self.with_sessions(few, 1)?, self.with_sessions(people, MANY_EACH)?];
        let mut samples = Vec::new();
        for round in 0..self.args.rounds {
            for place in 0..subjects.len() {
                let at = (place + round as usize) % subjects.len();
                let (proxy, wrk) = &subjects[at];
                let mut sample = Sample::new(Scenario::Sessions, SESSIONS[at], round);
                sample.counts(proxy, || self.forwarded(false, || wrk.drive(&proxy.url(), self.args.time())))?;
                self.upstream.approves()?;
                samples.push(sample);
            }
        }
        subjects.iter().try_for_each(|(proxy, _)| proxy.is_sound())?;
        Ok(samples)
    }

    /// A botgate that knows everybody, with sessions for these people.
    fn with_sessions(&self, people: &[Person], each: usize) -> Outcome<(Proxy, Wrk)> {
        let dir = self.ground.dir.join(format!("edge-{}", people.len() * each));
        let botgate = Botgate::init(&dir, self.ground.upstream, &self.ground.people)?;
        let tokens = botgate.sign_in(people, each)?;
        if tokens.len() != people.len() * each {
            return Err(Trouble::new(format!("{} tokens for {} people", tokens.len(), people.len())));
        }
        let used = tokens.len().min(SPREAD);
        // The stride is odd and shares no factor with the counts, so that it visits everything.
        let spread = (0..used).map(|at| &tokens[(at * 7_919) % tokens.len()]);
        let requests = spread.map(|token| Ask::Models.request("", token));
        let wrk = Wrk::new(&dir, "requests", requests, false)?;
        let first = Ask::Models.request("", tokens.first().map_or("", String::as_str));
        let proxy = Proxy::of(&botgate, &dir, &first)?;
        wrk.drive(&proxy.url(), WARM_UP)?;
        Ok((proxy, wrk))
    }

    /// The median latency of an open loop while sessions are made, and while none are.
    ///
    /// # Errors
    /// botgate, a client or the upstream says that something is wrong.
    pub fn creations(&self) -> Outcome<Vec<Sample>> {
        let people = &self.ground.people;
        let prepared = people.iter().map(|person| Prepared {
            request: Ask::Models.request("", &person.token),
            holds: person.profile.as_str().to_owned(),
        });
        let open = OpenLoop { per_second: OPEN_PER_SECOND, prepared: prepared.collect() };
        let proxy = Proxy::start(crate::peers::Peer::Botgate, &self.ground, false)?;
        let Some(edge) = proxy.edge() else { return Err(Trouble::new("botgate has no admin socket")) };
        open.drive(proxy.address, WARM_UP)?;
        let mut samples = Vec::new();
        for round in 0..self.args.rounds {
            for place in 0..CREATIONS.len() {
                let at = (place + round as usize) % CREATIONS.len();
                let mut sample = Sample::new(Scenario::Creations, CREATIONS[at], round);
                let making = match at {
                    0 => None,
                    _ => Some(Creations::start(edge.data(), people, CREATIONS_PER_SECOND)?),
                };
                sample.counts(&proxy, || self.forwarded(false, || open.drive(proxy.address, self.args.time())))?;
                sample.made_per_second = making.map(Creations::stop).transpose()?;
                self.upstream.approves()?;
                samples.push(sample);
            }
        }
        proxy.is_sound()?;
        Ok(samples)
    }
}

const _: () = assert!(PEOPLE * MANY_EACH == 1_000_000 && FEW <= PEOPLE, "the subjects are what their names say");
