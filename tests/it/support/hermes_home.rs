//! The files of a throw-away Hermes home.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::hermes::Bot;

/// Writes the default profile: the gateway's own settings, its key and its provider.
pub(super) fn write_default(home: &Path, listen: SocketAddr, key: &str, model_url: &str) {
    directory(&home.join("profiles"));
    let config = format!(
        "{}gateway:\n  multiplex_profiles: true\n  api_server:\n    enabled: true\n    host: {}\n    port: {}\n",
        model(model_url, "sk-provider-default"),
        listen.ip(),
        listen.port(),
    );
    private_file(&home.join("config.yaml"), &config);
    private_file(
        &home.join(".env"),
        &format!("API_SERVER_ENABLED=true\nAPI_SERVER_KEY={key}\n"),
    );
}

/// Writes a bot beside its final place and renames it there, so that a running gateway never sees half of one.
pub(super) fn write_bot(home: &Path, bot: &Bot, model_url: &str) {
    let staging = home
        .join("profiles")
        .join(format!(".{}.staging", bot.profile));
    directory(&staging);
    let mut config = model(model_url, &bot.provider_key);
    if let Some(mcp) = &bot.mcp {
        let server =
            json!({"url": mcp.url, "headers": {"Authorization": "Bearer ${CORP_MCP_TOKEN}"}});
        config.push_str(&format!("mcp_servers: {}\n", json!({"corp": server})));
    }
    private_file(&staging.join("config.yaml"), &config);
    write_environment(&staging, bot);
    private_file(
        &staging.join("SOUL.md"),
        &format!("You are {}.\n", bot.profile),
    );
    fs::rename(&staging, profile(home, &bot.profile)).expect("the profile is new");
}

/// Replaces the `.env` of a bot that is already served.
pub(super) fn rewrite_environment(home: &Path, bot: &Bot) {
    write_environment(&profile(home, &bot.profile), bot);
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

/// JSON strings are YAML strings too.
fn model(url: &str, provider_key: &str) -> String {
    let model = json!({
        "default": "stub-model", "provider": "custom", "base_url": url, "api_key": provider_key,
        "context_length": 200_000,
    });
    format!("model: {model}\n")
}

fn directory(path: &Path) {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .expect("the directory can be made");
}

fn private_file(path: &Path, text: &str) {
    let file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .expect("the file can be written");
}
