use super::*;
use crate::config::GatewayUrl;
use crate::directory::GatewayTarget;
use crate::gateway::outgoing::RequestHead;
use crate::gateway::request_body::RequestBody;
use crate::names::GatewayName;
use crate::telemetry::metrics::Metrics;

const LONG: Duration = Duration::from_secs(20);

async fn call(lines: Vec<u8>) -> (Call, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = GatewayUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let name = GatewayName::parse("main").unwrap();
    let metrics = Metrics::new(std::slice::from_ref(&name), &[]);
    let link = Link::open(&GatewayTarget::new(name, 0, url), LONG, &metrics.shard()).await.unwrap();
    let outgoing = Outgoing::new(RequestHead { lines, tells_absence: false }, RequestBody::empty());
    let call = Call::start(link, outgoing, false, Pool::new(1), CallDeadlines { head: LONG, idle: LONG });
    (call, listener.accept().unwrap().0)
}

/// What these pieces come to: status, body, whether they are a whole answer, whether the connection can be kept.
fn read<'p>(call: &mut Call, pieces: impl Iterator<Item = &'p [u8]>) -> (u16, Vec<u8>, bool, bool) {
    (call.content, call.reusable, call.ready) = (None, false, Bytes::new());
    call.partial.clear();
    call.interim = 0;
    let (mut status, mut body) = (0, Vec::new());
    for piece in pieces {
        if call.content.is_none() {
            if let Some(answer) = call.head_of(piece).unwrap() {
                status = answer.status().as_u16();
                body.extend_from_slice(&std::mem::take(&mut call.ready));
            }
        } else {
            body.extend_from_slice(&call.body_of(piece).unwrap());
        }
    }
    (status, body, call.is_complete(), call.reusable)
}

#[tokio::test]
async fn an_answer_is_the_same_however_it_is_cut() {
    let (mut call, _gateway) = call(Vec::new()).await;
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
    for (text, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", (200, "hello", true)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", (200, "", true)),
        ("HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\n", (204, "", false)),
        ("HTTP/1.1 304 Same\r\nTransfer-Encoding: chunked\r\n\r\n", (304, "", true)),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", (200, "x", false)),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nT: 1\r\n\r\n",
            (200, "hello", true),
        ),
    ] {
        for text in [text.to_owned(), format!("{interim}{text}")] {
            let bytes = text.as_bytes();
            for cut in 0..=bytes.len() {
                let (one, two) = bytes.split_at(cut);
                let (status, body, complete, reusable) = read(&mut call, [one, two].into_iter());
                assert_eq!((status, &*body, reusable), (expected.0, expected.1.as_bytes(), expected.2), "{text} {cut}");
                assert!(complete, "{text} {cut}");
                let (_, _, complete, _) = read(&mut call, std::iter::once(&bytes[..cut]));
                assert_eq!(complete, cut == bytes.len(), "{text} {cut}");
            }
            let (status, body, complete, reusable) = read(&mut call, bytes.chunks(1));
            assert_eq!((status, &*body, reusable), (expected.0, expected.1.as_bytes(), expected.2), "{text}");
            assert!(complete, "{text}");
            let surplus = [bytes, b"H"].concat();
            let (_, body, complete, reusable) = read(&mut call, std::iter::once(&*surplus));
            assert_eq!((&*body, complete, reusable), (expected.1.as_bytes(), true, false), "{text}");
        }
    }
}

#[tokio::test]
async fn interim_answers_are_bounded_in_bytes() {
    let (mut call, _gateway) = call(Vec::new()).await;
    let interim = b"HTTP/1.1 102 Processing\r\n\r\n";
    let most = HEAD_MAX_BYTES / interim.len();
    for number in 0..most {
        assert!(matches!(call.head_of(interim), Ok(None)), "{number}");
    }
    assert!(matches!(call.head_of(interim), Err(CallError::Head(AnswerError::TooLarge))));
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_costs_no_more_than_its_lines() {
    let (mut call, _gateway) = call(Vec::new()).await;
    let mut text = b"HTTP/1.1 200 OK\r\nA: ".to_vec();
    text.resize(HEAD_MAX_BYTES - 4, b'x');
    let since = std::time::Instant::now();
    for byte in &text {
        assert!(call.head_of(std::slice::from_ref(byte)).unwrap().is_none());
    }
    // Parsed at each byte it takes a hundred times as long.
    assert!(since.elapsed() < Duration::from_millis(500), "{:?}", since.elapsed());
    assert_eq!(call.head_of(b"\r\n\r\n").unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_head_without_an_end_is_bounded() {
    let (mut call, _gateway) = call(Vec::new()).await;
    assert!(call.head_of(b"HTTP/1.1 200 OK\r\nA: ").unwrap().is_none());
    let fed = (0..HEAD_MAX_BYTES).find_map(|_| call.head_of(b"x").err());
    assert!(matches!(fed, Some(CallError::Head(AnswerError::TooLarge))));
}

#[tokio::test]
async fn a_request_that_has_left_holds_no_buffer() {
    use std::io::{Read, Write};
    let (mut call, mut gateway) = call(vec![b'x'; 100_000]).await;
    let answering = crate::tasks::Tasks::thread("gateway", move || {
        gateway.read_exact(&mut [0; 100_002]).unwrap();
        gateway.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").unwrap();
        gateway
    });
    assert_eq!(call.head().await.unwrap().status(), 200);
    assert!(call.is_sent());
    assert_eq!(call.outgoing.as_ref().map(Outgoing::buffered), Some(0));
    drop(answering.unwrap().join().unwrap());
}
