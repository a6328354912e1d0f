//! Tests of the reports of `check-aof`.

use std::path::Path;

use crate::check::aof_main;
use crate::check::tests::{FOLDER, command, run, set, snapshot, with_files};
use crate::disk::double::{Double, Fault};
use crate::disk::read_whole;

fn check_one(bytes: &[u8]) -> (u8, String) {
    run(aof_main, &with_files(&[("x.aof", bytes)]), &["x.aof"], "")
}

fn contents(disk: &Double, name: &str) -> Vec<u8> {
    read_whole(disk, &Path::new(FOLDER).join(name), 1 << 20)
        .unwrap()
        .unwrap()
}

#[test]
fn one_file_is_told_of_as_redis_does() {
    let whole = |size: usize, line: usize| {
        format!(
            "AOF analyzed: filename=x.aof, size={size}, ok_up_to={size}, ok_up_to_line={line}, diff=0\nAOF x.aof is valid\n"
        )
    };
    let broken = |error: &str, size: usize, line: usize| {
        let rest = size - 33;
        format!(
            "{error}\nAOF analyzed: filename=x.aof, size={size}, ok_up_to=33, ok_up_to_line={line}, diff={rest}\n\
             AOF x.aof is not valid. Use the --fix option to try fixing it.\n"
        )
    };
    let cases: Vec<(Vec<u8>, String)> = vec![
        (set(), whole(66, 15)),
        (
            [command(&["multi"]), set(), command(&["exec"])].concat(),
            whole(95, 21),
        ),
        (b"!!!".into(), broken("AOF x.aof format error", 36, 8)),
        (
            set()[..29].into(),
            broken(
                "0x              3b: Expected to read 7 bytes, got 3 bytes",
                62,
                14,
            ),
        ),
        (
            b"*3\r\n$3".into(),
            broken("0x              25: Expected \\r\\n, got: 0000", 39, 9),
        ),
        (
            b"*3\r".into(),
            broken("0x              21: Expected \\r\\n, got: 0d00", 36, 8),
        ),
        (
            [command(&["multi"]), set()].concat(),
            broken(
                "0x              4a: Reached EOF before reading EXEC for MULTI",
                81,
                18,
            ),
        ),
        (
            [command(&["MULTI"]), set(), command(&["multi"]), set()].concat(),
            broken("0x              59: Unexpected MULTI in AOF x.aof", 129, 21),
        ),
        (
            [command(&["exec"]), set()].concat(),
            broken("0x              29: Unexpected EXEC in AOF x.aof", 80, 11),
        ),
        (
            [b"*1\r\n!3\r\nfoo\r\n".to_vec(), set()].concat(),
            broken("0x              25: Expected prefix '$', got: '!'", 79, 9),
        ),
        (
            b"*1\r\n$-3\r\nfoo\r\n".into(),
            broken(
                "0x              25: Expected to read string of -3 bytes, which is not in the suitable range",
                47,
                10,
            ),
        ),
        (
            b"*1\r\n$3\r\nfooXY*1\r\n".into(),
            broken("0x              29: Expected \\r\\n, got: 5859", 50, 10),
        ),
        (
            b"*1x\r\n$3\r\nfoo\r\n".into(),
            broken("0x              21: Expected \\r\\n, got: 780d", 47, 8),
        ),
        (
            b"*1\r\n$999999999\r\nfoo\r\n".into(),
            broken(
                "0x              31: Expected to read 1000000001 bytes, got 5 bytes",
                54,
                10,
            ),
        ),
        (
            b"*1\r\n$99999999999999999999\r\nfoo\r\n".into(),
            broken(
                "0x              25: Expected to read string of 9223372036854775807 bytes, which is not in the \
                 suitable range",
                65,
                10,
            ),
        ),
        (
            b"*1\n$3\nfoo\n".into(),
            broken("0x              21: Expected \\r\\n, got: 0a00", 43, 8),
        ),
    ];
    for (tail, expected) in cases {
        let bytes = [set(), tail].concat();
        let code = u8::from(expected.contains("not valid"));
        let expected = format!("Start checking Old-Style AOF\n{expected}");
        assert_eq!(
            check_one(&bytes),
            (code, expected),
            "{}",
            bytes.escape_ascii()
        );
    }
    let empty = "Start checking Old-Style AOF\nAOF x.aof is empty\n";
    assert_eq!(check_one(b""), (0, empty.into()));
}

