//! Benchmark of files: checksum, compression, writing of small keys, scanning, decoding.
//!
//! `cargo bench -p redline-rdb --bench file`. Times are CPU time, the median of five rounds on one thread. The first line is a
//! yardstick for the machine and its load: copying memory.

use std::hint::black_box;

use redline_rdb::{
    FileVersion, Format, ObjectRef, crc64,
    file::{EntryMeta, Record, Scanner, decode, write},
    lzf,
    primitive::Writer,
};
use redline_types::{Hash, Limits, Value};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 5;
/// Long enough for a clock that ticks every 4 ms.
const BYTES: usize = 256 << 20;
const KEYS: usize = 1_000_000;

fn main() {
    let text = text(1 << 20);
    let bytes = |name: &str, piece: usize, run: &mut dyn FnMut(&[u8])| {
        let pieces = text.chunks_exact(piece);
        let rounds = BYTES / text.len() / if name.contains("lzf") { 8 } else { 1 };
        let nanos = median(|| (0..rounds).for_each(|_| pieces.clone().for_each(&mut *run)));
        let count = rounds * (text.len() / piece) * piece;
        println!("{name:<28} {:.3} ns a byte", nanos / count as f64);
    };
    let mut copy = Vec::new();
    bytes("copy, 64 KiB", 64 << 10, &mut |piece| {
        copy.clear();
        copy.extend_from_slice(black_box(piece));
    });
    for piece in [40, 1 << 10, 64 << 10] {
        bytes(&format!("crc64, {piece} B"), piece, &mut |piece| {
            black_box(crc64::update(0, black_box(piece)));
        });
    }
    for piece in [100, 1 << 10, 64 << 10] {
        bytes(&format!("lzf compress, {piece} B"), piece, &mut |piece| {
            black_box(lzf::compress(black_box(piece), piece.len() - 4));
        });
        let small: Vec<_> = text
            .chunks_exact(piece)
            .map(|piece| lzf::compress(piece, usize::MAX).expect("no limit"))
            .collect();
        let mut next = small.iter().cycle();
        bytes(&format!("lzf decompress, {piece} B"), piece, &mut |piece| {
            let small = next.next().expect("an endless one");
            black_box(lzf::decompress(black_box(small), piece.len()));
        });
    }
    files();
}

/// Measures files of a million keys.
fn files() {
    let limits = Limits::default();
    let mut hash = Hash::new();
    for field in 0..10 {
        let field = format!("field:{field}");
        hash.set(field.as_bytes(), b"a value of a field", &limits);
    }
    let hash = Value::from(hash);
    let values = [
        ("string of 8 B", ObjectRef::String(b"value:01")),
        ("hash of 10 fields", ObjectRef::Value(&hash)),
    ];
    let format = Format {
        version: FileVersion::Redis(11),
        compresses: true,
        checksums: true,
    };
    for (name, value) in values {
        let mut file = Writer::new(format.compresses);
        let nanos = median(|| {
            file.clear();
            write::header(&mut file, &format);
            for key in 0..KEYS {
                let meta = EntryMeta::default();
                write::entry(&mut file, &format, &self::key(key), value, &meta).expect("a form");
            }
            let crc = crc64::update(0, &file);
            write::trailer(&mut file, Some(crc));
        });
        println!("{name:<18} write  {:.1} ns a key", nanos / KEYS as f64);
        let mut bytes = 0;
        let nanos = median(|| {
            each(&file, |_, _, value| bytes += value.len());
        });
        println!("{name:<18} scan   {:.1} ns a key", nanos / KEYS as f64);
        black_box(bytes);
        let nanos = median(|| {
            each(&file, |version, rdb_type, value| {
                black_box(decode(version, rdb_type, value, &limits).expect("a value"));
            });
        });
        println!(
            "{name:<18} decode {:.1} ns a key, with the scan",
            nanos / KEYS as f64
        );
    }
}

fn each(file: &[u8], mut visit: impl FnMut(FileVersion, u8, &[u8])) {
    let mut scanner = Scanner::new(file);
    let version = scanner.header().expect("a header");
    loop {
        match scanner.next().expect("a record") {
            Record::Entry(entry) => visit(version, entry.rdb_type, entry.value),
            Record::End => return,
            _ => {}
        }
    }
}

fn key(i: usize) -> [u8; 12] {
    let mut text = *b"key:00000000";
    let mut rest = i;
    for digit in text[4..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    text
}

/// Returns text that is compressed about as well as records of an application are.
fn text(len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut text = Vec::new();
    while text.len() < len {
        let record = format!(
            "{{\"id\":{},\"name\":\"user {}\",\"email\":\"{:x}@example.com\",\"active\":{},\"score\":{}}},",
            random.u32(..),
            random.u16(..),
            random.u64(..),
            random.bool(),
            random.u16(..1000)
        );
        text.extend_from_slice(record.as_bytes());
    }
    text.truncate(len);
    text
}

fn median(mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let before = cpu_nanos();
            run();
            cpu_nanos() - before
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

/// Returns the CPU time of this process, which other processes on the machine disturb less than they do a clock.
fn cpu_nanos() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.unwrap_or(0.0)
}
