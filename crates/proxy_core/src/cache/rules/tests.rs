//! The rules one by one, and a model of clients, connections and reports in any order.

use std::collections::{HashMap, VecDeque};

use redline_resp::{Span, encode_request};

use super::*;
use crate::cache::calls;

fn caching(prefixes: &[&str], max_age_ms: u64) -> Caching {
    Caching {
        prefixes: prefixes.iter().map(|it| (*it).to_owned()).collect(),
        memory_bytes_max: 1 << 20,
        max_age_ms,
    }
}

/// A cache of one worker, and connections to server 0, on which requests are sent and answered by hand.
struct Bench {
    cache: PoolCache,
    lanes: Vec<(Marks, u16)>,
    now_ms: u64,
}

impl Bench {
    fn new(max_age_ms: u64) -> Bench {
        // With so much memory that keys hardly ever share a floor.
        let mut cache = PoolCache::new(&caching(&["k"], max_age_ms), 64 << 20);
        cache.set_open(0, true);
        Bench {
            cache,
            // The last one is of another database.
            lanes: [0, 0, 0, 1].map(|db| (Marks::new(0), db)).into(),
            now_ms: 1_000,
        }
    }

    fn send(&mut self, lane: usize, line: &str) {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let (mut bytes, mut spans): (_, Vec<Span>) = (Vec::new(), Vec::new());
        encode_request(&words, &mut bytes);
        calls::arguments(&bytes, &mut spans).unwrap();
        let (marks, db) = &mut self.lanes[lane];
        let number = marks.pushed + 1;
        let args = Args::new(&bytes, &spans);
        self.cache
            .sent(marks, number, (0, *db), args, [None; 2], self.now_ms);
        marks.push(1);
    }

    fn answer(&mut self, lane: usize, reply: &str) {
        let (marks, _) = &mut self.lanes[lane];
        marks.pop(1);
        let number = marks.done;
        let reply = reply.as_bytes();
        self.cache.answered(marks, number, Some(reply), self.now_ms);
    }

    fn call(&mut self, lane: usize, line: &str, reply: &str) {
        self.send(lane, line);
        self.answer(lane, reply);
    }

    fn told(&mut self, db: u16, key: &str) -> Option<String> {
        let hash = self.cache.hash(key.as_bytes());
        let at = self.cache.find(db, hash, key.as_bytes(), self.now_ms)?;
        let entry = self.cache.entries.at(at).unwrap();
        Some(match entry.is_null {
            true => "null".to_owned(),
            false => String::from_utf8_lossy(entry.reply()).into_owned(),
        })
    }

    fn keep(&mut self, lane: usize, key: &str, reply: &str) {
        let db = self.lanes[lane].1;
        for _ in 0..2 {
            self.call(lane, &format!("GET {key}"), reply);
        }
        let reply = reply.replace("$-1\r\n", "null").replace("_\r\n", "null");
        assert_eq!(self.told(db, key), Some(reply));
    }
}

const ONE: &str = "$1\r\n1\r\n";
const TWO: &str = "$1\r\n2\r\n";

#[test]
fn what_two_answers_agree_on_is_kept() {
    let mut bench = Bench::new(100);
    bench.call(0, "GET k", ONE);
    assert_eq!(bench.told(0, "k"), None);
    bench.call(1, "GET k", ONE);
    assert_eq!(bench.told(0, "k").as_deref(), Some(ONE));
    assert_eq!(bench.told(1, "k"), None);
    bench.keep(3, "k", TWO);
    bench.keep(0, "kn", "$-1\r\n");
    bench.keep(0, "km", "_\r\n");
    for _ in 0..3 {
        bench.call(0, "GET other", ONE);
        bench.call(0, "GET kw", "-WRONGTYPE x\r\n");
        let long = format!("${REPLY_BYTES_MAX}\r\n{}\r\n", "x".repeat(REPLY_BYTES_MAX));
        bench.call(0, "GET kl", &long);
    }
    assert!(["kw", "kl"].iter().all(|key| bench.told(0, key).is_none()));
    bench.now_ms += 99;
    assert!(bench.told(0, "k").is_some());
    bench.now_ms += 1;
    assert_eq!(bench.told(0, "k"), None);
    bench.keep(0, "k", ONE);
    bench.cache.sweep(usize::MAX, bench.now_ms + 100);
    assert_eq!(bench.cache.entries.len(), 0);
}