#[test]
fn what_redis_lets_pass_and_does_not_load_is_not_valid() {
    for (tail, error) in [
        (
            &b"*0\r\n"[..],
            "0x              21: Expected a command of at least 1 argument, got: 0\n",
        ),
        (
            b"*-5\r\n",
            "0x              21: Expected a command of at least 1 argument, got: -5\n",
        ),
        (
            b"#TS:1\0\r\n",
            "0x              21: Expected an annotation without control characters\n",
        ),
        (
            b"#TS:1",
            "0x              21: Reached EOF before the end of an annotation\n",
        ),
        (
            b"* 1\r\n$+3\r\nfoo\r\n",
            "0x              21: Expected \\r\\n, got: 2031\n",
        ),
    ] {
        let (code, text) = check_one(&[&set(), tail].concat());
        assert_eq!(code, 1);
        assert!(
            text.contains(error) && text.contains("ok_up_to=33"),
            "{text}"
        );
    }
}

#[test]
fn a_repair_asks_first_and_cuts_after_the_last_whole_unit() {
    let bytes = [set(), command(&["multi"]), set()].concat();
    let shrink = "This will shrink the AOF x.aof from 80 bytes, with 47 bytes, to 33 bytes\n";
    let bytes = &bytes[..80];
    for (args, answer, ends, is_cut) in [
        (
            &["--fix", "x.aof"][..],
            "y\n",
            "Continue? [y/N]: Successfully truncated AOF x.aof\n",
            true,
        ),
        (
            &["--fix", "x.aof"],
            "Yes",
            "Continue? [y/N]: Successfully truncated AOF x.aof\n",
            true,
        ),
        (
            &["--fix", "x.aof"],
            "n\n",
            "Continue? [y/N]: Aborting...\n",
            false,
        ),
        (
            &["--fix", "x.aof"],
            "",
            "Continue? [y/N]: Aborting...\n",
            false,
        ),
        (
            &["--fix", "--yes", "x.aof"],
            "",
            "Successfully truncated AOF x.aof\n",
            true,
        ),
    ] {
        let disk = with_files(&[("x.aof", bytes)]);
        let (code, text) = run(aof_main, &disk, args, answer);
        assert_eq!(code, u8::from(!is_cut));
        assert!(text.ends_with(&format!("{shrink}{ends}")), "{text}");
        let left = if is_cut { set() } else { bytes.to_vec() };
        assert_eq!(contents(&disk, "x.aof"), left);
    }
    let disk = with_files(&[("x.aof", &set())]);
    let (code, text) = run(aof_main, &disk, &["--fix", "x.aof"], "");
    assert!(
        code == 0 && text.ends_with("AOF x.aof is valid\n"),
        "{text}"
    );
}

#[test]
fn a_repair_that_fails_says_so() {
    let disk = with_files(&[("x.aof", b"!!!")]);
    let (_, report) = run(aof_main, &disk, &["x.aof"], "");
    assert!(report.contains("diff=3"));
    let calls = disk.calls();
    run(aof_main, &disk, &["x.aof"], "");
    let for_a_report = disk.calls() - calls;
    disk.fail_at(disk.calls() + for_a_report, Fault::Error);
    let (code, text) = run(aof_main, &disk, &["--fix", "--yes", "x.aof"], "");
    assert_eq!(code, 1);
    assert!(
        text.ends_with("Failed to truncate AOF x.aof: Input/output error\n"),
        "{text}"
    );
}

