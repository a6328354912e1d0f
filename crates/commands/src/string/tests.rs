//! Strings, call by call: replies, events, and the conditions on an existing value.

use crate::testing::TestDb;

#[test]
fn a_lock_that_is_held_is_accessed_by_whoever_tries_to_take_it() {
    let mut db = TestDb::new();
    db.local.clock.lfu = true;
    (db.local.clock.log_factor, db.local.clock.decay_minutes) = (0, 0);
    db.script(&[
        ("SET lock me", "+OK"),
        ("OBJECT FREQ lock", ":5"),
        ("SET lock you NX", "$-1"),
        ("SETNX lock you", ":0"),
        ("MSETNX other 1 lock you", ":0"),
        ("OBJECT FREQ lock", ":8"),
    ]);
}

#[test]
fn set_and_get() {
    let mut db = TestDb::new();
    db.script(&[
        ("GET k", "$-1"),
        ("SET k v", "+OK"),
        ("GET k", "$1|v"),
        ("SET k w NX", "$-1"),
        ("SET k w XX GET", "$1|v"),
        ("SET k x NX GET", "$1|w"),
        ("SET k v EX 10", "+OK"),
        ("TTL k", ":10"),
        ("SET k w KEEPTTL", "+OK"),
        ("PTTL k", ":10000"),
        ("SET k w", "+OK"),
        ("TTL k", ":-1"),
        ("SET k v EX 10 EX 20", "+OK"),
        ("TTL k", ":20"),
        ("SET k v EX 10 PX 20", "-ERR syntax error"),
        ("SET k v EX 0", "-ERR invalid expire time in 'set' command"),
        ("SET k v KEEPTTL EX 1", "-ERR syntax error"),
    ]);
    let large = "x".repeat(100_000);
    assert_eq!(db.run(&["SET", "large", &large]), "+OK");
    assert_eq!(db.words("GET large"), format!("$100000|{large}"));
    db.pass_ms(20_001);
    assert_eq!(db.words("GET k"), "$-1");
}

#[test]
fn conditions_on_the_value() {
    let mut db = TestDb::new();
    db.script(&[
        ("SET k a", "+OK"),
        ("SET k b IFEQ x", "$-1"),
        ("SET k b IFEQ a", "+OK"),
        ("SET k c IFEQ x GET", "$1|b"),
        ("SET k c IFNE b", "$-1"),
        ("SET k c IFNE x GET", "$1|b"),
        ("SET none a IFEQ a", "$-1"),
        ("SET new a IFNE b", "+OK"),
        ("SET k x IFEQ c NX", "-ERR syntax error"),
        ("SET k x XX IFEQ c", "-ERR syntax error"),
        ("SET k x IFEQ c IFEQ c", "-ERR syntax error"),
        ("SET k x IFEQ", "-ERR syntax error"),
        ("GET k", "$1|c"),
        ("DIGEST none", "$-1"),
        ("SET empty x", "+OK"),
        ("SETRANGE empty 0 y", ":1"),
        ("SET abc abc", "+OK"),
        ("DIGEST abc", "$16|78af5f94892f3950"),
        ("SET abc d IFDEQ 78AF5F94892F3951", "$-1"),
        ("SET abc d IFDNE 78AF5F94892F3950", "$-1"),
        ("SET abc d IFDEQ 78AF5F94892F3950", "+OK"),
        (
            "SET abc e IFDEQ abc",
            "-ERR digest must be exactly 16 hexadecimal characters",
        ),
        ("DELEX abc IFEQ x", ":0"),
        ("DELEX abc IFNE x", ":1"),
        ("DELEX abc IFNE x", ":0"),
        ("DELEX abc", ":0"),
        (
            "DELEX k a b c",
            "-ERR wrong number of arguments for 'delex' command",
        ),
        ("DELEX k nope b", "-ERR syntax error"),
        ("LPUSH l x", ":1"),
        (
            "DELEX l IFEQ x",
            "-ERR Key should be of string type if conditions are specified",
        ),
        (
            "DELIFEQ l x",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("DELEX l", ":1"),
        ("DELIFEQ k x", ":0"),
        ("DELIFEQ k c", ":1"),
        ("DELIFEQ k c", ":0"),
    ]);
    db.events();
    db.words("DELIFEQ new a");
    assert_eq!(db.events(), ["del new"]);
}

#[test]
fn several_keys_with_one_expiry() {
    let mut db = TestDb::new();
    db.script(&[
        ("MSETEX 2 a 1 b 2 EX 100", ":1"),
        ("TTL b", ":100"),
        ("MSETEX 2 b 3 c 3 NX", ":0"),
        ("MSETEX 2 b 3 c 3 XX", ":0"),
        ("MSETEX 2 a 3 b 3 XX KEEPTTL", ":1"),
        ("TTL a", ":100"),
        ("MGET a b c", "*3|$1|3|$1|3|$-1"),
        ("MSETEX 1 c 4 NX", ":1"),
        ("MSETEX 2 a 1 b", "-ERR syntax error"),
        ("MSETEX 1 a 1 b", "-ERR syntax error"),
        ("MSETEX 1 a 1 GET", "-ERR syntax error"),
        ("MSETEX 1 a 1 IFEQ 3", "-ERR syntax error"),
        (
            "MSETEX 1 a 1 EX 0",
            "-ERR invalid expire time in 'msetex' command",
        ),
        ("MSETEX 0 a 1", "-ERR invalid numkeys value or out of range"),
        (
            "MSETEX 9999999999 a 1",
            "-ERR invalid numkeys value or out of range",
        ),
    ]);
    db.events();
    db.words("MSETEX 2 a 1 b 2 PX 5000");
    assert_eq!(db.events(), ["set a", "expire a", "set b", "expire b"]);
}

#[test]
fn integers() {
    let mut db = TestDb::new();
    db.script(&[
        ("INCR n", ":1"),
        ("INCRBY n 9223372036854775806", ":9223372036854775807"),
        ("INCR n", "-ERR increment or decrement would overflow"),
        (
            "DECRBY n -9223372036854775808",
            "-ERR decrement would overflow",
        ),
        ("DECRBY n 9223372036854775807", ":0"),
        ("DECR n", ":-1"),
        ("MSET a 1 b x", "+OK"),
        ("MGET a b c", "*3|$1|1|$1|x|$-1"),
        ("INCR b", "-ERR value is not an integer or out of range"),
        (
            "MSET a 1 b",
            "-ERR wrong number of arguments for 'mset' command",
        ),
    ]);
}
