//! SHUTDOWN while replicas lack something: who waits for whom, and what can be said meanwhile. Signals, files and the log are
//! in `crates/cli/tests/it/server.rs`. Must not know the server's insides.

use redline_server::Server;

use crate::client::{Client, Value, until};
use crate::config_live::{field, set, text};
use crate::replication::{Replica, call, server};

const NOT_ENDED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

/// A server that replicas are played for, one of which lacks a write.
fn lagging() -> (Server, Replica) {
    let server = server();
    let (mut replica, _) = Replica::follow(&server);
    let mut client = Client::connect(&server);
    until("it is online", || {
        field(&mut client, "replication", "slave0").contains("state=online")
    });
    call(&mut client, "SET a 1", "OK");
    replica.expects(&["SELECT 0", "SET a 1"]);
    (server, replica)
}

/// Returns the time that replicas still have, as INFO tells it: milliseconds.
fn left_ms(client: &mut Client) -> Option<u64> {
    let info = text(&client.call("INFO server"));
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix("shutdown_in_milliseconds:"));
    value.map(|value| value.parse().unwrap())
}

/// Has a client ask for the end, which replicas are waited for.
fn asked(server: &Server, line: &str) -> Client {
    let mut asks = Client::connect(server);
    asks.send(line);
    let mut client = Client::connect(server);
    until("replicas are waited for", || left_ms(&mut client).is_some());
    asks
}

fn blocked(client: &mut Client) -> u64 {
    let blocked = field(client, "clients", "blocked_clients");
    blocked.parse().unwrap()
}

/// Waits until a server has ended that these clients asked to end.
#[track_caller]
fn ends<const N: usize>(server: Server, clients: [Client; N]) {
    for mut client in clients {
        assert_eq!(client.drain(), 0, "there is no reply");
    }
    server.join();
}

#[test]
fn a_server_does_not_end_before_its_replicas_have_everything() {
    let (server, mut replica) = lagging();
    set(&mut Client::connect(&server), "shutdown-timeout", "3600");
    let asks = asked(&server, "SHUTDOWN");
    let mut client = Client::connect(&server);
    assert!(left_ms(&mut client).unwrap() > 3_000_000);
    // Who writes waits, who reads does not, and who asks for the same waits for the same.
    let mut writes = Client::connect(&server);
    writes.send("SET b 1");
    let mut also_asks = Client::connect(&server);
    also_asks.send("SHUTDOWN NOSAVE");
    until("they wait", || blocked(&mut client) == 3);
    until("they are counted, and the replica is not", || {
        field(&mut client, "clients", "connected_clients") == "4"
    });
    call(&mut client, "EXISTS b", "0");
    replica.expects(&["REPLCONF GETACK *"]);
    replica.ack();
    ends(server, [asks, also_asks, writes]);
    assert!(!replica.more(), "nothing was written behind its back");
}

#[test]
fn replicas_have_their_time_and_no_more() {
    let (server, _replica) = lagging();
    set(&mut Client::connect(&server), "shutdown-timeout", "1");
    let mut client = Client::connect(&server);
    let asks = asked(&server, "SHUTDOWN");
    assert!(left_ms(&mut client).is_none_or(|left_ms| left_ms <= 1000));
    ends(server, [asks]);
}

#[test]
fn who_says_now_does_not_wait() {
    for timeout in ["3600", "0"] {
        let (server, _replica) = lagging();
        let mut client = Client::connect(&server);
        set(&mut client, "shutdown-timeout", timeout);
        client.send(match timeout {
            "0" => "SHUTDOWN",
            _ => "SHUTDOWN NOW",
        });
        ends(server, [client]);
    }
    // Nor does who asked before.
    let (server, _replica) = lagging();
    set(&mut Client::connect(&server), "shutdown-timeout", "3600");
    let asks = asked(&server, "SHUTDOWN");
    let mut now = Client::connect(&server);
    now.send("SHUTDOWN NOW");
    ends(server, [asks, now]);
}

#[test]
fn a_shutdown_that_waits_for_replicas_can_be_called_off() {
    let (server, mut replica) = lagging();
    let mut client = Client::connect(&server);
    set(&mut client, "shutdown-timeout", "3600");
    for paused in [false, true] {
        if paused {
            call(&mut client, "CLIENT PAUSE 3600000 WRITE", "OK");
        }
        let mut asks = asked(&server, "SHUTDOWN");
        let mut also_asks = Client::connect(&server);
        also_asks.send("SHUTDOWN");
        let mut writes = Client::connect(&server);
        writes.send("INCR n");
        until("they wait", || blocked(&mut client) == 3);
        call(&mut client, "SHUTDOWN ABORT", "OK");
        assert_eq!(asks.read().error(), NOT_ENDED);
        assert_eq!(also_asks.read().error(), NOT_ENDED);
        let none = "ERR No shutdown in progress.";
        call(&mut client, "SHUTDOWN ABORT", none);
        assert_eq!(left_ms(&mut client), None);
        if paused {
            // The pause was another's, and lasts.
            call(&mut client, "EXISTS n", "0");
            assert_eq!(blocked(&mut client), 1);
            call(&mut client, "CLIENT UNPAUSE", "OK");
        }
        assert_eq!(writes.read(), Value::Integer(1));
        replica.expects(&["REPLCONF GETACK *", "INCR n"]);
        call(&mut client, "DEL n", "1");
        replica.expects(&["DEL n"]);
    }
    client.send("SHUTDOWN NOW");
    ends(server, [client]);
}
