//! Comparison with Valkey of the features that Redis does not have: generated calls of those to both servers, whose
//! replies must be equal. In RESP2 and RESP3. Scripts that use its table are in `valkey/scripts.rs`.
//!
//! Must not know the effect of calls. Common commands are compared by [`compare`](crate::compare); here they only make
//! the data.

mod scripts;

use std::net::SocketAddr;

use fastrand::Rng;
use redline_resp::reply_decoder::Value;

use crate::pair::Pair;

/// Number of calls of a round, which begins with no keys.
const ROUND_CALLS: usize = 60;
const KEYS: &[&str] = &["s1", "s2", "h1", "h2", "z1", "g1", "g2"];
/// A line is a call; `{…}` stands for one of the words of [`choices`].
const CALLS: &[&str] = &[
    "SET {key} {value}",
    "SET {key} {value} IFEQ {value}",
    "SET {key} {value} IFEQ {value} GET",
    "SET {key} {value} IFEQ {value} {expiry}",
    "SET {key} {value} GET IFEQ {value} {expiry}",
    "SET {key} {value} IFEQ",
    "SET {key} {value} NX IFEQ {value}",
    "SET {key} {value} IFEQ {value} XX",
    "GET {key}",
    "EXPIRETIME {key}",
    "DELIFEQ {key} {value}",
    "DELIFEQ {key}",
    "DELIFEQ {key} {value} {value}",
    "MSETEX {count} {key} {value}",
    "MSETEX {count} {key} {value} {key} {value}",
    "MSETEX {count} {key} {value} {key} {value} {condition}",
    "MSETEX {count} {key} {value} {expiry}",
    "MSETEX {count} {key} {value} {key} {value} {condition} {expiry}",
    "MSETEX {count} {key} {value} {expiry} {condition}",
    "MSETEX {count} {key} {value} {key}",
    "DEL {key}",
    "HSET {hash} {field} {value}",
    "HSETEX {hash} {condition} FIELDS 1 {field} {value}",
    "HSETEX {hash} {condition} {condition} FIELDS 1 {field} {value}",
    "HSETEX {hash} {condition} FNX FIELDS 1 {field} {value}",
    "HSETEX {hash} FXX {condition} {expiry} FIELDS 2 {field} {value} {field} {value}",
    "HSETEX {hash} {condition} EXAT 1 FIELDS 1 {field} {value}",
    "HMGET {hash} f g a",
    "HEXPIRETIME {hash} FIELDS 1 {field}",
    "ZADD {zset} {number} {value}",
    "ZSCAN {zset} 0 NOSCORES",
    "ZSCAN {key} 0 COUNT {count} NOSCORES",
    "ZSCAN {zset} 0 NOSCORES MATCH {pattern}",
    "GEOADD {geo} {longitude} {latitude} {value}",
    "GEOADD {geo} {longitude} {latitude} {field}",
    "GEOSEARCH {geo} BYPOLYGON {corners} {order}",
    "GEOSEARCH {geo} BYPOLYGON {corners} WITHDIST WITHHASH {order}",
    "GEOSEARCH {geo} BYPOLYGON {corners} COUNT {number} {order} WITHHASH",
    "GEOSEARCH {geo} BYPOLYGON {corners} BYRADIUS 1 km {order}",
    "GEOSEARCH {geo} BYPOLYGON {corners} FROMLONLAT 1 1 {order}",
    "GEOSEARCH {geo} FROMLONLAT 1 1 BYPOLYGON {corners} {order}",
    "GEOSEARCH {geo} BYBOX 1 1 km BYPOLYGON {corners} {order}",
    "GEOSEARCH {geo} BYPOLYGON {count} {longitude} {latitude} {longitude} {latitude} {order}",
    "GEOSEARCH {geo} BYPOLYGON {count} {corners} {order}",
    "GEOSEARCHSTORE {geo} {geo} BYPOLYGON {corners}",
    "GEOSEARCHSTORE {geo} {geo} BYPOLYGON {corners} STOREDIST",
    "ZRANGE {geo} 0 -1 WITHSCORES",
    "SCRIPT LOAD {script}",
    "SCRIPT SHOW e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
    "SCRIPT SHOW a42059b356c875f0717db19a51f6aaca9ae659ea",
    "SCRIPT SHOW {value}",
    "SCRIPT FLUSH",
    "COMMANDLOG LEN {log}",
    "COMMANDLOG LEN",
    "COMMANDLOG GET {number} {log}",
    "COMMANDLOG GET -1 {log}",
    "COMMANDLOG GET {value} {log}",
    "COMMANDLOG RESET {log}",
    "CLIENT CAPA redirect",
    "CLIENT CAPA {value} {field}",
    "CLIENT CAPA",
    "CLIENT SETNAME {value}",
    "CLIENT LIST {filter} {filter}",
    "CLIENT LIST {filter} SKIPME {value}",
    "CLIENT LIST TYPE normal {filter}",
    "CLIENT KILL {filter} {filter} NAME nobody",
    "CLIENT KILL {filter} {filter} NOT-TYPE normal",
];

