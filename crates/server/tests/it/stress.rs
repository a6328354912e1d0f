//! Many clients at once against 2 and 8 workers: nothing is lost, nothing is torn, nobody starves.
//!
//! Each run lasts `REDLINE_STRESS_SECONDS` (1 unless set; the slow tier of `.ci/run` sets it); its random choices follow
//! from `REDLINE_STRESS_SEED`, though not the order in which threads get to run.

use std::{
    env,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::client::{self, Client, Value, encode, request, settings, start};
use fastrand::Rng;
use redline_server::{Permission, Server};

fn from_environment(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// State that all clients of a run share.
struct Run<'a> {
    server: &'a Server,
    deadline: Instant,
    seed: u64,
    started: AtomicU64,
    /// Clients that the server knows.
    connected: AtomicU64,
}

impl<'a> Run<'a> {
    fn new(server: &'a Server) -> Run<'a> {
        let seconds = from_environment("REDLINE_STRESS_SECONDS", 1);
        Run {
            server,
            deadline: Instant::now() + Duration::from_secs(seconds),
            seed: from_environment("REDLINE_STRESS_SEED", 1),
            started: AtomicU64::new(0),
            connected: AtomicU64::new(0),
        }
    }

    fn client(&self) -> (Client, Rng) {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let mut client = Client::connect(self.server);
        client.call("PING");
        self.connected.fetch_add(1, Ordering::Relaxed);
        (client, Rng::with_seed(self.seed * 1000 + number))
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.deadline
    }
}

const ACCOUNTS: i64 = 12;
const TOTAL: i64 = ACCOUNTS * 1000;

fn integers(value: &Value) -> Vec<i64> {
    value.array().iter().map(Value::integer).collect()
}

fn two_accounts(rng: &mut Rng) -> (i64, i64, i64) {
    (rng.i64(..ACCOUNTS), rng.i64(..ACCOUNTS), rng.i64(1..50))
}

/// MULTI/EXEC: moves money between two accounts.
fn transfer(run: &Run) {
    let (mut client, mut rng) = run.client();
    while run.goes_on() {
        let (from, to, amount) = two_accounts(&mut rng);
        let mut bytes = request("MULTI");
        bytes.extend(request(&format!("DECRBY account:{from} {amount}")));
        bytes.extend(request(&format!("INCRBY account:{to} {amount}")));
        bytes.extend(request("EXEC"));
        client.write(&bytes);
        client.read().ok();
        (0..2).for_each(|_| assert_eq!(client.read(), Value::Simple("QUEUED".into())));
        assert_eq!(client.read().array().len(), 2);
    }
}

/// Scripts that move money between accounts they have not declared.
fn transfer_by_script(run: &Run) {
    const SCRIPT: &[u8] = b"local from, to = 'account:' .. ARGV[1], 'account:' .. ARGV[2]
        redis.call('decrby', from, ARGV[3])
        redis.call('incrby', to, ARGV[3])
        local sum = 0
        for i = 0, ARGV[4] - 1 do sum = sum + redis.call('get', 'account:' .. i) end
        return sum";
    let (mut client, mut rng) = run.client();
    while run.goes_on() {
        let (from, to, amount) = two_accounts(&mut rng);
        let args = [from, to, amount, ACCOUNTS].map(|n| n.to_string());
        let mut call: Vec<&[u8]> = vec![b"EVAL", SCRIPT, b"0"];
        call.extend(args.iter().map(String::as_bytes));
        assert_eq!(
            client.call_args(&call),
            Value::Integer(TOTAL),
            "a script saw torn data"
        );
    }
}

/// Looks at all accounts at once, in three ways.
fn audit(run: &Run) {
    let (mut client, mut rng) = run.client();
    let keys: Vec<String> = (0..ACCOUNTS).map(|n| format!("account:{n}")).collect();
    while run.goes_on() {
        let balances = if rng.bool() {
            integers(&client.call(&format!("MGET {}", keys.join(" "))))
        } else {
            client.call("MULTI").ok();
            keys.iter()
                .for_each(|key| drop(client.call(&format!("GET {key}"))));
            integers(&client.call("EXEC"))
        };
        assert_eq!(balances.iter().sum::<i64>(), TOTAL, "torn: {balances:?}");
    }
}

/// WATCH: adds one to a counter, optimistically. Returns how often it succeeded.
fn increment(run: &Run) -> i64 {
    let (mut client, _) = run.client();
    let mut done = 0;
    while run.goes_on() {
        client.call("WATCH counter").ok();
        let next = client.call("GET counter").integer() + 1;
        client.call("MULTI").ok();
        client.call(&format!("SET counter {next}"));
        match client.call("EXEC") {
            Value::Array(_) => done += 1,
            Value::Nil => {}
            other => panic!("{other:?}"),
        }
    }
    done
}

fn many_keys() -> Vec<String> {
    (0..40).map(|n| format!("many:{n}")).collect()
}

/// MSET: gives many keys one value.
fn set_many(run: &Run) {
    let (mut client, mut rng) = run.client();
    while run.goes_on() {
        let value = rng.u32(..);
        let pairs: Vec<String> = many_keys()
            .iter()
            .map(|key| format!("{key} {value}"))
            .collect();
        client.call(&format!("MSET {}", pairs.join(" "))).ok();
    }
}

/// MGET: they have one value.
fn get_many(run: &Run) {
    let (mut client, _) = run.client();
    while run.goes_on() {
        let values = client.call(&format!("MGET {}", many_keys().join(" ")));
        let values = values.array();
        assert!(
            values.iter().all(|value| *value == values[0]),
            "torn: {values:?}"
        );
    }
}

/// Moves elements between lists and between sets, and a key from name to name.
fn shuffle(run: &Run) {
    let (mut client, mut rng) = run.client();
    while run.goes_on() {
        let (from, to) = (rng.u8(..3), rng.u8(..3));
        let sides = ["LEFT", "RIGHT"];
        let (a, b) = (sides[rng.usize(..2)], sides[rng.usize(..2)]);
        let mut bytes = request(&format!("LMOVE list:{from} list:{to} {a} {b}"));
        bytes.extend(request(&format!(
            "SMOVE set:{from} set:{to} {}",
            rng.u8(..50)
        )));
        bytes.extend(request(&format!("RENAME ring:{from} ring:{to}")));
        client.write(&bytes);
        client.read();
        client.read();
        match client.read() {
            Value::Simple(_) => {}
            other => assert_eq!(other.error(), "ERR no such key"),
        }
    }
}

/// None of them is lost or doubled.
fn count_shuffled(run: &Run) {
    let (mut client, _) = run.client();
    while run.goes_on() {
        client.call("MULTI").ok();
        for n in 0..3 {
            client.call(&format!("LLEN list:{n}"));
            client.call(&format!("SCARD set:{n}"));
        }
        client.call("EXISTS ring:0 ring:1 ring:2");
        let counts = integers(&client.call("EXEC"));
        assert_eq!(counts[0] + counts[2] + counts[4], 100, "lists: {counts:?}");
        assert_eq!(counts[1] + counts[3] + counts[5], 50, "sets: {counts:?}");
        assert_eq!(counts[6], 1, "the ring: {counts:?}");
    }
}

/// Fills and empties a database.
fn flush(run: &Run) {
    let (mut client, mut rng) = run.client();
    client.call("SELECT 5").ok();
    while run.goes_on() {
        for n in 0..rng.u32(1..200) {
            client.call(&format!("SET flushed:{n} x")).ok();
        }
        client.call("MULTI").ok();
        client.call(if rng.bool() {
            "FLUSHDB ASYNC"
        } else {
            "FLUSHDB SYNC"
        });
        client.call("DBSIZE");
        assert_eq!(client.call("EXEC").array()[1], Value::Integer(0));
    }
}

/// Swaps two databases.
fn swap(run: &Run) {
    let (mut client, _) = run.client();
    while run.goes_on() {
        client.call("SWAPDB 6 7").ok();
    }
}

/// Each of the two is in one place at any time.
fn look_at_swapped(run: &Run) {
    let (mut client, _) = run.client();
    while run.goes_on() {
        client.call("MULTI").ok();
        for line in ["SELECT 6", "GET name", "SELECT 7", "GET name"] {
            client.call(line);
        }
        let replies = client.call("EXEC");
        let mut names = [replies.array()[1].clone(), replies.array()[3].clone()];
        names.sort_by_key(|name| format!("{name:?}"));
        assert_eq!(
            names,
            [Value::Bulk(b"one".to_vec()), Value::Bulk(b"two".to_vec())]
        );
    }
}

/// Keys that expire meanwhile: there with their value, or not there.
fn expire(run: &Run) {
    let (mut client, mut rng) = run.client();
    client.call("SELECT 9").ok();
    while run.goes_on() {
        let key = rng.u32(..5000);
        let ttl_ms = rng.u32(1..300);
        client
            .call(&format!("SET short:{key} {key} PX {ttl_ms}"))
            .ok();
        let other = rng.u32(..5000);
        let value = client.call(&format!("GET short:{other}"));
        assert!(
            value == Value::Nil || value.integer() == i64::from(other),
            "{value:?}"
        );
    }
}

/// Publishes numbers; returns how many.
fn publish(run: &Run, publisher: usize) -> u64 {
    let (mut client, _) = run.client();
    let mut sent = 0;
    while run.goes_on() {
        for _ in 0..20 {
            client.send(&format!("PUBLISH channel {publisher}:{sent}"));
            sent += 1;
        }
        (0..20).for_each(|_| assert_eq!(client.read(), Value::Integer(2)));
    }
    sent
}

/// Reads what was published, until the last word.
fn listen(mut client: Client) -> Vec<Vec<u8>> {
    let mut heard = Vec::new();
    loop {
        let message = client.read();
        match &message.array()[2] {
            Value::Bulk(text) if text == b"end" => return heard,
            Value::Bulk(text) => heard.push(text.clone()),
            other => panic!("{other:?}"),
        }
    }
}

/// Clients that go away in the middle of whatever they do.
fn come_and_go(run: &Run) {
    let (mut observer, mut rng) = run.client();
    let value = rng.u32(..);
    let pairs: Vec<String> = many_keys()
        .iter()
        .map(|key| format!("{key} {value}"))
        .collect();
    let requests = [
        request(&format!("WATCH {}", many_keys().join(" "))),
        request("MULTI"),
        request(&format!("MSET {}", pairs.join(" "))),
        request("EXEC"),
        request("SUBSCRIBE other"),
        request("GET account:1"),
        request("KEYS *"),
        encode(&[
            b"EVAL",
            b"for i = 1, 200 do redis.call('get', 'many:' .. i % 40) end",
            b"0",
        ]),
        b"*3\r\n$3\r\nSET\r\n$1".to_vec(),
    ];
    let connected = |observer: &mut Client| match observer.call("CLIENT LIST") {
        Value::Bulk(lines) => lines.iter().filter(|byte| **byte == b'\n').count(),
        other => panic!("{other:?}"),
    };
    while run.goes_on() {
        // What they have asked for is done also when they have gone: not more of it than the others can bear.
        client::until("those who went are forgotten", || {
            connected(&mut observer) < 100
        });
        let mut client = Client::connect(run.server);
        for _ in 0..rng.usize(1..30) {
            // It may be closed already: the requests are not always in an order that makes sense.
            let _ = std::io::Write::write_all(
                &mut client.stream,
                &requests[rng.usize(..requests.len())],
            );
        }
        if rng.bool() {
            // It may have asked for nothing.
            client
                .stream
                .set_read_timeout(Some(Duration::from_millis(20)))
                .unwrap();
            let _ = client.try_read();
        }
    }
}

/// Clients that are killed while they work, by each other.
fn kill(run: &Run) {
    let mut rng = run.client().1;
    let mut seen = 0;
    while run.goes_on() {
        let mut client = Client::connect(run.server);
        let id = client.call("CLIENT ID").integer();
        let value = rng.u32(..);
        let pairs: Vec<String> = many_keys()
            .iter()
            .map(|key| format!("{key} {value}"))
            .collect();
        for _ in 0..50 {
            let bytes = request(&format!("MSET {}", pairs.join(" ")));
            if std::io::Write::write_all(&mut client.stream, &bytes).is_err() {
                break;
            }
            match client.try_read() {
                Ok(reply) => reply.ok(),
                Err(error) => {
                    assert_ne!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock,
                        "a reply is missing"
                    );
                    break;
                }
            }
        }
        if seen != 0 {
            let mut killer = Client::connect(run.server);
            killer.call(&format!("CLIENT KILL ID {}", rng.i64(seen..=id)));
        }
        seen = id;
    }
}

fn fill(client: &mut Client) {
    (0..ACCOUNTS).for_each(|n| client.call(&format!("SET account:{n} 1000")).ok());
    client.call("SET counter 0").ok();
    many_keys()
        .iter()
        .for_each(|key| client.call(&format!("SET {key} 0")).ok());
    for n in 0..100 {
        client.call(&format!("RPUSH list:0 {n}"));
    }
    for n in 0..50 {
        client.call(&format!("SADD set:0 {n}"));
    }
    client.call("SET ring:0 x").ok();
    for (db, name) in [(6, "one"), (7, "two")] {
        client.call(&format!("SELECT {db}")).ok();
        client.call(&format!("SET name {name}")).ok();
    }
    client.call("SELECT 0").ok();
}

/// Clients of a run that live as long as it does.
const CLIENTS: u64 = 12 * 2 + 3 + 3;

/// Has clients change their worker all the time.
fn hand_over(run: &Run, workers: usize) {
    let (mut client, mut rng) = run.client();
    while run.goes_on() {
        let id = rng.u64(1..run.started.load(Ordering::Relaxed) + 4);
        let line = format!("DEBUG MOVE-CLIENT {id} {}", rng.usize(..workers));
        match client.call(&line) {
            Value::Simple(_) => {}
            other => assert_eq!(other.error(), "ERR No such client"),
        }
    }
}

fn everything_at_once(workers: usize) {
    let mut settings = settings(workers);
    settings.enable_debug_command = Permission::Yes;
    let server = start(settings);
    let mut client = Client::connect(&server);
    fill(&mut client);
    let run = &Run::new(&server);
    thread::scope(|scope| {
        let plain: [fn(&Run); 12] = [
            come_and_go,
            transfer,
            transfer_by_script,
            audit,
            set_many,
            get_many,
            shuffle,
            count_shuffled,
            flush,
            swap,
            look_at_swapped,
            expire,
        ];
        for scenario in plain {
            (0..2).for_each(|_| drop(scope.spawn(move || scenario(run))));
        }
        let listeners: Vec<_> = (0..2)
            .map(|_| {
                let mut listener = Client::connect(&server);
                listener.call("SUBSCRIBE channel");
                scope.spawn(move || listen(listener))
            })
            .collect();
        let increments: Vec<_> = (0..3)
            .map(|_| scope.spawn(move || increment(run)))
            .collect();
        let publishers: Vec<_> = (0..3)
            .map(|n| scope.spawn(move || publish(run, n)))
            .collect();

        // Whom they kill has a later id than all that must live: these have connected by then.
        client::until("all have connected", || {
            run.connected.load(Ordering::Relaxed) == CLIENTS
        });
        scope.spawn(move || hand_over(run, workers));
        let killers: Vec<_> = (0..2).map(|_| scope.spawn(move || kill(run))).collect();
        let done: i64 = increments
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        assert_eq!(
            client.call("GET counter").integer(),
            done,
            "updates were lost"
        );
        assert!(done > 0, "no optimistic increment ever succeeded");
        let sent: u64 = publishers
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        client.call("PUBLISH channel end");
        killers
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let heard: Vec<_> = listeners
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        assert_eq!(heard[0].len() as u64, sent, "messages were lost");
        assert!(heard[0] == heard[1], "two subscribers heard two orders");
    });
    let keys = client.call("KEYS *").array().len() as i64;
    assert_eq!(client.call("DBSIZE"), Value::Integer(keys));
    client.call("SELECT 9").ok();
    client::until("active expiry removes what nobody asks for", || {
        client.call("DBSIZE") == Value::Integer(0)
    });
}

#[test]
fn everything_at_once_on_two_workers() {
    everything_at_once(2);
}

#[test]
fn everything_at_once_on_eight_workers() {
    everything_at_once(8);
}

#[test]
fn a_unit_of_many_stripes_is_not_starved_by_single_keys() {
    let server = start(settings(2));
    let run = &Run::new(&server);
    let (mut client, _) = run.client();
    let keys = 600;
    let pairs: Vec<String> = (0..keys).map(|n| format!("hot:{n} m")).collect();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                let (mut client, mut rng) = run.client();
                while run.goes_on() {
                    let line = |_| request(&format!("SET hot:{} s", rng.u32(..keys)));
                    client.write(&(0..500).flat_map(line).collect::<Vec<u8>>());
                    (0..500).for_each(|_| client.read().ok());
                }
            });
        }
        let mut done = 0;
        while run.goes_on() {
            client.call(&format!("MSET {}", pairs.join(" "))).ok();
            done += 1;
        }
        assert!(done >= 20, "only {done} MSETs in all that time");
    });
}

