//! Benchmark of the costs that threads cause each other on one keyspace: no sockets, no decoding, but locks and
//! views as a worker of the server uses them, in batches with its prefetch passes.
//!
//! `cargo bench -p redline-keyspace` prints nanoseconds per operation and the ratios that the project promises.
//! Wall-clock figures mean something only while no other load uses the CPUs: a round counts as *quiet* if its threads
//! had the CPU for at least 95 % of it, and the figure is the median of the quiet rounds (marked `~` if there were
//! none). CPU time per operation does not depend on that.

use std::{
    hint::black_box,
    sync::{Barrier, Mutex},
    thread,
    time::Instant,
};

use redline_keyspace::{
    Classes, Expiry, Hint, Keyspace, Local, Place, Unit, Walk,
    lock::{StripeSet, Wake, WakeToken},
};
use redline_types::Limits;

const KEYS: u64 = 1_000_000;
const BATCH: usize = 64;
const MSET_KEYS: usize = 10;
const VALUE: &[u8; 16] = b"sixteen bytes...";
const NOW_MS: i64 = 1_700_000_000_000;
const ROUNDS: usize = 9;

fn main() {
    // `cargo test` runs benches too, with this argument; other words choose among the benches.
    let (flags, words): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .partition(|arg| arg.starts_with('-'));
    let rounds = if flags.iter().any(|flag| flag == "--test") {
        1
    } else {
        ROUNDS
    };
    let wanted =
        |work: &Work| words.is_empty() || words.iter().any(|word| work.name().contains(word));
    let mut space = Keyspace::new(1, Box::new(NobodyWaits));
    fill(&mut space);
    let bench = |work: Work, threads: usize| -> Figure {
        let figure = Figure::of((0..rounds).map(|_| round(&space, work, threads)).collect());
        println!(
            "{:<22} {threads} thread{} {:>7.1} ns/op wall{} {:>7.1} ns/op CPU",
            work.name(),
            if threads == 1 { " " } else { "s" },
            figure.wall_ns,
            if figure.quiet { " " } else { "~" },
            figure.cpu_ns,
        );
        figure
    };
    let mut ratios = Vec::new();
    for work in [Work::Get, Work::Set, Work::Mixed]
        .into_iter()
        .filter(wanted)
    {
        let (one, two, eight) = (bench(work, 1), bench(work, 2), bench(work, 8));
        ratios.push((work.name(), "2 threads / 1", one.wall_ns / two.wall_ns, 1.7));
        ratios.push((
            work.name(),
            "8 threads / 2, by CPU",
            two.cpu_ns / eight.cpu_ns,
            0.9,
        ));
    }
    let others = [(Work::Mset, 1.6), (Work::HotGet, 0.6), (Work::HotSet, 0.6)];
    for (work, target) in others.into_iter().filter(|(work, _)| wanted(work)) {
        let (one, two) = (bench(work, 1), bench(work, 2));
        ratios.push((
            work.name(),
            "2 threads / 1",
            one.wall_ns / two.wall_ns,
            target,
        ));
    }
    println!();
    for (name, what, ratio, target) in ratios {
        println!("{name:<22} {what:<22} {ratio:>5.2} times the throughput (target {target})");
    }
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Get,
    Set,
    Mixed,
    Mset,
    HotGet,
    HotSet,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Get => "uniform GET",
            Work::Set => "uniform SET",
            Work::Mixed => "uniform GET and SET",
            Work::Mset => "MSET of 10 keys",
            Work::HotGet => "GET of one hot key",
            Work::HotSet => "SET of one hot key",
        }
    }

    fn writes(self, at: usize) -> bool {
        match self {
            Work::Get | Work::HotGet => false,
            Work::Set | Work::HotSet | Work::Mset => true,
            Work::Mixed => at.is_multiple_of(2),
        }
    }

    fn is_hot(self) -> bool {
        matches!(self, Work::HotGet | Work::HotSet)
    }

    /// Operations of all threads together in one round: some tens of milliseconds.
    fn operations(self) -> usize {
        match self {
            Work::Mset => 1_000 * BATCH,
            _ => 10_000 * BATCH,
        }
    }
}

/// Measurements of one round, per operation.
struct Round {
    wall_ns: f64,
    cpu_ns: f64,
    quiet: bool,
}

/// The combined result of the rounds of one bench.
struct Figure {
    wall_ns: f64,
    cpu_ns: f64,
    quiet: bool,
}

impl Figure {
    fn of(rounds: Vec<Round>) -> Figure {
        let median = |mut figures: Vec<f64>| {
            figures.sort_by(f64::total_cmp);
            figures.get(figures.len() / 2).copied()
        };
        let quiet = rounds
            .iter()
            .filter(|round| round.quiet)
            .map(|round| round.wall_ns)
            .collect();
        let all = rounds.iter().map(|round| round.wall_ns).collect();
        let quiet = median(quiet);
        Figure {
            wall_ns: quiet.or(median(all)).expect("there are rounds"),
            cpu_ns: median(rounds.iter().map(|round| round.cpu_ns).collect()).expect("as above"),
            quiet: quiet.is_some(),
        }
    }
}

