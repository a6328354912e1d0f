//! Data of every type, size and encoding in all databases of a server, and the questions by which two servers show that
//! they have the same data: one that has made it, and one that has loaded its file.
//!
//! Must not know: where files are, and how a server is told to write or to load one.

use std::io;

use fastrand::Rng;
use redline_resp::reply_decoder::Value;

use crate::{
    client::Client,
    payloads::{Call, filling, name},
};

/// Number of databases.
const DATABASES: usize = 16;
/// A time at which nothing expires yet: Unix time in milliseconds.
const FAR_MS: u64 = 4_000_000_000_000;
/// Largest number of characters of a reported difference.
const DIFFERENCE_CHARS_MAX: usize = 2_000;
/// Seconds by which a key may be idle for longer than it was: servers start meanwhile, on a machine that may be busy. A record
/// that is lost, or read in another unit, differs by more or in the other direction.
const IDLE_SECONDS_APART_MAX: i64 = 600;
const LIBRARIES: [&str; 2] = [
    "#!lua name=one\nredis.register_function('f', function(keys) return redis.call('get', keys[1]) end)",
    "#!lua name=two\nlocal function g() return 2 end\nredis.register_function{function_name='g', callback=g, flags={'no-writes'}}",
];

/// Kinds of data that a server can hold, and how much of them it gets.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of random values.
    pub values: usize,
    /// Seed of the values.
    pub seed: u64,
    /// Fields of hashes expire.
    pub fields_expire: bool,
    /// There are vector sets.
    pub vector_sets: bool,
}

/// How much of the data two servers have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// Both follow the same version: also encodings, and all of what is known of streams.
    Same,
    /// Both follow the same version, and what commands tell: no encodings, and of streams what a rewritten file has.
    Told,
    /// Contents, times and groups of streams.
    Contents,
}

/// The keys of a server, each with the calls that made it.
#[derive(Clone, Debug, Default)]
pub struct Data {
    keys: Vec<(usize, Vec<u8>, Vec<Call>)>,
}

impl Data {
    /// Returns the number of keys.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }
}

/// A question, and what a server answered.
pub type Answers = Vec<(String, Value)>;

/// Fills an empty server. Returns what is there then, or the call that failed.
pub fn fill(client: &mut Client, options: Options) -> io::Result<Result<Data, String>> {
    let mut random = Rng::with_seed(options.seed);
    let mut values = thresholds();
    for _ in 0..options.values {
        let calls = loop {
            let calls = filling(&mut random, options.fields_expire || options.vector_sets);
            let is_any = |wanted: &str| calls.iter().any(|call| name(call) == wanted);
            let fits = (options.fields_expire || !is_any("HPEXPIREAT"))
                && (options.vector_sets || !is_any("VADD"));
            if fits {
                break calls;
            }
        };
        values.push(calls);
    }
    let mut data = Data::default();
    for (at, mut calls) in values.into_iter().enumerate() {
        let (db, key) = (at % DATABASES, format!("key:{at}").into_bytes());
        for call in &mut calls {
            if name(call) == "ZADD" && !options.fields_expire {
                shorten_scores(call);
            }
            let at = if name(call) == "XGROUP" { 2 } else { 1 };
            if let Some(at) = call.iter().position(|word| word == b"STREAMS") {
                call[at + 1] = key.clone();
            } else {
                call[at] = key.clone();
            }
        }
        if random.u8(..4) == 0 {
            let at_ms = FAR_MS + random.u64(..1 << 40);
            calls.push(words(&["PEXPIREAT"], &[&key, at_ms.to_string().as_bytes()]));
        }
        let mut all = vec![words(&["SELECT"], &[db.to_string().as_bytes()])];
        all.extend(calls.iter().cloned());
        for call in &all {
            let reply = client.call(call)?;
            if reply.is_error() {
                let call = call.join(&b' ').escape_ascii().to_string();
                return Ok(Err(format!("{} answered {reply:?}", shown(&call))));
            }
        }
        data.keys.push((db, key, calls));
    }
    for library in LIBRARIES {
        let reply = client.call(&["FUNCTION", "LOAD", library])?;
        if reply.is_error() {
            return Ok(Err(format!("FUNCTION LOAD answered {reply:?}")));
        }
    }
    client.call(&["SELECT", "0"])?;
    Ok(Ok(data))
}

