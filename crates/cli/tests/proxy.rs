//! `redline proxy` as a process, in front of servers of ours: the ways of requests, and what happens when a server is lost.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redline_resp::{Args, Decoded, RequestDecoder, RequestLimits, Value};
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

const REDLINE: &str = env!("CARGO_BIN_EXE_redline");

/// Servers, and a proxy in front of them.
struct Behind {
    servers: Vec<ServerProcess>,
    proxy: ServerProcess,
}

impl Behind {
    fn new(servers: usize, threads: usize) -> Behind {
        let servers: Vec<ServerProcess> = (0..servers)
            .map(|_| ServerProcess::redline(Path::new(REDLINE), 1, &[]).expect("a server starts"))
            .collect();
        let addresses: Vec<SocketAddr> = servers.iter().map(ServerProcess::address).collect();
        let words = ["--threads".to_owned(), threads.to_string()];
        let proxy =
            ServerProcess::proxy(Path::new(REDLINE), &addresses, &words).expect("the proxy starts");
        Behind { servers, proxy }
    }

    fn client(&self) -> Client {
        Client::connect(self.proxy.address()).expect("the proxy accepts")
    }
}

#[track_caller]
fn call(client: &mut Client, line: &str) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    client.call(&words).expect("a reply")
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

#[track_caller]
fn assert_error(value: &Value, start: &str) {
    let text = String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned();
    assert!(value.is_error() && text.starts_with(start), "{value:?}");
}

