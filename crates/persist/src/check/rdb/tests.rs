//! Tests of the reports of `check-rdb`.

use crate::check::rdb_main;
use crate::check::tests::{run, snapshot, with_files};

const HEAD: &str = "[offset 0] Checking RDB file x.rdb\n";
const RECORDS: &str = "\
[offset 27] AUX FIELD redis-ver = '7.0.15'
[offset 41] AUX FIELD redis-bits = '64'
[offset 53] AUX FIELD ctime = '1795806317'
[offset 68] AUX FIELD used-mem = '1088272'
[offset 80] AUX FIELD aof-base = '0'
[offset 153] Selecting DB ID 0
[offset 210] Selecting DB ID 3
";
const COUNTS: &str = "[info] 4 keys read\n[info] 2 expires\n[info] 1 already expired\n";
const NO_COUNTS: &str = "[info] 0 keys read\n[info] 0 expires\n[info] 0 already expired\n";

fn check_snapshot(bytes: &[u8]) -> (u8, String) {
    run(rdb_main, &with_files(&[("x.rdb", bytes)]), &["x.rdb"], "")
}

#[test]
fn a_snapshot_is_told_of_as_redis_does() {
    let good = snapshot();
    let ok = "[offset 239] \\o/ RDB looks OK! \\o/\n";
    let expected = format!("{HEAD}{RECORDS}[offset 239] Checksum OK\n{ok}{COUNTS}");
    assert_eq!(check_snapshot(&good), (0, expected));
    let mut unsummed = good.clone();
    unsummed[231..].fill(0);
    let line = "[offset 239] RDB file was saved with checksum disabled: no check performed.\n";
    assert_eq!(
        check_snapshot(&unsummed),
        (0, format!("{HEAD}{RECORDS}{line}{ok}{COUNTS}"))
    );
    let mut wrong = good.clone();
    *wrong.last_mut().unwrap() ^= 1;
    let expected = format!(
        "{HEAD}{RECORDS}--- RDB ERROR DETECTED ---\n[offset 239] RDB CRC error\n\
         [additional info] While doing: check-sum\n{COUNTS}"
    );
    assert_eq!(check_snapshot(&wrong), (1, expected));
}

#[test]
fn a_head_that_is_none_is_told_of_as_redis_does() {
    let good = snapshot();
    let begins_with = |head: &[u8]| [head, &good[head.len()..]].concat();
    for (bytes, error) in [
        (
            begins_with(b"XEDIS"),
            "Wrong signature trying to load DB from file",
        ),
        (
            begins_with(b"REDIS0099"),
            "Can't handle RDB format version 99",
        ),
        (b"REDIS".to_vec(), "Unexpected EOF reading RDB file"),
        (Vec::new(), "Unexpected EOF reading RDB file"),
    ] {
        let (code, text) = check_snapshot(&bytes);
        assert_eq!(code, 1);
        let expected = format!(
            "] {error}\n[additional info] While doing: start\n[additional info] Reading type 0 (string)\n{NO_COUNTS}"
        );
        assert!(
            text.starts_with(&format!("{HEAD}--- RDB ERROR DETECTED ---\n[offset ")),
            "{text}"
        );
        assert!(text.ends_with(&expected), "{text}");
    }
    let unknown = [&good[..9], b"\x64", &good[9..]].concat();
    let (code, text) = check_snapshot(&unknown);
    assert_eq!(code, 1);
    assert!(
        text.contains("Invalid object type: 100\n[additional info] While doing: read-type\n"),
        "{text}"
    );
    let (code, text) = run(rdb_main, &with_files(&[]), &["x.rdb"], "");
    assert_eq!(code, 1);
    assert_eq!(
        text,
        format!("{HEAD}Cannot open file x.rdb: No such file or directory\n")
    );
}

#[test]
fn every_cut_of_a_snapshot_is_an_error_with_an_offset() {
    let good = snapshot();
    for cut in 0..good.len() {
        let (code, text) = check_snapshot(&good[..cut]);
        assert_eq!(code, 1);
        assert!(
            text.contains("Unexpected EOF reading RDB file"),
            "{cut}: {text}"
        );
    }
}

#[test]
fn a_damaged_value_is_named_with_its_key_and_form() {
    let mut damaged = snapshot();
    // The length of the list's first element.
    let node = damaged
        .windows(3)
        .position(|bytes| bytes == b"\x81\x61\x02")
        .unwrap();
    damaged[node] = 0x8f;
    let (code, text) = check_snapshot(&damaged);
    assert_eq!(code, 1);
    let expected = "While doing: read-object-value\n[additional info] Reading key 'l'\n\
                    [additional info] Reading type 18 (quicklist-v2)\n";
    assert!(text.contains(expected), "{text}");
}