/// Makes a key that has expired and is still there: a file may have it, and who loads the file has not.
pub fn leave_an_expired_key(client: &mut Client) -> io::Result<()> {
    client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"])?;
    client.call(&["SET", "gone", "v", "PXAT", "1"])?;
    client.call(&["SET", "gone", "v", "PX", "1"]).map(drop)
}

/// Replaces scores by quarters of small numbers: versions before 7.2 digest the digits of others differently.
fn shorten_scores(call: &mut Call) {
    for (at, pair) in call[2..].chunks_mut(2).enumerate() {
        if !pair[0].ends_with(b"inf") {
            pair[0] = (at as f64 / 4.0).to_string().into_bytes();
        }
    }
}

fn words(texts: &[&str], more: &[&[u8]]) -> Call {
    let texts = texts.iter().map(|text| text.as_bytes());
    texts
        .chain(more.iter().copied())
        .map(<[u8]>::to_vec)
        .collect()
}

/// Returns calls that make values at the thresholds of encodings, under the key `k`.
fn thresholds() -> Vec<Vec<Call>> {
    let mut values = Vec::new();
    let numbered = |count: usize, text: &str| -> Vec<Vec<u8>> {
        (0..count)
            .map(|n| format!("{text}{n}").into_bytes())
            .collect()
    };
    let mut add = |command: &str, words: Vec<Vec<u8>>| {
        let mut call = vec![command.as_bytes().to_vec(), b"k".to_vec()];
        call.extend(words);
        values.push(vec![call]);
    };
    // Numbers of elements: of hashes, sets and sorted sets 128, of sets of integers 512.
    for count in [127, 128, 129, 511, 512, 513] {
        let names = numbered(count, "n");
        let pairs = |first: bool| {
            let pair = |(n, name): (usize, &Vec<u8>)| match first {
                true => [n.to_string().into_bytes(), name.clone()],
                false => [name.clone(), n.to_string().into_bytes()],
            };
            names.iter().enumerate().flat_map(pair).collect::<Vec<_>>()
        };
        add("HSET", pairs(false));
        add("ZADD", pairs(true));
        add("SADD", numbered(count, ""));
        add("SADD", numbered(count, "40000"));
        add("SADD", numbered(count, "-50000000000"));
        add("SADD", names.clone());
        add("RPUSH", names);
    }
    // Lengths of strings: of elements 64, of those inside a listpack 64 and 4096, of texts that are compressed 21, of nodes of
    // lists 8192, of strings that are no part of their entry 44.
    for len in [
        0, 1, 20, 21, 43, 44, 45, 63, 64, 65, 4095, 4096, 4097, 8191, 8192, 8193, 70_000,
    ] {
        let same = vec![b'x'; len];
        let mixed: Vec<u8> = (0..len).map(|at| (at * 7 + at / 256) as u8).collect();
        for text in [same, mixed] {
            add("SET", vec![text.clone()]);
            add("RPUSH", vec![text.clone(), b"a".to_vec(), text.clone()]);
            add("HSET", vec![b"f".to_vec(), text.clone()]);
            add("SADD", vec![text.clone(), b"12".to_vec()]);
            add("ZADD", vec![b"1.25".to_vec(), text.clone()]);
            add("XADD", vec![b"1-1".to_vec(), b"f".to_vec(), text]);
        }
    }
    // Widths of integers.
    let mut integers = Vec::new();
    for bits in [7, 12, 15, 23, 31, 63] {
        let edge = 1_i128 << bits;
        integers.extend([edge - 1, edge, edge + 1, -edge - 1, -edge, -edge + 1]);
    }
    let integers = integers.into_iter().map(|n| n.to_string().into_bytes());
    let integers: Vec<_> = integers
        .chain([b"007".to_vec(), b"-0".to_vec(), b" 1".to_vec()])
        .collect();
    for integer in &integers {
        add("SET", vec![integer.clone()]);
    }
    add("RPUSH", integers.clone());
    add("SADD", integers);
    // HyperLogLogs: sparse and dense. Nodes of streams: 100 entries.
    add("PFADD", numbered(10, "e"));
    add("PFADD", numbered(5_000, "e"));
    add("SET", vec![vec![b'y'; 3 << 20]]);
    let mut long = Vec::new();
    for n in 1..=201 {
        let call = format!("XADD k {n}-0 f v{n}");
        long.push(
            call.split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect(),
        );
    }
    values.push(long);
    values
}

