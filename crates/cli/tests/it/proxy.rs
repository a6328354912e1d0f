//! `redline proxy` as a process, in front of our servers: the routes of requests.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use crate::proxying::{
    Behind, REDLINE, assert_error, bulk, call, cluster_of_one, key_elsewhere, ok, proxy_with,
    scripted, shards, until, words,
};

#[test]
fn replies_of_a_pipeline_over_several_servers_keep_their_order() {
    for (servers, threads) in [(1, 1), (3, 2)] {
        let behind = Behind::new(servers, threads);
        let mut client = behind.client();
        let mut requests = Vec::new();
        for number in 0..2000 {
            let (key, value) = (format!("key:{number}"), format!("value:{number}"));
            encode(&["SET", &key, &value], &mut requests);
            encode(&["GET", &key], &mut requests);
            encode(&["ECHO", &value], &mut requests);
            encode(
                &["MGET", &key, "missing", &format!("key:{}", number / 2)],
                &mut requests,
            );
        }
        for part in requests.chunks(7001) {
            client.send(part).unwrap();
        }
        for number in 0..2000 {
            let value = format!("value:{number}");
            let half = bulk(&format!("value:{}", number / 2));
            let many = Value::Array(vec![bulk(&value), Value::NullBulk, half]);
            for expected in [ok(), bulk(&value), bulk(&value), many] {
                assert_eq!(client.reply().unwrap(), Some(expected), "{number}");
            }
        }
        assert_eq!(call(&mut client, "DBSIZE"), Value::Integer(2000));
    }
}

#[test]
fn requests_may_come_byte_by_byte() {
    let behind = Behind::new(2, 1);
    let mut client = behind.client();
    let mut requests = Vec::new();
    encode(&["MSET", "a", "1", "b", "2", "c", "3"], &mut requests);
    requests.extend_from_slice(b"get a\r\nset q \"x y\"\r\n");
    encode(&["MGET", "c", "b", "a", "q"], &mut requests);
    for byte in requests {
        client.send(&[byte]).unwrap();
    }
    let expected = Value::Array(vec![bulk("3"), bulk("2"), bulk("1"), bulk("x y")]);
    for expected in [ok(), bulk("1"), ok(), expected] {
        assert_eq!(client.reply().unwrap(), Some(expected));
    }
}

#[test]
fn calls_of_many_keys_are_cut_by_server_and_put_together() {
    let behind = Behind::new(3, 1);
    let mut client = behind.client();
    let mut mset = vec!["MSET".to_owned()];
    let mut keys = Vec::new();
    for number in 0..300 {
        mset.extend([format!("k{number}"), format!("v{number}")]);
        keys.push(format!("k{number}"));
    }
    assert_eq!(client.call(&mset).unwrap(), ok());
    let mget: Vec<&str> = ["MGET"]
        .into_iter()
        .chain(keys.iter().rev().map(String::as_str))
        .collect();
    let values: Vec<Value> = (0..300).rev().map(|n| bulk(&format!("v{n}"))).collect();
    assert_eq!(client.call(&mget).unwrap(), Value::Array(values));
    assert_eq!(
        call(&mut client, "EXISTS k1 k2 k3 nope k1"),
        Value::Integer(4)
    );
    assert_eq!(call(&mut client, "DEL k1 k2 k3 nope"), Value::Integer(3));
    assert_eq!(call(&mut client, "DBSIZE"), Value::Integer(297));
    let mut found = std::collections::BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let Value::Array(reply) = call(&mut client, &format!("SCAN {cursor} COUNT 20")) else {
            panic!("SCAN answers an array");
        };
        let Value::Array(keys) = &reply[1] else {
            panic!("the keys are an array");
        };
        found.extend(keys.iter().map(|key| key.as_bytes().unwrap().to_vec()));
        cursor = String::from_utf8(reply[0].as_bytes().unwrap().to_vec()).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 297);
    let other = key_elsewhere(&mut client, "k4");
    assert_error(
        &call(&mut client, &format!("MSETNX k4 1 {other} 2")),
        "CROSSSLOT",
    );
    assert_eq!(call(&mut client, "FLUSHALL"), ok());
    assert_eq!(call(&mut client, "DBSIZE"), Value::Integer(0));
    let script = "fcf5a0a3c1a4a6b0e1e8b6fd2d1ef3f5f5e6d6c5";
    let loaded = call(&mut client, "SCRIPT LOAD return{KEYS[1]}");
    let sha = String::from_utf8(loaded.as_bytes().unwrap().to_vec()).unwrap();
    assert_eq!(
        call(&mut client, &format!("SCRIPT EXISTS {sha} {script}")),
        Value::Array(vec![Value::Integer(1), Value::Integer(0)])
    );
    for key in ["k1", "k2", "k3", "k4", "k5"] {
        let reply = call(&mut client, &format!("EVALSHA {sha} 1 {key}"));
        assert_eq!(reply, Value::Array(vec![bulk(key)]));
    }
}

