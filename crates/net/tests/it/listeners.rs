//! Listening: Redis's `bind` addresses, unix socket files, and what happens when an address is taken.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use redline_net::{Address, Listener, PeerAddr, UnixAccess, connect_blocking};

use crate::sockets::{self, PATIENCE, accept, exists};

fn has_ipv6() -> bool {
    sockets::Family::all().contains(&sockets::Family::V6)
}

#[test]
fn the_default_binds_listen_on_both_families_on_one_port() {
    let listeners = Listener::bind_tcp(&["*", "-::*"], 0, 511).unwrap();
    assert_eq!(listeners.len(), if has_ipv6() { 2 } else { 1 });
    let port = listeners[0].port().unwrap();
    for (listener, host) in listeners.iter().zip(["127.0.0.1", "::1"]) {
        assert_eq!(listener.port(), Some(port));
        connect_blocking(&Address::tcp(host, port), PATIENCE).unwrap();
        let (stream, peer) = accept(listener);
        let PeerAddr::Tcp(peer) = peer else {
            panic!("a unix peer on a TCP listener")
        };
        assert_eq!(
            peer.ip().to_string(),
            host,
            "IPv4 clients come through the IPv4 listener"
        );
        drop(stream);
    }
}

#[test]
fn names_may_be_bound() {
    let listener = Listener::bind_tcp(&["localhost"], 0, 16).unwrap().remove(0);
    connect_blocking(
        &Address::tcp("localhost", listener.port().unwrap()),
        PATIENCE,
    )
    .unwrap();
    accept(&listener);
}

#[test]
fn an_address_that_is_not_there_is_an_error_unless_marked_optional() {
    // 192.0.2.0/24 is reserved for documentation: no machine has an address of it.
    let error = Listener::bind_tcp(&["192.0.2.1"], 6379, 16).unwrap_err();
    assert_eq!(
        error.to_string(),
        "192.0.2.1:6379: Cannot assign requested address"
    );
    let listeners = Listener::bind_tcp(&["127.0.0.1", "-192.0.2.1"], 0, 16).unwrap();
    assert_eq!(listeners.len(), 1);
    assert!(Listener::bind_tcp(&["no-such-host.invalid"], 0, 16).is_err());
    assert!(Listener::bind_tcp(&[""], 0, 16).is_err());
}

#[test]
fn an_address_in_use_is_an_error_also_when_optional_and_is_named() {
    let first = Listener::bind_tcp(&["127.0.0.1"], 0, 16).unwrap().remove(0);
    let port = first.port().unwrap();
    for bind in ["127.0.0.1", "-127.0.0.1"] {
        let error = Listener::bind_tcp(&[bind], port, 16).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("127.0.0.1:{port}: Address already in use")
        );
    }
}

#[test]
fn a_port_can_be_taken_again_right_after_its_server_has_gone() {
    let listener = Listener::bind_tcp(&["127.0.0.1"], 0, 16).unwrap().remove(0);
    let port = listener.port().unwrap();
    let client = connect_blocking(&Address::tcp("127.0.0.1", port), PATIENCE).unwrap();
    let (server, _) = accept(&listener);
    // The server closes first, so its side stays in TIME_WAIT.
    drop(server);
    drop(client);
    drop(listener);
    Listener::bind_tcp(&["127.0.0.1"], port, 16).unwrap();
}

#[test]
fn a_unix_socket_has_its_mode_and_leaves_with_its_listener() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock");
    let private = UnixAccess {
        mode: Some(0o700),
        group: None,
    };
    let listener = Listener::bind_unix(&path, private, 16).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(
        listener.local_address().unwrap().to_string(),
        format!("{}:0", path.display())
    );
    assert_eq!(listener.port(), None);
    connect_blocking(&Address::unix(&path), PATIENCE).unwrap();
    assert_eq!(accept(&listener).1, PeerAddr::Unix(path.clone()));
    drop(listener);
    assert!(!exists(&path));
}

