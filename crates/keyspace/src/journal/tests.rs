//! The journal as a whole: units of several workers, and the stream that comes of them.

use std::sync::{Mutex, mpsc};

use fastrand::Rng;

use super::*;
use crate::entry::{Blob, INLINE_BYTES_MAX};

/// What a stream has got.
#[derive(Default)]
struct Caught {
    /// For replicas.
    all: Vec<u8>,
    file: Vec<u8>,
    ends: Vec<Position>,
    cuts: Vec<Position>,
    /// Number of pieces of each write.
    pieces: Vec<usize>,
    blobs: Vec<Blob>,
    ended: bool,
}

impl Caught {
    /// Returns what has come since the last call, words divided by spaces, commands by bars: for replicas, and for files.
    fn texts(&mut self) -> [String; 2] {
        [&mut self.all, &mut self.file].map(|bytes| {
            let text = String::from_utf8(std::mem::take(bytes)).expect("texts alone");
            let words = text.split("\r\n").filter(|line| !line.starts_with('$'));
            let words = words.map(|word| if word.starts_with('*') { "|" } else { word });
            words
                .collect::<Vec<_>>()
                .join(" ")
                .trim_matches([' ', '|'])
                .replace(" | ", "|")
        })
    }
}

struct Catching(Arc<Mutex<Caught>>);

