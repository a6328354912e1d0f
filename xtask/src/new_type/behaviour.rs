//! Calls that every type of values must answer alike, made to a server with the type of `xtask/toy`. Must not know how
//! the type was added.

use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use redline_testkit::client::{Client, Value};
use redline_testkit::process::ServerProcess;

use crate::compat::stop;
use crate::run::Failure;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// Longer than the time to live of the key in [`CALLS`] that expires.
const LIFETIME: Duration = Duration::from_millis(100);
/// Size of a value that changes MEMORY USAGE.
const LARGE_BYTES: usize = 5000;

/// Calls and their replies.
const CALLS: &[(&str, &str)] = &[
    ("REGISTER.SET k hello", "OK"),
    ("REGISTER.GET k", "hello"),
    ("REGISTER.GET none", "(nil)"),
    ("TYPE k", "register"),
    ("OBJECT ENCODING k", "bytes"),
    ("EXISTS k", "1"),
    // Commands of other types, and this one's for other types.
    ("GET k", WRONG_TYPE),
    ("APPEND k x", WRONG_TYPE),
    ("LPUSH k x", WRONG_TYPE),
    ("HGET k f", WRONG_TYPE),
    ("SADD k x", WRONG_TYPE),
    ("ZADD k 1 x", WRONG_TYPE),
    ("XADD k * f v", WRONG_TYPE),
    ("VCARD k", WRONG_TYPE),
    ("SORT k", WRONG_TYPE),
    ("SORT k STORE to", WRONG_TYPE),
    ("SET text value", "OK"),
    ("RPUSH list a", "1"),
    ("REGISTER.GET text", WRONG_TYPE),
    ("REGISTER.SET list x", WRONG_TYPE),
    // The type as a filter.
    ("SCAN 0 COUNT 1000 TYPE register", "0,[k]"),
    ("SCAN 0 COUNT 1000 TYPE string", "0,[text]"),
    // Other keys and databases.
    ("COPY k copy", "1"),
    ("COPY k text", "0"),
    ("COPY k text REPLACE", "1"),
    ("REGISTER.SET copy other", "OK"),
    ("REGISTER.GET text", "hello"),
    ("REGISTER.GET k", "hello"),
    ("RENAME k renamed", "OK"),
    ("REGISTER.GET renamed", "hello"),
    ("EXISTS k", "0"),
    ("MOVE renamed 1", "1"),
    ("SELECT 1", "OK"),
    ("TYPE renamed", "register"),
    ("SELECT 0", "OK"),
    ("SWAPDB 0 1", "OK"),
    ("REGISTER.GET renamed", "hello"),
    ("RENAMENX renamed k", "1"),
    ("SET k text GET", WRONG_TYPE),
    // Scripts and transactions.
    ("MULTI", "OK"),
    ("REGISTER.SET k in-exec", "QUEUED"),
    ("EXEC", "[OK]"),
    (
        "EVAL return{redis.call('REGISTER.GET',KEYS[1])} 1 k",
        "[in-exec]",
    ),
    // Expiry.
    ("PEXPIRE k 100000", "1"),
    ("REGISTER.SET k again", "OK"),
    ("PERSIST k", "1"),
    ("PTTL k", "-1"),
    // Written and loaded again.
    ("DEBUG RELOAD", "OK"),
    ("REGISTER.GET k", "again"),
    ("OBJECT REFCOUNT k", "1"),
    ("COMMAND GETKEYS REGISTER.SET k v", "[k]"),
    ("UNLINK k", "1"),
    ("TYPE k", "none"),
];

/// Makes all calls; returns their number.
pub fn check(program: &Path) -> Result<usize, Failure> {
    let words = ["--enable-debug-command", "yes"].map(str::to_owned);
    let server = ServerProcess::redline(program, 2, &words)
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let mut asker = Asker::connect(server.address())?;
    for (call, expected) in CALLS {
        let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
        asker.expect(&words, expected)?;
    }
    payloads_and_digests(&mut asker)?;
    memory(&mut asker)?;
    watches(&mut asker, server.address())?;
    expiry(&mut asker)?;
    let calls = asker.calls;
    stop(server)?;
    Ok(calls)
}

/// Checks DUMP and RESTORE, and DEBUG DIGEST, which tells equal values from others.
fn payloads_and_digests(asker: &mut Asker) -> Result<(), Failure> {
    asker.expect(&[b"FLUSHALL"], "OK")?;
    let empty = asker.text(&[b"DEBUG", b"DIGEST"])?;
    asker.expect(&[b"REGISTER.SET", b"a", b"one"], "OK")?;
    asker.expect(&[b"REGISTER.SET", b"b", b"two"], "OK")?;
    let payload = asker.call(&[b"DUMP", b"a"])?;
    let payload = payload.as_bytes().unwrap_or_default();
    asker.expect(&[b"RESTORE", b"c", b"100000", payload], "OK")?;
    asker.expect(&[b"PERSIST", b"c"], "1")?;
    asker.expect(&[b"REGISTER.GET", b"c"], "one")?;
    asker.expect(&[b"RESTORE", b"b", b"0", payload, b"REPLACE"], "OK")?;
    asker.expect(&[b"REGISTER.GET", b"b"], "one")?;
    let cut = [&payload[..1], &payload[2..]].concat();
    let refused = "ERR DUMP payload version or checksum are wrong";
    asker.expect(&[b"RESTORE", b"d", b"0", &cut], refused)?;
    let full = asker.text(&[b"DEBUG", b"DIGEST"])?;
    let digest = |asker: &mut Asker, key: &[u8]| asker.text(&[b"DEBUG", b"DIGEST-VALUE", key]);
    let (a, c) = (digest(asker, b"a")?, digest(asker, b"c")?);
    asker.expect(&[b"REGISTER.SET", b"c", b"three"], "OK")?;
    let other = digest(asker, b"c")?;
    if empty == full || a != c || a == other {
        return Err(format!(
            "digests: {empty} {full} of databases, {a} {c} {other} of values"
        ));
    }
    Ok(())
}

