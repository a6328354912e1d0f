//! INFO: every field is moved by something, or stands on the list of those that are constant, with a reason. Must not
//! know the server's insides.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::{self, Client, Value, settings, start, until};
use redline_server::{Permission, Server, Settings};
use redline_testkit::port::ReservedPort;

const BUILD: &str = "it says what the program or the machine is";
const PROCESS: &str = "it says how the process was started";
const PERSISTENCE: &str = "there are no snapshots and no append-only file";
const REPLICATION: &str = "there is no replication";
const CLUSTER: &str = "it is no node of a cluster, whose nodes have no bus either";
const FORK: &str = "the server never forks";
const THREADS: &str =
    "every worker reads, writes and runs commands, so no thread does that for another";
const DEFRAG: &str = "compaction moves entries, and counts in megabytes, not in hits";
const ALLOCATOR: &str = "the arenas have no such pages";
const MODULES: &str = "there are no modules";

/// Fields that do not move.
const CONSTANT: &[(&str, &[&str])] = &[
    (
        BUILD,
        &[
            "redis_version",
            "server_name",
            "redline_version",
            "redis_git_sha1",
            "redis_git_dirty",
            "redis_build_id",
            "redis_mode",
            "os",
            "arch_bits",
            "monotonic_clock",
            "multiplexing_api",
            "mem_allocator",
            "total_system_memory",
            "total_system_memory_human",
        ],
    ),
    (
        PROCESS,
        &[
            "process_id",
            "process_supervised",
            "run_id",
            "executable",
            "config_file",
            "worker_threads",
        ],
    ),
    ("a day is too long for a test", &["uptime_in_days"]),
    (
        THREADS,
        &[
            "io_threads_active",
            "io_threaded_reads_processed",
            "io_threaded_writes_processed",
            "io_threaded_total_prefetch_batches",
            "io_threaded_total_prefetch_entries",
        ],
    ),
    (
        CLUSTER,
        &[
            "cluster_connections",
            "cluster_enabled",
            "mem_cluster_links",
            "migrate_cached_sockets",
        ],
    ),
    (
        "there is no limit on bandwidth",
        &["bandwidth_limit", "bandwidth_held_ms"],
    ),
    (
        "an empty keyspace takes the same always",
        &["used_memory_startup"],
    ),
    (
        ALLOCATOR,
        &[
            "allocator_muzzy",
            "allocator_rss_ratio",
            "allocator_rss_bytes",
        ],
    ),
    (
        "a table is rebuilt at once, so there is never a second one",
        &["mem_overhead_db_hashtable_rehashing"],
    ),
    (
        DEFRAG,
        &[
            "active_defrag_hits",
            "active_defrag_misses",
            "active_defrag_key_hits",
            "active_defrag_key_misses",
            "total_active_defrag_time",
            "current_active_defrag_time",
        ],
    ),
    (
        REPLICATION,
        &[
            "mem_not_counted_for_evict",
            "mem_replication_backlog",
            "mem_total_replication_buffers",
            "mem_replica_full_sync_buffer",
            "mem_clients_slaves",
            "total_net_repl_input_bytes",
            "total_net_repl_output_bytes",
            "instantaneous_input_repl_kbps",
            "instantaneous_output_repl_kbps",
            "sync_full",
            "sync_partial_ok",
            "sync_partial_err",
            "slave_expires_tracked_keys",
            "role",
            "connected_slaves",
            "master_failover_state",
            "master_replid2",
            "master_repl_offset",
            "second_repl_offset",
            "repl_backlog_active",
            "repl_backlog_first_byte_offset",
            "repl_backlog_histlen",
            "repl_backlog_spooled",
            "unexpected_error_replies",
        ],
    ),
    (
        PERSISTENCE,
        &[
            "loading",
            "async_loading",
            "current_save_keys_processed",
            "current_save_keys_total",
            "rdb_bgsave_in_progress",
            "rdb_last_save_time",
            "rdb_last_bgsave_status",
            "rdb_last_bgsave_time_sec",
            "rdb_current_bgsave_time_sec",
            "rdb_saves",
            "rdb_last_load_keys_expired",
            "rdb_last_load_keys_loaded",
            "aof_enabled",
            "aof_rewrite_in_progress",
            "aof_rewrite_scheduled",
            "aof_last_rewrite_time_sec",
            "aof_current_rewrite_time_sec",
            "aof_last_bgrewrite_status",
            "aof_rewrites",
            "aof_rewrites_consecutive_failures",
            "aof_last_write_status",
            "mem_aof_buffer",
        ],
    ),
    (
        FORK,
        &[
            "current_cow_peak",
            "current_cow_size",
            "current_cow_size_age",
            "current_fork_perc",
            "rdb_last_cow_size",
            "aof_last_cow_size",
            "latest_fork_usec",
            "total_forks",
            "used_cpu_sys_children",
            "used_cpu_user_children",
        ],
    ),
    (
        MODULES,
        &["module_fork_in_progress", "module_fork_last_cow_size"],
    ),
    (
        "every stripe knows when its first key is due, so none is overlooked",
        &["expired_stale_perc"],
    ),
    (
        "every payload is checked, whatever its sender",
        &["dump_payload_sanitizations"],
    ),
    (
        "a reply buffer grows with what is written and is given back when empty, so its size is nobody's choice",
        &["reply_buffer_shrinks", "reply_buffer_expands"],
    ),
];

