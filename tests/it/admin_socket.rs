//! The admin socket: private, a token of this start on every call, and calls that are carried to their end.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use botgate::admin::{AdminSocket, ControlFile, connect};
use botgate::store::PersonState;
use botgate::tasks::Tasks;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::support::control::{Ground, Operator, login};

const PATIENCE: Duration = Duration::from_secs(30);

fn mode(path: &Path) -> u32 {
    path.metadata().expect("it exists").permissions().mode() & 0o777
}

fn request(path: &str, token: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: botgate\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn answer(mut stream: UnixStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.expect("the socket takes the request");
    let mut text = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut text)).await.expect("in time").expect("an answer");
    text
}

async fn served(ground: &Ground) -> (Operator, Tasks, ControlFile) {
    let (operator, _) = ground.open().await;
    let tasks = Tasks::new();
    let socket = AdminSocket::bind(&ground.data_dir()).expect("the socket binds");
    tasks.spawn(socket.run(operator.control.clone(), tasks.clone()));
    let control_file = ControlFile::read(&ground.data_dir()).expect("it is readable").expect("it is told");
    (operator, tasks, control_file)
}

#[tokio::test]
async fn only_this_starts_token_opens_it() {
    let ground = Ground::new();
    let (operator, tasks, control_file) = served(&ground).await;
    let admin = ground.data_dir().join("admin");
    assert_eq!((mode(&admin), mode(&admin.join("control.json"))), (0o700, 0o600));
    let socket = std::fs::read_dir(&admin).unwrap().map(|entry| entry.unwrap().path());
    let socket = socket.into_iter().find(|path| path.extension().is_some_and(|e| e == "sock")).expect("a socket");
    assert_eq!(mode(&socket), 0o600);
    for token in ["", "fixture", &format!("{}0", control_file.token().expose())] {
        let text = answer(connect(&control_file).await.unwrap(), &request("/user/list", token, "{}")).await;
        assert!(text.starts_with("HTTP/1.1 401 "), "{token:?}: {text}");
    }
    let right = request("/user/list", control_file.token().expose(), "{}");
    // Callers that say nothing hold nobody up.
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(connect(&control_file).await.unwrap());
    }
    let text = answer(connect(&control_file).await.unwrap(), &right).await;
    assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("[]"), "{text}");
    drop(silent);
    tasks.drain(PATIENCE).await;
    assert!(ControlFile::read(&ground.data_dir()).unwrap().is_none() && !socket.exists(), "nothing is left behind");
    let (_, tasks, renewed) = {
        operator.close().await;
        served(&ground).await
    };
    assert!(!renewed.token().matches(control_file.token().expose().as_bytes()));
    tasks.drain(PATIENCE).await;
}

#[tokio::test]
async fn a_call_takes_its_effect_though_its_caller_left() {
    let ground = Ground::new();
    let (operator, tasks, control_file) = served(&ground).await;
    for round in 0..40 {
        // Each round has a person of its own: a call that begins late disturbs no other.
        let name = format!("person-{round}");
        Operator::done(operator.call("/user/add", json!({ "login": name, "role": "member" })).await);
        let (token, _) = operator.sign_in(&name).await;
        let call = request("/user/disable", control_file.token().expose(), &json!({ "login": name }).to_string());
        let mut stream = connect(&control_file).await.unwrap();
        stream.write_all(call.as_bytes()).await.unwrap();
        // Gone before the call began, while the store works on it, or after: whatever is stored must become live.
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        drop(stream);
        let consistent = async {
            loop {
                let row = operator.control.person(&login(&name)).await.unwrap();
                if (row.state == PersonState::Disabled) == operator.look_up(&token).is_err() {
                    return;
                }
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, consistent).await;
        assert!(in_time.is_ok(), "round {round}: stored, but not live");
    }
    tasks.drain(PATIENCE).await;
}
