//! Checks a running gateway against the facts that the edge is built on, so that another gateway version fails
//! visibly instead of subtly.
//!
//! Every check is one cheap request that changes nothing and starts no turn. A fact that could not be tried, because
//! its key was not given or the gateway did not answer, is never reported as holding. Facts that need turns, silence or
//! a full gateway are left to the tests.

mod facts;
mod request;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use facts::FACTS;
use http::HeaderValue;

/// The longest that one check may take, connecting included.
pub const CHECK_DEADLINE: Duration = Duration::from_secs(10);

/// A profile and what opens it.
#[derive(Clone, Debug)]
pub struct Subject {
    profile: String,
    authorization: HeaderValue,
}

impl Subject {
    /// `profile` as it stands in a path; `key` is its API key. `None` if the key cannot stand in a header.
    pub fn new(profile: &str, key: &str) -> Option<Self> {
        Some(Self { profile: profile.to_owned(), authorization: bearer(key)? })
    }
}

/// A gateway and the keys to try on it.
#[derive(Clone, Debug)]
pub struct Gateway {
    address: SocketAddr,
    own: Subject,
    neighbour: Option<Subject>,
    default: Option<HeaderValue>,
}

impl Gateway {
    /// The gateway at `address`, judged through the bot `own`.
    pub fn new(address: SocketAddr, own: Subject) -> Self {
        Self { address, own, neighbour: None, default: None }
    }

    /// Another bot on the same gateway; without one, isolation between bots stays untried.
    pub fn with_neighbour(self, neighbour: Subject) -> Self {
        Self { neighbour: Some(neighbour), ..self }
    }

    /// The default profile's key; without it, the fact that bots refuse it stays untried.
    pub fn with_default_key(self, key: &str) -> Self {
        Self { default: bearer(key), ..self }
    }
}

fn bearer(key: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {key}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Stable name of the fact.
    pub name: &'static str,
    /// What the edge relies on, as a sentence.
    pub fact: &'static str,
    /// Whether it holds.
    pub verdict: Verdict,
}

/// Whether a fact holds on this gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the edge needs it.
    Holds,
    /// The gateway answered otherwise; says how.
    Broken(String),
    /// Nothing can be said; says why.
    Untried(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Holds => write!(f, "holds    {}: {}", self.name, self.fact),
            Verdict::Broken(how) => write!(f, "BROKEN   {}: {} ({how})", self.name, self.fact),
            Verdict::Untried(why) => write!(f, "untried  {}: {} ({why})", self.name, self.fact),
        }
    }
}

/// Tries every fact, one request after the other, each bounded by [`CHECK_DEADLINE`].
pub async fn check(gateway: &Gateway) -> Vec<Outcome> {
    let mut outcomes = Vec::with_capacity(FACTS.len());
    for fact in FACTS {
        let verdict = try_fact(gateway, fact).await;
        outcomes.push(Outcome { name: fact.name, fact: fact.says, verdict });
    }
    outcomes
}

async fn try_fact(gateway: &Gateway, fact: &facts::Fact) -> Verdict {
    let request = match request::build(gateway, fact) {
        Ok(request) => request,
        Err(missing) => return Verdict::Untried(missing.to_owned()),
    };
    match request::send(gateway.address, request, CHECK_DEADLINE).await {
        Ok(answer) => match (fact.holds)(&answer, &gateway.own.profile) {
            Ok(()) => Verdict::Holds,
            Err(how) => Verdict::Broken(how),
        },
        Err(error) => Verdict::Untried(error.to_string()),
    }
}