/// Asks a server for everything that a file has.
pub fn answers(client: &mut Client, data: &Data, likeness: Likeness) -> io::Result<Answers> {
    let mut answers = Answers::new();
    let mut ask = |client: &mut Client, what: String, call: &Call| -> io::Result<()> {
        let reply = client.call(call)?;
        answers.push((what, reply));
        Ok(())
    };
    let is_apart = |(_, _, calls): &(usize, Vec<u8>, Vec<Call>)| is_digested_apart(calls, likeness);
    if !data.keys.iter().any(is_apart) {
        let call = words(&["DEBUG", "DIGEST"], &[]);
        ask(client, "DEBUG DIGEST".into(), &call)?;
    }
    for db in 0..DATABASES {
        client.call(&["SELECT", &db.to_string()])?;
        ask(client, format!("DBSIZE of {db}"), &words(&["DBSIZE"], &[]))?;
    }
    for (db, key, calls) in &data.keys {
        client.call(&["SELECT", &db.to_string()])?;
        for question in questions(key, calls, likeness) {
            let call = calls
                .iter()
                .map(|call| call.join(&b' ').escape_ascii().to_string());
            let call = shown(&call.collect::<Vec<_>>().join("; "));
            let what = format!(
                "{} of {db}, made by {call}",
                question.join(&b' ').escape_ascii()
            );
            ask(client, what, &question)?;
        }
    }
    client.call(&["SELECT", "0"])?;
    ask(
        client,
        "FUNCTION LIST".into(),
        &words(&["FUNCTION", "LIST", "WITHCODE"], &[]),
    )?;
    // The order of libraries is that of a table.
    if let Some((_, Value::Array(libraries))) = answers.last_mut() {
        libraries.sort_by_key(|library| format!("{library:?}"));
    }
    Ok(answers)
}

/// Returns true for a hash with fields that expire, where the other server is Valkey: it digests their times differently.
fn is_digested_apart(calls: &[Call], likeness: Likeness) -> bool {
    let expires = |call: &Call| name(call) == "HPEXPIREAT";
    likeness == Likeness::Contents && calls.iter().any(expires)
}

