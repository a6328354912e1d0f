//! CONFIG, CLIENT, INFO and COMMAND from outside; every test of a parameter sees its effect.

use crate::client::{Client, Value, request, settings, start, until};
use redline_server::{Permission, Server, Settings};
use redline_testkit::port::ReservedPort;

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
    // Of a value the name is told as the parameter, or its alias, has it, of a name that by which it was called.
    for (call, why) in [
        (
            "HZ 30 Maxmemory-Samples 0",
            "'maxmemory-samples') - argument must be between 1 and 64 inclusive",
        ),
        (
            "Cluster-Slave-No-Failover x",
            "'cluster-slave-no-failover') - argument must be 'yes' or 'no'",
        ),
        ("DATABASES 3", "'DATABASES') - can't set immutable config"),
        ("Hz 1 hZ 2", "'hZ') - duplicate parameter"),
    ] {
        let reply = client.call(&format!("CONFIG SET {call}"));
        assert!(reply.error().ends_with(why), "{call}: {reply:?}");
    }
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
        ("import-mode yes", "import mode is not built yet"),
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
fn hello_with_a_wrong_name_does_nothing_else() {
    const WRONG: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
    let server = start(Settings {
        requirepass: Some(b"secret".to_vec()),
        ..settings(2)
    });
    let mut client = Client::connect(&server);
    let hello = |rest: &[&'static [u8]]| [&[&b"HELLO"[..], b"3"], rest].concat();
    for rest in [
        &[&b"SETNAME"[..], b"a b"][..],
        &[b"AUTH", b"default", b"secret", b"SETNAME", b"a b"],
        &[b"AUTH", b"default", b"wrong", b"SETNAME", b"a b"],
        &[b"SETNAME", b"a b", b"SETNAME", b"fine"],
        &[b"SETNAME", b"a b", b"bogus"],
    ] {
        assert_eq!(client.call_args(&hello(rest)).error(), WRONG, "{rest:?}");
        let noauth = "NOAUTH Authentication required.";
        assert_eq!(client.call("PING").error(), noauth, "{rest:?}");
    }
}

#[test]
fn commands_of_a_cluster_say_that_there_is_none() {
    const DISABLED: &str = "ERR This instance has cluster support disabled";
    let server = server();
    let mut client = Client::connect(&server);
    for call in [
        "CLUSTER INFO",
        "CLUSTER HELP",
        "cluster keyslot k",
        "CLUSTER SLOT-STATS SLOTSRANGE 0 1",
        "READONLY",
        "READWRITE",
        "ASKING",
    ] {
        assert_eq!(client.call(call).error(), DISABLED, "{call}");
    }
    for (call, refusal) in [
        ("CLUSTER", "wrong number of arguments for 'cluster' command"),
        (
            "CLUSTER KEYSLOT",
            "wrong number of arguments for 'cluster|keyslot' command",
        ),
        (
            "READONLY x",
            "wrong number of arguments for 'readonly' command",
        ),
        (
            "CLUSTER bogus",
            "unknown subcommand 'bogus'. Try CLUSTER HELP.",
        ),
    ] {
        assert_eq!(client.call(call).error(), format!("ERR {refusal}"));
    }
    client.call("MULTI").ok();
    client.call("CLUSTER NODES");
    client.call("ASKING");
    for reply in client.call("EXEC").array() {
        assert_eq!(reply.error(), DISABLED);
    }
    for (script, line) in [
        ("return redis.pcall('readonly')", DISABLED),
        (
            "return redis.pcall('cluster','reset')",
            "ERR This Redis command is not allowed from script",
        ),
    ] {
        let reply = client.call_args(&[b"EVAL", script.as_bytes(), b"0"]);
        assert!(reply.error().starts_with(line), "{reply:?}");
    }
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
    let free = ReservedPort::any();
    let port = free.number();
    client.call(&format!("CONFIG SET port {port}")).ok();
    assert_eq!(server.port(), port);
    assert_eq!(
        Client::connect(&server).call("PING"),
        Value::Simple("PONG".into())
    );
}

#[test]
fn other_addresses_are_listened_on_and_who_is_connected_stays() {
    let server = server();
    let mut client = Client::connect(&server);
    let port = server.port();
    let connects = |address: &str| std::net::TcpStream::connect((address, port)).is_ok();
    let bind = |client: &mut Client, to: &str| {
        client.call_args(&[b"CONFIG", b"SET", b"bind", to.as_bytes()])
    };
    assert!(connects("127.0.0.1") && !connects("127.0.0.2"));
    bind(&mut client, "127.0.0.2").ok();
    until("the old address is closed", || {
        connects("127.0.0.2") && !connects("127.0.0.1")
    });
    // Of the addresses one stays.
    bind(&mut client, "127.0.0.1 127.0.0.2").ok();
    until("both are served", || {
        connects("127.0.0.1") && connects("127.0.0.2")
    });
    let refused = bind(&mut client, "127.0.0.1 192.0.2.1");
    assert_eq!(
        refused.error(),
        "ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to specified addresses."
    );
    bind(&mut client, "*").ok();
    until("every address is served", || {
        connects("127.0.0.1") && connects("127.0.0.3")
    });
    // Nobody else gets the port meanwhile.
    assert!(std::net::TcpListener::bind(("127.0.0.1", port)).is_err());
    bind(&mut client, "").ok();
    until("no address is left", || !connects("127.0.0.1"));
    bind(&mut client, "127.0.0.1").ok();
    assert_eq!(server.port(), port);
    until("one address is served", || {
        connects("127.0.0.1") && !connects("127.0.0.3")
    });
    client.call("SET k v").ok();
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
    assert!(line.contains(" qbuf=26 "), "{line}");
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

/// CLIENT LIST never showed `d`, and went on counting what a doomed transaction watched.
#[test]
fn a_client_whose_watched_key_has_changed_is_shown_as_such() {
    let server = start(settings(2));
    let mut watches = Client::connect(&server);
    let mut looks = Client::connect(&server);
    let id = watches.call("CLIENT ID").integer();
    let mut shown = || -> (String, String, String) {
        let line = text(&looks.call(&format!("CLIENT LIST ID {id}")));
        let of = |name: &str| -> String {
            let field = line.split(' ').find_map(|field| field.strip_prefix(name));
            field.unwrap().to_string()
        };
        let watching = field(&mut looks, "clients", "watching_clients");
        (of("flags="), of("watch="), watching)
    };
    let is = |flags: &str, watch: &str, watching: &str| {
        (flags.to_string(), watch.to_string(), watching.to_string())
    };
    watches.call("WATCH k j").ok();
    assert_eq!(shown(), is("N", "2", "1"));
    watches.call("SET k 1").ok();
    assert_eq!(shown(), is("d", "0", "0"));
    watches.call("WATCH m").ok();
    assert_eq!(shown(), is("d", "0", "0"));
    watches.call("MULTI").ok();
    assert_eq!(shown(), is("xd", "0", "0"));
    assert_eq!(watches.call("EXEC"), Value::Nil);
    assert_eq!(shown(), is("N", "0", "0"));
    watches.call("WATCH k").ok();
    assert_eq!(shown(), is("N", "1", "1"));
    Client::connect(&server).call("DEL k");
    assert_eq!(shown(), is("d", "0", "0"));
    watches.call("UNWATCH").ok();
    assert_eq!(shown(), is("N", "0", "0"));
}

#[test]
fn a_script_left_the_client_listed_in_the_database_that_it_selected() {
    let server = server();
    let mut client = Client::connect(&server);
    let script: &[u8] = b"redis.call('select', 3) return redis.call('set', 'k', 'v')";
    client.call_args(&[b"EVAL", script, b"0"]).ok();
    assert_eq!(client.call("DBSIZE"), Value::Integer(0));
    let line = text(&client.call("CLIENT INFO"));
    assert!(line.contains(" db=0 "), "{line}");
}

#[test]
fn clients_are_picked_by_several_filters() {
    let server = server();
    let (mut a, mut b) = (Client::connect(&server), Client::connect(&server));
    a.call("CLIENT SETNAME anna");
    b.call("CLIENT SETINFO LIB-NAME lib");
    b.call("SELECT 3");
    let own = a.call("CLIENT ID").integer();
    let other = b.call("CLIENT ID").integer();
    // Two workers number their clients: who connected first need not be the first.
    let both = vec![own.min(other), own.max(other)];
    let mut listed = |filters: &str| -> Vec<i64> {
        let list = text(&a.call(&format!("CLIENT LIST {filters}")));
        let id = |line: &str| line[3..].split(' ').next().unwrap().parse().unwrap();
        list.lines().map(id).collect()
    };
    for (filters, expected) in [
        ("NAME anna", vec![own]),
        ("NOT-NAME anna", vec![other]),
        ("LIB-NAME lib DB 3", vec![other]),
        ("LIB-NAME lib NOT-DB 3", vec![]),
        ("IP 127.0.0.1 SKIPME yes", vec![other]),
        ("NOT-IP 127.0.0.1", vec![]),
        ("FLAGS N", both),
        ("NOT-FLAGS N TYPE normal", vec![]),
        ("TYPE normal DB 0 DB 3", vec![other]),
        ("IDLE 1000", vec![]),
    ] {
        assert_eq!(listed(filters), expected, "{filters}");
    }
    // Redis's own form: in the order of asking.
    assert_eq!(
        listed(&format!("ID {other} {own} {other}")),
        [other, own, other]
    );
    assert_eq!(listed(&format!("NOT-ID {own} 77")), [other]);
    for (call, error) in [
        (
            "CLIENT LIST DB 16",
            "ERR DB number should be between 0 and 15",
        ),
        (
            "CLIENT LIST IDLE x",
            "ERR idle is not an integer or out of range",
        ),
        (
            "CLIENT LIST FLAGS ?",
            "ERR Unknown flags found in the provided filter: ?",
        ),
        ("CLIENT LIST ID 1 x", "ERR Invalid client ID"),
        ("CLIENT LIST ID x 1", "ERR Invalid client ID"),
        ("CLIENT LIST ID 1 2 ID", "ERR Invalid client ID"),
        ("CLIENT LIST ID 1 FOO BAR", "ERR Invalid client ID"),
        ("CLIENT LIST NAME a ID 1 x", "ERR syntax error"),
        ("CLIENT LIST ID", "ERR syntax error"),
        ("CLIENT LIST NAME", "ERR syntax error"),
        (
            "CLIENT KILL NOT-USER nobody NAME a",
            "ERR No such user 'nobody'",
        ),
    ] {
        assert_eq!(a.call(call).error(), error, "{call}");
    }
    assert_eq!(a.call("CLIENT KILL NAME anna").integer(), 0);
    assert_eq!(a.call("CLIENT KILL NOT-NAME anna DB 3").integer(), 1);
}

/// A client whose worker was busy stood in CLIENT LIST for a while after its end.
#[test]
fn who_was_killed_is_in_no_list() {
    let server = start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(2)
    });
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&server)).collect();
    let ids: Vec<i64> = clients
        .iter_mut()
        .map(|client| client.call("CLIENT ID").integer())
        .collect();
    // Connections go to the workers by turns: the last one keeps the second one's worker.
    clients[3].send("DEBUG SLEEP 0.3");
    let a = &mut clients[0];
    let kill = format!("CLIENT KILL ID {}", ids[1]);
    assert_eq!(a.call(&kill), Value::Integer(1));
    let list = text(&a.call(&format!("CLIENT LIST ID {} {}", ids[1], ids[2])));
    assert_eq!(list.lines().count(), 1, "{list}");
    assert_eq!(a.call(&kill), Value::Integer(0));
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