/// Checks that MEMORY USAGE grows with a value.
fn memory(asker: &mut Asker) -> Result<(), Failure> {
    let small = asker.number(&[b"MEMORY", b"USAGE", b"a"])?;
    asker.expect(&[b"REGISTER.SET", b"a", &[b'x'; LARGE_BYTES]], "OK")?;
    let large = asker.number(&[b"MEMORY", b"USAGE", b"a"])?;
    if small == 0 || large < small + LARGE_BYTES as i64 - 100 {
        return Err(format!(
            "MEMORY USAGE: {small}, and {large} for {LARGE_BYTES} bytes"
        ));
    }
    Ok(())
}

/// Checks that a change ends the transaction of a client that watches the key.
fn watches(asker: &mut Asker, server: SocketAddr) -> Result<(), Failure> {
    asker.expect(&[b"WATCH", b"a"], "OK")?;
    let mut other = Asker::connect(server)?;
    other.expect(&[b"REGISTER.SET", b"a", b"changed"], "OK")?;
    asker.expect(&[b"MULTI"], "OK")?;
    asker.expect(&[b"PING"], "QUEUED")?;
    asker.expect(&[b"EXEC"], "(nil)")?;
    asker.calls += other.calls;
    Ok(())
}

/// Checks that an expired key is gone, whether it is read or not.
fn expiry(asker: &mut Asker) -> Result<(), Failure> {
    asker.expect(&[b"FLUSHALL"], "OK")?;
    for key in [&b"asked"[..], b"forgotten"] {
        asker.expect(&[b"REGISTER.SET", key, b"v"], "OK")?;
        asker.expect(&[b"PEXPIRE", key, b"1"], "1")?;
    }
    sleep(LIFETIME);
    asker.expect(&[b"REGISTER.GET", b"asked"], "(nil)")?;
    let mut left = 1;
    for _ in 0..100 {
        left = asker.number(&[b"DBSIZE"])?;
        if left == 0 {
            return Ok(());
        }
        sleep(LIFETIME);
    }
    Err(format!("{left} keys that have expired are still there"))
}

/// A client that compares replies.
struct Asker {
    client: Client,
    calls: usize,
}

impl Asker {
    fn connect(server: SocketAddr) -> Result<Asker, Failure> {
        let client = Client::connect(server).map_err(|error| error.to_string())?;
        Ok(Asker { client, calls: 0 })
    }

    fn call(&mut self, words: &[&[u8]]) -> Result<Value, Failure> {
        self.calls += 1;
        let call = words.join(&b' ').escape_ascii().to_string();
        let reply = self.client.call(words);
        reply.map_err(|error| format!("{call}: {error}"))
    }

    fn text(&mut self, words: &[&[u8]]) -> Result<String, Failure> {
        self.call(words).map(|reply| text(&reply))
    }

    fn number(&mut self, words: &[&[u8]]) -> Result<i64, Failure> {
        match self.call(words)? {
            Value::Integer(number) => Ok(number),
            other => Err(format!("{} answered {other:?}", text_of_call(words))),
        }
    }

    fn expect(&mut self, words: &[&[u8]], expected: &str) -> Result<(), Failure> {
        let reply = self.text(words)?;
        if reply == expected {
            return Ok(());
        }
        let call = text_of_call(words);
        Err(format!("{call} answered {reply:?}, and not {expected:?}"))
    }
}

fn text_of_call(words: &[&[u8]]) -> String {
    words.join(&b' ').escape_ascii().to_string()
}

/// Returns a reply in the form of [`CALLS`]: elements in brackets, those of a pair that begins with a cursor without.
fn text(reply: &Value) -> String {
    let joined = |parts: &[Value]| parts.iter().map(text).collect::<Vec<_>>().join(",");
    match reply {
        Value::Array(parts) => match &parts[..] {
            [cursor @ Value::Bulk(_), keys @ Value::Array(_)] => {
                format!("{},{}", text(cursor), text(keys))
            }
            parts => format!("[{}]", joined(parts)),
        },
        Value::Integer(number) => number.to_string(),
        Value::NullBulk | Value::NullArray | Value::Null => "(nil)".to_owned(),
        value => String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_shown_as_the_calls_have_them() {
        let bulk = |text: &[u8]| Value::Bulk(text.to_vec());
        let keys = |keys: &[&[u8]]| Value::Array(keys.iter().copied().map(bulk).collect());
        assert_eq!(
            text(&Value::Array(vec![bulk(b"0"), keys(&[b"k"])])),
            "0,[k]"
        );
        assert_eq!(text(&keys(&[b"a", b"b"])), "[a,b]");
        assert_eq!(text(&keys(&[])), "[]");
        assert_eq!(text(&Value::Integer(-1)), "-1");
        assert_eq!(text(&Value::NullBulk), "(nil)");
        assert_eq!(text(&Value::Error(b"ERR no".to_vec())), "ERR no");
    }
}
