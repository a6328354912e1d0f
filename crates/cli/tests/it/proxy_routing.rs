//! `redline proxy` as a process: the server for each command. Recording servers show it.
//!
//! Every row of predixy's table of routes, and the test of its commands here:
//!
//! | row | shown by |
//! |---|---|
//! | answered by the proxy | `what_the_proxy_answers_is_asked_of_no_server`, `proxy.rs`: `databases_protocols_and_names_are_each_clients_own` |
//! | inline requests | `inline_requests_go_the_same_ways` |
//! | a single key | `a_command_of_one_key_goes_to_the_server_of_that_key`, `proxy_reads.rs`: `what_redis_flags_as_reading_goes_to_replicas_and_all_else_to_the_primary` |
//! | several keys, not split | `keys_of_one_call_are_all_on_one_server_or_it_is_refused` |
//! | EVAL, EVALSHA | `keys_behind_a_count_or_a_word_are_found` |
//! | split per key | `a_call_of_many_keys_is_one_call_to_each_server`, `proxy.rs`: `calls_of_many_keys_are_cut_by_server_and_put_together` |
//! | SCRIPT LOAD | `what_concerns_all_servers_is_asked_of_each`, `proxy_faults.rs`: `scripts_are_loaded_while_a_server_is_down` |
//! | SCAN | `proxy.rs`: as above; `a_cursor_that_nobody_gave_is_refused_or_an_end`, `a_scan_that_began_before_one_node_goes_on_when_a_second_comes` |
//! | RANDOMKEY | `a_random_key_is_found_wherever_there_is_one` |
//! | BLPOP and its kin | `each_call_that_waits_has_a_connection_of_its_own`, `proxy_faults.rs`: `a_call_that_waits_holds_nobody_else_up` |
//! | WATCH, MULTI, EXEC, DISCARD, UNWATCH | `proxy.rs`: `transactions_find_their_server_by_their_first_key`; in a cluster: `cargo xtask compat through` |
//! | SUBSCRIBE, PSUBSCRIBE, and back | `proxy.rs`: `what_is_published_reaches_all_subscribers_whatever_the_server`, `a_subscribed_client_is_answered_as_redis_answers_it` |
//! | PUBLISH | the same, and `keys_behind_a_count_or_a_word_are_found` |
//! | PUBSUB | `what_is_heard_is_counted_over_all_servers` |
//! | refused there: unknown commands, arity | `what_the_proxy_answers_is_asked_of_no_server`; what predixy does not know is in the rows above, by COMMAND |

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use crate::proxying::{
    Behind, REDLINE, assert_error, bulk, call, commands_of_keys, ok, proxy_with, scripted, until,
    words,
};

const SERVERS: usize = 3;
/// Split by server.
const SPLIT: [&str; 8] = [
    "del",
    "exists",
    "json.mget",
    "json.mset",
    "mget",
    "mset",
    "touch",
    "unlink",
];
/// A key whose server refuses calls.
const REFUSED: &str = "refused";

/// A call, and the server that got it.
type Seen = (usize, Vec<String>);

/// Servers that record their calls, and a proxy in front of them.
struct Ledger {
    client: Client,
    seen: Arc<Mutex<Vec<Seen>>>,
    proxy: ServerProcess,
    /// A hash tag for each server.
    tags: Vec<String>,
}

impl Ledger {
    fn new() -> Ledger {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let addresses: Vec<_> = (0..SERVERS)
            .map(|server| {
                let seen = Arc::clone(&seen);
                scripted(move |words| {
                    let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
                    let mut words: Vec<String> = words.iter().map(text).collect();
                    words[0].make_ascii_lowercase();
                    let reply = recorded(&words);
                    // Probes of availability have no argument.
                    if words != ["ping"] {
                        seen.lock().unwrap().push((server, words));
                    }
                    reply
                })
            })
            .collect();
        let proxy = ServerProcess::proxy(
            Path::new(REDLINE),
            &addresses,
            &["--threads".to_owned(), "1".to_owned()],
        )
        .expect("the proxy starts");
        let client = Client::connect(proxy.address()).unwrap();
        let mut ledger = Ledger {
            client,
            seen,
            proxy,
            tags: vec![String::new(); SERVERS],
        };
        for number in 0.. {
            let tag = format!("{{t{number}}}");
            let servers = ledger.asked(&["set", &tag, "v"]).1;
            assert_eq!(servers.len(), 1, "{tag}");
            ledger.tags[servers[0]] = tag;
            if ledger.tags.iter().all(|tag| !tag.is_empty()) {
                return ledger;
            }
        }
        unreachable!("there are enough keys");
    }