#[test]
fn transactions_find_their_server_by_their_first_key() {
    let behind = Behind::new(3, 1);
    let mut client = behind.client();
    call(&mut client, "SET k 1");
    let other = key_elsewhere(&mut client, "k");
    let queued = Value::Simple(b"QUEUED".to_vec());
    for (line, expected) in [
        ("MULTI", ok()),
        ("PING", queued.clone()),
        ("INCR k", queued.clone()),
        ("GET k", queued.clone()),
        (
            "EXEC",
            Value::Array(vec![
                Value::Simple(b"PONG".to_vec()),
                Value::Integer(2),
                bulk("2"),
            ]),
        ),
        ("GET k", bulk("2")),
        ("MULTI", ok()),
        ("EXEC", Value::Array(Vec::new())),
        ("MULTI", ok()),
        ("SET k 9", queued.clone()),
        ("DISCARD", ok()),
        ("GET k", bulk("2")),
    ] {
        assert_eq!(call(&mut client, line), expected, "{line}");
    }
    call(&mut client, "MULTI");
    assert_eq!(call(&mut client, "SET k 5"), queued);
    assert_error(&call(&mut client, &format!("SET {other} 5")), "CROSSSLOT");
    assert_error(&call(&mut client, "EXEC"), "EXECABORT");
    assert_eq!(call(&mut client, "GET k"), bulk("2"));
    // WATCH detects writes of others, and the connection is clean for the next one.
    let mut second = behind.client();
    assert_eq!(call(&mut client, "WATCH k"), ok());
    assert_eq!(call(&mut second, "SET k 7"), ok());
    call(&mut client, "MULTI");
    call(&mut client, "SET k 8");
    assert_eq!(call(&mut client, "EXEC"), Value::NullArray);
    assert_eq!(call(&mut second, "WATCH k"), ok());
    assert_eq!(call(&mut second, "UNWATCH"), ok());
    assert_eq!(call(&mut client, "SET k 9"), ok());
    call(&mut second, "MULTI");
    call(&mut second, "INCR k");
    assert_eq!(
        call(&mut second, "EXEC"),
        Value::Array(vec![Value::Integer(10)])
    );
    // Requests after EXEC in one write run after it.
    let mut requests = Vec::new();
    for _ in 0..50 {
        for words in [&["MULTI"][..], &["INCR", "k"], &["EXEC"], &["GET", "k"]] {
            encode(words, &mut requests);
        }
    }
    client.send(&requests).unwrap();
    for number in 11..61 {
        assert_eq!(client.reply().unwrap(), Some(ok()));
        assert_eq!(client.reply().unwrap(), Some(queued.clone()));
        let result = Value::Array(vec![Value::Integer(number)]);
        assert_eq!(client.reply().unwrap(), Some(result));
        assert_eq!(client.reply().unwrap(), Some(bulk(&number.to_string())));
    }
}

#[test]
fn replies_of_every_shape_pass_unchanged() {
    let behind = Behind::new(1, 1);
    let mut client = behind.client();
    let mut direct = Client::connect(behind.servers[0].address()).unwrap();
    let deep = format!("return {}1{}", "{".repeat(40), "}".repeat(40));
    call(&mut client, "GEOADD g 1 2 a");
    call(&mut client, "ZADD z 1.5 m");
    for proto in ["2", "3"] {
        call(&mut client, &format!("HELLO {proto}"));
        call(&mut direct, &format!("HELLO {proto}"));
        for words in [
            vec!["GEOPOS", "g", "a", "missing", "a"],
            vec!["EVAL", &deep, "0"],
            vec!["EVAL", "return redis.error_reply('MY own')", "0"],
            vec!["CONFIG", "x"],
            vec!["LPOP", "nolist", "2"],
            vec!["ZSCORE", "z", "m"],
            vec!["SMEMBERS", "s"],
            vec!["HGETALL", "h"],
            vec!["ZRANGE", "z", "0", "-1", "WITHSCORES"],
            vec!["COMMAND", "INFO", "get"],
            // A missing script, in the reply of EXEC.
            vec!["MULTI"],
            vec!["LPOP", "nolist", "2"],
            vec!["GEOPOS", "g", "missing"],
            vec!["EVAL", &deep, "0"],
            vec!["EXEC"],
        ] {
            let ours = client.call(&words).unwrap();
            assert_eq!(ours, direct.call(&words).unwrap(), "{proto} {words:?}");
        }
    }
}

