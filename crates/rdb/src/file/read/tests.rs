//! Files written and read back in every version, files of real servers, and files that are damaged.

use redline_types::{DataType, Value};

use super::*;
use crate::{
    Format, ObjectRef, crc64,
    file::write,
    format::CannotTell,
    object::tests::{contents, limits, object, object_ref},
    primitive::{Writer, write_len},
};

const VERSIONS: [FileVersion; 5] = [
    FileVersion::Redis(9),
    FileVersion::Redis(10),
    FileVersion::Redis(11),
    FileVersion::Redis(12),
    FileVersion::VALKEY,
];

/// Files of servers that were given the same commands, and those their version has beyond.
const REDIS_7: &[u8] = include_bytes!("../../../tests/data/redis-7.0.15.bin");
const REDIS_8: &[u8] = include_bytes!("../../../tests/data/redis-8.2.3.bin");
const VALKEY_9: &[u8] = include_bytes!("../../../tests/data/valkey-9.1.2.bin");

/// Source that gives so many bytes at a time, and counts how often it was asked.
struct Pieces<'a> {
    rest: &'a [u8],
    piece: usize,
    fills: usize,
}

impl Source for Pieces<'_> {
    fn fill(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let (piece, rest) = self.rest.split_at(self.piece.min(self.rest.len()));
        buffer.extend_from_slice(piece);
        self.rest = rest;
        self.fills += 1;
        Ok(piece.len())
    }
}

fn pieces(rest: &[u8], piece: usize) -> Pieces<'_> {
    Pieces {
        rest,
        piece,
        fills: 0,
    }
}

fn format(version: FileVersion) -> Format {
    Format {
        version,
        compresses: true,
        checksums: true,
    }
}

/// Returns a file of these records, with its checksum.
fn file_of(version: FileVersion, records: &[u8]) -> Vec<u8> {
    let mut out = Writer::new(true);
    write::header(&mut out, &format(version));
    out.extend_from_slice(records);
    let crc = crc64::update(0, &out);
    write::trailer(&mut out, Some(crc));
    out.into_bytes()
}

/// Reads all of a file, and returns its records and values as lines.
fn lines(source: impl Source, checks: bool) -> std::result::Result<Vec<String>, FileError> {
    let mut scanner = Scanner::new(source);
    if !checks {
        scanner.ignore_checksum();
    }
    let version = scanner.header()?;
    let mut lines = Vec::new();
    loop {
        let line = match scanner.next()? {
            Record::Aux { name, value } => {
                format!("aux {} {}", name.escape_ascii(), value.escape_ascii())
            }
            Record::SelectDb(db) => format!("db {db}"),
            Record::ResizeDb { keys, expiring } => format!("keys {keys} {expiring}"),
            Record::Function(text) => format!("function {}", text.escape_ascii()),
            Record::Entry(entry) => {
                let object = decode(version, entry.rdb_type, entry.value, &limits());
                let object = object.map_err(|corrupt| entry.error(corrupt))?;
                let (key, mut meta) = (entry.key.escape_ascii().to_string(), String::new());
                if entry.meta != EntryMeta::default() {
                    meta = format!(" {:?}", entry.meta);
                }
                format!("{key}{meta} {}", contents(&object).join(" "))
            }
            Record::End => return Ok(lines),
        };
        lines.push(line);
    }
}

fn error_of(file: &[u8]) -> FileErrorKind {
    match lines(file, true) {
        Err(error) => error.kind,
        Ok(lines) => panic!("read: {lines:?}"),
    }
}

fn meta(random: &mut fastrand::Rng) -> EntryMeta {
    EntryMeta {
        expire_at_ms: Some(random.i64(0..1 << 45)).filter(|_| random.bool()),
        recency: match random.u8(..3) {
            0 => Some(Recency::IdleSeconds(random.u64(..1 << 30))),
            1 => Some(Recency::Frequency(random.u8(..))),
            _ => None,
        },
    }
}

/// Returns a stream's contents less what older forms do not have: everything but its entries and last id.
fn told(object: &Object, version: FileVersion) -> Vec<String> {
    let mut lines = contents(object);
    if let Object::Value(Value::Stream(stream)) = object
        && version.redis_forms() < 11
    {
        lines.truncate(stream.len());
        lines.push(stream.last_id().to_string());
    }
    lines
}