    /// Returns the reply to a call, and the servers that got it.
    fn asked(&mut self, words: &[&str]) -> (Value, Vec<usize>) {
        let mut request = Vec::new();
        encode(words, &mut request);
        self.asked_for(&request, words[0])
    }

    /// Returns the same for a request of any form.
    fn asked_for(&mut self, request: &[u8], name: &str) -> (Value, Vec<usize>) {
        self.seen.lock().unwrap().clear();
        self.client.send(request).unwrap();
        let reply = self.client.reply().unwrap().expect("a reply");
        let seen = self.seen.lock().unwrap();
        let own = seen.iter().filter(|(_, words)| words[0] == name);
        let mut servers: Vec<usize> = own.map(|(server, _)| *server).collect();
        servers.sort_unstable();
        (reply, servers)
    }
}

/// Returns the reply of such a server.
fn recorded(words: &[String]) -> Vec<u8> {
    let keys = words.len() - 1;
    let reply = match words[0].as_str() {
        _ if words[1..].iter().any(|word| word.contains(REFUSED)) => "-OOM not now\r\n".to_owned(),
        "ping" => "+PONG\r\n".to_owned(),
        "dbsize" => ":2\r\n".to_owned(),
        "keys" => "*1\r\n$1\r\nk\r\n".to_owned(),
        "mget" => format!("*{keys}\r\n{}", "$1\r\nv\r\n".repeat(keys)),
        // Its last word is a path.
        "json.mget" => format!("*{}\r\n{}", keys - 1, "$1\r\nv\r\n".repeat(keys - 1)),
        "del" | "exists" | "touch" | "unlink" => format!(":{keys}\r\n"),
        _ => "+OK\r\n".to_owned(),
    };
    reply.into_bytes()
}

#[test]
fn a_command_of_one_key_goes_to_the_server_of_that_key() {
    let mut ledger = Ledger::new();
    let commands = commands_of_keys();
    let single = commands
        .iter()
        .filter(|told| told.last == told.first as i64);
    let mut count = 0;
    for told in single {
        for (server, tag) in ledger.tags.clone().iter().enumerate() {
            let key = format!("{tag}:{}", told.name);
            let mut words = vec![told.name.as_str(); told.words.max(told.first + 1)];
            words[1..].fill("x");
            words[told.first] = &key;
            let (reply, servers) = ledger.asked(&words);
            assert_eq!((reply, servers), (ok(), vec![server]), "{words:?}");
        }
        count += 1;
    }
    assert!(count > 100, "{count}");
}

#[test]
fn keys_of_one_call_are_all_on_one_server_or_it_is_refused() {
    let mut ledger = Ledger::new();
    let commands = commands_of_keys();
    let several = commands
        .iter()
        .filter(|told| told.last != told.first as i64 && !SPLIT.contains(&told.name.as_str()));
    let mut count = 0;
    for told in several {
        // Room for two keys at least.
        let len = match told.last {
            0.. => told.words.max(told.words_to_last()),
            _ => told.words.max(told.words_to_last() + 2 * told.step - 1),
        };
        let end = match told.last {
            0.. => told.last as usize,
            behind => (len as i64 + behind) as usize,
        };
        for server in 0..SERVERS {
            for other in 0..SERVERS {
                let key = |server: usize| format!("{}:{}", ledger.tags[server], told.name);
                let keys = [key(server), key(other)];
                let mut words = vec![told.name.as_str(); len];
                words[1..].fill("x");
                for at in (told.first..=end).step_by(told.step) {
                    words[at] = &keys[usize::from(at != told.first)];
                }
                let (reply, servers) = ledger.asked(&words);
                if server == other {
                    assert_eq!((reply, servers), (ok(), vec![server]), "{words:?}");
                } else {
                    assert_error(&reply, "CROSSSLOT");
                    assert_eq!(servers, [0; 0], "{words:?}");
                }
            }
        }
        count += 1;
    }
    assert!(count > 15, "{count}");
}

