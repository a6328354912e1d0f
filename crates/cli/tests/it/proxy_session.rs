//! `redline proxy` as a process: connection state, with the replies of a server.

use std::path::Path;
use std::sync::{Arc, Mutex};

use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use crate::proxying::{
    Behind, REDLINE, assert_error, bulk, call, ok, proxy_of, scripted, scripted_over, signal, until,
};

/// Returns the replies of the proxy, and then of a server itself, to the same pipeline.
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
        &["CLIENT REPLY OFF", "RESET", "GET k"],
        &["PING a b", "CLIENT SETINFO Lib-Name a\u{1}b"],
    ] {
        let [ours, theirs] = both(lines, 2);
        assert_eq!(ours, theirs, "{lines:?}");
    }
}

#[test]
fn a_reset_whose_reply_is_skipped_has_none() {
    for answers in both(&["CLIENT REPLY SKIP", "RESET", "GET k"], 2) {
        assert_eq!(answers[0], Value::NullBulk, "{answers:?}");
    }
}

#[test]
fn numbers_of_databases_are_read_as_redis_reads_them() {
    let behind = Behind::new(1, 1);
    let mut client = behind.client();
    for (number, answer) in [
        ("99999999999999999999", "ERR value is not an integer"),
        (
            "9223372036854775807",
            "ERR value is out of range, value must between",
        ),
        (
            "2147483648",
            "ERR value is out of range, value must between",
        ),
        (
            "-2147483649",
            "ERR value is out of range, value must between",
        ),
        ("2147483647", "ERR DB index is out of range"),
        ("-1", "ERR DB index is out of range"),
        ("+1", "ERR value is not an integer"),
        ("01", "ERR value is not an integer"),
        ("-0", "ERR value is not an integer"),
    ] {
        let reply = call(&mut client, &format!("SELECT {number}"));
        assert_error(&reply, answer);
    }
}

#[test]
fn behind_watch_the_database_that_is_selected_may_be_selected() {
    let behind = Behind::new(1, 1);
    let mut client = behind.client();
    assert_eq!(call(&mut client, "SELECT 2"), ok());
    assert_eq!(call(&mut client, "WATCH k"), ok());
    assert_eq!(call(&mut client, "SELECT 2"), ok());
    assert_error(&call(&mut client, "SELECT 0"), "ERR between WATCH and EXEC");
    let mut other = behind.client();
    assert_eq!(call(&mut other, "SELECT 2"), ok());
    assert_eq!(call(&mut other, "SET k 1"), ok());
    assert_eq!(call(&mut client, "MULTI"), ok());
    assert!(!call(&mut client, "GET k").is_error());
    assert_eq!(call(&mut client, "EXEC"), Value::NullArray);
}

