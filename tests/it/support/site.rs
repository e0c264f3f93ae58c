//! The botgate binary in front of a stand-in in this process, with people whose bots exist there.

use std::collections::HashMap;
use std::net::TcpListener;

use botgate::cli::stand_in::{self, Options, StandIn};
use botgate::names::{Login, ProfileName};
use botgate::secret::ApiServerKey;

use super::botgate::{Botgate, Setup};
use super::http::Call;

/// A stand-in and the data directory of an edge in front of it.
pub(crate) struct Site {
    pub(crate) botgate: Botgate,
    _stand_in: StandIn,
    keys: HashMap<String, String>,
}

impl Site {
    /// People whose bots are adopted; nothing serves yet.
    #[track_caller]
    pub(crate) fn of(people: &[&str]) -> Self {
        Self::configured(people, "")
    }

    /// The same, with this at the end of the configuration.
    #[track_caller]
    pub(crate) fn configured(people: &[&str], configuration: &str) -> Self {
        let logins: Vec<_> = people.iter().map(|login| Login::parse(login).expect("a login")).collect();
        let bots: Vec<_> = logins.iter().map(|login| (ProfileName::of(login), ApiServerKey::generate())).collect();
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stand_in =
            stand_in::serve(socket, Options::new(bots.clone(), ApiServerKey::generate())).expect("the stand-in starts");
        let botgate = Botgate::new(&Setup { limits: configuration.to_owned(), ..Setup::at(stand_in.address()) });
        let mut keys = HashMap::new();
        let mut lines = String::new();
        for (login, (_, key)) in logins.iter().zip(&bots) {
            let line = serde_json::json!({ "login": login, "role": "member", "api_server_key": key.expose() });
            lines.push_str(&format!("{line}\n"));
            keys.insert(login.to_string(), key.expose().to_owned());
        }
        botgate.run_with(&["user", "import", "-"], &lines).done();
        Site { botgate, _stand_in: stand_in, keys }
    }

    /// A bot's key.
    #[track_caller]
    pub(crate) fn key(&self, login: &str) -> &str {
        self.keys.get(login).expect("one of the people")
    }

    /// What a credential gets.
    #[track_caller]
    pub(crate) fn status(&self, token: &str) -> u16 {
        Call::get("/v1/models").bearer(token).header("Connection", "close").send(self.botgate.address()).status
    }
}