/// Fields that say what is going on at the moment, which a look may catch or miss.
const MOMENTARY: &[&str] = &["lazyfree_pending_objects", "active_defrag_running"];

/// The values that each field has had.
#[derive(Default)]
struct Seen {
    values: BTreeMap<String, BTreeSet<String>>,
    first: BTreeSet<String>,
}

impl Seen {
    fn look(&mut self, client: &mut Client) {
        let Value::Bulk(info) = client.call("INFO everything") else {
            panic!("a bulk");
        };
        let info = String::from_utf8(info).unwrap();
        for line in info
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let (name, value) = line.split_once(':').expect("a field");
            // A line for each of what others have as modules, and all are built in.
            if name == "module" {
                continue;
            }
            let values = self.values.entry(name.to_owned()).or_default();
            values.insert(value.to_owned());
        }
        if self.first.is_empty() {
            self.first = self.values.keys().cloned().collect();
        }
    }

    /// Has it had more than one value, or come into being?
    fn moved(&self, name: &str) -> bool {
        let values = self.values.get(name);
        values.is_some_and(|values| values.len() > 1) || !self.first.contains(name)
    }

    #[track_caller]
    fn look_until_moved(&mut self, client: &mut Client, names: &[&str]) {
        until(&format!("{names:?} move"), || {
            self.look(client);
            names.iter().all(|name| self.moved(name))
        });
    }
}

fn server() -> Server {
    start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(2)
    })
}

#[test]
fn every_field_moves_or_is_constant_for_a_reason() {
    let server = server();
    let mut client = Client::connect(&server);
    let mut seen = Seen::default();
    seen.look(&mut client);
    data_and_memory(&server, &mut client, &mut seen);
    clients_and_waits(&server, &mut client, &mut seen);
    scripts(&mut client, &mut seen);
    limits(&server, &mut client, &mut seen);
    settings_and_time(&server, &mut client, &mut seen);
    let constant: BTreeSet<&str> = CONSTANT
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
        .collect();
    let lasting = |name: &&String| !MOMENTARY.contains(&name.as_str());
    for name in seen.values.keys().filter(lasting) {
        let listed = constant.contains(name.as_str());
        let values = &seen.values[name];
        assert_ne!(
            seen.moved(name),
            listed,
            "{name}: {values:?}, listed: {listed}"
        );
    }
    for name in constant {
        assert!(seen.values.contains_key(name), "{name} is no field");
    }
}

fn data_and_memory(server: &Server, client: &mut Client, seen: &mut Seen) {
    for call in [
        "SET k v EX 1000",
        "GET k",
        "GET nosuch",
        "RPUSH l a b c",
        "SADD s a",
        "ZADD z 1 a",
        "HSET h a 1 b 2",
        "HPEXPIRE h 1 FIELDS 1 a",
        "SET soon v PX 1",
        "INCR l",
    ] {
        client.call(call);
    }
    let fields = [
        "expired_keys",
        "expired_subkeys",
        "db0_distrib_hashes_items",
    ];
    seen.look_until_moved(client, &fields);
    let value = vec![b'x'; 9000];
    for number in 0..700 {
        let key = format!("large:{number}");
        client.call_args(&[b"SET", key.as_bytes(), &value]).ok();
    }
    seen.look_until_moved(client, &["used_memory_rss"]);
    // So many at once that a slice of active expiry does not suffice.
    let script = b"for i = 1, 30000 do redis.call('set', 'many:' .. i, 'v', 'px', 20) end";
    client.call_args(&[b"EVAL", script, b"0"]);
    let fields = [
        "expired_time_cap_reached_count",
        "expire_cycle_cpu_milliseconds",
        "instantaneous_eventloop_duration_usec",
    ];
    seen.look_until_moved(client, &fields);
    client.call("FLUSHALL").ok();
    // What was deleted before may be too little to be seen beside the peak.
    seen.look_until_moved(client, &["lazyfreed_objects", "used_memory_peak_perc"]);
    let mut other = Client::connect(server);
    other.call("NONESUCH");
    drop(other);
}