#[test]
fn databases_protocols_and_names_are_each_clients_own() {
    let behind = Behind::new(1, 1);
    let (mut a, mut b) = (behind.client(), behind.client());
    assert_eq!(call(&mut a, "SELECT 3"), ok());
    assert_eq!(call(&mut a, "SET k in3"), ok());
    assert_eq!(call(&mut b, "GET k"), Value::NullBulk);
    assert_eq!(call(&mut b, "SELECT 3"), ok());
    assert_eq!(call(&mut b, "GET k"), bulk("in3"));
    assert_error(&call(&mut b, "SELECT 16"), "ERR DB index is out of range");
    assert!(matches!(call(&mut a, "HELLO 3"), Value::Map(_)));
    assert_eq!(call(&mut a, "GET nope"), Value::Null);
    assert_eq!(call(&mut b, "GET nope"), Value::NullBulk);
    assert_eq!(call(&mut a, "CLIENT SETNAME me"), ok());
    assert_eq!(call(&mut a, "CLIENT GETNAME"), bulk("me"));
    assert_eq!(call(&mut b, "CLIENT GETNAME"), Value::NullBulk);
    let list = call(&mut b, "CLIENT LIST");
    let list = String::from_utf8_lossy(list.as_bytes().unwrap()).into_owned();
    assert!(
        list.contains(" name=me ") && list.contains(" db=3 "),
        "{list}"
    );
    assert_eq!(call(&mut a, "RESET"), Value::Simple(b"RESET".to_vec()));
    assert_eq!(call(&mut a, "GET k"), Value::NullBulk);
    assert_error(&call(&mut a, "CLIENT REPLY NO"), "ERR syntax error");
    let mut requests = Vec::new();
    for words in [
        &["CLIENT", "REPLY", "SKIP"][..],
        &["SET", "k", "1"],
        &["GET", "k"],
        &["CLIENT", "REPLY", "OFF"],
        &["GET", "k"],
        &["PING"],
        &["CLIENT", "REPLY", "ON"],
        &["GET", "k"],
    ] {
        encode(words, &mut requests);
    }
    a.send(&requests).unwrap();
    for expected in [bulk("1"), ok(), bulk("1")] {
        assert_eq!(a.reply().unwrap(), Some(expected));
    }
}

#[test]
fn it_ends_in_good_order() {
    let behind = Behind::new(1, 2);
    let mut client = behind.client();
    assert_eq!(call(&mut client, "SET k v"), ok());
    assert!(behind.proxy.stop().unwrap());
    let refused = Behind::new(1, 1);
    let mut client = refused.client();
    assert_eq!(call(&mut client, "QUIT"), ok());
    assert_eq!(client.reply().unwrap(), None);
}

#[test]
fn what_is_published_reaches_all_subscribers_whatever_the_server() {
    let behind = Behind::new(3, 2);
    let mut clients: Vec<Client> = (0..6).map(|_| behind.client()).collect();
    for client in &mut clients {
        let mut request = Vec::new();
        encode(&["SUBSCRIBE", "a", "b", "a"], &mut request);
        encode(&["PSUBSCRIBE", "c*"], &mut request);
        client.send(&request).unwrap();
        for expected in [
            ["subscribe", "a", "1"],
            ["subscribe", "b", "2"],
            ["subscribe", "a", "2"],
            ["psubscribe", "c*", "3"],
        ] {
            assert_eq!(words(client.reply().unwrap()), expected);
        }
    }
    let mut speaks = behind.client();
    for number in 0..20 {
        for channel in ["a", "b", "cc", "cd", "none"] {
            let heard = call(&mut speaks, &format!("PUBLISH {channel} {number}"));
            // One for each worker: the proxy is the servers' only subscriber.
            let expected = if channel == "none" { 0 } else { 2 };
            assert_eq!(heard, Value::Integer(expected), "{channel}");
        }
    }
    for client in &mut clients {
        let mut got = vec![Vec::new(); 4];
        for _ in 0..80 {
            let message = words(client.reply().unwrap());
            let (place, text) = match message[0].as_str() {
                "message" => (usize::from(message[1] == "b"), message[2].clone()),
                _ => (2 + usize::from(message[2] == "cd"), message[3].clone()),
            };
            got[place].push(text.parse::<u32>().unwrap());
        }
        // Of one channel in order; different ones may be on different servers.
        for numbers in got {
            assert_eq!(numbers, (0..20).collect::<Vec<_>>());
        }
    }
}

