//! Calls of etcd's JSON gateway as text: bodies of requests, and answers, which are checked.
//!
//! The gateway writes numbers of 64 bits as texts, and leaves out what is false, zero or empty: a transaction that failed
//! has no `succeeded`, and a lease that has ended no `TTL`. Bytes are in base64.
//!
//! Must not know: connections, endpoints.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, Visitor},
};
use serde_json::{Value, json};

use crate::{
    Answer, Condition, Event, Events, KEY_BYTES_MAX, LeaseId, Listing, Operation, Pair, Range,
    StoreError, Transaction, VALUE_BYTES_MAX,
};

/// Largest number of keys, events or results that one answer may have.
const ITEMS_MAX: usize = 65_536;

/// Codes of errors, as gRPC numbers them.
pub(super) mod code {
    pub const INVALID_ARGUMENT: u64 = 3;
    pub const NOT_FOUND: u64 = 5;
    pub const PERMISSION_DENIED: u64 = 7;
    pub const RESOURCE_EXHAUSTED: u64 = 8;
    pub const OUT_OF_RANGE: u64 = 11;
    pub const UNAUTHENTICATED: u64 = 16;
}

/// An error of etcd's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// See [`code`]; 0: none was told.
    pub code: u64,
    /// Its text.
    pub text: String,
}

impl Fault {
    /// Returns true if the call has certainly had no effect.
    pub(super) fn is_certain(&self) -> bool {
        matches!(
            self.code,
            code::INVALID_ARGUMENT
                | code::NOT_FOUND
                | code::PERMISSION_DENIED
                | code::RESOURCE_EXHAUSTED
                | code::OUT_OF_RANGE
                | code::UNAUTHENTICATED
        )
    }

    /// Returns true if the same call would be refused again.
    pub(super) fn is_refusal(&self) -> bool {
        self.is_certain() && self.code != code::RESOURCE_EXHAUSTED
    }
}

/// Returns the end of the range of keys that begin with this text: the next text that does not.
fn end_of(beginning: &str) -> Vec<u8> {
    let mut end = beginning.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All keys.
    vec![0]
}

/// Returns the keys of a range under a prefix, as fields of a request.
fn keys_of(prefix: &str, range: &Range) -> Value {
    match range {
        Range::Key(key) => json!({"key": BASE64.encode(format!("{prefix}{key}"))}),
        Range::Prefix(key) => {
            let first = format!("{prefix}{key}");
            let end = end_of(&first);
            json!({"key": BASE64.encode(first), "range_end": BASE64.encode(end)})
        }
    }
}

/// Returns the body of a call of `kv/range`.
pub(super) fn range(prefix: &str, range: &Range) -> Value {
    keys_of(prefix, range)
}

/// Returns the body of a call of `kv/txn`.
pub(super) fn transaction(prefix: &str, transaction: &Transaction) -> Value {
    let key = |key: &String| BASE64.encode(format!("{prefix}{key}"));
    let conditions = transaction.conditions.iter().map(|condition| match condition {
        Condition::Absent(name) => json!({
            "key": key(name), "target": "CREATE", "result": "EQUAL", "create_revision": "0"
        }),
        Condition::Unchanged(name, revision) => json!({
            "key": key(name), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()
        }),
    });
    let branch = |operations: &[Operation]| -> Value {
        let operations = operations.iter().map(|operation| match operation {
            Operation::Put {
                key: name,
                value,
                lease,
            } => {
                let lease = lease.map_or(0, |lease| lease.0).to_string();
                json!({"request_put": {"key": key(name), "value": BASE64.encode(value), "lease": lease}})
            }
            Operation::Delete(range) => json!({"request_delete_range": keys_of(prefix, range)}),
            Operation::Get(range) => json!({"request_range": keys_of(prefix, range)}),
        });
        operations.collect()
    };
    json!({
        "compare": conditions.collect::<Value>(),
        "success": branch(&transaction.success),
        "failure": branch(&transaction.failure),
    })
}

/// Returns the body of a call of `watch`, for all keys of a prefix.
pub(super) fn watch(prefix: &str, from_revision: u64) -> Value {
    let mut keys = keys_of(prefix, &Range::Prefix(String::new()));
    keys["start_revision"] = Value::String(from_revision.to_string());
    json!({"create_request": keys})
}

/// A number that is text, a number, or left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        struct AsNumber;
        impl Visitor<'_> for AsNumber {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of 64 bits, as text")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Number, E> {
                text.parse()
                    .map(Number)
                    .map_err(|_| E::custom(format!("{text:.40} is no number")))
            }
        }
        deserializer.deserialize_any(AsNumber)
    }
}

