//! A node of a cluster: alone, with its records in a file. Texts are those of Redis 8.2.3 in cluster mode, seen there with
//! the same calls. Must not know the server's insides.

use std::{path::Path, sync::Arc, thread};

use redline_server::{Origin, Permission, Server, Settings};

use crate::client::{self, Client, Value, start};
use crate::config_live::{field, set, text};

const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
const NOT_SERVED: &str = "CLUSTERDOWN Hash slot not served";
const DOWN: &str = "CLUSTERDOWN The cluster is down";

fn settings(folder: &Path) -> Settings {
    let file = folder.join("nodes.conf");
    client::settings(2).with(|settings| {
        settings.cluster_enabled = true;
        settings.enable_debug_command = Permission::Yes;
        settings.cluster_config_file = file.to_str().unwrap().into();
    })
}

/// A node with two workers, and the folder of its file.
fn node() -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (start(settings(folder.path())), folder)
}

fn call(client: &mut Client, words: &[&str]) -> Value {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    client.call_args(&words)
}

fn integers(values: &[Value]) -> Vec<i64> {
    values.iter().map(Value::integer).collect()
}

fn texts(values: &[Value]) -> Vec<String> {
    values.iter().map(text).collect()
}

#[test]
fn a_node_alone_serves_all_slots_and_says_so() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    client.call("SET foo bar").ok();
    assert_eq!(text(&client.call("GET foo")), "bar");
    let id = text(&client.call("CLUSTER MYID"));
    let shard = text(&client.call("CLUSTER MYSHARDID"));
    for id in [&id, &shard] {
        assert!(id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    let port = server.port();
    assert_eq!(
        text(&client.call("CLUSTER NODES")),
        format!("{id} 127.0.0.1:{port}@0 myself,master - 0 0 1 connected 0-16383\n")
    );
    let info = text(&client.call("CLUSTER INFO"));
    let expected = "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\n\
         cluster_current_epoch:1\r\ncluster_my_epoch:1\r\ncluster_stats_messages_sent:0\r\n\
         cluster_stats_messages_received:0\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n";
    assert_eq!(info, expected);
    let slots = client.call("CLUSTER SLOTS");
    let [run] = slots.array() else {
        panic!("{slots:?}")
    };
    let [first, last, own] = run.array() else {
        panic!("{run:?}")
    };
    assert_eq!((first.integer(), last.integer()), (0, 16383));
    let [host, own_port, own_id, others] = own.array() else {
        panic!("{own:?}")
    };
    assert_eq!(
        (text(host), own_port.integer()),
        ("127.0.0.1".into(), i64::from(port))
    );
    assert_eq!((text(own_id), others.array().len()), (id.clone(), 0));
    let shards = client.call("CLUSTER SHARDS");
    let [one] = shards.array() else {
        panic!("{shards:?}")
    };
    let [_, slots, _, nodes] = one.array() else {
        panic!("{one:?}")
    };
    assert_eq!(integers(slots.array()), [0, 16383]);
    let node = nodes.array()[0].array();
    let names: Vec<String> = node.iter().step_by(2).map(text).collect();
    assert_eq!(
        names,
        [
            "id",
            "port",
            "ip",
            "endpoint",
            "role",
            "replication-offset",
            "health"
        ]
    );
    assert_eq!(client.call("CLUSTER LINKS"), Value::Array(Vec::new()));
    for call in ["CLUSTER REPLICAS", "CLUSTER SLAVES"] {
        assert_eq!(
            client.call(&format!("{call} {id}")),
            Value::Array(Vec::new())
        );
    }
    assert_eq!(
        client
            .call(&format!("CLUSTER COUNT-FAILURE-REPORTS {id}"))
            .integer(),
        0
    );
    let help = texts(client.call("CLUSTER HELP").array());
    assert!(help[0].starts_with("CLUSTER <subcommand>") && help.iter().any(|line| line == "INFO"));
}

#[test]
fn the_mode_is_told_wherever_it_is_asked_for() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    assert_eq!(field(&mut client, "cluster", "cluster_enabled"), "1");
    assert_eq!(field(&mut client, "server", "redis_mode"), "cluster");
    let hello = client.call("HELLO 3");
    let mode = hello
        .array()
        .chunks(2)
        .find(|pair| text(&pair[0]) == "mode");
    assert_eq!(text(&mode.unwrap()[1]), "cluster");
    assert_eq!(text(&client.call("CONFIG GET databases").array()[1]), "1");
    assert_eq!(text(&client.call("ROLE").array()[0]), "master");
}

