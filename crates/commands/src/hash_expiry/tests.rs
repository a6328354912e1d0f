//! Fields that expire, call by call: replies, events, propagation, and the effect on the encoding.

use crate::testing::TestDb;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn a_value_that_changes_counts_the_fields_anew() {
    let mut db = TestDb::new();
    db.script(&[("HSET h a 1 b 2 c 3", ":3"), ("HSET g a 1 b 2 c 3", ":3")]);
    db.local.limits.hash_max_listpack_entries = 2;
    db.script(&[
        ("OBJECT ENCODING h", "$8|listpack"),
        ("HSET h a 4", ":0"),
        ("OBJECT ENCODING h", "$9|hashtable"),
        ("HINCRBY g a 4", ":5"),
        ("OBJECT ENCODING g", "$9|hashtable"),
    ]);
}

#[test]
fn hsetex_took_into_a_listpack_what_redis_would_not() {
    let past = "HSETEX h EXAT 1 FIELDS 2 c x a 1";
    let cases = [
        // A field counts as often as it is given.
        (
            "HSET h a 1",
            "HSETEX h FIELDS 3 a 1 a 2 a 3",
            "$9|hashtable",
        ),
        ("HSET h a 1", "HSETEX h FIELDS 2 a 1 a 2", "$8|listpack"),
        // Fields whose time is past are added and removed one by one.
        ("HSET h a 1 b 2", past, "$9|hashtable"),
        ("HSET h b 2 z 2", past, "$9|hashtable"),
        ("HSET h b 2", past, "$10|listpackex"),
        (
            "HSET h a 1 b 2",
            "HSETEX h EXAT 1 FIELDS 2 a 1 c x",
            "$10|listpackex",
        ),
    ];
    for (before, call, encoding) in cases {
        let mut db = TestDb::new();
        db.local.limits.hash_max_listpack_entries = 2;
        db.words(before);
        db.script(&[(call, ":1"), ("OBJECT ENCODING h", encoding)]);
    }
}

#[test]
fn fields_get_and_lose_an_expiry() {
    let mut db = TestDb::new();
    db.script(&[
        ("HEXPIRE h 10 FIELDS 2 a b", "*2|:-2|:-2"),
        ("HSET h a 1 b 2 c 3", ":3"),
        ("HEXPIRE h 10 FIELDS 1 x", "*1|:-2"),
        ("OBJECT ENCODING h", "$10|listpackex"),
        ("HEXPIRE h 10 FIELDS 2 a x", "*2|:1|:-2"),
        ("HTTL h FIELDS 3 a b x", "*3|:10|:-1|:-2"),
        ("HPTTL h FIELDS 1 a", "*1|:10000"),
        ("HPEXPIRETIME h FIELDS 1 a", "*1|:1700000010000"),
        ("HPEXPIREAT h 1700000010001 FIELDS 1 a", "*1|:1"),
        ("HEXPIRETIME h FIELDS 1 a", "*1|:1700000011"),
        ("OBJECT ENCODING h", "$10|listpackex"),
        ("HEXPIRE h 10 NX FIELDS 2 a b", "*2|:0|:1"),
        ("HEXPIRE h 20 XX FIELDS 2 b c", "*2|:1|:0"),
        ("HEXPIRE h 10 GT FIELDS 2 b c", "*2|:0|:0"),
        ("HEXPIRE h 10 LT FIELDS 2 b c", "*2|:1|:1"),
        ("HPERSIST h FIELDS 3 c c x", "*3|:1|:-1|:-2"),
        ("HINCRBY h b 1", ":3"),
        ("HTTL h FIELDS 1 b", "*1|:10"),
        ("HSET h b 5", ":0"),
        ("HTTL h FIELDS 1 b", "*1|:-1"),
        ("COPY h copy", ":1"),
        ("HPTTL copy FIELDS 1 a", "*1|:10001"),
        ("HEXPIREAT h 1 FIELDS 2 a b", "*2|:2|:2"),
        ("HPEXPIREAT h 0 FIELDS 1 c", "*1|:2"),
        ("EXISTS h", ":0"),
    ]);
    assert_eq!(
        db.events(),
        [
            "hset h",
            "hexpire h",
            "hexpire h",
            "hexpire h",
            "hexpire h",
            "hexpire h",
            "hpersist h",
            "hincrby h",
            "hset h",
            "copy_to copy",
            "hdel h",
            "hdel h",
            "del h"
        ]
    );
}