#[test]
fn every_value_comes_back_in_every_version_that_holds_it() {
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..60 {
        let object = object(&mut random);
        let mut key = vec![0; random.usize(..30)];
        key.fill_with(|| random.u8(b'0'..=b'b'));
        let meta = meta(&mut random);
        for version in VERSIONS {
            let mut out = Writer::new(random.bool());
            write::header(&mut out, &format(version));
            let before = out.len();
            let written =
                write::entry(&mut out, &format(version), &key, object_ref(&object), &meta);
            if let Err(CannotTell { what }) = written {
                assert_eq!((what, out.len()), ("a vector set", before));
                assert!(matches!(&object, Object::Value(Value::VectorSet(_))));
                assert!(version != FileVersion::Redis(12));
                continue;
            }
            write::trailer(&mut out, None);
            let mut scanner = Scanner::new(pieces(&out, 1 + random.usize(..40)));
            assert_eq!(scanner.header().expect("a header"), version);
            let Ok(Record::Entry(entry)) = scanner.next() else {
                panic!("no entry in round {round}");
            };
            assert_eq!((&*entry.key, entry.meta), (&key[..], meta));
            let read = decode(version, entry.rdb_type, entry.value, &limits());
            let read = read.unwrap_or_else(|e| panic!("{version}: {e:?}"));
            assert_eq!(told(&read, version), told(&object, version), "{version}");
            assert!(matches!(scanner.next(), Ok(Record::End)));
            assert_eq!(scanner.offset(), out.len() as u64);
            // A value of an old form is written again as it was.
            let mut again = Writer::new(true);
            let mut once_more = Writer::new(true);
            for (out, object) in [(&mut again, &read), (&mut once_more, &object)] {
                write::entry(out, &format(version), &key, object_ref(object), &meta)
                    .expect("as before");
            }
            // Tables may have another order.
            assert_eq!(again.first(), once_more.first());
            if matches!(
                &object,
                Object::Value(Value::Stream(_) | Value::Zset(_) | Value::List(_))
            ) {
                assert_eq!(*again, *once_more, "{version}");
            }
        }
    }
}

#[test]
fn records_come_back_however_they_arrive() {
    let version = FileVersion::Redis(11);
    let mut out = Writer::new(true);
    write::header(&mut out, &format(version));
    write::aux(&mut out, b"redis-ver", b"8.2.3");
    write::aux(&mut out, b"ctime", b"1700000000");
    write::aux(&mut out, b"empty", b"");
    write::function(&mut out, b"#!lua name=x\n");
    write::select_db(&mut out, 0);
    write::resize_db(&mut out, 300, 70_000);
    let (plain, timed) = (
        EntryMeta::default(),
        EntryMeta {
            expire_at_ms: Some(1_700_000_000_123),
            recency: Some(Recency::Frequency(7)),
        },
    );
    for (key, meta) in [
        (&b"key"[..], &plain),
        (b"-17", &timed),
        (&[b'k'; 99], &timed),
    ] {
        write::entry(
            &mut out,
            &format(version),
            key,
            ObjectRef::String(b"v"),
            meta,
        )
        .expect("told");
    }
    write::select_db(&mut out, 1 << 20);
    write::string_entry_head(&mut out, b"blob", &timed);
    write_len(&mut out, 3);
    out.extend_from_slice(b"123");
    let crc = crc64::update(0, &out);
    write::trailer(&mut out, Some(crc));
    let timed = "EntryMeta { expire_at_ms: Some(1700000000123), recency: Some(Frequency(7)) }";
    let expected = [
        "aux redis-ver 8.2.3".to_owned(),
        "aux ctime 1700000000".to_owned(),
        "aux empty ".to_owned(),
        "function #!lua name=x\\n".to_owned(),
        "db 0".to_owned(),
        "keys 300 70000".to_owned(),
        "key v".to_owned(),
        format!("-17 {timed} v"),
        format!("{} {timed} v", "k".repeat(99)),
        "db 1048576".to_owned(),
        format!("blob {timed} 123"),
    ];
    for piece in [1, 2, 3, 10, 1000] {
        assert_eq!(lines(pieces(&out, piece), true).expect("a file"), expected);
    }
    assert_eq!(lines(&out[..], true).expect("a file"), expected);
}

