//! CONFIG, CLIENT, INFO and COMMAND from outside; every test of a parameter sees its effect.

mod client;

use client::{Client, Value, settings, start, until};
use redline_server::{Permission, Server, Settings};

fn server() -> Server {
    start(settings(2))
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("no text: {other:?}"),
    }
}

/// A field of INFO.
fn field(client: &mut Client, section: &str, name: &str) -> String {
    let info = text(&client.call(&format!("INFO {section}")));
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("{name} in {info}"))
        .to_string()
}

#[test]
fn several_parameters_change_together_or_not_at_all() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("CONFIG SET maxmemory 100mb hz 20").ok();
    let wrong = client.call("CONFIG SET hz 30 maxmemory-samples 0");
    assert_eq!(
        wrong.error(),
        "ERR CONFIG SET failed (possibly related to argument 'maxmemory-samples') - argument must be between 1 and 64 inclusive"
    );
    let pairs = client.call("CONFIG GET hz maxmemor[y]");
    let pairs: Vec<String> = pairs.array().iter().map(text).collect();
    assert_eq!(pairs, ["hz", "20", "maxmemory", "104857600"]);
}

#[test]
fn what_cannot_change_or_is_not_built_is_refused() {
    let server = server();
    let mut client = Client::connect(&server);
    for (call, why) in [
        ("databases 3", "can't set immutable config"),
        ("dir /", "can't set protected config"),
        ("appendonly yes", "the append-only file is not built yet"),
        ("hz 1 hz 2", "duplicate parameter"),
    ] {
        let reply = client.call(&format!("CONFIG SET {call}"));
        assert!(
            reply.error().ends_with(&format!(" - {why}")),
            "{call}: {reply:?}"
        );
    }
    assert!(
        client
            .call("CONFIG SET nosuch 1")
            .error()
            .starts_with("ERR Unknown option")
    );
    client.call("CONFIG SET appendonly no").ok();
    client.call_args(&[b"CONFIG", b"SET", b"save", b""]).ok();
}

#[test]
fn a_password_concerns_those_who_come_after_it() {
    let server = server();
    let mut before = Client::connect(&server);
    before.call("PING");
    before.call("CONFIG SET requirepass secret").ok();
    before.call("SET k v").ok();
    let mut after = Client::connect(&server);
    assert_eq!(
        after.call("GET k").error(),
        "NOAUTH Authentication required."
    );
    after.call("AUTH secret").ok();
    assert_eq!(text(&after.call("GET k")), "v");
    let mut third = Client::connect(&server);
    before
        .call_args(&[b"CONFIG", b"SET", b"requirepass", b""])
        .ok();
    assert_eq!(text(&third.call("GET k")), "v");
}

#[test]
fn fewer_clients_and_another_port() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("CONFIG SET maxclients 1").ok();
    let mut second = Client::connect(&server);
    assert_eq!(second.read().error(), "ERR max number of clients reached");
    client.call("CONFIG SET maxclients 100").ok();
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    client.call(&format!("CONFIG SET port {port}")).ok();
    assert_eq!(server.port(), port);
    assert_eq!(
        Client::connect(&server).call("PING"),
        Value::Simple("PONG".into())
    );
}

#[test]
fn less_memory_evicts_and_no_policy_refuses() {
    let server = server();
    let mut client = Client::connect(&server);
    for i in 0..200 {
        client
            .call_args(&[b"SET", format!("k{i}").as_bytes(), &[b'x'; 10_000]])
            .ok();
    }
    client
        .call("CONFIG SET maxmemory 1mb maxmemory-policy allkeys-lru maxmemory-samples 10")
        .ok();
    until("evicted", || {
        field(&mut client, "memory", "used_memory")
            .parse::<u64>()
            .unwrap()
            <= 1 << 20
    });
    assert!(client.call("DBSIZE").integer() < 200);
    assert_ne!(field(&mut client, "stats", "evicted_keys"), "0");
    client
        .call("CONFIG SET maxmemory 1 maxmemory-policy noeviction")
        .ok();
    assert!(client.call("SET k v").error().starts_with("OOM "));
}

#[test]
fn encodings_follow_their_thresholds() {
    let server = server();
    let mut client = Client::connect(&server);
    let values = [
        "hash-max-listpack-entries 1",
        "set-max-listpack-value 2",
        "zset-max-ziplist-entries 1",
        "set-max-intset-entries 1",
    ];
    for value in values {
        client.call(&format!("CONFIG SET {value}")).ok();
    }
    client.call("HSET h a 1 b 2");
    client.call("SADD s abc d");
    client.call("ZADD z 1 a 2 b");
    client.call("SADD i 1 2");
    for (key, encoding) in [
        ("h", "hashtable"),
        ("s", "hashtable"),
        ("z", "skiplist"),
        ("i", "listpack"),
    ] {
        assert_eq!(
            text(&client.call(&format!("OBJECT ENCODING {key}"))),
            encoding,
            "{key}"
        );
    }
}

#[test]
fn events_and_argument_length() {
    let server = server();
    let (mut client, mut hears) = (Client::connect(&server), Client::connect(&server));
    client
        .call("CONFIG SET notify-keyspace-events KA proto-max-bulk-len 1mb")
        .ok();
    hears.call("SUBSCRIBE __keyspace@0__:k");
    client.call("SET k v").ok();
    assert_eq!(text(&hears.read().array()[2]), "set");
    client.write(b"*2\r\n$4\r\nECHO\r\n$1048577\r\n");
    assert_eq!(
        client.read().error(),
        "ERR Protocol error: invalid bulk length"
    );
}