fn clients_and_waits(server: &Server, client: &mut Client, seen: &mut Seen) {
    let mut waits = Client::connect(server);
    waits.send("BLPOP nosuch 1000");
    let mut group = Client::connect(server);
    group.call("XGROUP CREATE stream g $ MKSTREAM").ok();
    group.send("XREADGROUP GROUP g c BLOCK 0 STREAMS stream >");
    let mut tracks = Client::connect(server);
    tracks.call("HELLO 3");
    tracks.call("CLIENT TRACKING ON").ok();
    tracks.call("GET k");
    let mut broadcast = Client::connect(server);
    broadcast.call("HELLO 3");
    broadcast.call("CLIENT TRACKING ON BCAST PREFIX p").ok();
    let mut listens = Client::connect(server);
    for call in ["WATCH k", "SUBSCRIBE c", "PSUBSCRIBE p", "SSUBSCRIBE s"] {
        listens.call(call);
    }
    let mut deaf = Client::connect(server);
    deaf.write(b"*2\r\n$3\r\nGET");
    let value = vec![b'x'; 4_000_000];
    client.call_args(&[b"SET", b"large", &value]).ok();
    let mut slow = Client::connect(server);
    (0..4).for_each(|_| slow.send("GET large"));
    let fields = [
        "connected_clients",
        "client_recent_max_input_buffer",
        "client_recent_max_output_buffer",
        "blocked_clients",
        "clients_in_timeout_table",
        "total_blocking_keys",
        "total_blocking_keys_on_nokey",
        "tracking_clients",
        "tracking_total_keys",
        "tracking_total_prefixes",
        "pubsub_clients",
        "pubsubshard_channels",
        "watching_clients",
        "mem_clients_normal",
    ];
    seen.look_until_moved(client, &fields);
}

fn scripts(client: &mut Client, seen: &mut Seen) {
    for number in 0..600 {
        let script = format!("return {number}");
        client.call_args(&[b"EVAL", script.as_bytes(), b"0"]);
    }
    let library = b"#!lua name=l\nredis.register_function('f', function() return 1 end)";
    client.call_args(&[b"FUNCTION", b"LOAD", library]);
    client.call("FCALL f 0");
    let fields = ["evicted_scripts", "used_memory_lua", "number_of_libraries"];
    seen.look_until_moved(client, &fields);
}

fn limits(server: &Server, client: &mut Client, seen: &mut Seen) {
    let set = |client: &mut Client, name: &str, value: &str| {
        let call: [&[u8]; 4] = [b"CONFIG", b"SET", name.as_bytes(), value.as_bytes()];
        client.call_args(&call).ok();
    };
    // Who may do little is refused everything.
    client
        .call("ACL SETUSER some on >word ~own +get +subscribe")
        .ok();
    let mut some = Client::connect(server);
    some.call("AUTH some wrong");
    some.call("AUTH some word").ok();
    for call in ["SET own v", "GET other", "SUBSCRIBE channel"] {
        some.call(call).error();
    }
    // Too much data, that may and that may not go.
    client
        .call("CONFIG SET maxmemory 1mb maxmemory-policy noeviction")
        .ok();
    let over = [
        "total_eviction_exceeded_time",
        "current_eviction_exceeded_time",
    ];
    seen.look_until_moved(client, &over);
    set(client, "maxmemory-policy", "allkeys-lru");
    seen.look_until_moved(client, &["evicted_keys"]);
    set(client, "maxmemory", "0");
    // Too long requests, unread replies, too many clients.
    let value = vec![b'x'; 3_000_000];
    client.call_args(&[b"SET", b"large", &value]).ok();
    set(client, "client-query-buffer-limit", "1mb");
    let mut long = Client::connect(server);
    let mut request = b"*2\r\n$4\r\nECHO\r\n".to_vec();
    request.extend(b"$3000000\r\n");
    request.extend(&value);
    // It may be closed before all is written.
    let _ = std::io::Write::write_all(&mut long.stream, &request);
    set(client, "client-output-buffer-limit", "normal 1mb 0 0");
    let mut unread = Client::connect(server);
    let requests = client::request("GET large").repeat(8);
    let _ = std::io::Write::write_all(&mut unread.stream, &requests);
    let closed = [
        "client_query_buffer_limit_disconnections",
        "client_output_buffer_limit_disconnections",
    ];
    seen.look_until_moved(client, &closed);
    set(client, "client-output-buffer-limit", "normal 0 0 0");
    client.call("CLIENT NO-EVICT on").ok();
    let mut large = Client::connect(server);
    (0..8).for_each(|_| large.send("GET large"));
    set(client, "maxmemory-clients", "1mb");
    seen.look_until_moved(client, &["evicted_clients"]);
    set(client, "maxmemory-clients", "0");
    set(client, "maxclients", "1");
    Client::connect(server).read().error();
    set(client, "maxclients", "100");
    seen.look_until_moved(client, &["rejected_connections"]);
}

