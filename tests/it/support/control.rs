//! The operator's side in the test process: a data directory, a stand-in, and the admin API as the socket would call it.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use botgate::admin;
use botgate::cli::stand_in::{self, Options, StandIn};
use botgate::config;
use botgate::identity::Session;
use botgate::lifecycle::{Caller, Control, LoadReport, now_ms};
use botgate::names::{Login, ProfileName};
use botgate::secret::{ApiServerKey, PresentedToken};
use botgate::store::create_master_key;
use botgate::telemetry::reason::Reason;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

/// Longest wait for the last audit records.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// A data directory and the gateway that its configuration names.
pub(crate) struct Ground {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) stand_in: StandIn,
    pub(crate) alice: ApiServerKey,
    pub(crate) bob: ApiServerKey,
    pub(crate) default: ApiServerKey,
}

pub(crate) fn login(text: &str) -> Login {
    Login::parse(text).expect("a login")
}

pub(crate) fn profile(text: &str) -> ProfileName {
    ProfileName::of(&login(text))
}

impl Ground {
    /// A stand-in that serves alice's and bob's profiles, an empty store, and the default key in its file.
    pub(crate) fn new() -> Self {
        let [alice, bob, default] = [(); 3].map(|()| ApiServerKey::generate());
        let bots = vec![(profile("alice"), alice.clone()), (profile("bob"), bob.clone())];
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stand_in = stand_in::serve(socket, Options::new(bots, default.clone())).expect("the stand-in starts");
        let dir = tempfile::tempdir().expect("a temporary directory");
        botgate::store::prepare_data_dir(&dir.path().join("data")).expect("a data directory");
        create_master_key(&dir.path().join("data")).expect("a master key");
        std::fs::write(dir.path().join("default.key"), default.expose()).expect("the default key's file");
        let text = format!(
            "[listen]\naddress = \"127.0.0.1:0\"\nadditional_hosts = [\"127.0.0.1:80\"]\n[admin]\nmetrics_address = \"127.0.0.1:0\"\n[[gateway]]\n\
             name = \"main\"\nurl = \"http://{}\"\nallow_same_user = true\ndefault_api_server_key_file = \"default.key\"\n",
            stand_in.address()
        );
        std::fs::write(dir.path().join("botgate.toml"), text).expect("the configuration file");
        Ground { dir, stand_in, alice, bob, default }
    }

    pub(crate) fn config(&self) -> std::path::PathBuf {
        self.dir.path().join("botgate.toml")
    }

    pub(crate) fn data_dir(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    /// Opens the operations as an edge would that serves.
    pub(crate) async fn open(&self) -> (Operator, LoadReport) {
        Operator::open(&self.config()).await
    }
}

/// Somebody at the admin API.
pub(crate) struct Operator {
    pub(crate) control: Control,
    router: Router,
}

impl Operator {
    async fn open(file: &Path) -> (Self, LoadReport) {
        let config = Arc::new(config::load(file).expect("the configuration is valid"));
        let control = Control::open(config, &["models"], true).expect("the parts open");
        let report = control.load().await.expect("the store loads");
        (Operator { router: admin::router(control.clone()), control }, report)
    }

    /// One call; status and answer.
    pub(crate) async fn call(&self, path: &str, asked: Value) -> (StatusCode, Value) {
        self.send(path, asked.to_string().into_bytes()).await
    }

    /// One call with these bytes.
    pub(crate) async fn send(&self, path: &str, body: Vec<u8>) -> (StatusCode, Value) {
        let mut request =
            Request::post(path).header("content-type", "application/json").body(Body::from(body)).unwrap();
        request.extensions_mut().insert(Caller { uid: 4242 });
        let response = self.router.clone().oneshot(request).await.expect("a router always answers");
        let status = response.status();
        let body = response.into_body().collect().await.expect("the answer is whole").to_bytes();
        (status, serde_json::from_slice(&body).expect("every answer is JSON"))
    }

    /// One call that must succeed.
    #[track_caller]
    pub(crate) fn done(answer: (StatusCode, Value)) -> Value {
        assert_eq!(answer.0, StatusCode::OK, "{}", answer.1);
        answer.1
    }

    /// A known person with a proved bot.
    pub(crate) async fn with_bot(&self, name: &str, key: &ApiServerKey) {
        Self::done(self.call("/user/add", json!({ "login": name, "role": "member" })).await);
        let asked = json!({ "login": name, "gateway": null, "api_server_key": key.expose() });
        let adopted = Self::done(self.call("/bot/adopt", asked).await);
        assert_eq!(adopted["proof"]["verdict"], "proved", "{adopted}");
    }

    /// A fresh session's token and row.
    pub(crate) async fn sign_in(&self, name: &str) -> (PresentedToken, String) {
        let asked = json!({ "logins": [name], "count": 1, "ttl_ms": 3_600_000, "label": null });
        let issued = Self::done(self.call("/session/create", asked).await);
        let token = issued["tokens"][0]["token"].as_str().expect("a token");
        let id = issued["tokens"][0]["id"].as_str().expect("a row");
        (PresentedToken::parse(token.as_bytes()).expect("a token parses"), id.to_owned())
    }

    /// What the data path would find.
    pub(crate) fn look_up(&self, token: &PresentedToken) -> Result<Arc<Session>, Reason> {
        self.control.sessions().lookup(token, now_ms()).map_err(|refused| refused.reason)
    }

    /// Ends it as an edge would that stops.
    pub(crate) async fn close(self) {
        self.control.audit().stop(CLOSE_LIMIT).await.expect("the audit log ends");
        self.control.store().close().await.expect("the store closes");
    }
}
