//! Tests of the tools' arguments, and what the tests of the reports share. Those of redis-check-aof and redis-check-rdb
//! 7.0.15 were recorded with the same files.

use std::path::Path;

use super::*;
use crate::disk::double::Double;
use crate::disk::write_all;

pub(super) const FOLDER: &str = "/data";

pub(super) fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

pub(super) fn set() -> Vec<u8> {
    command(&["set", "foo", "hello"])
}

pub(super) fn with_files(files: &[(&str, &[u8])]) -> Double {
    let disk = Double::default();
    disk.create_dir(Path::new(FOLDER)).unwrap();
    for (name, bytes) in files {
        let file = disk.create(&Path::new(FOLDER).join(name)).unwrap();
        write_all(&*file, &[bytes]).unwrap();
    }
    disk
}

pub(super) type Main = fn(&mut Tool<'_>, std::vec::IntoIter<OsString>) -> io::Result<u8>;

/// Runs a tool; a name of a file is one in the folder, and is shown without it.
pub(super) fn run(main: Main, disk: &Double, args: &[&str], input: &str) -> (u8, String) {
    let mut out = Vec::new();
    let args: Vec<OsString> = args
        .iter()
        .map(|arg| match arg.contains('.') {
            true => Path::new(FOLDER).join(arg).into(),
            false => arg.into(),
        })
        .collect();
    let code = main(
        &mut Tool {
            name: "check",
            disk,
            now_ms: 1_795_806_318_000,
            input: &mut input.as_bytes(),
            out: &mut out,
        },
        args.into_iter(),
    );
    let text = String::from_utf8(out).unwrap();
    (code.unwrap(), text.replace("/data/", ""))
}

/// A snapshot of Redis 7.0.15: four keys, of which one has expired and one will, in two databases, and a library.
pub(super) const SNAPSHOT: &str = "\
    524544495330303130fa0972656469732d76657206372e302e3135fa0a72656469732d62697473c040fa056374696d65c26d \
    d4096bfa08757365642d6d656dc2109b1000fa08616f662d62617365c000f5404423216c7561206e616d653d6c69620a7265 \
    6469732e72656769737465725f66756e6374696f6e282766272c2066756e6374696f6e28292072657475726e203120656e64 \
    29fe00fb0302fc8996005aa201000012016c01020d0d0000000200816102816202fffc21cd651ea20100000004676f6e65c0 \
    0100026b31027631fe03fb01001001680d0d0000000200816602817602ffff4ba578dbc0edda67 \
";

pub(super) fn snapshot() -> Vec<u8> {
    let digits: Vec<u8> = SNAPSHOT.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits
        .chunks_exact(2)
        .map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

#[test]
fn arguments_that_are_none_get_the_usage() {
    let disk = with_files(&[]);
    for args in [
        &[][..],
        &["a", "b"],
        &["--yes", "b"],
        &["--fix", "--fix", "b"],
        &["--truncate-to-timestamp", "b"],
    ] {
        let (code, text) = run(aof_main, &disk, args, "");
        assert!(
            code == 1 && text.starts_with("Usage: check [--fix"),
            "{args:?}: {text}"
        );
    }
    for args in [&[][..], &["a", "b"]] {
        let usage = "Usage: check <rdb-file-name>\n";
        assert_eq!(run(rdb_main, &disk, args, ""), (1, usage.into()));
    }
    assert!(run(rdb_main, &disk, &["-v"], "").1.starts_with("check 0."));
}

#[test]
fn help_is_no_name_of_a_file() {
    let disk = with_files(&[]);
    for word in ["--help", "-h"] {
        let (code, text) = run(aof_main, &disk, &[word], "");
        assert!(
            code == 0 && text.contains("Cut off an end"),
            "{code}: {text}"
        );
        let (code, text) = run(rdb_main, &disk, &[word], "");
        assert!(
            code == 0 && text.contains("Checks a snapshot"),
            "{code}: {text}"
        );
    }
    assert_eq!(run(aof_main, &disk, &["--help", "--fix"], "").0, 1);
}
