//! An installed Hermes: finding it, asking its version, running it as a child that never outlives the quickstart.
//!
//! The child gets an environment of its own, a home of its own and a process group of its own, and is signalled by that
//! group's id only. Its answers are untrusted: a version is a few numbers or nothing.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

/// The first version whose keys are bound to paths.
const LEAST: [u64; 2] = [0, 22];
/// Longest wait for `hermes --version`.
const VERSION_WAIT: Duration = Duration::from_secs(20);
/// Longest wait for the gateway's first answer.
const BOOT_WAIT: Duration = Duration::from_secs(90);
/// What a throw-away gateway gets to end by itself.
const STOP_WAIT: Duration = Duration::from_millis(1500);
/// Bytes of a program's output that are read.
const OUTPUT_MAX: u64 = 64 << 10;

/// A usable Hermes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Installed {
    pub(super) program: PathBuf,
    pub(super) version: String,
}

/// Why an installed Hermes is not used, as a sentence for the person who waits.
pub(super) type NotUsed = String;

/// Finds a program by its name on a search path; relative entries do not count.
pub(super) fn on_path(name: &str, search: &std::ffi::OsStr) -> Option<PathBuf> {
    let runnable =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    std::env::split_paths(search).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(runnable)
}

/// Asks a program for its version and compares it number by number.
pub(super) async fn examine(program: &Path, home: &Path) -> Result<Installed, NotUsed> {
    let shown = program.display();
    let mut child = scrubbed(program, home)
        .arg("--version")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{shown} cannot be started: {error}"))?;
    let group = Group::of(&child);
    let mut output = Vec::new();
    let asking = async {
        if let Some(stdout) = child.stdout.take() {
            let _ = stdout.take(OUTPUT_MAX).read_to_end(&mut output).await;
        }
        let _ = child.wait().await;
    };
    let answered = timeout(VERSION_WAIT, asking).await.is_ok();
    drop(group);
    if !answered {
        return Err(format!("{shown} --version gave no answer in {} s", VERSION_WAIT.as_secs()));
    }
    let Some(version) = version(&String::from_utf8_lossy(&output)) else {
        return Err(format!("{shown} --version tells no version"));
    };
    let version_text = version.iter().map(u64::to_string).collect::<Vec<_>>().join(".");
    if version.as_slice() < LEAST.as_slice() {
        return Err(format!(
            "{shown} is Hermes {version_text}, whose default key opens every bot; 0.22 or later is needed"
        ));
    }
    Ok(Installed { program: program.to_owned(), version: version_text })
}

/// The first dotted number of a text, at most six parts of it.
fn version(text: &str) -> Option<Vec<u64>> {
    text.split(|c: char| c.is_whitespace() || c == '(' || c == ')').find_map(|word| {
        let word = word.trim_start_matches('v');
        let parts: Vec<u64> = word.split('.').take(6).map_while(|part| part.parse().ok()).collect();
        (parts.len() >= 2).then_some(parts)
    })
}

