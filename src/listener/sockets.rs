//! Listening sockets: one per data-path thread on the same address.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};

/// Connections that the system keeps for a thread that is busy.
const BACKLOG: i32 = 1024;

/// Listening sockets for the data path, one for each of its threads.
#[derive(Debug)]
pub struct Sockets {
    all: Vec<TcpListener>,
    kept: bool,
}

impl Sockets {
    /// Sockets that were handed to this process, for at least `threads` threads; with fewer sockets than threads, several
    /// accept on one. Whoever handed them keeps them: what waits in them when this process ends is answered there.
    ///
    /// # Errors
    /// There is none, or the system refuses another descriptor.
    pub fn handed(sockets: Vec<TcpListener>, threads: usize) -> io::Result<Self> {
        if sockets.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for socket in &sockets {
            socket.set_nonblocking(true)?;
        }
        let more = threads.saturating_sub(sockets.len());
        let copies: Vec<_> =
            sockets.iter().cycle().take(more).map(TcpListener::try_clone).collect::<io::Result<_>>()?;
        Ok(Sockets { all: sockets.into_iter().chain(copies).collect(), kept: true })
    }

    /// The same, when nobody but this process has them any more.
    pub fn alone(mut self) -> Self {
        self.kept = false;
        self
    }

    /// Whether somebody else has them, too, and answers what waits in them.
    pub fn are_kept(&self) -> bool {
        self.kept
    }

    /// Where they listen; port 0 has become the port that it is.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.all.first().ok_or(io::ErrorKind::InvalidInput)?.local_addr()
    }

    /// The sockets themselves.
    pub fn into_inner(self) -> Vec<TcpListener> {
        self.all
    }
}

/// Lets the first packet of new handshakes go unanswered on a listening socket, so that what waits in it comes to an end. Their
/// clients send it again within a second or so, and meet whoever listens then.
pub(super) fn refuse_new(socket: &impl AsFd) -> io::Result<()> {
    // socket(7), SO_ATTACH_FILTER: the filter sees the TCP header, whose flags are its byte 13. Dropped is what has SYN and not
    // ACK; nothing else comes to a listening socket but the ends of handshakes that have begun.
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    SockRef::from(socket).attach_filter(&[
        SockFilter::new(LOAD_BYTE, 0, 0, 13),
        SockFilter::new(AND, 0, 0, 0x12),
        SockFilter::new(IF_EQUAL, 0, 1, 0x02),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ])
}

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
pub fn bind(address: SocketAddr, count: usize) -> Result<Sockets, BindError> {
    let failed = |cause| BindError { address, cause };
    let alone = socket(address, false).map_err(failed)?;
    let bound = alone.local_addr().map_err(failed)?.as_socket().unwrap_or(address);
    drop(alone);
    let all = (0..count).map(|_| {
        let socket = socket(bound, true)?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    });
    Ok(Sockets { all: all.collect::<io::Result<_>>().map_err(failed)?, kept: false })
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
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_sockets_share_one_port_and_nobody_else_can_join() {
        let sockets = bind(SocketAddr::from(([127, 0, 0, 1], 0)), 3).unwrap();
        let address = sockets.address().unwrap();
        assert!(sockets.all.len() == 3 && !sockets.are_kept());
        assert!(sockets.all.iter().all(|socket| socket.local_addr().unwrap() == address));
        let error = bind(address, 1).unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
    }

    #[test]
    fn fewer_sockets_than_threads_are_shared_and_more_are_all_used() {
        let handed = |count: usize, threads| {
            let sockets = bind(SocketAddr::from(([127, 0, 0, 1], 0)), count).unwrap();
            let address = sockets.address().unwrap();
            let handed = Sockets::handed(sockets.into_inner(), threads).unwrap();
            assert!(handed.are_kept());
            assert!(handed.all.iter().all(|socket| socket.local_addr().unwrap() == address));
            handed.all.len()
        };
        assert_eq!([handed(1, 4), handed(3, 2)], [4, 3]);
        assert!(Sockets::handed(Vec::new(), 2).is_err());
    }

    #[test]
    fn a_socket_that_refuses_new_handshakes_keeps_what_waits_in_it() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let mut waiting = TcpStream::connect(address).unwrap();
        refuse_new(&socket).unwrap();
        let late = TcpStream::connect_timeout(&address, Duration::from_millis(300)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut, "neither accepted nor refused");
        waiting.write_all(b"asked").unwrap();
        let mut read = [0; 5];
        let (mut accepted, _) = socket.accept().unwrap();
        accepted.read_exact(&mut read).unwrap();
        accepted.write_all(&read).unwrap();
        waiting.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"asked");
    }
}