/// Sends these calls all at once, with a PING that ends them, and returns the bytes that the client is sent.
fn bytes_of(client: &mut Client, lines: &[&str]) -> String {
    use std::io::Read;
    let calls: Vec<u8> = lines.iter().flat_map(|line| request(line)).collect();
    client.write(&calls);
    client.write(&request("PING end-of-test"));
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    while !bytes.ends_with(b"end-of-test\r\n") {
        let count = client.stream.read(&mut part).unwrap();
        assert!(count > 0, "closed");
        bytes.extend_from_slice(&part[..count]);
    }
    let text = String::from_utf8(bytes).unwrap().replace("\r\n", "|");
    text.strip_suffix("$11|end-of-test|").unwrap().to_owned()
}

/// Recorded from Redis 8.2.3: each reply is sent or not as CLIENT REPLY stands when it is made, and so is the head.
#[test]
fn replies_switched_within_a_transaction_are_those_that_were_wanted() {
    let server = server();
    let mut client = Client::connect(&server);
    for (lines, expected) in [
        (
            "MULTI/SET a 1/CLIENT REPLY OFF/SET a 2/EXEC/PING/CLIENT REPLY ON",
            "+OK|+QUEUED|+QUEUED|+QUEUED|*3|+OK|+OK|",
        ),
        (
            "MULTI/CLIENT REPLY OFF/PING/CLIENT REPLY ON/PING/EXEC",
            "+OK|+QUEUED|+QUEUED|+QUEUED|+QUEUED|*4|+OK|+PONG|",
        ),
        (
            "CLIENT REPLY OFF/MULTI/PING/CLIENT REPLY ON/PING/EXEC",
            "+OK|+PONG|",
        ),
        (
            "CLIENT REPLY OFF/MULTI/PING/SUBSCRIBE x/PING/EXEC/UNSUBSCRIBE/CLIENT REPLY ON",
            "*3|$9|subscribe|$1|x|:1|*3|$11|unsubscribe|$1|x|:0|+OK|",
        ),
        (
            "MULTI/CLIENT REPLY SKIP/PING/EXEC/PING/PING",
            "+OK|+QUEUED|+QUEUED|*2|+PONG|+PONG|",
        ),
        (
            "MULTI/CLIENT REPLY OFF/LPOP a/EXEC/MULTI/NONESUCH/EXEC/CLIENT REPLY ON",
            "+OK|+QUEUED|+QUEUED|*2|+OK|",
        ),
    ] {
        let lines: Vec<&str> = lines.split('/').collect();
        assert_eq!(bytes_of(&mut client, &lines), expected, "{lines:?}");
    }
}

