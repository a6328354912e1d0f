//! `redline proxy` as a process: the cache for hot keys, which servers keep current by reporting changed keys.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use redline_resp::Value;
use redline_testkit::client::{Client, encode};
use redline_testkit::process::ServerProcess;

use crate::proxying::{
    REDLINE, assert_error, bulk, call, ok, proxy_with, scripted, scripted_over, shards, signal,
    until,
};

fn server() -> ServerProcess {
    ServerProcess::redline(Path::new(REDLINE), 2, &[]).expect("a server starts")
}

/// Returns a pool that caches keys with the prefix `k`, with this in its table, over these servers.
fn pool(cache: &str, servers: &[SocketAddr]) -> String {
    format!(
        "[[pool]]\n[pool.cache]\nprefixes = ['k']\n{cache}\n{}",
        shards(servers)
    )
}

fn proxy(threads: usize, cache: &str, servers: &[SocketAddr]) -> ServerProcess {
    let proxy = proxy_with(&format!("threads = {threads}\n{}", pool(cache, servers)));
    let mut client = connect(&proxy);
    let all = (threads * servers.len()) as u64;
    until("all servers tell what changes", || {
        stat(&mut client, "CacheWorkers") == all
    });
    proxy
}

/// Practically never.
const OLD: &str = "max-age = '1h'";

fn connect(server: &ServerProcess) -> Client {
    Client::connect(server.address()).expect("it accepts")
}

/// Returns the sum of the fields of this name in INFO.
fn stat(client: &mut Client, name: &str) -> u64 {
    let info = client.call(&["INFO", "everything"]).unwrap();
    let info = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
    info.lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .filter_map(|text| text.trim().parse::<u64>().ok())
        .sum()
}

/// Returns the number of GETs that a server has executed.
fn gets(client: &mut Client) -> u64 {
    let info = client.call(&["INFO", "commandstats"]).unwrap();
    let info = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
    let line = info.lines().find(|line| line.starts_with("cmdstat_get:"));
    let calls = line.and_then(|line| line.split_once("calls=")?.1.split_once(','));
    calls.map_or(0, |(calls, _)| calls.parse().unwrap())
}

/// Reads until the reply is cached.
#[track_caller]
fn keep(client: &mut Client, key: &str, value: &Value) {
    until(key, || {
        let before = stat(client, "cache_hits");
        let said = call(client, &format!("GET {key}"));
        said == *value && stat(client, "cache_hits") > before
    });
}

#[test]
fn hits_do_not_reach_the_server_and_its_news_do_reach_us() {
    let server = server();
    let proxy = proxy(1, OLD, &[server.address()]);
    let (mut direct, mut client) = (connect(&server), connect(&proxy));
    let mut newer = connect(&proxy);
    call(&mut newer, "HELLO 3");
    call(&mut direct, "SET k1 one");
    keep(&mut client, "k1", &bulk("one"));
    keep(&mut client, "k2", &Value::NullBulk);
    // If a server answers PING slowly, its values are not used for a moment.
    until("hits alone", || {
        let (before, hits) = (gets(&mut direct), stat(&mut client, "cache_hits"));
        for _ in 0..50 {
            assert_eq!(call(&mut client, "GET k1"), bulk("one"));
            assert_eq!(call(&mut newer, "GET k1"), bulk("one"));
            assert_eq!(call(&mut client, "GET k2"), Value::NullBulk);
            assert_eq!(call(&mut newer, "get k2"), Value::Null);
        }
        client.send(b"GET k1\r\n").unwrap();
        assert_eq!(client.reply().unwrap(), Some(bulk("one")));
        gets(&mut direct) == before && stat(&mut client, "cache_hits") == hits + 201
    });
    // Keys with other prefixes are not cached.
    let before = gets(&mut direct);
    (0..5).for_each(|_| drop(call(&mut client, "GET other")));
    assert_eq!(gets(&mut direct), before + 5);
    // Calls that are answered here count as any.
    assert!(gets(&mut client) >= 206);
    call(&mut direct, "SET k1 two");
    call(&mut direct, "SET k2 there");
    until("k1", || call(&mut client, "GET k1") == bulk("two"));
    until("k2", || call(&mut newer, "GET k2") == bulk("there"));
    assert!(stat(&mut client, "cache_invalidations") >= 2);
    // Databases are distinguished; reports cover all of them.
    for client in [&mut direct, &mut client] {
        call(client, "SELECT 1");
    }
    call(&mut direct, "SET k1 elsewhere");
    keep(&mut client, "k1", &bulk("elsewhere"));
    keep(&mut newer, "k1", &bulk("two"));
    call(&mut direct, "SET k1 changed");
    until("the other database", || {
        call(&mut client, "GET k1") == bulk("changed")
    });
    assert_eq!(call(&mut newer, "GET k1"), bulk("two"));
    // A key that expires.
    until("k3 is kept", || {
        call(&mut direct, "SET k3 brief PX 1500");
        let hits = stat(&mut client, "cache_hits");
        (0..20).any(|_| {
            call(&mut client, "GET k3") == bulk("brief") && stat(&mut client, "cache_hits") > hits
        })
    });
    until("k3", || call(&mut client, "GET k3") == Value::NullBulk);
    keep(&mut client, "k1", &bulk("changed"));
    call(&mut direct, "FLUSHALL");
    until("nothing", || call(&mut client, "GET k1") == Value::NullBulk);
    keep(&mut client, "k1", &Value::NullBulk);
    call(&mut client, "CONFIG RESETSTAT");
    assert_eq!(stat(&mut client, "cache_hits"), 0);
    assert!(stat(&mut client, "cache_bytes") > 0);
}

