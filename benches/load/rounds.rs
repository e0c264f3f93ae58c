//! Rounds: every proxy is driven in each, one after the other, each round beginning with another one.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::args::Args;
use crate::drivers::{CONNECTIONS, Driven, Idle, OpenLoop, Prepared, Streams, Wrk, call};
use crate::peers::{Ground, Peer, Proxy};
use crate::people::{Ask, stranger};
use crate::scenarios::{Drive, OPEN_PER_SECOND, STREAMS, Scenario};
use crate::trouble::{Outcome, Trouble};
use crate::upstream::Upstream;

/// How long a proxy gets to settle before its memory is read.
const SETTLE: Duration = Duration::from_millis(1500);
/// How long a scenario's first drive takes, which does not count.
pub const WARM_UP: Duration = Duration::from_secs(1);
/// The longest until all streams have ended.
const LEAVING: Duration = Duration::from_secs(10);

/// What one drive of one proxy came to.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    pub scenario: Scenario,
    /// A proxy's name, or which of two botgates.
    pub subject: &'static str,
    pub round: u32,
    /// Requests answered, or events.
    pub units: u64,
    /// CPU time of the whole process tree for each unit.
    pub cpu_us: Option<f64>,
    /// Median latency of requests, or delay of events.
    pub p50_us: Option<f64>,
    /// Memory for each idle connection or open stream.
    pub kib: Option<f64>,
    /// Sessions that were made a second meanwhile.
    pub made_per_second: Option<f64>,
}

/// What every scenario needs.
#[derive(Debug)]
pub struct Bench {
    pub args: Args,
    pub upstream: Upstream,
    pub ground: Ground,
}

/// The clients of a scenario.
enum Client {
    Closed(Wrk),
    Open(OpenLoop),
    Streams,
    Idle,
}

impl Bench {
    /// Runs one scenario that compares proxies.
    ///
    /// # Errors
    /// A proxy, a client or the upstream says that something is wrong.
    pub fn compare(&self, scenario: Scenario) -> Outcome<Vec<Sample>> {
        let has_direct = matches!(scenario.drive(), Drive::Open(_));
        let peers = [Peer::Direct, Peer::Nginx, Peer::Haproxy, Peer::Pingora, Peer::Botgate];
        let peers = peers.into_iter().filter(|peer| self.args.measures(*peer) && (has_direct || *peer != Peer::Direct));
        let mut subjects = Vec::new();
        for peer in peers {
            let proxy = Proxy::start(peer, &self.ground)?;
            self.does_the_job(&proxy)?;
            let client = self.client(scenario.drive(), &proxy)?;
            self.warm_up(&proxy, &client)?;
            subjects.push((proxy, client));
        }
        let mut samples = Vec::new();
        let rounds = if scenario == Scenario::Idle { 1 } else { self.args.rounds };
        for round in 0..rounds {
            for place in 0..subjects.len() {
                let (proxy, client) = &subjects[(place + round as usize) % subjects.len()];
                let name = proxy.peer.name();
                let sample = self.sample(scenario, round, proxy, client);
                let sample =
                    sample.map_err(|trouble| Trouble::new(format!("{name}, {}: {trouble}", scenario.title())))?;
                samples.push(sample);
            }
        }
        subjects.iter().try_for_each(|(proxy, _)| proxy.is_sound())?;
        Ok(samples)
    }

    /// Fails unless the proxy does what is compared: its own people, on their own paths, and nobody else.
    fn does_the_job(&self, proxy: &Proxy) -> Outcome<()> {
        if proxy.peer == Peer::Direct {
            return Ok(());
        }
        let [first, .., last] = self.ground.people.as_slice() else {
            return Err(Trouble::new("two people are needed"));
        };
        let own = |of: &crate::people::Person| format!("/p/{}", of.profile.as_str());
        let cases = [
            ("a person's models", Ask::Models.request("", &last.token), 200),
            ("the same by its own path", Ask::Models.request(&own(last), &last.token), 200),
            ("a turn", Ask::Turn.request("", &last.token), 200),
            ("another person's path", Ask::Models.request(&own(first), &last.token), 401),
            ("a token that is nobody's", Ask::Models.request("", &stranger()), 401),
            ("no token", Ask::Models.request("", ""), 401),
        ];
        for (what, request, status) in cases {
            let answer = call(proxy.address, &request)?;
            if answer.status != status || (status == 200 && !answer.body.contains(last.profile.as_str())) {
                let name = proxy.peer.name();
                return Err(Trouble::new(format!("{name} answers {what} with {}: {}", answer.status, answer.body)));
            }
        }
        self.upstream.approves()
    }

    fn client(&self, drive: Drive, proxy: &Proxy) -> Outcome<Client> {
        let people = &self.ground.people;
        Ok(match drive {
            Drive::Closed { ask, refused: false } => {
                let requests = people.iter().map(|person| proxy.request(ask, person));
                Client::Closed(Wrk::new(&self.ground.dir, "requests", requests, false)?)
            }
            Drive::Closed { ask, refused: true } => {
                let requests = people.iter().map(|_| ask.request("", &stranger()));
                Client::Closed(Wrk::new(&self.ground.dir, "refused", requests, true)?)
            }
            Drive::Open(ask) => {
                let prepared = people.iter().map(|person| Prepared {
                    request: proxy.request(ask, person),
                    holds: person.profile.as_str().to_owned(),
                });
                Client::Open(OpenLoop { per_second: OPEN_PER_SECOND, prepared: prepared.collect() })
            }
            Drive::Streams => Client::Streams,
            Drive::Idle | Drive::Sessions | Drive::Creations => Client::Idle,
        })
    }

