//! A request body on its way from the client's socket to whoever asked for it, and the look-out for a client that leaves.
//!
//! Invariants: nothing is read before the body is asked for, and a client that waits for leave to send it is told only then; what
//! is not the body its head told of breaks it off, and no request is read behind it.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::head::{RequestHead, Unread};
use crate::gateway::answer::Framing;
use crate::gateway::content::Content;
use crate::gateway::feed::{Feeder, feed};
use crate::gateway::request_body::Arriving;
use crate::listener::pace::Pace;
use crate::listener::socket::ClientSocket;

/// Bytes that are read at once. They lie on the stack, so that a connection that waits holds no buffer.
pub(super) const READ_BYTES: usize = 16 * 1024;
/// What a client is told that waits for leave to send its body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A body of which not all has been read.
pub(super) struct Upload {
    // None: all of it has been read, or there is none.
    body: Option<(Feeder, Content)>,
    broken: bool,
    // What is still to be told before the body comes.
    interim: &'static [u8],
}

impl Upload {
    /// The body behind a head, and what the pipeline takes it from. One that came with its head is not waited for.
    pub(super) fn new(head: &RequestHead, unread: &mut Unread) -> (Self, Arriving) {
        let mut upload = Upload::none();
        let framing = head.framing();
        let length = match framing {
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
            Framing::Empty | Framing::Close => return (upload, Arriving::Whole(None)),
        };
        if let Some(body) = length.and_then(|length| unread.split(usize::try_from(length).ok()?)) {
            return (upload, Arriving::Whole(Some(body)));
        }
        let (feeder, taken) = feed(length);
        upload.body = Some((feeder, Content::new(framing)));
        if head.expects_continue() && unread.is_empty() {
            upload.interim = CONTINUE;
        }
        (upload, Arriving::Fed(taken))
    }

    /// No body.
    pub(super) fn none() -> Self {
        Upload { body: None, broken: false, interim: b"" }
    }

    /// Whether the next bytes of the connection are those of another request.
    pub(super) fn is_over(&self) -> bool {
        self.body.is_none() && !self.broken
    }

    /// Reads on, as far as that is asked for; ready when a piece was given, or the body has broken off. Behind the body it
    /// looks out for a client that leaves, which it notes.
    pub(super) fn poll<S: ClientSocket>(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut S,
        unread: &mut Unread,
        pace: &Pace,
    ) -> Poll<()> {
        let Some((feeder, content)) = self.body.as_mut() else { return look_out(cx, socket, unread, pace) };
        ready!(feeder.poll_asked(cx));
        let mut piece = Vec::new();
        let whole = loop {
            if unread.is_empty() {
                while !self.interim.is_empty() {
                    match ready!(Pin::new(&mut *socket).poll_write(cx, self.interim)) {
                        Ok(written @ 1..) => self.interim = &self.interim[written..],
                        Ok(0) | Err(_) => self.interim = b"",
                    }
                }
                // A socket that cannot send on cannot be read for long either.
                let _ = Pin::new(&mut *socket).poll_flush(cx);
                match ready!(read(cx, socket, unread)) {
                    true => {}
                    false => {
                        pace.left();
                        break None;
                    }
                }
            }
            self.interim = b"";
            let bytes = unread.take();
            match content.take(&bytes, &mut piece) {
                Ok(taken) => unread.push(&bytes[taken..]),
                Err(_) => break None,
            }
            if content.is_done() || !piece.is_empty() {
                break Some(content.is_done());
            }
        };
        match whole {
            Some(last) => {
                feeder.give(Bytes::from(piece), last);
                if last {
                    self.body = None;
                }
            }
            None => {
                self.body = None;
                self.broken = true;
            }
        }
        Poll::Ready(())
    }
}

/// Reads once; false at the connection's end.
pub(super) fn read<S: ClientSocket>(cx: &mut Context<'_>, socket: &mut S, unread: &mut Unread) -> Poll<bool> {
    let mut space = [MaybeUninit::uninit(); READ_BYTES];
    let mut buffer = ReadBuf::uninit(&mut space);
    let read = ready!(Pin::new(socket).poll_read(cx, &mut buffer));
    unread.push(buffer.filled());
    Poll::Ready(read.is_ok() && !buffer.filled().is_empty())
}

/// Reads what the client sends behind its request, as far as one buffer goes: it is the next request, or its leaving.
fn look_out<S: ClientSocket>(cx: &mut Context<'_>, socket: &mut S, unread: &mut Unread, pace: &Pace) -> Poll<()> {
    while unread.len() < READ_BYTES {
        if !ready!(read(cx, socket, unread)) {
            // Over TLS the socket has not seen it yet: the client may end its side by a word.
            pace.left();
            return Poll::Pending;
        }
    }
    // With a full buffer the socket looks further without taking anything.
    let _ = Pin::new(socket).poll_flush(cx);
    Poll::Pending
}