#[test]
fn a_call_under_way_hides_its_keys_until_it_is_answered() {
    for line in [
        "SET k 2",
        "MGET x k",
        "BLPOP k 0",
        "EVAL s 1 k",
        "EVAL s 0",
        "FLUSHALL",
        "NEW.ONE k",
    ] {
        let mut bench = Bench::new(100);
        bench.keep(0, "k", ONE);
        bench.keep(3, "k", ONE);
        bench.send(2, line);
        assert_eq!(bench.told(0, "k"), None, "{line}");
        assert_eq!(bench.told(1, "k"), None, "{line}");
        // Executed before it, on another connection.
        bench.send(0, "GET k");
        for _ in 0..2 {
            bench.send(0, "GET k");
            bench.answer(0, ONE);
        }
        assert_eq!(bench.told(0, "k"), None, "{line}");
        bench.answer(2, "+OK\r\n");
        bench.answer(0, ONE);
        assert_eq!(bench.told(0, "k"), None, "{line}");
        bench.keep(0, "k", TWO);
    }
    // Other keys are kept.
    let mut bench = Bench::new(100);
    bench.keep(0, "k1", ONE);
    bench.send(1, "SET k2 x");
    bench.send(1, "SET other x");
    bench.send(1, "PING");
    assert!(bench.told(0, "k1").is_some());
}

#[test]
fn a_transaction_changes_its_keys_when_exec_comes() {
    let mut bench = Bench::new(100);
    for line in ["MULTI", "SET k 2", "GET other"] {
        bench.call(1, line, "+QUEUED\r\n");
    }
    bench.keep(0, "k", ONE);
    bench.send(1, "EXEC");
    assert_eq!(bench.told(0, "k"), None);
    bench.call(0, "GET k", ONE);
    bench.call(0, "GET k", ONE);
    assert_eq!(bench.told(0, "k"), None);
    bench.answer(1, "*2\r\n+OK\r\n_\r\n");
    bench.keep(0, "k", TWO);
    for line in ["MULTI", "SET k 3", "DISCARD", "GET k"] {
        bench.call(1, line, TWO);
        assert!(bench.told(0, "k").is_some(), "{line}");
    }
}

#[test]
fn an_answer_of_before_the_news_is_not_kept() {
    let mut bench = Bench::new(100);
    bench.keep(0, "k", ONE);
    bench.send(0, "GET k");
    bench.cache.invalidated(b"k");
    assert_eq!(bench.told(0, "k"), None);
    bench.answer(0, ONE);
    assert_eq!(bench.told(0, "k"), None);
    bench.keep(0, "k", ONE);
    // All keys, as at FLUSHALL, or because they may have moved.
    bench.send(0, "GET k");
    bench.cache.forget();
    bench.answer(0, ONE);
    assert_eq!(bench.told(0, "k"), None);
    bench.keep(0, "k", ONE);
    bench.send(0, "GET k");
    bench.cache.set_open(0, false);
    assert_eq!(bench.told(0, "k"), None);
    bench.call(0, "GET k", ONE);
    bench.cache.set_open(0, true);
    bench.answer(0, ONE);
    assert_eq!(bench.told(0, "k"), None);
    bench.keep(0, "k", ONE);
}

#[test]
fn a_newer_answer_on_another_connection_counts() {
    let mut bench = Bench::new(100);
    bench.call(0, "GET k", ONE);
    bench.send(0, "GET k");
    bench.send(1, "GET k");
    bench.answer(1, TWO);
    bench.answer(0, ONE);
    assert_eq!(bench.told(0, "k"), None);
    bench.keep(0, "k", ONE);
    bench.call(1, "GET k", TWO);
    assert_eq!(bench.told(0, "k"), None);
    // The next GET shows which of the two is newer.
    bench.keep(0, "k", ONE);
    (0..2).for_each(|_| bench.send(0, "GET k"));
    bench.call(1, "GET k", TWO);
    (0..2).for_each(|_| bench.answer(0, ONE));
    assert_eq!(bench.told(0, "k"), None);
    // A lost connection has reported nothing.
    bench.keep(0, "k", TWO);
    bench.send(1, "SET k 3");
    bench.send(1, "GET k");
    let (marks, _) = &mut bench.lanes[1];
    bench.cache.gone(marks, bench.now_ms);
    bench.keep(0, "k", TWO);
}

#[test]
fn who_waits_for_a_key_is_not_told_of_it() {
    let mut asked = Asked::default();
    assert!(!asked.has(1 << 60, 0, 0));
    asked.add(1 << 60, 0);
    asked.add(1 << 57, 1);
    assert!(asked.has(1 << 60, 0, 2) && asked.has(1 << 57, 1, 2));
    assert!(!asked.has(1 << 61, 0, 9));
    assert!(!asked.has(1 << 60, 2, 2));
    assert!(!asked.has(1 << 60, 0, 9));
    asked.add(5, u32::MAX);
    assert!(asked.has(5, u32::MAX - 1, 3) && !asked.has(5, 0, 3));
}

#[test]
fn a_request_that_comes_twice_forgets_nothing_that_was_asked_before() {
    let mut asked = Asked::default();
    asked.add(1 << 60, 0);
    for _ in 0..2 {
        assert!(asked.has(1 << 60, 0, 1));
        asked.add(1 << 57, 1);
    }
    assert!(asked.has(1 << 60, 0, 2) && asked.has(1 << 57, 0, 2));
}

