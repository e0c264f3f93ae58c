//! The container recipe and the Compose file: linted, and true about this repository. No engine runs here.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{config, deploy, run, text, yaml};
use crate::support::venv_program;

#[test]
fn the_recipe_is_clean_and_ends_without_rights() {
    let recipe = deploy("container/Dockerfile").display().to_string();
    let (clean, said) =
        run(venv_program("deploy", "hadolint"), &["--failure-threshold", "style", &recipe], Path::new("/"));
    assert!(clean && said.trim().is_empty(), "{said}");
    let recipe = text("container/Dockerfile");
    let stages: Vec<&str> = recipe.split("\nFROM ").collect();
    assert_eq!(stages.len(), 3, "a comment, the build, and what runs");
    let runs = stages[2];
    assert!(runs.contains("\nUSER 10001:10001\n") && !runs.contains("apt-get"), "{runs}");
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    assert!(stages[1].starts_with(&format!("rust:{wanted}-")), "built with {wanted}, as Cargo.toml says");
}

#[test]
fn what_the_recipe_copies_is_enough_to_build() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = tempfile::tempdir().expect("a temporary directory");
    let context = text("container/Dockerfile.dockerignore");
    let sent: Vec<&str> = context.lines().filter_map(|line| line.strip_prefix('!')).collect();
    assert!(context.starts_with("*\n"), "nothing is sent but what is named");
    for pattern in &sent {
        let (folder, deep) = match pattern.split_once("/*") {
            None => {
                fs::copy(root.join(pattern), place.path().join(pattern)).expect("a file of the repository");
                continue;
            }
            Some((folder, rest)) => (folder, rest.starts_with('*')),
        };
        copy(&root.join(folder), &place.path().join(folder), deep, pattern.ends_with(".rs"));
    }
    // Every copy of the recipe finds something that was sent.
    for line in
        text("container/Dockerfile").lines().filter(|line| line.starts_with("COPY ") && !line.contains("--from"))
    {
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        let (_, sources) = words.split_last().expect("a destination");
        for source in sources {
            assert!(place.path().join(source).exists(), "{line}");
        }
    }
    let manifest = place.path().join("Cargo.toml").display().to_string();
    let found = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--locked", "--format-version=1", "--manifest-path", &manifest])
        .output()
        .expect("cargo runs");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    // All that the sources include is there.
    for (file, text) in rust_files(&place.path().join("src")) {
        for part in text.split("include_str!(\"").chain(text.split("include_bytes!(\"")).skip(1) {
            let name = part.split('"').next().unwrap_or_default();
            let included = file.parent().expect("a folder").join(name);
            assert!(name.contains('\n') || part.len() == text.len() || included.exists(), "{}", included.display());
        }
    }
}

fn copy(from: &Path, to: &Path, deep: bool, only_rust: bool) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder of the repository").flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            if deep {
                copy(&path, &target, deep, only_rust);
            }
        } else if !only_rust || path.extension().is_some_and(|extension| extension == "rs") {
            fs::copy(&path, &target).expect("a file is copied");
        }
    }
}

fn rust_files(folder: &Path) -> Vec<(std::path::PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.push((path, text));
        }
    }
    found
}

fn list<'v>(value: &'v Value, key: &str) -> Vec<&'v str> {
    value[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn the_compose_file_holds_together() {
    let compose = yaml("container/compose.yaml");
    let recipe = text("container/Dockerfile");
    let config = config("container/botgate.toml");
    let (edge, gateway) = (&compose["services"]["botgate"], &compose["services"]["gateway"]);
    assert_eq!(compose["services"].as_object().expect("services").len(), 2);
    let folder = deploy("container");
    let context = folder.join(edge["build"]["context"].as_str().expect("a context"));
    assert!(context.join(edge["build"]["dockerfile"].as_str().expect("a recipe")).is_file());
    for service in [edge, gateway] {
        assert_eq!(service["read_only"], true, "{service}");
        assert_eq!(list(service, "cap_drop"), ["ALL"]);
        assert_eq!(list(service, "security_opt"), ["no-new-privileges:true"]);
        assert!(service["privileged"].is_null());
        for secret in list(service, "secrets") {
            assert!(compose["secrets"][secret]["file"].is_string(), "{secret}");
        }
        for network in list(service, "networks") {
            assert!(!compose["networks"][network].is_null(), "{network}");
        }
    }
    assert_ne!(edge["user"], gateway["user"], "the gateway is another user");
    assert!(recipe.contains(&format!("\nUSER {}\n", edge["user"].as_str().expect("a user"))));
    assert!(gateway["ports"].is_null(), "nobody but the edge reaches the gateway");
    assert_eq!((list(gateway, "networks"), &compose["networks"]["inside"]["internal"]), (vec!["inside"], &true.into()));
    assert!(list(edge, "secrets").contains(&"botgate-master-key"));
    assert_eq!(edge["environment"]["CREDENTIALS_DIRECTORY"], "/run/secrets");

    let mounts = list(edge, "volumes");
    let environment = recipe.lines().find_map(|line| line.strip_prefix("ENV BOTGATE_CONFIG=")).expect("a place");
    assert!(mounts.contains(&format!("./botgate.toml:{environment}:ro").as_str()), "{mounts:?}");
    assert!(mounts.contains(&format!("botgate-data:{}", config.data_dir.display()).as_str()), "{mounts:?}");
    assert!(compose["volumes"]["botgate-data"].is_object());
    let [published] = list(edge, "ports")[..] else { panic!("one port is published") };
    assert!(published.ends_with(&format!(":{}", config.listen.address.port())), "{published}");
    assert!(config.metrics_address.is_some_and(|address| !published.ends_with(&address.port().to_string())));
    let url = &config.gateways[0].url;
    assert_eq!(url.host(), "gateway");
    let command = list(gateway, "command");
    assert!(command.contains(&format!("0.0.0.0:{}", url.port()).as_str()), "{command:?}");
    let grace = edge["stop_grace_period"].as_str().and_then(botgate::config::parse_duration).expect("a duration");
    assert!(grace > config.deadlines.drain);
    let descriptors = edge["ulimits"]["nofile"].as_u64().expect("a number");
    assert!(descriptors > 2 * config.limits.connections as u64);
}