/// In one call, over several servers, some of them twice, and some that the client has already.
#[test]
fn many_names_in_one_subscribe_are_confirmed_in_their_order_and_heard_once() {
    let behind = Behind::new(3, 1);
    let [mut hears, mut says] = [(); 2].map(|()| behind.client());
    assert!(!call(&mut hears, "SUBSCRIBE c7").is_error());
    let names: Vec<String> = (0..600).map(|at| format!("c{}", at % 400)).collect();
    hears
        .send(format!("SUBSCRIBE {}\r\n", names.join(" ")).as_bytes())
        .unwrap();
    let mut heard = std::collections::BTreeSet::from(["c7"]);
    for name in &names {
        heard.insert(name);
        assert_eq!(
            words(hears.reply().unwrap()),
            ["subscribe", name, &heard.len().to_string()]
        );
    }
    for name in &names[..400] {
        call(&mut says, &format!("PUBLISH {name} x"));
    }
    let mut messages = std::collections::BTreeSet::new();
    for _ in 0..400 {
        let message = words(hears.reply().unwrap());
        assert_eq!(message[0], "message");
        assert!(messages.insert(message[1].clone()), "{message:?} twice");
    }
    assert_eq!(words(Some(call(&mut hears, "PING"))), ["pong", ""]);
}

#[test]
fn a_subscribed_client_is_answered_as_redis_answers_it() {
    let behind = Behind::new(1, 1);
    let mut direct = Client::connect(behind.servers[0].address()).unwrap();
    let mut client = behind.client();
    for proto in ["2", "3"] {
        for one in [&mut client, &mut direct] {
            call(one, &format!("HELLO {proto}"));
        }
        for line in [
            "UNSUBSCRIBE",
            "PUNSUBSCRIBE",
            "UNSUBSCRIBE nothing",
            "SUBSCRIBE x",
            "PING",
            "PING hi",
            "SET k v",
            "GET",
            "NOSUCH",
            "PSUBSCRIBE p*",
            "UNSUBSCRIBE x",
            "PUNSUBSCRIBE",
            "PING",
            "GET nothing",
            "SSUBSCRIBE s",
            "SUNSUBSCRIBE",
            "SUBSCRIBE y",
            "RESET",
            "GET nothing",
        ] {
            let (ours, theirs) = (call(&mut client, line), call(&mut direct, line));
            assert_eq!(ours, theirs, "{proto} {line}");
        }
        for one in [&mut client, &mut direct] {
            call(one, &format!("HELLO {proto}"));
        }
    }
    // Of several, each is named.
    for one in [&mut client, &mut direct] {
        call(one, "HELLO 2");
        let mut request = Vec::new();
        encode(&["SUBSCRIBE", "x", "y"], &mut request);
        encode(&["UNSUBSCRIBE"], &mut request);
        encode(&["PING"], &mut request);
        one.send(&request).unwrap();
        let mut left = Vec::new();
        for _ in 0..4 {
            left.push(words(one.reply().unwrap()));
        }
        assert_eq!(left[0], ["subscribe", "x", "1"]);
        assert_eq!(left[1], ["subscribe", "y", "2"]);
        assert_eq!((&*left[2][2], &*left[3][2]), ("1", "0"));
        assert_eq!(one.reply().unwrap(), Some(Value::Simple(b"PONG".to_vec())));
    }
}

