//! WAITAOF: clients wait until the append-only file has on disk what they have written.

use crate::append::{APPENDING, set, start};
use crate::running::{Running, folder_with, until};

const NO_FILE: &str =
    "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

/// Waits until a client in this state is blocked.
fn until_blocked(running: &Running, name: &str) {
    let name = format!(" name={name} ");
    until("it waits", || {
        let list = running.call("CLIENT LIST");
        let mut of_name = list.lines().filter(|line| line.contains(&name));
        of_name.any(|line| line.contains(" flags=b")).then_some(())
    });
}

#[test]
fn waitaof_waits_for_the_sync_of_the_clients_own_writes() {
    let running = start(folder_with(APPENDING));
    let mut client = running.connect();
    assert_eq!(
        client.call("WAITAOF 1 0 0"),
        ":1 :0",
        "it has written nothing"
    );
    assert_eq!(client.call("INCR a"), ":1");
    assert_eq!(client.call("WAITAOF 1 0 0"), ":1 :0");
    set(&running, "appendfsync", "always");
    client.send("INCR a\r\nWAITAOF 1 0 0\r\nWAITAOF 0 0 0");
    let replies = [client.read(), client.read(), client.read()];
    assert_eq!(replies, [":2", ":1 :0", ":1 :0"]);
    // Nobody syncs.
    set(&running, "appendfsync", "no");
    assert_eq!(client.call("INCR a"), ":3");
    assert_eq!(client.call("WAITAOF 1 0 50"), ":0 :0");
    assert_eq!(client.call("WAITAOF 0 0 0"), ":0 :0");
    assert_eq!(
        running.call("WAITAOF 1 0 0"),
        ":1 :0",
        "who has written nothing"
    );
    client.call("CLIENT SETNAME waits");
    client.send("WAITAOF 1 0 0\r\nPING");
    until_blocked(&running, "waits");
    set(&running, "appendfsync", "everysec");
    assert_eq!(client.read(), ":1 :0");
    assert_eq!(client.read(), "+PONG");
    // A rewrite syncs what was there before.
    set(&running, "appendfsync", "no");
    client.send("INCR a\r\nWAITAOF 1 0 0");
    assert_eq!(client.read(), ":4");
    until_blocked(&running, "waits");
    running.call("BGREWRITEAOF");
    assert_eq!(client.read(), ":1 :0");
    // Replicas are waited for after the file.
    set(&running, "appendfsync", "everysec");
    client.send("INCR a\r\nWAITAOF 1 1 1500");
    assert_eq!(client.read(), ":5");
    assert_eq!(client.read(), ":1 :0");
}

#[test]
fn waitaof_does_not_wait_in_transactions_and_scripts() {
    let running = start(folder_with(&format!("{APPENDING}appendfsync no\n")));
    let mut client = running.connect();
    assert_eq!(client.call("INCR a"), ":1");
    for line in ["MULTI", "INCR a", "WAITAOF 1 0 0"] {
        client.call(line);
    }
    assert_eq!(client.call("EXEC"), ":2 :0 :0");
    let script = "return redis.call('waitaof', 1, 0, 0)";
    assert_eq!(client.call_words(&["EVAL", script, "0"]), ":0 :0");
}

#[test]
fn who_waits_for_a_file_that_is_turned_off_is_told() {
    let running = start(folder_with(&format!("{APPENDING}appendfsync no\n")));
    let mut client = running.connect();
    client.call("CLIENT SETNAME waits");
    client.send("INCR a\r\nWAITAOF 1 0 0");
    assert_eq!(client.read(), ":1");
    until_blocked(&running, "waits");
    set(&running, "appendonly", "no");
    assert_eq!(client.read(), NO_FILE);
    assert_eq!(client.call("WAITAOF 1 0 0"), NO_FILE);
    assert_eq!(client.call("WAITAOF 0 0 0"), ":0 :0");
    // Once it is on again, what has been written before counts when the base is there.
    set(&running, "appendonly", "yes");
    assert_eq!(client.call("WAITAOF 1 0 0"), ":1 :0");
    assert_eq!(client.call("INCR a"), ":2");
    // A client that has gone, or is ended, leaves nothing behind.
    client.send("WAITAOF 1 0 0");
    until_blocked(&running, "waits");
    drop(client);
    until("it has gone", || {
        (!running.call("CLIENT LIST").contains("name=waits")).then_some(())
    });
    set(&running, "appendfsync", "everysec");
    assert_eq!(running.call("WAITAOF 1 0 0"), ":1 :0");
}
