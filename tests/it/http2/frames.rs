//! What is malformed, and what is too much, frame by frame.

use std::time::{Duration, Instant};

use super::{CHAT, start, start_with};
use crate::support::edge::TestEdge;
use crate::support::eventually;
use crate::support::http2::{
    Bare, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, block,
};

/// RFC 9113 section 7.
const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;

const FLOODED: &str = "botgate_refusals_total{reason=\"frame_flood\"}";

/// The header fields of a right request, with these in place of or beside its own; an empty value takes one out.
fn fields(token: &str, changes: &[(&str, &str)]) -> Vec<u8> {
    let bearer = format!("Bearer {token}");
    let right = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "127.0.0.1"),
        (":path", "/v1/models"),
        ("authorization", &*bearer),
    ];
    let changed = |name: &str| changes.iter().find(|change| change.0 == name).map(|change| change.1);
    let mut all: Vec<(&str, &str)> = right
        .iter()
        .map(|(name, value)| (*name, changed(name).unwrap_or(value)))
        .filter(|field| !field.1.is_empty())
        .collect();
    all.extend(changes.iter().filter(|(name, value)| !value.is_empty() && right.iter().all(|own| own.0 != *name)));
    block(&all)
}

/// What a client learns of its stream: a status, or the code of a reset or of a goodbye.
fn fate(bare: &mut Bare, stream: u32) -> String {
    let found = bare
        .until(|frame| (frame.stream == stream && matches!(frame.kind, HEADERS | RST_STREAM)) || frame.kind == GOAWAY);
    match found {
        // The first field of an answer is its status: from the static table, or a literal of three digits.
        Some(frame) if frame.kind == HEADERS => match frame.payload[0] {
            0x88 => "200".to_owned(),
            0x8c => "400".to_owned(),
            0x8d => "404".to_owned(),
            _ => status(&frame.payload),
        },
        Some(frame) if frame.kind == RST_STREAM => format!("reset {}", frame.code().unwrap_or(99)),
        Some(frame) => format!("goodbye {}", frame.code().unwrap_or(99)),
        None => "closed".to_owned(),
    }
}

/// The status of a header block, decoded by the library's own client.
fn status(payload: &[u8]) -> String {
    // 0x48: `:status` by its name's place, its value in Huffman's code; digits have five or six bits there.
    assert_eq!((payload[0], payload[1] & 0x80), (0x48, 0x80), "{payload:02x?}");
    let length = usize::from(payload[1] & 0x7f);
    let mut bits: String = payload[2..2 + length].iter().map(|byte| format!("{byte:08b}")).collect();
    let mut text = String::new();
    while text.len() < 3 {
        let (digit, used) = match &bits[..5] {
            "00000" => ('0', 5),
            "00001" => ('1', 5),
            "00010" => ('2', 5),
            _ => {
                let six = u8::from_str_radix(&bits[..6], 2).expect("bits");
                (char::from(b'3' + six.checked_sub(0b01_1001).expect("a digit's code")), 6)
            }
        };
        text.push(digit);
        bits.drain(..used);
    }
    text
}

fn get(stream: u32, block: Vec<u8>) -> Vec<u8> {
    Frame::new(HEADERS, END_STREAM | END_HEADERS, stream, block).bytes()
}

#[test]
fn a_goodbye_is_said_twice_and_what_comes_between_is_served() {
    let (mut edge, client) = start();
    let mut bare = Bare::connect(edge.address, &client);
    let ask = |bare: &mut Bare, stream| {
        let block = fields(edge.token("alice"), &[]);
        bare.send(Frame::new(HEADERS, END_HEADERS | END_STREAM, stream, block).bytes()).expect("the peer reads");
    };
    ask(&mut bare, 1);
    assert_eq!(fate(&mut bare, 1), "200");
    edge.edge.parts().ending.drain();
    let last_stream = |frame: &Frame| u32::from_be_bytes(frame.payload[..4].try_into().expect("four bytes"));
    let first = bare.until(|frame| frame.kind == GOAWAY).expect("a goodbye");
    assert_eq!((last_stream(&first), first.code()), (u32::MAX >> 1, Some(0)), "nothing is refused yet");
    let ping = bare.until(|frame| frame.kind == PING && frame.flags == 0).expect("a question");
    ask(&mut bare, 3);
    bare.send(Frame::new(PING, 1, 0, ping.payload).bytes()).expect("the peer reads");
    let (mut served, mut last) = (false, None);
    while let Ok(frame) = bare.frame() {
        served |= frame.stream == 3 && frame.kind == HEADERS;
        last = (frame.kind == GOAWAY).then(|| (last_stream(&frame), frame.code())).or(last);
    }
    assert!(served, "the request between them is answered");
    assert_eq!(last, Some((3, Some(0))));
    assert!(edge.drain(), "nothing had to be cut");
}

