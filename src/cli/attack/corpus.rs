//! The corpus: attacks as data, one file a class, and how a case becomes bytes.
//!
//! A file is read line by line:
//!
//! ```text
//! # a comment
//! class path                      the class of the cases that follow
//! source RFC 3986 section 6.2     where their rule comes from
//! needs cookies                   they make sense only where the session cookie counts; `needs nothing` ends it
//! form                            the bytes of the one-line cases that follow: `| ` begins a line that ends in CRLF,
//! | GET {it} HTTP/1.1             `> ` one that ends in nothing
//! cases 400 or 404 end            what must come of each of them; each line is a name, `::`, and what stands for {it}
//! dot segment :: /v1/./models
//! case two lengths                a case with bytes of its own
//! expect 400 end
//! | GET / HTTP/1.1
//! ```
//!
//! Expected is a list of alternatives, each of them the answers in their order: a status, `served` (the gateway's own
//! answer, whatever it says), `early` (the same, to a request that does not come whole) or `refused` (any answer of the edge's that is no success); `end`: the connection is closed
//! after them; `cut`: in the middle of a further one. `\r \n \t \0 \\ \xNN` are bytes; `{token} {own} {other_token} {other} {scheme} {host} {port} {nonce} {length}` and
//! `{x*100}` stand for what they say, `{hidden}` for a whole request of the attacker's own that must not be seen as one,
//! `{hidden_size}` and `{hidden_length}` for its length as a chunk's size and as digits; other braces stand for themselves.
//!
//! Invariants: names are unique; every request in a case holds `{nonce}` or is known to be refused. It sends nothing.

use std::fmt;

/// What a case is made for.
#[derive(Debug, Clone, Copy)]
pub struct Names<'n> {
    /// The attacker's own session token.
    pub token: &'n str,
    /// The profile of the attacker's bot.
    pub own: &'n str,
    /// The session token of the neighbour.
    pub other_token: &'n str,
    /// The profile of the neighbour's bot.
    pub other: &'n str,
    /// `http` or `https`.
    pub scheme: &'n str,
    /// An allowed Host.
    pub host: &'n str,
    /// The port that is connected to.
    pub port: u16,
    /// What tells this case's requests from all others.
    pub nonce: &'n str,
}

/// One attack.
#[derive(Debug, Clone)]
pub struct Case {
    class: String,
    name: String,
    source: String,
    needs_cookies: bool,
    expected: Vec<Outcome>,
    form: String,
    it: String,
}

/// What may come of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Answers, in their order.
    pub answers: Vec<Told>,
    /// The connection is closed after them.
    pub end: bool,
    /// An answer has begun after them, and the connection ends in the middle of it.
    pub cut: bool,
}

/// What an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// This status.
    Status(u16),
    /// The gateway's own answer.
    Served,
    /// The gateway's own answer to a request that it has not read to its end.
    Early,
    /// An answer of the edge's that is no success.
    Refused,
}

impl Told {
    /// Whether an answer with this status is such an answer.
    pub fn is(self, status: u16) -> bool {
        match self {
            Told::Status(told) => status == told,
            // What the edge alone says, or the gateway only of a bot that is not this person's.
            Told::Served | Told::Early => {
                status < 500 && !matches!(status, 401 | 403 | 408 | 413 | 414 | 415 | 417 | 421 | 429 | 431)
            }
            Told::Refused => status >= 400,
        }
    }
}

/// A line of a corpus file that cannot be read.
#[derive(Debug)]
pub struct CorpusError {
    line: usize,
    what: &'static str,
}

impl fmt::Display for CorpusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for CorpusError {}

/// The cases that are safe on an operator's own deployment: no turn, no flood, no exhaustion, nothing of the gateway's.
const SAFE: [&str; 6] = [
    include_str!("corpus/path.txt"),
    include_str!("corpus/header.txt"),
    include_str!("corpus/credential.txt"),
    include_str!("corpus/host.txt"),
    include_str!("corpus/framing.txt"),
    include_str!("corpus/body.txt"),
];
/// Cases for which the HTTP library answers otherwise than the corpus asks, and why that harms nobody.
const EXCEPTIONS: &str = include_str!("corpus/exceptions.txt");

/// The safe cases, with what the exceptions say of them.
///
/// # Errors
/// [`CorpusError`], which a test excludes.
pub fn safe() -> Result<Vec<Case>, CorpusError> {
    let mut cases = strict()?;
    except(&mut cases, EXCEPTIONS)?;
    Ok(cases)
}

/// A request of the attacker's own, told by its query.
const HIDDEN: &str = "GET /v1/capabilities?hidden={nonce} HTTP/1.1\\r\\nHost: {host}\\r\\nAuthorization: Bearer {token}\\r\\n\
                      X-Hermes-Session-Id: {nonce}\\r\\n\\r\\n";

/// The same as the corpus asks for it, without exceptions.
///
/// # Errors
/// [`CorpusError`], which a test excludes.
pub fn strict() -> Result<Vec<Case>, CorpusError> {
    let parsed: Result<Vec<Vec<Case>>, CorpusError> = SAFE.iter().map(|text| parse(text)).collect();
    Ok(parsed?.concat())
}