/// Whichever key is on another server than this one.
fn key_elsewhere(client: &mut Client, than: &str) -> String {
    (0..100)
        .map(|number| format!("other{number}"))
        .find(|key| {
            let moved = call(client, &format!("SINTER {than} {key}"));
            moved
                .as_bytes()
                .is_some_and(|text| text.starts_with(b"CROSSSLOT"))
        })
        .expect("there are several servers")
}

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
fn a_server_that_is_lost_is_an_error_and_never_a_missing_key() {
    let mut behind = Behind::new(3, 1);
    let mut client = behind.client();
    let keys: Vec<String> = (0..60).map(|number| format!("k{number}")).collect();
    for key in &keys {
        assert_eq!(call(&mut client, &format!("SET {key} v")), ok());
    }
    drop(behind.servers.remove(0));
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut lost = Vec::new();
    // The proxy hears of it in its own time.
    while lost.is_empty() {
        assert!(Instant::now() < deadline);
        lost = keys
            .iter()
            .filter(|key| call(&mut client, &format!("GET {key}")).is_error())
            .collect();
    }
    assert!(lost.len() < keys.len());
    for key in &keys {
        let reply = call(&mut client, &format!("GET {key}"));
        match lost.contains(&key) {
            true => assert_error(&reply, "ERR upstream 127.0.0.1:"),
            false => assert_eq!(reply, bulk("v")),
        }
    }
    let all = keys.join(" ");
    for command in ["MGET", "EXISTS", "DEL"] {
        assert_error(
            &call(&mut client, &format!("{command} {all}")),
            "ERR upstream",
        );
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
    // WATCH sees what others do, and the connection is clean for the next one.
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
    // What comes behind EXEC in one write runs behind it.
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
fn a_call_that_waits_holds_nobody_else_up() {
    let behind = Behind::new(2, 1);
    let (mut waits, mut other) = (behind.client(), behind.client());
    let mut requests = Vec::new();
    encode(&["SET", "before", "1"], &mut requests);
    encode(&["BLPOP", "list", "0"], &mut requests);
    encode(&["GET", "before"], &mut requests);
    waits.send(&requests).unwrap();
    assert_eq!(waits.reply().unwrap(), Some(ok()));
    assert_eq!(call(&mut other, "GET before"), bulk("1"));
    assert_eq!(call(&mut other, "RPUSH list x"), Value::Integer(1));
    let popped = Value::Array(vec![bulk("list"), bulk("x")]);
    assert_eq!(waits.reply().unwrap(), Some(popped));
    assert_eq!(waits.reply().unwrap(), Some(bulk("1")));
    // Whoever leaves while waiting takes nothing along.
    let mut gone = behind.client();
    let mut request = Vec::new();
    encode(&["BLPOP", "list", "0"], &mut request);
    gone.send(&request).unwrap();
    let blocked = |behind: &Behind| {
        let count = |server: &ServerProcess| {
            let mut direct = Client::connect(server.address()).unwrap();
            let info = call(&mut direct, "INFO clients");
            let text = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
            text.contains("blocked_clients:1")
        };
        behind.servers.iter().any(count)
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !blocked(&behind) {
        assert!(Instant::now() < deadline, "it never waited");
    }
    drop(gone);
    while blocked(&behind) {
        assert!(Instant::now() < deadline, "the server still waits for it");
    }
    assert_eq!(call(&mut other, "RPUSH list y"), Value::Integer(1));
    assert_eq!(call(&mut other, "LLEN list"), Value::Integer(1));
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
        ] {
            let ours = client.call(&words).unwrap();
            assert_eq!(ours, direct.call(&words).unwrap(), "{proto} {words:?}");
        }
    }
}

#[test]
fn long_keys_and_large_values_pass_whole() {
    let behind = Behind::new(3, 1);
    let mut client = behind.client();
    let long = "k".repeat(5000);
    for number in 0..20 {
        let key = format!("{long}{number}");
        let value = vec![b'a' + number as u8; 3_000_000];
        let set: [&[u8]; 3] = [b"SET", key.as_bytes(), &value];
        assert_eq!(client.call(&set).unwrap(), ok());
        let mut request = Vec::new();
        encode(&["GET", &key], &mut request);
        for part in request.chunks(511) {
            client.send(part).unwrap();
        }
        assert_eq!(client.reply().unwrap(), Some(Value::Bulk(value)));
    }
    assert_eq!(call(&mut client, "DBSIZE"), Value::Integer(20));
}

#[test]
fn a_client_that_leaves_in_the_midst_disturbs_nobody() {
    let behind = Behind::new(1, 1);
    let mut stays = behind.client();
    call(&mut stays, "SET k stays");
    for round in 0..50 {
        let mut leaves = behind.client();
        let mut requests = Vec::new();
        for _ in 0..200 {
            encode(&["GET", "k"], &mut requests);
        }
        leaves.send(&requests).unwrap();
        stays.send(&requests).unwrap();
        drop(leaves);
        for _ in 0..200 {
            assert_eq!(stays.reply().unwrap(), Some(bulk("stays")), "{round}");
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

/// A server that answers as it was told, for what no real one says at will.
fn scripted(answer: impl Fn(&[Vec<u8>]) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), Arc::clone(&answer));
            thread::spawn(move || {
                let (mut held, mut piece) = (Vec::new(), [0; 4096]);
                let limits = RequestLimits::default();
                while let Ok(read @ 1..) = stream.read(&mut piece) {
                    held.extend_from_slice(&piece[..read]);
                    let (mut decoder, mut spans) = (RequestDecoder::new(), Vec::new());
                    while let Ok(Decoded::Request { consumed, .. }) =
                        decoder.decode(&mut held, &limits, &mut spans)
                    {
                        let words: Vec<Vec<u8>> = Args::new(&held, &spans)
                            .iter()
                            .map(<[u8]>::to_vec)
                            .collect();
                        if stream.write_all(&answer(&words)).is_err() {
                            return;
                        }
                        held.drain(..consumed);
                        spans.clear();
                    }
                }
            });
        }
    });
    address
}

fn proxy_of(upstreams: &[SocketAddr]) -> ServerProcess {
    ServerProcess::proxy(Path::new(REDLINE), upstreams, &[]).expect("the proxy starts")
}

#[test]
fn redirects_are_followed_and_never_seen() {
    let real = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let target = real.address();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let moved = scripted(move |words| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let slot = 1;
        match words[0].to_ascii_uppercase().as_slice() {
            // Some errors pass by themselves.
            b"GET" if number.is_multiple_of(3) => b"-TRYAGAIN Multiple keys\r\n".to_vec(),
            b"SET" if number.is_multiple_of(5) => b"-LOADING Redis is loading\r\n".to_vec(),
            _ => format!("-MOVED {slot} {target}\r\n").into_bytes(),
        }
    });
    let proxy = proxy_of(&[moved, target]);
    let mut client = Client::connect(proxy.address()).unwrap();
    for number in 0..60 {
        let key = format!("k{number}");
        assert_eq!(call(&mut client, &format!("SET {key} {number}")), ok());
        assert_eq!(
            call(&mut client, &format!("GET {key}")),
            bulk(&number.to_string())
        );
    }
    let keys: Vec<String> = (0..60).map(|number| format!("k{number}")).collect();
    let values: Vec<Value> = (0..60).map(|number| bulk(&number.to_string())).collect();
    let mget = call(&mut client, &format!("MGET {}", keys.join(" ")));
    assert_eq!(mget, Value::Array(values));
    for key in &keys {
        call(&mut client, &format!("RPUSH l{key} x"));
        let popped = call(&mut client, &format!("BLPOP l{key} 1"));
        assert_eq!(
            popped,
            Value::Array(vec![bulk(&format!("l{key}")), bulk("x")])
        );
    }
    assert!(asked.load(Ordering::Relaxed) > 60);
}