fn questions(key: &[u8], calls: &[Call], likeness: Likeness) -> Vec<Call> {
    let about = |texts: &[&str]| words(texts, &[key]);
    let mut questions = vec![about(&["PEXPIRETIME"]), about(&["TYPE"])];
    if is_digested_apart(calls, likeness) {
        let mut question = about(&["HMGET"]);
        let pairs = calls.iter().filter(|call| name(call) == "HSET");
        question.extend(pairs.flat_map(|call| call[2..].chunks(2).map(|pair| pair[0].clone())));
        questions.extend([about(&["HLEN"]), question]);
    } else {
        questions.push(about(&["DEBUG", "DIGEST-VALUE"]));
    }
    if likeness == Likeness::Same {
        questions.push(about(&["OBJECT", "ENCODING"]));
    }
    for call in calls {
        match name(call).as_str() {
            "HPEXPIREAT" => {
                let mut question = about(&["HPEXPIRETIME"]);
                question.extend_from_slice(&call[3..]);
                questions.push(question);
            }
            "VSETATTR" => {
                for question in ["VEMB", "VGETATTR"] {
                    questions.push(words(&[question], &[key, &call[2]]));
                }
            }
            "XGROUP" if call[1] == b"CREATE" => {
                questions.push(words(&["XPENDING"], &[key, &call[3]]));
            }
            _ => {}
        }
    }
    if calls.iter().any(|call| name(call) == "XADD") {
        questions.push(about(&["XINFO", "GROUPS"]));
        if likeness == Likeness::Same {
            let mut question = about(&["XINFO", "STREAM"]);
            question.extend(words(&["FULL", "COUNT", "0"], &[]));
            questions.push(question);
        }
    }
    questions
}

/// Returns how two servers differ, if they do, in at most this many answers.
pub fn difference(made: &Answers, loaded: &Answers) -> Option<String> {
    const SHOWN_MAX: usize = 5;
    let pairs = made.iter().zip(loaded);
    let differ = pairs.filter(|((_, made), (_, loaded))| made != loaded);
    let differences: Vec<String> = differ
        .map(|((what, made), (_, loaded))| {
            format!(
                "{what}\n    was {}\n    is  {}",
                shown(&format!("{made:?}")),
                shown(&format!("{loaded:?}"))
            )
        })
        .collect();
    if differences.is_empty() && made.len() == loaded.len() {
        return None;
    }
    let more = differences.len().saturating_sub(SHOWN_MAX);
    let listed: Vec<_> = differences.into_iter().take(SHOWN_MAX).collect();
    Some(format!("{}\n  and {more} more", listed.join("\n  ")))
}

fn shown(text: &str) -> String {
    text.chars().take(DIFFERENCE_CHARS_MAX).collect()
}

/// Makes keys with records of accesses: as the policy has them, idle or frequent.
pub fn fill_accesses(client: &mut Client, lfu: bool) -> io::Result<Result<(), String>> {
    client.call(&["SET", "source", "v"])?;
    let Value::Bulk(payload) = client.call(&["DUMP", "source"])? else {
        return Ok(Err("DUMP answered no payload".to_owned()));
    };
    for (at, figure) in ACCESSES.iter().enumerate() {
        let (key, figure) = (format!("access:{at}"), figure.to_string());
        let option = if lfu { "FREQ" } else { "IDLETIME" };
        let call = words(
            &["RESTORE", &key, "0"],
            &[&payload, option.as_bytes(), figure.as_bytes()],
        );
        let reply = client.call(&call)?;
        if reply.is_error() {
            return Ok(Err(format!("RESTORE with {option} answered {reply:?}")));
        }
    }
    Ok(Ok(()))
}

/// Frequencies, and seconds of idleness.
const ACCESSES: [i64; 5] = [0, 1, 30, 200, 255];

/// Returns what is wrong with the records of accesses of a server that has loaded those of [`fill_accesses`].
pub fn wrong_accesses(client: &mut Client, lfu: bool) -> io::Result<Option<String>> {
    for (at, figure) in ACCESSES.iter().enumerate() {
        let key = format!("access:{at}");
        let question = if lfu { "FREQ" } else { "IDLETIME" };
        let reply = client.call(&["OBJECT", question, &key])?;
        let is_right = match reply {
            // A frequency decays by one a minute.
            Value::Integer(n) if lfu => (figure - 1..=*figure).contains(&n),
            Value::Integer(n) => (*figure..=figure + IDLE_SECONDS_APART_MAX).contains(&n),
            _ => false,
        };
        if !is_right {
            return Ok(Some(format!(
                "OBJECT {question} was {figure}, is {reply:?}"
            )));
        }
    }
    Ok(None)
}
