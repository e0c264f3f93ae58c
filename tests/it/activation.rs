//! Under a service manager: its sockets serve, nobody who comes during a restart is turned away, and it is told how things are.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::botgate::{BINARY, Botgate, Setup};
use crate::support::child::{Child, Program};
use crate::support::http::Call;
use crate::support::site::Site;
use crate::support::wire::{Wire, chat, contains, ends_cleanly, get, post};
use crate::support::{eventually, poll_for};

const SOON: Duration = Duration::from_secs(60);

/// The command line of a service manager that holds these sockets.
fn manager(sockets: &[&str]) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/activation/manager.py");
    let first = ["/usr/bin/python3", script.to_str().expect("a path of text")].into_iter();
    first.chain(sockets.iter().copied()).chain(["--"]).map(str::to_owned).collect()
}

/// An edge whose gateway is not there: it is to take connections, not to forward.
fn edge() -> Botgate {
    Botgate::new(&Setup::at(([127, 0, 0, 1], 1).into()))
}

/// Changes a line of its configuration.
fn configure(botgate: &Botgate, from: &str, to: &str) {
    let file = botgate.path("botgate.toml");
    let text = fs::read_to_string(&file).expect("the configuration is there");
    assert!(text.contains(from), "{text}");
    fs::write(&file, text.replace(from, to)).expect("the configuration can be written");
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process"), signal).expect("it runs");
}

/// The process that a service manager runs.
fn served_by(manager: i32) -> i32 {
    let children = fs::read_to_string(format!("/proc/{manager}/task/{manager}/children")).expect("it runs");
    children.trim().parse().expect("it has one child")
}

/// The flags of each socket that a process has open (proc(5), fdinfo).
fn socket_flags(pid: i32) -> Vec<u32> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs").flatten();
    let sockets = open.filter(|entry| {
        let link = fs::read_link(entry.path()).unwrap_or_default();
        link.to_string_lossy().starts_with("socket:")
    });
    let infos = sockets.filter_map(|entry| {
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_string_lossy())).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?.trim().to_owned();
        u32::from_str_radix(&flags, 8).ok()
    });
    infos.collect()
}

#[test]
fn sockets_that_are_handed_over_serve_and_go_no_further() {
    const CLOEXEC: u32 = 0o2_000_000;
    for count in ["127.0.0.1:1", "127.0.0.1:3"] {
        let mut botgate = edge();
        configure(&botgate, "metrics_address = \"127.0.0.1:0\"", "metrics_address = \"127.0.0.2:0\"");
        botgate.serve_as(&[], &manager(&[count, "127.0.0.2:1"]));
        assert!(botgate.metrics_address().ip().to_string() == "127.0.0.2");
        for _ in 0..200 {
            let answer = Call::get("/health").header("Connection", "close").send(botgate.address());
            assert_eq!(answer.status, 200);
        }
        assert!(botgate.metrics().contains("botgate_build_info"));
        let flags = socket_flags(served_by(botgate.pid()));
        assert!(flags.len() >= 4, "{flags:?}");
        assert!(flags.iter().all(|flags| flags & CLOEXEC != 0), "{flags:?}");
        assert!(botgate.stop());
    }
}

#[test]
fn a_socket_that_nothing_listens_on_is_a_clear_error() {
    let botgate = edge();
    let mut command = manager(&["127.0.0.1:1", "127.0.0.3:1"]);
    command.extend([BINARY.to_owned(), "serve".to_owned()]);
    let program = Program {
        path: PathBuf::from(command.remove(0)),
        arguments: command,
        environment: vec![("BOTGATE_CONFIG".to_owned(), botgate.path("botgate.toml").display().to_string())],
        directory: botgate.path(""),
        input: String::new(),
    };
    let mut child = Child::start(program, &botgate.path("output.stray"));
    let ended = child.ended(SOON).expect("it ends");
    let told = child.output();
    assert_eq!(ended.code(), Some(1), "{told}");
    assert!(told.contains("127.0.0.3:") && told.contains("listen.address") && told.contains("ListenStream"), "{told}");
}