#[test]
fn a_right_request_in_bare_frames_is_served() {
    let (edge, client) = start();
    let mut bare = Bare::connect(edge.address, &client);
    for (number, (changes, expected)) in [
        (&[][..], "200"),
        (&[("authorization", "Bearer x")], "401"),
        (&[(":path", "/v1/nothing")], "404"),
        (&[(":method", "PUT")], "405"),
        (&[("te", "trailers")], "200"),
        (&[("host", "127.0.0.1")], "200"),
        (&[(":authority", ""), ("host", "127.0.0.1")], "200"),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = 2 * number as u32 + 1;
        bare.send(get(stream, fields(edge.token("alice"), changes))).expect("the edge takes a request");
        assert_eq!(fate(&mut bare, stream), expected, "{changes:?}");
    }
}

#[test]
fn a_malformed_request_reaches_nobody() {
    let (edge, client) = start();
    let alice = edge.token("alice");
    let bob = format!("Bearer {}", edge.token("bob"));
    let two_cookies = format!("__Host-botgate={alice}");
    let right = &fields(alice, &[])[..];
    let with = |changes: &[(&str, &str)]| fields(alice, changes);
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        // Section 8.3: pseudo-header fields.
        ("no method", with(&[(":method", "")]), "reset 1"),
        ("no scheme", with(&[(":scheme", "")]), "reset 1"),
        ("no path", with(&[(":path", "")]), "reset 1"),
        ("an unknown one", with(&[(":colour", "red")]), "*"),
        ("a response's", with(&[(":status", "200")]), "reset 1"),
        ("a protocol", with(&[(":protocol", "websocket")]), "reset 1"),
        ("after a regular one", [right, &block(&[(":path", "/v1/models")])].concat(), "reset 1"),
        ("two methods", [&block(&[(":method", "GET")]), right].concat(), "reset 1"),
        ("two paths", [&block(&[(":path", "/health")]), right].concat(), "reset 1"),
        ("two authorities", [&block(&[(":authority", "127.0.0.1")]), right].concat(), "reset 1"),
        ("another scheme", with(&[(":scheme", "http")]), "400"),
        ("a scheme of nobody", with(&[(":scheme", "gopher")]), "400"),
        // Section 8.3.1: who is asked.
        ("no authority", with(&[(":authority", "")]), "400"),
        ("another authority", with(&[(":authority", "evil.example")]), "421"),
        ("a user in it", with(&[(":authority", "alice@127.0.0.1")]), "421"),
        ("another Host beside it", with(&[("host", "evil.example")]), "400"),
        ("an empty Host beside it", [right, &block(&[("host", "")])].concat(), "400"),
        ("two Hosts", [right, &block(&[("host", "127.0.0.1"), ("host", "127.0.0.1")])].concat(), "400"),
        ("no path but a star", with(&[(":method", "OPTIONS"), (":path", "*")]), "400"),
        ("a path without a slash", with(&[(":path", "v1/models")]), "*"),
        ("a whole URL as path", with(&[(":path", "https://127.0.0.1/v1/models")]), "*"),
        ("a path that is not canonical", with(&[(":path", "/v1//models")]), "400"),
        ("another's path, escaped", with(&[(":path", "/p/bot-%62ob/v1/models")]), "400"),
        ("CONNECT", block(&[(":method", "CONNECT"), (":authority", "127.0.0.1")]), "405"),
        ("TRACE", with(&[(":method", "TRACE")]), "405"),
        // Section 8.2: fields.
        ("a name in upper case", with(&[("Accept", "x")]), "*"),
        ("a name with a space", with(&[("a b", "x")]), "*"),
        ("a name with a colon", with(&[("a:b", "x")]), "*"),
        ("a value with a line's end", with(&[("accept", "x\r\nauthorization: y")]), "*"),
        ("a value with a zero", with(&[("accept", "x\0y")]), "*"),
        ("a value that begins with a space", with(&[("accept", " x")]), "400"),
        ("a value that ends with a tab", with(&[("accept", "x\t")]), "400"),
        ("Connection", with(&[("connection", "keep-alive")]), "reset 1"),
        ("Connection that names a field", with(&[("connection", "authorization")]), "reset 1"),
        ("Keep-Alive", with(&[("keep-alive", "1")]), "reset 1"),
        ("Proxy-Connection", with(&[("proxy-connection", "x")]), "reset 1"),
        ("Transfer-Encoding", with(&[("transfer-encoding", "chunked")]), "reset 1"),
        ("Upgrade", with(&[("upgrade", "websocket")]), "reset 1"),
        ("TE that is not trailers", with(&[("te", "gzip")]), "reset 1"),
        ("a length that is none", with(&[("content-length", "x")]), "reset 1"),
        ("a signed length", with(&[("content-length", "+0")]), "reset 1"),
        ("a length without a body", with(&[("content-length", "5")]), "reset 1"),
        ("two lengths", [right, &block(&[("content-length", "0"), ("content-length", "0")])].concat(), "400"),
        (
            "two different lengths",
            [right, &block(&[("content-length", "0"), ("content-length", "1")])].concat(),
            "reset 1",
        ),
        // The credential is one, however lines are cut (section 8.2.3).
        ("two bearers", [right, &block(&[("authorization", &*bob)])].concat(), "401"),
        ("a bearer and a cookie", with(&[("cookie", &*two_cookies)]), "401"),
        (
            "two cookies in crumbs",
            [
                fields("x", &[("authorization", "")]),
                block(&[("cookie", &*two_cookies), ("cookie", "a=b"), ("cookie", &*two_cookies)]),
            ]
            .concat(),
            "401",
        ),
    ];
    for (what, block, expected) in cases {
        let mut bare = Bare::connect(edge.address, &client);
        bare.send(get(1, block)).expect("the edge takes the frames");
        let found = fate(&mut bare, 1);
        match expected {
            "*" => {
                assert!(found.starts_with("reset") || found.starts_with("goodbye") || found == "400", "{what}: {found}")
            }
            expected => assert_eq!(found, expected, "{what}"),
        }
        // A stream that is refused or reset harms no other, unless the connection is over.
        if !found.starts_with("goodbye") {
            bare.send(get(3, fields("", &[(":path", "/health"), ("authorization", "")])))
                .expect("the edge takes a request");
            assert_eq!(fate(&mut bare, 3), "200", "after {what}");
        }
    }
    assert_eq!(edge.stand_in.requests().len(), 0);
}

