//! HTTP/2 clients: one that does as it should, and one of bare frames.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, StatusCode};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::tls::{Authority, Offer, shake};

/// Longest wait for anything from the peer.
const PATIENCE: Duration = Duration::from_secs(40);

/// A client that speaks h2 and trusts this authority.
pub(crate) fn client(authority: &Authority) -> Arc<ClientConfig> {
    authority.client(Offer { alpn: &["h2"], ..Offer::default() })
}

/// A connection with many streams.
pub(crate) struct Http2 {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
    driver: JoinHandle<Result<(), h2::Error>>,
}

/// A request under way.
pub(crate) struct Stream {
    response: ResponseFuture,
    pub(crate) body: SendStream<Bytes>,
}

/// An answer, as far as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Whether it ended as it should, or what it was reset with.
    pub(crate) end: Result<(), Option<Reason>>,
}

impl Answer {
    /// Everything but the values of Date and X-Request-Id.
    pub(crate) fn blanked(&self) -> String {
        let mut text = format!("{}\n", self.status);
        for (name, value) in &self.headers {
            let varies = matches!(name.as_str(), "date" | "x-request-id");
            text += &format!("{name}: {}\n", if varies { "" } else { value.to_str().unwrap_or("?") });
        }
        text + &String::from_utf8_lossy(&self.body) + &format!("\n{:?}", self.end)
    }
}

/// A request for the fixture's host.
pub(crate) fn request(method: &str, target: &str, token: &str) -> http::request::Builder {
    let request = Request::builder().method(method).uri(format!("https://127.0.0.1{target}"));
    match token {
        "" => request,
        token => request.header("authorization", format!("Bearer {token}")),
    }
}

impl Http2 {
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr, client: &Arc<ClientConfig>) -> Self {
        // Answers that are not read yet must not hold up the one that is.
        let mut builder = h2::client::Builder::new();
        builder.initial_connection_window_size(1 << 24);
        Self::with(address, client, builder)
    }

    /// A connection whose client offers what this builder says.
    #[track_caller]
    pub(crate) fn with(address: SocketAddr, client: &Arc<ClientConfig>, builder: h2::client::Builder) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a client's runtime");
        let (sender, driver) = runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(address).await.expect("the peer accepts");
            let name = ServerName::try_from("127.0.0.1").expect("an address is a name");
            let tls = tokio_rustls::TlsConnector::from(Arc::clone(client)).connect(name, socket).await;
            let tls = tls.expect("the handshake succeeds");
            assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            let (sender, connection) = builder.handshake(tls).await.expect("HTTP/2 begins");
            (sender.ready().await.expect("streams can begin"), tokio::spawn(connection))
        });
        Http2 { runtime, sender, driver }
    }

    /// Begins a request; `body` is all of it, unless there is more to come.
    #[track_caller]
    pub(crate) fn begin(&mut self, request: http::request::Builder, body: Option<&[u8]>, more: bool) -> Stream {
        let request = request.body(()).expect("a request of a test");
        self.runtime.block_on(async {
            self.sender = self.sender.clone().ready().await.expect("streams can begin");
            let end = body.is_none() && !more;
            let (response, mut sending) = self.sender.send_request(request, end).expect("the request is well formed");
            if let Some(body) = body {
                // Who refuses a request before its body may have reset the stream by now; the answer tells.
                let _ = sending.send_data(Bytes::copy_from_slice(body), !more);
            }
            Stream { response, body: sending }
        })
    }

    /// The head of the answer; the error says why there is none.
    pub(crate) fn head(&self, stream: Stream) -> Result<(http::response::Parts, RecvStream), h2::Error> {
        let response = self.runtime.block_on(async {
            let answered = async {
                let response = stream.response.await;
                drop(stream.body);
                response
            };
            tokio::time::timeout(PATIENCE, answered).await
        });
        response.expect("an answer in time").map(http::Response::into_parts)
    }

    /// The next piece of an answer; `None` at its end.
    pub(crate) fn data(&self, body: &mut RecvStream) -> Option<Result<Bytes, h2::Error>> {
        self.runtime.block_on(async {
            let data = tokio::time::timeout(PATIENCE, body.data()).await.expect("more of the answer in time");
            if let Some(Ok(data)) = &data {
                body.flow_control().release_capacity(data.len()).expect("what has come can be given back");
            }
            data
        })
    }

    /// Reads on until a text has come.
    #[track_caller]
    pub(crate) fn until(&self, body: &mut RecvStream, text: &str) {
        let mut seen = Vec::new();
        while !super::wire::contains(&seen, text) {
            let data = self.data(body).expect("the answer goes on").expect("the answer is not cut");
            seen.extend_from_slice(&data);
        }
    }

    /// The rest of an answer.
    pub(crate) fn rest(&self, body: &mut RecvStream) -> (Vec<u8>, Result<(), Option<Reason>>) {
        let mut seen = Vec::new();
        while let Some(data) = self.data(body) {
            match data {
                Ok(data) => seen.extend_from_slice(&data),
                Err(error) => return (seen, Err(error.reason())),
            }
        }
        (seen, Ok(()))
    }

    /// The whole answer.
    #[track_caller]
    pub(crate) fn finish(&self, stream: Stream) -> Answer {
        let (head, mut body) = self.head(stream).expect("an answer");
        let (body, end) = self.rest(&mut body);
        Answer { status: head.status, headers: head.headers, body, end }
    }

    /// Sends a request and reads the whole answer.
    #[track_caller]
    pub(crate) fn send(&mut self, request: http::request::Builder, body: Option<&[u8]>) -> Answer {
        let stream = self.begin(request, body, false);
        self.finish(stream)
    }

    /// Waits until the connection is over; the error says how.
    pub(crate) fn ends(self, limit: Duration) -> Option<Result<(), h2::Error>> {
        let Http2 { runtime, sender, driver } = self;
        drop(sender);
        let ended = runtime.block_on(async { tokio::time::timeout(limit, driver).await });
        ended.ok().map(|ended| ended.expect("the driver does not panic"))
    }

    /// Runs something where the connection's own clock is.
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

