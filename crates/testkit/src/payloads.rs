//! Values of every type that are copied between two servers by DUMP and RESTORE, in both directions. They are equal if
//! DEBUG DIGEST-VALUE is the same on both sides, and for one version also OBJECT ENCODING, the times of fields that
//! expire, and all replies of XINFO about a stream and its groups.

use std::io;
use std::net::SocketAddr;

use fastrand::Rng;
use redline_resp::reply_decoder::Value;

use crate::client::Client;

/// The options of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of values in each direction.
    pub values: usize,
    /// Seed of the values.
    pub seed: u64,
    /// The other server is of the version that ours follows: it reads what ours writes, and has the same encodings.
    pub same_version: bool,
}

/// Copies values in both directions; returns their number, or the first that differs.
pub fn run(
    ours: SocketAddr,
    theirs: SocketAddr,
    options: Options,
) -> io::Result<Result<usize, String>> {
    let (mut ours, mut theirs) = (Client::connect(ours)?, Client::connect(theirs)?);
    let mut random = Rng::with_seed(options.seed);
    let mut arrived = 0;
    for round in 0..options.values {
        let calls = filling(&mut random, options.same_version);
        for outward in [true, false] {
            if outward && !options.same_version {
                continue;
            }
            let (from, to) = match outward {
                true => (&mut ours, &mut theirs),
                false => (&mut theirs, &mut ours),
            };
            if let Some(fault) = travel(from, to, &calls, options.same_version)? {
                let way = if outward { "from us" } else { "to us" };
                return Ok(Err(format!("value {round} {way}: {fault}")));
            }
            arrived += 1;
        }
    }
    Ok(Ok(arrived))
}

/// The words of a call.
pub type Call = Vec<Vec<u8>>;

/// Largest number of characters of a reported fault.
const FAULT_CHARS_MAX: usize = 4_000;

/// Makes a value on one side and copies it to the other; an error describes a difference.
fn travel(
    from: &mut Client,
    to: &mut Client,
    calls: &[Call],
    same_version: bool,
) -> io::Result<Option<String>> {
    from.call(&["FLUSHALL"])?;
    to.call(&["FLUSHALL"])?;
    for call in calls {
        let reply = from.call(call)?;
        if reply.is_error() {
            return Ok(Some(format!("{} answered {reply:?}", name(call))));
        }
    }
    let Value::Bulk(payload) = from.call(&["DUMP", "k"])? else {
        return Ok(Some("no payload".to_owned()));
    };
    let restore: [&[u8]; 4] = [b"RESTORE", b"k", b"0", &payload];
    let reply = to.call(&restore)?;
    if reply != Value::Simple(b"OK".to_vec()) {
        return Ok(Some(format!("{reply:?} to {payload:x?}")));
    }
    for question in questions(calls, same_version) {
        let ask = |client: &mut Client| client.call(&question);
        let (sent, got) = (ask(from)?, ask(to)?);
        let arrived = match name(&question).as_str() {
            "VLINKS" => keeps_links(&sent, &got),
            _ => sent == got,
        };
        if !arrived {
            let fault = format!(
                "{} was {sent:?}, is {got:?}: {payload:x?}",
                question.join(&b' ').escape_ascii()
            );
            return Ok(Some(fault.chars().take(FAULT_CHARS_MAX).collect()));
        }
    }
    if same_version {
        // A payload does not contain a value's history, which an encoding shows: both have loaded it when they are asked.
        from.call(&[&restore[..], &[b"REPLACE"]].concat())?;
        let encodings = (
            from.call(&["OBJECT", "ENCODING", "k"])?,
            to.call(&["OBJECT", "ENCODING", "k"])?,
        );
        if encodings.0 != encodings.1 {
            return Ok(Some(format!("{encodings:?}: {payload:x?}")));
        }
    }
    Ok(None)
}

