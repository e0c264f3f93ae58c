//! HTTP/1.1 by hand, so that a test can send and see exactly what it means to.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// The longest wait for a byte, in general: a first turn on a busy machine takes many seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// A request in the making.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    head: String,
    body: Vec<u8>,
}

impl Call {
    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self { head: format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n"), body: Vec::new() }
    }

    pub(crate) fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn bearer(self, key: &str) -> Self {
        self.header("Authorization", &format!("Bearer {key}"))
    }

    /// A POST of a JSON body.
    pub(crate) fn post(target: &str, body: &Value) -> Self {
        let body = body.to_string().into_bytes();
        let mut call = Self::new("POST", target)
            .header("Content-Type", "application/json")
            .header("Content-Length", &body.len().to_string());
        call.body = body;
        call
    }

    /// Sends it on a connection of its own and reads the head of the answer.
    #[track_caller]
    pub(crate) fn open(&self, address: SocketAddr) -> Incoming {
        self.try_open(address).expect("the peer answers")
    }

    /// Like [`Call::open`], where no answer is not yet a failure.
    pub(crate) fn try_open(&self, address: SocketAddr) -> io::Result<Incoming> {
        Incoming::read_head(BufReader::new(self.try_send_only(address)?))
    }

    /// Sends it and reads nothing. Dropping the connection closes it.
    #[track_caller]
    pub(crate) fn send_only(&self, address: SocketAddr) -> TcpStream {
        self.try_send_only(address).expect("the peer takes the request")
    }

    fn try_send_only(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address)?;
        self.write_to(&stream)?;
        Ok(stream)
    }

    fn write_to(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(self.head.as_bytes())?;
        stream.write_all(b"\r\n")?;
        stream.write_all(&self.body)
    }

    /// Sends it and reads the whole answer.
    #[track_caller]
    pub(crate) fn send(&self, address: SocketAddr) -> Answer {
        self.open(address).finish()
    }
}

/// An answer whose body is still to be read. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
}

impl Incoming {
    fn read_head(mut reader: BufReader<TcpStream>) -> io::Result<Self> {
        let status_line = line(&mut reader)?;
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status line: {status_line:?}")))?;
        let mut headers = Vec::new();
        while let Some((name, value)) = line(&mut reader)?.split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Self { status, headers, reader })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub(crate) fn is_chunked(&self) -> bool {
        self.header("transfer-encoding") == Some("chunked")
    }

    /// The next chunk of a chunked body as text; `None` after the last one.
    #[track_caller]
    pub(crate) fn next_chunk(&mut self) -> Option<String> {
        self.try_next_chunk().expect("the next chunk")
    }

    /// Like [`Incoming::next_chunk`], where a body that breaks off is not yet a failure.
    pub(crate) fn try_next_chunk(&mut self) -> io::Result<Option<String>> {
        let size = line(&mut self.reader)?;
        let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
        let mut chunk = vec![0; size];
        self.reader.read_exact(&mut chunk)?;
        if !line(&mut self.reader)?.is_empty() {
            return Err(io::Error::other("a chunk longer than its size"));
        }
        let chunk = String::from_utf8(chunk).map_err(io::Error::other)?;
        Ok((size > 0).then_some(chunk))
    }

    /// Reads chunks until one contains `text` and returns everything read; panics at the end of the body.
    #[track_caller]
    pub(crate) fn read_until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            match self.next_chunk() {
                Some(chunk) => seen.push_str(&chunk),
                None => panic!("the body ended without {text:?}: {seen}"),
            }
        }
        seen
    }

    #[track_caller]
    pub(crate) fn finish(self) -> Answer {
        self.finish_and_keep().0
    }

    /// The whole answer, and the connection that it came on.
    #[track_caller]
    fn finish_and_keep(mut self) -> (Answer, BufReader<TcpStream>) {
        let mut body = Vec::new();
        if self.is_chunked() {
            while let Some(chunk) = self.next_chunk() {
                body.extend_from_slice(chunk.as_bytes());
            }
        } else {
            let length = self.header("content-length").and_then(|length| length.parse().ok());
            body.resize(length.unwrap_or(0), 0);
            self.reader.read_exact(&mut body).expect("the body is as long as declared");
        }
        let body = String::from_utf8(body).expect("the body is text");
        (Answer { status: self.status, headers: self.headers, body }, self.reader)
    }
}

/// A connection that is kept for several requests, one after the other.
#[derive(Debug)]
pub(crate) struct KeptConnection {
    address: SocketAddr,
    reader: Option<BufReader<TcpStream>>,
    pub(crate) opened: usize,
}

impl KeptConnection {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self { address, reader: None, opened: 0 }
    }

    /// Sends the call and reads the whole answer; opens a connection when there is none or the peer asked to close it.
    #[track_caller]
    pub(crate) fn send(&mut self, call: &Call) -> Answer {
        let reader = self.reader.take().unwrap_or_else(|| {
            self.opened += 1;
            BufReader::new(TcpStream::connect(self.address).expect("the peer accepts"))
        });
        let sent = call.write_to(reader.get_ref());
        sent.expect("the peer takes the request");
        let (answer, reader) = Incoming::read_head(reader).expect("the peer answers").finish_and_keep();
        self.reader = (answer.header("connection") != Some("close")).then_some(reader);
        answer
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// The body as JSON, `Null` if it is something else.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn line(reader: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("closed in the middle of {line:?}"))),
    }
}
