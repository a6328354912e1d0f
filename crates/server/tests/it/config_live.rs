//! Every parameter that CONFIG SET can change: a client sees what it changes. `dir` and `loglevel` belong to the
//! process and are seen in `crates/cli/tests/it/server.rs`; snapshots in `snapshots.rs` and `crates/cli/tests/it/files.rs`; TLS in `tls.rs`; memory, port, password and events in `admin.rs`. Must not
//! know the server's insides.

use std::{
    net::{TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use crate::client::{self, Client, Value, settings, start, until};
use redline_server::{Server, Settings, config::Class, config::table};

fn server() -> Server {
    start(settings(2))
}

#[track_caller]
pub fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        Value::Simple(text) => text.clone(),
        other => panic!("no text: {other:?}"),
    }
}

/// A field of INFO.
#[track_caller]
pub fn field(client: &mut Client, section: &str, name: &str) -> String {
    let info = text(&client.call(&format!("INFO {section}")));
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(known, _)| *known == name);
    found
        .unwrap_or_else(|| panic!("{name} in {info}"))
        .1
        .to_string()
}

#[track_caller]
pub fn set(client: &mut Client, name: &str, value: &str) {
    client
        .call_args(&[b"CONFIG", b"SET", name.as_bytes(), value.as_bytes()])
        .ok();
}

/// A parameter that can be changed and that no test looks at would be a promise.
#[test]
fn every_live_parameter_is_tested() {
    let tests = [
        include_str!("cluster.rs"),
        include_str!("config_live.rs"),
        include_str!("admin.rs"),
        include_str!("bandwidth.rs"),
        include_str!("metrics.rs"),
        include_str!("replication.rs"),
        include_str!("ending.rs"),
        include_str!("observe.rs"),
        include_str!("tls.rs"),
        include_str!("tls/bad_peers.rs"),
        include_str!("tls/certificates.rs"),
        include_str!("time_series.rs"),
        include_str!("tracking.rs"),
        include_str!("client_memory.rs"),
        include_str!("handover.rs"),
        include_str!("scripts_busy.rs"),
        include_str!("snapshots.rs"),
        include_str!("../../../cli/tests/it/cluster_failover.rs"),
        include_str!("../../../cli/tests/it/disk_errors.rs"),
        include_str!("../../../cli/tests/it/files.rs"),
        include_str!("../../../cli/tests/it/append.rs"),
        include_str!("../../../cli/tests/it/append_faults.rs"),
        include_str!("../../../cli/tests/it/following.rs"),
        include_str!("../../../cli/tests/it/server.rs"),
        include_str!("../../../cli/tests/it/service.rs"),
    ];
    let is_set = |name: &str| tests.iter().any(|test| test.contains(name));
    let live = table::ROWS.iter().filter(|row| row.class == Class::Live);
    let missing = live.filter(|row| !row.names().any(is_set));
    let missing: Vec<_> = missing.map(|row| row.name).collect();
    assert!(missing.is_empty(), "no test sets {missing:?}");
}

/// A field of what HELLO answers.
#[track_caller]
fn greeted(client: &mut Client, name: &str) -> Option<String> {
    let hello = client.call("HELLO 2");
    let fields = hello.array().chunks(2);
    let mut fields = fields.filter_map(|pair| Some((pair.first()?, pair.get(1)?)));
    let found = fields.find(|(known, _)| text(known) == name);
    found.map(|(_, value)| text(value))
}

#[test]
fn filters_that_no_call_describes_are_as_the_settings_say() {
    let server = server();
    let mut client = Client::connect(&server);
    for (name, value) in [
        ("bf-error-rate", "0.001"),
        ("bf-initial-size", "1000"),
        ("bf-expansion-factor", "4"),
        ("cf-bucket-size", "1"),
        ("cf-initial-size", "8"),
        ("cf-max-iterations", "7"),
        ("cf-expansion-factor", "0"),
        ("cf-max-expansions", "1"),
    ] {
        set(&mut client, name, value);
    }
    for call in ["BF.ADD b x", "CF.ADD c x", "BF.RESERVE other 0.01 1000"] {
        client.call(call);
    }
    let bytes = |client: &mut Client, key: &str| match client.call(&format!("BF.INFO {key} SIZE")) {
        Value::Array(found) => found[0].clone(),
        other => panic!("{other:?}"),
    };
    assert_ne!(bytes(&mut client, "b"), bytes(&mut client, "other"));
    let is = |client: &mut Client, call: &str, number: i64| {
        assert_eq!(
            client.call(call).array()[0],
            Value::Integer(number),
            "{call}"
        );
    };
    is(&mut client, "BF.INFO b CAPACITY", 1000);
    is(&mut client, "BF.INFO b EXPANSION", 4);
    let info = client.call("CF.INFO c");
    let fields = info.array().chunks(2);
    let shape: Vec<_> = fields
        .filter(|pair| {
            ["Bucket size", "Expansion rate", "Max iterations"].contains(&text(&pair[0]).as_str())
        })
        .map(|pair| pair[1].clone())
        .collect();
    assert_eq!(shape, [1, 0, 7].map(Value::Integer));
    let refused =
        (0..100).any(|n| matches!(client.call(&format!("CF.ADD c i{n}")), Value::Error(_)));
    assert!(refused, "it does not grow");
}