#[test]
fn keys_behind_a_count_or_a_word_are_found() {
    let mut ledger = Ledger::new();
    for (server, tag) in ledger.tags.clone().iter().enumerate() {
        for line in [
            "eval s 1 <k> x",
            "eval_ro s 2 <k> <k>",
            "evalsha 0123456789012345678901234567890123456789 1 <k> x",
            "evalsha_ro 0123456789012345678901234567890123456789 2 <k> <k>",
            "fcall f 1 <k>",
            "fcall_ro f 1 <k> x",
            "zunion 2 <k> <k>",
            "zinter 1 <k>",
            "zdiff 1 <k>",
            "zunionstore <k> 2 <k> <k>",
            "zintercard 1 <k>",
            "sintercard 2 <k> <k>",
            "lmpop 1 <k> LEFT",
            "zmpop 2 <k> <k> MIN",
            "sort <k> BY nosort STORE <k>",
            "sort_ro <k> ALPHA",
            "sort_ro <k> BY w_<k>_* GET # GET <k>*->f GET none",
            "xread COUNT 1 STREAMS <k> 0",
            "xreadgroup GROUP g c STREAMS <k> >",
            "georadius <k> 1 1 1 m STORE <k>",
            "georadiusbymember <k> x 1 m STOREDIST <k>",
            "object ENCODING <k>",
            "xinfo STREAM <k>",
            "xgroup CREATE <k> g 0",
            "memory USAGE <k>",
            "publish <k> m",
            "spublish <k> m",
        ] {
            let line = line.replace("<k>", tag);
            let words: Vec<&str> = line.split(' ').collect();
            let (reply, servers) = ledger.asked(&words);
            assert_eq!((reply, servers), (ok(), vec![server]), "{line}");
        }
        // If a script's keys are not known, it is always the same server, whatever its arguments are.
        for name in [
            "eval",
            "evalsha",
            "eval_ro",
            "evalsha_ro",
            "fcall",
            "fcall_ro",
        ] {
            let (_, servers) = ledger.asked(&[name, "s", "0", tag]);
            assert_eq!(servers, [0], "{name}");
        }
    }
    let [one, other] = [&ledger.tags[0].clone(), &ledger.tags[1].clone()];
    // A pattern without matches there would look like a missing key.
    for line in [
        "sort <k> BY w_*",
        "sort <k> LIMIT 0 1 GET w_*",
        "sort <k> STORE <k> by w_<l>_*",
        "sort_ro <k> GET w_*<k>",
        "sort_ro <k> BY w_<k>* GET w_*->f",
    ] {
        let line = line.replace("<k>", one).replace("<l>", other);
        let words: Vec<&str> = line.split(' ').collect();
        let (reply, servers) = ledger.asked(&words);
        assert!(reply.is_error(), "{line}: {reply:?}");
        assert_eq!(servers, [0; 0], "{line}");
    }
    for line in [
        "eval s 2 <k> <l>",
        "zunion 2 <k> <l>",
        "zunionstore <k> 1 <l>",
        "lmpop 2 <k> <l> LEFT",
        "sort <k> STORE <l>",
        "xread STREAMS <k> <l> 0 0",
        "georadius <k> 1 1 1 m STORE <l>",
    ] {
        let line = line.replace("<k>", one).replace("<l>", other);
        let words: Vec<&str> = line.split(' ').collect();
        let (reply, servers) = ledger.asked(&words);
        assert!(reply.is_error(), "{line}: {reply:?}");
        assert_eq!(servers, [0; 0], "{line}");
    }
}