/// A command with nothing of our environment but what it needs.
fn scrubbed(program: &Path, home: &Path) -> Command {
    let mut search = std::ffi::OsString::new();
    if let Some(own) = program.parent().filter(|own| own.is_absolute()) {
        search.push(own);
        search.push(":");
    }
    search.push("/usr/local/bin:/usr/bin:/bin");
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("HOME", home)
        .env("HERMES_HOME", home.join("hermes"))
        .env("XDG_CONFIG_HOME", home.join("config"))
        .env("PATH", search)
        .env("LANG", "C.UTF-8")
        .env("NO_COLOR", "1")
        .current_dir(home)
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// A child's process group, killed as a whole when this value goes.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Group(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // An error means that the group is gone already.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// A running gateway of our own.
#[derive(Debug)]
pub(super) struct Hermes {
    // Before the child: the group is killed while its leader is not yet reaped, so the id is still its own.
    group: Group,
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Hermes {
    /// Starts the gateway; its home must be complete.
    pub(super) fn start(installed: &Installed, home: &Path, address: SocketAddr) -> io::Result<Self> {
        let log = home.join("gateway.log");
        let output = OpenOptions::new().append(true).create(true).mode(0o600).open(&log)?;
        let child = scrubbed(&installed.program, home)
            .args(["gateway", "run"])
            .env("API_SERVER_HOST", address.ip().to_string())
            .env("API_SERVER_PORT", address.port().to_string())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Hermes { group: Group::of(&child), child, address, log })
    }

    /// Waits until it answers; its own last words otherwise.
    pub(super) async fn ready(&mut self) -> Result<(), String> {
        let end = Instant::now() + BOOT_WAIT;
        while Instant::now() < end {
            if health(self.address).await.is_some_and(|body| body.contains("hermes-agent")) {
                return Ok(());
            }
            if let Ok(Some(_)) = self.child.try_wait() {
                return Err(self.last_words());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(format!("no answer in {} s\n{}", BOOT_WAIT.as_secs(), self.last_words()))
    }

    /// Resolves when the gateway ends by itself, with its last words.
    pub(super) async fn ended(&mut self) -> String {
        let _ = self.child.wait().await;
        self.last_words()
    }

    /// The end of its log.
    fn last_words(&self) -> String {
        let text = fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(8).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Asks it to end, then makes it end, with everything that it started in its group.
    pub(super) async fn stop(mut self) {
        self.group.signal(Signal::TERM);
        if timeout(STOP_WAIT, self.child.wait()).await.is_err() {
            self.group.signal(Signal::KILL);
            let _ = timeout(STOP_WAIT, self.child.wait()).await;
        }
    }
}

/// What answers `GET /health` on a loopback address, up to 4 KiB of it.
pub(super) async fn health(address: SocketAddr) -> Option<String> {
    let asking = async {
        let mut socket = TcpStream::connect(address).await?;
        socket.write_all(format!("GET /health HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        socket.take(4096).read_to_end(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = timeout(Duration::from_secs(2), asking).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.get(9..12).is_some_and(|status| status == "200").then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(dir: &Path, script: &str) -> PathBuf {
        let file = dir.join("hermes");
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
        file
    }

    #[test]
    fn versions_are_read_as_numbers() {
        assert_eq!(version("Hermes Agent v0.22.2.post1 (2026.9.24)\nPython: 3.11.7"), Some(vec![0, 22, 2]));
        assert_eq!(version("hermes 1.0"), Some(vec![1, 0]));
        assert_eq!(version("no numbers here 5"), None);
        assert!(version("v0.9.9").unwrap().as_slice() < LEAST.as_slice());
        assert!(version("v0.100.0").unwrap().as_slice() >= LEAST.as_slice());
    }

    #[tokio::test]
    async fn an_old_or_silent_program_is_named_and_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let old = examine(&program(dir.path(), "echo 'Hermes Agent v0.19.0'"), dir.path()).await.unwrap_err();
        assert!(old.contains("Hermes 0.19.0") && old.contains("0.22"), "{old}");
        assert!(examine(&program(dir.path(), "exit 1"), dir.path()).await.unwrap_err().contains("no version"));
        assert!(examine(Path::new("/nonexistent/hermes"), dir.path()).await.unwrap_err().contains("cannot be started"));
        let new = examine(&program(dir.path(), "echo v0.22.2"), dir.path()).await.unwrap();
        assert_eq!(new.version, "0.22.2");
    }

    #[tokio::test]
    async fn a_child_sees_nothing_of_our_environment() {
        let dir = tempfile::tempdir().unwrap();
        // CARGO is set for every test; the version is what the script makes of it.
        let seen = examine(&program(dir.path(), "echo v0.22.${CARGO:+9}1"), dir.path()).await.unwrap();
        assert_eq!(seen.version, "0.22.1");
    }

    #[test]
    fn only_programs_in_absolute_directories_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = program(dir.path(), "true");
        assert_eq!(on_path("hermes", dir.path().as_os_str()), Some(file.clone()));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(on_path("hermes", dir.path().as_os_str()), None);
        assert_eq!(on_path("sh", std::ffi::OsStr::new(".:bin")), None);
    }

    #[tokio::test]
    async fn a_stop_ends_the_whole_group() {
        let dir = tempfile::tempdir().unwrap();
        let deaf = program(dir.path(), "trap '' TERM\nsh -c 'trap \"\" TERM; echo $$ > inner; sleep 600' &\nwait");
        let installed = Installed { program: deaf, version: "0.22".to_owned() };
        let hermes = Hermes::start(&installed, dir.path(), "127.0.0.1:9".parse().unwrap()).unwrap();
        let inner = dir.path().join("inner");
        let end = Instant::now() + Duration::from_secs(10);
        let inner = loop {
            match fs::read_to_string(&inner).ok().and_then(|text| text.trim().parse().ok()).and_then(Pid::from_raw) {
                Some(pid) => break pid,
                None => assert!(Instant::now() < end, "the grandchild starts"),
            }
            tokio::task::yield_now().await;
        };
        hermes.stop().await;
        // Killed; whoever inherits it may not have reaped it yet.
        let gone = || match fs::read_to_string(format!("/proc/{}/stat", inner.as_raw_nonzero())) {
            Ok(stat) => stat.contains(") Z"),
            Err(_) => true,
        };
        while !gone() {
            assert!(Instant::now() < end, "the grandchild ends");
            tokio::task::yield_now().await;
        }
    }
}