#[test]
fn what_is_wrong_is_said_in_the_order_of_redis() {
    let mut db = TestDb::new();
    db.script(&[
        ("SET s 1", "+OK"),
        ("HEXPIRE s x FIELDS 0 a", WRONG_TYPE),
        ("HGETEX s EX x FIELDS 1 a", WRONG_TYPE),
        (
            "HSETEX s EX x FIELDS 1 a b",
            "-ERR value is not an integer or out of range",
        ),
        ("HTTL s FIELDS 0 a", WRONG_TYPE),
        (
            "HEXPIRE h x FIELDS 0 a",
            "-ERR value is not an integer or out of range",
        ),
        (
            "HEXPIRE h -1 ZZ FIELDS 0 a",
            "-ERR invalid expire time, must be >= 0",
        ),
        (
            "HPEXPIREAT h 70368744177664 FIELDS 1 a",
            "-ERR invalid expire time in 'hpexpireat' command",
        ),
        (
            "HEXPIRE h 1 NX XX FIELDS 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position",
        ),
        (
            "HEXPIRE h 1 NX FIELDS 0 a",
            "-ERR Parameter `numFields` should be greater than 0",
        ),
        (
            "HEXPIRE h 1 NX FIELDS 1 a b",
            "-ERR The `numfields` parameter must match the number of arguments",
        ),
        (
            "HTTL h FIELDS x a",
            "-ERR Number of fields must be a positive integer",
        ),
        ("HSETEX h FIELDS 0 a b", "-ERR invalid number of fields"),
        (
            "HSETEX h KEEPTTL FIELDS 0 a",
            "-ERR wrong number of arguments for 'hsetex' command",
        ),
        (
            "HSETEX h FIELDS 2 a b",
            "-ERR wrong number of arguments for 'hsetex' command",
        ),
        (
            "HSETEX h PERSIST FIELDS 1 a b",
            "-ERR unknown argument: PERSIST",
        ),
        (
            "HSETEX h EX 1 KEEPTTL FIELDS 1 a b",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        (
            "HSETEX h FNX FXX FIELDS 1 a b",
            "-ERR Only one of FXX or FNX arguments can be specified",
        ),
    ]);
}

#[test]
fn reading_and_setting_with_an_expiry() {
    let mut db = TestDb::new();
    db.script(&[
        ("HSETEX h FXX FIELDS 1 a 1", ":0"),
        ("HSETEX h XX FNX FIELDS 1 a 1", ":0"),
        ("HSETEX h NX FNX EX 10 FIELDS 2 a 1 b 2", ":1"),
        ("HSETEX h NX FIELDS 1 c 3", ":0"),
        ("HSETEX h NX XX FIELDS 1 c 3", "-ERR syntax error"),
        ("HSETEX h FNX FIELDS 2 b 3 c 3", ":0"),
        ("HSETEX h KEEPTTL FIELDS 2 a 5 c 3", ":1"),
        ("HTTL h FIELDS 3 a b c", "*3|:10|:10|:-1"),
        ("HGETEX h PERSIST FIELDS 2 a x", "*2|$1|5|$-1"),
        ("HGETEX h PXAT 1700000099000 FIELDS 1 c", "*1|$1|3"),
        ("HGETEX h FIELDS 1 c", "*1|$1|3"),
        ("HTTL h FIELDS 3 a b c", "*3|:-1|:10|:99"),
        ("HGETEX h EXAT 1 FIELDS 1 a", "*1|$1|5"),
        (
            "HGETEX h EX 1 FIELDS",
            "-ERR wrong number of arguments for 'hgetex' command",
        ),
        (
            "HGETEX h EX -1 FIELDS",
            "-ERR invalid expire time, must be >= 0",
        ),
        ("HSETEX h PXAT 1 FIELDS 1 b 9", ":1"),
        ("HGETDEL h FIELDS 3 c c x", "*3|$1|3|$-1|$-1"),
        ("EXISTS h", ":0"),
        ("HGETDEL h FIELDS 1 c", "*1|$-1"),
        ("HSETEX h EX 0 FIELDS 1 a 1", ":1"),
        ("EXISTS h", ":0"),
    ]);
    assert_eq!(
        db.events(),
        [
            "hset h",
            "hexpire h",
            "hset h",
            "hpersist h",
            "hexpire h",
            "hdel h",
            "hset h",
            "hdel h",
            "hdel h",
            "del h",
            "hset h",
            "hdel h",
            "del h"
        ]
    );
}

#[test]
fn fields_that_have_expired_are_not_shown() {
    for entries in [512, 1] {
        let mut db = TestDb::new();
        db.local.limits.hash_max_listpack_entries = entries;
        db.script(&[
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HPEXPIRE h 100 FIELDS 2 a b", "*2|:1|:1"),
        ]);
        db.pass_ms(100);
        assert_eq!(db.words("HGET h a"), "$1|1", "not yet");
        db.pass_ms(1);
        db.events();
        db.script(&[
            ("HLEN h", ":3"),
            ("HGETALL h", "*2|$1|c|$1|3"),
            ("HKEYS h", "*1|$1|c"),
            ("HVALS h", "*1|$1|3"),
            ("HSCAN h 0", "*2|$1|0|*2|$1|c|$1|3"),
            ("HRANDFIELD h", "$1|c"),
            ("HRANDFIELD h 5", "*1|$1|c"),
            ("HRANDFIELD h -2", "*2|$1|c|$1|c"),
            ("HTTL h FIELDS 1 a", "*1|:-2"),
            ("HPERSIST h FIELDS 1 a", "*1|:-2"),
        ]);
        assert!(db.events().is_empty(), "nothing has been taken out");
        db.script(&[
            ("HGET h a", "$-1"),
            ("HLEN h", ":2"),
            ("HSETNX h b 7", ":1"),
            ("HTTL h FIELDS 1 b", "*1|:-1"),
            ("HPEXPIRE h 100 FIELDS 2 b c", "*2|:1|:1"),
        ]);
        assert_eq!(
            db.events(),
            ["hexpired h", "hexpired h", "hset h", "hexpire h"]
        );
        assert_eq!(db.local.expired_elements, 2);
        db.pass_ms(101);
        db.script(&[
            ("HGETALL h", "*0"),
            ("HRANDFIELD h -2", "*0"),
            ("EXISTS h", ":1"),
            ("HMGET h b c", "*2|$-1|$-1"),
            ("EXISTS h", ":0"),
        ]);
        assert_eq!(db.events(), ["hexpired h", "del h"]);
        assert_eq!(db.space.timed_key_count(0), 0);
    }
}

#[test]
fn hsetex_sets_a_field_that_has_expired_in_the_hash_that_it_was_in() {
    for entries in [512, 1] {
        let mut db = TestDb::new();
        db.local.limits.hash_max_listpack_entries = entries;
        let stale = [
            ("DEL h", ":0"),
            ("HSET h a 1 b 2", ":2"),
            ("HPEXPIRE h 10 FIELDS 2 a b", "*2|:1|:1"),
        ];
        db.script(&stale);
        db.pass_ms(11);
        db.events();
        db.script(&[("HSETEX h FNX KEEPTTL FIELDS 2 a 3 b 4", ":1")]);
        assert_eq!(db.events(), ["hexpired h", "hset h"], "the key stayed");
        assert_eq!(db.local.expired_elements, 2);
        db.script(&[("HTTL h FIELDS 2 a b", "*2|:-1|:-1"), ("DEL h", ":1")]);
        // The first missing field decides: the other is not looked at.
        db.script(&stale);
        db.pass_ms(11);
        db.events();
        db.script(&[
            ("HSETEX h FXX FIELDS 2 a 3 b 4", ":0"),
            ("HLEN h", ":1"),
            ("HSETEX h FXX FIELDS 1 b 4", ":0"),
            ("EXISTS h", ":0"),
        ]);
        assert_eq!(db.events(), ["hexpired h", "hexpired h", "del h"]);
    }
}

#[test]
fn an_expired_field_counts_from_nothing() {
    let mut db = TestDb::new();
    db.script(&[("HSETEX h PX 10 FIELDS 1 n 41", ":1")]);
    db.pass_ms(11);
    db.script(&[("HINCRBY h n 1", ":1"), ("HTTL h FIELDS 1 n", "*1|:-1")]);
    assert_eq!(
        db.events(),
        ["hset h", "hexpire h", "hexpired h", "del h", "hincrby h"]
    );
}

#[test]
fn the_index_of_hashes_that_expire_follows_their_keys() {
    let mut db = TestDb::new();
    let timed = |db: &TestDb| (db.space.timed_key_count(0), db.space.timed_key_count(1));
    db.script(&[
        ("HSET h a 1", ":1"),
        ("HEXPIRE h 10 FIELDS 1 a", "*1|:1"),
        ("COPY h h2", ":1"),
        ("EXPIRE h2 100", ":1"),
        ("PERSIST h2", ":1"),
    ]);
    assert_eq!(timed(&db), (2, 0));
    db.script(&[("MOVE h2 1", ":1"), ("RENAME h h3", "+OK")]);
    assert_eq!(timed(&db), (1, 1));
    db.script(&[("HPERSIST h3 FIELDS 1 a", "*1|:1")]);
    assert_eq!(timed(&db), (0, 1));
    db.script(&[
        ("HEXPIRE h3 10 FIELDS 1 a", "*1|:1"),
        ("SET h3 x", "+OK"),
        ("FLUSHALL", "+OK"),
    ]);
    assert_eq!(timed(&db), (0, 0));
}
