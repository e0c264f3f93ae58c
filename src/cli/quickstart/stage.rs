//! The stage: everything that a quickstart has started, put up in order and taken down in the opposite one.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use super::edge::{Edge, Plan};
use super::hermes::{Hermes, Installed, examine, health, on_path};
use super::home::{self, Person};
use super::lines::{Scene, ready};
use super::scratch::Scratch;
use super::signals::Signals;
use super::{QuickstartArgs, QuickstartError};
use crate::cli::stand_in::{self, StandIn, provider};
use crate::secret::ApiServerKey;

/// Where the edge listens unless told otherwise.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// Where a Hermes listens unless told otherwise.
const HERMES: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8642);

/// What has been started so far.
#[derive(Default)]
pub(super) struct Stage {
    edge: Option<Edge>,
    hermes: Option<Hermes>,
    stand_in: Option<StandIn>,
    model: Option<provider::Provider>,
    scratch: Option<Scratch>,
}

impl Stage {
    /// Puts everything up, prints the lines, and stays until a signal comes or the gateway ends by itself.
    pub(super) async fn play(&mut self, args: QuickstartArgs, signals: &mut Signals) -> Result<(), QuickstartError> {
        let people = [Person::new("alice"), Person::new("bob")];
        let default_key = ApiServerKey::generate();
        self.scratch = Some(Scratch::make().map_err(QuickstartError::Scratch)?);
        let Some(gateway) = signals.or(self.gateway(&args, &people, &default_key)).await else { return Ok(()) };
        let (gateway, shown) = gateway?;
        let Some(running) = signals.or(health(HERMES)).await else { return Ok(()) };
        let running = running.filter(|body| body.contains("hermes-agent")).map(|_| HERMES.to_string());
        let Some(scratch) = &self.scratch else { return Ok(()) };
        let listen = args.listen.unwrap_or_else(|| if is_free(LISTEN) { LISTEN } else { loopback(0) });
        let plan = Plan { scratch, listen, gateway, default_key: &default_key, people: &people };
        let edge = self.edge.insert(Edge::start(plan).await?);
        let [alice, bob] = edge.tokens();
        let url = format!("http://{}", edge.address());
        tell(&ready(&Scene { url: &url, gateway: &shown, alice, bob, running: running.as_deref() }));
        let ended = async {
            match &mut self.hermes {
                Some(hermes) => hermes.ended().await,
                None => std::future::pending().await,
            }
        };
        signals.or(ended).await.map_or(Ok(()), |words| Err(QuickstartError::GatewayEnded(words)))
    }

    /// The gateway to stand behind the edge, and what it is in words.
    async fn gateway(
        &mut self,
        args: &QuickstartArgs,
        people: &[Person; 2],
        default_key: &ApiServerKey,
    ) -> Result<(SocketAddr, String), QuickstartError> {
        match self.installed(args).await {
            Ok(installed) => self.real(&installed, people, default_key).await,
            Err(why) => self.stand_in(people, default_key, &why),
        }
    }

    /// Takes everything down; bounded, and complete also after half a play.
    pub(super) async fn clear(mut self) -> io::Result<()> {
        if let Some(edge) = self.edge.take() {
            edge.stop().await;
        }
        if let Some(hermes) = self.hermes.take() {
            hermes.stop().await;
        }
        if let Some(stand_in) = self.stand_in.take() {
            stand_in.stop();
        }
        if let Some(model) = self.model.take() {
            model.stop();
        }
        self.scratch.take().map_or(Ok(()), Scratch::remove)
    }

    /// The Hermes to use, or why none is.
    async fn installed(&self, args: &QuickstartArgs) -> Result<Installed, String> {
        if args.stand_in {
            return Err("asked for with --stand-in".to_owned());
        }
        let program = match &args.hermes {
            // A relative name would be looked for in the child's own directory.
            Some(program) => std::path::absolute(program).map_err(|error| error.to_string())?,
            None => on_path("hermes", &search_path()).ok_or("there is no hermes on PATH")?,
        };
        let home = self.scratch.as_ref().map(Scratch::path).ok_or("there is no home to ask it in")?;
        // A home of its own: it may write there before it is asked for more.
        let asked = home.join("asked");
        std::fs::create_dir(&asked).map_err(|error| error.to_string())?;
        examine(&program, &asked).await
    }

    async fn real(
        &mut self,
        installed: &Installed,
        people: &[Person; 2],
        default_key: &ApiServerKey,
    ) -> Result<(SocketAddr, String), QuickstartError> {
        let Some(scratch) = &self.scratch else { return self.stand_in(people, default_key, "no home") };
        let model = provider::serve(bound()?).map_err(|error| QuickstartError::System("starting the model", error))?;
        let model_address = model.address();
        self.model = Some(model);
        // The gateway binds the port itself; ours is given back just before.
        let address = bound()?.local_addr().map_err(|error| QuickstartError::System("finding a port", error))?;
        let home = home::write(scratch, people, default_key, address, model_address)?;
        tell(&format!("Starting Hermes {} ({}) ...", installed.version, installed.program.display()));
        let started = Hermes::start(installed, &home, address);
        let hermes = self.hermes.insert(started.map_err(|error| QuickstartError::System("starting Hermes", error))?);
        match hermes.ready().await {
            Ok(()) => {
                let shown = format!("Hermes {} ({}) with a stub model", installed.version, installed.program.display());
                Ok((address, shown))
            }
            Err(words) => {
                if let Some(hermes) = self.hermes.take() {
                    hermes.stop().await;
                }
                self.stand_in(people, default_key, &format!("Hermes {} did not start:\n{words}\n", installed.version))
            }
        }
    }

    fn stand_in(
        &mut self,
        people: &[Person; 2],
        default_key: &ApiServerKey,
        why: &str,
    ) -> Result<(SocketAddr, String), QuickstartError> {
        let bots = people.iter().map(|person| (person.profile.clone(), person.key.clone())).collect();
        let served = stand_in::serve(bound()?, stand_in::Options::new(bots, default_key.clone()));
        let served = served.map_err(|error| QuickstartError::System("starting the stand-in", error))?;
        let address = served.address();
        self.stand_in = Some(served);
        Ok((address, format!("botgate's stand-in for Hermes ({why})")))
    }
}

/// Prints a line. Nobody may be reading; that is no reason to stop.
fn tell(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn bound() -> Result<TcpListener, QuickstartError> {
    TcpListener::bind(loopback(0)).map_err(|error| QuickstartError::System("listening on loopback", error))
}

fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

#[expect(clippy::disallowed_methods, reason = "where programs are looked for is the command line's own")]
fn search_path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap_or_default()
}