#[test]
fn the_server_names_itself_unless_it_is_to_be_redis() {
    let server = server();
    let mut client = Client::connect(&server);
    const REDIS: [&str; 3] = ["redis", redline_server::REDIS_VERSION, "redis_mode"];
    const ITSELF: [&str; 3] = ["redline", redline_server::REDLINE_VERSION, "server_mode"];
    for (value, [name, version, mode]) in [("yes", REDIS), ("no", ITSELF), ("yes", REDIS)] {
        set(&mut client, "extended-redis-compatibility", value);
        assert_eq!(greeted(&mut client, "server").as_deref(), Some(name));
        assert_eq!(greeted(&mut client, "version").as_deref(), Some(version));
        assert_eq!(field(&mut client, "server", mode), "standalone");
        assert_eq!(field(&mut client, "server", "server_name"), "redline");
        let reported = field(&mut client, "server", "redis_version");
        assert_eq!(reported, redline_server::REDIS_VERSION);
    }
}

#[test]
fn clients_learn_the_availability_zone() {
    let server = server();
    let mut client = Client::connect(&server);
    for zone in ["", "eu 1b", ""] {
        set(&mut client, "availability-zone", zone);
        let shown = greeted(&mut client, "availability_zone");
        assert_eq!(shown.unwrap_or_default(), zone);
        let info = text(&client.call("INFO server"));
        let line = format!("\r\navailability_zone:{zone}\r\n");
        assert_eq!(info.contains(&line), !zone.is_empty(), "{info}");
        assert_eq!(info.contains("availability_zone"), !zone.is_empty());
    }
}

