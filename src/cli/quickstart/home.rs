//! The throw-away Hermes home: a multiplexing default profile, and one staged profile for each person.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::QuickstartError;
use super::scratch::Scratch;
use crate::cli::stand_in::provider::{self, provider_key};
use crate::keeper::{ProfileFiles, Profiles};
use crate::names::{Login, ProfileName};
use crate::secret::ApiServerKey;

/// Somebody to try it out with.
#[derive(Debug, Clone)]
pub(super) struct Person {
    pub(super) login: Login,
    pub(super) profile: ProfileName,
    pub(super) key: ApiServerKey,
}

impl Person {
    /// A person whose bot has a fresh key.
    pub(super) fn new(login: &str) -> Self {
        // Callers give the two fixed names, which are logins.
        let login = Login::parse(login).expect("a fixed name is a login");
        Person { profile: ProfileName::of(&login), login, key: ApiServerKey::generate() }
    }
}

/// Writes the gateway's directory below the scratch directory, complete before a gateway sees it, and gives its path. It is
/// the child's HOME, apart from the edge's data; the Hermes home is `hermes` in it.
pub(super) fn write(
    scratch: &Scratch,
    people: &[Person],
    default_key: &ApiServerKey,
    gateway: SocketAddr,
    model: SocketAddr,
) -> Result<PathBuf, QuickstartError> {
    let gateway_dir = scratch.directory("gateway").map_err(QuickstartError::Scratch)?;
    let home = scratch.directory("gateway/hermes").map_err(QuickstartError::Scratch)?;
    let config = format!("{}{}", model_yaml(model, "sk-stand-in-default"), gateway_yaml(gateway));
    scratch.file("gateway/hermes/config.yaml", &config).map_err(QuickstartError::Scratch)?;
    let env = zeroize::Zeroizing::new(format!("API_SERVER_ENABLED=true\nAPI_SERVER_KEY={}\n", default_key.expose()));
    scratch.file("gateway/hermes/.env", &env).map_err(QuickstartError::Scratch)?;
    let profiles = Profiles::open(&home).map_err(QuickstartError::Profile)?;
    for person in people {
        let files = ProfileFiles {
            config_yaml: model_yaml(model, &provider_key(&person.profile)),
            api_server_key: person.key.clone(),
            mcp_token: None,
            soul: format!("You are {}, the bot of {}.\n", person.profile, person.login),
        };
        profiles.create(&person.profile, &files).map_err(QuickstartError::Profile)?;
    }
    Ok(gateway_dir)
}

/// A profile's own settings. Toolsets that reach other profiles' files are off.
fn model_yaml(model: SocketAddr, key: &str) -> String {
    format!(
        "model:\n  default: {name}\n  provider: custom\n  base_url: http://{model}/v1\n  api_key: {key}\n  \
         context_length: 200000\nagent:\n  disabled_toolsets: [terminal, file, code_execution, delegation]\n\
         plugins:\n  auto_update_check_hours: 0\n",
        name = provider::MODEL
    )
}

fn gateway_yaml(gateway: SocketAddr) -> String {
    format!(
        "gateway:\n  multiplex_profiles: true\n  api_server:\n    enabled: true\n    host: {}\n    port: {}\n",
        gateway.ip(),
        gateway.port()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bot_has_a_key_and_a_provider_key_of_its_own() {
        let scratch = Scratch::make().unwrap();
        let people = [Person::new("alice"), Person::new("bob")];
        let (gateway, model) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        write(&scratch, &people, &ApiServerKey::generate(), gateway, model).unwrap();
        let read = |name: &str| std::fs::read_to_string(scratch.path().join("gateway/hermes").join(name)).unwrap();
        for person in &people {
            assert!(read(&format!("profiles/{}/.env", person.profile)).contains(person.key.expose()));
            let config = read(&format!("profiles/{}/config.yaml", person.profile));
            assert!(config.contains(&provider_key(&person.profile)) && !config.contains("gateway:"), "{config}");
        }
        assert!(read("config.yaml").contains("multiplex_profiles: true"));
        assert!(!read(".env").contains(people[0].key.expose()));
    }
}
