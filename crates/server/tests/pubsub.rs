//! Publish and subscribe: what a client hears of itself, and shard channels. Must not know the server's insides.

mod client;

use client::{Client, Value, request, settings, start};

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