/// Reads one file.
///
/// # Errors
/// [`CorpusError`]
pub fn parse(text: &str) -> Result<Vec<Case>, CorpusError> {
    let mut cases: Vec<Case> = Vec::new();
    let mut reading = Reading::default();
    for (number, line) in text.lines().enumerate() {
        let wrong = |what| CorpusError { line: number + 1, what };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "" | "#" if reading.inside != Inside::Cases || line.is_empty() || word == "#" => {}
            "class" => reading.class = rest.to_owned(),
            "source" => reading.source = rest.to_owned(),
            "needs" => reading.needs_cookies = rest == "cookies",
            "form" => {
                reading.form.clear();
                reading.inside = Inside::Form;
            }
            "|" | ">" => {
                let form = match reading.inside {
                    Inside::Form => &mut reading.form,
                    Inside::Case => &mut cases.last_mut().ok_or_else(|| wrong("bytes of no case"))?.form,
                    Inside::Cases => return Err(wrong("bytes where a case is expected")),
                };
                form.push_str(rest);
                form.push_str(if word == "|" { "\r\n" } else { "" });
            }
            "cases" => {
                reading.expected = outcomes(rest).map_err(wrong)?;
                reading.inside = Inside::Cases;
            }
            "case" => {
                reading.inside = Inside::Case;
                cases.push(reading.case(rest, String::new(), ""));
            }
            "expect" => {
                let case = cases.last_mut().filter(|_| reading.inside == Inside::Case);
                case.ok_or_else(|| wrong("an expectation of no case"))?.expected = outcomes(rest).map_err(wrong)?;
            }
            _ => {
                let (name, it) = line.split_once(" ::").ok_or_else(|| wrong("neither a word nor a case"))?;
                if reading.inside != Inside::Cases {
                    return Err(wrong("a case without what is expected of it"));
                }
                let it = it.strip_prefix(' ').unwrap_or(it);
                cases.push(reading.case(name.trim(), reading.form.clone(), it));
            }
        }
    }
    Ok(cases)
}

/// Gives cases what their exceptions say, and tells how many there are; each line is a case's name, `::`, what comes of it today, `::`, and why.
///
/// # Errors
/// A line that cannot be read, or that names no case.
pub fn except(cases: &mut [Case], text: &str) -> Result<usize, CorpusError> {
    let mut count = 0;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let wrong = |what| CorpusError { line: number + 1, what };
        let mut parts = line.split(" :: ");
        let (Some(name), Some(today), Some(_why)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong("an exception has a name, an outcome and a reason"));
        };
        let case = cases.iter_mut().find(|case| case.name() == name).ok_or_else(|| wrong("it names no case"))?;
        case.expected = outcomes(today).map_err(wrong)?;
        count += 1;
    }
    Ok(count)
}

#[derive(Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Form,
    Cases,
    Case,
}

#[derive(Default)]
struct Reading {
    class: String,
    source: String,
    needs_cookies: bool,
    form: String,
    expected: Vec<Outcome>,
    inside: Inside,
}

impl Reading {
    fn case(&self, name: &str, form: String, it: &str) -> Case {
        Case {
            class: self.class.clone(),
            name: format!("{}: {name}", self.class),
            source: self.source.clone(),
            needs_cookies: self.needs_cookies,
            expected: self.expected.clone(),
            form,
            it: it.to_owned(),
        }
    }
}

fn outcomes(text: &str) -> Result<Vec<Outcome>, &'static str> {
    text.split(" or ")
        .map(|alternative| {
            let mut outcome = Outcome { answers: Vec::new(), end: false, cut: false };
            for word in alternative.split_whitespace() {
                match word {
                    "end" => outcome.end = true,
                    "cut" => (outcome.end, outcome.cut) = (true, true),
                    "served" => outcome.answers.push(Told::Served),
                    "early" => outcome.answers.push(Told::Early),
                    "refused" => outcome.answers.push(Told::Refused),
                    status => outcome.answers.push(Told::Status(status.parse().map_err(|_| "no such outcome")?)),
                }
            }
            if outcome.answers.is_empty() && !outcome.end { Err("an empty outcome") } else { Ok(outcome) }
        })
        .collect()
}

impl Case {
    /// The class.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// Class and name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its rule comes from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it makes sense only where the session cookie counts.
    pub fn needs_cookies(&self) -> bool {
        self.needs_cookies
    }

    /// What may come of it.
    pub fn expected(&self) -> &[Outcome] {
        &self.expected
    }

    /// Its bytes.
    pub fn bytes(&self, names: &Names<'_>) -> Vec<u8> {
        let it = expand(&self.it, names, b"", 0);
        // The head is as long whatever the length says, up to its own digits, which stand before its end.
        let length = expand(&self.form, names, &it, 0);
        let length = length.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| length.len() - at - 4);
        expand(&self.form, names, &it, length)
    }
}

