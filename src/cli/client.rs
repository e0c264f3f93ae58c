//! Calls on the admin API: through the socket of a running edge, else in this process under the data directory's lock.

use std::io::Read;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, header};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use tower::ServiceExt;

use super::offline::Offline;
use super::out::Failure;
use crate::admin::wire::{Empty, Failed};
use crate::admin::{ControlFile, connect};
use crate::config::Config;
use crate::lifecycle::Caller;
use crate::store::{DataDirLock, StoreError};
use crate::tasks::Tasks;

/// Longest wait for an edge that starts, or for another command that holds the lock.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// Pause between two looks.
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// Longest call, from connecting to the answer's last byte.
const CALL_LIMIT: Duration = Duration::from_secs(600);
/// Longest answer, in bytes: a list of everybody.
const ANSWER_MAX_BYTES: usize = 256 * 1024 * 1024;
/// Bytes read at once from a file that is sent.
const READ_BYTES: usize = 64 * 1024;

/// A way to the admin API.
pub(super) struct Admin {
    runtime: Runtime,
    tasks: Tasks,
    way: Way,
}

enum Way {
    Running(ControlFile),
    Here(Box<Offline>),
}

impl Admin {
    /// Finds the running edge; without one, takes the lock and opens the database here.
    pub(super) fn open(config: &Config) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
        let tasks = Tasks::new();
        let way = runtime.block_on(find(config))?;
        Ok(Admin { runtime, tasks, way })
    }

    /// The running edge, if there is one; nothing is opened here.
    pub(super) fn if_running(config: &Config) -> Result<Option<Self>, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
        let found = runtime.block_on(running(config))?;
        Ok(found.map(|control_file| Admin { runtime, tasks: Tasks::new(), way: Way::Running(control_file) }))
    }

    /// Makes one call in this process while no edge runs, and gives the lock back.
    pub(super) fn alone(
        config: &Config,
        lock: DataDirLock,
        path: &str,
        asked: &impl Serialize,
    ) -> Result<DataDirLock, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
        let offline = runtime.block_on(Offline::open(config, lock))?;
        let admin = Admin { runtime, tasks: Tasks::new(), way: Way::Here(Box::new(offline)) };
        let called = admin.call::<Empty>(path, asked);
        let Admin { runtime, way: Way::Here(offline), .. } = admin else { return Err(Failure::Told) };
        let lock = runtime.block_on(offline.close());
        called.and(lock)
    }

    /// Whether an edge is running, so that what is done takes effect at once.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.way, Way::Running(_))
    }

    /// One call.
    pub(super) fn call<T: DeserializeOwned>(&self, path: &str, asked: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_vec(asked).map_err(Failure::new)?;
        self.send(path, "application/json", Body::from(body))
    }

    /// One call whose body is read as it is sent.
    pub(super) fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        from: impl Read + Send + Unpin + 'static,
    ) -> Result<T, Failure> {
        self.send(path, "application/x-ndjson", Body::new(Upload(from)))
    }

    fn send<T: DeserializeOwned>(&self, path: &str, kind: &str, body: Body) -> Result<T, Failure> {
        let request = Request::post(path)
            .header(header::HOST, "botgate")
            .header(header::CONTENT_TYPE, kind)
            .body(body)
            .map_err(Failure::new)?;
        let answered = async {
            let response = match &self.way {
                Way::Running(control_file) => over_socket(control_file, &self.tasks, request).await?,
                Way::Here(offline) => in_process(offline.router(), request).await,
            };
            let success = response.status().is_success();
            let body = Limited::new(response.into_body(), ANSWER_MAX_BYTES).collect().await;
            let body = body.map_err(|error| broke_off(&*error))?.to_bytes();
            if success {
                return serde_json::from_slice(&body).map_err(|error| broke_off(&error));
            }
            match serde_json::from_slice::<Failed>(&body) {
                Ok(failed) => Err(failed.into()),
                Err(error) => Err(broke_off(&error)),
            }
        };
        let limited = async { tokio::time::timeout(CALL_LIMIT, answered).await };
        self.runtime.block_on(limited).unwrap_or_else(|_| Err(Failure::new("no answer within ten minutes")))
    }

    /// Writes what is still on its way to the disk.
    pub(super) fn close(self) -> Result<(), Failure> {
        match self.way {
            Way::Running(_) => Ok(()),
            Way::Here(offline) => self.runtime.block_on(offline.close()).map(drop),
        }
    }
}