/// Returns the numbers behind that name in this process's status.
fn own_numbers(name: &str) -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let words = line.unwrap().split_whitespace();
    words.map(|word| word.parse().unwrap()).collect()
}

#[test]
fn a_unix_socket_belongs_to_the_group_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock");
    let listen = |group| {
        let mode = Some(0o770);
        Listener::bind_unix(&path, UnixAccess { mode, group }, 16)
    };
    let groups = fs::read_to_string("/etc/group").unwrap();
    let groups: Vec<(&str, u32)> = groups
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            Some((fields.next()?, fields.nth(1)?.parse().ok()?))
        })
        .collect();
    let (user, own) = (own_numbers("Uid:")[1], own_numbers("Gid:")[1]);
    let may = |id: u32| user == 0 || own_numbers("Groups:").contains(&id);
    let others = || groups.iter().filter(|(_, id)| *id != own);
    let allowed = others().find(|(_, id)| may(*id));
    if let Some((name, id)) = allowed {
        let listener = listen(Some(name)).unwrap();
        let metadata = path.metadata().unwrap();
        assert_eq!(metadata.gid(), *id, "{name}");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o770);
        drop(listener);
    } else {
        let (name, _) = others().next().expect("a system has several groups");
        let error = listen(Some(name)).unwrap_err();
        assert!(error.to_string().contains("not permitted"), "{error}");
        fs::remove_file(&path).unwrap();
    }
    let error = listen(Some("no such group")).unwrap_err();
    let text = format!("{}: no group \"no such group\"", path.display());
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_dead_servers_socket_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock");
    // The standard library's listener leaves its file behind, as a killed server does.
    drop(UnixListener::bind(&path).unwrap());
    assert!(exists(&path));
    let listener = Listener::bind_unix(&path, UnixAccess::default(), 16).unwrap();
    connect_blocking(&Address::unix(&path), PATIENCE).unwrap();
    accept(&listener);
}

#[test]
fn a_living_servers_socket_file_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock");
    let first = Listener::bind_unix(&path, UnixAccess::default(), 16).unwrap();
    let error = Listener::bind_unix(&path, UnixAccess::default(), 16).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{}: Address already in use", path.display())
    );
    // The probe that found it alive may wait in its queue; the server sees a client that left.
    connect_blocking(&Address::unix(&path), PATIENCE).unwrap();
    accept(&first);
}

#[test]
fn an_empty_file_that_reserves_the_path_is_replaced() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.into_temp_path();
    let listener = Listener::bind_unix(&path, UnixAccess::default(), 16).unwrap();
    connect_blocking(&Address::unix(&path), PATIENCE).unwrap();
    accept(&listener);
}

#[test]
fn a_file_that_is_no_socket_is_never_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    assert!(Listener::bind_unix(&path, UnixAccess::default(), 16).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
}

#[test]
fn a_listener_does_not_remove_the_file_of_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock");
    let first = Listener::bind_unix(&path, UnixAccess::default(), 16).unwrap();
    // Renamed, not removed: its inode must not be given to the next file.
    std::fs::rename(&path, folder.path().join("moved")).unwrap();
    let second = Listener::bind_unix(&path, UnixAccess::default(), 16).unwrap();
    drop(first);
    assert!(exists(&path));
    drop(second);
    assert!(!exists(&path));
}

#[test]
fn accept_says_when_nobody_waits() {
    let listener = Listener::bind_tcp(&["127.0.0.1"], 0, 16).unwrap().remove(0);
    assert!(listener.accept().unwrap().is_none());
    let error =
        Listener::bind_unix("/no/such/folder/socket", UnixAccess::default(), 16).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/no/such/folder/socket: No such file or directory"
    );
    let gone = Address::tcp("127.0.0.1", listener.port().unwrap());
    drop(listener);
    assert!(connect_blocking(&gone, Duration::from_secs(5)).is_err());
}
