//! Clients that leave, stop or dawdle at every place: what they began reaches nobody else, and everything is given back.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use botgate::cli::attack::corpus::{self, Case};

use super::edge::Attacked;

/// How a client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// Closes its connection.
    Close,
    /// Closes it for writing, and reads on.
    HalfClose,
    /// Has it reset.
    Reset,
}

/// Longest that any of the slow ones may be borne: the deadlines are two seconds each.
const BORNE: Duration = Duration::from_secs(15);

/// One case for each name, without bytes.
fn named(names: &[String]) -> Vec<Case> {
    let text: String = names.iter().map(|name| format!("case {name}\nexpect end\n")).collect();
    corpus::parse(&format!("class peers\nsource RFC 9112 section 9\n{text}")).expect("cases without bytes")
}

fn requests(attacked: &Attacked, nonce: &str) -> [String; 3] {
    let head = |line: &str| {
        format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nX-Hermes-Session-Id: {nonce}\r\n",
            attacked.host, attacked.token
        )
    };
    let body = r#"{"messages":[{"role":"user","content":"hello"}]}"#;
    [
        attacked.plain(nonce),
        format!("{}Content-Length: {}\r\n\r\n{body}", head("POST /v1/chat/completions"), body.len()),
        format!(
            "{}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            head(&format!("POST /v1/runs/{nonce}/steer")),
            body.len()
        ),
    ]
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing_behind() {
    let attacked = Attacked::start();
    let ways = [Leaving::Close, Leaving::HalfClose, Leaving::Reset];
    let mut names = Vec::new();
    for request in 0..3 {
        for part in 0..14 {
            names.extend(ways.iter().map(|way| format!("{request} {part} {way:?}")));
        }
    }
    let tally = attacked.run(&named(&names), |case, nonce| {
        let words: Vec<&str> = case.name().split(' ').collect();
        let [_, request, part, way] = words[..] else { return Err("a name of four words".to_owned()) };
        let number = |text: &str| text.parse::<usize>().map_err(|error| error.to_string());
        let text = &requests(&attacked, nonce)[number(request)?];
        let cut = text.len() * number(part)? / 13;
        let mut stream = TcpStream::connect(attacked.address).map_err(|error| error.to_string())?;
        let told = |error: std::io::Error| error.to_string();
        stream.write_all(&text.as_bytes()[..cut]).map_err(told)?;
        match way {
            "Close" => drop(stream),
            "HalfClose" => {
                stream.shutdown(Shutdown::Write).map_err(told)?;
                stream.set_read_timeout(Some(BORNE)).map_err(told)?;
                // A reset is an end as well.
                let mut rest = Vec::new();
                let ended = stream.read_to_end(&mut rest);
                if ended.is_err_and(|error| matches!(error.kind(), std::io::ErrorKind::WouldBlock)) {
                    return Err("it is still open".to_owned());
                }
                if cut < text.len() && rest.starts_with(b"HTTP/1.1 2") {
                    return Err(format!("half a request was answered: {:?}", String::from_utf8_lossy(&rest)));
                }
            }
            _ => {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).map_err(told)?;
                drop(stream);
            }
        }
        Ok(0)
    });
    println!("{} cases, {} answers to the neighbour", tally.cases, tally.neighbour);
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    attacked.still_serves();
    for asked in attacked.gateway.asked().values().flatten().filter(|asked| asked.nonce.starts_with('c')) {
        assert_eq!(asked.owner, "alice", "{asked:?}");
    }
}

#[test]
fn clients_that_dawdle_are_cut_and_never_half_served() {
    let attacked = Attacked::start();
    let kinds = [
        "silent",
        "head by bytes",
        "lines without end",
        "body withheld",
        "body by bytes",
        "chunk withheld",
        "empty lines",
    ];
    let names: Vec<String> = (0..3).flat_map(|number| kinds.map(|kind| format!("{kind} {number}"))).collect();
    let tally = attacked.run(&named(&names), |case, nonce| {
        let [get, plain, chunked] = requests(&attacked, nonce);
        let (begin, drip): (&str, &str) =
            match case.name().trim_start_matches("peers: ").trim_end_matches([' ', '0', '1', '2']) {
                "silent" => ("", ""),
                "head by bytes" => ("", &get),
                "lines without end" => (&get[..get.len() - 2], "X-Stainless-Lang: a\r\n"),
                "body withheld" => (&plain[..plain.len() - 48], ""),
                "body by bytes" => (&plain[..plain.len() - 48], "x"),
                "chunk withheld" => (&chunked[..chunked.len() - 30], ""),
                "empty lines" => ("", "\r\n"),
                other => return Err(format!("no such kind: {other}")),
            };
        let mut stream = TcpStream::connect(attacked.address).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(Duration::from_millis(150))).map_err(|error| error.to_string())?;
        let since = Instant::now();
        let mut gone = stream.write_all(begin.as_bytes()).is_err();
        let (mut drops, mut seen, mut buffer) = (drip.bytes().cycle(), Vec::new(), [0; 4096]);
        while !gone && since.elapsed() < BORNE {
            if let Some(byte) = drops.next() {
                gone = stream.write_all(&[byte]).is_err();
            }
            match stream.read(&mut buffer) {
                Ok(0) => gone = true,
                Ok(length) => seen.extend_from_slice(&buffer[..length]),
                Err(error) => gone |= !matches!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
        if !gone {
            return Err(format!("borne for {BORNE:?}"));
        }
        if seen.starts_with(b"HTTP/1.1 2") {
            return Err(format!("half a request was answered: {:?}", String::from_utf8_lossy(&seen)));
        }
        let whole = attacked.gateway.asked().remove(nonce).unwrap_or_default().iter().any(|asked| asked.whole);
        if whole { Err("half a request came whole".to_owned()) } else { Ok(0) }
    });
    println!("{} cases, {} answers to the neighbour", tally.cases, tally.neighbour);
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    attacked.still_serves();
}