/// Ensures that long and short records in turn are right across the places where bytes are forgotten.
#[test]
fn bytes_were_forgotten_that_belonged_to_a_record() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut out = Writer::new(false);
    let format = format(FileVersion::Redis(11));
    write::header(&mut out, &format);
    let mut texts = Vec::new();
    for i in 0..3000 {
        let len = match i % 1000 {
            500 => 6 << 20,
            501 | 900 => 300 << 10,
            _ => random.usize(..2000),
        };
        let (key, text) = (format!("key:{i}"), vec![i as u8; len]);
        write::entry(
            &mut out,
            &format,
            key.as_bytes(),
            ObjectRef::String(&text),
            &EntryMeta::default(),
        )
        .expect("a string");
        texts.push((key, text));
    }
    let crc = crc64::update(0, &out);
    write::trailer(&mut out, Some(crc));
    for piece in [1 << 10, 100_000, 256 << 10, 1 << 20] {
        let mut scanner = Scanner::new(pieces(&out, piece));
        for (key, text) in &texts {
            match scanner.next() {
                Ok(Record::Entry(entry)) => {
                    assert_eq!(entry.key, key.as_bytes());
                    let object = decode(format.version, entry.rdb_type, entry.value, &limits());
                    assert!(matches!(object, Ok(Object::String(read)) if read == *text));
                }
                other => panic!("{other:?} instead of {key}"),
            }
        }
        assert!(matches!(scanner.next(), Ok(Record::End)));
        // The long ones are given back.
        assert!(scanner.room() <= 4 << 20, "{} bytes", scanner.room());
    }
}

#[test]
fn a_file_ends_where_it_ends() {
    let mut out = file_of(FileVersion::Redis(11), b"\xfe\x00\x00\x01k\x01v");
    let len = out.len();
    out.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
    let mut scanner = Scanner::new(&out[..]);
    while !matches!(scanner.next().expect("a record"), Record::End) {}
    assert!(matches!(scanner.next(), Ok(Record::End)));
    assert_eq!(scanner.offset(), len as u64);
    let (source, behind) = scanner.into_parts();
    assert_eq!([&behind, source].concat(), b"*1\r\n$4\r\nPING\r\n");
}

#[test]
fn the_header_is_read_alone() {
    let file = file_of(FileVersion::Redis(11), b"");
    let mut scanner = Scanner::new(pieces(&file, 9));
    assert_eq!(scanner.header().expect("a header"), FileVersion::Redis(11));
    assert_eq!(scanner.offset(), 9);
    let (source, behind) = scanner.into_parts();
    assert_eq!((source.fills, behind.len()), (1, 0));
    for (magic, is_version) in [
        (b"REDIS0013", true),
        (b"REDIS0000", true),
        (b"VALKEY081", true),
        (b"VALKEY011", true),
        (b"RUBIS0011", false),
        (b"+FULLRESY", false),
    ] {
        let kind = error_of(magic);
        assert_eq!(matches!(kind, FileErrorKind::Version(_)), is_version);
        assert_eq!(matches!(kind, FileErrorKind::BadMagic), !is_version);
    }
    assert!(matches!(error_of(b"REDIS001"), FileErrorKind::Cut));
    assert!(matches!(error_of(b""), FileErrorKind::Cut));
}

