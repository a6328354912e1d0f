//! Replies, events and records of time series without a server. The replies that the real module gives are replayed in
//! `server/tests/it/types_replay.rs`.

use redline_resp::Proto;

use crate::testing::TestDb;

#[test]
fn a_rule_writes_its_target_until_one_end_is_gone() {
    let mut db = TestDb::new();
    db.script(&[
        ("TS.CREATE s", "+OK"),
        ("TS.CREATE d", "+OK"),
        ("TS.CREATERULE s d AGGREGATION sum 10", "+OK"),
        ("TS.ADD s 1 1", ":1"),
        ("TS.ADD s 2 2", ":2"),
        ("TS.RANGE d - +", "*0"),
        ("TS.RANGE d - + LATEST", "*1|*2|:0|+3"),
        ("TS.MADD s 11 4 s 21 5", "*2|:11|:21"),
        ("TS.RANGE d - +", "*2|*2|:0|+3|*2|:10|+4"),
        ("TS.DEL s 0 3", ":2"),
        ("TS.RANGE d - +", "*1|*2|:10|+4"),
        // A copy is an end of nothing.
        ("COPY s s2", ":1"),
        ("TS.ADD s2 31 1", ":31"),
        ("TS.RANGE d - +", "*1|*2|:10|+4"),
        ("DEL d", ":1"),
        ("TS.CREATE d", "+OK"),
        ("TS.ADD s 35 1", ":35"),
        ("TS.RANGE d - +", "*0"),
        ("TS.CREATERULE s d AGGREGATION max 10", "+OK"),
        ("TS.DELETERULE s d", "+OK"),
        (
            "TS.DELETERULE s d",
            "-ERR TSDB: compaction rule does not exist",
        ),
        ("TS.CREATERULE s d AGGREGATION max 10", "+OK"),
        ("DEL s", ":1"),
        ("TS.CREATERULE s2 d AGGREGATION max 10", "+OK"),
    ]);
}

