//! Child processes, and what their whole trees use: time on the processors, memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::trouble::{Outcome, Trouble};

/// How long a process gets to end after TERM.
const GRACE: Duration = Duration::from_secs(10);

/// A running program with its output in a file. Dropping it stops it.
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    output: PathBuf,
}

impl Child {
    /// Starts a program; it hears TERM when this process dies. Both of its streams go to the file `output`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(program: &Path, arguments: &[String], output: PathBuf) -> Outcome<Self> {
        let file = File::create(&output).map_err(Trouble::with(output.display()))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(file.try_clone()?)
            .stdout(file)
            .spawn()
            .map_err(Trouble::with(program.display()))?;
        Ok(Child { child, output })
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// What it has printed.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.is_running() {
            return;
        }
        let _ = kill_process(self.pid(), Signal::TERM);
        let since = Instant::now();
        while since.elapsed() < GRACE {
            if !self.is_running() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // It has not heard; what is left of its tree would go on using the machine.
        for pid in tree(self.pid()) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// A process and everything below it.
fn tree(root: Pid) -> Vec<Pid> {
    let parents: Vec<(Pid, Pid)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
        .filter_map(|pid| Some((pid, Pid::from_raw(stat(pid)?.get(1)?.parse().ok()?)?)))
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

/// The fields of a process' stat file from the third one, its state, on. The second one may hold spaces.
fn stat(pid: Pid) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Time on the processors that a process tree has used so far, in nanoseconds.
///
/// Two lower bounds are known of each process, and the higher one counts: the sum over its threads, exact but without
/// those that ended, and its own total in ticks of 10 ms. Where the kernel keeps no schedstat only the second one is left.
pub fn cpu_ns(root: Pid) -> u64 {
    tree(root).into_iter().map(|pid| threads_ns(pid).max(ticks_ns(pid))).sum()
}

fn threads_ns(pid: Pid) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let of = |entry: fs::DirEntry| -> Option<u64> {
        fs::read_to_string(entry.path().join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    tasks.into_iter().flatten().flatten().filter_map(of).sum()
}

fn ticks_ns(pid: Pid) -> u64 {
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let used = |fields: &[String]| -> Option<u64> {
        // utime and stime, fields 14 and 15 of proc(5).
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    stat(pid).as_deref().and_then(used).unwrap_or(0) * tick_ns
}

/// Memory of a process tree in KiB: what is its own, and its share of what it shares (PSS). The kernel's is not in it.
///
/// # Errors
/// A process may not be looked at.
pub fn memory_kib(root: Pid) -> Outcome<u64> {
    let mut sum = 0;
    for pid in tree(root) {
        let path = format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero());
        let text = fs::read_to_string(&path).map_err(Trouble::with(&path))?;
        let pss = text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse().ok());
        let pss: u64 = pss.ok_or_else(|| Trouble::new(format!("{path} has no Pss line")))?;
        sum += pss;
    }
    Ok(sum)
}

/// Lets this process and its children hold many sockets, as far as the system allows.
pub fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const WANTED: u64 = 65_536;
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= WANTED) {
        return;
    }
    let raised = Rlimit { current: Some(WANTED), maximum: Some(now.maximum.unwrap_or(WANTED).max(WANTED)) };
    if setrlimit(Resource::Nofile, raised).is_err() {
        // Who may not raise the upper bound has at least that.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    }
}
