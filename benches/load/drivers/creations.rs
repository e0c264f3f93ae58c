//! Session creations at a steady pace, through the admin API of a running botgate.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use botgate::admin::{ControlFile, connect};
use botgate::tasks::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{PATIENCE, whole};
use crate::people::Person;
use crate::trouble::{Outcome, Trouble};

/// Sessions that one call issues, all for one person: a call for several people has their whole list read.
const EACH: u32 = 100;
/// How long a session counts: longer than the bench drives, and not for ever.
const TTL_MS: u64 = 600_000;

/// Calls that are under way at once, so that one is prepared while another one is stored.
const CALLERS: u32 = 4;

/// Sessions being made. Dropping it ends that.
#[derive(Debug)]
pub struct Creations {
    making: Arc<Making>,
    since: Instant,
    tasks: Tasks,
    thread: Option<JoinHandle<()>>,
}

/// What the callers share.
#[derive(Debug)]
struct Making {
    control: ControlFile,
    logins: Vec<String>,
    made: AtomicU64,
    failed: Mutex<Option<Trouble>>,
}

impl Creations {
    /// Starts making so many sessions a second, or as many as botgate takes.
    ///
    /// # Errors
    /// There is no admin socket.
    pub fn start(data_dir: &Path, people: &[Person], per_second: u32) -> Outcome<Self> {
        let control = ControlFile::read(data_dir).map_err(|error| Trouble::new(error.to_string()))?;
        let control = control.ok_or_else(|| Trouble::new("botgate tells no admin socket"))?;
        let logins = people.iter().map(|person| person.login.to_string()).collect();
        let making = Arc::new(Making { control, logins, made: AtomicU64::new(0), failed: Mutex::default() });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let pause = Duration::from_secs(1) * EACH * CALLERS / per_second;
        let tasks = Tasks::new();
        let (shared, inside) = (Arc::clone(&making), tasks.clone());
        let thread = Tasks::thread("creations", move || {
            runtime.block_on(async {
                for caller in 0..CALLERS {
                    let (making, stopping) = (Arc::clone(&shared), inside.stopping().clone());
                    inside.spawn(async move {
                        let _ = stopping.run_until_cancelled(making.go_on(caller, pause)).await;
                    });
                }
                inside.stopping().cancelled().await;
                inside.drain(PATIENCE).await;
            });
        })?;
        Ok(Creations { making, since: Instant::now(), tasks, thread: Some(thread) })
    }

    /// Ends it: how many sessions were made a second.
    ///
    /// # Errors
    /// A call failed.
    pub fn stop(mut self) -> Outcome<f64> {
        let per_second = self.making.made.load(Relaxed) as f64 / self.since.elapsed().as_secs_f64();
        self.end();
        let failed = self.making.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(per_second), Err)
    }

    fn end(&mut self) {
        self.tasks.stop();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so by itself.
            let _ = thread.join();
        }
    }
}

impl Drop for Creations {
    fn drop(&mut self) {
        self.end();
    }
}

impl Making {
    /// One caller's calls, one each pause, for people of its own; behind time it catches up.
    async fn go_on(&self, caller: u32, pause: Duration) {
        let first = tokio::time::Instant::now() + pause * caller / CALLERS;
        let mut ticks = tokio::time::interval_at(first, pause);
        for login in self.logins.iter().skip(caller as usize).step_by(CALLERS as usize).cycle() {
            ticks.tick().await;
            if let Err(trouble) = create(&self.control, login).await {
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(trouble);
                return;
            }
            self.made.fetch_add(EACH.into(), Relaxed);
        }
    }
}

async fn create(control: &ControlFile, login: &str) -> Outcome<()> {
    let body = format!(r#"{{"logins":["{login}"],"count":{EACH},"ttl_ms":{TTL_MS},"label":null}}"#);
    let mut request = format!(
        "POST /session/create HTTP/1.1\r\nHost: botgate\r\nAuthorization: Bearer {}\r\n",
        control.token().expose()
    );
    let _ = write!(request, "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut stream = connect(control).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::with_capacity(32 * 1024);
    // Each connection carries one call.
    stream.read_to_end(&mut bytes).await?;
    match whole(&bytes)? {
        Some(answer) if answer.head.status == 200 => Ok(()),
        _ => Err(Trouble::new(format!("a session is not made: {}", String::from_utf8_lossy(&bytes)))),
    }
}