#[test]
fn between_multi_and_exec_nobody_falls_silent() {
    let behind = Behind::new(1, 1);
    for word in ["OFF", "SKIP", "ON"] {
        let mut client = behind.client();
        assert_eq!(call(&mut client, "MULTI"), ok());
        let refused = call(&mut client, &format!("CLIENT REPLY {word}"));
        assert_error(&refused, "ERR 'client reply' is not available inside MULTI");
        assert!(!call(&mut client, "SET k 1").is_error());
        assert_error(&call(&mut client, "EXEC"), "EXECABORT");
        assert_eq!(call(&mut client, "GET k"), Value::NullBulk);
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
        // Alternating between the watched server's connection, and all servers.
        lines.push(format!("RPUSH l {number}"));
        lines.push(format!("EVAL return(redis.call('LLEN','l')) 0 {number}"));
        lines.push("DBSIZE".to_owned());
        lines.push("LLEN l".to_owned());
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let [ours, theirs] = both(&lines, 2);
    assert_eq!(ours, theirs);
}

#[test]
fn what_is_published_before_somebody_leaves_is_heard() {
    let behind = Behind::new(1, 1);
    let mut direct = Client::connect(behind.servers[0].address()).unwrap();
    for (joins, leaves, word) in [
        ("SUBSCRIBE news", "UNSUBSCRIBE news", "message"),
        ("PSUBSCRIBE n*", "PUNSUBSCRIBE", "pmessage"),
    ] {
        let mut subscriber = behind.client();
        call(&mut subscriber, joins);
        // Both are there at the proxy's next turn: the server's message is older than the client's UNSUBSCRIBE.
        signal(&behind.proxy, "-STOP");
        assert_eq!(call(&mut direct, "PUBLISH news hello"), Value::Integer(1));
        let mut request = Vec::new();
        encode(&leaves.split(' ').collect::<Vec<_>>(), &mut request);
        subscriber.send(&request).unwrap();
        signal(&behind.proxy, "-CONT");
        for first in [word, &leaves.split(' ').next().unwrap().to_lowercase()] {
            let heard = subscriber.reply().unwrap().expect("a reply");
            let Value::Array(words) = &heard else {
                panic!("{heard:?}");
            };
            assert_eq!(words[0], bulk(first), "{heard:?}");
        }
    }
}

#[test]
fn what_client_libraries_ask_first_is_answered() {
    let behind = Behind::new(1, 2);
    let mut client = behind.client();
    assert_eq!(
        call(&mut client, "ROLE"),
        Value::Array(vec![
            bulk("master"),
            Value::Integer(0),
            Value::Array(Vec::new())
        ])
    );
    for line in ["MODULE LIST", "ACL CAT", "ACL CAT read", "ACL HELP"] {
        assert!(matches!(call(&mut client, line), Value::Array(_)), "{line}");
    }
    assert!(matches!(call(&mut client, "ACL GENPASS"), Value::Bulk(_)));
    assert_eq!(call(&mut client, "CLIENT TRACKING OFF"), ok());
    assert_eq!(call(&mut client, "CLIENT GETREDIR"), Value::Integer(-1));
    for line in [
        "CLIENT TRACKING ON",
        "LASTSAVE",
        "BGSAVE SCHEDULE",
        "ACL LIST",
    ] {
        let reply = call(&mut client, line);
        let text = String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned();
        assert!(
            reply.is_error() && text.contains("is not available through the proxy"),
            "{line}: {text}"
        );
    }
    call(&mut client, "HELLO 3");
    let Value::Map(info) = call(&mut client, "CLIENT TRACKINGINFO") else {
        panic!("no map");
    };
    assert_eq!(info[0], (bulk("flags"), Value::Set(vec![bulk("off")])));
    assert_eq!(info[1], (bulk("redirect"), Value::Integer(-1)));
}

#[test]
fn clients_are_listed_and_closed_by_what_they_are() {
    let behind = Behind::new(1, 2);
    let (mut client, mut subscriber) = (behind.client(), behind.client());
    let Value::Integer(id) = call(&mut subscriber, "CLIENT ID") else {
        panic!("no number");
    };
    call(&mut subscriber, "SUBSCRIBE a");
    call(&mut subscriber, "PSUBSCRIBE c");
    let mut list = |line: &str| {
        let reply = call(&mut client, line);
        String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned()
    };
    let line = list("CLIENT LIST TYPE pubsub");
    assert!(line.starts_with(&format!("id={id} ")), "{line}");
    for part in [
        " flags=P ",
        " sub=1 ",
        " psub=1 ",
        " ssub=0 ",
        " user=default ",
    ] {
        assert!(line.contains(part), "no{part}in {line}");
    }
    assert_eq!(line.lines().count(), 1, "{line}");
    assert_eq!(list("CLIENT LIST TYPE normal").lines().count(), 1);
    assert_eq!(list("CLIENT LIST TYPE replica"), "");
    for (line, error) in [
        ("CLIENT LIST TYPE x", "ERR Unknown client type 'x'"),
        ("CLIENT KILL TYPE x ID 1", "ERR Unknown client type 'x'"),
        ("CLIENT KILL USER x ID 1", "ERR No such user 'x'"),
        (
            "CLIENT KILL MAXAGE x ID 1",
            "ERR maxage is not an integer or out of range",
        ),
        (
            "CLIENT KILL MAXAGE 0 ID 1",
            "ERR maxage should be greater than 0",
        ),
    ] {
        assert_eq!(list(line), error, "{line}");
    }
    for (line, count) in [
        ("CLIENT KILL MAXAGE 100000 SKIPME no", 0),
        ("CLIENT KILL TYPE replica USER default", 0),
        ("CLIENT KILL TYPE pubsub USER default", 1),
    ] {
        assert_eq!(call(&mut client, line), Value::Integer(count), "{line}");
    }
    while let Some(reply) = subscriber.reply().unwrap() {
        assert!(matches!(reply, Value::Array(_)), "{reply:?}");
    }
    assert_eq!(call(&mut client, "PING"), Value::Simple(b"PONG".to_vec()));
}

const NO_MULTI: &str = "NOPERM User app has no permissions to run the 'multi' command";

/// Returns a proxy in front of a server that refuses MULTI and later calls, and that server's calls.
fn without_multi() -> (ServerProcess, Arc<Mutex<Vec<String>>>) {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&told);
    let server = scripted(move |words| {
        let name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
        let reply = match name.as_str() {
            "MULTI" => format!("-{NO_MULTI}\r\n"),
            "EXEC" | "DISCARD" => format!("-ERR {name} without MULTI\r\n"),
            "WATCH" => "+OK\r\n".to_owned(),
            _ => "+DONE\r\n".to_owned(),
        };
        seen.lock().unwrap().push(name);
        reply.into_bytes()
    });
    (proxy_of(&[server]), told)
}