#[test]
fn a_script_that_runs_on_the_shared_connection_can_be_ended() {
    // A busy server refuses SELECT.
    for (count, db) in [(1, 0), (1, 3), (3, 0), (3, 3)] {
        let arguments = ["--busy-reply-threshold", "50"].map(str::to_owned);
        let start = |_| ServerProcess::redline(Path::new(REDLINE), 1, &arguments).unwrap();
        let servers: Vec<ServerProcess> = (0..count).map(start).collect();
        let addresses: Vec<_> = servers.iter().map(ServerProcess::address).collect();
        let proxy = proxy_with(&format!("threads = 1\n[[pool]]\n{}", shards(&addresses)));
        let [mut runs, mut ends] = [(); 2].map(|()| Client::connect(proxy.address()).unwrap());
        let library =
            "#!lua name=l\nredis.register_function('endless', function() while true do end end)";
        let loaded = ends.call(&["FUNCTION", "LOAD", library]).unwrap();
        assert_eq!(loaded, bulk("l"));
        assert_eq!(call(&mut ends, &format!("SELECT {db}")), ok());
        for (run, end) in [
            (["EVAL", "while true do end", "1", "k"], "SCRIPT KILL"),
            (["FCALL", "endless", "1", "k"], "FUNCTION KILL"),
        ] {
            let mut request = Vec::new();
            encode(&run, &mut request);
            runs.send(&request).unwrap();
            until(end, || call(&mut ends, end) == ok());
            assert_error(&runs.reply().unwrap().unwrap(), "ERR Script killed by user");
            assert_error(&call(&mut ends, end), "NOTBUSY");
        }
    }
}

/// A node of a cluster that runs one script until it is told to end, refuses meanwhile what a busy Redis does, and
/// refuses this many later connections that send a password then.
struct Busy {
    place: OnceLock<SocketAddr>,
    is_busy: AtomicBool,
    turned_away: AtomicUsize,
}

impl Busy {
    fn start() -> (Arc<Busy>, SocketAddr) {
        let busy = Arc::new(Busy {
            place: OnceLock::new(),
            is_busy: AtomicBool::new(false),
            turned_away: AtomicUsize::new(0),
        });
        let own = Arc::clone(&busy);
        let address = scripted(move |words| own.answer(words));
        busy.place.set(address).unwrap();
        (busy, address)
    }

    fn answer(&self, words: &[Vec<u8>]) -> Vec<u8> {
        let is_busy = self.is_busy.load(Ordering::SeqCst);
        let reply = match words[0].to_ascii_uppercase().as_slice() {
            b"EVAL" => {
                self.is_busy.store(true, Ordering::SeqCst);
                until("it is ended", || !self.is_busy.load(Ordering::SeqCst));
                "-ERR Script killed by user\r\n"
            }
            b"SCRIPT" if is_busy => {
                self.is_busy.store(false, Ordering::SeqCst);
                "+OK\r\n"
            }
            b"SCRIPT" => "-NOTBUSY No scripts in execution right now.\r\n",
            b"AUTH" if is_busy && self.turns_away() => "-ERR max number of clients reached\r\n",
            b"AUTH" => "+OK\r\n",
            _ if is_busy => "-BUSY Redis is busy running a script.\r\n",
            b"READONLY" => "+OK\r\n",
            _ => {
                let port = self.place.get().map_or(0, SocketAddr::port);
                return cluster_of_one(words, port).unwrap_or_else(|| b"+PONG\r\n".to_vec());
            }
        };
        reply.as_bytes().to_vec()
    }

    fn turns_away(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        let order = Ordering::SeqCst;
        self.turned_away
            .fetch_update(order, order, one_less)
            .is_ok()
    }

    /// Runs a client's script on the shared connection.
    fn runs_for(&self, client: &mut Client) {
        let mut request = Vec::new();
        encode(&["EVAL", "while true do end", "1", "k"], &mut request);
        client.send(&request).unwrap();
        until("it runs", || self.is_busy.load(Ordering::SeqCst));
    }
}

#[test]
fn a_script_can_be_ended_on_a_node_of_which_replicas_are_read_from() {
    let (busy, address) = Busy::start();
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\nkind = 'cluster'\nseed = [{{ address = '{address}' }}]\nreads = {{ dynamic-replica-priority = 10 }}\n"
    ));
    let [mut runs, mut ends] = [(); 2].map(|()| Client::connect(proxy.address()).unwrap());
    for _ in 0..3 {
        busy.runs_for(&mut runs);
        assert_eq!(call(&mut ends, "SCRIPT KILL"), ok());
        assert_error(&runs.reply().unwrap().unwrap(), "ERR Script killed by user");
        assert_error(&call(&mut ends, "SCRIPT KILL"), "NOTBUSY");
    }
}

#[test]
fn what_is_to_end_a_script_never_waits_behind_it() {
    let (busy, address) = Busy::start();
    // Its probes are refused as well.
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\nfailure = {{ limit = 1000 }}\npassword = 'secret'\n{}",
        shards(&[address])
    ));
    let [mut runs, mut ends] = [(); 2].map(|()| Client::connect(proxy.address()).unwrap());
    busy.runs_for(&mut runs);
    busy.turned_away.store(usize::MAX, Ordering::SeqCst);
    let refused = call(&mut ends, "SCRIPT KILL");
    assert_error(
        &refused,
        &format!("ERR upstream {address} is not available"),
    );
    busy.turned_away.store(1, Ordering::SeqCst);
    assert_eq!(call(&mut ends, "SCRIPT KILL"), ok());
    assert_error(&runs.reply().unwrap().unwrap(), "ERR Script killed by user");
}