#[test]
fn keys_of_two_slots_are_refused() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    client.call("MSET {x}1 1 {x}2 2").ok();
    for call in [
        "MGET a b",
        "MSETNX a 1 b 2",
        "RENAME a b",
        "SINTERCARD 2 a b",
        "LMPOP 2 a b LEFT",
        "BLPOP a b 1",
        "XREAD STREAMS a b 0 0",
        "ZUNIONSTORE {a}x 2 a b",
        "GEORADIUS a 1 1 1 m STORE b",
        "WATCH a b",
        "SSUBSCRIBE x y",
        "EVAL return 2 a b",
        "FCALL f 2 a b",
        "MIGRATE 127.0.0.1 1  0 100 KEYS a b",
    ] {
        assert_eq!(client.call(call).error(), CROSS_SLOT, "{call}");
    }
    // What is no valid call is that first.
    assert_eq!(
        client.call("SINTERCARD 3 a b").error(),
        "ERR Number of keys can't be greater than number of args"
    );
    assert_eq!(client.call("SPUBLISH x y").integer(), 0);
    assert_eq!(client.call("PUBLISH x y").integer(), 0);
    assert_eq!(
        field(&mut client, "commandstats", "cmdstat_rename")
            .split(',')
            .next_back(),
        Some("failed_calls=0")
    );
}

#[test]
fn a_transaction_stays_in_one_slot() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    client.call("SET {x}1 1").ok();
    client.call("MULTI").ok();
    assert_eq!(text(&client.call("GET a")), "QUEUED");
    assert_eq!(text(&client.call("GET b")), "QUEUED");
    assert_eq!(client.call("EXEC").error(), CROSS_SLOT);
    assert_eq!(client.call("EXEC").error(), "ERR EXEC without MULTI");
    client.call("MULTI").ok();
    assert_eq!(client.call("MGET a b").error(), CROSS_SLOT);
    assert_eq!(
        client.call("EXEC").error(),
        "EXECABORT Transaction discarded because of previous errors."
    );
    client.call("MULTI").ok();
    client.call("GET {x}1");
    client.call("CLUSTER GETKEYSINSLOT 16287 9");
    client.call("SELECT 1");
    let replies = client.call("EXEC");
    let [got, keys, refused] = replies.array() else {
        panic!("{replies:?}")
    };
    assert_eq!(
        (text(got), texts(keys.array())),
        ("1".into(), vec!["{x}1".into()])
    );
    assert_eq!(refused.error(), "ERR SELECT is not allowed in cluster mode");
}

