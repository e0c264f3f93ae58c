//! `quickstart` as a person uses it: what it prints is pasted into a shell as it stands, and afterwards nothing is left.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::support::child::{Child, Program};
use super::support::{poll_for, venv_program};

/// A quickstart with a temporary directory of its own.
struct Quickstart {
    child: Child,
    temp: tempfile::TempDir,
    text: String,
}

impl Quickstart {
    /// Starts it and waits for its lines.
    #[track_caller]
    fn start(arguments: &[&str], limit: Duration) -> Self {
        let quickstart = Self::until("Ctrl-C ends it", arguments, limit);
        assert!(quickstart.child.is_running(), "{}", quickstart.text);
        quickstart
    }

    /// Starts it and waits until it has printed something, or ended.
    #[track_caller]
    fn until(printed: &str, arguments: &[&str], limit: Duration) -> Self {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let logs = temp.path().join("output");
        std::fs::create_dir(temp.path().join("tmp")).expect("a directory");
        let program = Program {
            path: env!("CARGO_BIN_EXE_botgate").into(),
            arguments: ["quickstart", "--listen", "127.0.0.1:0"].iter().chain(arguments).map(|a| (*a).into()).collect(),
            environment: vec![("TMPDIR".into(), temp.path().join("tmp").display().to_string())],
            directory: temp.path().to_owned(),
            input: String::new(),
        };
        let child = Child::start(program, &logs);
        let found = || {
            let text = child.output();
            (text.contains(printed) || !child.is_running()).then_some(text)
        };
        let text = poll_for(limit, found).unwrap_or_else(|| panic!("no {printed} in time:\n{}", child.output()));
        Quickstart { child, temp, text }
    }

    /// The printed command that begins like this.
    #[track_caller]
    fn command(&self, begins: &str, holds: &str) -> &str {
        let mut lines = self.text.lines().filter(|line| line.starts_with(begins) && line.contains(holds));
        lines.next().unwrap_or_else(|| panic!("no {begins} with {holds} in\n{}", self.text))
    }

    /// The printed Python block with its here-document.
    #[track_caller]
    fn python(&self) -> &str {
        let (from, to) = (self.text.find("python3 - <<"), self.text.rfind("\nPYTHON\n"));
        let (from, to) = from.zip(to).unwrap_or_else(|| panic!("no Python in\n{}", self.text));
        &self.text[from..to + "\nPYTHON\n".len()]
    }

    /// Asks it to end; nothing may be left.
    #[track_caller]
    fn end(mut self) {
        let status = self.child.stop(Duration::from_secs(20));
        assert!(status.is_some_and(|status| status.success()), "{status:?}\n{}", self.child.output());
        let left: Vec<_> = std::fs::read_dir(self.temp.path().join("tmp")).expect("its directory").collect();
        assert!(left.is_empty(), "{left:?}");
        let started = processes_with(&self.temp.path().display().to_string());
        assert!(started.is_empty(), "{started:?}");
    }
}

/// Processes whose environment names this text, by what they run.
fn processes_with(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    let named = entries.filter(|path| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.windows(text.len()).any(|window| window == text.as_bytes())
    });
    named.map(|path| std::fs::read_to_string(path.join("cmdline")).unwrap_or_default()).collect()
}

#[track_caller]
fn pasted(command: &str, search: &Path) -> String {
    let output = Command::new("/bin/sh")
        .args(["-c", command])
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", search.display()))
        .output()
        .expect("a shell runs");
    assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn everything_printed_works(quickstart: &Quickstart) {
    let clients = venv_program("clients", "python3").parent().expect("a directory").to_owned();
    let streamed = pasted(quickstart.command("curl ", "\"stream\":true"), &clients);
    assert!(streamed.contains("I am bot-alice") && streamed.contains("data: [DONE]"), "{streamed}");
    let bobs = pasted(quickstart.command("curl -s ", "/v1/models"), &clients);
    assert!(bobs.contains("bot-bob") && !bobs.contains("bot-alice"), "{bobs}");
    let refused = pasted(quickstart.command("curl ", "/p/bot-bob/"), &clients);
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let python = pasted(quickstart.python(), &clients);
    assert!(python.contains("I am bot-alice"), "{python}");
}

#[test]
fn with_the_stand_in_every_printed_line_works_and_nothing_is_left() {
    let quickstart = Quickstart::start(&["--stand-in"], Duration::from_secs(30));
    assert!(quickstart.text.contains("botgate's stand-in for Hermes"), "{}", quickstart.text);
    everything_printed_works(&quickstart);
    quickstart.end();
}

#[test]
fn with_an_installed_hermes_every_printed_line_works_and_nothing_is_left() {
    let hermes = venv_program("gateway", "hermes").display().to_string();
    let quickstart = Quickstart::start(&["--hermes", &hermes], Duration::from_secs(150));
    assert!(quickstart.text.contains("Hermes 0.22."), "{}", quickstart.text);
    everything_printed_works(&quickstart);
    quickstart.end();
}

#[test]
fn a_hermes_without_keys_of_its_bots_own_is_named_and_not_used() {
    let hermes = venv_program("old-gateway", "hermes").display().to_string();
    let quickstart = Quickstart::start(&["--hermes", &hermes], Duration::from_secs(60));
    assert!(quickstart.text.contains("is Hermes 0.19.0"), "{}", quickstart.text);
    quickstart.end();
}

#[test]
fn an_end_while_hermes_starts_leaves_nothing() {
    let hermes = venv_program("gateway", "hermes").display().to_string();
    let quickstart = Quickstart::until("Starting Hermes", &["--hermes", &hermes], Duration::from_secs(60));
    assert!(!quickstart.text.contains("Ctrl-C"), "{}", quickstart.text);
    let temp = quickstart.temp.path().display().to_string();
    assert!(poll_for(Duration::from_secs(20), || (processes_with(&temp).len() > 1).then_some(())).is_some());
    quickstart.end();
}