fn round(space: &Keyspace, work: Work, threads: usize) -> Round {
    let operations = work.operations() / threads;
    let barrier = Barrier::new(threads);
    let spans = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..threads {
            let (barrier, spans) = (&barrier, &spans);
            scope.spawn(move || {
                pin(number);
                let mut worker = Worker::new(space, number as u64);
                worker.run(work, 4 * BATCH);
                barrier.wait();
                let (began, cpu_began) = (Instant::now(), thread_cpu_ns());
                worker.run(work, operations);
                let cpu_ns = thread_cpu_ns() - cpu_began;
                spans
                    .lock()
                    .expect("no panic")
                    .push((began, Instant::now(), cpu_ns));
            });
        }
    });
    let spans = spans.into_inner().expect("no panic");
    let first = spans.iter().map(|span| span.0).min().expect("a thread");
    let last = spans.iter().map(|span| span.1).max().expect("a thread");
    let wall_ns = (last - first).as_nanos() as f64;
    let cpu_ns: f64 = spans.iter().map(|span| span.2 as f64).sum();
    let done = (operations * threads) as f64;
    let cpus = threads.min(thread::available_parallelism().map_or(1, usize::from));
    Round {
        wall_ns: wall_ns / done,
        cpu_ns: cpu_ns / done,
        quiet: cpu_ns > 0.95 * wall_ns * cpus as f64,
    }
}

fn fill(space: &mut Keyspace) {
    let mut local = local(0);
    let mut unit = Unit::exclusive(space);
    for number in 0..KEYS {
        let key = key(number);
        let mut view = unit.view(&mut local, 0, NOW_MS);
        view.set_string(&key, VALUE, Expiry::Clear);
    }
    // The work of the server's timer within some seconds: huge pages.
    (0..100).for_each(|_| redline_table::heap::maintain(1));
}

/// The state of a worker of the server, as far as it matters here.
struct Worker<'a> {
    space: &'a Keyspace,
    local: Local,
    rng: fastrand::Rng,
    keys: Vec<[u8; 16]>,
    places: Vec<Place>,
    ahead: Walk,
    hints: Vec<Hint>,
    out: Vec<u8>,
    /// Requests that found their stripe held.
    aside: Vec<usize>,
}

impl<'a> Worker<'a> {
    fn new(space: &'a Keyspace, number: u64) -> Worker<'a> {
        Worker {
            space,
            local: local(number),
            rng: fastrand::Rng::with_seed(number + 1),
            keys: Vec::new(),
            places: Vec::new(),
            ahead: Walk::default(),
            hints: Vec::new(),
            out: Vec::new(),
            aside: Vec::new(),
        }
    }

    fn run(&mut self, work: Work, operations: usize) {
        for _ in 0..operations / BATCH {
            self.batch(work);
        }
    }

    fn batch(&mut self, work: Work) {
        let keys_each = if work == Work::Mset { MSET_KEYS } else { 1 };
        self.keys.clear();
        self.places.clear();
        self.ahead.clear();
        self.out.clear();
        for at in 0..BATCH * keys_each {
            let key = key(if work.is_hot() {
                7
            } else {
                self.rng.u64(..KEYS)
            });
            self.keys.push(key);
            if at.is_multiple_of(keys_each) {
                // The first key of each request; the view looks ahead at the others.
                let place = self.space.place(&key);
                self.ahead.push(self.space.ahead(0, place));
                self.places.push(place);
            }
        }
        self.ahead.begin();
        self.places
            .iter()
            .for_each(|place| self.space.locks().prefetch(place.stripe()));
        for at in 0..BATCH {
            self.ahead.reach(at);
            if !self.run_one(work, at) {
                self.aside.push(at);
            }
        }
        // In the server the holder of the stripe would wake the session; the end of the batch has to do.
        while let Some(at) = self.aside.pop() {
            while !self.run_one(work, at) {
                thread::yield_now();
            }
        }
        black_box(&self.out);
    }

    /// Returns false if a stripe was in the way.
    fn run_one(&mut self, work: Work, at: usize) -> bool {
        match work {
            Work::Mset => self.mset(at),
            _ => self.get_or_set(at, work.writes(at)),
        }
    }

    fn get_or_set(&mut self, at: usize, write: bool) -> bool {
        let (key, ahead) = (&self.keys[at], *self.ahead.get(at).expect("each has a key"));
        let Some(mut unit) = Unit::try_one(self.space, ahead.place().stripe()) else {
            return false;
        };
        let mut view = unit.view(&mut self.local, 0, NOW_MS);
        view.hint(key, &ahead);
        if write {
            view.set_string(key, VALUE, Expiry::Clear);
            view.changed(Classes::STRING, "set", key);
        } else if let Ok(Some(value)) = view.string(key) {
            self.out.extend_from_slice(value.as_bytes());
        }
        view.finish();
        unit.commit(&mut self.local);
        true
    }

    fn mset(&mut self, at: usize) -> bool {
        let keys = &self.keys[at * MSET_KEYS..(at + 1) * MSET_KEYS];
        let mut set = StripeSet::EMPTY;
        self.hints.clear();
        for key in keys {
            let place = self.space.place(key);
            set.insert(place.stripe());
            self.space.locks().prefetch(place.stripe());
            self.hints.push(Hint::new(key, place));
        }
        let Ok(mut unit) = Unit::try_set(self.space, &set, false) else {
            return false;
        };
        let mut view = unit.view(&mut self.local, 0, NOW_MS);
        view.hints(&self.hints);
        for key in keys {
            view.set_string(key, VALUE, Expiry::Clear);
            view.changed(Classes::STRING, "set", key);
        }
        view.finish();
        unit.commit(&mut self.local);
        true
    }
}

fn local(number: u64) -> Local {
    Local::new(fastrand::Rng::with_seed(number), Limits::default())
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

/// Binds the calling thread to a CPU: a round is over before the scheduler would spread the threads.
fn pin(number: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: an all-zero set is the empty one, and the kernel reads it only.
    unsafe {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(number % cpus, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = number;
}

/// Returns the CPU time of the calling thread.
fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct NobodyWaits;

impl Wake for NobodyWaits {
    fn wake(&self, _token: WakeToken) {}
}
