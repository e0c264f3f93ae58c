//! Tracing: diagnostics as JSON lines on stderr.
//!
//! Invariant: whoever logs never waits for stderr, because a pipe that nobody reads would stop the data path; what finds
//! no room is counted and told in the log itself.
//! This room sets the subscriber up and decides nothing about what is logged; callers never log a secret, a query or
//! a body. The access log is not tracing: it is [`crate::telemetry::access`], on stdout.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use super::lines::Lines;

/// Where the lines go, once set up; for [`flush`].
static DIAGNOSTICS: OnceLock<Diagnostics> = OnceLock::new();

/// Why diagnostics could not be set up.
#[derive(Debug)]
pub enum TraceError {
    /// The filter is not one; it names levels such as `info` or `botgate=debug`.
    Filter(tracing_subscriber::filter::ParseError),
    /// Something has set a subscriber up already.
    Taken(TryInitError),
    /// The system refuses another thread.
    Thread(io::Error),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TraceError::Filter(_) => "the log filter is not one such as \"info\" or \"botgate=debug\"",
            TraceError::Taken(_) => "diagnostics are set up already",
            TraceError::Thread(_) => "diagnostics need a thread",
        })
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TraceError::Filter(error) => Some(error),
            TraceError::Taken(error) => Some(error),
            TraceError::Thread(error) => Some(error),
        }
    }
}

/// Sends diagnostics to stderr as JSON lines. `RUST_LOG` decides what is logged, else `filter`, else `info`.
///
/// # Errors
/// A filter that is not one, or a second call.
#[expect(clippy::disallowed_methods, reason = "RUST_LOG is where people look for this setting")]
pub fn init(filter: Option<&str>) -> Result<(), TraceError> {
    let filter = env_filter(std::env::var("RUST_LOG").ok().as_deref(), filter)?;
    let diagnostics = Diagnostics::start(io::stderr()).map_err(TraceError::Thread)?;
    let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(diagnostics.clone());
    tracing_subscriber::registry().with(filter).with(lines).try_init().map_err(TraceError::Taken)?;
    // A second set-up has failed above.
    let _ = DIAGNOSTICS.set(diagnostics);
    Ok(())
}

/// Waits until what has been logged is written, at most `limit`. Blocks: for the end of the process.
pub fn flush(limit: Duration) {
    if let Some(diagnostics) = DIAGNOSTICS.get() {
        diagnostics.lines.flush(limit);
    }
}

/// Diagnostics on their way to a stream.
#[derive(Clone)]
struct Diagnostics {
    lines: Lines,
    // Lines dropped since the last one that was queued.
    dropped: Arc<AtomicU64>,
}

impl Diagnostics {
    fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let dropped = Arc::new(AtomicU64::new(0));
        let lost = Arc::clone(&dropped);
        let lines = Lines::start("diagnostics", out, move |lines| {
            lost.fetch_add(lines, Ordering::Relaxed);
        })?;
        Ok(Diagnostics { lines, dropped })
    }
}

impl<'a> MakeWriter<'a> for Diagnostics {
    type Writer = &'a Diagnostics;

    fn make_writer(&'a self) -> &'a Diagnostics {
        self
    }
}

/// Each write is one line: the subscriber hands over a whole event at once.
impl Write for &Diagnostics {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let mut text = Vec::with_capacity(line.len());
        if dropped > 0 {
            let told = format!("{{\"level\":\"WARN\",\"message\":\"{dropped} lines of diagnostics were dropped\"}}\n");
            text.extend_from_slice(told.as_bytes());
        }
        text.extend_from_slice(line);
        if !self.lines.write(text) {
            self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn env_filter(environment: Option<&str>, configured: Option<&str>) -> Result<EnvFilter, TraceError> {
    let text = environment.filter(|text| !text.trim().is_empty()).or(configured).unwrap_or("info");
    EnvFilter::try_new(text).map_err(TraceError::Filter)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// A stream that tells when it is reached and takes nothing until it is let go.
    struct Stuck {
        reached: SyncSender<()>,
        held: Receiver<()>,
        seen: SyncSender<Vec<u8>>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.reached.try_send(());
            let _ = self.held.recv();
            let _ = self.seen.try_send(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_stream_that_takes_nothing_and_the_loss_is_told() {
        let (reached, stuck) = sync_channel(1);
        let (let_go, held) = sync_channel(0);
        let (seen, written) = sync_channel(1_000);
        let diagnostics = Diagnostics::start(Stuck { reached, held, seen }).unwrap();
        let line = [b'x'; 1024];
        (&diagnostics).write_all(&line).unwrap();
        // From here on the writer takes nothing from the queue, so the losses are not told in between.
        stuck.recv_timeout(Duration::from_secs(20)).unwrap();
        for _ in 0..20_000 {
            (&diagnostics).write_all(&line).unwrap();
        }
        let dropped = diagnostics.dropped.load(Ordering::Relaxed);
        assert!(dropped > 10_000, "{dropped}");
        drop(let_go);
        assert!(diagnostics.lines.flush(Duration::from_secs(20)));
        (&diagnostics).write_all(&line).unwrap();
        assert!(diagnostics.lines.flush(Duration::from_secs(20)));
        let text: Vec<u8> = written.try_iter().flatten().collect();
        assert!(String::from_utf8(text).unwrap().contains(&format!("{dropped} lines of diagnostics were dropped")));
    }

    #[test]
    fn the_environment_wins_over_the_file_and_info_is_the_default() {
        assert_eq!(env_filter(None, None).unwrap().to_string(), "info");
        assert_eq!(env_filter(Some(" "), Some("warn")).unwrap().to_string(), "warn");
        assert_eq!(env_filter(Some("debug"), Some("warn")).unwrap().to_string(), "debug");
        assert!(matches!(env_filter(Some("botgate=loud"), None), Err(TraceError::Filter(_))));
    }
}
