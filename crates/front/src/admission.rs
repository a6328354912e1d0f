//! Admission: which accepted connections become clients, and the options of their sockets.
//!
//! Must not know: what counts the clients, or who serves them.

use redline_net::{
    PeerAddr, Stream,
    tls::{ServerTls, TlsError},
};

/// Error for a client above the limit: a line without the leading `-`.
const CLIENTS_MAX: &str = "ERR max number of clients reached";

/// Error for a remote client in protected mode, likewise.
const PROTECTED: &str = "DENIED Redline is running in protected mode because no password is set \
for the default user. In this mode connections are accepted from this machine only (loopback and \
unix sockets). To accept others, either set a password (CONFIG SET requirepass <password>, or \
requirepass in the configuration file), or switch the protection off (CONFIG SET protected-mode no, \
or --protected-mode no at the start) if nobody untrusted can reach this port.";

/// Conditions on new clients.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Largest number of clients at the same time.
    pub clients_max: usize,
    /// True in protected mode, while anybody could log in: only peers on this machine are admitted.
    pub is_protected: bool,
}

impl Admission {
    /// Returns the error for a peer that is not admitted beside this many other clients: a line without the leading `-`.
    pub fn refusal(&self, clients: usize, peer: &PeerAddr) -> Option<&'static str> {
        if clients >= self.clients_max {
            Some(CLIENTS_MAX)
        } else if self.is_protected && !peer.is_local() {
            Some(PROTECTED)
        } else {
            None
        }
    }
}

/// Closes a connection, and sends the reason (a line without the leading `-`) as far as that goes without waiting. A peer
/// that expects TLS is sent nothing: before a handshake it would not understand it.
pub fn refuse(mut stream: Stream, expects_tls: bool, line: &str) {
    if !expects_tls {
        // The connection closes in any case.
        let _ = stream.write(format!("-{line}\r\n").as_bytes());
    }
}

/// Gives an accepted connection the options of its port: no delay of small writes, probes of a silent peer after so many
/// seconds (0: none), and TLS, whose handshake begins with the first read.
pub fn prepare(
    stream: &mut Stream,
    keepalive_s: u32,
    tls: Option<&ServerTls>,
) -> Result<(), TlsError> {
    // A socket that refuses these options works, too.
    let _ = stream.set_nodelay(true);
    if keepalive_s > 0 {
        let _ = stream.set_keepalive(keepalive_s);
    }
    tls.map_or(Ok(()), |tls| stream.accept_tls(tls))
}

#[cfg(test)]
mod tests {
    use redline_net::Read;

    use super::*;

    fn peer(address: &str) -> PeerAddr {
        PeerAddr::Tcp(address.parse().expect("an address"))
    }

    #[test]
    fn the_limit_comes_first_and_protection_is_for_peers_from_elsewhere() {
        let open = Admission {
            clients_max: 2,
            is_protected: false,
        };
        let protected = Admission {
            is_protected: true,
            ..open
        };
        let (near, far) = (peer("127.0.0.1:1"), peer("192.0.2.1:1"));
        assert_eq!(open.refusal(1, &far), None);
        assert_eq!(open.refusal(2, &near), Some(CLIENTS_MAX));
        assert_eq!(protected.refusal(1, &near), None);
        assert_eq!(protected.refusal(1, &PeerAddr::Unix("/s".into())), None);
        assert_eq!(protected.refusal(1, &far), Some(PROTECTED));
        assert_eq!(protected.refusal(2, &far), Some(CLIENTS_MAX));
    }

    #[test]
    fn who_is_refused_is_told_unless_it_expects_tls() {
        for (expects_tls, told) in [(false, "-ERR no\r\n"), (true, "")] {
            let (own, mut peer) = Stream::pair().unwrap();
            refuse(own, expects_tls, "ERR no");
            let mut received = Vec::new();
            while let Ok(Read::Data { .. }) = peer.read_into(&mut received, 64) {}
            assert_eq!(received, told.as_bytes());
            assert!(matches!(peer.read_into(&mut received, 64), Ok(Read::Eof)));
        }
    }
}