#[test]
fn scripts_of_two_workers_take_turns() {
    let server = start(settings(2));
    let run = &Run::new(&server);
    let script = |client: &mut Client| {
        client.call_args(&[
            b"EVAL",
            b"for i = 1, 100 do redis.call('incr', 'n') end return 1",
            b"0",
        ])
    };
    let counts: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(move || {
                    let (mut client, _) = run.client();
                    let mut done = 0;
                    while run.goes_on() {
                        assert_eq!(script(&mut client), Value::Integer(1));
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let (mut client, _) = run.client();
    assert_eq!(
        client.call("GET n").integer() as u64,
        counts.iter().sum::<u64>() * 100
    );
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(least * 20 > *most, "some got nearly nothing: {counts:?}");
}

/// The longest time that anybody waits for a reply while transactions that hold everything and run a script meet
/// scripts and units of many stripes.
#[test]
fn transactions_with_scripts_leave_nobody_waiting() {
    fn work(run: &Run, requests: impl Fn(&mut Rng) -> Vec<Vec<u8>>) -> Duration {
        let (mut client, mut rng) = run.client();
        let mut worst = Duration::ZERO;
        while run.goes_on() {
            let began = Instant::now();
            let requests = requests(&mut rng);
            client.write(&requests.concat());
            for _ in &requests {
                let reply = client.read();
                assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
            }
            worst = worst.max(began.elapsed());
        }
        worst
    }
    let script = || {
        encode(&[
            b"EVAL",
            b"for i = 1, 200 do redis.call('get', 'many:' .. i % 40) end",
            b"0",
        ])
    };
    let transaction = |_: &mut Rng| {
        let [multi, keys, exec] = ["MULTI", "KEYS *", "EXEC"].map(request);
        vec![multi, keys, script(), exec]
    };
    let set_many = |rng: &mut Rng| {
        let value = rng.u32(..);
        let pair = |key: &String| format!("{key} {value}");
        let pairs: Vec<String> = many_keys().iter().map(pair).collect();
        vec![request(&format!("MSET {}", pairs.join(" ")))]
    };
    let server = start(settings(8));
    let run = &Run::new(&server);
    let worst = thread::scope(|scope| {
        let threads: Vec<_> = (0..5)
            .flat_map(|_| {
                [
                    scope.spawn(move || work(run, transaction)),
                    scope.spawn(move || work(run, |_| vec![script()])),
                    scope.spawn(move || work(run, set_many)),
                    scope.spawn(move || work(run, |_| vec![request("KEYS *")])),
                ]
            })
            .collect();
        let waits = threads.into_iter().map(|thread| thread.join().unwrap());
        waits.max().unwrap()
    });
    println!("the longest wait: {worst:?}");
    assert!(worst < Duration::from_secs(5), "it took {worst:?}");
}

#[test]
fn long_pipelines_and_large_values_keep_their_order() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let mut bytes = Vec::new();
    for n in 0..3000 {
        bytes.extend(request("INCR n"));
        if n % 1000 == 500 {
            bytes.extend(encode(&[b"SET", b"large", &large]));
            bytes.extend(request("GET large"));
            bytes.extend(request("STRLEN large"));
        }
    }
    let mut writer = client.stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut writer, &bytes).unwrap());
        for n in 0..3000 {
            assert_eq!(client.read(), Value::Integer(n + 1));
            if n % 1000 == 500 {
                client.read().ok();
                assert!(
                    client.read() == Value::Bulk(large.clone()),
                    "another value came back"
                );
                assert_eq!(client.read(), Value::Integer(large.len() as i64));
            }
        }
    });
}