fn settings_and_time(server: &Server, client: &mut Client, seen: &mut Seen) {
    client.call("CONFIG SET hz 50 repl-backlog-size 2mb").ok();
    client.call("DEBUG CHANGE-REPL-ID").ok();
    let free = ReservedPort::any();
    let port = free.number();
    client.call(&format!("CONFIG SET port {port}")).ok();
    assert_eq!(server.port(), port);
    let fields = [
        "uptime_in_seconds",
        "lru_clock",
        "used_cpu_sys",
        "used_cpu_user_main_thread",
        "used_cpu_sys_main_thread",
        "instantaneous_ops_per_sec",
        "instantaneous_input_kbps",
        "instantaneous_output_kbps",
        "instantaneous_eventloop_cycles_per_sec",
    ];
    seen.look_until_moved(client, &fields);
    // A new peak, in another second.
    let mut number = 0;
    until("a new peak", || {
        number += 1;
        let key = format!("peak:{number}");
        client
            .call_args(&[b"SET", key.as_bytes(), &[b'x'; 100_000]])
            .ok();
        seen.look(client);
        seen.moved("used_memory_peak_time")
    });
}

#[test]
fn sections_are_those_asked_for() {
    let server = server();
    let mut client = Client::connect(&server);
    let mut titles = |call: &str| {
        let Value::Bulk(info) = client.call(call) else {
            panic!("a bulk");
        };
        let info = String::from_utf8(info).unwrap();
        let titles = info.lines().filter_map(|line| line.strip_prefix("# "));
        titles.map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let usual = "Server Clients Memory Persistence Threads Stats Replication CPU Modules Errorstats Cluster Keyspace Keysizes";
    let all = usual.replace("Errorstats", "Commandstats Errorstats Latencystats");
    assert_eq!(titles("INFO"), usual);
    assert_eq!(titles("INFO default nosuch"), usual);
    assert_eq!(titles("INFO all"), all);
    assert_eq!(titles("INFO everything server"), all);
    assert_eq!(titles("INFO CPU server"), "Server CPU");
    assert_eq!(
        titles("INFO default commandstats"),
        usual.replace("Errorstats", "Commandstats Errorstats")
    );
    assert_eq!(titles("INFO nosuch"), "");
}

#[test]
fn sizes_and_times_are_told_by_database() {
    let server = server();
    let mut client = Client::connect(&server);
    for call in [
        "SET a 1 PX 100000",
        "SET b 12 PX 50000",
        "SET c 123",
        "RPUSH l a b c",
        "SADD s a b c d e f g h",
        "SELECT 3",
        "ZADD z 1 a",
        "XADD x * a b",
    ] {
        client.call(call);
    }
    client.call_args(&[b"SET", b"empty", b""]).ok();
    client.call_args(&[b"SET", b"large", &[b'x'; 9000]]).ok();
    let expected = "# Keysizes\r\n\
        db0_distrib_strings_sizes:1=1,2=2\r\n\
        db0_distrib_lists_items:2=1\r\n\
        db0_distrib_sets_items:8=1\r\n\
        db3_distrib_strings_sizes:0=1,8K=1\r\n\
        db3_distrib_zsets_items:1=1\r\n";
    let sizes = Value::Bulk(expected.into());
    assert_eq!(client.call("INFO keysizes"), sizes);
    client.call("MULTI").ok();
    for call in ["FLUSHDB", "GET a", "INFO keysizes", "INFO keyspace"] {
        client.call(call);
    }
    let in_exec = client.call("EXEC");
    let Value::Bulk(after) = &in_exec.array()[2] else {
        panic!("a bulk");
    };
    assert_eq!(
        String::from_utf8_lossy(after),
        expected.split("db3").next().unwrap()
    );
    let Value::Bulk(keyspace) = &in_exec.array()[3] else {
        panic!("a bulk");
    };
    let keyspace = String::from_utf8_lossy(keyspace).into_owned();
    let (_, ttl) = keyspace.split_once("avg_ttl=").unwrap();
    let ttl: u64 = ttl.split(',').next().unwrap().parse().unwrap();
    assert!((70_000..=75_000).contains(&ttl), "{keyspace}");
}

#[test]
fn a_reset_sets_back_what_redis_sets_back() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("AUTH nobody word").error();
    client.call_args(&[b"SET", b"k", &[b'x'; 100_000]]).ok();
    let field = |client: &mut Client, name: &str| {
        let Value::Bulk(info) = client.call("INFO everything") else {
            panic!("a bulk");
        };
        let info = String::from_utf8(info).unwrap();
        let found = info
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}:")));
        found
            .unwrap_or_else(|| panic!("{name} in {info}"))
            .to_owned()
    };
    until("the peak is known", || {
        field(&mut client, "used_memory_peak")
            .parse::<u64>()
            .unwrap()
            >= 100_000
    });
    client.call("DEL k");
    client.call("CONFIG RESETSTAT").ok();
    let peak: u64 = field(&mut client, "used_memory_peak").parse().unwrap();
    assert!(peak >= 100_000);
    assert_eq!(field(&mut client, "acl_access_denied_auth"), "1");
    for name in [
        "total_error_replies",
        "total_connections_received",
        "keyspace_hits",
    ] {
        assert_eq!(field(&mut client, name), "0", "{name}");
    }
}