fn debugged() -> Server {
    start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(2)
    })
}

/// Has expired, and nobody has met it since.
fn make_stale(client: &mut Client, key: &str) {
    client.call("DEBUG SET-ACTIVE-EXPIRE 0").ok();
    client.call(&format!("SET {key} v PX 1")).ok();
    until("it has expired", || {
        client.call(&format!("KEYS {key}")).array().is_empty()
    });
}

#[test]
fn watch_and_exec_leave_a_key_that_has_expired_where_it_is() {
    let server = debugged();
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    make_stale(&mut other, "stale");
    client.call("WATCH stale").ok();
    assert_eq!(other.call("DBSIZE"), Value::Integer(1));
    assert_eq!(other.call("EXISTS stale"), Value::Integer(0));
    assert_eq!(other.call("DBSIZE"), Value::Integer(0));
    client.call("MULTI").ok();
    assert_eq!(client.call("EXEC"), Value::Array(Vec::new()));

    other.call("SET key v PX 200").ok();
    client.call("WATCH key").ok();
    until("it has expired", || {
        other.call("KEYS key").array().is_empty()
    });
    client.call("MULTI").ok();
    assert_eq!(client.call("EXEC"), Value::Nil);
    assert_eq!(other.call("DBSIZE"), Value::Integer(1));
}