#[test]
fn errors_are_lines_with_an_offset() {
    struct Broken;
    impl Source for Broken {
        fn fill(&mut self, _: &mut Vec<u8>) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let text = |result: std::result::Result<Vec<String>, FileError>| {
        result.expect_err("an error").to_string()
    };
    assert_eq!(
        text(lines(Broken, true)),
        "RDB file cannot be read: the disk is gone (offset 0)"
    );
    assert_eq!(
        text(lines(&b"REDIS0013"[..], true)),
        "RDB file of version REDIS0013, which is not read: versions up to REDIS0012 and VALKEY080 are (offset 0)"
    );
    let damaged = file_of(FileVersion::Redis(11), b"\xfe\x00\x02\x01k\x02\x01a\x01a");
    assert_eq!(
        text(lines(&damaged[..], true)),
        "RDB file is damaged: a member twice (offset 11)"
    );
    let mut wrong = file_of(FileVersion::Redis(11), b"\xfe\x00");
    *wrong.last_mut().expect("a checksum") ^= 0x80;
    let error = text(lines(&wrong[..], true));
    assert!(
        error.starts_with("RDB CRC error: its checksum is "),
        "{error}"
    );
    assert!(error.ends_with("(offset 20)"), "{error}");
    assert_eq!(lines(&wrong[..], false).expect("not compared"), ["db 0"]);
}

/// Ensures what is read of files of old servers: no checksum before version 5, and expiries in seconds.
#[test]
fn files_of_old_servers_are_read() {
    let body =
        b"\xfe\x02\xfd\x00\xf1\x53\x65\x00\x01k\x01v\x09\x01h\x0b\x01\x03foo\x03\x00bar\xff\xff";
    for version in 1..=12 {
        let mut file = FileVersion::Redis(version).magic().to_vec();
        file.extend_from_slice(body);
        if version >= 5 {
            assert!(matches!(error_of(&file), FileErrorKind::Cut));
            file.extend_from_slice(&[0; 8]);
        }
        assert_eq!(
            lines(&file[..], true).expect("a file"),
            [
                "db 2",
                "k EntryMeta { expire_at_ms: Some(1700000000000), recency: None } v",
                "h foo bar",
            ],
            "{version}"
        );
    }
    // What Redis takes for none.
    let never = file_of(
        FileVersion::Redis(9),
        b"\xfc\xff\xff\xff\xff\xff\xff\xff\xff\x00\x01k\x01v",
    );
    assert_eq!(lines(&never[..], true).expect("a file"), ["k v"]);
}

/// Ensures that names of forms mean what they meant to the server that wrote them.
#[test]
fn a_name_of_a_form_is_its_version_s() {
    let early = b"\x16\x01h\x02\x00\x01a\x01b\x81\x00\x00\x01\x8b\xcf\xe5\x68\x00\x01c\x01d";
    let valkey = b"\x16\x01h\x01\x01a\x01b\xff\xff\xff\xff\xff\xff\xff\xff";
    let read = |version, records: &[u8]| lines(&file_of(version, records)[..], true);
    assert_eq!(
        read(FileVersion::Redis(12), early).expect("its form"),
        ["h a b c d !!hexpire!!"]
    );
    assert_eq!(
        read(FileVersion::VALKEY, valkey).expect("its form"),
        ["h a b"]
    );
    assert!(read(FileVersion::VALKEY, early).is_err());
    for (version, rdb_type) in [
        (FileVersion::Redis(11), 22),
        (FileVersion::Redis(11), 23),
        (FileVersion::VALKEY, 23),
        (FileVersion::VALKEY, 24),
        (FileVersion::VALKEY, 25),
        (FileVersion::VALKEY, 243),
        (FileVersion::Redis(12), 26),
        (FileVersion::Redis(12), 8),
    ] {
        let file = file_of(version, &[rdb_type, 1, b'k']);
        assert!(matches!(error_of(&file), FileErrorKind::UnknownType(found) if found == rdb_type));
    }
    // The packed form of release candidates: a triple in a listpack.
    let packed = b"\x17\x01h\x0f\x0f\0\0\0\x03\0\x81a\x02\x81b\x02\x05\x01\xff";
    assert_eq!(
        read(FileVersion::Redis(12), packed).expect("its form"),
        ["h a b !!hexpire!!"]
    );
}

#[test]
fn times_of_fields_in_valkey_s_form() {
    let hash = |at_ms: i64| {
        let records = [b"\x16\x01h\x01\x01a\x01b", &at_ms.to_le_bytes()[..]].concat();
        let file = file_of(FileVersion::VALKEY, &records);
        let mut scanner = Scanner::new(&file[..]);
        match scanner.next() {
            Ok(Record::Entry(entry)) => {
                match decode(FileVersion::VALKEY, 22, entry.value, &limits()) {
                    Ok(Object::Value(Value::Hash(hash))) => {
                        Some(hash.iter_timed().next().and_then(|(_, _, at)| at))
                    }
                    _ => None,
                }
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(hash(-1), Some(None));
    assert_eq!(hash(1_700_000_000_000), Some(Some(1_700_000_000_000)));
    assert_eq!(hash(i64::MAX), Some(Some((1 << 46) - 1)));
    assert_eq!(hash(0), None);
    assert_eq!(hash(-2), None);
}

/// Returns a module's value in parts of every kind.
fn module_parts() -> Vec<u8> {
    let mut parts = Vec::new();
    parts.extend_from_slice(b"\x01\x05\x02\x41\x00\x03abcd\x04abcdefgh");
    parts.extend_from_slice(b"\x05\x03abc\x05\xc3\x02\x0aab\x05\xc1ab\x00");
    parts
}

#[test]
fn modules_are_named() {
    const UNKNOWN: u64 = ModuleType::new("NoSuchOne", 3).0;
    let mut name = Vec::new();
    write_len(&mut name, UNKNOWN);
    let aux = [&[opcode::MODULE_AUX], &name[..], &module_parts()].concat();
    let slot = b"\xf4\x40\x64\x05\x01";
    let file = file_of(
        FileVersion::Redis(12),
        &[&aux[..], slot, b"\x00\x01k\x01v"].concat(),
    );
    for piece in [1, 1000] {
        let mut scanner = Scanner::new(pieces(&file, piece));
        assert!(matches!(scanner.next(), Ok(Record::Entry(_))));
        assert!(matches!(scanner.next(), Ok(Record::End)));
        assert_eq!(scanner.skipped_module(), Some(ModuleType(UNKNOWN)));
        assert_eq!(ModuleType(UNKNOWN).to_string(), "NoSuchOne");
    }
    for kind in [6, 7] {
        let value = [&[kind, 1, b'k'][..], &name, &module_parts()].concat();
        match error_of(&file_of(FileVersion::Redis(12), &value)) {
            FileErrorKind::Module(found) => assert_eq!(found, ModuleType(UNKNOWN)),
            other => panic!("{other:?}"),
        }
    }
    let early = file_of(FileVersion::Redis(10), &[opcode::FUNCTION_EARLY]);
    assert!(matches!(error_of(&early), FileErrorKind::EarlyFunction));
}

#[test]
fn unknown_modules_values_are_passed_over_if_that_is_asked_for() {
    let mut records = b"\xfc\x01\0\0\0\0\0\0\0\x07\x01j".to_vec();
    write_len(&mut records, ModuleType::new("NoSuchOne", 1023).0);
    records.extend(module_parts());
    records.extend(b"\x00\x01k\x01v");
    let file = file_of(FileVersion::Redis(12), &records);
    for piece in [1, 1000] {
        let mut scanner = Scanner::new(pieces(&file, piece));
        scanner.skip_unknown_modules();
        match scanner.next() {
            Ok(Record::Entry(entry)) => {
                assert_eq!(&*entry.key, b"k");
                assert_eq!(entry.meta.expire_at_ms, None, "that of the key before");
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(scanner.next(), Ok(Record::End)));
        assert_eq!(scanner.skipped_values(), 1);
    }
    let mut scanner = Scanner::new(&file[..]);
    let error = scanner.next().expect_err("it is unknown");
    assert!(
        error.to_string().contains("NoSuchOne, version 1023"),
        "{error}"
    );
}

#[test]
fn versions_that_values_need() {
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..100 {
        let object = object(&mut random);
        let needed = match &object {
            Object::Value(Value::VectorSet(_)) => 12,
            _ => 11,
        };
        assert_eq!(write::needs_version(object_ref(&object)), needed);
    }
    let mut hash = redline_types::Hash::new();
    hash.set(b"f", b"v", &limits());
    hash.set_expire_at_ms(b"f", Some(5_000_000_000_000));
    let timed = Value::from(hash.clone());
    assert_eq!(write::needs_version(ObjectRef::Value(&timed)), 12);
    hash.set_expire_at_ms(b"f", None);
    let cleared = Value::from(hash);
    assert_eq!(write::needs_version(ObjectRef::Value(&cleared)), 11);
    for version in VERSIONS {
        let mut out = Writer::new(true);
        let mut write = |value| {
            out.clear();
            let meta = EntryMeta::default();
            write::entry(
                &mut out,
                &format(version),
                b"k",
                ObjectRef::Value(value),
                &meta,
            )
            .map(|()| out[0])
        };
        let (timed, cleared) = (write(&timed), write(&cleared));
        let expected = match version {
            FileVersion::Redis(9) => (None, 4),
            FileVersion::Redis(12) => (Some(25), 25),
            FileVersion::Valkey(_) => (Some(22), 16),
            _ => (None, 16),
        };
        assert_eq!((timed.ok(), cleared.expect("told")), expected, "{version}");
    }
}

/// Lines that the files of all three servers have, in the order of their text.
const COMMON: [&str; 24] = [
    "100000 v",
    "42 intkey",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa compressedkey",
    "aux aof-base 0",
    "aux redis-bits 64",
    "bighash f v g 7 h xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "biglist a b c d eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee 6",
    "bigset 1 2 3 a b c this-is-a-rather-long-member-that-is-longer-than-sixty-four-bytes-of-it",
    "bigzset a 1.0 b 2.5 c inf d -inf",
    "db 0",
    "db 5",
    "empty 1-1 1-1 1",
    "expiring EntryMeta { expire_at_ms: Some(99999999999999), recency: None } v",
    r"function #!lua name=x\nredis.register_function(\'f\',function() return 1 end)",
    "hash f v g 7",
    "int 123456",
    "iset 1 2 300",
    "k EntryMeta { expire_at_ms: Some(88888888888888), recency: None } v",
    "keys 1 1",
    "list a b 3 d",
    "neg -5",
    "plain hello",
    "set a b c",
    "zset a 1.0 b 2.5 c inf d -inf",
];

#[test]
fn files_of_real_servers_hold_what_they_were_given() {
    let timed: [&str; 2] = [
        "timed a 1 !!hexpire!! b 2",
        "timedbig a 1 !!hexpire!! b 2 !!hexpire!! c 3",
    ];
    let vectors = "vec Shape { dimensions: 2, quantization: Int8, links: 16, projection: None } \
        [97] 1 Stored { norm: 2.236068, range: 0.8944272, components: Int8([63, 127]) } Some([123, 125]) [[[98]]] \
        [98] 2 Stored { norm: 3.1622777, range: 0.94868326, components: Int8([127, 42]) } None [[[97]]]";
    for (file, beyond) in [
        (REDIS_7, &["aux redis-ver 7.0.15", "keys 19 1"][..]),
        (
            REDIS_8,
            &[
                "aux redis-ver 8.2.3",
                "keys 22 1",
                timed[0],
                timed[1],
                vectors,
            ],
        ),
        (
            VALKEY_9,
            &["aux valkey-ver 9.1.2", "keys 21 1", timed[0], timed[1]],
        ),
    ] {
        let mut found = lines(file, true).expect("a file of a server");
        let long = format!("long {}", "a".repeat(99));
        let mut expected: Vec<&str> = COMMON.iter().chain(beyond).copied().collect();
        expected.push(&long);
        // Its times differ.
        let stream = found.iter().find(|line| line.starts_with("stream "));
        let stream = stream.expect("the stream").clone();
        let head = "stream 1-1 [([102], [118]), ([103], [119])] 3-0 [([111, 116, 104, 101, 114], [120])] \
            3-0 2-0 3 [103] 1-1 None [(StreamId { ms: 1, seq: 1 }, ";
        assert!(stream.starts_with(head), "{stream}");
        assert!(
            stream.contains("([97, 108, 105, 99, 101], ") && stream.contains("([98, 111, 98], ")
        );
        found.retain(|line| {
            !["aux ctime ", "aux used-mem ", "stream "]
                .iter()
                .any(|head| line.starts_with(head))
        });
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}

/// Ensures that a file of a real server, written again, is read as the same.
#[test]
fn files_of_real_servers_are_written_again() {
    for file in [REDIS_7, REDIS_8, VALKEY_9] {
        let mut scanner = Scanner::new(file);
        let version = scanner.header().expect("a header");
        let mut out = Writer::new(true);
        write::header(&mut out, &format(version));
        loop {
            match scanner.next().expect("a record") {
                Record::Aux { name, value } => write::aux(&mut out, &name, &value),
                Record::SelectDb(db) => write::select_db(&mut out, db),
                Record::ResizeDb { keys, expiring } => write::resize_db(&mut out, keys, expiring),
                Record::Function(text) => write::function(&mut out, &text),
                Record::Entry(entry) => {
                    let object = decode(version, entry.rdb_type, entry.value, &limits());
                    let object = object.expect("a value");
                    write::entry(
                        &mut out,
                        &format(version),
                        &entry.key,
                        object_ref(&object),
                        &entry.meta,
                    )
                    .expect("a form");
                }
                Record::End => break,
            }
        }
        let crc = crc64::update(0, &out);
        write::trailer(&mut out, Some(crc));
        assert_eq!(
            lines(&out[..], true).expect("ours"),
            lines(file, true).expect("a server's")
        );
    }
}

/// Returns files with values of all types, in every version.
fn files() -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut files: Vec<Vec<u8>> = [REDIS_7, REDIS_8, VALKEY_9].map(<[u8]>::to_vec).into();
    for version in VERSIONS {
        let mut out = Writer::new(true);
        write::select_db(&mut out, 3);
        while out.len() < 700 {
            let (object, meta) = (object(&mut random), meta(&mut random));
            let before = out.len();
            let told = write::entry(
                &mut out,
                &format(version),
                b"key",
                object_ref(&object),
                &meta,
            );
            // Short ones, since each byte of a file is a test.
            if told.is_err() || out.len() > before + 300 {
                out.truncate(before);
            }
        }
        files.push(file_of(version, &out));
    }
    files
}

/// Reads all of a file that may be damaged, of which nothing may be held that did not arrive. Returns true if it was
/// read to its end.
fn survives(file: &[u8], piece: usize) -> bool {
    /// Bytes on the heap for each byte of a value: a repetition has 88 for one, and an element of a byte takes some
    /// dozens.
    const HEAP_RATIO_MAX: usize = 88 * 64;
    let mut scanner = Scanner::new(pieces(file, piece));
    let Ok(version) = scanner.header() else {
        return false;
    };
    let is_read = loop {
        match scanner.next() {
            Ok(Record::End) => break true,
            Ok(Record::Entry(entry)) => {
                assert!(entry.value.len() <= file.len());
                let object = decode(version, entry.rdb_type, entry.value, &limits());
                if let Ok(Object::Value(value)) = &object {
                    assert!(value.heap_bytes() <= 4096 + entry.value.len() * HEAP_RATIO_MAX);
                }
                if let Ok(Object::String(text)) = &object {
                    assert!(text.len() <= 11 + entry.value.len() * 88);
                }
            }
            Ok(_) => {}
            Err(error) => {
                assert!(error.offset <= file.len() as u64, "{error}");
                assert!(!error.to_string().contains('\n'));
                break false;
            }
        }
    };
    assert!(scanner.room() <= (1 << 20) + 88 * file.len());
    is_read
}

#[test]
fn files_cut_at_every_byte_are_refused() {
    for file in files() {
        assert!(survives(&file, 100));
        for cut in 0..file.len() {
            assert!(!survives(&file[..cut], 1000), "{cut}");
        }
    }
}

#[test]
fn files_with_a_damaged_byte_are_refused_or_hold_values() {
    let mut random = fastrand::Rng::with_seed(8);
    for mut file in files() {
        for at in 0..file.len() {
            let byte = file[at];
            for damaged in [byte ^ 1 << random.u8(..8), random.u8(..), 0x81] {
                if damaged == byte {
                    continue;
                }
                file[at] = damaged;
                let is_read = survives(&file, 1000);
                // A file of an old version has no checksum.
                let is_old = FileVersion::of_magic(file.first_chunk().expect("a header"))
                    .is_some_and(|version| !version.has_checksum());
                assert!(!is_read || is_old, "{damaged} at {at} went unseen");
            }
            file[at] = byte;
        }
    }
}

/// Ensures that a length or a number that is claimed is not believed, in any place where one stands.
#[test]
fn claims_are_not_believed() {
    let mut claim = vec![0x81];
    claim.extend_from_slice(&(1u64 << 60).to_be_bytes());
    let compressed = [b"\xc3\x02", &claim[..], b"\x00a"].concat();
    let cut = [b"\xc3", &claim[..], b"\x05\x00a"].concat();
    for version in VERSIONS {
        for rdb_type in (0..=25).chain(244..=254) {
            for lie in [&claim, &compressed, &cut] {
                for behind in [0, 9, 1000] {
                    let behind = vec![1; behind];
                    for head in [
                        &b""[..],
                        b"\x01k",
                        b"\x01k\x01",
                        b"\x01k\x01\x01a",
                        b"\x01k\0\0\0\0\0\0\0\0",
                    ] {
                        let records = [&[rdb_type], head, lie, &behind].concat();
                        let mut file = version.magic().to_vec();
                        file.extend_from_slice(&records);
                        assert!(!survives(&file, 1000), "{rdb_type}");
                    }
                }
            }
        }
    }
}