#[test]
fn who_never_waits_for_nothing_is_told_of_what_was_answered() {
    let hash = |number: u32| u64::from(number % 251) << 56;
    let mut asked = Asked::default();
    for number in 0..10_000_u32 {
        // Three are in flight at any time.
        let head = number.saturating_sub(3);
        for recent in head..number {
            assert!(asked.has(hash(recent), head, number));
        }
        if let Some(old) = number.checked_sub(50) {
            assert!(!asked.has(hash(old), head, number), "{number}");
        }
        asked.add(hash(number), number);
    }
}

/// Clients over two shared connections and a private one each, writers that bypass the proxy, and delayed reports: in
/// any order of events, no client sees an older value than before, or misses its own write.
mod model {
    use super::*;

    const KEYS: usize = 3;
    const CLIENTS: usize = 6;

    #[derive(Clone, Copy, Debug)]
    enum Ask {
        Get(usize),
        /// Two keys at once.
        Mget(usize, usize),
        Set(usize, u64),
        /// A script that writes a key which it does not name.
        Script(usize, u64),
    }

    struct Sent {
        client: usize,
        number: u32,
        ask: Ask,
        /// Lowest values that the reply may have, by key.
        least: [u64; KEYS],
    }

    struct Lane {
        sent: VecDeque<Sent>,
        done: VecDeque<(Sent, [u64; KEYS])>,
    }

    #[derive(Default)]
    struct Someone {
        asked: Asked,
        next: u32,
        head: u32,
        /// Values that the client has seen, and those that it has asked to be written, by key.
        seen: [u64; KEYS],
        wrote: [u64; KEYS],
        /// Replies that arrived before their turn.
        held: HashMap<u32, Vec<(usize, u64)>>,
    }

    impl Someone {
        fn reply(&mut self, number: u32, values: Vec<(usize, u64)>) {
            self.held.insert(number, values);
            while let Some(values) = self.held.remove(&self.head) {
                self.head += 1;
                for (key, value) in values {
                    assert!(
                        value >= self.seen[key],
                        "back from {} to {value}",
                        self.seen[key]
                    );
                    self.seen[key] = value;
                }
            }
        }
    }

    fn bulk(value: u64) -> String {
        let text = value.to_string();
        format!("${}\r\n{text}\r\n", text.len())
    }

