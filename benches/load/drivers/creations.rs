//! Session creations at a steady pace, through the admin API of a running botgate.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use botgate::admin::{ControlFile, connect};
use botgate::tasks::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::whole;
use crate::people::Person;
use crate::trouble::{Outcome, Trouble};

/// Sessions that one call issues, all for one person: a call for several people has their whole list read.
const EACH: u32 = 100;
/// How long a session counts: longer than the bench drives, and not for ever.
const TTL_MS: u64 = 600_000;

/// Sessions being made. Dropping it ends that.
#[derive(Debug)]
pub struct Creations {
    made: Arc<AtomicU64>,
    since: Instant,
    tasks: Tasks,
    thread: Option<JoinHandle<Outcome<()>>>,
}

impl Creations {
    /// Starts making so many sessions a second, or as many as botgate takes.
    ///
    /// # Errors
    /// There is no admin socket.
    pub fn start(data_dir: &Path, people: &[Person], per_second: u32) -> Outcome<Self> {
        let control = ControlFile::read(data_dir).map_err(|error| Trouble::new(error.to_string()))?;
        let control = control.ok_or_else(|| Trouble::new("botgate tells no admin socket"))?;
        let logins: Vec<String> = people.iter().map(|person| person.login.to_string()).collect();
        let (made, tasks) = (Arc::new(AtomicU64::new(0)), Tasks::new());
        let (count, stopping) = (Arc::clone(&made), tasks.stopping().clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = Tasks::thread("creations", move || {
            runtime.block_on(async {
                let mut ticks = tokio::time::interval(Duration::from_secs(1) * EACH / per_second);
                for login in logins.iter().cycle() {
                    if stopping.run_until_cancelled(ticks.tick()).await.is_none() {
                        break;
                    }
                    create(&control, login).await?;
                    count.fetch_add(EACH.into(), Relaxed);
                }
                Ok(())
            })
        })?;
        Ok(Creations { made, since: Instant::now(), tasks, thread: Some(thread) })
    }

    /// Ends it: how many sessions were made a second.
    ///
    /// # Errors
    /// A call failed.
    pub fn stop(mut self) -> Outcome<f64> {
        self.tasks.stop();
        let per_second = self.made.load(Relaxed) as f64 / self.since.elapsed().as_secs_f64();
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(done)) => done.map(|()| per_second),
            _ => Err(Trouble::new("the thread that makes sessions has panicked")),
        }
    }
}

impl Drop for Creations {
    fn drop(&mut self) {
        self.tasks.stop();
        if let Some(thread) = self.thread.take() {
            // Whoever drops it is on the way out because of something else.
            let _ = thread.join();
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
