//! `maxmemory-clients`: who is closed when all clients together take too much. Must not know the server's insides.

use std::io::Write;

use crate::client::{Client, Value, encode, settings, start, until};
use redline_server::Server;

const MIB: usize = 1024 * 1024;

/// A client with half a request in its query buffer.
fn hoard(server: &Server, bytes: usize, no_evict: bool) -> Client {
    let mut client = Client::connect(server);
    if no_evict {
        client.call("CLIENT NO-EVICT on").ok();
    }
    client.write(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", 2 * bytes).as_bytes());
    // It may be closed before all has gone.
    let _ = client.stream.write_all(&vec![b'x'; bytes]);
    client
}

fn info(client: &mut Client, name: &str) -> u64 {
    let Value::Bulk(text) = client.call("INFO everything") else {
        panic!("INFO is text")
    };
    let text = String::from_utf8(text).unwrap();
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap().parse().unwrap()
}

#[test]
fn the_largest_client_goes_unless_it_is_not_to() {
    let server = start(settings(2));
    let mut admin = Client::connect(&server);
    admin.call("CONFIG SET maxmemory-clients 20mb").ok();
    admin.call("CLIENT NO-EVICT on").ok();
    let kept = hoard(&server, 4 * MIB, true);
    until("the first has arrived", || {
        info(&mut admin, "mem_clients_normal") > 4 * MIB as u64
    });
    let mut largest = hoard(&server, 30 * MIB, false);
    assert_eq!(largest.drain(), 0, "closed without a word");
    until("it is counted", || info(&mut admin, "evicted_clients") == 1);
    // Lowered, the limit holds at once; who is not to be evicted stays whatever it is.
    let mut small = hoard(&server, MIB, false);
    until("the other has arrived", || {
        info(&mut admin, "mem_clients_normal") > 5 * MIB as u64
    });
    admin.call("CONFIG SET maxmemory-clients 1mb").ok();
    assert_eq!(small.drain(), 0);
    until("it is counted", || info(&mut admin, "evicted_clients") == 2);
    let mut kept = kept;
    kept.write(&vec![b'x'; 4 * MIB]);
    kept.write(b"\r\n");
    assert_eq!(kept.read(), Value::Bulk(vec![b'x'; 8 * MIB]));
}

#[test]
fn a_percentage_is_of_maxmemory() {
    let server = start(settings(2).with(|settings| settings.maxmemory_bytes = 100 * MIB as u64));
    let mut admin = Client::connect(&server);
    admin.call("CONFIG SET maxmemory-clients 2%").ok();
    assert_eq!(hoard(&server, 3 * MIB, false).drain(), 0);
    admin.call("CONFIG SET maxmemory-clients 10%").ok();
    let mut stays = hoard(&server, 3 * MIB, false);
    stays.write(&vec![b'x'; 3 * MIB]);
    stays.write(b"\r\n");
    assert_eq!(stays.read(), Value::Bulk(vec![b'x'; 6 * MIB]));
}

#[test]
fn what_had_arrived_of_a_large_argument_was_no_part_of_the_query_buffer() {
    let server = start(settings(2));
    let mut admin = Client::connect(&server);
    let mut client = Client::connect(&server);
    let id = client.call("CLIENT ID").integer();
    client.write(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", MIB).as_bytes());
    client.write(&vec![b'x'; MIB / 2]);
    until("it has arrived", || {
        field(&mut admin, id, "qbuf=") == MIB as u64 / 2
    });
}

/// Returns the memory that a client takes, as CLIENT LIST tells.
fn total(admin: &mut Client, id: i64) -> u64 {
    field(admin, id, "tot-mem=")
}

fn field(admin: &mut Client, id: i64, name: &str) -> u64 {
    let Value::Bulk(text) = admin.call(&format!("CLIENT LIST ID {id}")) else {
        panic!("CLIENT LIST is text")
    };
    let text = String::from_utf8(text).unwrap();
    let field = text.split(' ').find_map(|word| word.strip_prefix(name));
    field.unwrap().parse().unwrap()
}

#[test]
fn watches_subscriptions_and_prefixes_counted_for_nothing() {
    const NAMES: usize = 2_000;
    let server = start(settings(2));
    let mut admin = Client::connect(&server);
    let mut client = Client::connect(&server);
    let id = client.call("CLIENT ID").integer();
    client.call("HELLO 3");
    let before = total(&mut admin, id);
    let names = |word: &str| -> String {
        let names = (0..NAMES).map(|at| format!("{word}{at:020}"));
        names.collect::<Vec<_>>().join(" ")
    };
    let prefixes = format!("CLIENT TRACKING ON BCAST {}", names("PREFIX "));
    for (register, replies, leave) in [
        (format!("WATCH {}", names("")), 1, "UNWATCH"),
        (format!("SUBSCRIBE {}", names("")), NAMES, "UNSUBSCRIBE"),
        (format!("PSUBSCRIBE {}", names("")), NAMES, "PUNSUBSCRIBE"),
        (format!("SSUBSCRIBE {}", names("")), NAMES, "SUNSUBSCRIBE"),
        (prefixes, 1, "CLIENT TRACKING OFF"),
    ] {
        for (line, grown) in [(&register[..], true), (leave, false)] {
            client.send(line);
            (0..replies).for_each(|_| drop(client.read()));
            until(line, || {
                let now = total(&mut admin, id);
                (now > before + (NAMES * 20) as u64) == grown
            });
        }
    }
    // So a limit of all clients' memory holds for them, too.
    admin.call("CLIENT NO-EVICT on").ok();
    admin.call("CONFIG SET maxmemory-clients 100kb").ok();
    client.send(&format!("SUBSCRIBE {}", names("")));
    client.drain();
    assert_eq!(info(&mut admin, "evicted_clients"), 1);
}

#[test]
fn a_queued_command_counts_for_more_than_its_name() {
    const COMMANDS: u64 = 10_000;
    let server = start(settings(1));
    let (mut admin, mut client) = (Client::connect(&server), Client::connect(&server));
    let id = client.call("CLIENT ID").integer();
    client.call("MULTI").ok();
    for _ in 0..COMMANDS {
        client.send("PING");
    }
    (0..COMMANDS).for_each(|_| drop(client.read()));
    until("it is counted", || {
        field(&mut admin, id, "multi-mem=") > COMMANDS * 64
    });
    client.call("DISCARD").ok();
    until("it is counted no more", || {
        field(&mut admin, id, "multi-mem=") == 0
    });
}

#[test]
fn calls_that_wait_counted_for_nothing() {
    let server = start(settings(2));
    let (mut admin, mut client) = (Client::connect(&server), Client::connect(&server));
    admin.call("CLIENT NO-EVICT on").ok();
    let id = client.call("CLIENT ID").integer();
    let before = total(&mut admin, id);
    client.send("BLPOP a 0");
    until("it waits", || field(&mut admin, id, "argv-mem=") == 7);
    admin.call("RPUSH a x");
    client.read();
    until("it waits no more", || {
        field(&mut admin, id, "argv-mem=") == 0 && total(&mut admin, id) == before
    });
    let key = vec![b'k'; 2 * MIB];
    client.write(&encode(&[b"BLPOP", &key, b"0"]));
    until("it is counted", || {
        total(&mut admin, id) > before + 2 * MIB as u64
    });
    client.send("PING");
    admin.call("CONFIG SET maxmemory-clients 2mb").ok();
    assert_eq!(client.drain(), 0, "closed without a word");
    assert_eq!(info(&mut admin, "evicted_clients"), 1);
    // Nobody waits any more.
    admin.call_args(&[b"RPUSH", &key, b"x"]);
    assert_eq!(
        admin.call_args(&[b"LLEN", &key]).integer(),
        1,
        "nobody has taken it"
    );
}