#[test]
fn a_value_of_a_hundred_megabytes_comes_back_whole() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    let value: Vec<u8> = (0..100_000_000u32).map(|n| (n % 253) as u8).collect();
    client.call_args(&[b"SET", b"k", &value]).ok();
    assert!(
        client.call("GET k") == Value::Bulk(value),
        "another value came back"
    );
}

#[test]
fn one_client_that_never_pauses_does_not_keep_others_waiting() {
    let server = start(settings(1));
    let run = &Run::new(&server);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                let (mut client, _) = run.client();
                let pings = b"PING\r\n".repeat(2000);
                let mut reader = client.stream.try_clone().unwrap();
                // Reads as fast as it can, so that the other direction never stops.
                let reading = scope.spawn(move || {
                    let mut sink = vec![0; 1 << 20];
                    while std::io::Read::read(&mut reader, &mut sink).is_ok_and(|n| n > 0) {}
                });
                while run.goes_on() {
                    client.write(&pings);
                }
                client.stream.shutdown(std::net::Shutdown::Both).unwrap();
                reading.join().unwrap();
            });
        }
        let (mut client, _) = run.client();
        let mut worst = Duration::ZERO;
        while run.goes_on() {
            let began = Instant::now();
            assert_eq!(client.call("ECHO x"), Value::Bulk(b"x".to_vec()));
            worst = worst.max(began.elapsed());
        }
        assert!(worst < Duration::from_millis(1000), "it took {worst:?}");
    });
}

