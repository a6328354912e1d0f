//! Clients and descriptors of a process: `maxclients` beside the limit of open files. Must not know the server's insides.

mod running;

use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
};

use running::{REDLINE, Running, folder_with, until};

/// `redline server r.conf` in a shell that allows so many files.
fn with_files(limit: u32) -> Command {
    let mut command = Command::new("sh");
    let line = format!("ulimit -n {limit} && exec \"$0\" server r.conf");
    command.args(["-c", &line, REDLINE]);
    command
}

#[test]
fn maxclients_is_lowered_to_the_limit_of_open_files_and_says_so() {
    // More than any process may have open, whoever runs it.
    let folder = folder_with("maxclients 4294967295\n");
    let running = Running::of(with_files(120), folder, None);
    assert_eq!(running.call("CONFIG GET maxclients"), "maxclients 88");
    let mut first = running.connect();
    until("those before are gone", || {
        (first.call("CLIENT LIST").lines().count() == 1).then_some(())
    });
    let mut clients: Vec<_> = (0..87).map(|_| running.connect()).collect();
    clients.push(first);
    assert!(
        clients
            .iter_mut()
            .all(|client| client.call("PING") == "+PONG")
    );
    let mut refused = running.try_connect().unwrap();
    let mut said = String::new();
    refused.read_to_string(&mut said).unwrap();
    assert_eq!(said, "-ERR max number of clients reached\r\n");
    let beyond = clients[0].call("CONFIG SET maxclients 4000000000");
    assert_eq!(
        beyond,
        "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able to handle the specified number of clients, try with 88"
    );
    assert_eq!(clients[0].call("CONFIG GET maxclients"), "maxclients 88");
    assert_eq!(clients[0].call("CONFIG SET maxclients 50"), "+OK");
    running.signal("TERM");
    let (_, log, _) = running.ended();
    for line in [
        "You requested maxclients of 4294967295 requiring at least 4294967327 max file descriptors.",
        "Server can't set maximum open files to 4294967327 because of OS error: Operation not permitted.",
        "Current maximum open files is 120. maxclients has been reduced to 88 to compensate for low ulimit. If you need higher maxclients increase 'ulimit -n'.",
    ] {
        assert!(log.contains(&format!(" # {line}\n")), "{log}");
    }
}

#[test]
fn a_limit_that_leaves_nothing_for_clients_ends_the_start() {
    let folder = folder_with("maxclients 4294967295\n");
    let mut child = with_files(32)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = until("it ends", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(
        said,
        "redline server: Your current 'ulimit -n' of 32 is not enough for the server to start. Please increase your open file limit to at least 4294967327. Exiting.\n"
    );
}

#[test]
fn who_connects_without_end_kept_clients_waiting() {
    // More than one turn accepts, and fewer than may wait to be accepted.
    const BURST: usize = 250;
    let running = Running::start(folder_with(""), &["r.conf"], None);
    let mut other = running.connect();
    assert_eq!(other.call("PING"), "+PONG");
    // Stopped, it finds them all together when it goes on, and a request of a client that it has.
    running.signal("STOP");
    until("every thread has stopped", || {
        let threads = format!("/proc/{}/task", running.child.id());
        let mut threads = fs::read_dir(threads).unwrap().map(|thread| {
            let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            fields.starts_with('T')
        });
        threads.all(|stopped| stopped).then_some(())
    });
    let mut burst: Vec<_> = (0..BURST).map(|_| running.connect()).collect();
    other.send("INFO clients");
    running.signal("CONT");
    let info = other.read();
    let connected = info
        .lines()
        .find_map(|line| line.strip_prefix("connected_clients:"));
    let connected: usize = connected.unwrap().parse().unwrap();
    assert!(connected < BURST, "{connected} were let in first");
    for client in &mut burst {
        assert_eq!(client.call("PING"), "+PONG");
    }
}
