//! Tests of the reader: whole files, every cut of a tail, every flipped byte of it.

use super::*;

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// Returns what a file holds: its commands and annotations in order, and its end.
fn read(bytes: &[u8]) -> (Vec<Vec<Vec<u8>>>, End) {
    read_from(bytes, bytes.len() as u64)
}

fn read_from(source: impl Read, size: u64) -> (Vec<Vec<Vec<u8>>>, End) {
    let mut scanner = Scanner::new(source, 0, size);
    let mut items = Vec::new();
    loop {
        match scanner.next().unwrap() {
            Item::Command(command) => items.push(command.args.iter().map(<[u8]>::to_vec).collect()),
            Item::Annotation(annotation) => items.push(vec![annotation.line.to_vec()]),
            Item::End(end) => {
                assert!(matches!(scanner.next().unwrap(), Item::End(again) if again == end));
                return (items, end);
            }
        }
    }
}

/// Two hundred units of all kinds, and where each ends.
fn tail() -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for index in 0..40 {
        let value = "v".repeat(index);
        let units = [
            command(&["SET", &format!("k{index}"), &value]),
            format!("#TS:{}\r\n", 1_700_000_000 + index).into_bytes(),
            command(&["PING"]),
            [
                command(&["MULTI"]),
                command(&["DEL", "a"]),
                command(&["exec"]),
            ]
            .concat(),
            command(&["APPEND", "", "\r\n*1\r\n$4\r\nPING\r\n"]),
        ];
        for unit in units {
            bytes.extend_from_slice(&unit);
            ends.push(bytes.len());
        }
    }
    (bytes, ends)
}

#[test]
fn a_whole_file_gives_its_commands() {
    let (bytes, ends) = tail();
    let (items, end) = read(&bytes);
    assert_eq!(ends.len(), 200);
    assert_eq!(items.len(), 200 + 2 * 40);
    assert_eq!(items[4], vec![b"DEL".to_vec(), b"a".to_vec()]);
    assert_eq!(
        end,
        End::Whole {
            size: bytes.len() as u64
        }
    );
    assert_eq!(read(b""), (Vec::new(), End::Whole { size: 0 }));
}

#[test]
fn offsets_and_transactions_are_told() {
    let first = command(&["SET", "a", "b"]);
    let rest = [command(&["multi"]), b"#x\r\n".to_vec(), command(&["EXEC"])].concat();
    let bytes = [first.clone(), rest].concat();
    let mut scanner = Scanner::new(&bytes[..], 0, bytes.len() as u64);
    let mut seen = Vec::new();
    loop {
        match scanner.next().unwrap() {
            Item::Command(command) => seen.push((command.offset, command.is_in_transaction)),
            Item::Annotation(line) => seen.push((line.cut_at, true)),
            Item::End(_) => break,
        }
        seen.push((scanner.whole(), false));
    }
    let (one, all) = (first.len() as u64, bytes.len() as u64);
    let expected = [
        (0, false),
        (one, false),
        (one, false),
        (one, false),
        (one, true),
        (one, false),
        (all - 14, true),
        (all, false),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn every_cut_of_a_tail_is_found_at_its_last_whole_unit() {
    let (bytes, ends) = tail();
    let (all, _) = read(&bytes);
    for cut in 0..=bytes.len() {
        let (items, end) = read(&bytes[..cut]);
        assert!(all.starts_with(&items));
        let whole = ends.iter().rfind(|end| **end <= cut).copied().unwrap_or(0) as u64;
        match end {
            End::Whole { size } => assert_eq!((size, whole), (cut as u64, cut as u64)),
            End::Cut {
                whole: at, size, ..
            } => {
                assert_eq!((at, size), (whole, cut as u64));
                assert!(whole < size);
            }
            End::Corrupt { .. } => panic!("cut at {cut}: {end:?}"),
        }
    }
}

#[test]
fn every_flipped_byte_leaves_a_prefix_of_units_and_at_most_one_error() {
    let (bytes, ends) = tail();
    let (all, _) = read(&bytes);
    let mut errors = 0;
    for place in 0..bytes.len() {
        let mask = [0x01, 0x10, 0x80, 0xff][place % 4];
        let mut flipped = bytes.clone();
        flipped[place] ^= mask;
        let (items, end) = read(&flipped);
        let before = ends.iter().filter(|end| **end <= place).count();
        // Of five units the fourth has three commands.
        let before = before + 2 * (before / 5) + if before % 5 == 4 { 2 } else { 0 };
        assert_eq!(items[..before], all[..before], "{place} ^ {mask}");
        let (End::Whole { size: whole } | End::Cut { whole, .. } | End::Corrupt { whole, .. }) =
            end;
        let again = read(&flipped[..whole as usize]).1;
        assert_eq!(
            again,
            End::Whole { size: whole },
            "{place} ^ {mask}: {end:?}"
        );
        errors += usize::from(!matches!(end, End::Whole { .. }));
    }
    // The others are in values.
    assert!(errors > bytes.len() / 3, "{errors} of {}", bytes.len());
}

/// A source that gives as few bytes as it may.
struct Drip<'a>(&'a [u8]);

impl Read for Drip<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (now, rest) = self.0.split_at(self.0.len().min(1));
        self.0 = rest;
        into[..now.len()].copy_from_slice(now);
        Ok(now.len())
    }
}

