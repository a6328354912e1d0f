//! Entries as the commands that make them, for bases without a snapshot (`aof-use-rdb-preamble no`): those that Redis writes.
//!
//! A collection is several commands of [`ELEMENTS_MAX`] elements. What Redis tells by no command is not in them: records of
//! accesses, the times when a consumer of a stream was last seen and active, and pending entries that are no longer in their
//! stream. A vector set travels as RESTORE; its graph is in no command.
//!
//! Must not know: where the bytes go, when an entry is written.

use redline_rdb::{ObjectRef, dump_in_place};
use redline_resp::format_double;
use redline_types::{
    DataType, Element, Hash, List, Set, Stream, Value, Zset,
    number::IntBuf,
    stream::{Group, StreamId},
};

/// Elements of a collection in one command: as in Redis.
const ELEMENTS_MAX: usize = 64;

/// Appends the commands that make a value under a key; `compresses` is about payloads inside of them.
pub fn value(out: &mut Vec<u8>, key: &[u8], value: &Value, compresses: bool) {
    match value {
        Value::List(list) => write_list(out, key, list),
        Value::Set(set) => write_set(out, key, set),
        Value::Hash(hash) => write_hash(out, key, hash),
        Value::Zset(zset) => write_zset(out, key, zset),
        Value::Stream(stream) => write_stream(out, key, stream),
        // Types whose commands do not tell all of a value.
        _ => {
            let payload = dump_in_place(ObjectRef::Value(value), compresses);
            command(out, &[b"RESTORE", key, b"0", &payload]);
        }
    }
}

/// Appends all of SET but its last word, whose place it is: [`head`] and its bytes follow.
pub fn set_without_value(out: &mut Vec<u8>, key: &[u8]) {
    head(out, b'*', 3);
    word(out, b"SET");
    word(out, key);
}

/// Appends a word.
pub fn word(out: &mut Vec<u8>, bytes: &[u8]) {
    head(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends SELECT.
pub fn select(out: &mut Vec<u8>, db: u32) {
    command(out, &[b"SELECT", IntBuf::new().format(db.into())]);
}

/// Appends the time at which a key expires: Unix time in milliseconds.
pub fn expire(out: &mut Vec<u8>, key: &[u8], at_ms: i64) {
    command(out, &[b"PEXPIREAT", key, IntBuf::new().format(at_ms)]);
}

/// Appends FUNCTION LOAD of a library's source.
pub fn library(out: &mut Vec<u8>, source: &[u8]) {
    command(out, &[b"FUNCTION", b"LOAD", source]);
}

fn head(out: &mut Vec<u8>, sign: u8, number: usize) {
    out.push(sign);
    out.extend_from_slice(IntBuf::new().format(number as i64));
    out.extend_from_slice(b"\r\n");
}

fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    head(out, b'*', words.len());
    words.iter().for_each(|bytes| word(out, bytes));
}

/// The elements of a collection, a command for every [`ELEMENTS_MAX`].
struct Elements<'a> {
    out: &'a mut Vec<u8>,
    name: &'static [u8],
    key: &'a [u8],
    /// Words of the command that is being made.
    words: Vec<u8>,
    words_count: usize,
    count: usize,
}