#[test]
fn what_came_after_a_time_is_cut_off() {
    let bytes = [b"#TS:10\r\n".to_vec(), set(), b"#TS:20\r\n".to_vec(), set()].concat();
    let nothing = "Truncate nothing in AOF x.aof to timestamp 20\nAOF x.aof is valid\n";
    for (time, code, ends, left) in [
        (
            "5",
            1,
            "AOF x.aof has nothing before timestamp 5, aborting...\n",
            82,
        ),
        (
            "10",
            0,
            "Successfully truncated AOF x.aof to timestamp 10\n",
            41,
        ),
        (
            "15",
            0,
            "Successfully truncated AOF x.aof to timestamp 15\n",
            41,
        ),
        ("20", 0, nothing, 82),
        ("10x", 1, "Invalid timestamp, aborting...\n", 82),
        (
            "0",
            0,
            "ok_up_to=82, ok_up_to_line=15, diff=0\nAOF x.aof is valid\n",
            82,
        ),
        (
            "-1",
            1,
            "AOF x.aof has nothing before timestamp -1, aborting...\n",
            82,
        ),
    ] {
        let disk = with_files(&[("x.aof", &bytes)]);
        let (is, text) = run(
            aof_main,
            &disk,
            &["--truncate-to-timestamp", time, "x.aof"],
            "",
        );
        assert_eq!(is, code, "{text}");
        assert!(text.ends_with(ends), "{text}");
        assert_eq!(contents(&disk, "x.aof").len(), left);
    }
    let inside = [
        set(),
        command(&["multi"]),
        b"#TS:9\r\n".to_vec(),
        command(&["exec"]),
    ]
    .concat();
    let disk = with_files(&[("x.aof", &inside)]);
    run(
        aof_main,
        &disk,
        &["--truncate-to-timestamp", "8", "x.aof"],
        "",
    );
    assert_eq!(contents(&disk, "x.aof"), set());
}

const MANIFEST: &[u8] = b"file b.aof seq 1 type b\nfile i.aof seq 1 type i\n";

fn check_all(base: &[u8], incr: &[u8], args: &[&str]) -> (u8, String) {
    let files = [("m.manifest", MANIFEST), ("b.aof", base), ("i.aof", incr)];
    let args: Vec<&str> = args.iter().copied().chain(["m.manifest"]).collect();
    run(aof_main, &with_files(&files), &args, "y\n")
}

#[test]
fn all_files_of_a_manifest_are_told_of_as_redis_does() {
    let start = "Start checking Multi Part AOF\nStart to check BASE AOF (RESP format).\n";
    let base = format!(
        "{start}AOF analyzed: filename=b.aof, size=33, ok_up_to=33, ok_up_to_line=8, diff=0\nBASE AOF b.aof is valid\n"
    );
    let end = "All AOF files and manifest are valid\n";
    let expected = format!(
        "{base}Start to check INCR files.\n\
         AOF analyzed: filename=i.aof, size=33, ok_up_to=33, ok_up_to_line=15, diff=0\nINCR AOF i.aof is valid\n{end}"
    );
    assert_eq!(check_all(&set(), &set(), &[]), (0, expected));
    let expected = format!(
        "{start}BASE AOF b.aof is empty\nStart to check INCR files.\nINCR AOF i.aof is empty\n{end}"
    );
    assert_eq!(check_all(b"", b"", &[]), (0, expected));
    let expected = format!(
        "{start}0x              1a: Expected to read 7 bytes, got 6 bytes\n\
         AOF analyzed: filename=b.aof, size=32, ok_up_to=0, ok_up_to_line=7, diff=32\n\
         Failed to truncate AOF b.aof because it is not the last file\n"
    );
    assert_eq!(check_all(&set()[..32], &set(), &["--fix"]), (1, expected));
    let cut = [set(), set()[..32].to_vec()].concat();
    let expected = format!(
        "{base}Start to check INCR files.\n0x              3b: Expected to read 7 bytes, got 6 bytes\n\
         AOF analyzed: filename=i.aof, size=65, ok_up_to=33, ok_up_to_line=21, diff=32\n\
         This will shrink the AOF i.aof from 65 bytes, with 32 bytes, to 33 bytes\n\
         Continue? [y/N]: Successfully truncated AOF i.aof\n{end}"
    );
    assert_eq!(check_all(&set(), &cut, &["--fix"]), (0, expected));
}

