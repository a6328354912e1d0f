//! Listening sockets, TCP and unix, with Redis's rules for `bind` addresses.
//!
//! It must not know the thread that serves the connections.

use std::ffi::CString;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::address::unix_address;
use crate::pacing::Pacing;
use crate::{Address, NetError, PeerAddr, Stream};

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    /// Of a unix socket: its file, removed when the listener is dropped.
    file: Option<SocketFile>,
    is_tls: bool,
    /// Of a TCP socket: for connections from elsewhere.
    pacing: Option<Pacing>,
}

/// The mode of binding a port: alone, or beside other sockets that are bound in the same mode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Alone,
    Port,
}

/// Access rights to a unix socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnixAccess<'a> {
    /// Permission bits of its file; those of the umask if there are none.
    pub mode: Option<u32>,
    /// Name of the group that it belongs to; the process's if there is none.
    pub group: Option<&'a str>,
}

impl Listener {
    /// Marks it as one whose peers speak TLS. Connections that it accepts are plain still: its owner has the
    /// certificates.
    pub fn for_tls(mut self) -> Listener {
        self.is_tls = true;
        self
    }

    /// Returns true if the listener's peers speak TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Listens on every address of `binds`, each written as Redis's `bind` directive has it: an address or a name,
    /// `*` for all of IPv4, `::*` for all of IPv6, with a leading `-` if it is no error that the address is not there.
    /// Port 0 picks a free port, the same one for all.
    pub fn bind_tcp(
        binds: &[impl AsRef<str>],
        port: u16,
        backlog: u32,
    ) -> Result<Vec<Listener>, NetError> {
        Listener::bind_all(binds, port, backlog, Sharing::Alone)
    }

    /// Listens beside `old`, which may be on the same port, and on the same addresses: so no client finds the port
    /// closed between one set of listeners and the next. A port that others hold is refused as ever.
    pub fn bind_tcp_beside(
        old: &[&Listener],
        binds: &[impl AsRef<str>],
        port: u16,
        backlog: u32,
    ) -> Result<Vec<Listener>, NetError> {
        let share = |listeners: &mut dyn Iterator<Item = &Listener>, on| {
            // Where it fails, binding does too, and says so.
            listeners.for_each(|listener| drop(listener.socket.set_reuse_port(on)));
        };
        share(&mut old.iter().copied(), true);
        let bound = Listener::bind_all(binds, port, backlog, Sharing::Port);
        // Only the moment of binding looks at it.
        share(&mut old.iter().copied(), false);
        if let Ok(fresh) = &bound {
            share(&mut fresh.iter(), false);
        }
        bound
    }

    fn bind_all(
        binds: &[impl AsRef<str>],
        port: u16,
        backlog: u32,
        sharing: Sharing,
    ) -> Result<Vec<Listener>, NetError> {
        let mut listeners = Vec::with_capacity(binds.len());
        let mut port = port;
        for bind in binds {
            let bind = bind.as_ref();
            let (host, optional) = match bind.strip_prefix('-') {
                Some(host) => (host, true),
                None => (bind, false),
            };
            match bind_host(host, port, backlog, sharing) {
                Ok(listener) => {
                    port = listener.port().unwrap_or(port);
                    listeners.push(listener);
                }
                Err(error) if is_unsupported(&error) => {}
                Err(error) if optional && error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => {}
                Err(error) => return Err(NetError::new(&Address::tcp(host, port), error)),
            }
        }
        Ok(listeners)
    }

    /// Listens on one endpoint.
    pub fn bind_address(address: SocketAddr, backlog: u32) -> Result<Listener, NetError> {
        listen_tcp(address, backlog, Sharing::Alone).map_err(|error| NetError::new(&address, error))
    }

    /// Listens on a unix socket at `path`. A file that a dead server left there is removed first, and so is an empty
    /// one; the socket of a living server, or a file with contents, is an error.
    pub fn bind_unix(
        path: impl AsRef<Path>,
        access: UnixAccess<'_>,
        backlog: u32,
    ) -> Result<Listener, NetError> {
        let path = path.as_ref();
        listen_unix(path, access, backlog).map_err(|error| NetError::new(&path.display(), error))
    }

