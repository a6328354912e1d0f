//! Benchmark of the journal: what a unit pays for its record and the pump, for a SET of a short key.
//!
//! `cargo bench -p redline-keyspace --bench journal` prints nanoseconds of CPU per unit of a worker that pumps after every
//! sixteenth, as with a pipeline of sixteen: without a stream, with one that drops what it gets, and with one that writes
//! it to a file in the folder for temporary files, from the lanes' memory. Each figure is the least of its rounds.

use std::{
    fs::{self, File},
    io::{IoSlice, Write},
    thread,
};

use redline_keyspace::{
    Keyspace, Local, Unit,
    journal::{Piece, Position, Stream},
    lock::{StripeSet, Wake, WakeToken},
};
use redline_types::Limits;

const BATCH: u64 = 16;
const UNITS: u64 = 400_000;
const ROUNDS: usize = 7;

struct NobodyWaits;

impl Wake for NobodyWaits {
    fn wake(&self, _: WakeToken) {}
}

struct Dropped;

impl Stream for Dropped {
    fn write(&mut self, _: &[Piece<'_>], _: Position) {}
    fn cut(&mut self, _: Position) {}
}

struct InFile(File);

impl Stream for InFile {
    fn write(&mut self, pieces: &[Piece<'_>], _: Position) {
        let slices: Vec<IoSlice<'_>> = pieces
            .iter()
            .map(|piece| IoSlice::new(piece.bytes()))
            .collect();
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        let written = self.0.write_vectored(&slices).expect("room on the disk");
        assert_eq!(written, bytes);
    }
    fn cut(&mut self, _: Position) {}
}

fn main() {
    // `cargo test` runs benches too, with this argument.
    let is_test = std::env::args().any(|arg| arg == "--test");
    let (rounds, units) = if is_test { (1, 160) } else { (ROUNDS, UNITS) };
    let path = std::env::temp_dir().join(format!("redline-journal-{}", std::process::id()));
    type Make<'a> = &'a dyn Fn() -> Option<Box<dyn Stream>>;
    let in_file = || -> Option<Box<dyn Stream>> {
        let file = File::create(&path).expect("a file in the folder for temporary files");
        Some(Box::new(InFile(file)))
    };
    let streams: [(&str, Make<'_>); 3] = [
        ("no stream", &|| None),
        ("a stream that drops", &|| Some(Box::new(Dropped))),
        ("a file", &in_file),
    ];
    for threads in [1, 2] {
        for (name, make) in streams {
            let least = (0..rounds)
                .map(|_| round(make(), threads, units))
                .fold(f64::INFINITY, f64::min);
            println!("{threads} thread(s), {name:<22} {least:>7.1} ns/unit CPU");
        }
    }
    let _ = fs::remove_file(&path);
}

/// Returns the CPU time per unit.
fn round(stream: Option<Box<dyn Stream>>, threads: u64, units: u64) -> f64 {
    let space = Keyspace::new(1, Box::new(NobodyWaits));
    if let Some(stream) = stream {
        let mut unit = Unit::try_set(&space, &StripeSet::all(), false).expect("nobody is here");
        unit.attach_stream(stream);
    }
    let times = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let space = &space;
                scope.spawn(move || work(space, thread, units))
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("it does not panic"))
            .sum::<u64>()
    });
    space.journal().detach();
    times as f64 / (units * threads) as f64
}

/// Runs a worker; returns its CPU time in nanoseconds.
fn work(space: &Keyspace, thread: u64, units: u64) -> u64 {
    let mut local = Local::new(fastrand::Rng::with_seed(thread), Limits::default());
    let keys: Vec<String> = (0..BATCH).map(|n| format!("key:{thread}:{n}")).collect();
    let began_ns = thread_cpu_ns();
    for batch in 0..units / BATCH {
        for key in &keys {
            let stripe = space.place(key.as_bytes()).stripe();
            let mut unit = loop {
                if let Some(unit) = Unit::try_one(space, stripe) {
                    break unit;
                }
            };
            let mut view = unit.view(&mut local, 0, batch as i64);
            view.propagate(&[&b"SET"[..], key.as_bytes(), b"sixteen bytes..."]);
            unit.commit(&mut local);
        }
        if local.has_journal_news() {
            space.journal().pump_all();
            local.forget_journal_news();
        }
    }
    thread_cpu_ns() - began_ns
}

fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is ours, and the clock exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