#[test]
fn memory_stays_near_its_limit_while_two_workers_write() {
    memory_stays_near_its_limit(2);
}

#[test]
fn memory_stays_near_its_limit_while_eight_workers_write() {
    memory_stays_near_its_limit(8);
}

fn memory_stays_near_its_limit(workers: usize) {
    use redline_keyspace::Policy;
    const LIMIT: u64 = 24 * 1024 * 1024;
    for policy in [
        Policy::AllKeysLru,
        Policy::AllKeysRandom,
        Policy::VolatileTtl,
    ] {
        let server = start(settings(workers).with(|settings| {
            settings.maxmemory_bytes = LIMIT;
            settings.maxmemory_policy = policy;
        }));
        let run = &Run::new(&server);
        let written: u64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(move || {
                        let (mut client, mut rng) = run.client();
                        let mut written = 0;
                        while run.goes_on() {
                            let value = "v".repeat(900);
                            let line = |_| request(&format!("SET {} {value} EX 1000", rng.u64(..)));
                            client.write(&(0..100).flat_map(line).collect::<Vec<u8>>());
                            (0..100).for_each(|_| client.read().ok());
                            written += 100;
                        }
                        written
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        let (mut client, _) = run.client();
        let kept = client.call("DBSIZE").integer() as u64;
        assert!(
            kept * 900 < LIMIT + 1024 * 1024,
            "{kept} of {written} keys are over the limit"
        );
        if written * 900 > 2 * LIMIT {
            assert!(
                kept * 900 > LIMIT / 2,
                "only {kept} of {written} keys were kept: {policy:?}"
            );
        }
    }
}