#[test]
fn a_file_before_empty_ones_may_be_cut() {
    let (code, text) = check_all(&set()[..32], b"", &["--fix"]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("Successfully truncated AOF b.aof\n"),
        "{text}"
    );
}

#[test]
fn a_time_is_cut_off_in_the_last_file_only() {
    let times = [b"#TS:10\r\n".to_vec(), set(), b"#TS:20\r\n".to_vec(), set()].concat();
    let (code, text) = check_all(&set(), &times, &["--truncate-to-timestamp", "10"]);
    assert_eq!(code, 0);
    assert!(
        text.contains("Successfully truncated AOF i.aof to timestamp 10\n"),
        "{text}"
    );
    let (code, text) = check_all(&times, &times, &["--truncate-to-timestamp", "10"]);
    assert_eq!(code, 1);
    let expected = "Failed to truncate AOF b.aof to timestamp 10 to offset 41 because it is not the last file.\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn files_that_are_missing_and_manifests_that_are_none() {
    let disk = with_files(&[("m.manifest", MANIFEST)]);
    let (code, text) = run(aof_main, &disk, &["m.manifest"], "");
    let expected =
        "Start checking Multi Part AOF\nCannot open file b.aof: No such file or directory\n";
    assert_eq!((code, &*text), (1, expected));
    let disk = with_files(&[("m.manifest", MANIFEST), ("b.aof", &set())]);
    let (code, text) = run(aof_main, &disk, &["m.manifest"], "");
    assert_eq!(code, 1);
    let expected = "INCR files.\nCannot open file i.aof: No such file or directory, aborting...\n";
    assert!(text.ends_with(expected), "{text}");
    let disk = with_files(&[("m.manifest", b"\nfile i.aof seq 1 type i\n")]);
    let (code, text) = run(aof_main, &disk, &["m.manifest"], "");
    assert_eq!(code, 1);
    assert!(
        text.contains("at line 1\n\n>>> ''\n\nInvalid AOF manifest file format\n"),
        "{text}"
    );
    let (code, text) = run(aof_main, &disk, &["none.aof"], "");
    let expected = "Cannot open file none.aof: No such file or directory\n";
    assert_eq!((code, &*text), (1, expected));
}

#[test]
fn commands_behind_a_snapshot_are_checked() {
    let good = snapshot();
    let bytes = [&good[..], &command(&["PING"])].concat();
    let (code, text) = check_one(&bytes);
    assert_eq!(code, 0);
    let expected = "RDB preamble is OK, proceeding with AOF tail...\n\
                    AOF analyzed: filename=x.aof, size=253, ok_up_to=253, ok_up_to_line=4, diff=0\nAOF x.aof is valid\n";
    assert!(
        text.starts_with("Start checking Old-Style AOF\n[offset 0] Checking RDB file x.aof\n"),
        "{text}"
    );
    assert!(text.ends_with(expected), "{text}");
    let (code, text) = check_one(&bytes[..250]);
    assert_eq!(code, 1);
    let expected = "0x              f7: Expected to read 6 bytes, got 3 bytes\n\
                    AOF analyzed: filename=x.aof, size=250, ok_up_to=239, ok_up_to_line=3, diff=11\n";
    assert!(text.contains(expected), "{text}");
    let (code, text) = check_one(&good[..60]);
    assert_eq!(code, 1);
    assert!(
        text.ends_with("RDB preamble of AOF file is not sane, aborting.\n"),
        "{text}"
    );
    let files = [
        ("m.manifest", &b"file b.rdb seq 1 type b\n"[..]),
        ("b.rdb", &good),
    ];
    let (code, text) = run(aof_main, &with_files(&files), &["m.manifest"], "");
    assert_eq!(code, 0);
    assert!(
        text.contains("Start to check BASE AOF (RDB format).\n"),
        "{text}"
    );
}