#[test]
fn scripts_keep_to_the_slots_that_they_may_use() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    let in_script =
        "ERR Command 'mget' in script attempted to access keys that don't hash to the same slot";
    let several = "ERR Script attempted to access keys that do not hash to the same slot";
    let no_cluster = "ERR Can not run script on cluster, 'no-cluster' flag is set.";
    let two = "redis.call('get','b') return redis.call('get','c')";
    for (script, keys, refusal) in [
        ("return redis.call('get','b')", &[][..], None),
        (two, &[], None),
        ("return redis.call('get','b')", &["a"], None),
        ("return redis.call('mget','a','b')", &[], Some(in_script)),
        ("return redis.pcall('mget','a','b')", &[], Some(in_script)),
        (
            "#!lua\nredis.call('get','b') return redis.call('get','c')",
            &[],
            Some(several),
        ),
        ("#!lua\nreturn redis.call('get','b')", &["a"], Some(several)),
        ("#!lua\nreturn redis.call('get','{a}b')", &["a"], None),
        (
            "#!lua flags=allow-cross-slot-keys\nredis.call('get','b') return redis.call('get','c')",
            &[],
            None,
        ),
        (
            "#!lua flags=allow-cross-slot-keys\nreturn redis.call('mget','a', 'b')",
            &[],
            Some(in_script),
        ),
        (
            "#!lua flags=allow-cross-slot-keys\nreturn 1",
            &["a", "b"],
            Some(CROSS_SLOT),
        ),
        ("#!lua flags=no-cluster\nreturn 1", &[], Some(no_cluster)),
        (
            "#!lua flags=no-cluster,no-writes\nreturn 1",
            &[],
            Some(no_cluster),
        ),
        (
            "return redis.call('select','1')",
            &[],
            Some("ERR SELECT is not allowed in cluster mode"),
        ),
    ] {
        let count = keys.len().to_string();
        let words = [&["EVAL", script, &count], keys].concat();
        let reply = call(&mut client, &words);
        match refusal {
            None => assert_eq!(reply, Value::Nil, "{script}"),
            Some(line) => assert!(reply.error().starts_with(line), "{script}: {reply:?}"),
        }
    }
    let library = "#!lua name=l\nredis.register_function('f', function(keys) return redis.call('get', 'b') end)";
    call(&mut client, &["FUNCTION", "LOAD", library]);
    assert!(client.call("FCALL f 1 a").error().starts_with(several));
    assert_eq!(client.call("FCALL f 1 b"), Value::Nil);
    let count = "return redis.call('cluster','getkeysinslot','16287','5')";
    client.call("SET {x}1 1").ok();
    assert_eq!(
        texts(call(&mut client, &["EVAL", count, "0"]).array()),
        ["{x}1"]
    );
}

#[test]
fn there_is_one_database() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    client.call("SELECT 0").ok();
    client.call("SET {x}1 1").ok();
    for (call, refusal) in [
        ("SELECT 1", "ERR SELECT is not allowed in cluster mode"),
        ("SWAPDB 0 0", "ERR SWAPDB is not allowed in cluster mode"),
        ("MOVE a 0", "ERR MOVE is not allowed in cluster mode"),
        ("COPY {x}1 {x}4 DB 1", "ERR DB index is out of range"),
        (
            "COPY {x}1 {x}4 DB x",
            "ERR value is not an integer or out of range",
        ),
        (
            "REPLICAOF localhost 1",
            "ERR REPLICAOF not allowed in cluster mode.",
        ),
        (
            "SLAVEOF NO ONE",
            "ERR REPLICAOF not allowed in cluster mode.",
        ),
        (
            "FAILOVER",
            "ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.",
        ),
    ] {
        assert_eq!(client.call(call).error(), refusal, "{call}");
    }
    assert_eq!(client.call("COPY {x}1 {x}3 DB 0").integer(), 1);
}

#[test]
fn sort_looks_up_keys_of_its_own_slot_only() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    client.call("RPUSH a 1 2");
    let denied = |option: &str| {
        format!(
            "ERR {option} option of SORT denied in Cluster mode when keys formed by the pattern may be in different slots."
        )
    };
    for (call, option) in [
        ("SORT a BY w_* GET x_*", "BY"),
        ("SORT a BY {a*", "BY"),
        ("SORT a BY {}w_*", "BY"),
        ("SORT_RO a BY {b}w_*", "BY"),
        ("SORT a GET b", "GET"),
        ("SORT a GET {b}x_*->f", "GET"),
    ] {
        assert_eq!(client.call(call).error(), denied(option), "{call}");
    }
    for (call, replies) in [
        ("SORT a BY {a}w_*", 2),
        ("SORT a BY nosort GET #", 2),
        ("SORT a GET {a}x_*->f", 2),
        ("SORT a GET a", 2),
    ] {
        assert_eq!(client.call(call).array().len(), replies, "{call}");
    }
}

