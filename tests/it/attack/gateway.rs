//! A gateway that reads strictly, keeps what it is asked and by which key, and says what a case wants said.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::raw_gateway::json;

/// Field names that the edge may send: its allow-list, and its own.
const NAMES: [&str; 19] = [
    "host",
    "authorization",
    "accept",
    "accept-language",
    "cache-control",
    "content-type",
    "content-length",
    "transfer-encoding",
    "idempotency-key",
    "last-event-id",
    "user-agent",
    "x-hermes-session-id",
    "x-hermes-session-key",
    "traceparent",
    "tracestate",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-request-id",
];

/// What the gateway says to one case, in place of an answer of its own.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) bytes: Vec<u8>,
    /// Said byte by byte.
    pub(crate) bytewise: bool,
    /// The connection is closed after it.
    pub(crate) closes: bool,
    /// It is said before the request's body is read.
    pub(crate) early: bool,
}

/// A whole request, or the head of one that broke off.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) line: String,
    /// The person whose key it bore.
    pub(crate) owner: String,
    pub(crate) nonce: String,
    pub(crate) whole: bool,
}

#[derive(Default)]
struct State {
    keys: HashMap<String, String>,
    tokens: Vec<String>,
    asked: Vec<Asked>,
    wrong: Vec<String>,
    scripts: HashMap<String, Script>,
}

/// The gateway. Its connections run on threads that end with the edge's.
pub(crate) struct StrictGateway {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    state: Arc<Mutex<State>>,
}

impl StrictGateway {
    /// Serves the bots of these logins with these keys.
    pub(crate) fn start(keys: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let keys = keys.iter().map(|(login, key)| ((*key).to_owned(), (*login).to_owned())).collect();
        let state = Arc::new(Mutex::new(State { keys, ..State::default() }));
        let stopping = Arc::new(AtomicBool::new(false));
        let (stopped, shared) = (Arc::clone(&stopping), Arc::clone(&state));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let state = Arc::clone(&shared);
                std::thread::spawn(move || Connection { reader: BufReader::new(stream), state }.serve());
            }
        });
        StrictGateway { address, stopping, state }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Texts that must never arrive.
    pub(crate) fn never(&self, tokens: &[&str]) {
        self.lock().tokens.extend(tokens.iter().map(|&token| token.to_owned()));
    }

    /// Says this to the requests with this nonce.
    pub(crate) fn says(&self, nonce: &str, script: Script) {
        self.lock().scripts.insert(nonce.to_owned(), script);
    }

    /// What was asked so far, by nonce.
    pub(crate) fn asked(&self) -> HashMap<String, Vec<Asked>> {
        let mut by_nonce: HashMap<String, Vec<Asked>> = HashMap::new();
        for asked in &self.lock().asked {
            by_nonce.entry(asked.nonce.clone()).or_default().push(asked.clone());
        }
        by_nonce
    }

    /// What arrived and may not arrive.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.lock().wrong.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl Drop for StrictGateway {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes the accept loop, which then ends.
        drop(TcpStream::connect(self.address));
    }
}

struct Head {
    line: String,
    fields: Vec<(String, String)>,
}

