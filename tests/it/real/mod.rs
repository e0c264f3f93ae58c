//! The botgate binary in front of the real gateway, as an operator runs it and people use it.

mod bulk;
mod crash;
mod load;
mod old_gateway;
mod openai;
mod outage;
mod revocation;
mod rotation;
mod runs;
mod secrets;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::botgate::{Botgate, Setup};
use crate::support::hermes::{Bot, RealGateway};

/// Longest wait for what the gateway does; a first turn on a busy machine takes many seconds.
const SOON: Duration = Duration::from_secs(60);

/// alice and bob with a session each, served in front of the shared gateway.
struct Pair {
    gateway: &'static RealGateway,
    botgate: Botgate,
    alice: String,
    bob: String,
}

impl Pair {
    #[track_caller]
    fn serve() -> Self {
        let gateway = RealGateway::shared();
        let mut botgate = Botgate::new(&setup(gateway));
        let [alice, bob] = ["alice", "bob"].map(|login| {
            botgate.add(login, &Bot::of(login));
            botgate.session(login)
        });
        botgate.serve_until_ready();
        Self { gateway, botgate, alice, bob }
    }
}

/// The configuration for this gateway, its default key included.
fn setup(gateway: &RealGateway) -> Setup {
    Setup { default_key: Some(gateway.default_key().to_owned()), ..Setup::at(gateway.address()) }
}

/// The body of a chat turn.
fn chat(text: &str, stream: bool) -> Value {
    json!({"model": "any", "stream": stream, "messages": [{"role": "user", "content": text}]})
}