#[test]
fn keys_of_a_slot_are_counted_and_listed() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    client.call("MSET {x}1 1 {x}2 2 {x}3 3").ok();
    client.call("SET a 1").ok();
    assert_eq!(client.call("CLUSTER KEYSLOT {x}1").integer(), 16287);
    assert_eq!(client.call("CLUSTER COUNTKEYSINSLOT 16287").integer(), 3);
    assert_eq!(client.call("CLUSTER COUNTKEYSINSLOT 0").integer(), 0);
    let mut keys = texts(client.call("CLUSTER GETKEYSINSLOT 16287 10").array());
    keys.sort();
    assert_eq!(keys, ["{x}1", "{x}2", "{x}3"]);
    assert_eq!(
        client.call("CLUSTER GETKEYSINSLOT 16287 2").array().len(),
        2
    );
    assert_eq!(
        client.call("CLUSTER GETKEYSINSLOT 16287 0").array().len(),
        0
    );
    let stats = |client: &mut Client, call: &str| -> Vec<(i64, i64)> {
        let reply = client.call(&format!("CLUSTER SLOT-STATS {call}"));
        let rows = reply.array().iter();
        rows.map(|row| {
            (
                row.array()[0].integer(),
                row.array()[1].array()[1].integer(),
            )
        })
        .collect()
    };
    let by_keys = |rest: &str| format!("ORDERBY KEY-COUNT {rest}");
    assert_eq!(
        stats(&mut client, "SLOTSRANGE 16286 16287"),
        [(16286, 0), (16287, 3)]
    );
    let most = [(16287, 3), (15495, 1), (0, 0)];
    assert_eq!(stats(&mut client, &by_keys("LIMIT 3")), most);
    assert_eq!(stats(&mut client, &by_keys("LIMIT 3 DESC")), most);
    assert_eq!(
        stats(&mut client, &by_keys("ASC LIMIT 3")),
        [(0, 0), (1, 0), (2, 0)]
    );
    for (call, refusal) in [
        ("COUNTKEYSINSLOT 16384", "Invalid slot"),
        ("COUNTKEYSINSLOT -1", "Invalid slot"),
        (
            "COUNTKEYSINSLOT x",
            "value is not an integer or out of range",
        ),
        ("GETKEYSINSLOT 0 -1", "Invalid slot or number of keys"),
        ("GETKEYSINSLOT 16384 1", "Invalid slot or number of keys"),
        (
            "GETKEYSINSLOT x 1",
            "value is not an integer or out of range",
        ),
        (
            "SLOT-STATS SLOTSRANGE 5 1",
            "Start slot number 5 is greater than end slot number 1",
        ),
        (
            "SLOT-STATS SLOTSRANGE 0 16384",
            "Invalid or out of range slot",
        ),
        (
            "SLOT-STATS SLOTSRANGE 1 2 3",
            "unknown subcommand or wrong number of arguments for 'SLOT-STATS'. Try CLUSTER HELP.",
        ),
        (
            "SLOT-STATS ORDERBY cpu-usec",
            "Unrecognized sort metric for ORDERBY.",
        ),
        (
            "SLOT-STATS ORDERBY KEY-COUNT LIMIT 0",
            "Limit has to lie in between 1 and 16384 (maximum number of slots).",
        ),
        (
            "SLOT-STATS ORDERBY KEY-COUNT LIMIT 3 LIMIT 4",
            "Multiple filters of the same type are disallowed.",
        ),
        ("SLOT-STATS ORDERBY KEY-COUNT FOO 3", "syntax error"),
    ] {
        let reply = client.call(&format!("CLUSTER {call}"));
        assert_eq!(reply.error(), format!("ERR {refusal}"), "{call}");
    }
}

