//! One case on one connection: its bytes out, and what comes back, read as strictly as a client can.
//!
//! Invariants: every wait has a deadline and every buffer a bound. It does not judge.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::corpus::Outcome;

/// Most bytes that are read of one connection.
const READ_MAX_BYTES: usize = 1024 * 1024;

/// A connection, plain or encrypted.
pub trait Connection: Read + Write + Send {
    /// Sets the longest wait of a read or a write.
    ///
    /// # Errors
    /// The system's.
    fn patience(&mut self, limit: Duration) -> io::Result<()>;
}

impl Connection for TcpStream {
    fn patience(&mut self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))?;
        self.set_write_timeout(Some(limit))
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It is still open.
    Open,
    /// It was closed or reset.
    Closed,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Status line and header lines, without their line ends.
    pub head: Vec<String>,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Whole answers, in their order.
    pub answers: Vec<Answer>,
    /// Whether something came that is no whole answer.
    pub rest: bool,
    /// What became of the connection.
    pub end: End,
}

/// How long to wait.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// For what is expected.
    pub expected: Duration,
    /// For the connection's end, once all answers are there.
    pub end: Duration,
    /// For more than what is expected.
    pub more: Duration,
}

/// Sends a case's bytes and reads what comes, until one of the expected outcomes is there and nothing follows.
pub fn play(connection: &mut dyn Connection, bytes: &[u8], expected: &[Outcome], waits: Waits) -> Seen {
    let to_head = bytes.starts_with(b"HEAD ");
    let deadline = Instant::now() + waits.expected;
    // What is refused early is not taken to its end; the answer tells.
    let _ = connection
        .patience(waits.expected)
        .and_then(|()| connection.write_all(bytes))
        .and_then(|()| connection.flush());
    let (mut read, mut seen) = (Vec::new(), Seen { answers: Vec::new(), rest: false, end: End::Open });
    let mut buffer = [0; 16 * 1024];
    loop {
        let (answers, used) = parse(&read, to_head, seen.end);
        seen.rest = used < read.len();
        seen.answers = answers;
        if seen.end == End::Closed || read.len() > READ_MAX_BYTES {
            return seen;
        }
        let decided = expected.iter().any(|outcome| seen.meets(outcome))
            || !expected.iter().any(|outcome| seen.may_become(outcome));
        let all_there =
            expected.iter().any(|outcome| !seen.answers.is_empty() && seen.answers.len() == outcome.answers.len());
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = match (decided, all_there && !seen.rest) {
            (true, _) => waits.more,
            (false, true) => left.min(waits.end),
            (false, false) => left,
        };
        if wait.is_zero() || connection.patience(wait).is_err() {
            return seen;
        }
        match connection.read(&mut buffer) {
            Ok(0) => seen.end = End::Closed,
            Ok(length) => read.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return seen,
            // A reset, or an encrypted connection that was not ended as it should be.
            Err(_) => seen.end = End::Closed,
        }
    }
}

impl Seen {
    /// Whether this is what came.
    pub fn meets(&self, outcome: &Outcome) -> bool {
        self.answers.len() == outcome.answers.len()
            && (!outcome.end || self.end == End::Closed)
            && self.rest == outcome.cut
            && self.may_become(outcome)
    }

    /// Whether it can still be, as far as the whole answers tell.
    fn may_become(&self, outcome: &Outcome) -> bool {
        self.answers.len() <= outcome.answers.len()
            && outcome.answers.iter().zip(&self.answers).all(|(told, answer)| told.is(answer.status))
    }

    /// The statuses, and the end.
    pub fn text(&self) -> String {
        let mut words: Vec<String> = self.answers.iter().map(|answer| answer.status.to_string()).collect();
        words.extend(self.rest.then(|| "more".to_owned()));
        words.extend((self.end == End::Closed).then(|| "end".to_owned()));
        if words.is_empty() { "nothing".to_owned() } else { words.join(" ") }
    }
}

impl Answer {
    /// A header's value, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().skip(1).find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Head and body without what differs between equal answers: date, request identifier and the connection's fate.
    pub fn blanked(&self) -> String {
        let varies = |line: &&String| {
            let name = line.split(':').next().unwrap_or_default();
            ["date", "x-request-id", "connection"].iter().any(|varying| varying.eq_ignore_ascii_case(name))
        };
        let mut lines: Vec<&str> = self.head.iter().filter(|line| !varies(line)).map(String::as_str).collect();
        let body = String::from_utf8_lossy(&self.body);
        lines.push(&body);
        lines.join("\n")
    }
}