#[test]
fn where_multi_is_refused_nothing_that_follows_it_is_made() {
    let (proxy, told) = without_multi();
    let refused = |value: &Value| assert_error(value, NO_MULTI);
    let aborted = |value: &Value| assert_error(value, "EXECABORT");
    for lines in [
        &["MULTI", "SET k v", "INCR n", "PING", "EXEC"][..],
        &["WATCH k", "MULTI", "SET k v", "INCR n", "EXEC"],
        &["WATCH k", "MULTI", "EXEC"],
        &["MULTI", "PING", "LOLWUT", "EXEC"],
        &["MULTI", "SET k v", "DISCARD"],
        &["WATCH k", "MULTI", "DISCARD"],
    ] {
        for is_inline in [false, true] {
            let mut client = Client::connect(proxy.address()).unwrap();
            let mut requests = Vec::new();
            for line in lines.iter().chain(&["GET k"]) {
                match is_inline {
                    true => requests.extend_from_slice(format!("{line}\r\n").as_bytes()),
                    false => encode(&line.split(' ').collect::<Vec<_>>(), &mut requests),
                }
            }
            client.send(&requests).unwrap();
            for line in lines.iter().copied() {
                let reply = client.reply().unwrap().unwrap();
                match line {
                    "WATCH k" | "MULTI" | "DISCARD" => assert_eq!(reply, ok(), "{lines:?}"),
                    "PING" | "LOLWUT" => assert_eq!(reply, Value::Simple(b"QUEUED".to_vec())),
                    "EXEC" => aborted(&reply),
                    _ => refused(&reply),
                }
            }
            let after = client.reply().unwrap().unwrap();
            assert_eq!(after, Value::Simple(b"DONE".to_vec()), "{lines:?}");
        }
    }
    let told = told.lock().unwrap();
    let made = ["SET", "INCR", "LOLWUT"];
    assert!(
        !told.iter().any(|name| made.contains(&name.as_str())),
        "{told:?}"
    );
    assert!(told.contains(&"MULTI".to_owned()));
}

#[test]
fn a_transaction_that_waits_for_its_server_ends_when_that_is_lost() {
    let server = scripted_over(|words, stream| match words[0].as_slice() {
        // One that gets MULTI closes, and others are not affected.
        b"MULTI" => {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            None
        }
        _ => Some(b"+DONE\r\n".to_vec()),
    });
    let proxy = proxy_of(&[server]);
    let mut client = Client::connect(proxy.address()).unwrap();
    for lines in [
        &["MULTI", "SET k v", "EXEC"][..],
        &["WATCH k", "MULTI", "EXEC"],
        &["MULTI", "PING", "EXEC"],
    ] {
        let replies: Vec<Value> = lines.iter().map(|line| call(&mut client, line)).collect();
        assert_error(&replies[2], "EXECABORT");
        assert!(
            replies[1].is_error() == (lines[1] == "SET k v"),
            "{replies:?}"
        );
    }
    let done = Value::Simple(b"DONE".to_vec());
    until("the server is asked again", || {
        call(&mut client, "GET k") == done
    });
}