#[test]
fn slots_that_were_given_away_are_not_served() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    client.call("SET a 1").ok();
    client.call("CLUSTER DELSLOTS 15495 3").ok();
    let state = |client: &mut Client| {
        let info = text(&client.call("CLUSTER INFO"));
        info.lines().take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        state(&mut client),
        "cluster_state:fail cluster_slots_assigned:16382"
    );
    assert_eq!(client.call("GET a").error(), NOT_SERVED);
    assert_eq!(client.call("MGET a b").error(), NOT_SERVED);
    for call in ["GET b", "MGET b {b}1", "SET b 1", "EVAL return 1 b"] {
        assert_eq!(client.call(call).error(), DOWN, "{call}");
    }
    assert_eq!(client.call("MGET b a").error(), CROSS_SLOT);
    let down = "ERR Script attempted to execute a command while the cluster is down";
    let script = "return redis.call('get','b')";
    assert!(
        call(&mut client, &["EVAL", script, "0"])
            .error()
            .starts_with(down)
    );
    assert_eq!(text(&client.call("PING")), "PONG");
    client.call("MULTI").ok();
    assert_eq!(client.call("GET b").error(), DOWN);
    assert!(client.call("EXEC").error().starts_with("EXECABORT"));
    // Another worker's clients see it, too.
    let mut other = Client::connect(&server);
    assert_eq!(other.call("GET b").error(), DOWN);
    // Channels are served, unless they may not be.
    assert_eq!(client.call("SPUBLISH b m").integer(), 0);
    set(&mut client, "cluster-allow-pubsubshard-when-down", "no");
    assert_eq!(client.call("SPUBLISH b m").error(), DOWN);
    set(&mut client, "cluster-allow-reads-when-down", "yes");
    assert_eq!(other.call("GET b"), Value::Nil);
    let read_only = "CLUSTERDOWN The cluster is down and only accepts read commands";
    assert_eq!(other.call("SET b 1").error(), read_only);
    set(&mut client, "cluster-require-full-coverage", "no");
    assert_eq!(
        state(&mut client),
        "cluster_state:ok cluster_slots_assigned:16382"
    );
    other.call("SET b 1").ok();
    assert_eq!(client.call("SPUBLISH b m").integer(), 0);
    assert_eq!(other.call("GET a").error(), NOT_SERVED);
    let unserved = "ERR Script attempted to access a slot not served";
    let script = "return redis.call('get','a')";
    assert!(
        call(&mut client, &["EVAL", script, "0"])
            .error()
            .starts_with(unserved)
    );
    let nodes = text(&client.call("CLUSTER NODES"));
    assert!(
        nodes.ends_with("connected 0-2 4-15494 15496-16383\n"),
        "{nodes}"
    );
    client.call("CLUSTER ADDSLOTSRANGE 3 3 15495 15495").ok();
    assert_eq!(text(&other.call("GET a")), "1");
    assert_eq!(
        state(&mut client),
        "cluster_state:ok cluster_slots_assigned:16384"
    );
}

#[test]
fn a_queued_transaction_is_judged_by_the_slots_of_its_end() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    let mut other = Client::connect(&server);
    set(&mut client, "cluster-require-full-coverage", "no");
    client.call("MULTI").ok();
    assert_eq!(text(&client.call("SET a 1")), "QUEUED");
    other.call("CLUSTER DELSLOTS 15495").ok();
    assert_eq!(client.call("EXEC").error(), NOT_SERVED);
    other.call("CLUSTER SETSLOT 15495 NODE x").error();
    let id = text(&other.call("CLUSTER MYID"));
    other.call(&format!("CLUSTER SETSLOT 15495 NODE {id}")).ok();
    assert_eq!(client.call("GET a"), Value::Nil);
}

/// While clients write by all paths, their slot comes and goes: each write is either done and counted, or refused; and
/// none is done while the slot is seen to be nobody's.
#[test]
fn no_acknowledged_write_is_lost_while_its_slot_comes_and_goes() {
    const ROUNDS: usize = 100;
    let (server, _folder) = node();
    let server = Arc::new(server);
    let mut admin = Client::connect(&server);
    set(&mut admin, "cluster-require-full-coverage", "no");
    let writers: Vec<_> = (0..3)
        .map(|number| {
            let server = server.clone();
            thread::spawn(move || {
                let mut client = Client::connect(&server);
                let call = match number {
                    0 => "INCR {a}n",
                    1 => "EVAL return(redis.call('incr',KEYS[1])) 1 {a}n",
                    _ => "",
                };
                let mut done = 0;
                loop {
                    let reply = if call.is_empty() {
                        client.call("MULTI").ok();
                        client.call("INCR {a}n");
                        client.call("EXEC")
                    } else {
                        client.call(call)
                    };
                    match reply {
                        Value::Error(line)
                            if line == NOT_SERVED || line.starts_with("EXECABORT") => {}
                        Value::Error(line) => panic!("{line}"),
                        _ => done += 1,
                    }
                    if client.call("EXISTS end") == Value::Integer(1) {
                        return done;
                    }
                }
            })
        })
        .collect();
    for _ in 0..ROUNDS {
        admin.call("CLUSTER DELSLOTS 15495").ok();
        // Read without the slot: by its keys.
        let count = |admin: &mut Client| admin.call("DEBUG DIGEST-VALUE {a}n");
        let before = count(&mut admin);
        let after = count(&mut admin);
        assert_eq!(before, after);
        admin.call("CLUSTER ADDSLOTS 15495").ok();
    }
    admin.call("SET end 1").ok();
    let done: i64 = writers
        .into_iter()
        .map(|writer| writer.join().unwrap())
        .sum();
    assert_eq!(admin.call("GET {a}n").integer(), done);
    assert!(done > 0);
}