    fn warm_up(&self, proxy: &Proxy, client: &Client) -> Outcome<()> {
        match client {
            Client::Closed(wrk) => wrk.drive(proxy.address, WARM_UP).map(drop),
            Client::Open(open) => open.drive(proxy.address, WARM_UP).map(drop),
            // Memory is read against what a proxy takes once it has worked.
            Client::Streams | Client::Idle => {
                let drive = Drive::Closed { ask: Ask::Turn, refused: false };
                let Client::Closed(wrk) = self.client(drive, proxy)? else { return Ok(()) };
                wrk.drive(proxy.address, WARM_UP).map(drop)
            }
        }
    }

    fn sample(&self, scenario: Scenario, round: u32, proxy: &Proxy, client: &Client) -> Outcome<Sample> {
        let mut sample = Sample::new(scenario, proxy.peer.name(), round);
        match client {
            Client::Closed(wrk) => {
                let refused = matches!(scenario.drive(), Drive::Closed { refused: true, .. });
                sample.counts(proxy, || self.forwarded(refused, || wrk.drive(proxy.address, self.args.time())))?;
            }
            Client::Open(open) => {
                sample.counts(proxy, || self.forwarded(false, || open.drive(proxy.address, self.args.time())))?;
            }
            Client::Streams => self.stream(proxy, &mut sample)?,
            Client::Idle => self.idle(proxy, &mut sample)?,
        }
        self.upstream.approves()?;
        Ok(sample)
    }

    /// Drives, and fails unless the upstream saw what the clients had answered.
    pub fn forwarded(&self, refused: bool, drive: impl FnOnce() -> Outcome<Driven>) -> Outcome<Driven> {
        let before = self.upstream.requests();
        let driven = drive()?;
        let seen = self.upstream.requests() - before;
        // At its end wrk leaves what is under way, and of what just came it counts not everything.
        let wanted = if refused { 0..=0 } else { driven.units..=driven.units + 2 * CONNECTIONS };
        match wanted.contains(&seen) {
            true => Ok(driven),
            false => Err(Trouble::new(format!("{} answers, but {seen} requests at the upstream", driven.units))),
        }
    }

    fn stream(&self, proxy: &Proxy, sample: &mut Sample) -> Outcome<()> {
        let people = self.ground.people.iter().take(STREAMS);
        let requests = people.map(|person| proxy.request(Ask::Stream, person)).collect();
        let before = proxy.memory_kib()?;
        let streams = Streams::open(proxy.address, requests, self.upstream.since())?;
        std::thread::sleep(SETTLE);
        if sample.round == 0 {
            // What was freed before is used again: only the first streams show what one takes.
            sample.kib = Some(proxy.memory_kib()?.saturating_sub(before) as f64 / STREAMS as f64);
        }
        let sent = self.upstream.events();
        sample.counts(proxy, || streams.read_on(self.args.time()))?;
        let sent = self.upstream.events() - sent;
        // At both ends of the time some are under way.
        if sample.units.abs_diff(sent) > STREAMS as u64 {
            return Err(Trouble::new(format!("{sent} events were sent and {} came", sample.units)));
        }
        drop(streams);
        let since = Instant::now();
        while self.upstream.streams() > 0 {
            if since.elapsed() > LEAVING {
                let left = self.upstream.streams();
                return Err(Trouble::new(format!("{left} streams at the upstream outlive their clients")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn idle(&self, proxy: &Proxy, sample: &mut Sample) -> Outcome<()> {
        std::thread::sleep(SETTLE);
        let before = proxy.memory_kib()?;
        let requests = self.ground.people.iter().map(|person| proxy.request(Ask::Models, person));
        let idle = Idle::open(proxy.address, requests)?;
        std::thread::sleep(SETTLE);
        idle.are_open()?;
        sample.units = idle.count() as u64;
        sample.kib = Some(proxy.memory_kib()?.saturating_sub(before) as f64 / idle.count() as f64);
        Ok(())
    }
}

impl Sample {
    /// One without results.
    pub fn new(scenario: Scenario, subject: &'static str, round: u32) -> Self {
        Sample { scenario, subject, round, units: 0, cpu_us: None, p50_us: None, kib: None, made_per_second: None }
    }

    /// Drives, and counts what the proxy used meanwhile.
    pub fn counts(&mut self, proxy: &Proxy, drive: impl FnOnce() -> Outcome<Driven>) -> Outcome<()> {
        let before = proxy.cpu_ns();
        let driven = drive()?;
        let used = proxy.cpu_ns().checked_sub(before);
        let used = used.ok_or_else(|| Trouble::new("a process of the proxy has ended meanwhile"))?;
        let used_us = used as f64 / 1000.0;
        self.units = driven.units;
        self.cpu_us = (proxy.peer != Peer::Direct).then(|| used_us / driven.units.max(1) as f64);
        self.p50_us = Some(driven.p50_us);
        Ok(())
    }
}
