//! The README is true: its lines run as they stand, its references name what the code has, no more and no less.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use botgate::cli::stand_in::{self, Options};
use botgate::names::{GatewayName, Login, ProfileName};
use botgate::secret::ApiServerKey;
use botgate::telemetry::metrics::Metrics;

use crate::support::child::{Child, Program};
use crate::support::poll_for;

const BOTGATE: &str = env!("CARGO_BIN_EXE_botgate");

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).expect("README.md is there")
}

/// The text that follows `<!-- mark -->`: the next fenced block, or the next table.
fn marked(mark: &str) -> Vec<String> {
    let text = readme();
    let found: Vec<String> = text
        .split(&format!("<!-- {mark} -->\n"))
        .skip(1)
        .map(|rest| match rest.strip_prefix("```") {
            Some(fenced) => {
                let (_, code) = fenced.split_once('\n').expect("a fence ends its line");
                code.split("```").next().unwrap_or_default().to_owned()
            }
            None => rest.lines().take_while(|line| line.starts_with('|')).map(|line| format!("{line}\n")).collect(),
        })
        .collect();
    assert!(!found.is_empty(), "README has {mark}");
    found
}

fn help(arguments: &[&str]) -> Output {
    Command::new(BOTGATE).args(arguments).arg("--help").output().expect("botgate runs")
}

