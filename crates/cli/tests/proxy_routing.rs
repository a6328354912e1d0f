//! `redline proxy` as a process: to which server each command goes. Servers that only write down what they are asked show it.
//!
//! Every row of predixy's table of routes, and which test shows the way that its commands take here:
//!
//! | row | shown by |
//! |---|---|
//! | answered by the proxy; inline requests | `proxy.rs`: `databases_protocols_and_names_are_each_clients_own`, `requests_may_come_byte_by_byte` |
//! | a single key | `a_command_of_one_key_goes_to_the_server_of_that_key` |
//! | several keys, not split | `keys_of_one_call_are_all_on_one_server_or_it_is_refused` |
//! | EVAL, EVALSHA | `keys_behind_a_count_or_a_word_are_found` |
//! | split per key | `proxy.rs`: `calls_of_many_keys_are_cut_by_server_and_put_together` |
//! | SCRIPT LOAD; SCAN; RANDOMKEY, and what else concerns all servers | the same, and `what_concerns_all_servers_is_asked_of_each` |
//! | BLPOP and its kin | `proxy_faults.rs`: `a_call_that_waits_holds_nobody_else_up` |
//! | WATCH, MULTI, EXEC, DISCARD, UNWATCH | `proxy.rs`: `transactions_find_their_server_by_their_first_key` |
//! | SUBSCRIBE, PSUBSCRIBE, PUBLISH, PUBSUB | `proxy.rs`: `what_is_published_reaches_all_subscribers_whatever_the_server` |
//! | refused there: unknown commands, arity | `proxy_session.rs`, `cargo xtask compat through` |

mod proxying;

use std::path::Path;
use std::sync::{Arc, Mutex};

use redline_resp::Value;
use redline_testkit::client::Client;
use redline_testkit::process::ServerProcess;

use proxying::{Behind, REDLINE, assert_error, bulk, call, ok, proxy_of, scripted};

const SERVERS: usize = 3;
/// Cut by key: another test's business.
const SPLIT: [&str; 6] = ["del", "exists", "mget", "mset", "touch", "unlink"];

/// Servers that write down what they are asked, and a proxy in front of them.
struct Ledger {
    client: Client,
    seen: Arc<Mutex<Vec<(usize, String)>>>,
    _proxy: ServerProcess,
    /// For each server, a tag whose keys are its own.
    tags: Vec<String>,
}

impl Ledger {
    fn new() -> Ledger {
        let seen: Arc<Mutex<Vec<(usize, String)>>> = Arc::default();
        let addresses: Vec<_> = (0..SERVERS)
            .map(|server| {
                let seen = Arc::clone(&seen);
                scripted(move |words| {
                    let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
                    let reply: &[u8] = match name.as_str() {
                        "ping" => return b"+PONG\r\n".to_vec(),
                        "dbsize" => b":2\r\n",
                        "keys" => b"*1\r\n$1\r\nk\r\n",
                        _ => b"+OK\r\n",
                    };
                    seen.lock().unwrap().push((server, name));
                    reply.to_vec()
                })
            })
            .collect();
        let proxy = proxy_of(&addresses);
        let client = Client::connect(proxy.address()).unwrap();
        let mut ledger = Ledger {
            client,
            seen,
            _proxy: proxy,
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

    /// The reply to a call, and who was asked for it.
    fn asked(&mut self, words: &[&str]) -> (Value, Vec<usize>) {
        self.seen.lock().unwrap().clear();
        let reply = self.client.call(words);
        let reply = reply.unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let seen = self.seen.lock().unwrap();
        let own = seen.iter().filter(|(_, name)| *name == words[0]);
        let mut servers: Vec<usize> = own.map(|(server, _)| *server).collect();
        servers.sort_unstable();
        (reply, servers)
    }
}

/// What COMMAND tells of a command: name, number of words, and where its keys are.
struct Told {
    name: String,
    words: usize,
    first: usize,
    last: i64,
    step: usize,
}

/// The commands of data that have keys at fixed places, and do not wait.
fn commands() -> Vec<Told> {
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    let Value::Array(entries) = call(&mut client, "COMMAND") else {
        panic!("COMMAND answers an array");
    };
    let told = entries.iter().filter_map(|entry| {
        let Value::Array(parts) = entry else {
            panic!("{entry:?}");
        };
        let number = |at: usize| match &parts[at] {
            Value::Integer(number) => *number,
            other => panic!("{other:?}"),
        };
        let has =
            |flag: &str| format!("{:?}", parts[2]).contains(&format!("{:?}", flag.as_bytes()));
        let name = String::from_utf8_lossy(parts[0].as_bytes().unwrap()).to_lowercase();
        (number(3) > 0 && !has("blocking") && !has("pubsub") && name != "watch").then(|| Told {
            name,
            words: number(1).unsigned_abs() as usize,
            first: number(3) as usize,
            last: number(4),
            step: number(5) as usize,
        })
    });
    told.collect()
}

#[test]
fn a_command_of_one_key_goes_to_the_server_of_that_key() {
    let mut ledger = Ledger::new();
    let commands = commands();
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
    let commands = commands();
    let several = commands
        .iter()
        .filter(|told| told.last != told.first as i64 && !SPLIT.contains(&told.name.as_str()));
    let mut count = 0;
    for told in several {
        // Room for two keys at least.
        let len = told.words.max(told.first + 2 * told.step);
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
                    assert_eq!(servers, [], "{words:?}");
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
        // Where nobody says which keys a script has, it is always the same server, whatever its arguments are.
        let (_, servers) = ledger.asked(&["eval", "s", "0", tag]);
        assert_eq!(servers, [0]);
    }
    let [one, other] = [&ledger.tags[0].clone(), &ledger.tags[1].clone()];
    // What a pattern finds nowhere would look like a key that is not there.
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
        assert_eq!(servers, [], "{line}");
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
        assert_eq!(servers, [], "{line}");
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
    // One after the other, as the cursor says.
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