#[test]
fn what_concerns_all_servers_is_asked_of_each() {
    let mut ledger = Ledger::new();
    let all: Vec<usize> = (0..SERVERS).collect();
    for line in [
        "dbsize",
        "keys *",
        "flushall",
        "flushdb ASYNC",
        "script FLUSH",
        "script LOAD s",
        "script KILL",
        "function LOAD x",
        "function FLUSH",
        "randomkey",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(ledger.asked(&words).1, all, "{line}");
    }
    // One after the other, by the cursor.
    assert_eq!(ledger.asked(&["scan", "0"]).1.len(), 1);
}

#[test]
fn a_transaction_calls_scripts_that_its_server_has_lost() {
    let behind = Behind::new(3, 1);
    let mut client = behind.client();
    let sha = call(&mut client, "SCRIPT LOAD return{KEYS[1],ARGV[1]}");
    let sha = String::from_utf8(sha.as_bytes().unwrap().to_vec()).unwrap();
    let done = Value::Array(vec![bulk("k"), bulk("x")]);
    for begin in [&["MULTI"][..], &["WATCH k"], &["WATCH k", "MULTI"]] {
        for server in &behind.servers {
            let mut direct = Client::connect(server.address()).unwrap();
            assert_eq!(call(&mut direct, "SCRIPT FLUSH"), ok());
        }
        for line in begin {
            assert_eq!(call(&mut client, line), ok());
        }
        let called = call(&mut client, &format!("EVALSHA {sha} 1 k x"));
        match begin.contains(&"MULTI") {
            true => {
                assert_eq!(called, Value::Simple(b"QUEUED".to_vec()));
                let all = Value::Array(vec![done.clone()]);
                assert_eq!(call(&mut client, "EXEC"), all, "{begin:?}");
            }
            false => {
                assert_eq!(called, done, "{begin:?}");
                assert_eq!(call(&mut client, "UNWATCH"), ok());
            }
        }
    }
}

#[test]
fn what_the_proxy_answers_is_asked_of_no_server() {
    let mut ledger = Ledger::new();
    for line in [
        "ping x",
        "echo x",
        "auth x",
        "select 3",
        "info",
        "info x",
        "config GET *",
        "config SET maxclients x",
        "hello 3",
        "client ID",
        "client SETNAME me",
        "cluster INFO",
        "slowlog GET",
        "latency LATEST",
        "acl WHOAMI",
        "time",
        "readonly",
        "reset",
        // Refused commands are refused here.
        "get",
        "get k v",
        "mset k",
        "eval s",
        "blpop k",
        "script NOSUCH",
        "nosuch k",
        "wait 1 0",
        "swapdb 0 1",
        "migrate h 1 k 0 1",
        "shutdown",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(ledger.asked(&words).1, [0; 0], "{line}");
    }
    // One of the servers lists the commands.
    assert_eq!(ledger.asked(&["command", "COUNT"]).1.len(), 1);
    // SELECT is kept here, and servers get it on new connections only.
    assert_eq!(ledger.asked(&["select", "3"]), (ok(), Vec::new()));
    let key = ledger.tags[1].clone();
    assert_eq!(ledger.asked(&["get", &key]), (ok(), vec![1]));
    let selected = vec!["select".to_owned(), "3".to_owned()];
    assert!(ledger.seen.lock().unwrap().contains(&(1, selected)));
    assert_eq!(ledger.asked(&["get", &key]), (ok(), vec![1]));
    assert_eq!(ledger.seen.lock().unwrap().len(), 1);
    assert_eq!(ledger.asked(&["quit"]), (ok(), Vec::new()));
    assert_eq!(ledger.client.reply().unwrap(), None);
}