#[test]
fn a_server_that_answers_nothing_sensible_fails_its_own_requests_only() {
    let real = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let odd = scripted(|_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    let proxy = proxy_of(&[odd, real.address()]);
    let mut client = Client::connect(proxy.address()).unwrap();
    let mut failed = 0;
    for number in 0..40 {
        let reply = call(&mut client, &format!("SET k{number} v"));
        match reply.is_error() {
            true => failed += 1,
            false => assert_eq!(reply, ok()),
        }
    }
    assert!(failed > 0 && failed < 40, "{failed}");
}

/// The words of an array, or of a push message.
fn words(value: Option<Value>) -> Vec<String> {
    let (Some(Value::Array(values)) | Some(Value::Push(values))) = value else {
        panic!("no message: {value:?}");
    };
    let text = |value: &Value| match value {
        Value::Integer(number) => number.to_string(),
        Value::NullBulk | Value::Null => "nil".to_owned(),
        other => String::from_utf8_lossy(other.as_bytes().unwrap_or_default()).into_owned(),
    };
    values.iter().map(text).collect()
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
fn a_subscriber_that_does_not_read_is_cut_and_nobody_else_notices() {
    let behind = Behind::new(1, 1);
    let (mut slow, mut quick, mut speaks) = (behind.client(), behind.client(), behind.client());
    for client in [&mut slow, &mut quick] {
        assert_eq!(
            words(Some(call(client, "SUBSCRIBE c"))),
            ["subscribe", "c", "1"]
        );
    }
    let text = "x".repeat(1_000_000);
    for number in 0..60 {
        assert_eq!(
            call(&mut speaks, &format!("PUBLISH c {number}:{text}")),
            Value::Integer(1)
        );
        let message = words(quick.reply().unwrap());
        assert!(message[2].starts_with(&format!("{number}:")));
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let list = call(&mut speaks, "CLIENT LIST");
        if list
            .as_bytes()
            .unwrap()
            .split(|byte| *byte == b'\n')
            .count()
            == 3
        {
            break;
        }
        assert!(Instant::now() < deadline, "it was never cut");
    }
}

/// The most memory that a process has had: bytes.
fn peak_bytes(server: &ServerProcess) -> usize {
    let path = format!("/proc/{}/status", server.pid());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

#[test]
fn large_values_go_through_without_being_held() {
    const BYTES: usize = 100_000_000;
    const MEMORY_MAX: usize = 24_000_000;
    let behind = Behind::new(2, 1);
    let mut client = behind.client();
    let before = peak_bytes(&behind.proxy);
    let value = vec![b'v'; BYTES];
    for (number, words) in [
        vec![&b"SET"[..], b"k", &value],
        vec![b"SETEX", b"k", b"1000", &value],
        vec![b"APPEND", b"other", &value],
        vec![b"SET", b"k", &value, b"XX", b"KEEPTTL"],
    ]
    .into_iter()
    .enumerate()
    {
        let mut request = Vec::new();
        // What is behind it in the pipeline runs behind it.
        encode(&["SET", "small", "1"], &mut request);
        encode(&words, &mut request);
        encode(&["STRLEN", "k"], &mut request);
        encode(&["INCR", "small"], &mut request);
        client.send(&request).unwrap();
        assert_eq!(client.reply().unwrap(), Some(ok()), "{number}");
        let expected = match words[0] {
            b"APPEND" => Value::Integer(BYTES as i64),
            _ => ok(),
        };
        assert_eq!(client.reply().unwrap(), Some(expected), "{number}");
        assert_eq!(client.reply().unwrap(), Some(Value::Integer(BYTES as i64)));
        assert_eq!(client.reply().unwrap(), Some(Value::Integer(2)));
    }
    let mut held = peak_bytes(&behind.proxy) - before;
    assert!(held < MEMORY_MAX, "{held} bytes for requests");
    // A reader that takes its time: others go on, and the value waits in the server's socket.
    let mut slow = TcpStream::connect(behind.proxy.address()).unwrap();
    let mut request = Vec::new();
    encode(&["GET", "k"], &mut request);
    encode(&["STRLEN", "k"], &mut request);
    slow.write_all(&request).unwrap();
    let mut reply = vec![0; 1000];
    slow.read_exact(&mut reply).unwrap();
    for number in 3..2000 {
        assert_eq!(call(&mut client, "INCR small"), Value::Integer(number));
        call(&mut client, "STRLEN k");
    }
    let mut expected = format!("${BYTES}\r\n").into_bytes();
    expected.extend_from_slice(&value);
    expected.extend_from_slice(format!("\r\n:{BYTES}\r\n").as_bytes());
    reply.resize(expected.len(), 0);
    slow.read_exact(&mut reply[1000..]).unwrap();
    assert!(reply == expected);
    held = peak_bytes(&behind.proxy) - before;
    assert!(held < MEMORY_MAX, "{held} bytes for replies");
}

#[test]
fn a_client_that_leaves_within_a_large_value_disturbs_nobody() {
    let behind = Behind::new(1, 1);
    let mut stays = behind.client();
    let part = vec![b'x'; 300_000];
    for round in 0..20 {
        let mut leaves = behind.client();
        leaves
            .send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n")
            .unwrap();
        leaves.send(&part).unwrap();
        assert_eq!(call(&mut stays, &format!("SET n {round}")), ok());
        drop(leaves);
        assert_eq!(call(&mut stays, "EXISTS k"), Value::Integer(0));
    }
    let value = vec![b'y'; 5_000_000];
    let set: [&[u8]; 3] = [b"SET", b"big", &value];
    assert_eq!(stays.call(&set).unwrap(), ok());
    for _ in 0..10 {
        let mut leaves = behind.client();
        let mut request = Vec::new();
        encode(&["GET", "big"], &mut request);
        leaves.send(&request).unwrap();
        drop(leaves);
        assert_eq!(call(&mut stays, "STRLEN big"), Value::Integer(5_000_000));
    }
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
            "CONFIG SET maxmemory 1",
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
fn what_no_client_may_send_ends_that_client_only() {
    let behind = Behind::new(1, 1);
    let mut stays = behind.client();
    let long = "x".repeat(5000);
    assert!(!call(&mut stays, &format!("INFO {long}")).is_error());
    assert_error(
        &call(&mut stays, &format!("CONFIG {long}")),
        "ERR unknown subcommand",
    );
    for (sent, answered) in [
        (
            "*1\r\n$999999999999\r\n",
            "ERR Protocol error: invalid bulk length",
        ),
        (
            "*2147483647\r\n",
            "ERR Protocol error: invalid multibulk length",
        ),
        ("*1\r\n!\r\n", "ERR Protocol error: expected '$'"),
        (
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$600000000\r\n",
            "ERR Protocol error: invalid bulk length",
        ),
    ] {
        let mut client = behind.client();
        client.send(sent.as_bytes()).unwrap();
        assert_error(&client.reply().unwrap().unwrap(), answered);
        assert_eq!(client.reply().unwrap(), None, "{sent}");
        assert_eq!(call(&mut stays, "PING"), Value::Simple(b"PONG".to_vec()));
    }
}

#[test]
fn users_may_do_what_their_records_say_on_every_way() {
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &[]).expect("a server starts");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.toml");
    let text = format!(
        "threads = 1\n[[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\n[[pool.shard]]\nserver = [{{ address = '{}' }}]\n\
         [[user]]\nname = 'default'\nrules = 'off'\n\
         [[user]]\nname = 'reader'\npassword = 'r'\nby-password = true\nmode = 'read'\nkey-prefixes = ['a:']\n\
         [[user]]\nname = 'writer'\npassword = 'w'\nby-password = true\nmode = 'write'\nkey-prefixes = ['a:', 'b:']\n\
         [[user]]\nname = 'admin'\npassword = 'x'\nmode = 'admin'\n",
        server.address()
    );
    std::fs::write(&path, text).unwrap();
    let words = [path.display().to_string()];
    let proxy = ServerProcess::proxy(Path::new(REDLINE), &[], &words).expect("the proxy starts");
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
    // As a part of a transaction, too: and the whole is not done then.
    assert_eq!(call(&mut client, "MULTI"), ok());
    assert_error(&call(&mut client, "FLUSHALL"), "NOPERM");
    assert_error(&call(&mut client, "EXEC"), "EXECABORT");
    assert_eq!(call(&mut client, "WATCH a:1"), ok());
    assert_error(&call(&mut client, "FLUSHALL"), "NOPERM");
    assert_eq!(call(&mut client, "UNWATCH"), ok());
    assert_eq!(call(&mut client, "AUTH r"), ok());
    assert_eq!(call(&mut client, "GET a:1"), bulk("v"));
    assert_error(&call(&mut client, "SET a:1 w"), "NOPERM");
    // Neither does what is too large to be collected get by.
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
fn a_transaction_whose_server_is_lost_does_nothing_more() {
    for last in ["EXEC", "DISCARD"] {
        let mut behind = Behind::new(1, 1);
        let mut client = behind.client();
        assert_eq!(call(&mut client, "MULTI"), ok());
        assert_eq!(
            call(&mut client, "SET a 1"),
            Value::Simple(b"QUEUED".to_vec())
        );
        drop(behind.servers.remove(0));
        let deadline = Instant::now() + Duration::from_secs(10);
        while !call(&mut client, "SET b 1").is_error() {
            assert!(Instant::now() < deadline);
        }
        match last {
            "EXEC" => assert_error(&call(&mut client, last), "EXECABORT"),
            _ => assert_eq!(call(&mut client, last), ok()),
        }
        assert_eq!(call(&mut client, "PING"), Value::Simple(b"PONG".to_vec()));
    }
}

#[test]
fn subscribing_where_the_server_is_lost_is_an_error() {
    let mut behind = Behind::new(1, 1);
    let mut client = behind.client();
    assert_eq!(call(&mut client, "PING"), Value::Simple(b"PONG".to_vec()));
    drop(behind.servers.remove(0));
    for _ in 0..3 {
        assert_error(&call(&mut client, "SUBSCRIBE c"), "ERR");
    }
    // And what it had does not stay behind.
    assert_eq!(call(&mut client, "PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn parts_of_replies_that_never_get_whole_have_a_limit() {
    let pong = |words: &[Vec<u8>]| {
        words[0]
            .eq_ignore_ascii_case(b"ping")
            .then(|| b"+PONG\r\n".to_vec())
    };
    let full = scripted(move |words| {
        pong(words).unwrap_or_else(|| {
            let mut reply = format!("*{}\r\n", words.len() - 1).into_bytes();
            for _ in &words[1..] {
                reply.extend_from_slice(format!("$50000\r\n{}\r\n", "x".repeat(50_000)).as_bytes());
            }
            reply
        })
    });
    let silent = scripted(move |words| pong(words).unwrap_or_default());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("proxy.toml");
    let text = format!(
        "[limits]\noutput-buffer = '4mb'\n[timeouts]\nrequest = 'off'\n[[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\n\
         [[pool.shard]]\nserver = [{{ address = '{full}' }}]\n[[pool.shard]]\nserver = [{{ address = '{silent}' }}]\n"
    );
    std::fs::write(&file, text).unwrap();
    let words = [file.display().to_string()];
    let proxy = ServerProcess::proxy(Path::new(REDLINE), &[], &words).expect("the proxy starts");
    let mut greedy = TcpStream::connect(proxy.address()).unwrap();
    let keys = ["MGET", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let mut calls = Vec::new();
    (0..100).for_each(|_| encode(&keys, &mut calls));
    greedy.write_all(&calls).unwrap();
    let limit = Duration::from_secs(20);
    greedy.set_read_timeout(Some(limit)).unwrap();
    let mut rest = Vec::new();
    let ended = greedy.read_to_end(&mut rest).map_err(|error| error.kind());
    assert_ne!(ended, Err(std::io::ErrorKind::WouldBlock), "it stays open");
    assert!(rest.is_empty(), "nothing that is half is sent");
    let mut other = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut other, "PING"), Value::Simple(b"PONG".to_vec()));
}
