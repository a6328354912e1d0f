//! Publish and subscribe: what a client hears of itself, shard channels, and more messages than can be handed out. Must not know the server's insides.

use std::{
    io::Write,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::client::{Client, Value, encode, request, settings, start};
use redline_server::{OutputLimit, Permission};

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

fn push(words: &[&str]) -> Value {
    Value::Push(words.iter().map(|word| bulk(word)).collect())
}

/// Sends several calls at once and reads so many replies and messages.
fn pipeline(client: &mut Client, lines: &[&str], replies: usize) -> Vec<Value> {
    let bytes: Vec<u8> = lines.iter().flat_map(|line| request(line)).collect();
    client.write(&bytes);
    (0..replies).map(|_| client.read()).collect()
}

#[test]
fn what_a_client_publishes_to_itself_comes_behind_the_reply_of_publish_and_not_of_its_pipeline() {
    let server = start(settings(2));
    let mut own = Client::connect(&server);
    own.call("HELLO 3");
    own.call("SUBSCRIBE c");
    own.call("PSUBSCRIBE c*");
    let calls = [
        "PUBLISH c 1",
        "PING",
        "CLIENT REPLY SKIP",
        "PUBLISH c 2",
        "PING",
    ];
    let replies = pipeline(&mut own, &calls, 7);
    let pong = Value::Simple("PONG".into());
    assert_eq!(replies[0], Value::Integer(2));
    assert_eq!(replies[1], push(&["message", "c", "1"]));
    assert_eq!(replies[2], push(&["pmessage", "c*", "c", "1"]));
    assert_eq!(replies[3], pong);
    assert_eq!(
        replies[4],
        push(&["message", "c", "2"]),
        "though its reply is not sent"
    );
    assert_eq!(replies[6], pong);
    let replies = pipeline(&mut own, &["MULTI", "PUBLISH c 3", "PING", "EXEC"], 6);
    assert_eq!(replies[3].array().len(), 2);
    assert_eq!(replies[4], push(&["message", "c", "3"]));
    let mut keys = Client::connect(&server);
    keys.call("CONFIG SET notify-keyspace-events KA").ok();
    own.call("SUBSCRIBE __keyspace@0__:k");
    let replies = pipeline(&mut own, &["SET k 1", "PING"], 3);
    assert_eq!(replies[1], push(&["message", "__keyspace@0__:k", "set"]));
    assert_eq!(replies[2], pong);
}

/// Two publishers, one of whom listens, too: both listeners see one order.
#[test]
fn who_publishes_sees_the_order_that_others_see() {
    const MESSAGES: usize = 2000;
    let server = start(settings(3));
    let mut listeners: Vec<Client> = (0..3).map(|_| Client::connect(&server)).collect();
    for client in &mut listeners {
        client.call("HELLO 3");
        client.call("SUBSCRIBE c");
    }
    let heard: Vec<Vec<Value>> = std::thread::scope(|scope| {
        let threads: Vec<_> = listeners
            .into_iter()
            .enumerate()
            .map(|(number, mut client)| {
                scope.spawn(move || {
                    let mut heard = Vec::new();
                    for n in 0..MESSAGES {
                        client.send(&format!("PUBLISH c {number}:{n}"));
                        while let message @ Value::Push(_) = client.read() {
                            heard.push(message);
                        }
                    }
                    while heard.len() < 3 * MESSAGES {
                        heard.push(client.read());
                    }
                    heard
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(heard[0], heard[1]);
    assert_eq!(heard[0], heard[2]);
}

#[test]
fn shard_channels_are_apart_from_the_others() {
    let server = start(settings(2));
    let (mut hears, mut other) = (Client::connect(&server), Client::connect(&server));
    assert_eq!(
        pipeline(&mut hears, &["SSUBSCRIBE a b"], 2)[1].array()[2],
        Value::Integer(2)
    );
    assert_eq!(
        hears.call("SUBSCRIBE a").array()[2],
        Value::Integer(1),
        "counted apart"
    );
    assert_eq!(other.call("SPUBLISH a 1"), Value::Integer(1));
    assert_eq!(
        hears.read(),
        Value::Array(vec![bulk("smessage"), bulk("a"), bulk("1")])
    );
    assert_eq!(other.call("PUBLISH a 2"), Value::Integer(1));
    assert_eq!(
        hears.read(),
        Value::Array(vec![bulk("message"), bulk("a"), bulk("2")])
    );
    assert!(hears.call("GET k").error().contains("only (P|S)SUBSCRIBE"));
    assert_eq!(
        other.call("PUBSUB SHARDCHANNELS a*"),
        Value::Array(vec![bulk("a")])
    );
    let counts = other.call("PUBSUB SHARDNUMSUB b zz");
    assert_eq!(
        *counts.array(),
        [bulk("b"), Value::Integer(1), bulk("zz"), Value::Integer(0)]
    );
    hears.call("UNSUBSCRIBE");
    let left = pipeline(&mut hears, &["SUNSUBSCRIBE"], 2);
    assert_eq!(left[1].array()[2], Value::Integer(0));
    other.call("MULTI").ok();
    other.call("SSUBSCRIBE a");
    let refused = other.call("EXEC");
    assert!(refused.array()[0].error().contains("DENY BLOCKING"));
}

/// The number of a client's worker.
fn worker_of(client: &mut Client) -> u32 {
    let Value::Bulk(text) = client.call("CLIENT INFO") else {
        panic!("CLIENT INFO is text")
    };
    let text = String::from_utf8(text).unwrap();
    let field = text
        .split(' ')
        .find_map(|word| word.strip_prefix("io-thread="));
    field.unwrap().parse().unwrap()
}

#[test]
fn messages_piled_up_without_bound_while_their_worker_was_busy() {
    const MESSAGES: usize = 128;
    const MIB: usize = 1024 * 1024;
    let mut settings = settings(2);
    settings.enable_debug_command = Permission::Yes;
    // It may read more slowly than it is published to.
    settings.output_limits[2] = OutputLimit {
        hard_bytes: 0,
        soft_bytes: 0,
        soft_seconds: 0,
    };
    let server = start(settings);
    // A connection goes to the worker with the fewest.
    let mut clients: Vec<(u32, Client)> = (0..4)
        .map(|_| Client::connect(&server))
        .map(|mut client| (worker_of(&mut client), client))
        .collect();
    clients.sort_by_key(|(worker, _)| *worker);
    let [
        (here, mut publisher),
        _,
        (there, mut subscriber),
        (beside, mut busy),
    ] = clients.try_into().ok().expect("four");
    assert!(here != there && there == beside);
    subscriber.call("SUBSCRIBE c");
    busy.send("DEBUG SLEEP 2");
    let published = AtomicUsize::new(0);
    thread::scope(|scope| {
        let mut writer = publisher.stream.try_clone().unwrap();
        scope.spawn(move || {
            for number in 0..MESSAGES {
                let message = vec![number as u8; MIB];
                writer
                    .write_all(&encode(&[b"PUBLISH", b"c", &message]))
                    .unwrap();
            }
        });
        scope.spawn(|| {
            for _ in 0..MESSAGES {
                assert_eq!(publisher.read().integer(), 1);
                published.fetch_add(1, Ordering::Relaxed);
            }
        });
        busy.read().ok();
        let before = published.load(Ordering::Relaxed);
        assert!(before < MESSAGES, "all were published");
        // Nothing is lost, and all comes in order.
        for number in 0..MESSAGES {
            let message = Value::Bulk(vec![number as u8; MIB]);
            assert!(subscriber.read().array()[2] == message, "{number}");
        }
    });
}

#[test]
fn a_script_that_publishes_more_than_a_client_may_have_waiting_ends_the_client() {
    let server = start(settings(1));
    let (mut admin, mut subscriber) = (Client::connect(&server), Client::connect(&server));
    let limit: [&[u8]; 4] = [
        b"CONFIG",
        b"SET",
        b"client-output-buffer-limit",
        b"pubsub 1mb 0 0",
    ];
    admin.call_args(&limit).ok();
    subscriber.call("SUBSCRIBE c");
    let script = b"for i = 1, 8 do redis.call('publish', 'c', string.rep('x', 262144)) end";
    admin.call_args(&[b"EVAL", script, b"0"]);
    assert_eq!(subscriber.drain(), 0, "closed without a word");
}

/// `*` got the messages of the channel without a name, and PUBSUB CHANNELS listed it.
#[test]
fn a_channel_without_a_name_is_matched_by_no_star() {
    let server = start(settings(1));
    let (mut own, mut hears) = (Client::connect(&server), Client::connect(&server));
    hears.call("PSUBSCRIBE *");
    assert_eq!(own.call_args(&[b"PUBLISH", b"", b"m"]).integer(), 0);
    hears.call_args(&[b"PSUBSCRIBE", b""]);
    hears.call_args(&[b"SUBSCRIBE", b""]);
    assert_eq!(own.call_args(&[b"PUBLISH", b"", b"m"]).integer(), 2);
    assert_eq!(own.call("PUBSUB CHANNELS *").array(), []);
    assert_eq!(own.call("PUBSUB CHANNELS").array(), [bulk("")]);
    own.call_args(&[b"SET", b"", b"v"]).ok();
    for line in ["KEYS *", "SCAN 0 MATCH *"] {
        let found = format!("{:?}", own.call(line));
        assert!(found.contains("Bulk([])"), "{line}: {found}");
    }
}