#[test]
fn the_pieces_in_which_a_file_arrives_do_not_matter() {
    let (bytes, _) = tail();
    let cut = &bytes[..bytes.len() - 3];
    for bytes in [&bytes, cut] {
        assert_eq!(read_from(Drip(bytes), bytes.len() as u64), read(bytes));
    }
    // A file that has become shorter since its size was asked for.
    let (_, end) = read_from(cut, bytes.len() as u64);
    assert!(matches!(end, End::Cut { .. }), "{end:?}");
}

#[test]
fn a_length_takes_no_memory_before_its_bytes_are_there() {
    let claims = [
        &b"*1\r\n$4000000000\r\nabc"[..],
        b"*1\r\n$9223372036854775805\r\nabc",
        b"*9223372036854775807\r\n$1\r\na\r\n",
    ];
    for bytes in claims {
        let mut scanner = Scanner::new(bytes, 0, bytes.len() as u64);
        assert!(matches!(
            scanner.next().unwrap(),
            Item::End(End::Cut { .. })
        ));
        assert!(scanner.buffer.capacity() <= 2 * READ_BYTES);
        assert!(scanner.spans.capacity() <= 16);
    }
    // The size is a claim, too.
    let bytes = b"*1\r\n$4000000000\r\nabc";
    let mut scanner = Scanner::new(&bytes[..], 0, u64::MAX);
    assert!(matches!(
        scanner.next().unwrap(),
        Item::End(End::Cut { .. })
    ));
    assert!(scanner.buffer.capacity() <= 4 * READ_BYTES);
}

#[test]
fn a_long_command_is_read_and_its_memory_given_back() {
    let long = "x".repeat(3 << 20);
    let bytes = [
        command(&["SET", "a", &long]),
        command(&["PING"]),
        command(&["PING"]),
    ]
    .concat();
    let mut scanner = Scanner::new(&bytes[..], 0, bytes.len() as u64);
    let Item::Command(first) = scanner.next().unwrap() else {
        panic!("a command")
    };
    assert_eq!(&first.args[2], long.as_bytes());
    assert!(matches!(scanner.next().unwrap(), Item::Command(_)));
    assert!(matches!(scanner.next().unwrap(), Item::Command(_)));
    assert!(scanner.buffer.capacity() < 1 << 20);
}

#[test]
fn a_source_that_fails_is_asked_again() {
    struct Fails<'a>(&'a [u8], bool);
    impl Read for Fails<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                Err(io::Error::other("torn"))
            } else {
                Drip(self.0)
                    .read(into)
                    .inspect(|read| self.0 = &self.0[*read..])
            }
        }
    }
    let bytes = [
        command(&["MULTI"]),
        command(&["SET", "a", "b"]),
        command(&["EXEC"]),
    ]
    .concat();
    let mut scanner = Scanner::new(Fails(&bytes, false), 0, bytes.len() as u64);
    let (mut commands, mut errors) = (0, 0);
    loop {
        match scanner.next() {
            Ok(Item::Command(_)) => commands += 1,
            Ok(Item::End(end)) => {
                assert_eq!(
                    end,
                    End::Whole {
                        size: bytes.len() as u64
                    }
                );
                break;
            }
            Ok(Item::Annotation(_)) => panic!("there is none"),
            Err(_) => errors += 1,
        }
    }
    assert_eq!((commands, errors), (3, bytes.len() + 1));
}

