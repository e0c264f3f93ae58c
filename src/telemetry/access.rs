//! The access log: one JSON line on stdout for each request, when it is switched on.
//!
//! Invariants: a caller never waits (a line that finds the queue full is dropped and counted); a line holds no query,
//! no body and no credential, because [`AccessRecord`] has no place for them. It is not evidence: that is the audit
//! log.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::lines::Lines;
use super::metrics::Metrics;
use super::reason::Reason;
use crate::names::{Login, ProfileName};

/// What the access log tells about one request.
#[derive(Debug, Clone, Copy)]
pub struct AccessRecord<'a> {
    /// The request's own identifier.
    pub request_id: &'a str,
    /// The person, once known.
    pub login: Option<&'a Login>,
    /// The person's bot, once known.
    pub bot: Option<&'a ProfileName>,
    /// Method as sent; one that HTTP does not define is shown as `other`.
    pub method: &'a str,
    /// The route's label, never the target.
    pub route: &'a str,
    /// What the client saw; `None` when nothing was answered.
    pub status: Option<u16>,
    /// From the request's head to the last byte of the answer.
    pub duration: Duration,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// Why it was refused or cut.
    pub reason: Option<Reason>,
    /// The client's address.
    pub peer: IpAddr,
}

#[derive(Serialize)]
struct Line<'a> {
    at: u64,
    request_id: &'a str,
    login: Option<&'a Login>,
    bot: Option<&'a ProfileName>,
    method: &'a str,
    route: &'a str,
    status: Option<u16>,
    duration_ms: f64,
    bytes_in: u64,
    bytes_out: u64,
    reason: Option<&'static str>,
    peer: IpAddr,
}

/// A handle on the access log's writer. The writer ends when the last handle is dropped.
#[derive(Clone)]
pub struct AccessLog {
    lines: Lines,
    metrics: Arc<Metrics>,
}

impl AccessLog {
    /// Starts the writer thread on stdout.
    ///
    /// # Errors
    /// The system refuses another thread.
    pub fn start(metrics: Arc<Metrics>) -> io::Result<Self> {
        Self::to(io::stdout(), metrics)
    }

    fn to(out: impl Write + Send + 'static, metrics: Arc<Metrics>) -> io::Result<Self> {
        let counted = Arc::clone(&metrics);
        let lines = Lines::start("access-log", out, move |lost| counted.access_dropped(lost))?;
        Ok(AccessLog { lines, metrics })
    }

    /// Queues one line; never blocks.
    pub fn access(&self, record: &AccessRecord<'_>) {
        if !self.lines.write(line(record)) {
            self.metrics.access_dropped(1);
        }
    }

    /// Waits until what is queued has been written; false when that took longer than `limit`. Blocks: for shutdown.
    pub fn flush(&self, limit: Duration) -> bool {
        self.lines.flush(limit)
    }
}

fn is_known(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" | "CONNECT" | "TRACE")
}

fn line(record: &AccessRecord<'_>) -> Vec<u8> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    // A client chooses the word, and might put anything there.
    let method = if is_known(record.method) { record.method } else { "other" };
    let shown = Line {
        at,
        request_id: record.request_id,
        login: record.login,
        bot: record.bot,
        method,
        route: record.route,
        status: record.status,
        duration_ms: (record.duration.as_micros() as f64) / 1e3,
        bytes_in: record.bytes_in,
        bytes_out: record.bytes_out,
        reason: record.reason.map(Reason::as_str),
        peer: record.peer,
    };
    let mut out = Vec::with_capacity(384);
    // Text and numbers always serialise, and writing to a Vec cannot fail.
    let _ = serde_json::to_writer(&mut out, &shown);
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn record<'a>(login: &'a Login, bot: &'a ProfileName) -> AccessRecord<'a> {
        AccessRecord {
            request_id: "r1",
            login: Some(login),
            bot: Some(bot),
            method: "POST",
            route: "chat_completions",
            status: Some(401),
            duration: Duration::from_micros(1_500),
            bytes_in: 3,
            bytes_out: 4,
            reason: Some(Reason::NotOwnBot),
            peer: IpAddr::from([192, 0, 2, 1]),
        }
    }

    #[test]
    fn a_request_is_one_json_line() {
        let sink = Sink::default();
        let log = AccessLog::to(sink.clone(), Metrics::new(&[], &[])).unwrap();
        let login = Login::parse("a\"b").unwrap();
        log.access(&record(&login, &ProfileName::of(&login)));
        assert!(log.flush(Duration::from_secs(5)));
        let written = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(written.matches('\n').count(), 1);
        let mut value: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert!(value.as_object_mut().unwrap().remove("at").unwrap().as_u64().unwrap() > 1_500_000_000_000);
        let expected = serde_json::json!({"request_id": "r1", "login": "a\"b", "bot": "bot-a_22b", "method": "POST",
            "route": "chat_completions", "status": 401, "duration_ms": 1.5, "bytes_in": 3, "bytes_out": 4,
            "reason": "not_own_bot", "peer": "192.0.2.1"});
        assert_eq!(value, expected);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let metrics = Metrics::new(&[], &[]);
        let log = AccessLog::to(Broken, Arc::clone(&metrics)).unwrap();
        let login = Login::parse("alice").unwrap();
        for _ in 0..3 {
            log.access(&record(&login, &ProfileName::of(&login)));
        }
        assert!(log.flush(Duration::from_secs(5)));
        assert!(metrics.render().contains("botgate_access_log_dropped_lines_total 3\n"));
    }
}
