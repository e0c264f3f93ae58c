//! What `deploy/` holds is true and holds together: units, container recipe, alert rules, dashboard.

mod container;
mod monitoring;
mod selectors;
mod units;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::venv_program;

/// The binary.
const BOTGATE: &str = env!("CARGO_BIN_EXE_botgate");

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

fn text(name: &str) -> String {
    let path = deploy(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a program; gives how it ended and all it said.
#[track_caller]
fn run(program: impl AsRef<Path>, arguments: &[&str], directory: &Path) -> (bool, String) {
    let program = program.as_ref();
    let ran = Command::new(program).args(arguments).current_dir(directory).stdin(Stdio::null()).output();
    let Output { status, stdout, stderr } = ran.unwrap_or_else(|error| {
        panic!("{}: {error}: run tests/run once, it installs what is missing", program.display())
    });
    (status.success(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

/// A YAML file as JSON.
#[track_caller]
fn yaml(name: &str) -> Value {
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let path = deploy(name).display().to_string();
    let (done, said) = run(venv_program("deploy", "python"), &["-c", script, &path], Path::new("/"));
    assert!(done, "{said}");
    serde_json::from_str(&said).expect("JSON")
}

/// A configuration file of `deploy/`, as botgate understands it.
#[track_caller]
fn config(name: &str) -> botgate::config::Config {
    botgate::config::parse(&text(name), Path::new("/etc/botgate")).unwrap_or_else(|found| panic!("{name}: {found:?}"))
}
