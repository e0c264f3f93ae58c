//! A child process that never outlives the test process.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::poll_for;

/// A running program with its output in a file. Dropping it stops it: TERM, a bounded wait, KILL.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    output: PathBuf,
    stop: Option<SyncSender<Stop>>,
    owner: Option<JoinHandle<Option<ExitStatus>>>,
}

#[derive(Debug)]
struct Stop {
    grace: Duration,
}

/// What a child is given: nothing of the test's own environment.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) directory: PathBuf,
    /// What it reads, then end of file. At most a few lines.
    pub(crate) input: String,
}

impl Child {
    /// Starts `program`; both of its streams go to the file `output`.
    #[track_caller]
    pub(crate) fn start(program: Program, output: &Path) -> Self {
        let file = File::create(output).expect("the output file can be made");
        let (stop, stopped) = sync_channel(1);
        let (started, pid) = sync_channel(1);
        // The kernel sends the death signal when the thread that started the child ends, so that thread stays.
        let owner = std::thread::spawn(move || own(program, file, &started, &stopped));
        let pid = pid.recv().expect("the owning thread answers").expect("the program starts");
        Self { pid, output: output.to_owned(), stop: Some(stop), owner: Some(owner) }
    }

    /// Sends TERM and does not wait.
    pub(crate) fn terminate(&self) {
        if self.is_running() {
            let _ = kill_process(self.pid, Signal::TERM);
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Kills it as `kill -9` does, and waits until it is gone.
    #[track_caller]
    pub(crate) fn kill(&self) {
        if self.is_running() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
        assert!(poll_for(Duration::from_secs(10), || (!self.is_running()).then_some(())).is_some(), "it is killed");
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| !owner.is_finished())
    }

    /// Everything it has printed.
    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Waits until it ends by itself; `None` when it does not in time.
    pub(crate) fn ended(&mut self, limit: Duration) -> Option<ExitStatus> {
        poll_for(limit, || (!self.is_running()).then_some(()))?;
        self.owner.take().and_then(|owner| owner.join().ok().flatten())
    }

    /// Stops it and waits; `None` if it had to be killed.
    pub(crate) fn stop(&mut self, grace: Duration) -> Option<ExitStatus> {
        if let Some(stop) = self.stop.take() {
            // Full or gone means that it is stopping or has stopped.
            let _ = stop.try_send(Stop { grace });
        }
        self.owner.take().and_then(|owner| owner.join().ok().flatten())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(10));
    }
}

fn own(
    program: Program,
    output: File,
    started: &SyncSender<std::io::Result<Pid>>,
    stopped: &Receiver<Stop>,
) -> Option<ExitStatus> {
    let mut child = match spawn(&program, output) {
        Ok(child) => child,
        Err(error) => {
            let _ = started.send(Err(error));
            return None;
        }
    };
    let pid = Pid::from_child(&child);
    let _ = started.send(Ok(pid));
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        let Ok(stop) = stopped.recv_timeout(Duration::from_millis(20)) else {
            continue;
        };
        let _ = kill_process(pid, Signal::TERM);
        let ended = poll_for(stop.grace, || child.try_wait().ok().flatten());
        if ended.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        return ended.filter(|status| status.signal() != Some(9));
    }
}

fn spawn(program: &Program, output: File) -> std::io::Result<std::process::Child> {
    let errors = output.try_clone()?;
    let mut child = Command::new("/usr/bin/setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(&program.path)
        .args(&program.arguments)
        .env_clear()
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&program.directory)
        .stdin(Stdio::piped())
        .stdout(output)
        .stderr(errors)
        .process_group(0)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input has closed it.
        let _ = stdin.write_all(program.input.as_bytes());
    }
    Ok(child)
}
