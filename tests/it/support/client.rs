//! The official OpenAI client for Python, from its venv.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::child::{Child, Program};
use super::{eventually, venv_program};

/// The longest that the client's four calls may take.
const CLIENT_LIMIT: Duration = Duration::from_secs(180);

/// Lists the models and sends `text` plain, streamed and as a response to `base_url` (up to `/v1`); gives what the
/// client's script printed.
#[track_caller]
pub(crate) fn openai(base_url: &str, key: &str, model: &str, text: &str) -> Value {
    run("openai_client.py", &[base_url, model, text], format!("{key}\n"))
}

/// Makes, streams, finds and deletes responses as `key`'s owner, and tries the same as `other`; gives what the script
/// printed.
#[track_caller]
pub(crate) fn openai_responses(base_url: &str, key: &str, other: &str, text: &str) -> Value {
    run("openai_responses.py", &[base_url, text], format!("{key}\n{other}\n"))
}

#[track_caller]
fn run(script: &str, arguments: &[&str], input: String) -> Value {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real").join(script).display().to_string();
    let arguments: Vec<_> =
        std::iter::once(script.as_str()).chain(arguments.iter().copied()).map(str::to_owned).collect();
    let program = Program {
        path: venv_program("clients", "python"),
        arguments,
        environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        directory: directory.path().to_owned(),
        input,
    };
    let child = Child::start(program, &directory.path().join("output"));
    eventually("the client is done", CLIENT_LIMIT, || !child.is_running());
    let output = child.output();
    serde_json::from_str(&output).unwrap_or_else(|_| panic!("the client printed no JSON: {output}"))
}
