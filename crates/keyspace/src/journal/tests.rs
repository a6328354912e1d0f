//! The journal as a whole: units of several workers, and the stream that comes of them.

use std::sync::{Mutex, mpsc};

use fastrand::Rng;

use super::*;
use crate::entry::{Blob, INLINE_BYTES_MAX};

/// The content of a stream.
#[derive(Default)]
pub(super) struct Caught {
    /// For replicas.
    all: Vec<u8>,
    file: Vec<u8>,
    pub(super) ends: Vec<Position>,
    pub(super) cuts: Vec<Position>,
    /// Number of pieces of each write.
    pub(super) pieces: Vec<usize>,
    blobs: Vec<Blob>,
    pub(super) ended: bool,
}

impl Caught {
    /// Returns what has come since the last call, words divided by spaces, commands by bars: for replicas, and for files.
    pub(super) fn texts(&mut self) -> [String; 2] {
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

pub(super) fn attach(journal: &Journal) -> Arc<Mutex<Caught>> {
    let caught = Arc::<Mutex<Caught>>::default();
    journal.attach(Box::new(Catching(caught.clone())));
    caught
}

/// Attaches a reader of records.
pub(super) fn attach_reader(journal: &Journal) -> mpsc::Receiver<Record> {
    let (give, records) = mpsc::channel();
    journal.attach(Box::new(RecordReader::new(move |record| {
        drop(give.send(record));
    })));
    records
}

pub(super) fn push(journal: &Journal, writer: &mut Writer, db: impl Into<Option<u32>>, line: &str) {
    let words = line.split(' ').map(|word| Word::Bytes(word.as_bytes()));
    writer.push(journal, db.into(), words);
}

pub(super) fn write(journal: &Journal, writer: &mut Writer, db: u32, line: &str) -> u64 {
    push(journal, writer, db, line);
    writer.commit(journal)
}

pub(super) fn pump(journal: &Journal) {
    journal.pump_all();
}

/// Returns the commands of records, without their numbers.
pub(super) fn lines(records: &mpsc::Receiver<Record>) -> Vec<String> {
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

/// A stream in whose middle, while its thread has the pump's role, something happens once.
struct Interrupted<F>(Option<F>);

impl<F: FnOnce() + Send> Stream for Interrupted<F> {
    fn write(&mut self, _: &[Piece<'_>], _: Position) {
        if let Some(happen) = self.0.take() {
            happen();
        }
    }

    fn cut(&mut self, _: Position) {}
}

#[test]
fn records_of_a_stream_that_follows_another_at_once_outlive_the_end_of_the_first() {
    let journal = Arc::new(Journal::default());
    let write = |journal: &Journal, name: &[u8]| {
        let mut writer = Writer::default();
        writer.push(journal, Some(0), [name].into_iter().map(Word::from));
        writer.commit(journal)
    };
    let (give, taken) = mpsc::channel();
    let happen = {
        let journal = journal.clone();
        move || {
            // The role is taken: the end of the first stream is left to its holder.
            journal.detach();
            let records = attach_reader(&journal);
            write(&journal, b"second");
            give.send(records).unwrap();
        }
    };
    journal.attach(Box::new(Interrupted(Some(happen))));
    journal.pump_all();
    write(&journal, b"first");
    journal.pump_all();
    let records = taken.recv().unwrap();
    write(&journal, b"third");
    journal.pump_all();
    let names = records
        .try_iter()
        .map(|record| record.commands[0].words[0].clone());
    let names: Vec<_> = names.collect();
    assert_eq!(names, [&b"second"[..], b"third"]);
}