/// Returns the proxy with one worker in front of a server, a client of it, and one of the server itself.
fn watched_over() -> (ServerProcess, ServerProcess, Client, Client) {
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let servers = shards(&[server.address()]);
    let text = format!("threads = 1\n[timeouts]\nrequest = '0s'\n[[pool]]\n{servers}");
    let proxy = proxy_with(&text);
    let client = Client::connect(proxy.address()).unwrap();
    let direct = Client::connect(server.address()).unwrap();
    (server, proxy, client, direct)
}

#[test]
fn a_client_that_goes_while_it_waits_behind_watch_takes_nothing() {
    let (_server, _proxy, mut client, mut direct) = watched_over();
    assert_eq!(call(&mut client, "WATCH k"), ok());
    client.send(b"BLPOP q 0\r\n").unwrap();
    let mut waiting = |count: &str| {
        let count = format!("blocked_clients:{count}\r\n");
        until("so many wait", || {
            let info = call(&mut direct, "INFO clients");
            String::from_utf8_lossy(info.as_bytes().unwrap()).contains(&count)
        });
    };
    waiting("1");
    drop(client);
    waiting("0");
    assert_eq!(call(&mut direct, "RPUSH q x"), Value::Integer(1));
    assert_eq!(call(&mut direct, "LLEN q"), Value::Integer(1));
}

#[test]
fn a_watch_behind_a_loss_does_not_forget_it() {
    let (_server, _proxy, mut client, mut direct) = watched_over();
    assert_eq!(call(&mut client, "WATCH a"), ok());
    let killed = call(&mut direct, "CLIENT KILL TYPE normal");
    assert!(!killed.is_error());
    assert_eq!(call(&mut direct, "SET a theirs"), ok());
    until("the loss is known", || {
        call(&mut client, "WATCH b").is_error()
    });
    assert_eq!(call(&mut client, "MULTI"), ok());
    call(&mut client, "SET a ours");
    assert_error(&call(&mut client, "EXEC"), "EXECABORT");
    assert_eq!(call(&mut direct, "GET a"), bulk("theirs"));
}

#[test]
fn a_watch_that_the_server_refuses_binds_to_nothing() {
    let refusing = |words: &[Vec<u8>]| match (&words[0][..], words.get(1).map(Vec::as_slice)) {
        (b"WATCH", Some(key)) if key.starts_with(b"bad") => b"-NOPERM not this one\r\n".to_vec(),
        (b"WATCH", _) => b"+OK\r\n".to_vec(),
        _ => b"+PONG\r\n".to_vec(),
    };
    let servers = [(); 2].map(|()| scripted(refusing));
    let proxy = proxy_with(&format!("threads = 1\n[[pool]]\n{}", shards(&servers)));
    let mut client = Client::connect(proxy.address()).unwrap();
    // They are on both servers.
    for number in 0..20 {
        assert_error(&call(&mut client, &format!("WATCH bad:{number}")), "NOPERM");
    }
    assert_eq!(call(&mut client, "WATCH good"), ok());
    assert_error(&call(&mut client, "WATCH bad:{good}"), "NOPERM");
}

#[test]
fn what_any_server_answers_is_asked_of_one_that_is_there() {
    let servers = [(); 2].map(|()| ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap());
    let addresses = [0, 1].map(|at: usize| servers[at].address());
    let proxy = proxy_with(&format!("threads = 1\n[[pool]]\n{}", shards(&addresses)));
    let mut client = Client::connect(proxy.address()).unwrap();
    let [_there, gone] = servers;
    drop(gone);
    let key = |number: usize| format!("GET {number}");
    until("it is left alone", || {
        (0..20).any(|number| call(&mut client, &key(number)).is_error())
            && (0..6).all(|_| !call(&mut client, "LOLWUT").is_error())
    });
}