#[test]
fn the_time_of_an_annotation() {
    let time = |line: &str| {
        let bytes = format!("{line}\r\n");
        let mut scanner = Scanner::new(bytes.as_bytes(), 0, bytes.len() as u64);
        match scanner.next().unwrap() {
            Item::Annotation(annotation) => annotation.time_s(),
            item => panic!("{item:?}"),
        }
    };
    assert_eq!(time("#TS:1700000000"), Some(Some(1_700_000_000)));
    assert_eq!(time("#TS:x"), Some(None));
    assert_eq!(time("#TS"), None);
    let long = format!("#{}", "x".repeat(ANNOTATION_BYTES_MAX - 3));
    assert_eq!(time(&long), None);
    let longer = format!("{long}x\r\n");
    let end = read(longer.as_bytes()).1;
    let flaw = Flaw {
        at: 0,
        what: What::LongAnnotation,
    };
    let size = longer.len() as u64;
    assert_eq!(
        end,
        End::Corrupt {
            whole: 0,
            size,
            flaw
        }
    );
}

#[test]
fn snapshots_are_known_by_their_magic() {
    for (first, expected) in [
        (&b"REDIS0011"[..], true),
        (b"VALKEY080", true),
        (b"REDIS00", false),
        (b"*1\r\n$5\r\nREDIS", false),
        (b"", false),
    ] {
        assert_eq!(starts_with_snapshot(first), expected);
    }
}

#[test]
fn only_what_is_allowed_is_cut() {
    let strict = Tolerance {
        takes_truncated: false,
        corrupt_tail_bytes_max: 0,
    };
    let mild = Tolerance {
        takes_truncated: true,
        corrupt_tail_bytes_max: 3,
    };
    let whole = command(&["PING"]);
    let cut = read(&[&whole[..], b"*1\r\n"].concat()).1;
    let corrupt = read(&[&whole[..], b"!!!"].concat()).1;
    let very_corrupt = read(&[&whole[..], b"!!!!"].concat()).1;
    let is_cut = |end: &End, is_last, tolerance| match course(end, "f.aof", is_last, tolerance) {
        Course::Cut { at, lines } => {
            assert_eq!(at, whole.len() as u64);
            assert!(
                lines[1].contains("Truncating the AOF f.aof at offset 14"),
                "{lines:?}"
            );
            true
        }
        Course::Refuse(lines) => {
            assert!(
                lines.last().unwrap().starts_with(['F', 'U', 'B']),
                "{lines:?}"
            );
            false
        }
        Course::Load => panic!("{end:?}"),
    };
    for (end, by_mild) in [(&cut, true), (&corrupt, true), (&very_corrupt, false)] {
        assert_eq!(is_cut(end, true, mild), by_mild);
        assert!(!is_cut(end, true, strict));
        assert!(!is_cut(end, false, mild));
    }
    assert_eq!(
        course(&read(&whole).1, "f.aof", false, strict),
        Course::Load
    );
    let open = read(&command(&["MULTI"])).1;
    let Course::Cut { at: 0, lines } = course(&open, "f.aof", true, mild) else {
        panic!("{open:?}")
    };
    assert_eq!(
        lines[0],
        "Revert incomplete MULTI/EXEC transaction in AOF file f.aof"
    );
}

#[test]
fn zeros_after_a_loss_of_power_do_not_hide_commands_in_an_annotation() {
    let first = command(&["SET", "a", "1"]);
    let lost = command(&["SET", "a", "2"]).len();
    let bytes = [
        &first[..],
        b"#TS:1",
        &vec![0; lost][..],
        b"#TS:2\r\n",
        &first,
    ]
    .concat();
    let (items, end) = read(&bytes);
    assert_eq!(items.len(), 1);
    let (whole, size) = (first.len() as u64, bytes.len() as u64);
    let flaw = Flaw {
        at: whole,
        what: What::BadAnnotation,
    };
    assert_eq!(end, End::Corrupt { whole, size, flaw });
}