#[test]
fn randomkey_takes_out_what_it_finds_expired() {
    let server = debugged();
    let mut client = Client::connect(&server);
    let mut hears = Client::connect(&server);
    client.call("CONFIG SET notify-keyspace-events Ex").ok();
    hears.call("SUBSCRIBE __keyevent@0__:expired");
    for number in 0..20 {
        make_stale(&mut client, &format!("stale{number}"));
    }
    assert_eq!(client.call("DBSIZE"), Value::Integer(20));
    assert_eq!(client.call("RANDOMKEY"), Value::Nil);
    assert_eq!(client.call("DBSIZE"), Value::Integer(0));
    for _ in 0..20 {
        assert_eq!(hears.read().array().len(), 3);
    }
    make_stale(&mut client, "stale");
    let script = [&b"EVAL"[..], b"return redis.call('RANDOMKEY')", b"0"];
    assert_eq!(client.call_args(&script), Value::Nil);
    assert_eq!(client.call("DBSIZE"), Value::Integer(0));
    assert_eq!(hears.read().array().len(), 3);
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
    let server = start(settings(1).with(|settings| {
        settings.maxmemory_policy = redline_keyspace::Policy::AllKeysLfu;
        settings.lfu_log_factor = 0;
    }));
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

/// Returns what INFO has counted since the last look: errors by code, and refused and failed calls by command.
fn counted(client: &mut Client) -> Vec<String> {
    let info = text(&client.call("INFO errorstats"));
    let errors = info.lines().filter(|line| line.starts_with("errorstat_"));
    let mut found: Vec<String> = errors.map(str::to_owned).collect();
    let info = text(&client.call("INFO commandstats"));
    for line in info
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_"))
    {
        let (name, figures) = line.split_once(':').unwrap();
        let (_, refused) = figures.split_once(",rejected_calls=").unwrap();
        if refused != "0,failed_calls=0" {
            found.push(format!("{name} {}", refused.replace("failed_calls=", "")));
        }
    }
    client.call("CONFIG RESETSTAT").ok();
    found
}

#[test]
fn errors_are_counted_once_wherever_they_arise() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("SET n 1").ok();
    client.call("LPUSH n a");
    let wrong = "errorstat_WRONGTYPE:count=1";
    assert_eq!(counted(&mut client), [wrong, "lpush 0,1"]);
    client.call("GET");
    client.call("NONESUCH");
    assert_eq!(counted(&mut client), ["errorstat_ERR:count=2", "get 1,0"]);
    for (script, expected) in [
        (
            "return redis.call('lpush', 'n', 'a')",
            &[wrong, "lpush 0,1", "eval 0,1"][..],
        ),
        (
            "redis.pcall('lpush', 'n', 'a') return 1",
            &[wrong, "lpush 0,1"],
        ),
        (
            "error(redis.pcall('lpush', 'n', 'a'))",
            &[wrong, "lpush 0,1", "eval 0,1"],
        ),
        (
            "return redis.call('get')",
            &["errorstat_ERR:count=1", "get 1,0", "eval 0,1"],
        ),
        (
            "return redis.call('subscribe', 'a')",
            &["errorstat_ERR:count=1", "subscribe 1,0", "eval 0,1"],
        ),
        (
            "return redis.call('nonesuch')",
            &["errorstat_ERR:count=1", "eval 0,1"],
        ),
        (
            "return {err = 'MINE own'}",
            &["errorstat_MINE:count=1", "eval 0,1"],
        ),
        ("error('x')", &["errorstat_ERR:count=1", "eval 0,1"]),
        // One word is a code where a script raises it, since more comes behind it then; not where it is returned.
        (
            "error{err = 'MINE'}",
            &["errorstat_MINE:count=1", "eval 0,1"],
        ),
        (
            "return {err = 'MINE'}",
            &["errorstat_ERR:count=1", "eval 0,1"],
        ),
        // Whoever says that an error is counted is believed, and then it fails once for each.
        (
            "error{err = 'MINE own', ignore_error_stats_update = true}",
            &["eval 0,1"],
        ),
        (
            "return {err = 'MINE own', ignore_error_stats_update = true}",
            &["eval 0,1"],
        ),
        (
            "local e = redis.pcall('get') e.err = 'OTHER x' return e",
            &["errorstat_ERR:count=1", "get 1,0", "eval 0,1"],
        ),
        // So are those inside an array, of which new ones are one failure together.
        (
            "return {redis.error_reply('A x'), {redis.error_reply('A y')}, 1}",
            &["errorstat_A:count=2", "eval 0,1"],
        ),
        (
            "return {{redis.error_reply('MINE x')}, redis.pcall('get'), redis.pcall('get')}",
            &[
                "errorstat_ERR:count=2",
                "errorstat_MINE:count=1",
                "get 2,0",
                "eval 0,3",
            ],
        ),
    ] {
        client.call_args(&[b"EVAL", script.as_bytes(), b"0"]);
        assert_eq!(counted(&mut client), expected, "{script}");
    }
    for call in ["MULTI", "LPUSH n a", "EXEC"] {
        client.call(call);
    }
    assert_eq!(counted(&mut client), [wrong, "lpush 0,1"]);
}