#[test]
fn changes_of_the_cluster_are_refused_in_redis_s_words() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    let id = text(&client.call("CLUSTER MYID"));
    let own = |call: &str| format!("{call} {id}");
    for (call, refusal) in [
        ("ADDSLOTS 0".to_owned(), "Slot 0 is already busy"),
        ("ADDSLOTS 16384".into(), "Invalid or out of range slot"),
        ("ADDSLOTS x".into(), "Invalid or out of range slot"),
        (
            "ADDSLOTSRANGE 5 4".into(),
            "start slot number 5 is greater than end slot number 4",
        ),
        (
            "ADDSLOTSRANGE 1 2 3".into(),
            "wrong number of arguments for 'cluster|addslotsrange' command",
        ),
        ("DELSLOTS 5 5".into(), "Slot 5 specified multiple times"),
        (
            "DELSLOTSRANGE 3 4 9 8".into(),
            "start slot number 9 is greater than end slot number 8",
        ),
        (
            "DELSLOTSRANGE 3 4 4 8".into(),
            "Slot 4 specified multiple times",
        ),
        ("MEET x 1".into(), "Invalid node address specified: x:1"),
        ("MEET 1.2.3.4 x".into(), "Invalid base port specified: x"),
        (
            "MEET 127.0.0.1 99999".into(),
            "Invalid node address specified: 127.0.0.1:99999",
        ),
        ("MEET 127.0.0.1 1 x".into(), "Invalid bus port specified: x"),
        ("REPLICATE x".into(), "Unknown node x"),
        (own("REPLICATE"), "Can't replicate myself"),
        ("FORGET x".into(), "Unknown node x"),
        (own("FORGET"), "I tried hard but I can't forget myself..."),
        ("REPLICAS x".into(), "Unknown node x"),
        ("COUNT-FAILURE-REPORTS x".into(), "Unknown node x"),
        (
            "FAILOVER".into(),
            "You should send CLUSTER FAILOVER to a replica",
        ),
        ("FAILOVER x".into(), "syntax error"),
        ("RESET foo".into(), "syntax error"),
        (
            "SET-CONFIG-EPOCH x".into(),
            "value is not an integer or out of range",
        ),
        (
            "SET-CONFIG-EPOCH -1".into(),
            "Invalid config epoch specified: -1",
        ),
        (
            "SET-CONFIG-EPOCH 5".into(),
            "Node config epoch is already non-zero",
        ),
        ("SETSLOT 1 NODE x".into(), "Unknown node x"),
        ("SETSLOT 0 MIGRATING x".into(), "I don't know about node x"),
        (
            "SETSLOT 0 IMPORTING x".into(),
            "I'm already the owner of hash slot 0",
        ),
        (
            "SETSLOT 99999 STABLE".into(),
            "Invalid or out of range slot",
        ),
        (
            "SETSLOT 1 foo".into(),
            "Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP",
        ),
    ] {
        let reply = client.call(&format!("CLUSTER {call}"));
        assert_eq!(reply.error(), format!("ERR {refusal}"), "{call}");
    }
    client.call("CLUSTER SETSLOT 0 STABLE").ok();
    client.call("CLUSTER SAVECONFIG").ok();
    assert_eq!(text(&client.call("CLUSTER BUMPEPOCH")), "STILL 1");
    client.call("SET a 1").ok();
    let filled = "ERR CLUSTER RESET can't be called with master nodes containing keys";
    assert_eq!(client.call("CLUSTER RESET").error(), filled);
    let filled = "ERR DB must be empty to perform CLUSTER FLUSHSLOTS.";
    assert_eq!(client.call("CLUSTER FLUSHSLOTS").error(), filled);
    client.call("FLUSHALL").ok();
    client.call("CLUSTER FLUSHSLOTS").ok();
    assert_eq!(
        client.call("CLUSTER DELSLOTS 0").error(),
        "ERR Slot 0 is already unassigned"
    );
    assert_eq!(
        client.call("CLUSTER SETSLOT 0 MIGRATING x").error(),
        "ERR I'm not the owner of hash slot 0"
    );
    client.call("CLUSTER ADDSLOTSRANGE 0 16383").ok();
    client.call("CLUSTER RESET SOFT").ok();
    assert_eq!(client.call("SET a 1").error(), NOT_SERVED);
}

