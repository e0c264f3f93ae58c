//! A client's socket, plain or encrypted, as the engines use it.
//!
//! Invariants: bytes are watched where they cross the network, so that deadlines mean the same with TLS and without; dropping
//! an encrypted socket says nothing, so that what is cut does not look ended; only a shutdown sends close_notify (RFC 8446
//! section 6.1).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::pace::{Pace, Paced};

/// Longest time that a closed connection is read on.
const LINGER: Duration = Duration::from_secs(5);
/// Most bytes that are read from a closed connection.
const LINGER_MAX_BYTES: usize = 32 * 1024 * 1024;

/// A client's socket.
pub(super) trait ClientSocket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// The connection below any encryption.
    fn into_tcp(self) -> TcpStream;
}

impl ClientSocket for Paced {
    fn into_tcp(self) -> TcpStream {
        self.into_inner()
    }
}

/// A socket whose handshake is done.
pub(super) struct Encrypted {
    tls: TlsStream<Paced>,
    pace: Arc<Pace>,
}

impl Encrypted {
    pub(super) fn new(tls: TlsStream<Paced>, pace: Arc<Pace>) -> Self {
        Encrypted { tls, pace }
    }

    /// Decrypts what has come while an engine does not read, so that its client's leaving is seen behind it.
    fn look_ahead(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let (socket, session) = self.tls.get_mut();
        while session.wants_read() {
            match session.read_tls(&mut Blocking { socket, cx }) {
                Ok(0) => return Ok(()),
                Ok(_) => {
                    let state = session.process_new_packets().map_err(io::Error::other)?;
                    if state.peer_has_closed() {
                        self.pace.left();
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl ClientSocket for Encrypted {
    fn into_tcp(self) -> TcpStream {
        self.tls.into_inner().0.into_inner()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_read(cx, buf)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.tls).poll_flush(cx))?;
        if self.pace.is_busy() {
            self.look_ahead(cx)?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.tls.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write_vectored(cx, bufs)
    }
}

/// A socket as the session reads it: one that has nothing yet would block.
struct Blocking<'a, 'c, 'w> {
    socket: &'a mut Paced,
    cx: &'c mut Context<'w>,
}

impl io::Read for Blocking<'_, '_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        match Pin::new(&mut *self.socket).poll_read(self.cx, &mut buffer) {
            Poll::Ready(read) => read.map(|()| buffer.filled().len()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Closes our side and reads what the client still sends, so that the system does not answer it with a reset that would
/// overtake the answer (RFC 9112 section 9.6).
pub(super) async fn linger(mut socket: impl ClientSocket) {
    let reading = async {
        if socket.shutdown().await.is_err() {
            return;
        }
        let mut stream = socket.into_tcp();
        let mut buffer = [0; 16 * 1024];
        let mut total = 0;
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            total += read;
            if total > LINGER_MAX_BYTES {
                return;
            }
        }
    };
    // Running out of time only means that the client did not close.
    let _ = tokio::time::timeout(LINGER, reading).await;
}

/// Closes our side as far as that goes at once: what has waited too long between two requests is not cut but ended.
pub(super) fn part(mut socket: impl ClientSocket) -> impl Future<Output = ()> {
    std::future::poll_fn(move |cx| {
        // Whether it was possible does not matter: the socket is dropped next.
        let _ = Pin::new(&mut socket).poll_shutdown(cx);
        Poll::Ready(())
    })
}