#[test]
fn a_body_that_is_not_as_long_as_declared_is_no_request_for_the_gateway() {
    let (edge, client) = start();
    let body = crate::support::wire::chat("hello", false);
    for (what, declared, sent) in
        [("short", body.len() + 1, &*body), ("long", body.len() - 1, &*body), ("empty", 5, "")]
    {
        let mut bare = Bare::connect(edge.address, &client);
        let (declared, path) = (declared.to_string(), [(":method", "POST"), (":path", CHAT)]);
        let fields = fields(edge.token("alice"), &[&path[..], &[("content-length", &declared)]].concat());
        bare.send(Frame::new(HEADERS, END_HEADERS, 1, fields).bytes()).expect("the edge takes a head");
        let (first, second) = sent.split_at(sent.len() / 2);
        bare.send(Frame::new(DATA, 0, 1, first).bytes()).expect("the edge takes data");
        bare.send(Frame::new(DATA, END_STREAM, 1, second).bytes()).expect("the edge takes data");
        assert_eq!(fate(&mut bare, 1), "reset 1", "{what}");
    }
    edge.settles();
    assert_eq!(edge.stand_in.finished(), 0, "no turn ran");
    for request in edge.stand_in.requests() {
        assert!(request.body_bytes() < body.len() as u64 - 1, "{request:?}");
    }
}

/// Sends frames until the edge takes no more or asks for calm; false when it takes them all.
fn is_stopped(edge: &TestEdge, bare: &mut Bare, frames: impl Iterator<Item = Vec<u8>>) -> bool {
    let mut sent = Ok(());
    for bytes in frames {
        sent = bare.send(bytes);
        if sent.is_err() {
            break;
        }
    }
    let (ended, code) = bare.ends(Duration::from_secs(5));
    // A goodbye may be lost to the reset of what was still on its way.
    assert!(matches!(code, None | Some(0 | PROTOCOL_ERROR | ENHANCE_YOUR_CALM)), "{code:?}");
    eventually("the connection is given back", Duration::from_secs(10), || edge.connections() == 0);
    sent.is_err() || ended
}

#[test]
fn floods_of_control_frames_end_their_connection() {
    let (edge, client) = start();
    let frames: [(&str, Frame); 6] = [
        ("pings", Frame::new(PING, 0, 0, [0; 8])),
        ("answers to no ping", Frame::new(PING, 1, 0, [0; 8])),
        ("settings", Frame::new(SETTINGS, 0, 0, [])),
        ("priorities", Frame::new(2, 0, 1, [0, 0, 0, 0, 1])),
        ("frames of no known kind", Frame::new(0x42, 0, 0, [])),
        ("window updates", Frame::new(WINDOW_UPDATE, 0, 0, [0, 0, 0, 1])),
    ];
    for (number, (what, frame)) in frames.into_iter().enumerate() {
        let mut bare = Bare::connect(edge.address, &client);
        let many = frame.bytes().repeat(100);
        assert!(is_stopped(&edge, &mut bare, (0..1_000).map(|_| many.clone())), "{what}");
        eventually(what, Duration::from_secs(2), || edge.metric(FLOODED) == Some(number as f64 + 1.0));
    }
}

