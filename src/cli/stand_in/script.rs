//! Script: what the "model" answers, read from the words of the last user message.

use std::time::Duration;

/// Longest wait that a word can ask for.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// Most words or bytes that a word can ask for.
const LENGTH_MAX: usize = 64 << 20;
/// Bytes of one piece of a `SIZE` answer.
const PIECE_BYTES: usize = 16 << 10;
/// Characters of the message that an answer repeats.
const ECHO_CHARS: usize = 200;

/// One step of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Wait(Duration),
    Text(String),
    /// A tool begins (true) or ends.
    Tool(String, bool),
    /// A run waits for a person's approval.
    Approval,
}

/// What to answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Script {
    sleep: Duration,
    silence: Duration,
    words: Option<(usize, Duration)>,
    size: Option<usize>,
    tool: Option<String>,
    approval: bool,
    echo: String,
    /// The status of `FAIL:status`.
    pub(super) fail: Option<u16>,
}

impl Script {
    /// Reads a message; what is not a word of the script is text to repeat.
    pub(super) fn parse(message: &str) -> Self {
        let mut script = Script { echo: message.chars().take(ECHO_CHARS).collect(), ..Script::default() };
        for word in message.split_whitespace() {
            let mut parts = word.split(':');
            let (name, first, second) = (parts.next(), parts.next(), parts.next());
            match (name, first) {
                (Some("SLEEP"), Some(sec)) => script.sleep = seconds(sec),
                (Some("SILENCE"), Some(sec)) => script.silence = seconds(sec),
                (Some("WORDS"), Some(n)) => {
                    script.words = Some((length(n), second.map(seconds).unwrap_or_default()));
                }
                (Some("SIZE"), Some(n)) => script.size = Some(length(n)),
                (Some("FAIL"), Some(status)) => script.fail = status.parse().ok(),
                (Some("TOOL"), Some(tool)) => script.tool = Some(tool.chars().take(64).collect()),
                (Some("APPROVE"), None) => script.approval = true,
                _ => {}
            }
        }
        script
    }

    /// Whether the provider, not the gateway, fails.
    pub(super) fn provider_refuses(&self) -> bool {
        matches!(self.fail, Some(401 | 402 | 403 | 429))
    }

    /// The answer, step by step.
    pub(super) fn steps(self, who: &str) -> impl Iterator<Item = Step> + Send + 'static {
        let mut head = Vec::new();
        head.extend((!self.sleep.is_zero()).then_some(Step::Wait(self.sleep)));
        head.extend(self.approval.then_some(Step::Approval));
        head.push(Step::Text(format!("I am {who}. ")));
        head.extend((!self.silence.is_zero()).then_some(Step::Wait(self.silence)));
        if let Some(tool) = self.tool {
            head.extend([Step::Tool(tool.clone(), true), Step::Tool(tool, false)]);
        }
        let silent = self.words.is_some() || self.size.is_some() || self.echo.is_empty();
        head.extend((!silent).then(|| Step::Text(format!("You said: {}", self.echo))));
        let (count, gap) = self.words.unwrap_or_default();
        let words = (0..count).flat_map(move |n| {
            let wait = (!gap.is_zero()).then_some(Step::Wait(gap));
            wait.into_iter().chain([Step::Text(format!("w{n} "))])
        });
        let size = self.size.unwrap_or(0);
        let pieces = (0..size).step_by(PIECE_BYTES).map(move |at| Step::Text("x".repeat((size - at).min(PIECE_BYTES))));
        head.into_iter().chain(words).chain(pieces)
    }
}

fn seconds(text: &str) -> Duration {
    let wait = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    wait.unwrap_or_default().min(WAIT_MAX)
}

fn length(text: &str) -> usize {
    text.parse().unwrap_or(0).min(LENGTH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(message: &str) -> String {
        let steps = Script::parse(message).steps("bot-alice");
        steps.filter_map(|step| if let Step::Text(text) = step { Some(text) } else { None }).collect()
    }

    #[test]
    fn an_answer_says_who_speaks_and_what_was_said() {
        assert_eq!(text("hello there"), "I am bot-alice. You said: hello there");
        assert_eq!(text("WORDS:3:0"), "I am bot-alice. w0 w1 w2 ");
        assert_eq!(text("SIZE:40000").len(), "I am bot-alice. ".len() + 40_000);
    }

    #[test]
    fn waits_stand_where_they_were_asked_for() {
        let steps: Vec<Step> = Script::parse("SLEEP:0.5 SILENCE:2 WORDS:1:1").steps("a").collect();
        let wait = |ms| Step::Wait(Duration::from_millis(ms));
        assert_eq!(steps, [wait(500), Step::Text("I am a. ".into()), wait(2000), wait(1000), Step::Text("w0 ".into())]);
    }

    #[test]
    fn nonsense_asks_for_nothing() {
        for message in ["SLEEP:-1", "SLEEP:nan", "SLEEP:1e999", "WORDS:x:y", "SIZE:", "FAIL:soon", "TOOL"] {
            let waits = Script::parse(message).steps("a").filter(|step| matches!(step, Step::Wait(_))).count();
            assert_eq!(waits, 0, "{message}");
        }
    }
}