/// Bytes in base64.
#[derive(Clone, Debug, Default)]
struct Bytes(Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(text);
        bytes
            .map(Bytes)
            .map_err(|error| D::Error::custom(format!("bytes in base64: {error}")))
    }
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Header {
    revision: Number,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeyValue {
    key: Bytes,
    value: Bytes,
    create_revision: Number,
    mod_revision: Number,
    lease: Number,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RangeAnswer {
    header: Option<Header>,
    kvs: Vec<KeyValue>,
    more: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OneResult {
    response_range: Option<RangeAnswer>,
    response_put: Option<Value>,
    response_delete_range: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TransactionAnswer {
    header: Option<Header>,
    succeeded: bool,
    responses: Vec<OneResult>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LeaseAnswer {
    #[serde(rename = "ID")]
    id: Number,
    #[serde(rename = "TTL")]
    ttl: Number,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Line<T> {
    result: Option<T>,
    error: Option<FaultAnswer>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FaultAnswer {
    code: Number,
    grpc_code: Number,
    error: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WatchAnswer {
    header: Option<Header>,
    canceled: bool,
    cancel_reason: String,
    compact_revision: Number,
    events: Vec<WatchEvent>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WatchEvent {
    #[serde(rename = "type")]
    kind: String,
    kv: KeyValue,
}

fn parsed<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

fn revision_of(header: Option<&Header>) -> Result<u64, String> {
    let revision = header.map_or(0, |header| header.revision.0);
    match revision {
        0 => Err("it has no revision".into()),
        revision => Ok(revision),
    }
}

fn limited<T>(items: &[T]) -> Result<(), String> {
    match items.len() > ITEMS_MAX {
        true => Err(format!("it has more than {ITEMS_MAX} keys")),
        false => Ok(()),
    }
}

/// Returns the key relative to the prefix.
fn key_of(prefix: &str, key: Vec<u8>) -> Result<String, String> {
    let key = String::from_utf8(key).map_err(|_| "a key is no text".to_owned())?;
    match key.strip_prefix(prefix) {
        Some(own) if own.len() <= KEY_BYTES_MAX => Ok(own.to_owned()),
        Some(_) => Err(format!("a key has more than {KEY_BYTES_MAX} bytes")),
        None => Err(format!("the key {key:.80} was not asked for")),
    }
}

fn pair_of(prefix: &str, of: KeyValue) -> Result<Pair, String> {
    let key = key_of(prefix, of.key.0)?;
    if of.value.0.len() > VALUE_BYTES_MAX {
        return Err(format!(
            "the value of {key} has more than {VALUE_BYTES_MAX} bytes"
        ));
    }
    let (create_revision, mod_revision) = (of.create_revision.0, of.mod_revision.0);
    if create_revision == 0 || create_revision > mod_revision {
        return Err(format!("the revisions of {key} are wrong"));
    }
    Ok(Pair {
        key,
        value: of.value.0,
        create_revision,
        mod_revision,
        lease: (of.lease.0 != 0).then_some(LeaseId(of.lease.0)),
    })
}

fn pairs_of(prefix: &str, answer: RangeAnswer) -> Result<Vec<Pair>, String> {
    if answer.more {
        return Err("it has only some of the keys".into());
    }
    limited(&answer.kvs)?;
    let pairs = answer.kvs.into_iter();
    let pairs: Vec<Pair> = pairs
        .map(|pair| pair_of(prefix, pair))
        .collect::<Result<_, _>>()?;
    match pairs.is_sorted_by(|a, b| a.key < b.key) {
        true => Ok(pairs),
        false => Err("its keys are not in order".into()),
    }
}

/// Reads an answer of `kv/range`. Errors here and below are the reason, without the call.
pub(super) fn listing(prefix: &str, text: &[u8]) -> Result<Listing, String> {
    let answer: RangeAnswer = parsed(text)?;
    Ok(Listing {
        revision: revision_of(answer.header.as_ref())?,
        pairs: pairs_of(prefix, answer)?,
    })
}

/// Reads an answer of `kv/txn`.
pub(super) fn answer(
    prefix: &str,
    transaction: &Transaction,
    text: &[u8],
) -> Result<Answer, String> {
    let answer: TransactionAnswer = parsed(text)?;
    let operations = match answer.succeeded {
        true => &transaction.success,
        false => &transaction.failure,
    };
    if answer.responses.len() != operations.len() {
        return Err("it has not one result for each operation".into());
    }
    let mut ranges = Vec::new();
    for (operation, result) in operations.iter().zip(answer.responses) {
        match (operation, result) {
            (Operation::Get(_), OneResult { response_range, .. }) if response_range.is_some() => {
                ranges.push(pairs_of(prefix, response_range.unwrap_or_default())?);
            }
            (Operation::Put { .. }, result) if result.response_put.is_some() => {}
            (Operation::Delete(_), result) if result.response_delete_range.is_some() => {}
            _ => return Err("its results are not those of the operations".into()),
        }
    }
    Ok(Answer {
        revision: revision_of(answer.header.as_ref())?,
        succeeded: answer.succeeded,
        ranges,
    })
}

/// Reads an answer of `lease/grant`.
pub(super) fn granted(text: &[u8]) -> Result<LeaseId, String> {
    let answer: LeaseAnswer = parsed(text)?;
    match answer.id.0 {
        0 => Err("it has no lease".into()),
        id => Ok(LeaseId(id)),
    }
}

/// Reads an answer of `lease/keepalive`: false if the lease has ended.
pub(super) fn kept(text: &[u8]) -> Result<bool, String> {
    // Of several lines the first counts.
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or(text);
    let line: Line<LeaseAnswer> = parsed(line)?;
    let answer = line.result.ok_or("it has no result")?;
    Ok(answer.ttl.0 > 0)
}

/// Reads an answer of `auth/authenticate`.
pub(super) fn token(text: &[u8]) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Token {
        token: String,
    }
    let answer: Token = parsed(text)?;
    let fits = |byte: u8| byte.is_ascii_graphic();
    match !answer.token.is_empty() && answer.token.bytes().all(fits) {
        true => Ok(answer.token),
        false => Err("it has no token".into()),
    }
}

/// Reads an error.
pub(super) fn fault(text: &[u8]) -> Option<Fault> {
    let answer: FaultAnswer = parsed(text).ok()?;
    Some(fault_of(answer)).filter(|fault| !fault.text.is_empty())
}

fn fault_of(answer: FaultAnswer) -> Fault {
    let mut text = match answer.error.is_empty() {
        true => answer.message,
        false => answer.error,
    };
    text = text.chars().filter(|c| !c.is_control()).take(300).collect();
    Fault {
        code: answer.code.0.max(answer.grpc_code.0),
        text,
    }
}

/// Reads a line of a watch.
pub(super) fn line(prefix: &str, text: &[u8]) -> Result<Events, StoreError> {
    let damaged = |why: String| StoreError::Damaged(format!("a watch: {why}"));
    let line: Line<WatchAnswer> = parsed(text).map_err(damaged)?;
    if let Some(error) = line.error {
        return Err(StoreError::Unavailable(fault_of(error).text));
    }
    let answer = line
        .result
        .ok_or_else(|| damaged("a line without a result".into()))?;
    if answer.compact_revision.0 > 0 {
        return Err(StoreError::Compacted(answer.compact_revision.0));
    }
    if answer.canceled {
        return Err(StoreError::Unavailable(format!(
            "the watch was ended: {:.300}",
            answer.cancel_reason
        )));
    }
    limited(&answer.events).map_err(damaged)?;
    let revision = revision_of(answer.header.as_ref()).map_err(damaged)?;
    let events = answer
        .events
        .into_iter()
        .map(|event| match event.kind.as_str() {
            "" | "PUT" => pair_of(prefix, event.kv).map(Event::Put),
            "DELETE" => {
                let at = event.kv.mod_revision.0;
                key_of(prefix, event.kv.key.0).map(|key| Event::Delete(key, at))
            }
            other => Err(format!("an event of the kind {other:.40}")),
        });
    Ok(Events {
        revision,
        events: events.collect::<Result<_, _>>().map_err(damaged)?,
    })
}

/// Bytes that were read as each kind of answer, for the fuzz target.
#[doc(hidden)]
pub struct Anything {
    /// Number of kinds that they are.
    pub kinds: usize,
    /// They as a listing.
    pub listing: Option<Listing>,
    /// They as a line of a watch.
    pub events: Option<Events>,
}

/// Reads bytes as each kind of answer under the prefix `/p/`.
#[doc(hidden)]
pub fn read_anything(text: &[u8]) -> Anything {
    let get = Transaction {
        success: vec![Operation::Get(Range::Prefix(String::new()))],
        ..Transaction::default()
    };
    let (listing, events) = (listing("/p/", text).ok(), line("/p/", text).ok());
    let read = [
        listing.is_some(),
        events.is_some(),
        answer("/p/", &get, text).is_ok(),
        granted(text).is_ok(),
        kept(text).is_ok(),
        token(text).is_ok(),
        fault(text).is_some(),
    ];
    Anything {
        kinds: read.into_iter().filter(|is_read| *is_read).count(),
        listing,
        events,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, lease: Option<LeaseId>) -> Pair {
        Pair {
            key: key.into(),
            value: b"v".to_vec(),
            create_revision: 2,
            mod_revision: 3,
            lease,
        }
    }

    #[test]
    fn what_is_left_out_is_false_zero_or_empty() {
        let listed = listing("/p/", br#"{"header":{"revision":"3"}}"#).unwrap();
        assert_eq!((listed.revision, listed.pairs.len()), (3, 0));
        let failed = answer(
            "/p/",
            &Transaction::default(),
            br#"{"header":{"revision":"3"}}"#,
        );
        assert!(!failed.unwrap().succeeded);
        assert_eq!(kept(br#"{"result":{"header":{},"ID":"5"}}"#), Ok(false));
        assert_eq!(kept(br#"{"result":{"ID":"5","TTL":"2"}}"#), Ok(true));
        let text = br#"{"header":{"revision":"9"},"kvs":[{"key":"L3AvYQ==","create_revision":"2","mod_revision":"3","value":"dg=="},{"key":"L3AvYg==","create_revision":2,"mod_revision":"3","value":"dg==","lease":"7"}]}"#;
        let listed = listing("/p/", text).unwrap();
        assert_eq!(listed.pairs, [pair("a", None), pair("b", Some(LeaseId(7)))]);
    }

    #[test]
    fn lines_of_a_watch_are_events_or_its_end() {
        let put = br#"{"result":{"header":{"revision":"3"},"events":[{"kv":{"key":"L3AvYQ==","create_revision":"2","mod_revision":"3","value":"dg=="}},{"type":"DELETE","kv":{"key":"L3AvYg==","mod_revision":"3"}}]}}"#;
        let events = line("/p/", put).unwrap();
        assert_eq!(
            events.events,
            [Event::Put(pair("a", None)), Event::Delete("b".into(), 3)]
        );
        let compacted =
            br#"{"result":{"header":{"revision":"9"},"canceled":true,"compact_revision":"7"}}"#;
        assert_eq!(line("/p/", compacted), Err(StoreError::Compacted(7)));
        let error = br#"{"error":{"grpc_code":14,"message":"no leader"}}"#;
        assert_eq!(
            line("/p/", error),
            Err(StoreError::Unavailable("no leader".into()))
        );
    }

    #[test]
    fn strange_answers_are_refused_with_the_reason() {
        let listed = |kvs: &str| {
            let text = format!(r#"{{"header":{{"revision":"9"}},"kvs":[{kvs}]}}"#);
            listing("/p/", text.as_bytes()).unwrap_err()
        };
        let a = r#"{"key":"L3AvYQ==","create_revision":"2","mod_revision":"3"}"#;
        for (kvs, why) in [
            (
                r#"{"key":"L3EvYQ==","create_revision":"2","mod_revision":"3"}"#,
                "the key /q/a was not asked for",
            ),
            (
                r#"{"key":"/w==","create_revision":"2","mod_revision":"3"}"#,
                "a key is no text",
            ),
            (
                r#"{"key":"!","create_revision":"2","mod_revision":"3"}"#,
                "bytes in base64",
            ),
            (
                r#"{"key":"L3AvYQ==","create_revision":"4","mod_revision":"3"}"#,
                "the revisions of a are wrong",
            ),
            (
                r#"{"key":"L3AvYQ==","create_revision":"-4","mod_revision":"3"}"#,
                "-4 is no number",
            ),
            (&format!("{a},{a}"), "its keys are not in order"),
        ] {
            assert!(listed(kvs).contains(why), "{}", listed(kvs));
        }
        let large = BASE64.encode(vec![0; VALUE_BYTES_MAX + 1]);
        let large = format!(
            r#"{{"key":"L3AvYQ==","create_revision":"2","mod_revision":"3","value":"{large}"}}"#
        );
        assert!(listed(&large).contains("the value of a has more than"));
        for text in [
            &b""[..],
            b"<html>",
            b"{}",
            b"[]",
            b"null",
            b"{\"header\":{\"revision\":\"0\"}}",
        ] {
            assert!(listing("/p/", text).is_err());
            assert_eq!(read_anything(text).kinds, 0, "{text:?}");
        }
        let put = Transaction {
            success: vec![Operation::Get(Range::Key("a".into()))],
            ..Transaction::default()
        };
        let other =
            br#"{"header":{"revision":"3"},"succeeded":true,"responses":[{"response_put":{}}]}"#;
        assert!(answer("/p/", &put, other).is_err());
        let short = br#"{"header":{"revision":"3"},"succeeded":true}"#;
        assert!(answer("/p/", &put, short).is_err());
    }

    #[test]
    fn the_end_of_a_prefix_is_the_next_text_that_has_it_not() {
        assert_eq!(end_of("/p/"), b"/p0");
        assert_eq!(end_of(""), [0]);
    }
}