/// Returns true if all links of a layer are still there. Ours gets more, if a graph was not connected.
fn keeps_links(sent: &Value, got: &Value) -> bool {
    match (sent, got) {
        (Value::Array(sent), Value::Array(got)) => {
            sent.len() == got.len()
                && sent.iter().zip(got).all(|layers| match layers {
                    (Value::Array(sent), Value::Array(got)) => {
                        sent.iter().all(|link| got.contains(link))
                    }
                    _ => false,
                })
        }
        _ => sent == got,
    }
}

/// Returns the name of its command.
pub(crate) fn name(call: &Call) -> String {
    String::from_utf8_lossy(&call[0]).into_owned()
}

/// Returns the calls whose replies must be equal on both sides.
fn questions(calls: &[Call], same_version: bool) -> Vec<Call> {
    let words = |text: &str| {
        text.split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect()
    };
    let mut questions: Vec<Call> = vec![words("TYPE k")];
    // An older server formats the digits of scores differently before it digests them.
    if same_version || !calls.iter().any(|call| name(call) == "ZADD") {
        questions.push(words("DEBUG DIGEST-VALUE k"));
    } else {
        questions.push(words("ZCARD k"));
    }
    if same_version {
        for call in calls.iter().filter(|call| name(call) == "HPEXPIREAT") {
            let mut question: Call = words("HPEXPIRETIME k");
            question.extend_from_slice(&call[3..]);
            questions.push(question);
        }
    }
    for call in calls.iter().filter(|call| name(call) == "VSETATTR") {
        for question in ["VLINKS", "VEMB", "VGETATTR"] {
            questions.push(vec![question.into(), b"k".to_vec(), call[2].clone()]);
        }
    }
    if calls.iter().any(|call| name(call) == "XADD") {
        questions.push(words("XINFO GROUPS k"));
        if same_version {
            questions.push(words("XINFO STREAM k FULL COUNT 0"));
        }
    }
    questions
}

/// Returns calls that make a value of any type and size under the key `k`. Field times are for servers that have them.
pub(crate) fn filling(random: &mut Rng, timed_fields: bool) -> Vec<Call> {
    let size = [1, 3, 20, 150, 600][random.usize(..5)];
    let call = |name: &str, words: Vec<Vec<u8>>| {
        let mut call = vec![name.as_bytes().to_vec(), b"k".to_vec()];
        call.extend(words);
        call
    };
    // Servers with field times have vector sets as well.
    match random.u8(..if timed_fields { 15 } else { 13 }) {
        13 | 14 => vector_set(random, size),
        0 | 1 => vec![call("SET", texts(random, 1))],
        2 => vec![
            call("SET", texts(random, 1)),
            call("APPEND", texts(random, 1)),
        ],
        3 | 4 => vec![call("RPUSH", texts(random, size))],
        5 => vec![call("SADD", texts(random, size))],
        6 | 7 => vec![call("HSET", texts(random, 2 * size))],
        8 => {
            let bits = random.u32(..62);
            let members = (0..size).map(|_| (random.i64(..) >> bits).to_string().into_bytes());
            vec![call("SADD", members.collect())]
        }
        9 | 10 => {
            let pairs = (0..size).flat_map(|_| [score(random), text(random)]);
            vec![call("ZADD", pairs.collect())]
        }
        11 => {
            let pairs = texts(random, 2 * size);
            let mut calls = vec![call("HSET", pairs.clone())];
            for pair in pairs.chunks(2).take(40) {
                if timed_fields && random.bool() {
                    let at_ms = 4_000_000_000_000 + random.u64(..1 << 20);
                    let at_ms = at_ms.to_string();
                    let words = [at_ms.as_bytes(), b"FIELDS", b"1", &pair[0]];
                    calls.push(call("HPEXPIREAT", words.map(<[u8]>::to_vec).to_vec()));
                }
            }
            calls
        }
        _ => stream(random, size),
    }
}

