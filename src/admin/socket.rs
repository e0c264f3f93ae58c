//! The admin socket: who may call, and calls carried to their end.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tower::ServiceExt;

use super::answer::Refused;
use super::connection::{ACCEPT_PAUSE, HEAD_WAIT, serve};
use super::control_file::{ControlFile, ControlFileError};
use crate::lifecycle::{Caller, Control};
use crate::secret::SecretText;
use crate::tasks::Tasks;

/// Callers at once.
const CALLERS: usize = 64;
/// Longest call: an import, or the proof of eight bots at a gateway that hangs.
const CALL_LIMIT: Duration = Duration::from_secs(600);
/// Longest path that fits into a socket's address, in bytes, with room to spare.
const ADDRESS_MAX_BYTES: usize = 100;

/// A bound admin socket. Callers find it until it is dropped.
#[derive(Debug)]
pub struct AdminSocket {
    listener: UnixListener,
    control_file: ControlFile,
}

impl AdminSocket {
    /// Binds a socket of a new name under the data directory, and tells its name and a new token in the control file.
    /// The data directory's lock must be held.
    ///
    /// # Errors
    /// The directory is unsafe, or the system refuses.
    pub fn bind(data_dir: &std::path::Path) -> Result<Self, ControlFileError> {
        let control_file = ControlFile::prepare(data_dir)?;
        let path = control_file.directory().join(control_file.socket());
        let io = |source| ControlFileError::Io { path: path.clone(), source };
        let listener = with_address(&control_file, |address| UnixListener::bind(address)).map_err(io)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(io)?;
        control_file.publish()?;
        Ok(AdminSocket { listener, control_file })
    }

    /// Answers callers until the tasks are asked to stop.
    pub async fn run(self, control: Control, tasks: Tasks) {
        let router = super::router(control);
        let token = Arc::new(self.control_file.token().clone());
        let callers = Arc::new(Semaphore::new(CALLERS));
        let stopping = tasks.stopping().clone();
        while let Some(accepted) = stopping.run_until_cancelled(self.listener.accept()).await {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the admin socket cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (Some(caller), Ok(place)) = (allowed(&stream), callers.clone().try_acquire_owned()) else { continue };
            let (router, token, tasks, stopping) = (router.clone(), token.clone(), tasks.clone(), stopping.clone());
            tasks.clone().spawn(async move {
                let _place = place;
                // hyper's deadline for a head does not cover a caller that sends nothing at all.
                if tokio::time::timeout(HEAD_WAIT, stream.readable()).await.is_ok() {
                    let answer = |request| answer(router.clone(), token.clone(), caller, tasks.clone(), request);
                    serve(stream, CALL_LIMIT, stopping, answer).await;
                }
            });
        }
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.control_file.remove();
    }
}

/// The edge's own user may call, and root, who could do everything anyway.
fn allowed(stream: &UnixStream) -> Option<Caller> {
    let uid = stream.peer_cred().ok()?.uid();
    if uid == Caller::own().uid || uid == 0 {
        return Some(Caller { uid });
    }
    tracing::warn!(uid, "another user called the admin socket");
    None
}

async fn answer(
    router: Router,
    token: Arc<SecretText>,
    caller: Caller,
    tasks: Tasks,
    request: Request<Incoming>,
) -> Response<Body> {
    let presented = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let presented = presented.and_then(|value| value.strip_prefix(b"Bearer "));
    if !presented.is_some_and(|presented| token.matches(presented)) {
        return Refused::new(StatusCode::UNAUTHORIZED, "control_token", "the control token is not this start's")
            .into_response();
    }
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(caller);
    // A task of its own: what the store has committed takes its effect on the live edge also when the caller leaves.
    let (tell, told) = oneshot::channel();
    tasks.spawn(async move {
        let Ok(response) = router.oneshot(request).await;
        let _ = tell.send(response);
    });
    told.await.unwrap_or_else(|_| {
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "botgate is stopping").into_response()
    })
}

/// Connects to the socket that a control file names.
///
/// # Errors
/// Nobody listens there.
pub async fn connect(control_file: &ControlFile) -> io::Result<UnixStream> {
    let path = control_file.directory().join(control_file.socket());
    if path.as_os_str().len() <= ADDRESS_MAX_BYTES {
        return UnixStream::connect(path).await;
    }
    let directory = std::fs::File::open(control_file.directory())?;
    UnixStream::connect(through(&directory, control_file.socket())).await
}

fn with_address<T>(control_file: &ControlFile, use_it: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
    let path = control_file.directory().join(control_file.socket());
    if path.as_os_str().len() <= ADDRESS_MAX_BYTES {
        return use_it(path);
    }
    let directory = std::fs::File::open(control_file.directory())?;
    use_it(through(&directory, control_file.socket()))
}

/// A short name for a file in an open directory: a socket's address has room for about a hundred bytes only.
fn through(directory: &std::fs::File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}
