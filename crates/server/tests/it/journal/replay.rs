//! Records of random requests replayed elsewhere give the same data.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    env, thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use redline_keyspace::{
    Unit,
    journal::{Command, Record},
    lock::StripeSet,
};
use redline_server::Settings;

use super::{
    DATABASES, attach,
    replica::{Replica, contents, new_local, run},
    typed::typed_request,
};
use crate::client::{Client, encode, request, settings, start};

/// A request of any kind, on few keys, so that requests meet.
pub fn random_requests(rng: &mut Rng) -> Vec<Vec<u8>> {
    let key = |rng: &mut Rng, kind: &str| format!("{kind}:{}", rng.u8(..6));
    let plain = |rng: &mut Rng| -> String {
        let n = rng.u8(..40);
        let ms = rng.u32(1..60);
        let (s, l, h, e, z, x) = ("s", "l", "h", "e", "z", "x");
        match rng.u8(..48) {
            0 => format!("SET {} {n}", key(rng, s)),
            1 => format!("SET {} {n} PX {ms}", key(rng, s)),
            2 => format!("SET {} {n} KEEPTTL", key(rng, s)),
            3 => format!("SETEX {} 1 {n}", key(rng, s)),
            4 => format!("INCRBY {} {n}", key(rng, s)),
            5 => format!("INCRBYFLOAT {} 0.{n}", key(rng, s)),
            6 => format!("APPEND {} {n}", key(rng, s)),
            7 => format!("GETEX {} PX {ms}", key(rng, s)),
            8 => format!("GETDEL {}", key(rng, s)),
            9 => format!("MSET {} {n} {} {n}", key(rng, s), key(rng, s)),
            10 => format!("MSETNX {} {n} {} {n}", key(rng, s), key(rng, s)),
            11 => format!("GET {}", key(rng, s)),
            12 => format!("RPUSH {} {n} {n}", key(rng, l)),
            13 => format!("LPOP {}", key(rng, l)),
            14 => format!("LMPOP 2 {} {} LEFT COUNT 2", key(rng, l), key(rng, l)),
            15 => format!("LMOVE {} {} LEFT RIGHT", key(rng, l), key(rng, l)),
            16 => format!("PEXPIRE {} {ms}", key(rng, l)),
            17 => format!("HSET {} {n} {n}", key(rng, h)),
            18 => format!("HINCRBYFLOAT {} {n} 1.25", key(rng, h)),
            19 => format!("HDEL {} {n}", key(rng, h)),
            20 => format!("SADD {} {n} a{n} b{n}", key(rng, e)),
            21 => format!("SPOP {} 2", key(rng, e)),
            22 => format!("SPOP {}", key(rng, e)),
            23 => format!(
                "SUNIONSTORE {} {} {}",
                key(rng, e),
                key(rng, e),
                key(rng, e)
            ),
            24 => format!("PEXPIRE {} {ms}", key(rng, e)),
            25 => format!("ZADD {} {n} m{n}", key(rng, z)),
            26 => format!("ZINCRBY {} 1.5 m{n}", key(rng, z)),
            27 => format!("ZMPOP 2 {} {} MIN", key(rng, z), key(rng, z)),
            28 => format!("XADD {} MAXLEN ~ 30 * f {n}", key(rng, x)),
            29 => format!("XTRIM {} MAXLEN 5", key(rng, x)),
            30 => format!("RENAME {} {}", key(rng, e), key(rng, e)),
            31 => format!(
                "COPY {} {} DB {} REPLACE",
                key(rng, s),
                key(rng, s),
                rng.u32(..DATABASES)
            ),
            32 => format!("MOVE {} {}", key(rng, s), rng.u32(..DATABASES)),
            33 => format!("DEL {} {}", key(rng, z), key(rng, x)),
            34 => format!("PERSIST {}", key(rng, s)),
            35 => format!("HPEXPIRE {} {ms} FIELDS 2 {n} 7", key(rng, h)),
            36 => format!("HSETEX {} PX {ms} FIELDS 1 {n} {n}", key(rng, h)),
            37 => format!("HGETEX {} PX 100000 FIELDS 1 {n}", key(rng, h)),
            38 => format!("MSETEX 1 {} {n} PX {ms}", key(rng, s)),
            39 => format!("XGROUP CREATE {} g 0 MKSTREAM", key(rng, x)),
            40 | 41 => format!(
                "XREADGROUP GROUP g c{} COUNT 3 STREAMS {} >",
                n % 3,
                key(rng, x)
            ),
            42 => format!("XREADGROUP GROUP g c NOACK STREAMS {} >", key(rng, x)),
            43 => format!("XAUTOCLAIM {} g c{} 0 0 COUNT 2", key(rng, x), n % 3),
            44 => format!("BLPOP {} {} 0.002", key(rng, l), key(rng, l)),
            45 => format!("BLMOVE {} {} LEFT RIGHT 0.002", key(rng, l), key(rng, l)),
            46 => format!("BZPOPMIN {} 0.001", key(rng, z)),
            _ => format!("SELECT {}", rng.u32(..DATABASES)),
        }
    };
    match rng.u8(..100) {
        0 => vec![request(["FLUSHDB", "SWAPDB 0 1"][rng.usize(..2)])],
        1..10 => {
            let mut requests = vec![request("MULTI")];
            requests.extend((0..rng.u8(1..5)).map(|_| request(&plain(rng))));
            requests.push(request("EXEC"));
            requests
        }
        10..16 => {
            let script = b"for i = 1, 3 do redis.call('incr', 's:' .. math.random(9)) end
                redis.call('spop', KEYS[1]) redis.call('set', KEYS[2], 'x', 'px', 5)";
            let keys = [key(rng, "e"), key(rng, "s")];
            let [a, b] = keys.each_ref().map(|key| key.as_bytes());
            vec![encode(&[b"EVAL", script, b"2", a, b])]
        }
        16..36 => vec![typed_request(rng)],
        _ => vec![request(&plain(rng))],
    }
}

