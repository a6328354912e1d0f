//! Contents of a server, in answers that are equal for servers of equal data. Must not know offsets.

use std::collections::BTreeMap;
use std::io;

use redline_testkit::client::{Client, Value};

use super::load::DATABASES;

/// Answers by what was asked.
pub type Contents = BTreeMap<String, String>;

/// How far the digests of two servers can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digests {
    Alike,
    /// Valkey's digest of a hash leaves out which of its fields expire; that of Redis and ours has it.
    ButOfHashes,
}

/// Returns what a server holds, in as few answers as can be compared.
pub fn of_everything(client: &mut Client, digests: Digests) -> io::Result<Contents> {
    let mut contents = match digests {
        Digests::Alike => {
            let digest = client.call(&["DEBUG", "DIGEST"])?;
            Contents::from([("DEBUG DIGEST".to_owned(), format!("{digest:?}"))])
        }
        Digests::ButOfHashes => of_each_key(client, digests)?,
    };
    let libraries = client.call(&["FUNCTION", "LIST", "WITHCODE"])?;
    contents.insert("FUNCTION LIST".to_owned(), format!("{libraries:?}"));
    Ok(contents)
}

/// Returns what a server holds key by key, with the times at which keys expire.
pub fn of_each_key(client: &mut Client, digests: Digests) -> io::Result<Contents> {
    let mut contents = Contents::new();
    for db in 0..DATABASES {
        client.call(&["SELECT", &db.to_string()])?;
        let keys = client.call(&["KEYS", "*"])?;
        for key in texts(&keys) {
            let kind = client.call(&[b"TYPE".as_slice(), key])?;
            let expires = client.call(&[b"PEXPIRETIME".as_slice(), key])?;
            let is_apart =
                digests == Digests::ButOfHashes && kind.as_bytes() == Some(b"hash".as_slice());
            let value = match is_apart {
                true => fields(client, key)?,
                false => {
                    let digest = client.call(&[b"DEBUG".as_slice(), b"DIGEST-VALUE", key])?;
                    format!("{digest:?}")
                }
            };
            let name = format!("{} of {db}", key.escape_ascii());
            let answer = format!("{kind:?}, expires {expires:?}, {value}");
            contents.insert(name, answer);
        }
    }
    Ok(contents)
}

/// Returns the fields of a hash, each with its value and the time at which it expires.
fn fields(client: &mut Client, key: &[u8]) -> io::Result<String> {
    let all = client.call(&[b"HGETALL".as_slice(), key])?;
    let pairs: BTreeMap<&[u8], &[u8]> = texts(&all)
        .chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect();
    if pairs.is_empty() {
        return Ok("no fields".to_owned());
    }
    let count = pairs.len().to_string();
    let mut question: Vec<&[u8]> = vec![b"HPEXPIRETIME", key, b"FIELDS", count.as_bytes()];
    question.extend(pairs.keys());
    let times = client.call(&question)?;
    let shown = pairs.iter().map(|(field, value)| {
        let (field, value) = (field.escape_ascii(), value.escape_ascii());
        format!("{field}: {value}")
    });
    let shown: Vec<String> = shown.collect();
    Ok(format!("{{{}}}, fields expire {times:?}", shown.join(", ")))
}

/// Returns the texts of an array.
fn texts(value: &Value) -> Vec<&[u8]> {
    let Value::Array(all) = value else {
        return Vec::new();
    };
    all.iter().filter_map(Value::as_bytes).collect()
}

/// Tells how the answers of two servers differ; names at most this many.
pub fn difference(wanted: &Contents, held: &Contents, named_max: usize) -> String {
    let mut named: Vec<String> = wanted
        .iter()
        .filter(|(what, answer)| held.get(*what) != Some(answer))
        .map(|(what, answer)| match held.get(what) {
            Some(other) => format!("{what}: {answer} and {other}"),
            None => format!("{what}: {answer} and nothing"),
        })
        .collect();
    let more = held.iter().filter(|(what, _)| !wanted.contains_key(*what));
    named.extend(more.map(|(what, answer)| format!("{what}: nothing and {answer}")));
    let count = named.len();
    named.truncate(named_max);
    format!("{count} answers, among them\n{}", named.join("\n"))
}