/// Returns calls that make a vector set of any shape, some of whose elements have attributes, and some are removed.
fn vector_set(random: &mut Rng, size: usize) -> Vec<Call> {
    let inputs = random.usize(1..40);
    let reduce = random.usize(1..=inputs).to_string();
    let reduce = Some(reduce).filter(|_| random.u8(..3) == 0);
    let quantization = ["NOQUANT", "Q8", "BIN"][random.usize(..3)];
    let links = ["4", "5", "16", "100"][random.usize(..4)];
    let mut calls: Vec<Call> = Vec::new();
    for at in 0..size {
        let element = format!("e{at}").into_bytes();
        let vector = (0..inputs).flat_map(|_| (random.f32() - 0.5).to_le_bytes());
        let mut call = vec![b"VADD".to_vec(), b"k".to_vec()];
        if let Some(reduce) = &reduce {
            call.extend([b"REDUCE".to_vec(), reduce.clone().into_bytes()]);
        }
        call.extend([b"FP32".to_vec(), vector.collect(), element.clone()]);
        call.extend([quantization, "M", links].map(|word| word.as_bytes().to_vec()));
        calls.push(call);
        let mut about = |name: &str, word: Option<Vec<u8>>| {
            let mut call = vec![name.as_bytes().to_vec(), b"k".to_vec(), element.clone()];
            call.extend(word);
            calls.push(call);
        };
        match random.u8(..9) {
            0 | 1 => about("VSETATTR", Some(text(random))),
            2 if at > 0 => about("VREM", None),
            _ => {}
        }
    }
    calls
}

/// Returns calls that make a stream with removed entries, and groups whose consumers have read, acknowledged and claimed.
fn stream(random: &mut Rng, size: usize) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut add = |text: String| {
        calls.push(
            text.split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect(),
        );
    };
    let groups = random.u8(..3);
    add("XADD k 0-1 f v".to_owned());
    for group in 0..groups {
        add(format!(
            "XGROUP CREATE k g{group} {}",
            ["0", "$", "20"][random.usize(..3)]
        ));
        add(format!("XGROUP CREATECONSUMER k g{group} idle"));
    }
    for ms in 1..=size as u64 {
        let same_fields = random.bool();
        let value = random.i16(..);
        let more = if same_fields { "" } else { " name text" };
        add(format!("XADD k {ms}-{} f {value}{more}", random.u8(..9)));
        if random.u8(..9) == 0 {
            add(format!("XDEL k {}-0 {ms}-{}", ms / 2, random.u8(..9)));
        }
        if groups > 0 && random.u8(..4) == 0 {
            let (group, consumer) = (random.u8(..groups), random.u8(..3));
            add(match random.u8(..4) {
                0 => format!("XACK k g{group} {}-0 {}-1", ms / 2, ms / 2),
                1 => format!("XCLAIM k g{group} c{consumer} 0 {}-0 {}-1", ms / 2, ms / 3),
                _ => format!("XREADGROUP GROUP g{group} c{consumer} COUNT 5 STREAMS k >"),
            });
        }
    }
    calls
}

fn texts(random: &mut Rng, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| text(random)).collect()
}

fn text(random: &mut Rng) -> Vec<u8> {
    match random.u8(..6) {
        0 => random.i64(..).to_string().into_bytes(),
        1 => random.i8(..).to_string().into_bytes(),
        2 => (0..random.usize(..200)).map(|_| random.u8(..)).collect(),
        3 => vec![random.u8(..); random.usize(..300)],
        4 => random.i32(..).to_string().into_bytes(),
        _ => b"abc".repeat(random.usize(..40)),
    }
}

fn score(random: &mut Rng) -> Vec<u8> {
    match random.u8(..5) {
        0 => b"inf".to_vec(),
        1 => b"-inf".to_vec(),
        2 => random.i8(..).to_string().into_bytes(),
        3 => format!("{:e}", random.f64() * 1e300).into_bytes(),
        _ => random.f64().to_string().into_bytes(),
    }
}