fn choices(name: &str) -> &'static [&'static str] {
    match name {
        "key" => KEYS,
        "hash" => &["h1", "h2", "h1", "h2", "s1"],
        "zset" => &["z1", "z1", "z1", "h1", "s1", "none"],
        "geo" => &["g1", "g1", "g2", "none"],
        "value" => &["a", "b", "ab", "1", "yes", "no"],
        "field" => &["f", "g", "a"],
        "pattern" => &["*", "a*", "?"],
        "number" => &["1", "2", "3", "-1", "10"],
        "count" => &["1", "2", "2", "1", "3", "0", "-1", "x", "99999999999"],
        "condition" => &["NX", "XX", "xx"],
        "expiry" => &[
            "EXAT 9999999999",
            "PXAT 9999999999999",
            "KEEPTTL",
            "EX 0",
            "PXAT 1",
        ],
        "order" => &["ASC", "DESC"],
        "script" => &["return", "return-1"],
        // The sizes of replies that describe clients differ.
        "log" => &["large-request", "SLOW", "other"],
        "filter" => &[
            "NAME a",
            "NAME b",
            "NOT-NAME a",
            "LIB-NAME a",
            "NOT-LIB-NAME a",
            "LIB-VER a",
            "NOT-LIB-VER a",
            "DB 0",
            "NOT-DB 0",
            "DB 1",
            "DB 99",
            "DB x",
            "IDLE 1000",
            "IDLE 0",
            "IDLE x",
            "MAXAGE 1000",
            "IP 127.0.0.1",
            "NOT-IP 127.0.0.1",
            "NOT-IP 127.0.0.2",
            "USER default",
            "NOT-USER default",
            "USER nobody",
            "TYPE normal",
            "TYPE pubsub",
            "NOT-TYPE pubsub",
            "NOT-TYPE nonesuch",
            "TYPE primary",
            "FLAGS N",
            "NOT-FLAGS N",
            "FLAGS Px",
            "FLAGS ?",
            "CAPA r",
            "NOT-CAPA r",
            "CAPA q",
            "NOT-ID 99999999",
            "ID 99999999 99999998",
            "NOT-ADDR 1.2.3.4:5",
            "NOT-LADDR 1.2.3.4:5",
            "SKIPME no",
            "SKIPME yes",
            "NAME",
            "NONESUCH a",
        ],
        _ => &[],
    }
}

/// Compares two servers, this many rounds in each protocol. Returns the number of calls.
pub fn run(
    ours: SocketAddr,
    theirs: SocketAddr,
    seed: u64,
    rounds: usize,
) -> Result<usize, String> {
    let mut calls = 0;
    for protocol in ["2", "3"] {
        let mut pair = Pair::connect(ours, theirs)?;
        pair.same_kind(&words(&format!("HELLO {protocol}")))?;
        calls += scripts::run(&mut pair)?;
        for setting in [
            "commandlog-request-larger-than 60",
            "commandlog-reply-larger-than 60",
            "commandlog-execution-slower-than -1",
        ] {
            pair.same(&words(&format!("CONFIG SET {setting}")))?;
        }
        let mut rng = Rng::with_seed(seed);
        for _ in 0..rounds {
            pair.same(&words("FLUSHALL"))?;
            for log in ["large-request", "large-reply", "slow"] {
                pair.same(&words(&format!("COMMANDLOG RESET {log}")))?;
            }
            for _ in 0..ROUND_CALLS {
                let call = words(&filled(&mut rng));
                let (ours, theirs) = pair.both(&call)?;
                let (ours, theirs) = (comparable(&call, ours), comparable(&call, theirs));
                if ours != theirs {
                    return Err(format!("{call:?}\n  ours   {ours:?}\n  theirs {theirs:?}"));
                }
                calls += 1;
            }
        }
    }
    Ok(calls)
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Returns a call, with a word in each place.
fn filled(rng: &mut Rng) -> String {
    let mut rest = CALLS[rng.usize(..CALLS.len())];
    let mut call = String::new();
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}').unwrap_or((behind, ""));
        call.push_str(before);
        match name {
            "longitude" => call.push_str(&coordinate(rng)),
            "latitude" => call.push_str(&coordinate(rng)),
            "corners" => {
                let corners = rng.usize(3..7);
                call.push_str(&corners.to_string());
                for _ in 0..2 * corners {
                    call.push(' ');
                    call.push_str(&coordinate(rng));
                }
            }
            _ => {
                let choices = choices(name);
                call.push_str(choices[rng.usize(..choices.len())]);
            }
        }
        rest = after;
    }
    call + rest
}

/// Returns a coordinate near the others.
fn coordinate(rng: &mut Rng) -> String {
    format!("{}.{}", rng.i32(-5..15), rng.u32(0..1000))
}

/// Returns a reply without server-specific parts: times and addresses of a log, the clients of a list beyond their
/// number.
fn comparable(call: &[String], reply: Value) -> Value {
    let is = |at: usize, word: &str| call.get(at).is_some_and(|it| it.eq_ignore_ascii_case(word));
    match reply {
        Value::Array(entries) if is(0, "commandlog") => {
            let bare = entries.into_iter().map(|entry| match entry {
                Value::Array(mut fields) if fields.len() == 6 => {
                    fields.remove(4);
                    fields.remove(1);
                    fields.remove(0);
                    Value::Array(fields)
                }
                other => other,
            });
            Value::Array(bare.collect())
        }
        // The precedence of two errors is Redis's.
        reply if is(0, "client") && is(1, "list") && reply.is_error() => Value::Null,
        reply if is(0, "client") && is(1, "list") => {
            let lines = reply
                .as_bytes()
                .map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count());
            Value::Integer(lines as i64)
        }
        reply => reply,
    }
}
