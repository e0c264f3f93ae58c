//! A gateway for tests that answers as each test says, and remembers what it was asked.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::config::GatewayUrl;
use crate::directory::{Bot, GatewayTarget};
use crate::names::{GatewayName, Login, ProfileName, Uid};
use crate::secret::ApiServerKey;
use crate::tasks::Tasks;

/// One request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    /// `GET /path`
    pub(super) line: String,
    /// The key after `Bearer `.
    pub(super) key: Option<String>,
    pub(super) user_agent: String,
}

/// Status and body of an answer; status 0 means silence.
pub(super) type Said = (u16, String);

type Answer = Box<dyn FnMut(&Asked) -> Said + Send>;

/// A listening gateway; stops with its tasks.
pub(super) struct TestGateway {
    pub(super) address: SocketAddr,
    pub(super) tasks: Tasks,
    asked: Arc<Mutex<Vec<Asked>>>,
    answer: Arc<Mutex<Answer>>,
}

impl TestGateway {
    pub(super) async fn start(answer: impl FnMut(&Asked) -> Said + Send + 'static) -> Self {
        Self::listen(SocketAddr::from(([127, 0, 0, 1], 0)), answer).await
    }

    async fn listen(address: SocketAddr, answer: impl FnMut(&Asked) -> Said + Send + 'static) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tasks, asked) = (Tasks::new(), Arc::new(Mutex::new(Vec::new())));
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(Box::new(answer)));
        let gateway = TestGateway { address, tasks: tasks.clone(), asked, answer };
        let (asked, answer) = (Arc::clone(&gateway.asked), Arc::clone(&gateway.answer));
        let connections = tasks.clone();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                let service = service_fn(move |request: Request<Incoming>| {
                    let now = Asked::of(&request);
                    asked.lock().unwrap().push(now.clone());
                    let said = answer.lock().unwrap()(&now);
                    async move { Ok::<_, Infallible>(respond(said).await) }
                });
                connections.spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        gateway
    }

    /// Answers differently from now on.
    pub(super) fn answers(&self, answer: impl FnMut(&Asked) -> Said + Send + 'static) {
        *self.answer.lock().unwrap() = Box::new(answer);
    }

    /// All requests so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// How many requests so far had this first line.
    pub(super) fn count(&self, line: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.line == line).count()
    }

    /// The directory's view of this gateway.
    pub(super) fn target(&self) -> Arc<GatewayTarget> {
        let url = GatewayUrl::parse(&format!("http://{}", self.address)).unwrap();
        Arc::new(GatewayTarget::new(GatewayName::parse("main").unwrap(), 0, url))
    }

    /// Stops listening; connections are cut.
    pub(super) async fn stop(&self) {
        self.tasks.drain(Duration::ZERO).await;
    }
}

impl Asked {
    fn of(request: &Request<Incoming>) -> Self {
        let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        Asked {
            line: format!("{} {}", request.method(), request.uri()),
            key: text(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned),
            user_agent: text(USER_AGENT).unwrap_or_default().to_owned(),
        }
    }
}

async fn respond((status, body): Said) -> Response<Full<Bytes>> {
    if status == 0 {
        std::future::pending::<()>().await;
    }
    Response::builder().status(status).body(Full::new(Bytes::from(body))).unwrap()
}

/// A bot of this login with a fresh key.
pub(super) fn bot(login: &str, gateway: &Arc<GatewayTarget>) -> Bot {
    bot_with_key(login, gateway, ApiServerKey::generate())
}

/// A bot of this login with this key.
pub(super) fn bot_with_key(login: &str, gateway: &Arc<GatewayTarget>, key: ApiServerKey) -> Bot {
    let login = Login::parse(login).unwrap();
    let profile = ProfileName::of(&login);
    Bot::new(login, Uid::random(), profile, Arc::clone(gateway), key).unwrap()
}

/// Polls until a condition holds; panics when it does not within 10 s.
pub(super) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "not within 10 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