#[test]
fn a_server_that_lacks_a_script_is_given_it() {
    let behind = Behind::new(3, 1);
    let mut client = behind.client();
    let loaded = call(&mut client, "SCRIPT LOAD return{KEYS[1]}");
    let sha = String::from_utf8(loaded.as_bytes().unwrap().to_vec()).unwrap();
    for server in &behind.servers {
        let mut direct = Client::connect(server.address()).unwrap();
        assert_eq!(call(&mut direct, "SCRIPT FLUSH"), ok());
    }
    for number in 0..20 {
        let (key, upper) = (format!("k{number}"), sha.to_ascii_uppercase());
        let reply = call(&mut client, &format!("EVALSHA {upper} 1 {key}"));
        assert_eq!(reply, Value::Array(vec![bulk(&key)]));
    }
    assert_eq!(call(&mut client, "SCRIPT FLUSH"), ok());
    assert_error(
        &call(&mut client, &format!("EVALSHA {sha} 1 k")),
        "NOSCRIPT",
    );
    // Without keys, an argument is not taken for one.
    for number in 0..20 {
        call(
            &mut client,
            &format!("EVAL return(redis.call('SET','s',ARGV[1])) 0 {number}"),
        );
    }
    assert_eq!(call(&mut client, "DBSIZE"), Value::Integer(1));
}

#[test]
fn what_is_refused_outside_a_transaction_is_refused_inside_one() {
    let behind = Behind::new(1, 1);
    let mut client = behind.client();
    for begin in [&["WATCH k"][..], &["MULTI"], &["WATCH k", "MULTI"]] {
        for line in [
            "SHUTDOWN NOSAVE",
            "CONFIG REWRITE",
            "DEBUG SLEEP 0",
            "NOSUCH",
        ] {
            for begin in begin {
                assert_eq!(call(&mut client, begin), ok());
            }
            assert_error(&call(&mut client, line), "ERR");
            if begin.contains(&"MULTI") {
                assert_error(&call(&mut client, "EXEC"), "EXECABORT");
            } else {
                assert_eq!(call(&mut client, "UNWATCH"), ok());
            }
        }
    }
}

#[test]
fn users_may_do_what_their_records_say_on_every_way() {
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &[]).expect("a server starts");
    let proxy = proxy_with(&format!(
        "threads = 1\n[[pool]]\n[[pool.shard]]\nserver = [{{ address = '{}' }}]\n\
         [[user]]\nname = 'default'\nrules = 'off'\n\
         [[user]]\nname = 'reader'\npassword = 'r'\nby-password = true\nmode = 'read'\nkey-prefixes = ['a:']\n\
         [[user]]\nname = 'writer'\npassword = 'w'\nby-password = true\nmode = 'write'\nkey-prefixes = ['a:', 'b:']\n\
         [[user]]\nname = 'admin'\npassword = 'x'\nmode = 'admin'\n",
        server.address()
    ));
    let mut client = Client::connect(proxy.address()).unwrap();
    for (line, start) in [
        ("GET a:1", "NOAUTH"),
        ("PING", "NOAUTH"),
        ("MULTI", "NOAUTH"),
        ("SUBSCRIBE c", "NOAUTH"),
        ("HELLO 3", "NOAUTH HELLO"),
        ("CONFIG RELOAD", "NOAUTH"),
        ("AUTH wrong", "WRONGPASS"),
        ("AUTH writer r", "WRONGPASS"),
        ("HELLO 2 AUTH writer r", "WRONGPASS"),
    ] {
        assert_error(&call(&mut client, line), start);
    }
    assert_eq!(call(&mut client, "AUTH w"), ok());
    assert_eq!(call(&mut client, "ACL WHOAMI"), bulk("writer"));
    assert_eq!(call(&mut client, "SET a:1 v"), ok());
    assert_eq!(call(&mut client, "MSET a:2 v b:2 v"), ok());
    for line in [
        "SET c:1 v",
        "GET c:1",
        "MSET a:2 v c:2 v",
        "DEL a:2 c:2",
        "RENAME a:1 c:1",
        "BLPOP a:1 c:1 0",
        "SORT a:1 BY w_*",
        "SINTERSTORE a:1 c:1",
        "EVAL return{} 0",
        "FLUSHALL",
        "CONFIG RELOAD",
    ] {
        let reply = call(&mut client, line);
        let text = String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned();
        let refused = text.starts_with("NOPERM") || text.contains("insufficient ACL permissions");
        assert!(reply.is_error() && refused, "{line}: {reply:?}");
    }
    // As a part of a transaction, too: and the whole is not executed then.
    assert_eq!(call(&mut client, "MULTI"), ok());
    assert_error(&call(&mut client, "FLUSHALL"), "NOPERM");
    assert_error(&call(&mut client, "EXEC"), "EXECABORT");
    assert_eq!(call(&mut client, "WATCH a:1"), ok());
    assert_error(&call(&mut client, "FLUSHALL"), "NOPERM");
    assert_eq!(call(&mut client, "UNWATCH"), ok());
    assert_eq!(call(&mut client, "AUTH r"), ok());
    assert_eq!(call(&mut client, "GET a:1"), bulk("v"));
    assert_error(&call(&mut client, "SET a:1 w"), "NOPERM");
    // Neither does a request that is too large to be collected pass.
    let large = "v".repeat(4 << 20);
    assert_error(&call(&mut client, &format!("SET a:1 {large}")), "NOPERM");
    assert_error(&call(&mut client, "GET b:2"), "NOPERM");
    assert_eq!(call(&mut client, "RESET"), Value::Simple(b"RESET".to_vec()));
    assert_error(&call(&mut client, "GET a:1"), "NOAUTH");
    assert_eq!(call(&mut client, "AUTH admin x"), ok());
    assert_eq!(call(&mut client, "FLUSHALL"), ok());
    assert_eq!(call(&mut client, "CONFIG RELOAD"), ok());
}