#[test]
fn every_change_has_its_event() {
    let mut db = TestDb::new();
    let mut check = |line: &str, expected: &[&str]| {
        let reply = db.words(line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
        assert_eq!(db.events(), expected, "{line}");
    };
    check("TS.CREATE s LABELS a 1", &["ts.create s"]);
    check("TS.CREATE d", &["ts.create d"]);
    check(
        "TS.CREATERULE s d AGGREGATION avg 10",
        &["ts.createrule:src s", "ts.createrule:dest d"],
    );
    check("TS.ALTER s RETENTION 0", &["ts.alter s"]);
    check("TS.ADD s 5 1", &["ts.add s"]);
    check("TS.ADD s 15 1", &["ts.add s", "ts.add:dest d"]);
    check(
        "TS.MADD s 25 1 d 1 1",
        &["ts.add s", "ts.add:dest d", "ts.add d"],
    );
    check("TS.INCRBY s 5 TIMESTAMP 26", &["ts.incrby s"]);
    check("TS.DECRBY s 5 TIMESTAMP 27", &["ts.decrby s"]);
    check("TS.DEL s 100 200", &[]);
    check("TS.DEL s 25 27", &["ts.del s", "ts.add:dest d"]);
    check(
        "TS.DELETERULE s d",
        &["ts.deleterule:src s", "ts.deleterule:dest d"],
    );
    check("TS.GET s", &[]);
}

#[test]
fn the_index_follows_every_way_a_key_comes_and_goes() {
    let mut db = TestDb::new();
    let found = |db: &mut TestDb| db.words("TS.QUERYINDEX a=1");
    db.words("TS.CREATE k LABELS a 1");
    assert_eq!(found(&mut db), "*1|$1|k");
    db.words("TS.ALTER k LABELS a 2");
    assert_eq!(found(&mut db), "*0");
    db.words("TS.ALTER k LABELS a 1");
    db.words("RENAME k l");
    assert_eq!(found(&mut db), "*1|$1|l");
    db.words("SET l x");
    assert_eq!(found(&mut db), "*0");
    db.words("TS.ADD k 1 1 LABELS a 1");
    db.words("PEXPIRE k 10");
    assert_eq!(found(&mut db), "*1|$1|k");
    db.pass_ms(11);
    assert_eq!(found(&mut db), "*0");
    db.words("TS.CREATE k LABELS a 1");
    db.words("MOVE k 1");
    assert_eq!(found(&mut db), "*0");
    db.db = 1;
    assert_eq!(found(&mut db), "*1|$1|k");
    db.words("SWAPDB 0 1");
    assert_eq!(found(&mut db), "*0");
    db.db = 0;
    assert_eq!(found(&mut db), "*1|$1|k");
    db.words("FLUSHDB");
    assert_eq!(found(&mut db), "*0");
}

#[test]
fn a_label_that_is_given_twice_has_both_values() {
    TestDb::new().script(&[
        ("TS.CREATE a LABELS x 1 x 2", "+OK"),
        ("TS.CREATE b LABELS x 1 x 1 y 1", "+OK"),
        ("TS.QUERYINDEX x=1", "*2|$1|a|$1|b"),
        ("TS.QUERYINDEX x=2", "*1|$1|a"),
        ("TS.QUERYINDEX x=1 x!=2", "*1|$1|b"),
        ("TS.QUERYINDEX x=1 x!=", "*2|$1|a|$1|b"),
        ("TS.QUERYINDEX x=1 y=", "*1|$1|a"),
        ("TS.QUERYINDEX x=1 y!=", "*1|$1|b"),
        ("TS.MGET FILTER x=2", "*1|*3|$1|a|*0|*0"),
        ("TS.MGET FILTER x=1 x!=2", "*1|*3|$1|b|*0|*0"),
        ("TS.ALTER a LABELS z 1 z 2", "+OK"),
        ("TS.QUERYINDEX x=2", "*0"),
        (
            "TS.MGET SELECTED_LABELS z FILTER z=2",
            "*1|*3|$1|a|*1|*2|$1|z|$1|1|*0",
        ),
    ]);
}

#[test]
fn buckets_without_samples_are_limited_for_all_series_together() {
    let mut db = TestDb::new();
    for key in ["a", "b"] {
        db.words(&format!("TS.CREATE {key} LABELS l x"));
        db.words(&format!("TS.ADD {key} 0 1"));
        db.words(&format!("TS.ADD {key} 8388608 1"));
    }
    let call = "TS.MRANGE - + AGGREGATION count 1 EMPTY FILTER l=x GROUPBY l REDUCE max";
    let error =
        "-ERR TSDB: too many buckets without samples, use a longer bucket or a shorter range";
    assert_eq!(db.words(&call.replace("EMPTY", "EMPTY COUNT 9")), error);
    db.words("TS.ALTER b LABELS l y");
    assert!(db.words(&call.replace("- +", "- 9")).starts_with("*1|"));
}

#[test]
fn resp3_has_maps() {
    let mut db = TestDb::new();
    db.proto = Proto::Resp3;
    db.script(&[
        ("TS.ADD a 1 1.5 LABELS k v r x", ":1"),
        ("TS.ADD b 1 2 LABELS k v", ":1"),
        (
            "TS.MGET WITHLABELS FILTER k=v r=x",
            "%1|$1|a|*2|%2|$1|k|$1|v|$1|r|$1|x|*2|:1|,1.5",
        ),
        (
            "TS.MRANGE - + FILTER k=v r=",
            "%1|$1|b|*3|%0|%1|+aggregators|*0|*1|*2|:1|,2",
        ),
        (
            "TS.MRANGE - + AGGREGATION avg 5 SELECTED_LABELS r z FILTER k=v r!=",
            "%1|$1|a|*3|%2|$1|r|$1|x|$1|z|_|%1|+aggregators|*1|+avg|*1|*2|:0|,1.5",
        ),
        (
            "TS.MRANGE - + WITHLABELS FILTER k=v GROUPBY k REDUCE sum",
            "%1|$3|k=v|*4|%1|$1|k|$1|v|%1|+reducers|*1|+sum|%1|+sources|*2|$1|a|$1|b|*1|*2|:1|,3.5",
        ),
        ("TS.QUERYINDEX k=v", "~2|$1|a|$1|b"),
    ]);
}

#[test]
fn hostile_times_values_and_options_are_errors_or_no_harm() {
    let mut db = TestDb::new();
    db.script(&[
        ("TS.ADD k 9223372036854775807 1", ":9223372036854775807"),
        (
            "TS.ADD k 9223372036854775808 1",
            "-ERR TSDB: invalid timestamp",
        ),
        ("TS.ADD k 0 1", ":0"),
        ("TS.ADD k -0 1", "-ERR TSDB: invalid timestamp"),
        ("TS.ADD k 1 1e308", ":1"),
        ("TS.ADD k 1 1e308 ON_DUPLICATE SUM", ":1"),
        (
            "TS.RANGE k 0 1 AGGREGATION sum 9223372036854775807",
            "*1|*2|:0|+Infinity",
        ),
        (
            "TS.RANGE k - + AGGREGATION count 1 EMPTY",
            "-ERR TSDB: too many buckets without samples, use a longer bucket or a shorter range",
        ),
        (
            "TS.RANGE k - + ALIGN 9223372036854775807 AGGREGATION count 9223372036854775807 BUCKETTIMESTAMP + COUNT 1",
            "*1|*2|:9223372036854775807|+2",
        ),
        ("TS.ALTER k RETENTION 9223372036854775807", "+OK"),
        ("TS.ALTER k RETENTION 1", "+OK"),
        ("TS.RANGE k - +", "*1|*2|:9223372036854775807|+1"),
        ("TS.DEL k - +", ":3"),
        ("TS.RANGE k - +", "*0"),
        ("TS.GET k", "*0"),
        ("TS.INCRBY k 1e308 TIMESTAMP 5", ":5"),
        (
            "TS.INCRBY k 1e308 TIMESTAMP 5",
            "-ERR TSDB: increment or decrement would overflow",
        ),
        ("TS.CREATE a", "+OK"),
        ("TS.CREATE b", "+OK"),
        (
            "TS.CREATERULE a b AGGREGATION twa 9223372036854775807 9223372036854775807",
            "+OK",
        ),
        (
            "TS.CREATERULE b a AGGREGATION avg 1",
            "-ERR TSDB: the source key already has a source rule",
        ),
        ("TS.MADD a 0 1 a 9223372036854775807 2", "*2|:0|:9223372036854775807"),
        ("TS.DEL a 0 9223372036854775807", ":2"),
        (
            "TS.CREATE c LABELS x (1)",
            "-ERR TSDB: Couldn't parse LABELS",
        ),
        ("TS.QUERYINDEX ==", "-ERR TSDB: please provide at least one matcher"),
        ("TS.QUERYINDEX !=(", "-ERR TSDB: failed parsing labels"),
    ]);
    let label = "y".repeat(1 << 20);
    assert_eq!(
        db.run(&["TS.CREATE", "big", "LABELS", &label, &label]),
        "+OK"
    );
    let filter = format!("{label}={label}");
    assert_eq!(db.run(&["TS.QUERYINDEX", &filter]), "*1|$3|big");
}
