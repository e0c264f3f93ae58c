//! A client connection by hand: bytes out, raw answers in, and what becomes of the connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};

/// Longest wait for the next byte of an answer.
const PATIENCE: Duration = Duration::from_secs(40);

/// One connection.
pub(crate) struct Wire {
    reader: BufReader<Pipe>,
}

/// What carries the bytes.
enum Pipe {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Pipe::Plain(stream) => stream.read(buffer),
            Pipe::Encrypted(stream) => stream.read(buffer),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Pipe::Plain(stream) => stream.write(bytes),
            Pipe::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Pipe::Plain(stream) => stream.flush(),
            Pipe::Encrypted(stream) => stream.flush(),
        }
    }
}

/// One answer, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raw {
    /// Status line and header lines, in their order.
    pub(crate) head: Vec<String>,
    pub(crate) body: Vec<u8>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It is still open.
    Open,
    /// With a proper close.
    Closed,
    /// With a reset.
    Reset,
    /// Without the close_notify that TLS asks for: cut.
    Cut,
}

impl Wire {
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the peer accepts"))
    }

    /// Like [`Wire::connect`], where a refusal is not yet a failure.
    pub(crate) fn try_connect(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect(address).map(Self::over)
    }

    /// A connection from this loopback address.
    #[track_caller]
    pub(crate) fn connect_from(source: IpAddr, address: SocketAddr) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(source, 0).into()).expect("loopback has many addresses");
        socket.connect(&address.into()).expect("the peer accepts");
        Self::over(socket.into())
    }

    /// A connection whose system keeps as little as it can of what is not read yet.
    #[track_caller]
    pub(crate) fn connect_narrow(address: SocketAddr) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(1).expect("a socket takes the option");
        socket.connect(&address.into()).expect("the peer accepts");
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_nodelay(true).expect("a socket takes the option");
        Wire { reader: BufReader::new(Pipe::Plain(stream)) }
    }

    /// A connection whose handshake is done.
    pub(crate) fn encrypted(stream: StreamOwned<ClientConnection, TcpStream>) -> Self {
        stream.sock.set_write_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        Wire { reader: BufReader::new(Pipe::Encrypted(Box::new(stream))) }
    }

    /// Says the end of TLS and leaves.
    pub(crate) fn close_notify(&mut self) {
        if let Pipe::Encrypted(stream) = self.reader.get_mut() {
            stream.conn.send_close_notify();
            stream.flush().expect("the peer takes the alert");
        }
        self.end_writing();
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        match self.reader.get_ref() {
            Pipe::Plain(stream) => stream,
            Pipe::Encrypted(stream) => &stream.sock,
        }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the peer takes the bytes");
    }

    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes.as_ref())?;
        self.reader.get_mut().flush()
    }

    /// Closes our side for writing.
    pub(crate) fn end_writing(&self) {
        self.stream().shutdown(Shutdown::Write).expect("a connection can be half closed");
    }

    /// The next answer's head: status line and header lines.
    #[track_caller]
    pub(crate) fn head(&mut self) -> Vec<String> {
        self.try_head().expect("an answer's head")
    }

    pub(crate) fn try_head(&mut self) -> io::Result<Vec<String>> {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            match line.strip_suffix("\r\n") {
                Some("") => return Ok(head),
                Some(line) => head.push(line.to_owned()),
                None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{head:?} {line:?}"))),
            }
        }
    }

    /// The next answer, whose body has a declared length.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Raw {
        self.try_answer().expect("a whole answer")
    }

    pub(crate) fn try_answer(&mut self) -> io::Result<Raw> {
        let head = self.try_head()?;
        let mut raw = Raw { head, body: Vec::new() };
        raw.body.resize(raw.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0), 0);
        self.reader.read_exact(&mut raw.body)?;
        Ok(raw)
    }

    /// Reads on until `text` has been seen; gives everything read.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) -> Vec<u8> {
        let mut seen = Vec::new();
        while !contains(&seen, text) {
            let read = self.reader.fill_buf().expect("more of the answer");
            assert!(!read.is_empty(), "ended without {text:?}: {:?}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(read);
            let length = read.len();
            self.reader.consume(length);
        }
        seen
    }

    /// Everything up to the end of the connection, waiting at most `limit`.
    pub(crate) fn rest(&mut self, limit: Duration) -> (Vec<u8>, End) {
        let (mut seen, deadline) = (Vec::new(), Instant::now() + limit);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (seen, End::Open);
            }
            self.stream().set_read_timeout(Some(left)).expect("a socket takes a timeout");
            match self.reader.fill_buf() {
                Ok([]) => return (seen, End::Closed),
                Ok(read) => {
                    seen.extend_from_slice(read);
                    let length = read.len();
                    self.reader.consume(length);
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return (seen, End::Cut),
                Err(_) => return (seen, End::Reset),
            }
        }
    }
}

impl Raw {
    pub(crate) fn status(&self) -> u16 {
        self.head.first().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// A header's value, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().skip(1).find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The whole answer with the values of Date and X-Request-Id blanked out.
    pub(crate) fn blanked(&self) -> String {
        let mut text = String::new();
        for line in &self.head {
            let name = line.split(':').next().unwrap_or_default();
            let varies = name.eq_ignore_ascii_case("date") || name.eq_ignore_ascii_case("x-request-id");
            text.push_str(if varies { name } else { line });
            text.push('\n');
        }
        text + &String::from_utf8_lossy(&self.body)
    }
}

/// Whether bytes hold a text.
pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Whether what came ends as a chunked body properly does.
pub(crate) fn ends_cleanly(bytes: &[u8]) -> bool {
    bytes.ends_with(b"\r\n0\r\n\r\n")
}

/// A request head without its last empty line: request line, Host, a bearer when there is a token.
pub(crate) fn head(method: &str, target: &str, token: &str) -> String {
    let credential = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{credential}")
}

/// A POST of JSON with a declared length.
pub(crate) fn post(target: &str, token: &str, body: &str) -> String {
    let head = head("POST", target, token);
    format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// A GET.
pub(crate) fn get(target: &str, token: &str) -> String {
    head("GET", target, token) + "\r\n"
}

/// The body of a chat turn.
pub(crate) fn chat(text: &str, stream: bool) -> String {
    serde_json::json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}]}).to_string()
}