#[test]
fn codes_that_scripts_make_up_are_told_up_to_a_number() {
    let server = server();
    let mut client = Client::connect(&server);
    let mut fail = |text: &str| {
        let call: &[&[u8]] = &[b"EVAL", b"return {err = ARGV[1]}", b"0", text.as_bytes()];
        client.call_args(call);
        text_of_errors(&mut client)
    };
    assert_eq!(fail("NOSPACE"), ["errorstat_ERR:count=1"]);
    let long = "A".repeat(40);
    assert_eq!(fail(&format!("{long} b")), ["errorstat_ERR:count=2"]);
    for number in 1..128 {
        assert_eq!(fail(&format!("C{number} x")).len(), number + 1);
    }
    let disabled = ["errorstat_ERRORSTATS_DISABLED:count=1"];
    assert_eq!(fail("C128 x"), disabled);
    assert_eq!(fail("C1 x"), disabled);
    client.call("CONFIG RESETSTAT").ok();
    client.call("NONESUCH");
    assert_eq!(text_of_errors(&mut client), ["errorstat_ERR:count=1"]);
}

fn text_of_errors(client: &mut Client) -> Vec<String> {
    let info = text(&client.call("INFO errorstats"));
    info.lines().skip(1).map(str::to_owned).collect()
}

