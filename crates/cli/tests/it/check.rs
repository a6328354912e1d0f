//! The tools that check files, as parts of the binary and through links with Redis's names.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

const REDLINE: &str = env!("CARGO_BIN_EXE_redline");

/// Runs a tool in a folder; returns its exit code and what it has written.
fn run(folder: &Path, program: &Path, args: &[&str], answer: &str) -> (Option<i32>, String) {
    let mut child = Command::new(program)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // A tool that asks nothing may have ended.
    let _ = child.stdin.take().unwrap().write_all(answer.as_bytes());
    let output = child.wait_with_output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
fn an_append_only_file_is_checked_and_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let whole = b"*1\r\n$4\r\nPING\r\n";
    let path = folder.path().join("a.aof");
    fs::write(&path, [whole, &b"!!!"[..]].concat()).unwrap();
    let redline = Path::new(REDLINE);
    let (code, text) = run(folder.path(), redline, &["check-aof", "a.aof"], "");
    assert_eq!(code, Some(1));
    assert!(
        text.contains("ok_up_to=14, ok_up_to_line=4, diff=3\nAOF a.aof is not valid."),
        "{text}"
    );
    let link = folder.path().join("redis-check-aof");
    symlink(redline, &link).unwrap();
    let (code, text) = run(folder.path(), &link, &["--fix", "a.aof"], "n\n");
    assert_eq!(code, Some(1));
    assert!(text.ends_with("Continue? [y/N]: Aborting...\n"), "{text}");
    let (code, text) = run(folder.path(), &link, &["--fix", "a.aof"], "y\n");
    assert_eq!(code, Some(0));
    assert!(
        text.ends_with("Successfully truncated AOF a.aof\n"),
        "{text}"
    );
    assert_eq!(fs::read(&path).unwrap(), whole);
    let (code, text) = run(folder.path(), &link, &[], "");
    assert_eq!(code, Some(1));
    assert!(text.starts_with("Usage: redis-check-aof "), "{text}");
}

#[test]
fn a_snapshot_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    // Without a checksum: eight zeros.
    let empty = [&b"REDIS0011\xff"[..], &[0; 8]].concat();
    fs::write(folder.path().join("dump.rdb"), &empty).unwrap();
    fs::write(folder.path().join("cut.rdb"), &empty[..12]).unwrap();
    let link = folder.path().join("redis-check-rdb");
    symlink(REDLINE, &link).unwrap();
    for (program, first) in [(Path::new(REDLINE), Some("check-rdb")), (&link, None)] {
        let args = |file| first.into_iter().chain([file]).collect::<Vec<&str>>();
        let (code, text) = run(folder.path(), program, &args("dump.rdb"), "");
        assert_eq!(code, Some(0), "{text}");
        assert!(
            text.contains("[offset 18] \\o/ RDB looks OK! \\o/\n[info] 0 keys read\n"),
            "{text}"
        );
        let (code, text) = run(folder.path(), program, &args("cut.rdb"), "");
        assert_eq!(code, Some(1));
        assert!(text.contains("Unexpected EOF reading RDB file\n"), "{text}");
    }
}