#[test]
fn inline_requests_go_the_same_ways() {
    let mut ledger = Ledger::new();
    for (server, tag) in ledger.tags.clone().iter().enumerate() {
        for line in [
            "get <k>",
            "set <k> \"a b\"",
            "  set   '<k>'  v  ",
            "eval s 1 \"<k>\"",
            "bitop AND <k> <k>",
            "blpop <k> 0",
            "mget <k>",
            "publish <k> m",
            "xread COUNT 1 STREAMS <k> 0",
        ] {
            let line = line.replace("<k>", tag);
            let name = line.split_whitespace().next().unwrap();
            for end in ["\r\n", "\n"] {
                let (reply, servers) = ledger.asked_for(format!("{line}{end}").as_bytes(), name);
                assert!(!reply.is_error(), "{line}: {reply:?}");
                assert_eq!(servers, [server], "{line}");
            }
        }
    }
    let all = ledger.tags.join(" ");
    let (reply, servers) = ledger.asked_for(format!("del {all}\r\n").as_bytes(), "del");
    assert_eq!((reply, servers), (Value::Integer(3), vec![0, 1, 2]));
    for line in ["ping", "select 3", "info", "config get *", "quit"] {
        let (reply, servers) = ledger.asked_for(format!("{line}\r\n").as_bytes(), "select");
        assert!(!reply.is_error() && servers.is_empty(), "{line}: {reply:?}");
    }
    assert_eq!(ledger.client.reply().unwrap(), None);
}

#[test]
fn a_call_of_many_keys_is_one_call_to_each_server() {
    let mut ledger = Ledger::new();
    let tags = ledger.tags.clone();
    // Of each server four, in turn.
    let keys: Vec<String> = (0..12).map(|at| format!("{}:{at}", tags[at % 3])).collect();
    for name in SPLIT {
        let step = match name {
            "json.mset" => 3,
            "mset" => 2,
            _ => 1,
        };
        let call_of = |keys: &[String]| {
            let mut words = vec![name.to_owned()];
            for key in keys {
                words.push(key.clone());
                words.extend((1..step).map(|_| format!("of {key}")));
            }
            words.extend((name == "json.mget").then(|| "$".to_owned()));
            words
        };
        let expected = |count: usize| match name {
            "json.mget" | "mget" => Value::Array(vec![bulk("v"); count]),
            "json.mset" | "mset" => ok(),
            _ => Value::Integer(count as i64),
        };
        let words = call_of(&keys);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let asked = ledger.asked(&words);
        assert_eq!(asked, (expected(12), vec![0, 1, 2]), "{name}");
        let mut seen = ledger.seen.lock().unwrap().clone();
        seen.sort();
        let parts = (0..SERVERS).map(|server| {
            let own: Vec<String> = keys.iter().skip(server).step_by(3).cloned().collect();
            (server, call_of(&own))
        });
        assert_eq!(seen, parts.collect::<Vec<_>>());
        // A call of one server passes unchanged, and a key that is named twice is there twice.
        let own = [&keys[1], &keys[4], &keys[1]].map(String::clone);
        let words = call_of(&own);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(ledger.asked(&words), (expected(3), vec![1]), "{name}");
        // If one part fails the whole does: it is no missing key.
        for at in [0, 5, 11] {
            let mut keys = keys.clone();
            keys[at] += REFUSED;
            let words = call_of(&keys);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (reply, servers) = ledger.asked(&words);
            assert_error(&reply, "OOM not now");
            assert_eq!(servers, [0, 1, 2], "{name}");
        }
    }
}

/// Wherever a read ends within it, and however long it is.
#[test]
fn a_key_is_looked_at_as_a_whole() {
    let mut ledger = Ledger::new();
    let mut beside = Client::connect(ledger.proxy.address()).unwrap();
    let tags = ledger.tags.clone();
    let lengths = [500, 512, 513, 600, 4_000, 16_300, 40_000, 200_000, 1 << 20];
    for (number, len) in lengths.into_iter().enumerate() {
        for (server, tag) in tags.iter().enumerate() {
            let key = format!("{}{tag}", "k".repeat(len));
            let mut request = Vec::new();
            encode(&["set", &key, "v"], &mut request);
            let cuts: Vec<usize> = match number {
                // All relevant ones: around the 512th byte, and in the tag.
                0..4 if server == 0 => (480..request.len()).collect(),
                _ => (0..24).map(|at| request.len() * at / 24).collect(),
            };
            for cut in cuts {
                let (first, rest) = request.split_at(cut);
                ledger.client.send(first).unwrap();
                // The reply to a later call shows that it has been read.
                assert!(!call(&mut beside, "ping").is_error());
                let asked = ledger.asked_for(rest, "set");
                assert_eq!(asked, (ok(), vec![server]), "{len} {cut}");
            }
        }
    }
}

