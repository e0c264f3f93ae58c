//! The edge of a quickstart: a configuration as an operator would write it, alice and bob, and a session for each.

use std::net::SocketAddr;
use std::time::Duration;

use super::QuickstartError;
use super::home::Person;
use super::scratch::Scratch;
use crate::cli::serve::{Inherited, Running};
use crate::config::{Config, parse};
use crate::lifecycle::{Caller, Control, Issue};
use crate::names::Role;
use crate::secret::{ApiServerKey, FreshToken};

/// How long a session of a quickstart counts.
const SESSION: Duration = Duration::from_secs(12 * 3600);

/// What the edge is started with.
pub(super) struct Plan<'s> {
    /// The throw-away directory; its `edge` is the edge's.
    pub(super) scratch: &'s Scratch,
    pub(super) listen: SocketAddr,
    pub(super) gateway: SocketAddr,
    pub(super) default_key: &'s ApiServerKey,
    /// Alice and bob.
    pub(super) people: &'s [Person; 2],
}

/// A running edge.
pub(super) struct Edge {
    running: Running,
    tokens: [FreshToken; 2],
}

impl Edge {
    /// Starts it, with both bots adopted and proved. To be awaited to its end: half an edge cannot be taken down.
    pub(super) async fn start(plan: Plan<'_>) -> Result<Self, QuickstartError> {
        let config = prepare(&plan)?;
        let failed = |error: &dyn std::fmt::Display| QuickstartError::Edge(error.to_string());
        let mut running = Running::start(config, Inherited::default()).await.map_err(|error| failed(&error))?;
        match people(running.control(), plan.people).await {
            Ok(tokens) => Ok(Edge { running, tokens }),
            Err(error) => {
                running.stop().await;
                Err(QuickstartError::Edge(error))
            }
        }
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// Alice's and bob's session tokens.
    pub(super) fn tokens(&self) -> [&str; 2] {
        [self.tokens[0].expose(), self.tokens[1].expose()]
    }

    /// Stops it; bounded by its configured drain.
    pub(super) async fn stop(mut self) {
        self.running.stop().await;
    }
}

/// Writes what the edge reads, and reads it.
fn prepare(plan: &Plan<'_>) -> Result<Config, QuickstartError> {
    let dir = plan.scratch.directory("edge").map_err(QuickstartError::Scratch)?;
    let data = plan.scratch.directory("edge/data").map_err(QuickstartError::Scratch)?;
    plan.scratch.file("edge/default.key", plan.default_key.expose()).map_err(QuickstartError::Scratch)?;
    crate::store::create_master_key(&data).map_err(|error| QuickstartError::Edge(error.to_string()))?;
    let text = configuration(plan.listen, plan.gateway);
    plan.scratch.file("edge/botgate.toml", &text).map_err(QuickstartError::Scratch)?;
    parse(&text, &dir).map_err(|problems| {
        let told: Vec<String> =
            problems.iter().map(|problem| format!("{}: {}", problem.key, problem.message)).collect();
        QuickstartError::Edge(told.join("; "))
    })
}

fn configuration(listen: SocketAddr, gateway: SocketAddr) -> String {
    let hosts = match listen.port() {
        // Whatever the system chooses is allowed by itself.
        0 => String::new(),
        port => format!("additional_hosts = [\"localhost:{port}\"]\n"),
    };
    format!(
        "data_dir = \"data\"\n[listen]\naddress = \"{listen}\"\n{hosts}[[gateway]]\nname = \"quickstart\"\n\
         url = \"http://{gateway}\"\nallow_same_user = true\ndefault_api_server_key_file = \"default.key\"\n\
         [deadlines]\ndrain = \"1s\"\n"
    )
}

/// Makes both known, adopts and proves their bots, and signs both in.
async fn people(control: &Control, people: &[Person; 2]) -> Result<[FreshToken; 2], String> {
    let caller = Caller::own();
    let role = Role::parse("member").map_err(|error| error.to_string())?;
    for person in people {
        let added = control.add_person(caller, person.login.clone(), role.clone()).await;
        added.map_err(|error| error.to_string())?;
        let adopted = control.adopt(caller, &person.login, None, person.key.clone()).await;
        let (_, proof) = adopted.map_err(|error| error.to_string())?;
        if let Some(proof) = proof.filter(|proof| !proof.is_proved()) {
            return Err(format!("{} is not proved: {}", person.profile, proof.verdict));
        }
    }
    let logins = people.iter().map(|person| person.login.clone()).collect();
    let issue = Issue { logins, count: 1, ttl: SESSION, label: None };
    let (issued, refused) = control.issue(caller, issue).await.map_err(|error| error.to_string())?;
    let tokens: Vec<FreshToken> = issued.into_iter().map(|one| one.token).collect();
    let why = || refused.iter().map(|(login, why)| format!("{login}: {why}")).collect::<Vec<_>>().join("; ");
    tokens.try_into().map_err(|_| why())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_valid_for_any_port() {
        let gateway = "127.0.0.1:8642".parse().unwrap();
        for listen in ["127.0.0.1:0", "127.0.0.1:8080", "[::1]:8080"] {
            let text = configuration(listen.parse().unwrap(), gateway);
            let config = parse(&text, std::path::Path::new("/nonexistent")).unwrap();
            assert!(config.gateways[0].allow_same_user && config.gateways[0].default_api_server_key_file.is_some());
            assert_eq!(config.listen.hosts.len(), usize::from(!listen.ends_with(":0")));
        }
    }
}
