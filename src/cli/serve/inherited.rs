//! Sockets that this process was started with (systemd.socket(5), sd_listen_fds(3)).
//!
//! Invariants: a socket belongs to what listens at its address in the configuration, and one that belongs to nothing is an
//! error, because whoever waits in it would never be answered; none is inherited by a further process.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use socket2::SockRef;

use crate::config::Config;

/// Listening sockets that are there already. What is missing is bound.
#[derive(Debug, Default)]
pub struct Inherited {
    public: Vec<TcpListener>,
    metrics: Option<TcpListener>,
}

/// A socket that cannot be used. Its number counts from zero, in the service manager's order.
#[derive(Debug)]
pub enum InheritedError {
    /// It is no TCP socket that listens.
    Unfit(usize, io::Error),
    /// Nothing in the configuration listens there.
    Stray(usize, SocketAddr),
    /// There is another for metrics already.
    SecondForMetrics(usize),
}

impl fmt::Display for InheritedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InheritedError::Unfit(number, error) => {
                write!(f, "socket {number} of the service manager cannot be used: {error}")
            }
            InheritedError::Stray(number, address) => write!(
                f,
                "socket {number} of the service manager is on {address}, which is neither listen.address nor \
                 admin.metrics_address; change one of them, or ListenStream in the socket unit"
            ),
            InheritedError::SecondForMetrics(number) => {
                write!(f, "socket {number} of the service manager is a second one for admin.metrics_address")
            }
        }
    }
}

impl std::error::Error for InheritedError {}

impl Inherited {
    /// What the service manager has handed over; nothing, when it has not. Takes the variables out of the environment, so it is
    /// for a process that has one thread yet.
    ///
    /// # Errors
    /// [`InheritedError`]
    pub fn from_service_manager(config: &Config) -> Result<Self, InheritedError> {
        let mut handed = ListenFd::from_env();
        let mut inherited = Inherited::default();
        for number in 0..handed.len() {
            let unfit = |error| InheritedError::Unfit(number, error);
            let Some(socket) = handed.take_tcp_listener(number).map_err(unfit)? else { continue };
            if !SockRef::from(&socket).is_listener().map_err(unfit)? {
                return Err(unfit(io::Error::other("it does not listen")));
            }
            inherited.add(number, socket, config)?;
        }
        Ok(inherited)
    }

    fn add(&mut self, number: usize, socket: TcpListener, config: &Config) -> Result<(), InheritedError> {
        let address = socket.local_addr().map_err(|error| InheritedError::Unfit(number, error))?;
        if is_at(config.listen.address, address) {
            self.public.push(socket);
            return Ok(());
        }
        match config.metrics_address {
            Some(metrics) if !is_at(metrics, address) => Err(InheritedError::Stray(number, address)),
            None => Err(InheritedError::Stray(number, address)),
            Some(_) if self.metrics.is_some() => Err(InheritedError::SecondForMetrics(number)),
            Some(_) => {
                self.metrics = Some(socket);
                Ok(())
            }
        }
    }

    /// Those for clients.
    pub fn take_public(&mut self) -> Vec<TcpListener> {
        std::mem::take(&mut self.public)
    }

    /// That for metrics and health.
    pub fn take_metrics(&mut self) -> Option<TcpListener> {
        self.metrics.take()
    }
}

/// Port 0 is any port.
fn is_at(configured: SocketAddr, bound: SocketAddr) -> bool {
    configured.ip() == bound.ip() && (configured.port() == bound.port() || configured.port() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(address: &str) -> TcpListener {
        TcpListener::bind(address).unwrap()
    }

    fn config(listen: &str, metrics: Option<SocketAddr>) -> Config {
        let metrics = metrics.map_or(String::new(), |address| format!("[admin]\nmetrics_address = \"{address}\"\n"));
        let text = format!(
            "[listen]\naddress = \"{listen}\"\n{metrics}[[gateway]]\nname = \"main\"\nurl = \"http://127.0.0.1:1\"\n"
        );
        crate::config::parse(&text, std::path::Path::new("/nonexistent")).unwrap()
    }

    #[test]
    fn each_socket_goes_to_what_listens_there_and_a_stray_one_is_an_error() {
        let [public, metrics, stray] = ["127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"].map(socket);
        let metrics_at = metrics.local_addr().unwrap();
        let config = config(&public.local_addr().unwrap().to_string(), Some(metrics_at));
        let mut inherited = Inherited::default();
        inherited.add(0, public.try_clone().unwrap(), &config).unwrap();
        inherited.add(1, metrics.try_clone().unwrap(), &config).unwrap();
        inherited.add(2, public, &config).unwrap();
        let told = inherited.add(3, stray, &config).unwrap_err().to_string();
        assert!(told.contains("socket 3") && told.contains("listen.address"), "{told}");
        let told = inherited.add(4, metrics, &config).unwrap_err().to_string();
        assert!(told.contains("second"), "{told}");
        assert_eq!(inherited.take_public().len(), 2);
        assert_eq!(inherited.take_metrics().unwrap().local_addr().unwrap(), metrics_at);
    }

    #[test]
    fn port_0_is_any_port_and_another_address_is_another() {
        let config = config("127.0.0.1:0", None);
        let mut inherited = Inherited::default();
        inherited.add(0, socket("127.0.0.1:0"), &config).unwrap();
        assert!(matches!(inherited.add(1, socket("127.0.0.2:0"), &config), Err(InheritedError::Stray(1, _))));
    }
}