#[test]
fn a_node_alone_empties_a_slot_and_moves_none() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    client.call("MSET {a}1 1 {a}2 2").ok();
    client.call("SET b 1").ok();
    let slot = client.call("CLUSTER KEYSLOT a").integer();
    client.call(&format!("CLUSTER FLUSHSLOT {slot} SYNC")).ok();
    assert_eq!(client.call("DBSIZE").integer(), 1);
    client.call("MULTI").ok();
    for call in ["SET {a}1 1".to_owned(), format!("CLUSTER FLUSHSLOT {slot}")] {
        assert_eq!(text(&client.call(&call)), "QUEUED");
    }
    client.call("EXEC");
    assert_eq!(client.call("DBSIZE").integer(), 1);
    let id = text(&client.call("CLUSTER MYID"));
    let alone =
        "ERR this node keeps its cluster in a file; start it with --cluster-etcd to join others";
    for (call, why) in [
        (
            "FLUSHSLOT 16384".to_owned(),
            "ERR Invalid or out of range slot",
        ),
        ("FLUSHSLOT 1 foo".to_owned(), "ERR syntax error"),
        (
            format!("MIGRATESLOTS SLOTSRANGE 1 0 NODE {id}"),
            "ERR Start slot number 1 is greater than end slot number 0.",
        ),
        (
            "MIGRATESLOTS SLOTSRANGE 0 1 NODE x".to_owned(),
            "ERR Invalid node name: x",
        ),
        (
            format!("MIGRATESLOTS SLOTSRANGE 0 1 1 2 NODE {id}"),
            "ERR Slot range 1-2 overlaps with a previous range.",
        ),
        (format!("MIGRATESLOTS SLOTSRANGE 0 1 NODE {id}"), alone),
        ("CANCELSLOTMIGRATIONS".to_owned(), alone),
        ("MIGRATION IMPORT 0 1".to_owned(), alone),
        ("MIGRATION STATUS foo".to_owned(), "ERR syntax error"),
        (
            "SYNCSLOTS SEE".to_owned(),
            "ERR only a node of the cluster may say that",
        ),
    ] {
        let reply = client.call(&format!("CLUSTER {call}"));
        assert_eq!(reply.error(), why, "{call}");
    }
    for call in ["GETSLOTMIGRATIONS", "MIGRATION STATUS ALL"] {
        let reply = client.call(&format!("CLUSTER {call}"));
        assert_eq!(reply, Value::Array(Vec::new()), "{call}");
    }
}