/// Runs a command's calls, and closes afterwards whatever came of them.
pub(super) fn with_admin<T>(config: &Config, calls: impl FnOnce(&Admin) -> Result<T, Failure>) -> Result<T, Failure> {
    let admin = Admin::open(config)?;
    let done = calls(&admin);
    let closed = admin.close();
    done.and_then(|value| closed.map(|()| value))
}

async fn find(config: &Config) -> Result<Way, Failure> {
    let since = Instant::now();
    loop {
        if let Some(control_file) = running(config).await? {
            return Ok(Way::Running(control_file));
        }
        match DataDirLock::acquire(&config.data_dir) {
            Ok(lock) => return Ok(Way::Here(Box::new(Offline::open(config, lock).await?))),
            Err(StoreError::Locked { .. }) if since.elapsed() < LOCK_WAIT => tokio::time::sleep(LOCK_PAUSE).await,
            Err(error @ StoreError::Locked { .. }) => {
                let next = "it answers no commands; wait until it is up, or stop it";
                return Err(Failure::with_next(error, next));
            }
            Err(error) => {
                let missing = !config.data_dir.exists();
                let failure = Failure::from_error(&error);
                return Err(match failure {
                    Failure::Failed { message, .. } if missing => Failure::with_next(
                        message,
                        "make one: botgate init, or mend data_dir in the configuration file",
                    ),
                    other => other,
                });
            }
        }
    }
}

/// What a running edge has told. It is followed only to a socket that answers: a killed edge leaves its file behind.
async fn running(config: &Config) -> Result<Option<ControlFile>, Failure> {
    match ControlFile::read(&config.data_dir).map_err(|error| Failure::from_error(&error))? {
        Some(control_file) if connect(&control_file).await.is_ok() => Ok(Some(control_file)),
        _ => Ok(None),
    }
}

async fn over_socket(
    control_file: &ControlFile,
    tasks: &Tasks,
    mut request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let gone = |error: &dyn std::fmt::Display| {
        Failure::with_next(format!("the running botgate does not answer: {error}"), "see its log, then try again")
    };
    let stream = connect(control_file).await.map_err(|error| gone(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| gone(&error))?;
    tasks.spawn(async move {
        // What goes wrong here the request learns, too.
        let _ = connection.await;
    });
    let mut token = header::HeaderValue::from_str(&format!("Bearer {}", control_file.token().expose()))
        .map_err(|error| gone(&error))?;
    token.set_sensitive(true);
    request.headers_mut().insert(header::AUTHORIZATION, token);
    let response = sender.send_request(request).await.map_err(|error| gone(&error))?;
    Ok(response.map(Body::new))
}

async fn in_process(router: Router, mut request: Request<Body>) -> Response<Body> {
    request.extensions_mut().insert(Caller::own());
    let Ok(response) = router.oneshot(request).await;
    response
}

fn broke_off(error: &dyn std::fmt::Display) -> Failure {
    Failure::with_next(
        format!("the answer broke off: {error}"),
        "whether the change was made is not known: look with list, then try again",
    )
}

/// A request body read from a file or standard input. It blocks: this process has nothing else to do meanwhile.
struct Upload<R>(R);

impl<R: Read + Unpin> hyper::body::Body for Upload<R> {
    type Data = bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, std::io::Error>>> {
        let mut buffer = vec![0; READ_BYTES];
        Poll::Ready(match self.0.read(&mut buffer) {
            Ok(0) => None,
            Ok(length) => {
                buffer.truncate(length);
                Some(Ok(hyper::body::Frame::data(buffer.into())))
            }
            Err(error) => Some(Err(error)),
        })
    }
}
