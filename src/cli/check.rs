//! `check`: the configuration file, and every error in it.

use std::path::Path;

use super::out::{Failure, Out};
use crate::config::{self, Config, ConfigError};
use crate::listener::tls;

/// Reads the configuration; a failure tells every error of the file.
pub(super) fn load(file: &Path) -> Result<Config, Failure> {
    config::load(file).map_err(|error| failure(file, error))
}

fn failure(file: &Path, error: ConfigError) -> Failure {
    let missing = !file.exists();
    let next = if missing {
        "make one: botgate init; or name yours: --config FILE, or BOTGATE_CONFIG"
    } else {
        "mend the file, then: botgate check"
    };
    Failure::with_next(error, next)
}

/// Reads the configuration, and the certificates and keys that it names.
fn examined(file: &Path) -> Result<Config, ConfigError> {
    let config = config::load(file)?;
    let examined = config.listen.tls.as_ref().map_or(Ok(()), tls::examine);
    examined.map_err(|error| ConfigError { file: file.to_owned(), problems: error.problems().to_vec() })?;
    Ok(config)
}

/// Tells whether the file is valid, and what it asks for.
pub(super) fn run(file: &Path, out: Out) -> Result<(), Failure> {
    let config = match examined(file) {
        Ok(config) => config,
        Err(error) if out.is_json() => {
            let problem = |p: &config::ConfigProblem| serde_json::json!({ "key": p.key, "message": p.message });
            let problems: Vec<_> = error.problems.iter().map(problem).collect();
            out.line(&serde_json::json!({ "file": file, "problems": problems }).to_string())?;
            return Err(Failure::Told);
        }
        Err(error) => return Err(failure(file, error)),
    };
    let value = serde_json::json!({ "file": file, "problems": [] });
    out.show(&value, || {
        let mut text = format!("{}: valid\n  data      {}\n", file.display(), config.data_dir.display());
        let scheme = if config.listen.tls.is_some() { "https" } else { "http" };
        text.push_str(&format!("  listen    {scheme}://{}\n", config.listen.address));
        let metrics = super::out::or_dash(config.metrics_address);
        text.push_str(&format!("  metrics   {metrics}\n"));
        for gateway in &config.gateways {
            let isolation = match gateway.default_api_server_key_file {
                Some(_) => "",
                None => "; without default_api_server_key_file isolation stays unproven",
            };
            text.push_str(&format!("  gateway   {} at {}{isolation}\n", gateway.name, gateway.url));
        }
        text
    })
}