/// A frame as it came or goes (RFC 9113 section 4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

impl Frame {
    pub(crate) fn new(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Self {
        Frame { kind, flags, stream, payload: payload.into() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).expect("a frame of a test is short").to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], self.kind, self.flags];
        bytes.extend_from_slice(&self.stream.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// The error code of a reset or a goodbye.
    pub(crate) fn code(&self) -> Option<u32> {
        let at = match self.kind {
            RST_STREAM => 0,
            GOAWAY => 4,
            _ => return None,
        };
        self.payload.get(at..at + 4).map(|code| u32::from_be_bytes(code.try_into().expect("four bytes")))
    }
}

/// A header block of literals that nobody is to remember (RFC 7541 section 6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            let mut length = text.len();
            if length < 127 {
                bytes.push(length as u8);
            } else {
                bytes.push(127);
                length -= 127;
                while length >= 128 {
                    bytes.push((length % 128 + 128) as u8);
                    length /= 128;
                }
                bytes.push(length as u8);
            }
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// A connection of bare frames.
pub(crate) struct Bare {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

impl Bare {
    /// Says the preface and empty settings.
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr, client: &Arc<ClientConfig>) -> Self {
        let mut bare = Self::silent(address, client);
        let settings = Frame::new(SETTINGS, 0, 0, []).bytes();
        bare.send([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", settings.as_slice()].concat())
            .expect("the peer takes the preface");
        bare
    }

    /// Says nothing.
    #[track_caller]
    pub(crate) fn silent(address: SocketAddr, client: &Arc<ClientConfig>) -> Self {
        let stream = shake(client, "127.0.0.1", address).expect("the handshake succeeds");
        stream.sock.set_write_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        Bare { stream }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// The next frame; an error at the connection's end.
    pub(crate) fn frame(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        Ok(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Reads on to the first frame that is looked for; `None` when the connection ends before.
    pub(crate) fn until(&mut self, mut wanted: impl FnMut(&Frame) -> bool) -> Option<Frame> {
        loop {
            match self.frame() {
                Ok(frame) if wanted(&frame) => return Some(frame),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits for the connection's end; whether it came in time, and the code of the last goodbye.
    pub(crate) fn ends(&mut self, limit: Duration) -> (bool, Option<u32>) {
        let (deadline, mut code) = (Instant::now() + limit, None);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (false, code);
            }
            self.stream.sock.set_read_timeout(Some(left)).expect("a socket takes a timeout");
            match self.frame() {
                Ok(frame) if frame.kind == GOAWAY => code = frame.code(),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return (false, code);
                }
                Err(_) => return (true, code),
            }
        }
    }
}