#[test]
fn what_a_client_writes_it_reads_at_once() {
    let servers = [server(), server()];
    let addresses: Vec<SocketAddr> = servers.iter().map(ServerProcess::address).collect();
    let proxy = proxy(1, OLD, &addresses);
    let mut clients: Vec<Client> = (0..4).map(|_| connect(&proxy)).collect();
    clients.iter_mut().step_by(2).for_each(|client| {
        call(client, "HELLO 3");
    });
    let hits = stat(&mut clients[0], "cache_hits");
    for round in 0..60 {
        let value = format!("v{round}");
        let ways: [&[String]; 11] = [
            &[format!("SET k1 {value}")],
            &["MULTI".into(), format!("SET k1 {value}"), "EXEC".into()],
            &[
                "WATCH k1".into(),
                format!("SET k1 {value}"),
                "UNWATCH".into(),
            ],
            &[format!(
                "EVAL return(redis.call('SET',KEYS[1],'{value}')) 1 k1"
            )],
            &[format!("MSET k1 {value} k2 {value} k3 {value}")],
            &["DEL k1 k2 k3".into(), format!("APPEND k1 {value}")],
            &[format!("GETSET k1 {value}")],
            &["FLUSHALL".into(), format!("SETNX k1 {value}")],
            &[
                format!("SET k1{{x}} {value}"),
                "DEL k1".into(),
                "SET k1 x".into(),
                format!("SETRANGE k1 0 {value}"),
            ],
            &[
                "GETDEL k1".into(),
                format!("HELLO {}", 2 + round % 2),
                format!("SETEX k1 100 {value}"),
            ],
            &[
                "LPUSH l x".into(),
                "BLPOP l 0".into(),
                format!("SET k1 {value}"),
            ],
        ];
        for (number, way) in ways.iter().enumerate() {
            // Others read meanwhile, so that it is cached.
            for client in &mut clients {
                (0..3).for_each(|_| drop(call(client, "GET k1")));
            }
            let client = &mut clients[(round + number) % 4];
            for line in *way {
                let said = call(client, line);
                assert!(!said.is_error(), "{line}: {said:?}");
            }
            assert_eq!(call(client, "GET k1"), bulk(&value), "{way:?}");
            assert_eq!(call(client, "GET k1"), bulk(&value), "{way:?}");
        }
        let client = &mut clients[round % 4];
        // One that is passed through in pieces.
        let large = format!("{round}{}", "x".repeat(60_000));
        let mut request = Vec::new();
        encode(&["SET", "k1", &large], &mut request);
        let (start, end) = request.split_at(40_000);
        client.send(start).unwrap();
        assert!(call(&mut connect(&proxy), "PING").as_bytes().is_some());
        let client = &mut clients[round % 4];
        client.send(end).unwrap();
        assert_eq!(client.reply().unwrap(), Some(ok()));
        assert_eq!(call(client, "GET k1"), bulk(&large));
        // One in one piece with the read after it.
        let mut pipeline = Vec::new();
        for words in [
            &["GET", "k1"][..],
            &["SET", "k1", "y"],
            &["GET", "k1"],
            &["GET", "k2"],
            &["STRLEN", "k1"],
            &["GET", "k1"],
        ] {
            encode(words, &mut pipeline);
        }
        client.send(&pipeline).unwrap();
        let said: Vec<Value> = (0..6).map(|_| client.reply().unwrap().unwrap()).collect();
        assert_eq!(said[0], bulk(&large));
        assert_eq!(said[1], ok());
        assert_eq!([&said[2], &said[5]], [&bulk("y"), &bulk("y")]);
        assert_eq!(said[4], Value::Integer(1));
    }
    assert!(stat(&mut clients[0], "cache_hits") > hits + 1_000);
}

