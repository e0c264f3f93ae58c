//! What holds for any bytes that a client may send, tried by the property test below and by the fuzz target: a request that is read
//! here is the one that hyper reads in the same place.

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::head::Unread;
use crate::gateway::content::Content;
use crate::proxy::Head;

/// A request as somebody has read it: method, path with query, names of its lines, and its body, if that was whole.
type Reading = (String, String, Vec<String>, Option<Vec<u8>>);

/// Whatever is read here as a request, hyper reads in the same way or not at all.
pub fn requests(bytes: &[u8]) {
    let (ours, theirs) = (read(bytes), hyper_reads(bytes));
    for (place, own) in ours.iter().enumerate() {
        // It refuses some targets that are refused here only when they are looked at.
        let Some(other) = theirs.get(place) else { return };
        // A target in no form that is served is refused once it is looked at, whatever hyper makes of it.
        let same_target = own.1 == other.1 || !own.1.starts_with('/') || own.1.contains('#');
        // A body that is refused here is no reading; hyper takes some chunk extensions that the grammar does not.
        let same_body = own.3.is_none() || own.3 == other.3;
        let same = same_target && same_body && (&own.0, &own.2) == (&other.0, &other.2);
        assert!(same, "request {place} of {:?}: {own:?}, {other:?}", String::from_utf8_lossy(bytes));
        if own.3.is_none() {
            return;
        }
    }
}

fn read(bytes: &[u8]) -> Vec<Reading> {
    let (mut unread, mut requests) = (Unread::default(), Vec::new());
    unread.push(bytes);
    while let Ok(Some(head)) = unread.head() {
        let lines = head.lines();
        let view = head.view(&lines);
        let mut names: Vec<String> = view.lines.iter().map(|line| line.name.to_owned()).collect();
        names.sort_unstable();
        let (method, path) = (view.method.to_owned(), view.path_and_query.to_owned());
        let (mut content, mut body, rest) = (Content::new(head.framing()), Vec::new(), unread.take());
        let taken = content.take(&rest, &mut body);
        let whole = taken.is_ok() && content.is_done();
        unread.push(&rest[taken.unwrap_or(rest.len())..]);
        // CONNECT ends HTTP, and hyper has an opinion of its own on what follows.
        let last = head.is_last() || !whole || method == "CONNECT";
        requests.push((method, path, names, whole.then_some(body)));
        if last {
            break;
        }
    }
    requests
}

thread_local! {
    static RUNTIME: Option<tokio::runtime::Runtime> =
        tokio::runtime::Builder::new_current_thread().enable_all().build().ok();
}

fn hyper_reads(bytes: &[u8]) -> Vec<Reading> {
    let requests = RefCell::new(Vec::new());
    let service = service_fn(|request: Request<Incoming>| {
        let requests = &requests;
        async move {
            let (parts, body) = request.into_parts();
            let mut names: Vec<String> = parts.headers.iter().map(|(name, _)| name.to_string()).collect();
            names.sort_unstable();
            let path = parts.uri.path_and_query().map_or(String::new(), ToString::to_string);
            let body = body.collect().await.ok().map(|body| body.to_bytes().to_vec());
            requests.borrow_mut().push((parts.method.to_string(), path, names, body));
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    RUNTIME.with(|runtime| {
        let Some(runtime) = runtime else { return };
        runtime.block_on(async {
            let (mut client, server) = tokio::io::duplex(1 << 20);
            let serving = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(server), service);
            let talking = async {
                let _ = client.write_all(bytes).await;
                let _ = client.shutdown().await;
                let mut answers = Vec::new();
                let _ = client.read_to_end(&mut answers).await;
            };
            // Nothing of it waits for anything but the other.
            let both = async { tokio::join!(serving, talking) };
            let _ = tokio::time::timeout(Duration::from_secs(5), both).await;
        });
    });
    requests.into_inner()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_reading_of_a_plain_sequence_is_the_same() {
        let bytes = b"POST /v1/x?a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET / HTTP/1.1\r\nHost: h\r\n\r\n\
            PUT /y HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nho\r\n0\r\nX: 1\r\n\r\n";
        assert_eq!(read(bytes).len(), 3);
        assert_eq!(read(bytes), hyper_reads(bytes));
    }

    fn nearly() -> impl Strategy<Value = Vec<u8>> {
        let parts = proptest::sample::select(vec![
            "GET /v1/models HTTP/1.1\r\n",
            "POST http://h/v1/x?y HTTP/1.1\r\n",
            "HEAD / HTTP/1.0\r\n",
            "Host: h\r\n",
            "Content-Length: 2\r\n",
            "Content-Length: 0\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Connection: close\r\n",
            "Expect: 100-continue\r\n",
            "X-A:\t1 \r\n",
            "\r\n",
            "\n",
            "\r",
            "2\r\nab\r\n",
            "0\r\n\r\n",
            "0;a=\"b\"\r\nX: 1\r\n\r\n",
            "hi",
            " ",
            ":",
            "\0",
        ]);
        proptest::collection::vec(parts.prop_map(|part| part.as_bytes().to_vec()), 0..16)
            .prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn whatever_is_read_as_a_request_hyper_reads_in_the_same_way(bytes in nearly()) {
            requests(&bytes);
        }
    }
}