    /// Returns the next connection that waits, or `None`. The stream is non-blocking.
    ///
    /// After a readable event, accept until `None`. An error ends that early: out of descriptors
    /// ([`is_out_of_descriptors`]), or out of memory. The connections that wait then stay where they are, and raise
    /// no event of their own: the caller tries again after a pause, or once it has closed something, not at once.
    pub fn accept(&self) -> io::Result<Option<(Stream, PeerAddr)>> {
        loop {
            let error = match self
                .socket
                .accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)
            {
                Ok((socket, address)) => return Ok(Some(self.accepted(socket, &address))),
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(None),
                // The peer gave up while it waited, or the network failed it: the next one may be well.
                Some(
                    libc::EINTR
                    | libc::ECONNABORTED
                    | libc::EPROTO
                    | libc::ENETDOWN
                    | libc::ENOPROTOOPT
                    | libc::EHOSTDOWN
                    | libc::ENONET
                    | libc::EHOSTUNREACH
                    | libc::ENETUNREACH,
                ) => {}
                _ => return Err(error),
            }
        }
    }

    fn accepted(&self, socket: Socket, address: &SockAddr) -> (Stream, PeerAddr) {
        match (&self.file, address.as_socket()) {
            (None, Some(address)) => {
                if let Some(pacing) = &self.pacing
                    && !address.ip().is_loopback()
                {
                    pacing.put_on(&socket);
                }
                (Stream::tcp(socket), PeerAddr::Tcp(address))
            }
            (None, None) => unreachable!("a TCP listener's peers have IP addresses"),
            (Some(file), _) => (Stream::unix(socket), PeerAddr::Unix(file.path.clone())),
        }
    }

    /// Ends it for every holder: peers that connect from now on are refused, and so are those that have not been
    /// accepted yet.
    pub fn close(&self) {
        // It fails if that has been done already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Returns the address that it listens on, as a connection's own end is printed.
    pub fn local_address(&self) -> io::Result<PeerAddr> {
        match &self.file {
            Some(file) => Ok(PeerAddr::Unix(file.path.clone())),
            None => {
                let address = self.socket.local_addr()?.as_socket();
                address
                    .map(PeerAddr::Tcp)
                    .ok_or_else(|| io::ErrorKind::InvalidData.into())
            }
        }
    }

    /// Returns the port that it listens on; `None` for a unix socket.
    pub fn port(&self) -> Option<u16> {
        Some(self.socket.local_addr().ok()?.as_socket()?.port())
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns true if `error` says that the process or the system has no file descriptor left.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Returns true if the machine lacks the whole address family, which is no error: the other addresses remain.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENOPROTOOPT
                | libc::EPROTONOSUPPORT
                | libc::ESOCKTNOSUPPORT
                | libc::EPFNOSUPPORT
                | libc::EAFNOSUPPORT
        )
    )
}

fn bind_host(host: &str, port: u16, backlog: u32, sharing: Sharing) -> io::Result<Listener> {
    let mut last = io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
    for address in bind_addresses(host, port)? {
        match listen_tcp(address, backlog, sharing) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn bind_addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let ip: IpAddr = match host {
        "*" => Ipv4Addr::UNSPECIFIED.into(),
        "::*" => Ipv6Addr::UNSPECIFIED.into(),
        _ => match host.parse() {
            Ok(ip) => ip,
            Err(_) => {
                let mut found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
                found.sort_by_key(SocketAddr::is_ipv6);
                return Ok(found);
            }
        },
    };
    Ok(vec![SocketAddr::new(ip, port)])
}

fn listen_tcp(address: SocketAddr, backlog: u32, sharing: Sharing) -> io::Result<Listener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        None,
    )?;
    if address.is_ipv6() {
        // Each family has its own socket, so that `*` and `::*` can be bound side by side.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    if sharing == Sharing::Port {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    let pacing = Pacing::take_off(&socket);
    socket.listen(backlog_of(backlog))?;
    Ok(Listener {
        socket,
        file: None,
        is_tls: false,
        pacing,
    })
}

fn listen_unix(path: &Path, access: UnixAccess<'_>, backlog: u32) -> io::Result<Listener> {
    let address = unix_address(path)?;
    remove_stale(path, &address)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.bind(&address)?;
    let file = SocketFile::of(path)?;
    // Before `listen`: until then every connection is refused, so no peer connects under looser permissions.
    if let Some(group) = access.group {
        std::os::unix::fs::chown(path, None, Some(group_id(group)?))?;
    }
    if let Some(mode) = access.mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    socket.listen(backlog_of(backlog))?;
    Ok(Listener {
        socket,
        file: Some(file),
        is_tls: false,
        pacing: None,
    })
}

/// Returns the number of the group of that name.
fn group_id(name: &str) -> io::Result<u32> {
    const BYTES_MAX: usize = 1 << 20;
    let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("no group {name:?}"));
    let wanted = CString::new(name).map_err(|_| unknown())?;
    let mut buffer = vec![0; 1 << 10];
    loop {
        // SAFETY: all zeros is a `group`, whose pointers are not followed.
        let mut group: libc::group = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: the name ends with a zero, the buffer is as long as is said, and all of it outlives the call.
        let failure = unsafe {
            libc::getgrnam_r(
                wanted.as_ptr(),
                &mut group,
                buffer.as_mut_ptr(),
                buffer.len(),
                &mut found,
            )
        };
        match failure {
            0 if found.is_null() => return Err(unknown()),
            0 => return Ok(group.gr_gid),
            libc::ERANGE if buffer.len() < BYTES_MAX => buffer.resize(2 * buffer.len(), 0),
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

fn backlog_of(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

/// Removes a socket file without a listener, or an empty file, which reserves the path.
fn remove_stale(path: &Path, address: &SockAddr) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(metadata) if metadata.is_file() && metadata.len() == 0 => return fs::remove_file(path),
        // Any other file is not ours to remove; binding will report that the address is in use.
        _ => return Ok(()),
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    match probe.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => Ok(()),
    }
}

/// The file of a unix socket that we made, known again by its inode: if another server has put its own in the same
/// place, that one is left alone.
#[derive(Debug)]
struct SocketFile {
    /// The path as it was given: the name that clients know.
    path: PathBuf,
    /// The path whatever the working directory becomes.
    place: PathBuf,
    inode: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(SocketFile {
            path: path.to_owned(),
            place: std::path::absolute(path)?,
            inode: (metadata.dev(), metadata.ino()),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let Ok(metadata) = fs::symlink_metadata(&self.place) else {
            return;
        };
        if (metadata.dev(), metadata.ino()) == self.inode {
            // Nothing is lost if it fails: the next server finds the file stale and removes it.
            let _ = fs::remove_file(&self.place);
        }
    }
}
