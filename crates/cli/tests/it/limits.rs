//! Clients and descriptors of a process: `maxclients` beside the limit of open files. Must not know the server's internals.

use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
};

use crate::running::{REDLINE, Running, folder_with, until};

/// Returns `redline server r.conf` in a shell that runs `ulimit` with these arguments first.
fn under(limit: &str) -> Command {
    let mut command = Command::new("sh");
    let line = format!("ulimit {limit} && exec \"$0\" server r.conf");
    command.args(["-c", &line, REDLINE]);
    command
}

/// Returns `redline server r.conf` in a shell that allows this many files.
fn with_files(limit: u32) -> Command {
    under(&format!("-n {limit}"))
}

/// Returns the text on standard error of a server that cannot start under such a limit.
fn refused_under(limit: &str, more: &str) -> String {
    let folder = folder_with(more);
    let mut child = under(limit)
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = until("it ends", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    let mut log = String::new();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_to_string(&mut log).unwrap();
    let (_, reason) = log.rsplit_once(" # ").expect("a reason in the log");
    reason.trim_end().to_owned()
}

#[test]
fn maxclients_is_lowered_to_the_limit_of_open_files_and_says_so() {
    // More than any process may have open, with any user.
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
    let said = refused_under("-n 32", "maxclients 4294967295\n");
    assert_eq!(
        said,
        "Your current 'ulimit -n' of 32 is not enough for the server to start. Please increase your open file limit to at least 4294967327. Exiting."
    );
}

#[test]
fn a_limit_on_addresses_that_is_too_low_ended_the_first_write_and_not_the_start() {
    assert_eq!(
        refused_under("-v 300000", ""),
        "Your current 'ulimit -v' of 300000 kB is not enough for the server to start. Please increase your limit on address space to at least 524288 kB. Exiting."
    );
}

#[test]
fn a_limit_on_addresses_of_little_more_than_a_gib_ended_the_start() {
    // The allocator of small blocks had reserved a GiB of them by then.
    for limit in [524_288, 1_200_000, 1_300_000, 1_500_000, 2_500_000_u64] {
        let running = Running::of(under(&format!("-v {limit}")), folder_with(""), None);
        assert_eq!(running.call("SET k v"), "+OK", "{limit}");
        let maxmemory = running.call("CONFIG GET maxmemory");
        let bytes: u64 = maxmemory["maxmemory ".len()..].parse().unwrap();
        // Three quarters of a quarter, but for what is rounded.
        assert!(bytes > limit * 1024 / 6, "{limit}: {bytes}");
    }
}

#[test]
fn the_end_of_the_addresses_was_a_panic_and_not_an_oom_reply() {
    /// Bytes that one script writes, as values of one size.
    const STEP_BYTES: usize = 5_000_000;
    let script = "local value = string.rep('v', ARGV[1]) \
        for i = 1, ARGV[2] do \
            local reply = redis.pcall('SET', ARGV[3] .. ':' .. i, value) \
            if reply.err then return reply.err end \
        end \
        return 'written'";
    for bytes in [500, 5_000, 100_000, 1_000_000] {
        let running = Running::of(under("-v 600000"), folder_with(""), None);
        let possible = running.call("CONFIG GET maxmemory");
        let mut client = running.connect();
        for maxmemory in ["0", "1000gb"] {
            let set = client.call(&format!("CONFIG SET maxmemory {maxmemory}"));
            assert_eq!(set, "+OK");
            assert_eq!(client.call("CONFIG GET maxmemory"), possible);
        }
        let count = STEP_BYTES / bytes;
        // 500 MB would be written, more than the process can have.
        let said = (0..100)
            .map(|step| client.call(&format!("EVAL \"{script}\" 0 {bytes} {count} {step}")))
            .find(|said| said != "written");
        let said = said.unwrap_or_default();
        assert!(said.contains("OOM command not allowed"), "{bytes}: {said}");
        assert_eq!(client.call("FLUSHALL"), "+OK");
        until("there is room again", || {
            (client.call("SET k v") == "+OK").then_some(())
        });
        running.signal("TERM");
        let (status, log, _) = running.ended();
        assert!(status.success(), "{bytes}: {log}");
        let possible = possible.strip_prefix("maxmemory ").unwrap();
        let warning = format!("maxmemory has been set to {possible} bytes");
        assert!(log.contains(&warning), "{log}");
    }
}

#[test]
fn who_connects_without_end_kept_clients_waiting() {
    // More than one turn accepts, and fewer than may wait to be accepted.
    const BURST: usize = 250;
    let running = Running::start(folder_with(""), &["r.conf"], None);
    let mut other = running.connect();
    assert_eq!(other.call("PING"), "+PONG");
    // Stopped, it finds them all together when it goes on, and a request of a present client.
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