#[test]
fn clients_are_told_the_way_that_is_announced() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    let told = |client: &mut Client| {
        let slots = client.call("CLUSTER SLOTS");
        let node = slots.array()[0].array()[2].array().to_vec();
        let host = match &node[0] {
            Value::Nil => "nil".to_owned(),
            host => text(host),
        };
        (host, node[1].integer(), texts(node[3].array()))
    };
    let port = i64::from(server.port());
    set(&mut client, "cluster-announce-ip", "1.2.3.4");
    assert_eq!(told(&mut client), ("1.2.3.4".into(), port, vec![]));
    set(&mut client, "cluster-announce-hostname", "h.example");
    let named = vec!["hostname".to_owned(), "h.example".into()];
    let addressed = vec!["ip".to_owned(), "1.2.3.4".into()];
    assert_eq!(told(&mut client), ("1.2.3.4".into(), port, named.clone()));
    let nodes = text(&client.call("CLUSTER NODES"));
    assert!(
        nodes.contains(&format!(" 1.2.3.4:{port}@0,h.example myself")),
        "{nodes}"
    );
    set(&mut client, "cluster-preferred-endpoint-type", "hostname");
    assert_eq!(
        told(&mut client),
        ("h.example".into(), port, addressed.clone())
    );
    let shards = client.call("CLUSTER SHARDS");
    let node = shards.array()[0].array()[3].array()[0].array().to_vec();
    let of = |name: &str| {
        let at = node
            .iter()
            .position(|word| *word == Value::Bulk(name.into()));
        text(&node[at.unwrap() + 1])
    };
    assert_eq!(
        (of("endpoint"), of("hostname")),
        ("h.example".into(), "h.example".into())
    );
    set(
        &mut client,
        "cluster-preferred-endpoint-type",
        "unknown-endpoint",
    );
    let both = [addressed.clone(), named].concat();
    assert_eq!(told(&mut client), ("nil".into(), port, both));
    set(&mut client, "cluster-announce-hostname", "");
    set(&mut client, "cluster-preferred-endpoint-type", "hostname");
    set(&mut client, "cluster-announce-port", "7777");
    assert_eq!(told(&mut client), ("?".into(), 7777, addressed));
    // The port of clients with TLS, of which there are none.
    set(&mut client, "cluster-announce-tls-port", "7778");
    assert_eq!(told(&mut client).1, 7777);
}

#[test]
fn sessions_may_ask_for_reads_of_replicas() {
    let (server, _folder) = node();
    let mut client = Client::connect(&server);
    let flags = |client: &mut Client| {
        let info = text(&client.call("CLIENT INFO"));
        let flags = info.split(' ').find_map(|word| word.strip_prefix("flags="));
        flags.unwrap().to_owned()
    };
    client.call("READONLY").ok();
    assert_eq!(flags(&mut client), "r");
    client.call("SET a 1").ok();
    client.call("READWRITE").ok();
    assert_eq!(flags(&mut client), "N");
    client.call("READONLY").ok();
    client.call("RESET");
    assert_eq!(flags(&mut client), "N");
    client.call("ASKING").ok();
    assert_eq!(text(&client.call("GET a")), "1");
}

#[test]
fn a_node_comes_back_with_its_id_its_slots_and_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump.rdb");
    let saved = || {
        settings(folder.path()).with(|settings| {
            settings.db_filename = dump.to_str().unwrap().into();
        })
    };
    let server = start(saved());
    let mut client = Client::connect(&server);
    let id = text(&client.call("CLUSTER MYID"));
    client.call("MSET {x}1 1 {x}2 2").ok();
    client.call("SAVE").ok();
    client.call("CLUSTER DELSLOTS 0").ok();
    drop((client, server));
    let server = start(saved());
    assert!(server.wait_until_loaded());
    let mut client = Client::connect(&server);
    assert_eq!(client.call("CLUSTER COUNTKEYSINSLOT 16287").integer(), 2);
    assert_eq!(client.call("GET {x}1").error(), DOWN);
    client.call("CLUSTER ADDSLOTS 0").ok();
    assert_eq!(text(&client.call("GET {x}2")), "2");
    client.call("CLUSTER DELSLOTS 0").ok();
    assert_eq!(text(&client.call("CLUSTER MYID")), id);
    let nodes = text(&client.call("CLUSTER NODES"));
    assert!(nodes.ends_with(" 0 0 2 connected 1-16383\n"), "{nodes}");
    let second = Server::start(saved(), Origin::default(), false);
    let error = second.err().expect("the file is in use").to_string();
    assert!(error.contains("another node uses this file"), "{error}");
}

#[test]
fn a_node_cannot_be_told_to_follow_at_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path()).with(|settings| {
        settings.primary = Some(("127.0.0.1".into(), 1));
    });
    let error = Server::start(settings, Origin::default(), false).err();
    let error = error.expect("it is refused").to_string();
    assert_eq!(error, "replicaof directive not allowed in cluster mode");
}
