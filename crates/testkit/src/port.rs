//! A TCP port that is kept for a test. Must not know any server.

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::OwnedFd,
};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with,
    sockopt::set_socket_reuseaddr,
};

/// A port of 127.0.0.1 at which nobody listens, for as long as this is kept: a connection to it is refused.
///
/// A socket is bound to it and does not listen. So the system gives the port to nobody who asks for any; a server that is
/// told this one can listen at it beside the socket, since both share the address (`SO_REUSEADDR`).
#[derive(Debug)]
pub struct ReservedPort {
    _socket: OwnedFd,
    number: u16,
}

impl ReservedPort {
    /// Reserves any free port.
    ///
    /// # Panics
    /// If the system has none.
    pub fn any() -> ReservedPort {
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        set_socket_reuseaddr(&socket, true).expect("an option of sockets");
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let bound = getsockname(&socket).expect("the socket is bound");
        let bound = SocketAddr::try_from(bound).expect("an address of TCP");
        ReservedPort {
            _socket: socket,
            number: bound.port(),
        }
    }

    /// Returns its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::ErrorKind,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn it_refuses_until_a_server_takes_it() {
        let port = ReservedPort::any();
        let at = (Ipv4Addr::LOCALHOST, port.number());
        let refused = TcpStream::connect(at).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let listener = TcpListener::bind(at).unwrap();
        TcpStream::connect(at).unwrap();
        drop(listener);
    }
}