impl Head {
    fn value(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

struct Connection {
    reader: BufReader<TcpStream>,
    state: Arc<Mutex<State>>,
}

impl Connection {
    fn serve(mut self) {
        loop {
            let head = match self.head() {
                Ok(Some(head)) => head,
                Ok(None) => return,
                Err(what) => return self.wrong(what),
            };
            if !self.answers(&head) {
                return;
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn wrong(&self, what: String) {
        self.state().wrong.push(what);
    }

    /// A line that ends in CRLF and holds no other control byte; `None` at the connection's end.
    fn line(&mut self) -> Result<Option<String>, String> {
        let mut line = Vec::new();
        match self.reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) if !line.ends_with(b"\n") => return Ok(None),
            Ok(_) => {}
        }
        let shown = String::from_utf8_lossy(&line).into_owned();
        let inner = line.strip_suffix(b"\r\n").ok_or_else(|| format!("a bare line feed: {shown:?}"))?;
        if inner.iter().any(|&byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f) {
            return Err(format!("a control byte: {shown:?}"));
        }
        Ok(Some(String::from_utf8_lossy(inner).into_owned()))
    }

    fn head(&mut self) -> Result<Option<Head>, String> {
        let Some(line) = self.line()? else { return Ok(None) };
        let mut fields = Vec::new();
        loop {
            let Some(field) = self.line()? else { return Ok(None) };
            if field.is_empty() {
                return Ok(Some(Head { line, fields }));
            }
            let (name, value) = field.split_once(':').ok_or_else(|| format!("no colon: {field:?}"))?;
            let name = name.to_ascii_lowercase();
            let value = value.trim_matches([' ', '\t']).to_owned();
            fields.push((name, value));
        }
    }

    /// Answers one request; false: the connection is over.
    fn answers(&mut self, head: &Head) -> bool {
        let parts: Vec<&str> = head.line.split(' ').collect();
        let [_, target, "HTTP/1.1"] = parts[..] else {
            self.wrong(format!("a request line: {:?}", head.line));
            return false;
        };
        let key = head.value("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        let owner = self.state().keys.get(key).cloned().unwrap_or_default();
        let own = target.starts_with(&format!("/p/bot-{owner}/")) && !owner.is_empty();
        // The proof is botgate's own; it bears no request's identifier.
        if head.value("user-agent") == Some("botgate-proof") && head.value("x-request-id").is_none() {
            let answer = if own { json("200 OK", "{}") } else { json("401 Unauthorized", "{}") };
            let _ = self.reader.get_mut().write_all(&answer);
            return false;
        }
        if let Some(what) = self.fault(head) {
            self.wrong(format!("{what}: {:?} {:?}", head.line, head.fields));
        }
        if !own {
            self.wrong(format!("{target} with the key of {owner:?}"));
        }
        let nonce = head.value("x-hermes-session-id").unwrap_or_default().to_owned();
        let script = self.state().scripts.get(&nonce).cloned();
        let place = {
            let mut state = self.state();
            state.asked.push(Asked {
                line: head.line.clone(),
                owner: owner.clone(),
                nonce: nonce.clone(),
                whole: false,
            });
            state.asked.len() - 1
        };
        let early = script.as_ref().is_some_and(|script| script.early);
        if !early {
            match self.body(head) {
                Ok(true) => self.state().asked[place].whole = true,
                Ok(false) => return false,
                Err(what) => {
                    self.wrong(what);
                    return false;
                }
            }
        }
        let Some(script) = script else {
            let body = serde_json::json!({ "bot": format!("bot-{owner}"), "nonce": nonce });
            return self.say(&json("200 OK", &body.to_string()), false);
        };
        let said = self.say(&script.bytes, script.bytewise);
        if early {
            // The edge goes away by itself; until then nothing of the body may be taken for a request.
            let _ = self.reader.get_ref().set_read_timeout(Some(Duration::from_secs(20)));
            let _ = std::io::copy(&mut self.reader, &mut std::io::sink());
        }
        said && !script.closes && !early
    }

    /// What is wrong with a head.
    fn fault(&self, head: &Head) -> Option<&'static str> {
        let count = |name: &str| head.fields.iter().filter(|(own, _)| own == name).count();
        let (length, coding) = (count("content-length"), count("transfer-encoding"));
        let listed = |name: &str| NAMES.contains(&name) || name.starts_with("x-stainless-");
        if ["host", "authorization", "x-request-id", "x-forwarded-for"].iter().any(|name| count(name) != 1) {
            return Some("a field that must be there once");
        }
        if length + coding > 1 || (coding == 1 && head.value("transfer-encoding") != Some("chunked")) {
            return Some("framing in two ways");
        }
        if head.fields.iter().any(|(name, _)| !listed(name)) {
            return Some("a field that is not listed");
        }
        let state = self.state();
        let holds = |text: &str| state.tokens.iter().any(|token| text.contains(token));
        // A query is passed on byte for byte, whatever a client puts into it.
        if head.fields.iter().any(|(_, value)| holds(value)) {
            return Some("a client's token");
        }
        None
    }

    /// Reads the body; false: it broke off.
    fn body(&mut self, head: &Head) -> Result<bool, String> {
        if let Some(length) = head.value("content-length") {
            let length: usize = length.parse().map_err(|_| format!("a length: {length:?}"))?;
            return Ok(self.reader.read_exact(&mut vec![0; length]).is_ok());
        }
        if head.value("transfer-encoding").is_none() {
            return Ok(true);
        }
        loop {
            let Some(size) = self.line()? else { return Ok(false) };
            let size = usize::from_str_radix(&size, 16).map_err(|_| format!("a chunk's size: {size:?}"))?;
            let mut chunk = vec![0; size];
            if self.reader.read_exact(&mut chunk).is_err() {
                return Ok(false);
            }
            match self.line()? {
                Some(end) if end.is_empty() => {}
                Some(end) => return Err(format!("behind a chunk: {end:?}")),
                None => return Ok(false),
            }
            if size == 0 {
                return Ok(true);
            }
        }
    }

    fn say(&mut self, bytes: &[u8], bytewise: bool) -> bool {
        let stream = self.reader.get_mut();
        match bytewise {
            true => bytes.iter().all(|byte| stream.write_all(&[*byte]).is_ok()),
            false => stream.write_all(bytes).is_ok(),
        }
    }
}
