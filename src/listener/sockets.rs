//! Listening sockets: one per data-path thread on the same address.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the system keeps for a thread that is busy.
const BACKLOG: i32 = 1024;

/// The address cannot be listened on.
#[derive(Debug)]
pub struct BindError {
    address: SocketAddr,
    cause: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {}: {}", self.address, self.cause)?;
        if self.cause.kind() == io::ErrorKind::AddrInUse {
            f.write_str("; another process has this address (see listen.address)")?;
        }
        Ok(())
    }
}

impl std::error::Error for BindError {}

/// Binds `count` sockets to one address; port 0 becomes the same free port for all.
///
/// The address is first taken alone, because with SO_REUSEPORT a second botgate would silently get a share of the traffic.
///
/// # Errors
/// [`BindError`]
pub fn bind(address: SocketAddr, count: usize) -> Result<Vec<TcpListener>, BindError> {
    let failed = |cause| BindError { address, cause };
    let alone = socket(address, false).map_err(failed)?;
    let bound = alone.local_addr().map_err(failed)?.as_socket().unwrap_or(address);
    drop(alone);
    (0..count)
        .map(|_| {
            let socket = socket(bound, true)?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        })
        .collect::<io::Result<_>>()
        .map_err(failed)
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of an earlier process in TIME_WAIT must not keep the address.
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sockets_share_one_port_and_nobody_else_can_join() {
        let sockets = bind(SocketAddr::from(([127, 0, 0, 1], 0)), 3).unwrap();
        let address = sockets[0].local_addr().unwrap();
        assert!(sockets.iter().all(|socket| socket.local_addr().unwrap() == address));
        let error = bind(address, 1).unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
    }
}
