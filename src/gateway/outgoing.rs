//! A request on its way to a gateway: its head, and its body in the framing that the head tells.
//!
//! Invariants: head and first piece of the body leave in one send if the client has sent them so; the next piece is taken from
//! the client only when the last one has left, so that a slow gateway slows the client down. It does not know what the head says
//! beyond the framing.

use std::fmt;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use super::request_body::{BodyFault, RequestBody};

/// A request head without its framing, which [`Outgoing::new`] adds.
pub struct RequestHead {
    /// Request line and header lines, each with its end. None of them tells a length or a coding.
    pub lines: Vec<u8>,
    /// The method anticipates content, so that its absence is told too (RFC 9110 section 8.6).
    pub tells_absence: bool,
}

/// What is left to send.
pub struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
    // Anything has left for the gateway.
    begun: bool,
    body: RequestBody,
    chunked: bool,
    // The client has been asked for the first piece.
    asked: bool,
    // A piece of the body is in `bytes`.
    laden: bool,
    // The body's end is in `bytes`.
    ended: bool,
}

/// Says nothing of the bytes: a key is among them.
impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// Why sending ended.
#[derive(Debug)]
pub(super) enum SendError {
    /// The connection takes no more.
    Closed,
    /// The client's body is not to be sent.
    Body(BodyFault),
}

impl Outgoing {
    /// A request with this head and body.
    pub fn new(head: RequestHead, body: RequestBody) -> Self {
        let RequestHead { lines: mut bytes, tells_absence } = head;
        let length = body.length();
        // Writing to a Vec cannot fail.
        let _ = match length {
            Some(0) if !tells_absence => Ok(()),
            Some(length) => write!(bytes, "Content-Length: {length}\r\n"),
            None => bytes.write_all(b"Transfer-Encoding: chunked\r\n"),
        };
        bytes.extend_from_slice(b"\r\n");
        let ended = length == Some(0);
        Outgoing { bytes, written: 0, begun: false, body, chunked: length.is_none(), asked: false, laden: false, ended }
    }

    /// Whether anything has left.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether everything has left: from here the gateway may run the turn.
    pub(super) fn is_sent(&self) -> bool {
        self.ended && self.written == self.bytes.len()
    }

    /// Bytes of memory that wait to be filled or sent.
    #[cfg(test)]
    pub(super) fn buffered(&self) -> usize {
        self.bytes.capacity()
    }

    /// Sends on; ready when everything has left.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>, stream: &mut TcpStream) -> Poll<Result<(), SendError>> {
        loop {
            let head_waits = !self.begun;
            if (head_waits || self.written == self.bytes.len()) && !self.laden && !self.ended {
                match self.poll_piece(cx) {
                    Poll::Ready(piece) => piece.map_err(SendError::Body)?,
                    // The client was asked and has nothing yet: the gateway may refuse the head alone.
                    Poll::Pending if head_waits && self.asked => {}
                    Poll::Pending => {
                        if head_waits {
                            // A piece that came with the client's head is there at the next look.
                            self.asked = true;
                            cx.waker().wake_by_ref();
                        }
                        return Poll::Pending;
                    }
                }
            }
            while self.written < self.bytes.len() {
                let unsent = &self.bytes[self.written..];
                match ready!(Pin::new(&mut *stream).poll_write(cx, unsent)) {
                    Ok(0) | Err(_) => return Poll::Ready(Err(SendError::Closed)),
                    Ok(written) => self.written += written,
                }
                self.begun = true;
            }
            self.laden = false;
            if self.ended {
                // The answer may take long, and a piece is large.
                (self.bytes, self.written) = (Vec::new(), 0);
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes the next piece of the body, framed.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyFault>> {
        let piece = ready!(self.body.poll_data(cx)).transpose()?;
        self.laden = true;
        if self.begun {
            self.bytes.clear();
            self.written = 0;
        }
        if let Some(data) = piece.as_ref().filter(|data| !data.is_empty()) {
            if self.chunked {
                // Writing to a Vec cannot fail.
                let _ = write!(self.bytes, "{:x}\r\n", data.len());
            }
            self.bytes.extend_from_slice(data);
            if self.chunked {
                self.bytes.extend_from_slice(b"\r\n");
            }
        }
        if piece.is_none() || self.body.is_end() {
            self.ended = true;
            if self.chunked {
                self.bytes.extend_from_slice(b"0\r\n\r\n");
            }
        }
        Poll::Ready(Ok(()))
    }
}