#[test]
fn timeout_closes_who_is_silent() {
    let server = server();
    let (mut silent, mut hears, mut busy) = (
        Client::connect(&server),
        Client::connect(&server),
        Client::connect(&server),
    );
    let began = Instant::now();
    silent.call("PING");
    hears.call("SUBSCRIBE c");
    set(&mut busy, "timeout", "2");
    until("the silent client is gone", || {
        text(&busy.call("CLIENT LIST TYPE normal")).lines().count() == 1
    });
    // Seconds are counted whole.
    assert!(
        began.elapsed() > Duration::from_millis(1900),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(silent.drain(), 0, "the connection has ended");
    assert_eq!(
        busy.call("PUBLISH c m"),
        Value::Integer(1),
        "subscribers may be silent"
    );
    assert_eq!(text(&hears.read().array()[2]), "m");
}

/// The timer of the server's end of a connection, from the kernel's list: its kind, and hundredths of a second left.
fn socket_timer(server: &Server, client: &Client) -> Option<(u8, u64)> {
    let here = format!(":{:04X}", server.port());
    let there = format!(":{:04X}", client.stream.local_addr().unwrap().port());
    let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let mut ours = sockets
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let socket = ours.find(|words| words[1].ends_with(&here) && words[2].ends_with(&there))?;
    let (kind, left) = socket[5].split_once(':')?;
    Some((
        u8::from_str_radix(kind, 16).ok()?,
        u64::from_str_radix(left, 16).ok()?,
    ))
}

#[test]
fn tcp_keepalive_concerns_new_connections() {
    const KEEPALIVE: u8 = 2;
    let server = server();
    let mut first = Client::connect(&server);
    set(&mut first, "tcp-keepalive", "1000");
    let mut probed = Client::connect(&server);
    probed.call("PING");
    until(
        "probes are to come",
        || matches!(socket_timer(&server, &probed), Some((KEEPALIVE, left)) if (50_000..=100_000).contains(&left)),
    );
    set(&mut first, "tcp-keepalive", "0");
    let mut left_alone = Client::connect(&server);
    left_alone.call("PING");
    until("no timer runs", || {
        socket_timer(&server, &left_alone).is_some_and(|timer| timer.0 == 0)
    });
}

/// An address of this machine that is not loopback. A connection to it comes from it, so the server sees a stranger.
/// `None` on a machine without a network: then nobody can be one.
fn other_address() -> Option<std::net::IpAddr> {
    // Connecting a datagram socket chooses an address and sends nothing.
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("198.51.100.1", 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn protected_mode_turns_strangers_away() {
    let Some(address) = other_address() else {
        eprintln!("not tested: this machine has loopback addresses only");
        return;
    };
    let server = start(Settings {
        bind: vec!["0.0.0.0".into()],
        ..settings(2)
    });
    let mut local = Client::connect(&server);
    let stranger = || Client::of(TcpStream::connect((address, server.port())).unwrap());
    let refused = |mut client: Client| {
        let reply = client.try_read().expect("a reason");
        assert!(
            reply
                .error()
                .starts_with("DENIED Redline is running in protected mode"),
            "{reply:?}"
        );
        assert_eq!(client.drain(), 0);
    };
    refused(stranger());
    set(&mut local, "protected-mode", "no");
    let pong = Value::Simple("PONG".into());
    assert_eq!(stranger().call("PING"), pong);
    set(&mut local, "protected-mode", "yes");
    refused(stranger());
    set(&mut local, "requirepass", "secret");
    let mut knows = stranger();
    knows.call("AUTH secret").ok();
    assert_eq!(knows.call("PING"), pong);
}

#[test]
fn new_users_and_the_log_of_refusals() {
    let server = server();
    let mut client = Client::connect(&server);
    let channels = |client: &mut Client, user: &str| {
        client.call(&format!("ACL SETUSER {user} on nopass")).ok();
        text(&client.call(&format!("ACL GETUSER {user}")).array()[9])
    };
    assert_eq!(channels(&mut client, "a"), "");
    set(&mut client, "acl-pubsub-default", "allchannels");
    assert_eq!(channels(&mut client, "b"), "&*");
    assert_eq!(channels(&mut client, "a"), "");
    set(&mut client, "acllog-max-len", "2");
    let mut nobody = Client::connect(&server);
    for name in ["u", "v", "w"] {
        nobody.call(&format!("AUTH {name} x")).error();
    }
    assert_eq!(client.call("ACL LOG").array().len(), 2);
}

/// How long a key outlives its time when it has been set just after a tick.
fn outlives(client: &mut Client) -> Duration {
    let mut expire = |key: &str| {
        let before = field(client, "stats", "expired_keys");
        client.call(&format!("SET {key} v PX 1")).ok();
        let began = Instant::now();
        until("the key is found", || {
            field(client, "stats", "expired_keys") != before
        });
        began.elapsed()
    };
    expire("a"); // now a tick has passed
    expire("b")
}

#[test]
fn hz_says_how_often_expired_keys_are_looked_for() {
    let server = start(settings(1));
    let mut client = Client::connect(&server);
    // One of five: the machine may be busy.
    set(&mut client, "hz", "1");
    assert_eq!(field(&mut client, "server", "configured_hz"), "1");
    assert!((0..5).any(|_| outlives(&mut client) > Duration::from_millis(700)));
    set(&mut client, "hz", "100");
    assert!((0..5).any(|_| outlives(&mut client) < Duration::from_millis(500)));
    // As in Redis, what is out of range is brought into it.
    set(&mut client, "hz", "100000");
    assert_eq!(
        text(&client.call("CONFIG GET hz").array()[1]),
        "500",
        "the most"
    );
}

/// How much more time goes into it is seen in the timer's own test; here, that it goes on at either end.
#[test]
fn active_expire_effort_finds_expired_keys_at_its_least_and_most() {
    let server = server();
    let mut client = Client::connect(&server);
    for effort in ["1", "10"] {
        set(&mut client, "active-expire-effort", effort);
        for n in 0..1000 {
            client.send(&format!("SET k{n} v PX 1"));
        }
        (0..1000).for_each(|_| client.read().ok());
        until("all are found", || client.call("DBSIZE").integer() == 0);
    }
    let wrong = client.call("CONFIG SET active-expire-effort 11");
    assert!(wrong.error().ends_with("between 1 and 10 inclusive"));
}

/// That a counter is lowered takes a minute: the keyspace's own tests turn their clock. Here, that it stays.
#[test]
fn lfu_log_factor_says_how_fast_counters_grow() {
    let server = server();
    let mut client = Client::connect(&server);
    client
        .call("CONFIG SET maxmemory-policy allkeys-lfu lfu-decay-time 0 lfu-log-factor 0")
        .ok();
    client.call("SET k v").ok();
    let first = client.call("OBJECT FREQ k").integer();
    (0..50).for_each(|_| drop(client.call("GET k")));
    assert_eq!(client.call("OBJECT FREQ k").integer(), first + 50);
    set(&mut client, "lfu-log-factor", "1000000000");
    (0..50).for_each(|_| drop(client.call("GET k")));
    // Each access counts with a chance of less than one in ten billion.
    assert_eq!(client.call("OBJECT FREQ k").integer(), first + 50);
}

/// Of 60 keys with expiries at intervals, how many of the 15 next to expire are gone when 15 had to go.
fn soonest_gone(samples: &str) -> usize {
    let server = start(settings(1));
    let client = &mut Client::connect(&server);
    set(client, "maxmemory-policy", "volatile-ttl");
    set(client, "maxmemory-samples", samples);
    let base: u64 = field(client, "memory", "used_memory").parse().unwrap();
    for n in 0..60 {
        let seconds = (n + 1) * 1000;
        client
            .call_args(&[
                b"SET",
                format!("k{n}").as_bytes(),
                &[b'x'; 100_000],
                b"EX",
                seconds.to_string().as_bytes(),
            ])
            .ok();
    }
    let full: u64 = field(client, "memory", "used_memory").parse().unwrap();
    let limit = full - (full - base) / 4;
    set(client, "maxmemory", &limit.to_string());
    until("some are gone", || client.call("DBSIZE").integer() <= 46);
    (0..15)
        .filter(|n| client.call(&format!("EXISTS k{n}")).integer() == 0)
        .count()
}

#[test]
fn more_samples_find_better_victims() {
    let best = soonest_gone("64");
    assert!(best >= 12, "{best} of 15");
    // Sixteen candidates are remembered, so even one at a time does better than chance, which is 4; three times
    // in a row it is not as good as this.
    let worse = (0..3).map(|_| soonest_gone("1")).min();
    assert!(worse < Some(12), "{worse:?} of 15");
}

#[test]
fn subscribers_that_do_not_read_are_closed() {
    let server = server();
    let (mut client, mut deaf) = (Client::connect(&server), Client::connect(&server));
    let message = [b'x'; 100_000];
    set(&mut client, "client-output-buffer-limit", "pubsub 1mb 0 0");
    deaf.call("SUBSCRIBE c");
    until("it is closed at the hard limit", || {
        client.call_args(&[b"PUBLISH", b"c", &message]).integer() == 0
    });
    let closed =
        |client: &mut Client| field(client, "stats", "client_output_buffer_limit_disconnections");
    assert_eq!(closed(&mut client), "1");

    set(&mut client, "client-output-buffer-limit", "pubsub 0 1mb 1");
    let mut slow = Client::connect(&server);
    slow.call("SUBSCRIBE c");
    until("much is unread", || {
        client.call_args(&[b"PUBLISH", b"c", &message]);
        let line = text(&client.call("CLIENT LIST TYPE pubsub"));
        let omem = line.split(' ').find_map(|word| word.strip_prefix("omem="));
        omem.is_none_or(|bytes| bytes.parse::<u64>().unwrap() > 2 << 20)
    });
    until("it is closed after a second at the soft limit", || {
        client.call("PUBSUB NUMSUB c").array()[1].integer() == 0
    });
    assert_eq!(closed(&mut client), "2");
}

#[test]
fn clients_that_do_not_read_replies_are_closed() {
    let server = server();
    let (mut client, mut deaf) = (Client::connect(&server), Client::connect(&server));
    client.call_args(&[b"SET", b"k", &[b'x'; 100_000]]).ok();
    set(&mut client, "client-output-buffer-limit", "normal 1mb 0 0");
    let gets = client::request("GET k").repeat(300); // 30 MB: more than sockets take
    deaf.write(&gets);
    until("it is closed", || {
        text(&client.call("CLIENT LIST")).lines().count() == 1
    });
    assert_eq!(text(&client.call("GET k")).len(), 100_000);
}

#[test]
fn queries_above_their_limit_end_the_connection() {
    let server = server();
    let (mut client, mut long) = (Client::connect(&server), Client::connect(&server));
    let argument = vec![b'x'; 3 << 20];
    assert_eq!(long.call_args(&[b"STRLEN", &argument[..100]]).integer(), 0);
    set(&mut client, "client-query-buffer-limit", "1mb");
    // The server stops reading: the write may fail or not.
    use std::io::Write;
    let _ = long
        .stream
        .write_all(&client::encode(&[b"ECHO", &argument[..]]));
    assert_eq!(long.drain(), 0, "no reply");
    assert_eq!(
        field(
            &mut client,
            "stats",
            "client_query_buffer_limit_disconnections"
        ),
        "1"
    );
    set(&mut client, "client-query-buffer-limit", "1gb");
    let mut again = Client::connect(&server);
    assert_eq!(
        again.call_args(&[b"ECHO", &argument[..]]),
        Value::Bulk(argument.clone())
    );
}

#[test]
fn proto_max_bulk_len_limits_what_commands_build() {
    let server = server();
    let mut client = Client::connect(&server);
    set(&mut client, "proto-max-bulk-len", "1mb");
    for call in ["SETRANGE k 1048576 x", "SETBIT k 8388608 1"] {
        assert!(client.call(call).error().starts_with("ERR "), "{call}");
    }
    client.call("SETRANGE k 1048575 x").integer();
    assert_eq!(
        client.call("APPEND k xx").error(),
        "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
    );
    set(&mut client, "proto-max-bulk-len", "2mb");
    assert_eq!(client.call("APPEND k xx").integer(), (1 << 20) + 2);
}

#[test]
fn busy_reply_threshold_says_when_others_are_told() {
    let server = start(settings(2).with(|settings| settings.busy_reply_threshold_ms = 600_000));
    let (mut script, mut client) = (Client::connect(&server), Client::connect(&server));
    set(&mut client, "busy-reply-threshold", "50");
    let began = Instant::now();
    script.write(&client::encode(&[
        b"EVAL",
        b"redis.call('get', KEYS[1]) while true do end",
        b"1",
        b"k",
    ]));
    until(
        "others are told",
        || matches!(client.call("GET k"), Value::Error(line) if line.starts_with("BUSY ")),
    );
    let told = began.elapsed();
    // With what it was started with, nobody would be told before the test gives up.
    assert!(told >= Duration::from_millis(48), "{told:?}");
    client.call("SCRIPT KILL").ok();
    script.read().error();
}

/// A threshold, a command within it, one beyond it, and the encodings of what they make.
type Threshold = (
    &'static str,
    &'static str,
    [&'static str; 2],
    [&'static str; 2],
);

const THRESHOLDS: &[Threshold] = &[
    (
        "hash-max-listpack-entries",
        "2",
        ["HSET k a 1 b 2", "HSET k a 1 b 2 c 3"],
        ["listpack", "hashtable"],
    ),
    (
        "hash-max-listpack-value",
        "4",
        ["HSET k a 1234", "HSET k a 12345"],
        ["listpack", "hashtable"],
    ),
    (
        "list-max-listpack-size",
        "2",
        ["RPUSH k a b", "RPUSH k a b c"],
        ["listpack", "quicklist"],
    ),
    (
        "set-max-intset-entries",
        "2",
        ["SADD k 1 2", "SADD k 1 2 3"],
        ["intset", "listpack"],
    ),
    (
        "set-max-listpack-entries",
        "2",
        ["SADD k a b", "SADD k a b c"],
        ["listpack", "hashtable"],
    ),
    (
        "set-max-listpack-value",
        "4",
        ["SADD k abcd", "SADD k abcde"],
        ["listpack", "hashtable"],
    ),
    (
        "zset-max-listpack-entries",
        "2",
        ["ZADD k 1 a 2 b", "ZADD k 1 a 2 b 3 c"],
        ["listpack", "skiplist"],
    ),
    (
        "zset-max-listpack-value",
        "4",
        ["ZADD k 1 abcd", "ZADD k 1 abcde"],
        ["listpack", "skiplist"],
    ),
];

#[test]
fn encodings_change_at_their_thresholds() {
    let server = server();
    let mut client = Client::connect(&server);
    for (name, value, calls, encodings) in THRESHOLDS {
        let default = text(&client.call(&format!("CONFIG GET {name}")).array()[1]);
        // By default both are small; with the threshold the second is large.
        for (value, [within, beyond]) in [
            (default.as_str(), [encodings[0]; 2]),
            (value, *encodings),
            (default.as_str(), [encodings[0]; 2]),
        ] {
            set(&mut client, name, value);
            for (call, encoding) in calls.iter().zip([within, beyond]) {
                client.call("DEL k");
                client.call(call).integer();
                let shown = text(&client.call("OBJECT ENCODING k"));
                assert_eq!(shown, encoding, "{call} with {name} {value}");
            }
        }
    }
}

#[test]
fn fields_whose_time_has_passed_made_a_table_of_a_listpack() {
    let server = server();
    let mut client = Client::connect(&server);
    set(&mut client, "hash-max-listpack-entries", "4");
    client.call("HSET h a 1 b 2 c 3").integer();
    client
        .call("HSETEX h EXAT 1 FIELDS 3 d 4 e 5 f 6")
        .integer();
    assert_eq!(text(&client.call("OBJECT ENCODING h")), "listpackex");
    assert_eq!(client.call("HLEN h").integer(), 3);
    // More than a listpack takes by themselves make a table all the same.
    client
        .call("HSETEX h EXAT 1 FIELDS 5 d 4 e 5 f 6 g 7 h 8")
        .integer();
    assert_eq!(text(&client.call("OBJECT ENCODING h")), "hashtable");
}

#[test]
fn hyperloglogs_become_dense_at_their_threshold() {
    let server = server();
    let mut client = Client::connect(&server);
    for (limit, encoding) in [("3000", "sparse"), ("20", "dense"), ("3000", "sparse")] {
        set(&mut client, "hll-sparse-max-bytes", limit);
        client.call("DEL k");
        assert_eq!(client.call("PFADD k a b c").integer(), 1);
        let shown = text(&client.call("PFDEBUG ENCODING k"));
        assert_eq!(shown, encoding, "hll-sparse-max-bytes {limit}");
    }
}

/// Entries left when 100 are trimmed to about 55: only whole nodes go.
fn trimmed(client: &mut Client) -> i64 {
    client.call("DEL s");
    for n in 1..=100 {
        client.call(&format!("XADD s 0-{n} field value-{n}"));
    }
    client.call("XTRIM s MAXLEN ~ 55");
    client.call("XLEN s").integer()
}

#[test]
fn stream_nodes_have_their_sizes() {
    let server = server();
    let mut client = Client::connect(&server);
    let mut sized = |entries: &str, bytes: &str| {
        set(&mut client, "stream-node-max-entries", entries);
        set(&mut client, "stream-node-max-bytes", bytes);
        trimmed(&mut client)
    };
    assert_eq!(sized("100", "0"), 100, "all in one node");
    assert_eq!(sized("10", "0"), 60);
    assert_eq!(sized("20", "0"), 60);
    assert_eq!(sized("0", "0"), 100, "no limit");
    let by_bytes = sized("0", "200");
    assert!((55..100).contains(&by_bytes), "{by_bytes}");
}

#[test]
fn rdbcompression_no_left_payloads_compressed() {
    let server = server();
    let mut client = Client::connect(&server);
    let code = format!(
        "#!lua name=l\nredis.register_function('f', function() end) --{}",
        "x".repeat(200)
    );
    client.call_args(&[b"FUNCTION", b"LOAD", code.as_bytes()]);
    client.call(&format!("SET k {}", "a".repeat(200))).ok();
    client.call(&format!("RPUSH l {}", "a".repeat(200)));
    for (value, is_plain) in [("yes", false), ("no", true)] {
        set(&mut client, "rdbcompression", value);
        for call in ["DUMP k", "DUMP l", "FUNCTION DUMP"] {
            let Value::Bulk(payload) = client.call(call) else {
                panic!("a payload is bytes")
            };
            assert_eq!(payload.len() > 200, is_plain, "{call} with {value}");
        }
        let Value::Bulk(payload) = client.call("DUMP k") else {
            panic!("a payload is bytes")
        };
        let call: [&[u8]; 5] = [b"RESTORE", b"k", b"0", &payload, b"REPLACE"];
        client.call_args(&call).ok();
    }
    assert_eq!(client.call("STRLEN k").integer(), 200);
}
