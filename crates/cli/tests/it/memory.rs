//! Memory that is returned to the system: resident memory after values, replies and requests of every size are removed.
//! Must not know the server's internals.

use std::fs;

use crate::running::{Client, Running, folder_with, until};

/// Bytes that are stored before they are removed.
const STORED_BYTES: usize = 40_000_000;
/// Sizes of a value: many keys, both sides of the limit of size classes, and large ones.
const SIZES: [usize; 5] = [1_000, 24_000, 64_000, 1_000_000, 4_000_000];

/// Bytes of values that one group of calls is about.
const GROUP_BYTES: usize = 100_000;

/// A server with one worker, and its resident memory after its first reply.
struct Measured {
    running: Running,
    idle_bytes: usize,
}

impl Measured {
    fn start(more: &str) -> Measured {
        let running = Running::start(folder_with(more), &["r.conf"], None);
        assert_eq!(running.call("PING"), "+PONG");
        let idle_bytes = resident_bytes(&running);
        Measured {
            running,
            idle_bytes,
        }
    }

    /// Returns the largest resident memory after everything is removed: a quarter above the idle process, and remains of
    /// threads and tables.
    fn bound_bytes(&self) -> usize {
        self.idle_bytes / 4 * 5 + (2 << 20)
    }

    /// Waits until resident memory is back at the idle process's.
    #[track_caller]
    fn comes_back(&self, after: &str) {
        let bound = self.bound_bytes();
        until(
            &format!("resident memory is below {bound} bytes after {after}"),
            || (resident_bytes(&self.running) <= bound).then_some(()),
        );
    }
}

fn resident_bytes(running: &Running) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", running.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kilobytes.trim().parse::<usize>().unwrap() << 10
}

/// Sets this many keys to values of this many bytes.
fn fill(client: &mut Client, keys: usize, bytes: usize) {
    let value = "v".repeat(bytes);
    for_each(client, keys, bytes, "+OK", |key| {
        let name = format!("k{key}");
        let len = name.len();
        format!("*3\r\n$3\r\nSET\r\n${len}\r\n{name}\r\n${bytes}\r\n{value}\r\n")
    });
}

/// Calls the server for each of so many keys, each of which has about so many bytes, and expects the same reply each time.
/// Small ones go in groups, so that the time of this is that of the server.
fn for_each(
    client: &mut Client,
    keys: usize,
    bytes: usize,
    expected: &str,
    request: impl Fn(usize) -> String,
) {
    let group = (GROUP_BYTES / bytes).max(1);
    for first in (0..keys).step_by(group) {
        let group = first..keys.min(first + group);
        let requests: String = group.clone().map(&request).collect();
        client.send_bytes(requests.as_bytes());
        for _ in group {
            assert_eq!(client.read(), expected);
        }
    }
}

fn set(client: &mut Client, key: usize, value: &str, options: &[&str]) -> String {
    let key = format!("k{key}");
    let words = [&["SET", key.as_str(), value], options].concat();
    client.call_words(&words)
}

/// Fills with values of each size in turn, and removes them.
fn each_size_goes(more: &str, remove: impl Fn(&mut Client, usize, usize)) {
    let measured = Measured::start(more);
    let mut client = measured.running.connect();
    for bytes in SIZES {
        let keys = STORED_BYTES / bytes;
        fill(&mut client, keys, bytes);
        assert!(resident_bytes(&measured.running) > STORED_BYTES);
        remove(&mut client, keys, bytes);
        measured.comes_back(&format!("{keys} values of {bytes} bytes"));
    }
}

fn remove_one_by_one(command: &str) -> impl Fn(&mut Client, usize, usize) {
    move |client, keys, bytes| {
        for_each(client, keys, bytes, ":1", |key| {
            format!("{command} k{key}\r\n")
        });
    }
}

#[test]
fn what_was_flushed_stayed_resident() {
    for flush in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB SYNC"] {
        each_size_goes("", |client, _, _| assert_eq!(client.call(flush), "+OK"));
    }
}

#[test]
fn what_was_deleted_stayed_resident() {
    each_size_goes("", remove_one_by_one("DEL"));
    each_size_goes("threads 2\n", remove_one_by_one("UNLINK"));
}

#[test]
fn what_expired_stayed_resident() {
    each_size_goes("", |client, keys, bytes| {
        for_each(client, keys, bytes, ":1", |key| {
            format!("PEXPIRE k{key} 1\r\n")
        });
    });
}

#[test]
fn a_purge_gave_nothing_back() {
    let measured = Measured::start("");
    let mut client = measured.running.connect();
    fill(&mut client, STORED_BYTES / 1_000_000, 1_000_000);
    assert_eq!(client.call("FLUSHALL SYNC"), "+OK");
    assert_eq!(client.call("MEMORY PURGE"), "+OK");
    measured.comes_back("MEMORY PURGE");
}

#[test]
fn peaks_of_values_of_different_sizes_added_up() {
    let measured = Measured::start("");
    let mut client = measured.running.connect();
    for bytes in [64_000, 1_000_000, 24_000, 4_000_000, 200_000, 20_000] {
        fill(&mut client, STORED_BYTES / bytes, bytes);
        // The free memory of the size before must not stay for longer than that.
        let bound = measured.idle_bytes + STORED_BYTES / 5 * 6;
        until(
            &format!("resident memory is below {bound} bytes with values of {bytes}"),
            || (resident_bytes(&measured.running) <= bound).then_some(()),
        );
        assert_eq!(client.call("FLUSHALL"), "+OK");
    }
    measured.comes_back("the last size");
}

#[test]
fn buffers_of_requests_and_replies_stayed_resident() {
    let measured = Measured::start("");
    let value = "v".repeat(4_000_000);
    let mut clients: Vec<Client> = (0..20).map(|_| measured.running.connect()).collect();
    for client in &mut clients {
        assert_eq!(set(client, 0, &value, &[]), "+OK");
        assert_eq!(client.call("GET k0").len(), value.len());
    }
    assert_eq!(clients[0].call("DEL k0"), ":1");
    measured.comes_back("requests and replies of clients that stay");
    for client in &mut clients {
        // A request that ends in the middle.
        client.send_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4000000\r\n");
        client.send_bytes(&value.as_bytes()[1..]);
    }
    until("the requests are read", || {
        (resident_bytes(&measured.running) > STORED_BYTES / 2).then_some(())
    });
    drop(clients);
    measured.comes_back("requests of clients that have left");
}