impl<'a> Elements<'a> {
    fn new(out: &'a mut Vec<u8>, name: &'static [u8], key: &'a [u8]) -> Elements<'a> {
        Elements {
            out,
            name,
            key,
            words: Vec::new(),
            words_count: 0,
            count: 0,
        }
    }

    fn word(&mut self, bytes: &[u8]) {
        word(&mut self.words, bytes);
        self.words_count += 1;
    }

    fn element(&mut self, element: Element<'_>) {
        self.word(element.bytes(&mut IntBuf::new()));
    }

    /// Ends an element.
    fn next(&mut self) {
        self.count += 1;
        if self.count == ELEMENTS_MAX {
            self.end();
        }
    }

    /// Ends the command, if there is one.
    fn end(&mut self) {
        if self.count > 0 {
            head(self.out, b'*', 2 + self.words_count);
            word(self.out, self.name);
            word(self.out, self.key);
            self.out.append(&mut self.words);
            (self.words_count, self.count) = (0, 0);
        }
    }
}

fn write_list(out: &mut Vec<u8>, key: &[u8], list: &List) {
    let mut elements = Elements::new(out, b"RPUSH", key);
    for element in list.iter() {
        elements.element(element);
        elements.next();
    }
    elements.end();
}

fn write_set(out: &mut Vec<u8>, key: &[u8], set: &Set) {
    let mut elements = Elements::new(out, b"SADD", key);
    for member in set.iter() {
        elements.element(member);
        elements.next();
    }
    elements.end();
}

fn write_zset(out: &mut Vec<u8>, key: &[u8], zset: &Zset) {
    let mut elements = Elements::new(out, b"ZADD", key);
    let mut text = Vec::new();
    for (member, score) in zset.iter() {
        text.clear();
        format_double(score, &mut text);
        elements.word(&text);
        elements.element(member);
        elements.next();
    }
    elements.end();
}

/// All fields first, then the times of those that have one: so the hash is never empty meanwhile.
fn write_hash(out: &mut Vec<u8>, key: &[u8], hash: &Hash) {
    let mut elements = Elements::new(out, b"HSET", key);
    for (field, value, _) in hash.iter_timed() {
        elements.element(field);
        elements.element(value);
        elements.next();
    }
    elements.end();
    if hash.earliest_expiry_ms().is_none() {
        return;
    }
    for (field, _, at_ms) in hash.iter_timed() {
        if let Some(at_ms) = at_ms {
            let (mut at, mut text) = (IntBuf::new(), IntBuf::new());
            let (at, field) = (at.format(at_ms), field.bytes(&mut text));
            command(out, &[b"HPEXPIREAT", key, at, b"FIELDS", b"1", field]);
        }
    }
}

fn write_stream(out: &mut Vec<u8>, key: &[u8], stream: &Stream) {
    for entry in stream.range(StreamId::MIN, StreamId::MAX) {
        let fields = entry.fields();
        head(out, b'*', 3 + 2 * fields.len());
        word(out, b"XADD");
        word(out, key);
        word(out, &id_text(entry.id));
        for (name, value) in fields {
            word(out, name);
            word(out, value);
        }
    }
    if stream.is_empty() {
        // It makes the key, and leaves nothing there.
        command(out, &[b"XADD", key, b"MAXLEN", b"0", b"0-1", b"x", b"y"]);
    }
    let log = stream.log();
    let added = log.entries_added().to_string();
    let (last, deleted) = (id_text(stream.last_id()), id_text(log.max_deleted_id()));
    let words: [&[u8]; 7] = [
        b"XSETID",
        key,
        &last,
        b"ENTRIESADDED",
        added.as_bytes(),
        b"MAXDELETEDID",
        &deleted,
    ];
    command(out, &words);
    for (name, group) in stream.groups() {
        write_group(out, key, name, group);
    }
}

fn write_group(out: &mut Vec<u8>, key: &[u8], name: &[u8], group: &Group) {
    let last = id_text(group.last_id());
    let read = match group.entries_read() {
        Some(read) => read.to_string(),
        None => "-1".to_owned(),
    };
    let words: [&[u8]; 7] = [
        b"XGROUP",
        b"CREATE",
        key,
        name,
        &last,
        b"ENTRIESREAD",
        read.as_bytes(),
    ];
    command(out, &words);
    for consumer in group.consumers() {
        if consumer.pending_len() == 0 {
            let consumer = consumer.name();
            command(out, &[b"XGROUP", b"CREATECONSUMER", key, name, consumer]);
        }
        for id in consumer.pending_from(StreamId::MIN) {
            let Some(pending) = group.pending(id) else {
                continue;
            };
            let (mut time, mut count) = (IntBuf::new(), IntBuf::new());
            let words: [&[u8]; 12] = [
                b"XCLAIM",
                key,
                name,
                consumer.name(),
                b"0",
                &id_text(id),
                b"TIME",
                time.format(pending.delivered_at_ms),
                b"RETRYCOUNT",
                count.format(pending.deliveries as i64),
                b"JUSTID",
                b"FORCE",
            ];
            command(out, &words);
        }
    }
}

fn id_text(id: StreamId) -> Vec<u8> {
    let mut text = Vec::new();
    id.format(&mut text);
    text
}
