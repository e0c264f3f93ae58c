//! A throw-away Hermes home and its files.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::hermes::Bot;
use super::real_parts;

/// A directory that is removed with its owner, or by a later run if this process ends first.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) path: PathBuf,
}

impl Home {
    pub(super) fn new() -> Self {
        let homes = real_parts().join("homes");
        fs::create_dir_all(&homes).expect("a directory for homes");
        remove_stale(&homes);
        let prefix = format!("{}.", std::process::id());
        let path = tempfile::Builder::new().prefix(&prefix).tempdir_in(&homes).expect("a new home").keep();
        fs::create_dir(path.join("user")).expect("a new directory takes an entry");
        Self { path }
    }

    /// What HERMES_HOME names.
    pub(super) fn hermes(&self) -> PathBuf {
        self.path.join("hermes")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Shared gateways end with the process and leave their homes; each is named after its process.
fn remove_stale(homes: &Path) {
    for entry in fs::read_dir(homes).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split('.').next()).unwrap_or_default();
        if !owner.is_empty() && !Path::new("/proc").join(owner).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Writes the default profile: the gateway's own settings, its key and its provider.
pub(super) fn write_default(home: &Path, listen: SocketAddr, key: &str, model_url: &str) {
    directory(&home.join("profiles"));
    let config = format!(
        "{}gateway:\n  multiplex_profiles: true\n  api_server:\n    enabled: true\n    host: {}\n    port: {}\n",
        common(model_url, "sk-provider-default"),
        listen.ip(),
        listen.port(),
    );
    private_file(&home.join("config.yaml"), &config);
    private_file(&home.join(".env"), &format!("API_SERVER_ENABLED=true\nAPI_SERVER_KEY={key}\n"));
}

/// Writes a bot beside its final place and renames it there, so that a running gateway never sees half of one.
pub(super) fn write_bot(home: &Path, bot: &Bot, model_url: &str) {
    let staging = home.join("profiles").join(format!(".{}.staging", bot.profile));
    directory(&staging);
    let mut config = common(model_url, &bot.provider_key);
    if let Some(mcp) = &bot.mcp {
        let server = json!({"url": mcp.url, "headers": {"Authorization": "Bearer ${CORP_MCP_TOKEN}"}});
        config.push_str(&format!("mcp_servers: {}\n", json!({"corp": server})));
    }
    private_file(&staging.join("config.yaml"), &config);
    write_environment(&staging, bot);
    private_file(&staging.join("SOUL.md"), &format!("You are {}.\n", bot.profile));
    fs::rename(&staging, profile(home, &bot.profile)).expect("the profile is new");
}

/// Replaces the `.env` of a bot that is already served.
pub(super) fn rewrite_environment(home: &Path, bot: &Bot) {
    write_environment(&profile(home, &bot.profile), bot);
}

/// Removes a bot's profile. It is moved out of sight first: a running gateway may be writing into it.
pub(super) fn remove_bot(home: &Path, bot: &Bot) {
    let away = home.join(format!("removed.{}", bot.profile));
    fs::rename(profile(home, &bot.profile), &away).expect("the profile is there");
    let _ = fs::remove_dir_all(away);
}

fn profile(home: &Path, name: &str) -> PathBuf {
    home.join("profiles").join(name)
}

fn write_environment(profile: &Path, bot: &Bot) {
    let mut text = format!("API_SERVER_KEY={}\n", bot.api_key);
    if let Some(mcp) = &bot.mcp {
        text.push_str(&format!("CORP_MCP_TOKEN={}\n", mcp.token));
    }
    let new = profile.join(".env.new");
    private_file(&new, &text);
    fs::rename(new, profile.join(".env")).expect("the file can be put in place");
}

/// What every profile has. JSON is YAML too.
fn common(url: &str, provider_key: &str) -> String {
    let model = json!({
        "default": "stub-model", "provider": "custom", "base_url": url, "api_key": provider_key,
        "context_length": 200_000,
    });
    // Nothing may be installed at run time beside what is pinned.
    format!("model: {model}\nsecurity:\n  allow_lazy_installs: false\n")
}

fn directory(path: &Path) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).expect("the directory can be made");
}

fn private_file(path: &Path, text: &str) {
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("the file can be written");
}