/// The latest records that name a key, as text, for a message of what went wrong; those of whole databases name all.
#[derive(Default)]
struct Latest(BTreeMap<Vec<u8>, VecDeque<String>>);

impl Latest {
    const RECORDS_MAX: usize = 20;

    fn note(&mut self, record: &Record) {
        let mut names = BTreeSet::new();
        for Command { words, .. } in &record.commands {
            match words[0].as_slice() {
                // The one queue of all that names no key.
                b"FLUSHDB" | b"SWAPDB" => drop(names.insert(&b""[..])),
                _ => names.extend(words[1..].iter().map(Vec::as_slice)),
            }
        }
        // Few words are keys: the letter of a type, a colon, a number.
        for name in names {
            if name.is_empty() || name.get(1) == Some(&b':') {
                let queue = self.0.entry(name.to_vec()).or_default();
                if queue.len() == Self::RECORDS_MAX {
                    queue.pop_front();
                }
                let command = |Command { db, words }: &Command| {
                    let words = words.iter().map(|word| String::from_utf8_lossy(word));
                    format!("{db} {}", words.collect::<Vec<_>>().join(" "))
                };
                let commands: Vec<_> = record.commands.iter().map(command).collect();
                queue.push_back(format!("{:>8}: {}", record.number, commands.join("; ")));
            }
        }
    }

    /// The records that name this key, in any database, or whole databases.
    fn of(&self, (_, key): &(u32, Vec<u8>)) -> String {
        let queues = [key.as_slice(), b""].map(|name| self.0.get(name));
        let mut lines: Vec<&String> = queues.into_iter().flatten().flatten().collect();
        lines.sort();
        let lines: Vec<&str> = lines.into_iter().map(String::as_str).collect();
        lines.join("\n")
    }
}

#[test]
fn records_replayed_elsewhere_give_the_same_data() {
    let seconds = env::var("REDLINE_STRESS_SECONDS").map_or(1, |text| text.parse().unwrap());
    let server = start(Settings {
        databases: DATABASES,
        ..settings(4)
    });
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let space = server.keyspace();
    let mut replica = Replica::new();
    let (records, mut last) = attach(&server);
    let mut latest = Latest::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|seed| {
                let mut client = Client::connect(&server);
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(seed);
                    while Instant::now() < deadline {
                        let requests: Vec<_> =
                            (0..20).flat_map(|_| random_requests(&mut rng)).collect();
                        client.write(&requests.concat());
                        requests.iter().for_each(|_| drop(client.read()));
                    }
                })
            })
            .collect();
        let mut replicating = Unit::exclusive(&mut replica.space);
        let mut held = None;
        loop {
            // The end of the clients is no record.
            let next = records.recv_timeout(Duration::from_millis(10)).ok();
            for record in next.into_iter().chain(records.try_iter()) {
                last += 1;
                assert_eq!(record.number, last, "a gap, or another order");
                latest.note(&record);
                for Command { db, words } in &record.commands {
                    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                    run(&mut replicating, &mut replica.local, *db, &words);
                }
            }
            if held.is_some() && last == space.journal().last() {
                break;
            }
            if held.is_none() && clients.iter().all(|client| client.is_finished()) {
                held = Unit::try_set(space, &StripeSet::all(), false).ok();
            }
        }
        let mut held = held.expect("just taken");
        let expected = contents(&mut held, &mut new_local());
        let actual = contents(&mut replicating, &mut replica.local);
        let ids: BTreeSet<_> = expected.keys().chain(actual.keys()).collect();
        for id in ids {
            let (expected, actual) = (expected.get(id), actual.get(id));
            assert!(
                expected == actual,
                "{id:?} after {last} records:\n{expected:?} is the server's,\n{actual:?} the replica's; the last that name it:\n{}",
                latest.of(id)
            );
        }
        assert!(last > 1000, "only {last} records");
    });
    space.journal().detach();
}
