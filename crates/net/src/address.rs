//! Addresses to listen on or to connect to: host and port or a path, their endpoints, and errors that name them.
//!
//! It must not know the protocol that is spoken there.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use socket2::SockAddr;

/// An address as a person writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host (a name, an IPv4 or an IPv6 address without brackets) and a port.
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a unix socket.
    Unix(PathBuf),
}

/// An address that needs no look-up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Makes a TCP address.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Address::Tcp {
            host: host.into(),
            port,
        }
    }

    /// Makes the address of a unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Address::Unix(path.into())
    }

    /// Returns the endpoints of this address, those of IPv4 first, as Redis's clients try them. Names are looked up
    /// with the system's resolver, which may block; literal addresses and paths are not.
    pub fn resolve(&self) -> Result<Vec<Endpoint>, NetError> {
        match self {
            Address::Unix(path) => Ok(vec![Endpoint::Unix(path.clone())]),
            Address::Tcp { host, port } => {
                let mut found =
                    resolve_host(host, *port).map_err(|error| NetError::new(self, error))?;
                found.sort_by_key(SocketAddr::is_ipv6);
                Ok(found.into_iter().map(Endpoint::Tcp).collect())
            }
        }
    }
}

/// Returns the address of a unix socket. The system allows a path of some hundred bytes.
pub fn unix_address(path: &Path) -> io::Result<SockAddr> {
    let bytes = path.as_os_str().len();
    if bytes > UNIX_PATH_BYTES_MAX {
        let text = format!(
            "the path of a unix socket has at most {UNIX_PATH_BYTES_MAX} bytes, not {bytes}"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    SockAddr::unix(path)
}

/// Longest path that fits in `sockaddr_un`, without the zero behind it.
const UNIX_PATH_BYTES_MAX: usize = 107;

fn resolve_host(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    if found.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "Name or service not known",
        ));
    }
    Ok(found)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } => write_host_port(f, host, *port),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => write_host_port(f, &address.ip().to_string(), address.port()),
            Endpoint::Unix(path) => path.display().fmt(f),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Endpoint::Tcp(address)
    }
}

/// Formats as `host:port`, or `[host]:port` where the host itself holds colons.
pub(crate) fn write_host_port(f: &mut fmt::Formatter<'_>, host: &str, port: u16) -> fmt::Result {
    if host.contains(':') {
        write!(f, "[{host}]:{port}")
    } else {
        write!(f, "{host}:{port}")
    }
}

/// An error of the operating system together with its address: "127.0.0.1:6379: Connection refused".
#[derive(Debug)]
pub struct NetError {
    /// The address, as it was given.
    pub address: String,
    /// The error that occurred there.
    pub error: io::Error,
}

impl NetError {
    /// Makes an error of `error` and the address at which it happened.
    pub fn new(address: &impl fmt::Display, error: io::Error) -> Self {
        NetError {
            address: address.to_string(),
            error,
        }
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, error_text(&self.error))
    }
}

impl std::error::Error for NetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<NetError> for io::Error {
    fn from(error: NetError) -> Self {
        io::Error::new(error.error.kind(), error)
    }
}

/// Returns the text of an error as C programs print it: "Connection refused", without Rust's "(os error 111)".
pub fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(code) => text
            .strip_suffix(&format!(" (os error {code})"))
            .unwrap_or(&text)
            .to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_unix_socket_is_bounded_in_words() {
        let longest = "x".repeat(UNIX_PATH_BYTES_MAX);
        assert!(unix_address(Path::new(&longest)).is_ok());
        let error = unix_address(Path::new(&format!("{longest}x"))).unwrap_err();
        assert!(error.to_string().contains("at most 107 bytes, not 108"));
    }

    #[test]
    fn addresses_print_as_redis_prints_them() {
        assert_eq!(
            Address::tcp("localhost", 6379).to_string(),
            "localhost:6379"
        );
        assert_eq!(Address::tcp("::1", 6379).to_string(), "[::1]:6379");
        assert_eq!(Address::unix("/tmp/s").to_string(), "/tmp/s");
        let mapped: SocketAddr = "[::ffff:1.2.3.4]:5".parse().unwrap();
        assert_eq!(Endpoint::Tcp(mapped).to_string(), "[::ffff:1.2.3.4]:5");
    }

    #[test]
    fn literal_addresses_resolve_to_themselves() {
        assert_eq!(
            Address::tcp("127.0.0.1", 1).resolve().unwrap(),
            [Endpoint::Tcp("127.0.0.1:1".parse().unwrap())]
        );
        assert_eq!(
            Address::tcp("::1", 1).resolve().unwrap(),
            [Endpoint::Tcp("[::1]:1".parse().unwrap())]
        );
        assert_eq!(
            Address::unix("/x").resolve().unwrap(),
            [Endpoint::Unix("/x".into())]
        );
    }

    #[test]
    fn a_name_that_does_not_exist_is_named_in_the_error() {
        let error = Address::tcp("no-such-host.invalid", 1)
            .resolve()
            .unwrap_err();
        assert!(
            error.to_string().starts_with("no-such-host.invalid:1: "),
            "{error}"
        );
    }

    #[test]
    fn errors_read_as_strerror_words_them() {
        let refused = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        assert_eq!(error_text(&refused), "Connection refused");
        let error = NetError::new(&Address::tcp("h", 7), refused);
        assert_eq!(error.to_string(), "h:7: Connection refused");
        let kind = io::Error::from(error).kind();
        assert_eq!(kind, io::ErrorKind::ConnectionRefused);
    }
}