#[test]
fn clients_are_listed_named_and_ended() {
    let server = server();
    let (mut a, mut b) = (Client::connect(&server), Client::connect(&server));
    let id = b.call("CLIENT ID").integer();
    a.call("CLIENT SETNAME first").ok();
    a.call("CLIENT SETINFO lib-name py").ok();
    assert!(
        a.call_args(&[b"CLIENT", b"SETNAME", b"a b"])
            .error()
            .contains("cannot contain spaces")
    );
    let line = text(&a.call("CLIENT INFO"));
    assert!(
        line.contains(" name=first ") && line.contains(" lib-name=py "),
        "{line}"
    );
    assert_eq!(text(&a.call("CLIENT LIST")).lines().count(), 2);
    assert_eq!(text(&a.call("CLIENT LIST TYPE pubsub")), "");
    assert!(text(&a.call(&format!("CLIENT LIST ID {id}"))).starts_with(&format!("id={id} ")));
    assert_eq!(
        a.call("CLIENT KILL TYPE normal SKIPME yes"),
        Value::Integer(1)
    );
    assert_eq!(b.drain(), 0, "the connection has ended");
    assert_eq!(a.call(&format!("CLIENT KILL ID {id}")), Value::Integer(0));
    assert_eq!(
        a.call("CLIENT KILL 1.2.3.4:5").error(),
        "ERR No such client"
    );
}

#[test]
fn replies_can_be_switched_off() {
    let server = server();
    let mut client = Client::connect(&server);
    client.send("CLIENT REPLY OFF");
    client.send("SET k 1");
    client.call("CLIENT REPLY ON").ok();
    client.send("CLIENT REPLY SKIP");
    client.send("GET k");
    assert_eq!(client.call("INCR k"), Value::Integer(2));
}

#[test]
fn subscriptions_are_confirmed_also_while_replies_are_off() {
    let server = server();
    let mut client = Client::connect(&server);
    client.send("CLIENT REPLY OFF");
    let confirmed = client.call("SUBSCRIBE channel");
    assert!(
        matches!(&confirmed, Value::Array(parts) if parts.len() == 3),
        "{confirmed:?}"
    );
    let mut other = Client::connect(&server);
    assert_eq!(other.call("PUBLISH channel hello"), Value::Integer(1));
    let message = client.read();
    assert!(
        matches!(&message, Value::Array(parts) if parts.len() == 3),
        "{message:?}"
    );
    let gone = client.call("UNSUBSCRIBE");
    assert!(
        matches!(&gone, Value::Array(parts) if parts.len() == 3),
        "{gone:?}"
    );
    client.send("CLIENT REPLY SKIP");
    client.send("SET k v");
    client.call("CLIENT REPLY ON").ok();
}

#[test]
fn no_touch_leaves_the_access_counter() {
    let server = start(Settings {
        maxmemory_policy: redline_keyspace::Policy::AllKeysLfu,
        lfu_log_factor: 0,
        ..settings(1)
    });
    let mut client = Client::connect(&server);
    client.call("SET k v").ok();
    client.call("CLIENT NO-TOUCH on").ok();
    let before = client.call("OBJECT FREQ k").integer();
    client.call("GET k");
    assert_eq!(client.call("OBJECT FREQ k").integer(), before);
    client.call("CLIENT NO-TOUCH off").ok();
    client.call("GET k");
    assert_eq!(client.call("OBJECT FREQ k").integer(), before + 1);
}

#[test]
fn statistics_count_and_begin_anew() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("SET k v").ok();
    client.call("GET k");
    client.call("GET nosuch");
    client.call("INCR k").error();
    assert_eq!(field(&mut client, "stats", "keyspace_hits"), "1");
    assert_eq!(field(&mut client, "stats", "keyspace_misses"), "1");
    assert_eq!(field(&mut client, "errorstats", "errorstat_ERR"), "count=1");
    assert!(field(&mut client, "commandstats", "cmdstat_get").starts_with("calls=2,"));
    assert!(field(&mut client, "keyspace", "db0").starts_with("keys=1,expires=0,"));
    client.call("CONFIG RESETSTAT").ok();
    assert_eq!(field(&mut client, "stats", "keyspace_hits"), "0");
    assert!(!text(&client.call("INFO commandstats")).contains("cmdstat_get:"));
}

#[test]
fn commands_describe_themselves() {
    let server = server();
    let mut client = Client::connect(&server);
    let count = client.call("COMMAND COUNT").integer();
    assert_eq!(client.call("COMMAND").array().len() as i64, count);
    assert_eq!(client.call("COMMAND DOCS").array().len() as i64, 2 * count);
    let info = client.call("COMMAND INFO get nosuch");
    assert_eq!(info.array()[0].array()[1], Value::Integer(2));
    assert_eq!(info.array()[1], Value::Nil);
    let keys = client.call("COMMAND GETKEYS MSET a 1 b 2");
    assert_eq!(
        keys.array().iter().map(text).collect::<Vec<_>>(),
        ["a", "b"]
    );
}

#[test]
fn debug_needs_permission_and_shutdown_ends() {
    let server = server();
    let mut client = Client::connect(&server);
    assert!(
        client
            .call("DEBUG SLEEP 0")
            .error()
            .starts_with("ERR DEBUG command not allowed.")
    );
    assert_eq!(
        client.call("SHUTDOWN ABORT").error(),
        "ERR No shutdown in progress."
    );
    assert_eq!(
        client.call("SHUTDOWN SAVE NOSAVE").error(),
        "ERR syntax error"
    );
    client.send("SHUTDOWN NOSAVE");
    server.join();
    let allowed = start(Settings {
        enable_debug_command: Permission::Local,
        ..settings(1)
    });
    Client::connect(&allowed).call("DEBUG SLEEP 0").ok();
}
