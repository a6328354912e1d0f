//! Memory of the process's arenas, which all servers of a process share. Must not know the server's insides.

use crate::alone;
use crate::client::{Client, Value, settings, start, until};

/// Returns the bytes of objects in the arenas.
fn allocated(client: &mut Client) -> i64 {
    let stats = client.call("MEMORY STATS");
    let name = Value::Bulk(b"allocator.allocated".to_vec());
    let mut pairs = stats.array().chunks(2);
    let found = pairs.find(|pair| pair[0] == name);
    found.expect("MEMORY STATS has it")[1].integer()
}

#[test]
fn a_purge_gives_back_what_workers_keep_for_later() {
    let _alone = alone();
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    for number in 0..3000 {
        client.call(&format!("SET key:{number} {}", "x".repeat(100)));
    }
    client.call("FLUSHALL");
    for number in 0..500 {
        client.call(&format!("SET key:{number} {}", "x".repeat(100)));
    }
    for number in 0..500 {
        client.call(&format!("DEL key:{number}"));
    }
    let kept = allocated(&mut client);
    client.call("MEMORY PURGE").ok();
    until("it is given back", || allocated(&mut client) < kept);
}