/// Replaces what stands for something else.
fn expand(text: &str, names: &Names<'_>, it: &[u8], length: usize) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(place) = rest.find(['\\', '{']) {
        out.extend_from_slice(&rest.as_bytes()[..place]);
        rest = &rest[place..];
        let taken = match rest.as_bytes()[0] {
            b'\\' => escape(rest, &mut out),
            _ => placeholder(rest, names, it, length, &mut out),
        };
        if taken == 0 {
            out.push(rest.as_bytes()[0]);
        }
        rest = &rest[taken.max(1)..];
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// How many bytes of the text the escape took.
fn escape(text: &str, out: &mut Vec<u8>) -> usize {
    let byte = match text.as_bytes().get(1) {
        Some(b'r') => b'\r',
        Some(b'n') => b'\n',
        Some(b't') => b'\t',
        Some(b'0') => 0,
        Some(b'\\') => b'\\',
        Some(b'x') => match text.get(2..4).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                return 4;
            }
            None => return 0,
        },
        _ => return 0,
    };
    out.push(byte);
    2
}

/// How many bytes of the text the placeholder took.
fn placeholder(text: &str, names: &Names<'_>, it: &[u8], length: usize, out: &mut Vec<u8>) -> usize {
    let Some(end) = text.find('}') else { return 0 };
    let word = &text[1..end];
    match word {
        "token" => out.extend_from_slice(names.token.as_bytes()),
        "own" => out.extend_from_slice(names.own.as_bytes()),
        "other_token" => out.extend_from_slice(names.other_token.as_bytes()),
        "other" => out.extend_from_slice(names.other.as_bytes()),
        "scheme" => out.extend_from_slice(names.scheme.as_bytes()),
        "host" => out.extend_from_slice(names.host.as_bytes()),
        "port" => out.extend_from_slice(names.port.to_string().as_bytes()),
        "nonce" => out.extend_from_slice(names.nonce.as_bytes()),
        "length" => out.extend_from_slice(length.to_string().as_bytes()),
        "it" => out.extend_from_slice(it),
        "hidden" => out.extend_from_slice(&expand(HIDDEN, names, b"", 0)),
        "hidden_size" => out.extend_from_slice(format!("{:x}", expand(HIDDEN, names, b"", 0).len()).as_bytes()),
        "hidden_length" => out.extend_from_slice(expand(HIDDEN, names, b"", 0).len().to_string().as_bytes()),
        repeated => {
            let Some((part, count)) = repeated.rsplit_once('*') else { return 0 };
            let Ok(count) = count.parse::<usize>() else { return 0 };
            let part = expand(part, names, it, length);
            (0..count).for_each(|_| out.extend_from_slice(&part));
        }
    }
    end + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names<'_> = Names {
        token: "t",
        own: "bot-a",
        other_token: "u",
        other: "bot-b",
        scheme: "http",
        host: "h:80",
        port: 80,
        nonce: "n1",
    };

    #[test]
    fn a_file_becomes_cases() {
        let text = "# c\nclass path\nsource RFC 1\nform\n| GET {it} HTTP/1.1\n|\ncases 400 or 404 end\n\
                    dot :: /./{nonce}\nlong :: /{ab*3}\ncase own\nexpect served end\n| POST {\"a\":1}\\x00\n> {length}\n";
        let cases = parse(text).unwrap();
        let bytes: Vec<_> = cases.iter().map(|case| String::from_utf8(case.bytes(&NAMES)).unwrap()).collect();
        assert_eq!(bytes, ["GET /./n1 HTTP/1.1\r\n\r\n", "GET /ababab HTTP/1.1\r\n\r\n", "POST {\"a\":1}\0\r\n0"]);
        assert_eq!((cases[0].name(), cases[2].name(), cases[0].source()), ("path: dot", "path: own", "RFC 1"));
        assert_eq!(cases[1].expected().len(), 2);
        assert_eq!(cases[2].expected(), [Outcome { answers: vec![Told::Served], end: true, cut: false }]);
    }

    #[test]
    fn the_declared_length_is_that_of_the_body() {
        let cases = parse("class b\ncase x\nexpect 200\n| Content-Length: {length}\n|\n> {x*12}\n").unwrap();
        assert!(cases[0].bytes(&NAMES).starts_with(b"Content-Length: 12\r\n\r\nxxxxxxxxxxxx"));
    }

    #[test]
    fn what_cannot_be_read_names_its_line() {
        for (text, line) in [("nonsense\n", 1), ("class x\ncases 99x\n", 2), ("class x\n\nexpect 200\n", 3)] {
            assert_eq!(parse(text).unwrap_err().line, line, "{text:?}");
        }
    }

    #[test]
    fn the_safe_corpus_is_readable_and_its_names_are_unique() {
        let cases = safe().unwrap();
        let mut names: Vec<_> = cases.iter().map(Case::name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{:?}", names.windows(2).find(|p| p[0] == p[1]));
        assert!(cases.iter().all(|case| !case.expected().is_empty() && !case.source().is_empty()));
    }
}