#[test]
fn nobody_sees_a_counter_go_back() {
    const ROUNDS: usize = 1_000;
    let servers = [server(), server()];
    let addresses: Vec<SocketAddr> = servers.iter().map(ServerProcess::address).collect();
    let proxy = proxy(2, OLD, &addresses);
    let number = |value: &Value| -> u64 {
        match value {
            Value::Integer(number) => *number as u64,
            other => {
                let text = String::from_utf8_lossy(other.as_bytes().unwrap_or(b"0")).into_owned();
                text.parse().unwrap_or(0)
            }
        }
    };
    let run = |seed: u64| {
        let mut client = connect(&proxy);
        if seed.is_multiple_of(2) {
            call(&mut client, "HELLO 3");
        }
        let mut random = numbers(seed);
        let mut seen = [0_u64; 4];
        for _ in 0..ROUNDS {
            let at = random(4) as usize;
            let key = format!("kcount{at}");
            let value = match random(100) {
                0 | 1 => number(&call(&mut client, &format!("INCR {key}"))),
                2 => {
                    call(&mut client, "MULTI");
                    call(&mut client, &format!("INCR {key}"));
                    match call(&mut client, "EXEC") {
                        Value::Array(values) => number(&values[0]),
                        other => panic!("{other:?}"),
                    }
                }
                3 => {
                    let script = format!("EVAL return(redis.call('INCR',KEYS[1])) 1 {key}");
                    number(&call(&mut client, &script))
                }
                4 => match call(&mut client, &format!("MGET {key} kcount0 kcount3")) {
                    Value::Array(values) => number(&values[0]),
                    other => panic!("{other:?}"),
                },
                // In one piece.
                5..=8 => {
                    let mut pipeline = Vec::new();
                    (0..4).for_each(|_| encode(&["GET", &key], &mut pipeline));
                    client.send(&pipeline).unwrap();
                    let mut last = 0;
                    for _ in 0..4 {
                        let value = number(&client.reply().unwrap().unwrap());
                        assert!(value >= last, "{key}: {value} behind {last}");
                        last = value;
                    }
                    last
                }
                _ => number(&call(&mut client, &format!("GET {key}"))),
            };
            assert!(value >= seen[at], "{key}: {value} behind {}", seen[at]);
            seen[at] = value;
        }
    };
    thread::scope(|scope| {
        for seed in 1..=8 {
            let run = &run;
            scope.spawn(move || run(seed));
        }
        for server in &servers {
            let keys: Vec<String> = (0..4).map(|at| format!("kcount{at}")).collect();
            scope.spawn(move || {
                let mut direct = connect(server);
                for round in 0..ROUNDS / 4 {
                    // Only on the key's server.
                    let key = &keys[round % 4];
                    call(&mut direct, &format!("EVAL if(redis.call('EXISTS',KEYS[1])==1)then(redis.call)('INCR',KEYS[1])end 1 {key}"));
                    thread::yield_now();
                }
            });
        }
    });
    let mut client = connect(&proxy);
    assert!(stat(&mut client, "cache_hits") > 500);
}

/// Returns numbers below a bound, by a seed.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

#[test]
fn nothing_is_cached_while_the_server_does_not_tell() {
    let server = server();
    let proxy = proxy(1, OLD, &[server.address()]);
    let (mut direct, mut client) = (connect(&server), connect(&proxy));
    call(&mut direct, "SET k1 0");
    for round in 1..=5 {
        keep(&mut client, "k1", &bulk(&(round - 1).to_string()));
        let list = call(&mut direct, "CLIENT LIST");
        let list = String::from_utf8_lossy(list.as_bytes().unwrap()).into_owned();
        let word = |line: &str, name: &str| -> String {
            let mut words = line.split(' ');
            let found = words.find_map(|word| word.strip_prefix(name));
            found.unwrap_or_default().to_owned()
        };
        let line = list
            .lines()
            .find(|line| word(line, "flags=").contains('B'))
            .expect("somebody is told what changes");
        call(
            &mut direct,
            &format!("CLIENT KILL ID {}", word(line, "id=")),
        );
        call(&mut direct, &format!("SET k1 {round}"));
        let value = bulk(&round.to_string());
        until("the new value", || call(&mut client, "GET k1") == value);
    }
    assert!(proxy.log().contains("nothing of"), "{}", proxy.log());
    // A server that refuses is asked for values all the same.
    let asked = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&asked);
    let refusing = scripted(
        move |words| match words[0].to_ascii_uppercase().as_slice() {
            b"CLIENT" => b"-ERR unknown subcommand 'TRACKING'\r\n".to_vec(),
            b"PING" => b"+PONG\r\n".to_vec(),
            b"GET" => format!(":{}\r\n", own.fetch_add(1, Ordering::SeqCst)).into_bytes(),
            _ => b"+OK\r\n".to_vec(),
        },
    );
    let proxy = proxy_with(&pool(OLD, &[refusing]));
    let mut client = connect(&proxy);
    for number in 0..10 {
        assert_eq!(call(&mut client, "GET k"), Value::Integer(number));
    }
    assert_eq!(stat(&mut client, "CacheWorkers"), 0);
    until("why", || proxy.log().contains("unknown subcommand"));
}

