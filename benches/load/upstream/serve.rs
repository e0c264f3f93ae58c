//! The upstream's connections.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use botgate::tasks::Tasks;
use httparse::{EMPTY_HEADER, Request, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::judge::{Answer, Judge};
use super::{EVENT_DIGITS, EVENT_MARK, EVENT_PAUSE, Seen};
use crate::wire::{LINES, body_length, holds};

/// Longest request.
const REQUEST_MAX: usize = 64 * 1024;
const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
    Transfer-Encoding: chunked\r\n\r\n";

pub(super) async fn accept(listener: &TcpListener, judge: &Arc<Judge>, tasks: &Tasks) {
    while let Some(accepted) = tasks.stopping().run_until_cancelled(listener.accept()).await {
        let Ok((stream, _)) = accepted else {
            // Out of descriptors; the listener itself is sound.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let judge = Arc::clone(judge);
        tasks.spawn(async move {
            // A proxy that breaks off is noticed by its client.
            let _ = connection(stream, &judge).await;
        });
    }
}

async fn connection(mut stream: TcpStream, judge: &Judge) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(2048);
    loop {
        let Some((used, answer)) = next(&bytes, judge)? else {
            if bytes.len() > REQUEST_MAX || stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
            continue;
        };
        let streams = matches!(&answer, Answer::ByBody(_)) && holds(&bytes[..used], b"\"stream\":true");
        bytes.drain(..used);
        match answer {
            _ if streams => return events(stream, &judge.seen).await,
            Answer::Whole(whole) | Answer::ByBody(whole) => stream.write_all(&whole).await?,
        }
    }
}

/// The request at the start of `bytes`: its length, and its answer. `None` while it is not whole.
fn next(bytes: &[u8], judge: &Judge) -> std::io::Result<Option<(usize, Answer)>> {
    let mut lines = [EMPTY_HEADER; LINES];
    let mut head = Request::new(&mut lines);
    let Status::Complete(length) = head.parse(bytes).map_err(std::io::Error::other)? else { return Ok(None) };
    let body = body_length(&bytes[length..], crate::wire::framing(head.headers));
    let Some(body) = body.map_err(|_| std::io::Error::other("no chunk"))? else { return Ok(None) };
    Ok(Some((length + body, judge.judge(&head))))
}

/// An endless stream of events at a steady pace, until its reader goes.
async fn events(mut stream: TcpStream, seen: &Seen) -> std::io::Result<()> {
    let before = seen.streams.fetch_add(1, Relaxed);
    let _open = Open(seen);
    stream.write_all(STREAM_HEAD).await?;
    // Streams are out of step with one another, as people are: each begins at another part of the pause.
    let part = u32::try_from(before % 97).unwrap_or(0);
    let mut ticks = interval_at(Instant::now() + EVENT_PAUSE * part / 97, EVENT_PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut event = Vec::with_capacity(256);
    let mut byte = [0; 1];
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            // Nobody sends anything here: that something can be read means that the reader is gone.
            _ = stream.read(&mut byte) => return Ok(()),
        }
        write_event(&mut event, seen.now_us())?;
        stream.write_all(&event).await?;
        seen.events.fetch_add(1, Relaxed);
    }
}

/// One chunk with one event of the size that one word of an answer has.
fn write_event(out: &mut Vec<u8>, now_us: u128) -> std::io::Result<()> {
    let mark = char::from(EVENT_MARK);
    let data = format!(
        r#"data: {{"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"hermes-agent","choices":[{{"index":0,"delta":{{"content":"{mark}{now_us:0EVENT_DIGITS$} "}},"finish_reason":null}}]}}"#
    );
    out.clear();
    write!(out, "{:x}\r\n{data}\n\n\r\n", data.len() + 2)
}

/// Counts a stream while it is open.
struct Open<'s>(&'s Seen);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Relaxed);
    }
}