/// The whole answers in these bytes, and how many bytes they take.
fn parse(bytes: &[u8], to_head: bool, end: End) -> (Vec<Answer>, usize) {
    let (mut answers, mut place) = (Vec::new(), 0);
    while let Some((answer, length)) = answer(&bytes[place..], to_head && answers.is_empty(), end) {
        answers.push(answer);
        place += length;
    }
    (answers, place)
}

fn answer(bytes: &[u8], to_head: bool, end: End) -> Option<(Answer, usize)> {
    let head_length = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head_length]).ok()?;
    let head: Vec<String> = text.trim_end().split("\r\n").map(str::to_owned).collect();
    // A client of HTTP/1.0 is answered in its own version.
    let status = head.first()?.strip_prefix("HTTP/1.1 ").or_else(|| head[0].strip_prefix("HTTP/1.0 "))?;
    let status = status.get(..3)?.parse().ok()?;
    let mut answer = Answer { status, head, body: Vec::new() };
    let rest = &bytes[head_length..];
    if to_head || status < 200 || matches!(status, 204 | 304) {
        return Some((answer, head_length));
    }
    let chunked = answer.header("transfer-encoding") == Some("chunked");
    let length = match answer.header("content-length") {
        Some(digits) => {
            let length: usize = digits.parse().ok()?;
            answer.body.extend_from_slice(rest.get(..length)?);
            length
        }
        None if chunked => chunks(rest, &mut answer.body)?,
        None if end == End::Closed => {
            answer.body.extend_from_slice(rest);
            rest.len()
        }
        None => return None,
    };
    Some((answer, head_length + length))
}

/// Appends a chunked body and tells its length as it came.
fn chunks(bytes: &[u8], body: &mut Vec<u8>) -> Option<usize> {
    let mut place = 0;
    loop {
        let rest = &bytes[place..];
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        let end = line.checked_add(2)?.checked_add(size)?;
        if rest.get(end..end.checked_add(2)?)? != b"\r\n" {
            return None;
        }
        body.extend_from_slice(&rest[line + 2..end]);
        place += end + 2;
        if size == 0 {
            return Some(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::attack::corpus::Told;

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

    #[test]
    fn answers_are_told_apart() {
        let bytes = [OK, b"HTTP/1.1 401 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", b"HTT"].concat();
        let (answers, used) = parse(&bytes, false, End::Open);
        assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 401]);
        assert_eq!((answers[1].body.as_slice(), used), (&b"ab"[..], bytes.len() - 3));
        assert_eq!(parse(b"HTTP/1.1 404 No\r\ncontent-length: 9\r\n\r\n", true, End::Open).0.len(), 1);
        assert_eq!(parse(b"HTTP/1.1 400 Bad\r\n\r\n", false, End::Open).0.len(), 0);
        assert_eq!(parse(b"HTTP/1.1 400 Bad\r\n\r\n", false, End::Closed).0.len(), 1);
    }

    #[test]
    fn an_outcome_is_met_by_exactly_its_answers() {
        let (answers, _) = parse(OK, false, End::Open);
        let seen = |rest, end| Seen { answers: answers.clone(), rest, end };
        let outcome = |answers: &[Told], end| Outcome { answers: answers.to_vec(), end, cut: false };
        assert!(seen(false, End::Open).meets(&outcome(&[Told::Status(200)], false)));
        assert!(seen(false, End::Closed).meets(&outcome(&[Told::Served], true)));
        assert!(!seen(false, End::Open).meets(&outcome(&[Told::Status(200)], true)));
        assert!(!seen(true, End::Open).meets(&outcome(&[Told::Status(200)], false)));
        assert!(!seen(false, End::Open).meets(&outcome(&[Told::Status(200), Told::Status(401)], false)));
        assert!(!seen(false, End::Open).meets(&outcome(&[Told::Refused], false)));
        assert_eq!(seen(true, End::Closed).text(), "200 more end");
    }

    #[test]
    fn what_differs_between_equal_answers_is_left_out() {
        let of = |bytes: &[u8]| parse(bytes, false, End::Open).0.remove(0).blanked();
        let one = of(b"HTTP/1.1 401 No\r\nDate: a\r\nx-request-id: 1\r\ncontent-length: 0\r\n\r\n");
        let two =
            of(b"HTTP/1.1 401 No\r\nDate: b\r\nx-request-id: 2\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(one, two);
    }
}