/// The subcommands that a help text lists.
fn subcommands(arguments: &[&str]) -> Vec<String> {
    let text = String::from_utf8(help(arguments).stdout).expect("help is text");
    let Some((_, list)) = text.split_once("Commands:\n") else { return Vec::new() };
    list.lines()
        .take_while(|line| !line.trim().is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_configuration_reference_names_every_key_and_its_default() {
    let block = marked("reference: configuration").concat();
    let shown = botgate::config::parse(&block, Path::new("/etc/botgate")).expect("the reference is a valid file");
    let smallest = "[[gateway]]\nname = \"main\"\nurl = \"http://127.0.0.1:8642\"\n";
    let default = botgate::config::parse(smallest, Path::new("/etc/botgate")).expect("the smallest file is valid");
    assert_eq!(format!("{:?}", shown.limits), format!("{:?}", default.limits));
    assert_eq!(format!("{:?}", shown.deadlines), format!("{:?}", default.deadlines));
    assert_eq!(shown.gateways[0].max_turns, default.gateways[0].max_turns);
    assert_eq!((shown.access_log, shown.audit_when_full), (default.access_log, default.audit_when_full));

    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/sections.rs");
    let source = std::fs::read_to_string(source).expect("the sections are there");
    let source = source.split("#[cfg(test)]").next().expect("code comes first");
    let mut known = BTreeSet::new();
    for call in
        ["parsed", "list", "boolean", "integer", "count", "rate", "duration", "table", "tables", "address", "path"]
    {
        for rest in source.split(&format!("{call}(")).skip(1) {
            let arguments: String = rest.chars().take(60).collect();
            if let Some(key) = arguments.split('"').nth(1).filter(|_| !arguments.trim_start().starts_with("text")) {
                let before = arguments.split('"').next().unwrap_or_default();
                if before.is_empty() || before.ends_with(", ") {
                    known.insert(key.to_owned());
                }
            }
        }
    }
    assert!(known.len() > 30, "{known:?}");
    for key in known {
        let named = block.contains(&format!("{key} = ")) || block.contains(&format!("[{key}]"));
        assert!(named, "README's configuration reference lacks {key}");
    }
}

#[test]
fn the_command_reference_names_every_command() {
    let table = marked("reference: commands").concat();
    for command in subcommands(&[]) {
        let nested = subcommands(&[&command]);
        let all: Vec<String> = match nested.is_empty() {
            true => vec![format!("botgate {command}")],
            false => nested.iter().map(|name| format!("botgate {command} {name}")).collect(),
        };
        for line in all {
            assert!(table.contains(&format!("`{line}")), "README's command reference lacks {line}");
        }
    }
    for row in table.split("`botgate ").skip(1) {
        let words: Vec<&str> = row.split('`').next().unwrap_or_default().split_whitespace().collect();
        let path: Vec<&str> = words
            .into_iter()
            .take_while(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') && !word.starts_with("--"))
            .collect();
        assert!(help(&path).status.success(), "botgate {} is in README and not in the program", path.join(" "));
    }
}

#[test]
fn the_metrics_reference_is_what_is_exposed() {
    let table = marked("reference: metrics").concat();
    let metrics = Metrics::new(&[GatewayName::parse("main").expect("a name")], &["none", "/health"]);
    let rendered = metrics.render();
    let exposed: BTreeSet<&str> = rendered
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.starts_with("botgate_"))
        .collect();
    let named: BTreeSet<&str> = table
        .split('`')
        .filter(|word| word.starts_with("botgate_"))
        .filter_map(|word| word.split(['{', ' ']).next())
        .collect();
    for name in &named {
        let lazy = matches!(
            *name,
            "botgate_requests_total" | "botgate_request_duration_seconds" | "botgate_time_to_first_byte_seconds"
        );
        assert!(exposed.contains(name) || lazy, "{name} is in README and not exposed");
    }
}

/// Ports that are free now; README's own may be taken on this machine.
fn free_ports<const N: usize>() -> [u16; N] {
    let held: [TcpListener; N] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    std::array::from_fn(|at| held[at].local_addr().expect("a bound socket has an address").port())
}

/// Runs lines in one shell, in a directory, with botgate on the path.
fn shell(directory: &Path, lines: &str, environment: &[(&str, &str)]) -> Output {
    let path = format!("{}:/usr/bin:/bin", Path::new(BOTGATE).parent().expect("a directory").display());
    Command::new("/bin/sh")
        .args(["-euc", lines])
        .env_clear()
        .env("PATH", path)
        .envs(environment.iter().copied())
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .expect("the shell runs")
}

#[test]
fn the_operators_lines_run_as_they_stand() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [gateway, listen, metrics] = free_ports();
    let ports = |text: &str| {
        text.replace("127.0.0.1:8642", &format!("127.0.0.1:{gateway}"))
            .replace(":8080", &format!(":{listen}"))
            .replace("127.0.0.1:9090", &format!("127.0.0.1:{metrics}"))
    };
    let mut bots = Vec::new();
    for login in ["alice", "bob"] {
        let (login, key) = (Login::parse(login).expect("a login"), ApiServerKey::generate());
        std::fs::write(directory.path().join(format!("{login}.key")), key.expose()).expect("the key is written");
        bots.push((ProfileName::of(&login), key));
    }
    let socket = TcpListener::bind(("127.0.0.1", gateway)).expect("the port is still free");
    let _stand_in = stand_in::serve(socket, Options::new(bots, ApiServerKey::generate())).expect("the stand-in starts");
    let blocks: Vec<String> = marked("run: operator").iter().map(|block| ports(block)).collect();
    let [init, adopt, session, refused] = blocks.as_slice() else { panic!("four blocks, not {}", blocks.len()) };

    let done = shell(directory.path(), init, &[]);
    assert!(done.status.success(), "{init}\n{done:?}");
    let edge = directory.path().join("edge");
    let file = edge.join("botgate.toml");
    let text = ports(&std::fs::read_to_string(&file).expect("init wrote the file"));
    // The stand-in runs in this process, so as the edge's own user: what README names for trying out on one account.
    std::fs::write(&file, text.replace("#allow_same_user = false", "allow_same_user = true"))
        .expect("the file is changed");
    let done = shell(&edge, adopt, &[]);
    assert!(done.status.success(), "{adopt}\n{done:?}");

    let serve = marked("run: operator-serve").concat();
    let program = Program {
        path: "/bin/sh".into(),
        arguments: vec!["-euc".into(), format!("exec {}", serve.trim())],
        environment: vec![("PATH".into(), Path::new(BOTGATE).parent().expect("a directory").display().to_string())],
        directory: edge.clone(),
        input: String::new(),
    };
    let serving = Child::start(program, &directory.path().join("serve.out"));
    // The proof may be told before the address is.
    let ready = poll_for(Duration::from_secs(30), || {
        let told = serving.output();
        (told.contains("\"standing\":\"proved\"") && told.contains("listening on")).then_some(())
    });
    assert!(ready.is_some(), "{}", serving.output());

    let both = format!("{session}\n{refused}");
    let done = shell(&edge, &both, &[]);
    let mut told = String::from_utf8_lossy(&done.stdout).into_owned();
    let _ = write!(told, "{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{both}\n{told}");
    for expected in ["bot-alice", "I am bot-alice.", "[DONE]", "\n401\n", "not_own_bot"] {
        assert!(told.contains(expected), "{expected:?} is missing in:\n{told}");
    }
}