/// A field of INFO that is a number.
fn number(client: &mut Client, name: &str) -> i64 {
    let Value::Bulk(info) = client.call("INFO everything") else {
        panic!("INFO answers with a text");
    };
    let info = String::from_utf8(info).unwrap();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap().parse().unwrap()
}

/// Checks the counts of each of these calls against those of Redis 8.2.3.
#[test]
fn changes_and_expired_fields_are_counted_as_redis_counts_them() {
    let server = server();
    let mut client = Client::connect(&server);
    let library = "#!lua name=q\nredis.register_function('f', function() return 1 end)";
    for (call, changes, expired) in [
        ("LPOP l 2", 2, 0),
        ("LPOP l 100", 6, 0),
        ("RPOP l 3", 3, 0),
        ("LMPOP 1 l LEFT COUNT 3", 3, 0),
        ("BLMPOP 0 1 l LEFT COUNT 3", 3, 0),
        ("LTRIM l 0 -1", 0, 0),
        ("LTRIM l 1 2", 4, 0),
        ("LMOVE l other LEFT RIGHT", 1, 0),
        ("LMOVE l l LEFT RIGHT", 1, 0),
        ("RPOPLPUSH l other", 1, 0),
        ("BLMOVE l other LEFT RIGHT 0", 1, 0),
        ("HSETEX h EX 100 FIELDS 2 a 1 q 2", 2, 0),
        ("HSETEX h EXAT 1 FIELDS 2 a 1 q 2", 2, 2),
        ("HSETEX new EXAT 1 FIELDS 1 a 1", 1, 1),
        ("HEXPIRE h 0 FIELDS 3 a b nope", 2, 2),
        ("HPEXPIREAT h 1 FIELDS 1 a", 1, 1),
        ("HGETEX h EXAT 1 FIELDS 2 a nope", 1, 1),
        ("FUNCTION LOAD", 1, 0),
        ("FUNCTION DELETE q", 1, 0),
        ("FUNCTION FLUSH", 1, 0),
    ] {
        client.call("DEL l other h new");
        client.call("RPUSH l a b c d e f");
        client.call("HSET h a 1 b 2 c 3");
        client.call_args(&[b"FUNCTION", b"LOAD", b"REPLACE", library.as_bytes()]);
        let names = ["rdb_changes_since_last_save", "expired_subkeys"];
        let before = names.map(|name| number(&mut client, name));
        let mut words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
        if call == "FUNCTION LOAD" {
            words.extend([&b"REPLACE"[..], library.as_bytes()]);
        }
        let reply = client.call_args(&words);
        assert!(!matches!(reply, Value::Error(_)), "{call}: {reply:?}");
        let after = names.map(|name| number(&mut client, name));
        let counted = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(counted, [changes, expired], "{call}");
    }
}

/// They have it as a text and as a number of their own, which nothing else keeps equal to it.
#[test]
fn scripts_are_told_the_version_that_info_tells() {
    let server = start(settings(1));
    let script = b"return {redis.REDIS_VERSION, redis.REDIS_VERSION_NUM}";
    let told = Client::connect(&server).call_args(&[b"EVAL", script, b"0"]);
    let version = redline_server::REDIS_VERSION;
    let number = version
        .split('.')
        .fold(0, |number, part| number << 8 | part.parse::<i64>().unwrap());
    let version = Value::Bulk(version.as_bytes().to_vec());
    assert_eq!(told.array(), [version, Value::Integer(number)]);
}