#[test]
fn a_client_that_ends_its_own_direction_still_gets_every_reply() {
    let behind = Behind::new(2, 1);
    let mut stream = TcpStream::connect(behind.proxy.address()).unwrap();
    let mut requests = Vec::new();
    for words in [
        &["SET", "k", "1"][..],
        &["MULTI"],
        &["INCR", "k"],
        &["EXEC"],
        &["SELECT", "1"],
        &["GET", "k"],
        &["SELECT", "0"],
        &["GET", "k"],
    ] {
        encode(words, &mut requests);
    }
    stream.write_all(&requests).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).unwrap();
    assert_eq!(
        replies,
        "+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:2\r\n+OK\r\n$-1\r\n+OK\r\n$1\r\n2\r\n"
    );
}

#[test]
fn it_tells_its_settings_and_is_in_no_cluster() {
    let behind = Behind::new(1, 1);
    let mut client = behind.client();
    let expected = Value::Array(vec![bulk("maxclients"), bulk("10000")]);
    assert_eq!(call(&mut client, "CONFIG GET MAXCL*"), expected);
    assert_error(
        &call(&mut client, "CLUSTER INFO"),
        "ERR This instance has cluster support disabled",
    );
}

#[test]
fn watching_and_what_does_not_go_with_it() {
    let behind = Behind::new(1, 1);
    let mut client = behind.client();
    let mut requests = Vec::new();
    for words in [&["WATCH", "k"][..], &["UNWATCH"], &["GET", "k"]] {
        encode(words, &mut requests);
    }
    client.send(&requests).unwrap();
    for expected in [ok(), ok(), Value::NullBulk] {
        assert_eq!(client.reply().unwrap(), Some(expected));
    }
    assert_eq!(call(&mut client, "WATCH k"), ok());
    assert_error(&call(&mut client, "SELECT 1"), "ERR between WATCH and EXEC");
    assert_error(&call(&mut client, "HELLO 3"), "ERR between WATCH and EXEC");
    assert_eq!(call(&mut client, "UNWATCH"), ok());
    assert_eq!(call(&mut client, "SELECT 1"), ok());
}

#[test]
fn a_channel_of_several_servers_is_named_once() {
    let behind = Behind::new(3, 1);
    let mut hears = behind.client();
    let channel = "__keyevent@0__:set";
    assert!(!call(&mut hears, &format!("SUBSCRIBE {channel}")).is_error());
    let mut asks = behind.client();
    assert_eq!(
        call(&mut asks, "PUBSUB CHANNELS"),
        Value::Array(vec![bulk(channel)])
    );
}

#[test]
fn what_a_browser_sends_is_not_taken_for_calls() {
    let behind = Behind::new(1, 1);
    for lines in [
        "POST / HTTP/1.1\r\nSET k v\r\n",
        "Host: x\r\nSET k v\r\n",
        "*1\r\n$4\r\npost\r\nSET k v\r\n",
    ] {
        let mut browser = behind.client();
        browser.send(lines.as_bytes()).unwrap();
        assert_eq!(browser.reply().unwrap(), None, "{lines:?}");
    }
    let mut client = behind.client();
    assert_eq!(call(&mut client, "EXISTS k"), Value::Integer(0));
    assert_eq!(behind.proxy.log().matches("sends HTTP").count(), 1);
}