#[test]
fn news_that_come_in_pieces_before_a_sign_of_life_are_news() {
    /// Connections that get invalidations, and the number of their PINGs.
    #[derive(Default)]
    struct Told {
        peers: HashSet<SocketAddr>,
        pings: usize,
    }
    let told = Arc::new(Mutex::new(Told::default()));
    let value = Arc::new(AtomicU64::new(0));
    let (own, says) = (Arc::clone(&told), Arc::clone(&value));
    let server = scripted_over(move |words, stream| {
        let peer = stream.peer_addr().ok()?;
        let mut told = own.lock().unwrap();
        Some(match words[0].to_ascii_uppercase().as_slice() {
            b"CLIENT" if words[1].eq_ignore_ascii_case(b"TRACKING") => {
                told.peers.insert(peer);
                b"+OK\r\n".to_vec()
            }
            b"PING" if told.peers.contains(&peer) && says.load(Ordering::SeqCst) > 0 => {
                // More than is read at once, and the key is in the first piece.
                told.pings += 1;
                let keys = format!("$1\r\nk\r\n{}", "$7\r\nk:other\r\n".repeat(50_000));
                format!(">2\r\n$10\r\ninvalidate\r\n*50001\r\n{keys}+PONG\r\n").into_bytes()
            }
            b"PING" => b"+PONG\r\n".to_vec(),
            b"GET" => format!("$1\r\n{}\r\n", says.load(Ordering::SeqCst)).into_bytes(),
            _ => b"+OK\r\n".to_vec(),
        })
    });
    let proxy = proxy(1, OLD, &[server]);
    let mut client = connect(&proxy);
    keep(&mut client, "k", &bulk("0"));
    value.store(1, Ordering::SeqCst);
    until("the new value", || call(&mut client, "GET k") == bulk("1"));
    until("signs of life", || told.lock().unwrap().pings > 1);
    // No unexpected one.
    assert!(!proxy.log().contains("nobody waits"), "{}", proxy.log());
}

#[test]
fn a_value_is_told_for_so_long_and_no_longer() {
    // It never reports a change.
    let asked = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&asked);
    let silent = scripted(
        move |words| match words[0].to_ascii_uppercase().as_slice() {
            b"GET" => {
                let value = own.fetch_add(1, Ordering::SeqCst) / 4;
                format!("$1\r\n{}\r\n", value % 10).into_bytes()
            }
            b"PING" => b"+PONG\r\n".to_vec(),
            _ => b"+OK\r\n".to_vec(),
        },
    );
    let proxy = proxy(1, "max-age = '200ms'", &[silent]);
    let mut client = connect(&proxy);
    until("another value", || call(&mut client, "GET k") == bulk("5"));
    assert!(stat(&mut client, "cache_hits") > asked.load(Ordering::SeqCst));
}

#[test]
fn memory_has_a_bound() {
    let server = server();
    let proxy = proxy(1, &format!("{OLD}\nmemory = '64kb'"), &[server.address()]);
    let mut client = connect(&proxy);
    for number in 0..500 {
        let value = "x".repeat(300);
        call(&mut client, &format!("SET k{number} {value}"));
    }
    // Again if the server's reports of a key come after its value.
    until("it is full", || {
        for number in 0..500 {
            (0..2).for_each(|_| drop(call(&mut client, &format!("GET k{number}"))));
        }
        let bytes = stat(&mut client, "cache_bytes");
        assert!(bytes <= 64 * 1024, "{bytes}");
        bytes >= 32 * 1024
            && stat(&mut client, "cache_evictions") > 200
            && stat(&mut client, "cache_entries") > 50
    });
    let large = "x".repeat(40_000);
    call(&mut client, &format!("SET klarge {large}"));
    let hits = stat(&mut client, "cache_hits");
    for _ in 0..5 {
        assert_eq!(call(&mut client, "GET klarge"), bulk(&large));
    }
    assert_eq!(stat(&mut client, "cache_hits"), hits);
}

