//! h2load: HTTP/2 over TLS, so many connections with so many streams at once on each.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Driven, median};
use crate::trouble::{Outcome, Trouble};

/// Connections, and streams on each.
const CONNECTIONS: u64 = 8;
const STREAMS: u64 = 32;
/// Requests that may be under way when the time is over.
pub const UNDER_WAY: u64 = CONNECTIONS * STREAMS;

/// One request, over and over.
#[derive(Debug)]
pub struct H2load {
    path: String,
    headers: Vec<String>,
    log: PathBuf,
}

impl H2load {
    /// Takes path and header lines of a request without a body; the host is where it goes.
    ///
    /// # Errors
    /// It is none.
    pub fn new(dir: &Path, request: &str) -> Outcome<Self> {
        let mut lines = request.lines();
        let path = lines.next().and_then(|line| line.split(' ').nth(1));
        let path = path.ok_or_else(|| Trouble::new("h2load has no request"))?.to_owned();
        let headers = lines.filter(|line| !line.is_empty() && !line.starts_with("Host: ")).map(str::to_owned);
        Ok(H2load { path, headers: headers.collect(), log: dir.join("h2load.log") })
    }

    /// Drives a proxy.
    ///
    /// # Errors
    /// h2load cannot be run, or an answer was not what it had to be.
    pub fn drive(&self, address: SocketAddr, time: Duration) -> Outcome<Driven> {
        // It adds to a log that is there.
        let _ = std::fs::remove_file(&self.log);
        let done = Command::new("h2load")
            .args(["--threads", "2", "--clients", &CONNECTIONS.to_string()])
            .args(["--max-concurrent-streams", &STREAMS.to_string()])
            .args(["--duration", &time.as_secs().max(1).to_string()])
            .args(self.headers.iter().flat_map(|line| ["--header", line]))
            .arg(format!("--log-file={}", self.log.display()))
            .arg(format!("https://{address}{}", self.path))
            .output()
            .map_err(Trouble::with("h2load"))?;
        let text = String::from_utf8_lossy(&done.stdout);
        let is_http2 = text.contains("Application protocol: h2\n");
        let numbers = |start: &str| -> Vec<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default();
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
        };
        // total, started, done, succeeded, failed, errored, timeout
        let (requests, codes) = (numbers("requests: "), numbers("status codes: "));
        let (Some(&succeeded), Some([failed, errored, timeout])) = (requests.get(3), requests.get(4..7)) else {
            return Err(Trouble::new(format!("h2load fails: {text}{}", String::from_utf8_lossy(&done.stderr))));
        };
        // The words 2xx to 5xx are numbers here too, after each count.
        let others: u64 = codes.iter().skip(2).step_by(2).sum();
        if !is_http2 || succeeded == 0 || failed + errored + timeout > 0 || others > 0 {
            return Err(Trouble::new(format!("not every answer was right, or not on HTTP/2: {text}")));
        }
        // Start, status and time in microseconds.
        let log = std::fs::read_to_string(&self.log).map_err(Trouble::with(self.log.display()))?;
        let times = log.lines().filter_map(|line| line.split('\t').nth(2)?.trim().parse::<f64>().ok());
        Ok(Driven { units: succeeded, p50_us: median(&mut times.collect::<Vec<_>>()) })
    }
}
