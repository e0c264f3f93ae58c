//! What the stub says, whole or as a stream of events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};

use super::calls::Note;
use super::steering;

/// The words of an answer and the pause after each.
#[derive(Debug)]
pub(super) struct Words {
    words: Vec<String>,
    gap: Duration,
}

pub(super) fn words(user: &str) -> Words {
    if let Some(count) = steering::<usize>(user, "WORDS:") {
        let gap = user.split_once("WORDS:").and_then(|(_, rest)| steering(rest, ":")).unwrap_or(0.0);
        let words = (0..count).map(|index| format!("w{index}")).collect();
        return Words { words, gap: Duration::from_secs_f64(gap) };
    }
    if let Some((_, rest)) = user.split_once("ECHO:") {
        let word = rest.split_whitespace().next().unwrap_or_default();
        return Words { words: vec![word.to_owned()], gap: Duration::ZERO };
    }
    let words = match steering::<usize>(user, "SIZE:") {
        Some(size) => vec!["x".repeat(size)],
        None => ["hello", "from", "stub"].map(str::to_owned).to_vec(),
    };
    Words { words, gap: Duration::ZERO }
}

/// The answer to a call that does not stream.
pub(super) fn whole(words: &Words) -> Value {
    let message = json!({"role": "assistant", "content": words.words.join(" ")});
    json!({
        "id": "stub-1", "object": "chat.completion", "created": 0, "model": "stub-model",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage(),
    })
}

fn usage() -> Value {
    json!({"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10})
}

/// A stream of events, one word each.
#[derive(Debug)]
pub(super) struct Reply {
    words: VecDeque<String>,
    ending: VecDeque<String>,
    gap: Duration,
    pause: Pin<Box<Sleep>>,
    note: Note,
}

impl Reply {
    pub(super) fn new(words: Words, note: Note) -> Self {
        let last = chunk(&json!({}), &json!("stop"), &usage());
        Self {
            words: words.words.into(),
            ending: VecDeque::from([last, "[DONE]".to_owned()]),
            gap: words.gap,
            pause: Box::pin(tokio::time::sleep(Duration::ZERO)),
            note,
        }
    }
}

fn chunk(delta: &Value, finish_reason: &Value, usage: &Value) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
    json!({
        "id": "stub-1", "object": "chat.completion.chunk", "created": 0, "model": "stub-model",
        "choices": [choice], "usage": usage,
    })
    .to_string()
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.pause.as_mut().poll(context));
        let data = if let Some(word) = self.words.pop_front() {
            let next = Instant::now() + self.gap;
            self.pause.as_mut().reset(next);
            chunk(&json!({"content": format!("{word} ")}), &Value::Null, &Value::Null)
        } else if let Some(data) = self.ending.pop_front() {
            data
        } else {
            self.note.finished();
            return Poll::Ready(None);
        };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(format!("data: {data}\n\n"))))))
    }
}