/// It showed MULTI while calls were queued, and the call before one that was refused or unknown.
#[test]
fn the_last_command_of_a_client_is_listed_whatever_became_of_it() {
    let server = server();
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    let id = client.call("CLIENT ID").integer();
    for (call, shown) in [
        ("MULTI", "multi"),
        ("GET a", "get"),
        ("CONFIG GET maxmemory", "config|get"),
        ("NONESUCH", "NULL"),
        ("SET a", "set"),
        ("DISCARD", "discard"),
        ("CLIENT NONESUCH", "NULL"),
        ("INCR", "incr"),
    ] {
        client.call(call);
        let line = text(&other.call(&format!("CLIENT LIST ID {id}")));
        assert!(line.contains(&format!(" cmd={shown} ")), "{call}: {line}");
    }
}

#[test]
fn a_client_is_listed_as_redis_lists_it() {
    let server = server();
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    let id = other.call("CLIENT ID").integer();
    let own = client.call("CLIENT ID").integer();
    fn fields(list: &Value, id: i64, names: &[&str]) -> Vec<String> {
        let list = text(list);
        let line = list
            .lines()
            .find(|line| line.starts_with(&format!("id={id} ")));
        let line = line.unwrap_or_else(|| panic!("{id} in {list}"));
        let value = |name: &&str| {
            let mut words = line.split(' ');
            let word = words.find_map(|word| word.strip_prefix(&format!("{name}=")));
            word.unwrap().to_owned()
        };
        names.iter().map(value).collect()
    }
    let commands = |client: &mut Client| {
        let list = client.call("CLIENT LIST");
        fields(&list, own, &["tot-cmds"])[0].parse::<i64>().unwrap()
    };
    // Not itself; not what is refused or queued, but what EXEC and scripts run.
    assert_eq!(commands(&mut client), 1);
    for call in ["NONESUCH", "GET", "MULTI", "SET a 1", "EXEC"] {
        client.call(call);
    }
    client.call_args(&[b"EVAL", b"return redis.call('get', 'a')", b"0"]);
    assert_eq!(commands(&mut client), 2 + 3 + 2);
    other.send("BLPOP l 0");
    until("it waits", || {
        let list = client.call("CLIENT LIST");
        fields(&list, id, &["flags"]) == ["b"]
    });
    for call in ["MULTI", &format!("CLIENT UNBLOCK {id}"), "CLIENT LIST"] {
        client.call(call);
    }
    let list = client.call("EXEC").array()[1].clone();
    assert_eq!(fields(&list, own, &["flags"]), ["x"]);
    let flags = fields(&list, id, &["flags"]);
    assert!(["u", "N"].contains(&flags[0].as_str()), "{flags:?}");
    other.read();
    // What it does not read is a list of pieces, and a large value is one piece.
    let value = vec![b'x'; 8_000_000];
    client.call_args(&[b"SET", b"large", &value]).ok();
    client.call_args(&[b"SET", b"small", &value[..3000]]).ok();
    (0..5).for_each(|_| other.send("GET large"));
    until("it is behind", || {
        let list = client.call("CLIENT LIST");
        let [buffered, pieces, bytes] =
            <[String; 3]>::try_from(fields(&list, id, &["obl", "oll", "omem"])).unwrap();
        let pieces: usize = pieces.parse().unwrap();
        let bytes: usize = bytes.parse().unwrap();
        buffered == "0" && (3..=6).contains(&pieces) && bytes > 10_000_000
    });
}