#[test]
fn a_random_key_is_found_wherever_there_is_one() {
    let behind = Behind::new(3, 1);
    let mut client = behind.client();
    assert_eq!(call(&mut client, "RANDOMKEY"), Value::NullBulk);
    for number in 0..12 {
        let key = format!("k{number}");
        assert_eq!(call(&mut client, &format!("SET {key} v")), ok());
        for _ in 0..5 {
            assert_eq!(call(&mut client, "RANDOMKEY"), bulk(&key));
        }
        assert_eq!(call(&mut client, &format!("DEL {key}")), Value::Integer(1));
    }
    let all = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for key in all {
        assert_eq!(call(&mut client, &format!("SET {key} v")), ok());
    }
    let mut found = std::collections::BTreeSet::new();
    until("each has come", || {
        found.extend(
            call(&mut client, "RANDOMKEY")
                .as_bytes()
                .map(<[u8]>::to_vec),
        );
        found.len() == all.len()
    });
}

#[test]
fn a_cursor_that_nobody_gave_is_refused_or_an_end() {
    let behind = Behind::new(3, 1);
    let mut client = behind.client();
    for number in 0..100 {
        call(&mut client, &format!("SET k{number} v"));
    }
    for cursor in ["x", "-1", "1x", "1e3", &"9".repeat(60)] {
        let reply = call(&mut client, &format!("SCAN {cursor}"));
        assert_error(&reply, "ERR invalid cursor");
    }
    for number in 0..64 {
        for cursor in [1_u64 << number, (1_u64 << number) - 1, u64::MAX << number] {
            let reply = call(&mut client, &format!("SCAN {cursor}"));
            match &reply {
                Value::Array(parts) => assert_eq!(parts.len(), 2, "{cursor}: {reply:?}"),
                _ => assert_error(&reply, "ERR invalid cursor"),
            }
        }
    }
    // One at a time on all servers, with every option.
    let options = [
        "",
        " COUNT 7",
        " MATCH k* COUNT 3",
        " TYPE string COUNT 50 MATCH *",
    ];
    for options in options {
        let (mut cursor, mut found) = ("0".to_owned(), std::collections::BTreeSet::new());
        loop {
            let reply = call(&mut client, &format!("SCAN {cursor}{options}"));
            let Value::Array(parts) = &reply else {
                panic!("{reply:?}");
            };
            let Value::Array(keys) = &parts[1] else {
                panic!("{reply:?}");
            };
            found.extend(keys.iter().map(|key| key.as_bytes().unwrap().to_vec()));
            cursor = String::from_utf8(parts[0].as_bytes().unwrap().to_vec()).unwrap();
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(found.len(), 100, "{options}");
    }
}

#[test]
fn each_call_that_waits_has_a_connection_of_its_own() {
    let behind = Behind::new(2, 1);
    let mut other = behind.client();
    call(&mut other, "XGROUP CREATE {t}group g $ MKSTREAM");
    let popped = |words: &[&str]| Value::Array(words.iter().map(|word| bulk(word)).collect());
    let of_list = |key: &str| Value::Array(vec![bulk(key), popped(&["v"])]);
    let member = Value::Array(vec![bulk("v"), bulk("1")]);
    let of_set = Value::Array(vec![bulk("{t}z"), Value::Array(vec![member])]);
    let entry = Value::Array(vec![bulk("1-1"), popped(&["f", "v"])]);
    let of_stream = |key: &str| {
        let entries = Value::Array(vec![entry.clone()]);
        Value::Array(vec![Value::Array(vec![bulk(key), entries])])
    };
    for (waits, comes, answer) in [
        ("BLPOP {t}l 0", "RPUSH {t}l v", popped(&["{t}l", "v"])),
        ("BLPOP {t}x {t}l 0", "RPUSH {t}l v", popped(&["{t}l", "v"])),
        ("BRPOP {t}l 0", "RPUSH {t}l v", popped(&["{t}l", "v"])),
        ("BRPOPLPUSH {t}l {t}m 0", "RPUSH {t}l v", bulk("v")),
        ("BLMOVE {t}l {t}m LEFT LEFT 0", "RPUSH {t}l v", bulk("v")),
        ("BLMPOP 0 2 {t}x {t}l LEFT", "RPUSH {t}l v", of_list("{t}l")),
        (
            "BZPOPMIN {t}z 0",
            "ZADD {t}z 1 v",
            popped(&["{t}z", "v", "1"]),
        ),
        (
            "BZPOPMAX {t}z 0",
            "ZADD {t}z 1 v",
            popped(&["{t}z", "v", "1"]),
        ),
        ("BZMPOP 0 1 {t}z MIN", "ZADD {t}z 1 v", of_set),
        (
            "XREAD BLOCK 0 STREAMS {t}stream $",
            "XADD {t}stream 1-1 f v",
            of_stream("{t}stream"),
        ),
        (
            "XREADGROUP GROUP g c BLOCK 0 STREAMS {t}group >",
            "XADD {t}group 1-1 f v",
            of_stream("{t}group"),
        ),
    ] {
        let mut client = behind.client();
        let mut requests = Vec::new();
        for line in ["SET {t}before 1", waits, "INCR {t}before"] {
            encode(&line.split(' ').collect::<Vec<_>>(), &mut requests);
        }
        client.send(&requests).unwrap();
        assert_eq!(client.reply().unwrap(), Some(ok()), "{waits}");
        until("it waits", || {
            behind.servers.iter().any(|server| {
                let mut direct = Client::connect(server.address()).unwrap();
                let info = call(&mut direct, "INFO clients");
                String::from_utf8_lossy(info.as_bytes().unwrap()).contains("blocked_clients:1")
            })
        });
        // Others are served by that server, and the calls after it have not been made.
        assert_eq!(call(&mut other, "GET {t}before"), bulk("1"), "{waits}");
        assert!(!call(&mut other, comes).is_error(), "{comes}");
        assert_eq!(client.reply().unwrap(), Some(answer), "{waits}");
        assert_eq!(client.reply().unwrap(), Some(Value::Integer(2)), "{waits}");
    }
}

#[test]
fn what_is_heard_is_counted_over_all_servers() {
    let behind = Behind::new(3, 1);
    let (mut clients, mut asks) = ([behind.client(), behind.client()], behind.client());
    let names: Vec<String> = (0..12).map(|number| format!("c{number}")).collect();
    for (client, line) in [
        (0, format!("SUBSCRIBE {}", names.join(" "))),
        (0, "PSUBSCRIBE a* b*".to_owned()),
        (0, "SSUBSCRIBE {s}1".to_owned()),
        (1, "SUBSCRIBE c0 mine".to_owned()),
        (1, "PSUBSCRIBE b*".to_owned()),
    ] {
        let client = &mut clients[client];
        client.send(format!("{line}\r\n").as_bytes()).unwrap();
        for name in line.split(' ').skip(1) {
            assert_eq!(words(client.reply().unwrap())[1], name);
        }
    }
    let mut all: Vec<String> = words(Some(call(&mut asks, "PUBSUB CHANNELS")));
    all.sort();
    let mut expected = [&names[..], &["mine".to_owned()]].concat();
    expected.sort();
    assert_eq!(all, expected);
    let some = words(Some(call(&mut asks, "PUBSUB CHANNELS m*")));
    assert_eq!(some, ["mine"]);
    let counts = words(Some(call(&mut asks, "PUBSUB NUMSUB c0 none c7 mine")));
    assert_eq!(counts, ["c0", "1", "none", "0", "c7", "1", "mine", "1"]);
    assert_eq!(call(&mut asks, "PUBSUB NUMPAT"), Value::Integer(2));
    assert_eq!(
        words(Some(call(&mut asks, "PUBSUB SHARDCHANNELS"))),
        ["{s}1"]
    );
    let counts = words(Some(call(&mut asks, "PUBSUB SHARDNUMSUB {s}1 {s}2")));
    assert_eq!(counts, ["{s}1", "1", "{s}2", "0"]);
}

/// Returns a node of a cluster that grows: at first `first` has all slots, then `second` those from 8192 on. Each call
/// of SCAN returns one of its keys, and each of its cursors is known to it alone.
fn growing(
    nodes: Arc<OnceLock<[SocketAddr; 2]>>,
    has_grown: Arc<AtomicBool>,
    keys: [(&'static str, &'static str, &'static str); 2],
) -> SocketAddr {
    scripted(move |words| {
        let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let part = |from: u16, to: u16, node: usize| {
            let port = nodes.get().map_or(0, |nodes| nodes[node].port());
            let (host, id) = (text("127.0.0.1"), text(&format!("id{node}")));
            format!("*3\r\n:{from}\r\n:{to}\r\n*3\r\n{host}:{port}\r\n{id}")
        };
        let sub = words.get(1).map(|word| word.to_ascii_uppercase());
        let reply = match (words[0].to_ascii_uppercase().as_slice(), sub.as_deref()) {
            (b"CLUSTER", Some(b"INFO")) => text("cluster_state:ok\r\ncluster_current_epoch:1\r\n"),
            (b"CLUSTER", Some(b"SLOTS")) => match has_grown.load(Ordering::SeqCst) {
                false => format!("*1\r\n{}", part(0, 16_383, 0)),
                true => format!("*2\r\n{}{}", part(0, 8_191, 0), part(8_192, 16_383, 1)),
            },
            (b"CLUSTER", _) => "*0\r\n".to_owned(),
            (b"GET", _) => text(keys[0].2),
            (b"SCAN", Some(cursor)) => {
                let found = keys.iter().find(|(of, _, _)| of.as_bytes() == cursor);
                match found {
                    Some((_, next, key)) => format!("*2\r\n{}*1\r\n{}", text(next), text(key)),
                    None => "-ERR not a cursor of this node\r\n".to_owned(),
                }
            }
            _ => "+PONG\r\n".to_owned(),
        };
        reply.into_bytes()
    })
}

#[test]
fn a_scan_that_began_before_one_node_goes_on_when_a_second_comes() {
    let nodes: Arc<OnceLock<[SocketAddr; 2]>> = Arc::default();
    let has_grown: Arc<AtomicBool> = Arc::default();
    let node = |keys| growing(Arc::clone(&nodes), Arc::clone(&has_grown), keys);
    let first = node([("0", "17", "a"), ("17", "0", "b")]);
    let second = node([("0", "5", "c"), ("5", "0", "d")]);
    nodes.set([first, second]).unwrap();
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\nkind = 'cluster'\nrefresh = '100ms'\nseed = [{{ address = '{first}' }}]\n"
    ));
    let mut client = Client::connect(proxy.address()).unwrap();
    let step = |client: &mut Client, cursor: &str| {
        let reply = call(client, &format!("SCAN {cursor}"));
        let Value::Array(parts) = &reply else {
            panic!("{reply:?}");
        };
        let next = String::from_utf8(parts[0].as_bytes().unwrap().to_vec()).unwrap();
        (next, words(Some(parts[1].clone())).join(" "))
    };
    let (mut cursor, mut found) = step(&mut client, "0");
    has_grown.store(true, Ordering::SeqCst);
    until("the second node is known", || {
        call(&mut client, "GET foo") == bulk("c")
    });
    while cursor != "0" {
        let (next, keys) = step(&mut client, &cursor);
        (cursor, found) = (next, format!("{found} {keys}"));
    }
    assert_eq!(found, "a b c d");
}

#[test]
fn a_cursor_of_a_node_alone_is_shown_to_no_transaction_either() {
    let nodes: Arc<OnceLock<[SocketAddr; 2]>> = Arc::default();
    let first = growing(Arc::clone(&nodes), Arc::default(), [("0", "17", "a"); 2]);
    nodes.set([first; 2]).unwrap();
    let proxy = proxy_with(&format!(
        "[[pool]]\nkind = 'cluster'\nseed = [{{ address = '{first}' }}]\n"
    ));
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut client, "MULTI"), ok());
    assert_error(&call(&mut client, "SCAN 0"), "ERR 'scan' is not available");
    assert_error(&call(&mut client, "EXEC"), "EXECABORT");
}