impl Stream for Catching {
    fn write(&mut self, pieces: &[Piece<'_>], end: Position) {
        let mut caught = self.0.lock().unwrap();
        for piece in pieces {
            caught.all.extend_from_slice(piece.bytes());
            if piece.is_for_files() {
                caught.file.extend_from_slice(piece.bytes());
            }
            caught.blobs.extend(piece.blob().cloned());
        }
        caught.ends.push(end);
        caught.pieces.push(pieces.len());
    }

    fn cut(&mut self, at: Position) {
        self.0.lock().unwrap().cuts.push(at);
    }
}

impl Drop for Catching {
    fn drop(&mut self) {
        self.0.lock().unwrap().ended = true;
    }
}

fn attach(journal: &Journal) -> Arc<Mutex<Caught>> {
    let caught = Arc::<Mutex<Caught>>::default();
    journal.attach(Box::new(Catching(caught.clone())));
    caught
}

/// Attaches a reader of records.
fn attach_reader(journal: &Journal) -> mpsc::Receiver<Record> {
    let (give, records) = mpsc::channel();
    journal.attach(Box::new(RecordReader::new(move |record| {
        drop(give.send(record));
    })));
    records
}

fn push(journal: &Journal, writer: &mut Writer, db: impl Into<Option<u32>>, line: &str) {
    let words = line.split(' ').map(|word| Word::Bytes(word.as_bytes()));
    writer.push(journal, db.into(), words);
}

fn write(journal: &Journal, writer: &mut Writer, db: u32, line: &str) -> u64 {
    push(journal, writer, db, line);
    writer.commit(journal)
}

fn pump(journal: &Journal) {
    journal.pump_all();
}

/// What records say, without their numbers.
fn lines(records: &mpsc::Receiver<Record>) -> Vec<String> {
    let text = |record: Record| {
        let commands = record.commands.into_iter().map(|command| {
            let words = command
                .words
                .iter()
                .map(|word| String::from_utf8_lossy(word));
            format!("{} {}", command.db, words.collect::<Vec<_>>().join(" "))
        });
        commands.collect::<Vec<_>>().join("; ")
    };
    records.try_iter().map(text).collect()
}

#[test]
fn the_stream_selects_where_the_database_changes_and_brackets_units() {
    let journal = Journal::default();
    let caught = attach(&journal);
    let mut writer = Writer::default();
    write(&journal, &mut writer, 0, "SET a 1");
    write(&journal, &mut writer, 0, "SET b 2");
    write(&journal, &mut writer, 12, "SET c 3");
    push(&journal, &mut writer, 12, "DEL c");
    push(&journal, &mut writer, 3, "INCR n");
    push(&journal, &mut writer, 3, "INCR m");
    writer.commit(&journal);
    write(&journal, &mut writer, 3, "DEL n");
    pump(&journal);
    let [all, file] = caught.lock().unwrap().texts();
    assert_eq!(
        all,
        "SELECT 0|SET a 1|SET b 2|SELECT 12|SET c 3|MULTI|DEL c|SELECT 3|INCR n|INCR m|EXEC|DEL n"
    );
    assert_eq!(all, file);
}

#[test]
fn messages_have_no_database_and_go_to_no_file() {
    let journal = Journal::default();
    let caught = attach(&journal);
    let mut writer = Writer::default();
    let texts = |writer: &mut Writer| {
        writer.commit(&journal);
        pump(&journal);
        caught.lock().unwrap().texts()
    };
    push(&journal, &mut writer, None, "PUBLISH c 1");
    assert_eq!(texts(&mut writer), ["PUBLISH c 1", ""]);
    push(&journal, &mut writer, None, "PUBLISH c 2");
    push(&journal, &mut writer, None, "PUBLISH c 3");
    assert_eq!(
        texts(&mut writer),
        ["MULTI|PUBLISH c 2|PUBLISH c 3|EXEC", ""]
    );
    push(&journal, &mut writer, None, "PUBLISH c 4");
    push(&journal, &mut writer, 1, "INCR n");
    push(&journal, &mut writer, None, "PUBLISH c 5");
    push(&journal, &mut writer, 2, "INCR n");
    assert_eq!(
        texts(&mut writer),
        [
            "SELECT 1|MULTI|PUBLISH c 4|INCR n|PUBLISH c 5|SELECT 2|INCR n|EXEC",
            "SELECT 1|MULTI|INCR n|SELECT 2|INCR n|EXEC"
        ]
    );
    push(&journal, &mut writer, 2, "INCR n");
    assert_eq!(texts(&mut writer), ["INCR n"; 2]);
}

#[test]
fn a_number_that_is_taken_and_not_published_holds_the_rest_back() {
    let journal = Journal::default();
    let records = attach_reader(&journal);
    let (mut a, mut b) = (Writer::default(), Writer::default());
    write(&journal, &mut a, 0, "SET 1 1");
    // A worker that is stopped between its number and its record.
    push(&journal, &mut b, 0, "SET 2 2");
    let stalled = journal.next.fetch_add(1, Ordering::Relaxed);
    assert_eq!(write(&journal, &mut a, 0, "SET 3 3"), 3);
    pump(&journal);
    assert_eq!(lines(&records), ["0 SET 1 1"]);
    assert_eq!(journal.merged().number, 1);
    journal.next.store(stalled, Ordering::Relaxed);
    assert_eq!(b.commit(&journal), 2);
    journal.next.store(4, Ordering::Relaxed);
    pump(&journal);
    assert_eq!(lines(&records), ["0 SET 2 2", "0 SET 3 3"]);
}

#[test]
fn a_large_word_is_passed_on_without_a_copy() {
    let journal = Journal::default();
    let caught = attach(&journal);
    let mut writer = Writer::default();
    let small: Blob = Arc::new(vec![b's'; INLINE_BYTES_MAX]);
    let large: Blob = Arc::new(vec![b'l'; INLINE_BYTES_MAX + 1]);
    for _ in 0..2 {
        let words = [Word::Bytes(b"SET"), Word::Blob(&small), Word::Blob(&large)];
        writer.push(&journal, Some(0), words.into_iter());
    }
    writer.commit(&journal);
    assert_eq!(Arc::strong_count(&small), 1);
    assert!(journal.waiting_bytes() > 4 * INLINE_BYTES_MAX as u64);
    pump(&journal);
    assert_eq!(journal.waiting_bytes(), 0);
    let mut caught = caught.lock().unwrap();
    assert!(caught.blobs.iter().all(|blob| Arc::ptr_eq(blob, &large)));
    assert_eq!(caught.blobs.len(), 2);
    let [all, _] = caught.texts();
    let words = |blob: &Blob| String::from_utf8(blob.to_vec()).unwrap();
    let set = format!("SET {} {}", words(&small), words(&large));
    assert_eq!(all, format!("SELECT 0|MULTI|{set}|{set}|EXEC"));
}

/// A file writes the records of a lane as they lie: one piece for each chunk, whatever the number of records.
#[test]
fn records_of_one_lane_are_one_piece() {
    let journal = Journal::default();
    let caught = attach(&journal);
    let mut writer = Writer::default();
    for n in 0..5000 {
        write(&journal, &mut writer, 0, &format!("SET key:{n} {n}"));
    }
    let bytes = journal.waiting_bytes();
    pump(&journal);
    let caught = caught.lock().unwrap();
    // The first is SELECT.
    let chunks = (bytes as usize).div_ceil(64 * 1024);
    assert_eq!((caught.pieces.as_slice(), chunks), (&[1 + chunks][..], 3));
    assert_eq!(caught.ends.len(), 1);
}

#[test]
fn a_cut_falls_between_two_records_and_selects_anew() {
    let journal = Journal::default();
    let caught = attach(&journal);
    let mut writer = Writer::default();
    write(&journal, &mut writer, 7, "SET a 1");
    assert_eq!(journal.cut(), 1);
    write(&journal, &mut writer, 7, "SET b 2");
    pump(&journal);
    assert_eq!(journal.cut(), 2);
    assert_eq!(journal.cut(), 2);
    write(&journal, &mut writer, 7, "SET c 3");
    pump(&journal);
    let mut caught = caught.lock().unwrap();
    assert_eq!(
        caught.texts()[0],
        "SELECT 7|SET a 1|SELECT 7|SET b 2|SELECT 7|SET c 3"
    );
    let numbers = |positions: &[Position]| -> Vec<u64> {
        positions.iter().map(|position| position.number).collect()
    };
    assert_eq!(numbers(&caught.ends), [1, 2, 3]);
    assert_eq!(numbers(&caught.cuts), [0, 1, 2, 2]);
    assert_eq!(caught.cuts[1], caught.ends[0]);
}

#[test]
fn ends_of_rounds_make_offsets_of_numbers_and_back() {
    let journal = Journal::default();
    let caught = attach(&journal);
    let mut writer = Writer::default();
    for _ in 0..3 {
        write(&journal, &mut writer, 0, "INCR n");
        write(&journal, &mut writer, 0, "INCR n");
        pump(&journal);
    }
    let ends = caught.lock().unwrap().ends.clone();
    let lens: Vec<u64> = ends.iter().map(|end| end.offset).collect();
    assert_eq!(lens, [23 + 42, 23 + 84, 23 + 126]);
    assert_eq!(journal.merged(), ends[2]);
    assert_eq!(journal.position_at(23 + 83), Some(ends[0]));
    assert_eq!(journal.position_at(23 + 84), Some(ends[1]));
    assert_eq!(journal.position_at(0), Some(Position::default()));
    assert_eq!(journal.position_of(3), Some(ends[1]));
    assert_eq!(journal.position_of(4), Some(ends[1]));
    assert_eq!(journal.position_of(7), None);
}

#[test]
fn a_stream_ends_with_what_had_a_number_and_the_next_begins_behind() {
    let journal = Journal::default();
    let mut writer = Writer::default();
    let caught = attach(&journal);
    write(&journal, &mut writer, 0, "SET a 1");
    journal.detach();
    assert!(!journal.is_attached());
    {
        let mut caught = caught.lock().unwrap();
        assert!(caught.ended);
        assert_eq!(caught.texts()[0], "SELECT 0|SET a 1");
    }
    // Of one that saw a stream, and took its number when there was none.
    write(&journal, &mut writer, 0, "PUBLISH late 1");
    pump(&journal);
    let records = attach_reader(&journal);
    write(&journal, &mut writer, 0, "SET b 2");
    pump(&journal);
    assert_eq!(lines(&records), ["0 SET b 2"]);
    assert_eq!(journal.merged().number, 3);
    assert_eq!(journal.waiting_bytes(), 0);
}

/// Whoever is asked to go on gets the rest, and so on, to the end.
#[test]
fn the_role_is_handed_on() {
    let journal = Journal::default();
    let records = attach_reader(&journal);
    let mut writer = Writer::default();
    let long = "x".repeat(64 * 1024);
    for n in 0..40 {
        write(&journal, &mut writer, 0, &format!("SET {n} {long}"));
    }
    let mut came = 0;
    // The first round hears of the attachment.
    for _ in 0..3 {
        let mut rounds = 0;
        let is_left = journal.pump(&mut || {
            rounds += 1;
            true
        });
        assert!(is_left);
        assert_eq!(rounds, 1);
        came += records.try_iter().count();
    }
    assert!((16..40).contains(&came), "{came}");
    pump(&journal);
    assert_eq!(came + records.try_iter().count(), 40);
}

/// Units that are given up, or that are taken out and put back, wherever chunks end.
#[test]
fn what_is_not_committed_leaves_nothing_behind() {
    let journal = Journal::default();
    let records = attach_reader(&journal);
    let mut writer = Writer::default();
    let mut rng = Rng::with_seed(1);
    let blob: Blob = Arc::new(vec![b'b'; INLINE_BYTES_MAX + 1]);
    let mut expected = Vec::new();
    for n in 0..3000 {
        let word = format!("{n}-{}", "x".repeat(rng.usize(..3000)));
        let put = |writer: &mut Writer| {
            let words = [
                Word::Bytes(b"SET"),
                Word::Bytes(word.as_bytes()),
                Word::Blob(&blob),
            ];
            writer.push(&journal, Some(n % 3), words.into_iter());
        };
        put(&mut writer);
        match rng.u8(..4) {
            0 => writer.give_up(),
            1 => {
                let own = writer.take();
                assert!(writer.is_empty());
                if rng.bool() {
                    write(&journal, &mut writer, 0, "DEL other");
                    expected.push("0 DEL other".into());
                }
                writer.put_back(own);
                writer.commit(&journal);
                expected.push(format!("{} SET {word} ", n % 3));
            }
            2 => {
                put(&mut writer);
                writer.commit(&journal);
                let one = format!("{} SET {word} ", n % 3);
                expected.push(format!("{one}; {one}"));
            }
            _ => {
                writer.commit(&journal);
                expected.push(format!("{} SET {word} ", n % 3));
            }
        }
        if rng.u8(..16) == 0 {
            pump(&journal);
        }
    }
    pump(&journal);
    let large = String::from_utf8(blob.to_vec()).unwrap();
    let lines: Vec<String> = lines(&records)
        .iter()
        .map(|line| line.replace(&large, ""))
        .collect();
    assert_eq!(lines.len(), expected.len());
    assert!(lines == expected);
    assert_eq!(journal.waiting_bytes(), 0);
}

/// Many threads at once, each with records of any length: all come, in order, each thread's in its own.
#[test]
fn threads_that_write_and_pump_lose_nothing() {
    const THREADS: u64 = 4;
    let journal = Journal::default();
    let records = attach_reader(&journal);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let journal = &journal;
            scope.spawn(move || {
                let mut rng = Rng::with_seed(thread);
                let mut writer = Writer::default();
                for n in 0..3000 {
                    let word = "y".repeat(rng.usize(..200));
                    for _ in 0..rng.u8(1..4) {
                        push(
                            journal,
                            &mut writer,
                            rng.u32(..2),
                            &format!("SET {thread} {n} {word}"),
                        );
                    }
                    writer.commit(journal);
                    if rng.bool() {
                        journal.pump_all();
                    }
                }
                journal.pump_all();
            });
        }
    });
    let mut next = [0; THREADS as usize];
    for (at, record) in records.try_iter().enumerate() {
        assert_eq!(record.number, at as u64 + 1);
        let number = |word: &Vec<u8>| -> u64 {
            let text = str::from_utf8(word).unwrap();
            text.parse().unwrap()
        };
        for command in &record.commands {
            let thread = number(&command.words[1]) as usize;
            assert_eq!(number(&command.words[2]), next[thread]);
        }
        next[number(&record.commands[0].words[1]) as usize] += 1;
    }
    assert_eq!(next, [3000; THREADS as usize]);
    assert_eq!(journal.waiting_bytes(), 0);
}
