//! One HTTP/1.1 connection of the admin side: one request, with a deadline on each wait.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::tasks::Cancellation;

/// Longest wait for a request's head.
pub(super) const HEAD_WAIT: Duration = Duration::from_secs(10);
/// Pause after the system refused to accept, so that a lack of descriptors is no busy loop.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves one request, within `limit` from accept to the last byte.
pub(super) async fn serve<I, F, Fut>(io: I, limit: Duration, stopping: Cancellation, answer: F)
where
    I: AsyncRead + AsyncWrite + Unpin,
    F: Fn(Request<Incoming>) -> Fut,
    Fut: Future<Output = Response<Body>>,
{
    let service = service_fn(|request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT).keep_alive(false);
    let connection = http.serve_connection(TokioIo::new(io), service);
    // A caller that breaks off is none of our trouble; one that begins after a stop is not waited for.
    tokio::pin!(connection);
    let served = async {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = stopping.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    };
    let _ = tokio::time::timeout(limit, served).await;
}