    fn run(seed: u64) -> u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut cache = PoolCache::new(&caching(&["k"], 1_000), 1 << 20);
        cache.set_open(0, true);
        // Keys with the same floor now and then.
        if seed.is_multiple_of(3) {
            cache.floors = vec![Floor::default(); 1].into();
        }
        let mut bench = Bench {
            cache,
            lanes: (0..2 + CLIENTS).map(|_| (Marks::new(0), 0)).collect(),
            now_ms: 0,
        };
        let lane = || Lane {
            sent: VecDeque::new(),
            done: VecDeque::new(),
        };
        let mut lanes: Vec<Lane> = (0..2 + CLIENTS).map(|_| lane()).collect();
        let mut clients: Vec<Someone> = (0..CLIENTS).map(|_| Someone::default()).collect();
        let mut data = [0_u64; KEYS];
        let mut version = 0;
        let mut news: VecDeque<usize> = VecDeque::new();
        let mut hits = 0;
        let name = |key: usize| format!("k{key}");
        let writes_in = random.u32(20..600);
        let news_in = random.u32(1..30);
        for _ in 0..3_000 {
            match random.u8(0..12) {
                // A client sends.
                0..=2 => {
                    let at = random.usize(..CLIENTS);
                    let client = &mut clients[at];
                    if client.next - client.head >= 4 {
                        continue;
                    }
                    let key = random.usize(..KEYS);
                    let ask = match random.u32(0..writes_in) {
                        0 => Ask::Mget(key, (key + 1) % KEYS),
                        1 => Ask::Script(key, 0),
                        2..=4 => Ask::Set(key, 0),
                        _ => Ask::Get(key),
                    };
                    // On a private connection, whose reply it awaits.
                    let is_private = random.u8(..8) == 0;
                    let waits = lanes[2 + at].sent.len() + lanes[2 + at].done.len() > 0;
                    if waits || is_private && client.next != client.head {
                        continue;
                    }
                    let lane = if is_private { 2 + at } else { at % 2 };
                    let number = client.next;
                    let least = std::array::from_fn(|key| client.seen[key].max(client.wrote[key]));
                    let mut send = |bench: &mut Bench, line: &str, ask| {
                        bench.send(lane, line);
                        lanes[lane].sent.push_back(Sent {
                            client: at,
                            number,
                            ask,
                            least,
                        });
                    };
                    client.next += 1;
                    match ask {
                        Ask::Get(key) => {
                            let hash = bench.cache.hash(name(key).as_bytes());
                            // Now and then the request is decoded twice.
                            let told = (0..random.u8(1..=2)).find_map(|_| {
                                let has_asked = client.asked.has(hash, client.head, number);
                                let told = match has_asked || is_private {
                                    true => None,
                                    false => bench.told(0, &name(key)),
                                };
                                if told.is_none() {
                                    client.asked.add(hash, number);
                                }
                                told
                            });
                            if let Some(told) = told {
                                hits += 1;
                                let value = told.lines().nth(1).unwrap().parse().unwrap();
                                assert!(value >= least[key], "{value} and not {}", least[key]);
                                client.reply(number, vec![(key, value)]);
                                continue;
                            }
                            send(&mut bench, &format!("GET {}", name(key)), ask);
                        }
                        Ask::Mget(one, other) => {
                            send(
                                &mut bench,
                                &format!("MGET {} {}", name(one), name(other)),
                                ask,
                            );
                        }
                        Ask::Set(key, _) => {
                            version += 1;
                            client.wrote[key] = version;
                            send(
                                &mut bench,
                                &format!("SET {} v", name(key)),
                                Ask::Set(key, version),
                            );
                        }
                        Ask::Script(key, _) => {
                            version += 1;
                            client.wrote[key] = version;
                            send(&mut bench, "EVAL s 0", Ask::Script(key, version));
                        }
                    }
                }
                // The server executes the next request of some connection.
                3..=6 => {
                    let busy = |lane: &&mut Lane| !lane.sent.is_empty();
                    let mut busy: Vec<&mut Lane> = lanes.iter_mut().filter(busy).collect();
                    if busy.is_empty() {
                        continue;
                    }
                    let lane = busy.swap_remove(random.usize(..busy.len()));
                    if let Some(sent) = lane.sent.pop_front() {
                        if let Ask::Set(key, value) | Ask::Script(key, value) = sent.ask {
                            // An earlier request may be executed later: values grow all the same.
                            data[key] = data[key].max(value);
                            news.push_back(key);
                        }
                        lane.done.push_back((sent, data));
                    }
                }
                // A reply arrives.
                7..=9 => {
                    let busy = |at: &usize| !lanes[*at].done.is_empty();
                    let busy: Vec<usize> = (0..lanes.len()).filter(busy).collect();
                    let Some(&at) = busy.get(random.usize(..busy.len().max(1))) else {
                        continue;
                    };
                    let Some((sent, data)) = lanes[at].done.pop_front() else {
                        continue;
                    };
                    let values = match sent.ask {
                        Ask::Get(key) => {
                            bench.answer(at, &bulk(data[key]));
                            vec![(key, data[key])]
                        }
                        Ask::Mget(one, other) => {
                            bench.answer(at, "*2\r\n");
                            vec![(one, data[one]), (other, data[other])]
                        }
                        Ask::Set(..) | Ask::Script(..) => {
                            bench.answer(at, "+OK\r\n");
                            Vec::new()
                        }
                    };
                    for (key, value) in &values {
                        assert!(*value >= sent.least[*key]);
                    }
                    clients[sent.client].reply(sent.number, values);
                }
                // A report arrives.
                10 => {
                    if random.u32(..news_in) == 0
                        && let Some(key) = news.pop_front()
                    {
                        bench.cache.invalidated(name(key).as_bytes());
                    }
                }
                // Another client writes.
                _ => {
                    if random.u32(0..writes_in) < 5 {
                        let key = random.usize(..KEYS);
                        version += 1;
                        data[key] = version;
                        news.push_back(key);
                    }
                    bench.now_ms += 1;
                }
            }
        }
        // When all is answered and reported, cached values are current.
        for (at, lane) in lanes.iter_mut().enumerate() {
            for sent in lane.sent.drain(..) {
                if let Ask::Set(key, value) | Ask::Script(key, value) = sent.ask {
                    data[key] = data[key].max(value);
                    news.push_back(key);
                }
                lane.done.push_back((sent, data));
            }
            for (sent, data) in lane.done.drain(..) {
                match sent.ask {
                    Ask::Get(key) => bench.answer(at, &bulk(data[key])),
                    _ => bench.answer(at, "+OK\r\n"),
                }
            }
        }
        for key in news {
            bench.cache.invalidated(name(key).as_bytes());
        }
        for (key, value) in data.into_iter().enumerate() {
            let told = bench.told(0, &name(key));
            assert!(told.is_none_or(|told| told == bulk(value)), "{seed}");
        }
        hits
    }

    #[test]
    fn nobody_sees_a_key_go_back_or_misses_its_own_write() {
        let hits: u64 = (0..400).map(run).sum();
        assert!(hits > 10_000, "{hits}");
    }
}
