//! A gateway of bytes: says exactly what a test wants said, when it wants it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A connection from the edge.
pub(crate) struct Upstream {
    reader: BufReader<TcpStream>,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) line: String,
}

impl Upstream {
    /// The next request, read whole; `None` when the edge has closed the connection.
    pub(crate) fn request(&mut self) -> Option<Arrived> {
        let (mut line, mut length) = (String::new(), 0);
        self.reader.read_line(&mut line).ok().filter(|&read| read > 0)?;
        loop {
            let mut field = String::new();
            self.reader.read_line(&mut field).ok().filter(|&read| read > 0)?;
            match field.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().ok()?;
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).ok()?;
        Some(Arrived { line: line.trim_end().to_owned() })
    }

    /// Reads one request's head, says these bytes and waits for the edge to go away.
    pub(crate) fn say_after_head(&mut self, bytes: impl AsRef<[u8]>) {
        let mut line = String::new();
        while self.reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            line.clear();
        }
        self.say(bytes);
        self.is_closed_by_the_edge();
    }

    /// Says these bytes. An edge that has gone away does not matter.
    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_say(bytes);
    }

    /// Says these bytes; false when the edge has gone away.
    pub(crate) fn try_say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.reader.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// What comes next, as it comes; empty at the connection's end.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        let bytes = self.reader.fill_buf().map(<[u8]>::to_vec).unwrap_or_default();
        self.reader.consume(bytes.len());
        bytes
    }

    /// Waits for the edge to close the connection, at most 20 s.
    pub(crate) fn is_closed_by_the_edge(&mut self) -> bool {
        let _ = self.reader.get_ref().set_read_timeout(Some(Duration::from_secs(20)));
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A gateway whose connections each run a test's own function on a thread.
pub(crate) struct RawGateway {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    arrived: Arc<Mutex<Vec<Arrived>>>,
}

impl RawGateway {
    /// Runs `serve` on each connection.
    pub(crate) fn start(serve: impl Fn(&mut Upstream) + Send + Sync + 'static) -> Self {
        Self::keeping(Arc::default(), serve)
    }

    fn keeping(arrived: Arc<Mutex<Vec<Arrived>>>, serve: impl Fn(&mut Upstream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let stopping = Arc::new(AtomicBool::new(false));
        let (stopped, serve) = (Arc::clone(&stopping), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(&mut Upstream { reader: BufReader::new(stream) }));
            }
        });
        RawGateway { address, stopping, arrived }
    }

    /// Answers every request with what `answer` makes of it, and keeps them; an empty answer ends the connection.
    pub(crate) fn answering(answer: impl Fn(usize, &Arrived) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let arrived: Arc<Mutex<Vec<Arrived>>> = Arc::default();
        let kept = Arc::clone(&arrived);
        Self::keeping(arrived, move |upstream| {
            while let Some(request) = upstream.request() {
                let number = {
                    let mut kept = kept.lock().expect("no test panics under the lock");
                    kept.push(request.clone());
                    kept.len() - 1
                };
                let bytes = answer(number, &request);
                if bytes.is_empty() {
                    return;
                }
                upstream.say(bytes);
            }
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests so far, oldest first.
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().expect("no test panics under the lock").clone()
    }
}

impl Drop for RawGateway {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes the accept loop, which then ends.
        drop(TcpStream::connect(self.address));
    }
}

/// A JSON answer as a well-behaved gateway says it.
pub(crate) fn json(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}