#[test]
fn a_client_that_does_not_read_has_no_endless_answers_kept_for_it() {
    let (edge, client) = start_with(|config| config.deadlines.write = Duration::from_secs(1));
    let mut bare = Bare::connect(edge.address, &client);
    // Few enough not to be a flood, and answered as they come.
    for _ in 0..500 {
        bare.send(Frame::new(PING, 0, 0, [0; 8]).bytes()).expect("the edge takes pings");
    }
    assert!(bare.until(|frame| frame.kind == PING).is_some());
}

#[test]
fn rapid_resets_end_their_connection_and_reach_nobody() {
    let (edge, client) = start();
    let mut bare = Bare::connect(edge.address, &client);
    let head = fields(edge.token("alice"), &[]);
    let pairs = (0..20_000_u32).map(|number| {
        let stream = 2 * number + 1;
        [get(stream, head.clone()), Frame::new(RST_STREAM, 0, stream, [0, 0, 0, 8]).bytes()].concat()
    });
    let mut batches = pairs.collect::<Vec<_>>();
    let batches: Vec<Vec<u8>> = batches.chunks_mut(50).map(|batch| batch.concat()).collect();
    assert!(is_stopped(&edge, &mut bare, batches.into_iter()));
    edge.settles();
    assert!(edge.stand_in.requests().len() < 2_000, "{}", edge.stand_in.requests().len());
}

#[test]
fn resets_that_the_client_provokes_are_bounded_too() {
    let (edge, client) = start();
    let mut bare = Bare::connect(edge.address, &client);
    let malformed = fields(edge.token("alice"), &[("te", "gzip")]);
    assert!(is_stopped(&edge, &mut bare, (0..20_000).map(|number| get(2 * number + 1, malformed.clone()))));
    assert!(edge.stand_in.requests().is_empty());
}

#[test]
fn header_blocks_are_bounded_in_frames_in_size_and_in_time() {
    let (edge, client) = start_with(|config| config.deadlines.header = Duration::from_secs(1));
    let begin = Frame::new(HEADERS, END_STREAM, 1, fields(edge.token("alice"), &[])).bytes();
    let mut bare = Bare::connect(edge.address, &client);
    bare.send(&begin).expect("the edge takes a head");
    let empty = Frame::new(CONTINUATION, 0, 1, []).bytes().repeat(50);
    assert!(is_stopped(&edge, &mut bare, (0..1_000).map(|_| empty.clone())), "empty pieces");

    let mut bare = Bare::connect(edge.address, &client);
    bare.send(&begin).expect("the edge takes a head");
    let long = block(&[("x", &"y".repeat(1_000))]).repeat(10);
    let piece = Frame::new(CONTINUATION, 0, 1, long).bytes();
    assert!(is_stopped(&edge, &mut bare, (0..1_000).map(|_| piece.clone())), "a list without end");

    // A list that is too long and ends is refused alone.
    let mut bare = Bare::connect(edge.address, &client);
    let fields = [fields(edge.token("alice"), &[]), block(&[("x", &"y".repeat(7_000))]).repeat(12)].concat();
    let mut pieces = fields.chunks(16_000).enumerate().peekable();
    while let Some((number, piece)) = pieces.next() {
        let (kind, flags) = if number == 0 { (HEADERS, END_STREAM) } else { (CONTINUATION, 0) };
        let flags = if pieces.peek().is_none() { flags | END_HEADERS } else { flags };
        bare.send(Frame::new(kind, flags, 1, piece).bytes()).expect("the edge takes the block");
    }
    assert_eq!(fate(&mut bare, 1), "431");

    // One that never ends, while another stream is served.
    let mut bare = Bare::connect(edge.address, &client);
    let since = Instant::now();
    bare.send(&begin).expect("the edge takes a head");
    assert!(bare.ends(Duration::from_secs(10)).0);
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    assert!(edge.stand_in.requests().is_empty());
}

#[test]
fn streams_beyond_the_bound_are_refused_alone() {
    let (edge, client) = start_with(|config| config.limits.turns_per_person = 1_000);
    let mut bare = Bare::connect(edge.address, &client);
    let head = fields(edge.token("alice"), &[(":method", "POST"), (":path", CHAT)]);
    let heads: Vec<u8> =
        (0..140).flat_map(|number| Frame::new(HEADERS, END_HEADERS, 2 * number + 1, head.clone()).bytes()).collect();
    bare.send(heads).expect("the edge takes heads");
    // RFC 9113 section 7: 7 is REFUSED_STREAM, which a client may send again.
    let refused = bare.until(|frame| frame.kind == RST_STREAM && frame.code() == Some(7)).expect("one is refused");
    assert!(refused.stream > 2 * 128, "{refused:?}");
}