#[test]
fn routes_rights_and_pools_hold_for_what_is_cached() {
    let servers = [server(), server()];
    let text = format!(
        "threads = 1\n[[user]]\nname = 'default'\nmode = 'admin'\n[[user]]\nname = 'few'\npassword = 'p'\nmode = 'write'\nkey-prefixes = ['z']\n\
         [[route]]\nprefix = 's:'\npool = 'short'\nstrip = true\n{}\n{}",
        pool(OLD, &[servers[0].address()]).replace("[[pool]]", "[[pool]]\nname = 'first'"),
        pool(OLD, &[servers[1].address()]).replace("[[pool]]", "[[pool]]\nname = 'short'"),
    );
    let proxy = proxy_with(&text);
    let mut client = connect(&proxy);
    until("both tell", || stat(&mut client, "CacheWorkers") == 2);
    call(&mut client, "SET k one");
    call(&mut client, "SET s:k two");
    keep(&mut client, "k", &bulk("one"));
    keep(&mut client, "s:k", &bulk("two"));
    keep(&mut client, "k", &bulk("one"));
    call(&mut client, "SET s:k three");
    assert_eq!(call(&mut client, "GET s:k"), bulk("three"));
    let mut direct = connect(&servers[1]);
    keep(&mut client, "s:k", &bulk("three"));
    call(&mut direct, "SET k four");
    until("s:k", || call(&mut client, "GET s:k") == bulk("four"));
    let mut few = connect(&proxy);
    assert_eq!(call(&mut few, "AUTH few p"), ok());
    assert_error(&call(&mut few, "GET k"), "NOPERM");
    // MONITOR shows calls that are answered here, too.
    let mut watcher = connect(&proxy);
    assert_eq!(call(&mut watcher, "MONITOR"), ok());
    keep(&mut client, "k", &bulk("one"));
    loop {
        let line = watcher.reply().unwrap().unwrap();
        let line = String::from_utf8_lossy(line.as_bytes().unwrap()).into_owned();
        if line.contains("\"GET\" \"k\"") {
            break;
        }
    }
}

#[test]
fn another_server_has_other_values() {
    let servers = [server(), server()];
    for (server, value) in servers.iter().zip(["one", "two"]) {
        call(&mut connect(server), &format!("SET k {value}"));
    }
    let proxy = proxy(1, OLD, &[servers[0].address()]);
    let mut client = connect(&proxy);
    keep(&mut client, "k", &bulk("one"));
    let file = proxy.config_file();
    let text = std::fs::read_to_string(&file).unwrap();
    let (from, to) = (
        servers[0].address().to_string(),
        servers[1].address().to_string(),
    );
    std::fs::write(&file, text.replace(&from, &to)).unwrap();
    assert_eq!(call(&mut client, "CONFIG RELOAD"), ok());
    until("the other one", || {
        call(&mut client, "GET k") == bulk("two")
    });
    keep(&mut client, "k", &bulk("two"));
    std::fs::write(&file, text.replace("1h", "1s")).unwrap();
    assert_error(&call(&mut client, "CONFIG RELOAD"), "ERR");
}

#[test]
fn what_is_kept_of_a_pool_stays_when_a_server_of_another_one_goes_and_comes() {
    let servers = [server(), server()];
    let proxy = proxy_with(&format!(
        "threads = 1\n[timeouts]\nconnect = '200ms'\n[[route]]\nprefix = 's:'\npool = 'other'\n\
         {}\n[[pool]]\nname = 'other'\nrefresh = '100ms'\n{}[pool.failure]\nlimit = 1\nretry = '100ms'\n",
        pool(OLD, &[servers[0].address()]).replace("[[pool]]", "[[pool]]\nname = 'first'"),
        shards(&[servers[1].address()]),
    ));
    let mut client = connect(&proxy);
    until("it tells", || stat(&mut client, "CacheWorkers") == 1);
    call(&mut client, "SET k one");
    // If a server answers PING slowly, its values are not used for a moment, so once is enough.
    until("a hit behind each change", || {
        ["-STOP", "-CONT"].into_iter().all(|what| {
            keep(&mut client, "k", &bulk("one"));
            signal(&servers[1], what);
            let failed = u64::from(what == "-STOP");
            until(what, || stat(&mut client, "CurrentIsFail") == failed);
            let hits = stat(&mut client, "cache_hits");
            assert_eq!(call(&mut client, "GET k"), bulk("one"));
            stat(&mut client, "cache_hits") == hits + 1
        })
    });
}