#[test]
fn whoever_comes_during_a_restart_waits_and_is_answered() {
    let mut botgate = edge();
    botgate.serve_as(&[], &manager(&["127.0.0.1:2"]));
    let (address, manager) = (botgate.address(), botgate.pid());
    let (answered, enough) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let mut wire = Wire::connect(address);
                    wire.send(get("/health", ""));
                    assert_eq!(wire.answer().status(), 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for start in 2..=4 {
            let before = answered.load(Ordering::Relaxed);
            eventually("connections are served", SOON, || answered.load(Ordering::Relaxed) > before + 50);
            signal(manager, Signal::HUP);
            eventually("it serves again", SOON, || botgate.output().matches("listening on http://").count() == start);
        }
        enough.store(true, Ordering::Relaxed);
    });
    assert!(botgate.stop(), "{}", botgate.output());
}

/// Where the service manager hears.
struct Ear(UnixDatagram);

impl Ear {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("a socket in a directory of ours");
        socket.set_read_timeout(Some(SOON)).expect("a socket takes a timeout");
        Ear(socket)
    }

    /// The next word.
    #[track_caller]
    fn next(&self) -> String {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).expect("the service manager is told something");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    /// Whether nothing new is said for this long.
    fn is_silent(&self, limit: Duration) -> bool {
        let mut buffer = [0; 4096];
        self.0.set_nonblocking(true).expect("a socket takes the option");
        while self.0.recv(&mut buffer).is_ok() {}
        self.0.set_nonblocking(false).expect("a socket takes the option");
        self.0.set_read_timeout(Some(limit)).expect("a socket takes a timeout");
        let silent = self.0.recv(&mut buffer).is_err();
        self.0.set_read_timeout(Some(SOON)).expect("a socket takes a timeout");
        silent
    }

    /// Everything up to a word with this line.
    #[track_caller]
    fn until(&self, line: &str) -> Vec<String> {
        let mut heard = Vec::new();
        while !heard.last().is_some_and(|word: &String| word.lines().any(|said| said == line)) {
            heard.push(self.next());
        }
        heard
    }
}

#[test]
fn the_service_manager_hears_what_becomes_of_the_edge() {
    let mut site = Site::of(&["alice"]);
    let path = site.botgate.path("notify");
    let ear = Ear::at(&path);
    let path = path.display().to_string();
    site.botgate.serve_as(&[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "400000")], &[]);
    let heard = ear.until("READY=1");
    assert!(heard[0].contains("STATUS=starting"), "{heard:?}");
    assert!(heard.iter().all(|word| !word.contains("WATCHDOG")), "{heard:?}");
    let address = site.botgate.address();
    assert!(heard.last().is_some_and(|word| word.contains(&format!("STATUS=serving on {address}"))), "{heard:?}");
    let since = Instant::now();
    for _ in 0..6 {
        assert_eq!(ear.next(), "WATCHDOG=1\n");
    }
    assert!(since.elapsed() > Duration::from_millis(700), "twice in its time, not more");

    site.botgate.becomes_ready();
    let mut wire = Wire::connect(address);
    wire.send(post("/v1/chat/completions", &site.botgate.session("alice"), &chat("WORDS:60:0.05", true)));
    wire.until("w3 ");
    site.botgate.terminate();
    let heard = ear.until("STOPPING=1");
    assert!(heard.last().is_some_and(|word| word.contains("turns under way: 1")), "{heard:?}");
    let longer = poll_for(SOON, || ear.next().contains("EXTEND_TIMEOUT_USEC=").then_some(()));
    assert!(longer.is_some());
    let (rest, _) = wire.rest(SOON);
    assert!(contains(&rest, "[DONE]") && ends_cleanly(&rest));
    assert_eq!(site.botgate.ended(), Some(0));
}

#[test]
fn a_thread_that_does_not_answer_silences_the_watchdog() {
    let mut botgate = edge();
    let path = botgate.path("notify");
    let ear = Ear::at(&path);
    let path = path.display().to_string();
    let environment = [("NOTIFY_SOCKET", path.as_str()), ("WATCHDOG_USEC", "400000")];
    botgate.serve_as(&environment, &manager(&["127.0.0.1:1"]));
    ear.until("WATCHDOG=1");
    signal(botgate.pid(), Signal::USR1);
    eventually("it is noticed", SOON, || botgate.output().contains("a data-path thread does not answer"));
    assert!(ear.is_silent(Duration::from_secs(1)), "it exists, but it does not work");
    signal(botgate.pid(), Signal::USR2);
    ear.until("WATCHDOG=1");
    assert!(botgate.stop(), "{}", botgate.output());
}
