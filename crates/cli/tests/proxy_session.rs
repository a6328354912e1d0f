//! `redline proxy` as a process: what a connection remembers, answered as a server answers it.

mod proxying;

use std::path::Path;

use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use proxying::{Behind, REDLINE, call, ok};

/// What the proxy, and then a server by itself, answer to the same pipeline.
fn both(lines: &[&str], proto: u8) -> [Vec<Value>; 2] {
    let behind = Behind::new(1, 1);
    let alone = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let direct = Client::connect(alone.address()).unwrap();
    [behind.client(), direct].map(|mut client| {
        call(&mut client, &format!("HELLO {proto}"));
        let mut requests = Vec::new();
        for line in lines {
            encode(&line.split(' ').collect::<Vec<_>>(), &mut requests);
        }
        encode(&["PING", "end"], &mut requests);
        client.send(&requests).unwrap();
        let mut replies = Vec::new();
        loop {
            let reply = client.reply().unwrap().expect("a reply");
            let text = format!("{reply:?}");
            replies.push(reply);
            if text.contains(&format!("{:?}", b"end".to_vec())) {
                return replies;
            }
        }
    })
}

#[test]
fn what_follows_subscribe_in_a_pipeline_knows_of_it() {
    for lines in [
        &["SUBSCRIBE a", "GET k", "PING x", "UNSUBSCRIBE a", "GET k"][..],
        &["PSUBSCRIBE a*", "ECHO x", "PUBLISH ab m", "PUNSUBSCRIBE"],
        &["SSUBSCRIBE s t", "MULTI", "EXEC", "SUNSUBSCRIBE s t"],
    ] {
        let [ours, theirs] = both(lines, 2);
        assert_eq!(ours, theirs, "{lines:?}");
    }
    let [ours, theirs] = both(&["SUBSCRIBE a", "PUBSUB NUMSUB a", "SUBSCRIBE a b"], 3);
    assert_eq!(ours, theirs);
}

#[test]
fn an_exec_that_is_refused_ends_its_transaction() {
    for lines in [
        &["MULTI", "SET k 1", "EXEC x", "EXEC", "GET k", "SET k 2"][..],
        &["MULTI", "EXEC x", "DISCARD"],
        &["EXEC x", "WATCH k", "EXEC x", "SELECT 1", "SELECT 0"],
        &[
            "WATCH k", "MULTI", "INCR k", "EXEC x", "SELECT 1", "SELECT 0",
        ],
        &["SUBSCRIBE a", "EXEC", "UNSUBSCRIBE a"],
    ] {
        let [ours, theirs] = both(lines, 2);
        assert_eq!(ours, theirs, "{lines:?}");
    }
}

#[test]
fn replies_are_skipped_one_at_a_time() {
    for lines in [
        &["CLIENT REPLY SKIP", "CLIENT REPLY", "SET k 1", "GET k"][..],
        &["CLIENT REPLY SKIP", "CLIENT REPLY MAYBE", "GET k"],
        &["CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "GET k", "GET k"],
        &["CLIENT REPLY SKIP", "CLIENT REPLY ON", "GET k"],
        &[
            "CLIENT REPLY OFF",
            "CLIENT REPLY SKIP",
            "GET k",
            "CLIENT REPLY ON",
            "GET k",
        ],
        &["PING a b", "CLIENT SETINFO Lib-Name a\u{1}b"],
    ] {
        let [ours, theirs] = both(lines, 2);
        assert_eq!(ours, theirs, "{lines:?}");
    }
}

#[test]
fn behind_watch_a_call_without_keys_may_name_what_blocks() {
    let behind = Behind::new(1, 1);
    let mut client = behind.client();
    assert_eq!(call(&mut client, "WATCH k"), ok());
    let reply = call(&mut client, "XREADGROUP x g c BLOCK 1 STREAMS a b c");
    assert!(
        matches!(&reply, Value::Error(text) if text.starts_with(b"ERR syntax")),
        "{reply:?}"
    );
    assert_eq!(call(&mut client, "UNWATCH"), ok());
}

#[test]
fn behind_watch_nothing_overtakes_what_was_asked_before() {
    let mut lines = vec!["RPUSH l 0".to_owned(), "WATCH k".to_owned()];
    for number in 1..200 {
        // In turn of the watched server's connection, and of all servers.
        lines.push(format!("RPUSH l {number}"));
        lines.push(format!("EVAL return(redis.call('LLEN','l')) 0 {number}"));
        lines.push("DBSIZE".to_owned());
        lines.push("LLEN l".to_owned());
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let [ours, theirs] = both(&lines, 2);
    assert_eq!(ours, theirs);
}
