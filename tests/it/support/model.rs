//! A stub of a model provider, spoken to like OpenAI's chat completions. Words in the last user message steer it:
//! `SLEEP:s` waits before it answers, `HOLD` waits for [`StubModel::release`], `WORDS:n:s` answers n words with s
//! seconds between them, `SIZE:n` answers one word of n bytes, `ECHO:word` answers that word, `FAIL:status` refuses with
//! that status. It notes what each call carried and how it ended.
//! Side calls, like the one that names a session after its first message, carry the same words and are not steered.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::calls::{Calls, Note};
use self::reply::Reply;

pub(crate) use self::calls::{End, ModelCall};

mod calls;
mod reply;

#[derive(Debug)]
struct Shared {
    calls: Arc<Calls>,
    released: watch::Sender<bool>,
}

/// The running stub. Dropping it ends its thread and connections.
#[derive(Debug)]
pub(crate) struct StubModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl StubModel {
    pub(crate) fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared { calls: Arc::default(), released: watch::Sender::new(false) });
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(serve(listener, shared, stopped));
            }
        });
        Self { address, shared, stop, thread: Some(thread) }
    }

    /// The provider's base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The calls whose last user message contains `marker`, in the order of their arrival.
    pub(crate) fn calls_with(&self, marker: &str) -> Vec<ModelCall> {
        self.shared.calls.with(marker)
    }

    /// Like [`StubModel::calls_with`], without side calls.
    pub(crate) fn turns_with(&self, marker: &str) -> Vec<ModelCall> {
        self.calls_with(marker).into_iter().filter(|call| call.is_turn).collect()
    }

    /// Lets every call go on that waits because of `HOLD`, now and from now on.
    pub(crate) fn release(&self) {
        self.shared.released.send_replace(true);
    }
}

impl Drop for StubModel {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    listener.set_nonblocking(true).expect("a socket can be made non-blocking");
    let listener = TcpListener::from_std(listener).expect("a listening socket");
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        let Ok((stream, _)) = accepted else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, Arc::clone(&shared)));
            // A caller that leaves is noted by the call's own guard.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Either<Full<Bytes>, Reply>>, Infallible> {
    if request.uri().path().ends_with("/models") {
        let model = json!({"id": "stub-model", "object": "model", "context_length": 200_000});
        return Ok(plain(StatusCode::OK, &json!({"object": "list", "data": [model]})));
    }
    let authorization = request.headers().get(header::AUTHORIZATION).cloned();
    let authorization = authorization.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
    let provider_key = authorization.strip_prefix("Bearer ").unwrap_or(authorization).to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let Ok(body) = serde_json::from_slice::<Value>(&body) else {
        return Ok(plain(StatusCode::BAD_REQUEST, &json!({"error": {"message": "not JSON"}})));
    };
    let user = last_text(&body, "user");
    let is_turn = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let system = last_text(&body, "system");
    let note =
        Note::new(&shared.calls, ModelCall { provider_key, user: user.clone(), system, is_turn, end: End::Open });
    let steer = if is_turn { user.as_str() } else { "" };
    if let Some(seconds) = steering(steer, "SLEEP:") {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }
    if steer.contains("HOLD") {
        let _ = shared.released.subscribe().wait_for(|released| *released).await;
    }
    if let Some(status) = steering(steer, "FAIL:").and_then(|code| StatusCode::from_u16(code).ok()) {
        note.finished();
        return Ok(plain(status, &json!({"error": {"message": "the stub was told to fail", "type": "stub"}})));
    }
    let words = reply::words(steer);
    if body["stream"] != true {
        note.finished();
        return Ok(plain(StatusCode::OK, &reply::whole(&words)));
    }
    let mut response = Response::new(Either::Right(Reply::new(words, note)));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

fn plain(status: StatusCode, body: &Value) -> Response<Either<Full<Bytes>, Reply>> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body.to_string()))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// The number behind `word`, if the text has one.
fn steering<T: FromStr>(text: &str, word: &str) -> Option<T> {
    let rest = text.split_once(word)?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn last_text(body: &Value, role: &str) -> String {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let content = messages.iter().rev().find(|message| message["role"] == role).map(|m| &m["content"]);
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}
