//! Benchmark of a large sorted set: bytes per member, and time per operation.
//!
//! `cargo bench -p redline-types --bench zset`, with numbers of members as arguments in place of 100,000 and 1,000,000.
//! Times are CPU time, the median of three rounds on one thread. The first line of each size is a yardstick for the
//! machine and its load: a lookup in std's `HashMap`.

use redline_types::limits::Limits;
use redline_types::value::DataType;
use redline_types::zset::{AddFlags, ScoreBound, ScoreRange, Zset};
use std::collections::HashMap;
use std::hint::black_box;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 3;
/// Longer than a tick of a clock that may tick every 4 ms.
const OPERATIONS: usize = 1_000_000;

fn main() {
    let sizes: Vec<usize> = std::env::args()
        .filter_map(|size| size.parse().ok())
        .collect();
    let sizes = if sizes.is_empty() {
        vec![100_000, 1_000_000]
    } else {
        sizes
    };
    for members in sizes {
        measure(members);
    }
}

fn member(i: usize) -> [u8; 16] {
    let mut text = *b"member:000000000";
    let mut rest = i;
    for digit in text[7..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    text
}

/// Returns the CPU time of this process, which other processes on the machine disturb less than they do a clock.
fn cpu_nanos() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.unwrap_or(0.0)
}

/// Returns the resident bytes of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

fn build(members: usize, mut score: impl FnMut(usize) -> f64) -> (Zset, f64, usize) {
    let limits = Limits::default();
    let mut set = Zset::new();
    let before = resident();
    let start = cpu_nanos();
    for i in 0..members {
        let _ = set.add(&member(i), score(i), AddFlags::default(), &limits);
    }
    let nanos = (cpu_nanos() - start) / members as f64;
    (set, nanos, resident().saturating_sub(before))
}

/// Measures one operation, and prints its median time in nanoseconds.
fn time(name: &str, operations: usize, mut operation: impl FnMut(usize)) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let start = cpu_nanos();
            for i in 0..operations {
                operation(round * operations + i);
            }
            (cpu_nanos() - start) / operations as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("  {name:34} {:>8.0} ns", rounds[ROUNDS / 2]);
}

fn measure(members: usize) {
    println!("{members} members of 16 bytes");
    let mut random = fastrand::Rng::with_seed(1);
    let picks: Vec<[u8; 16]> = (0..OPERATIONS)
        .map(|_| member(random.usize(..members)))
        .collect();
    let pick = |i: usize| &picks[i % OPERATIONS];
    let yardstick: HashMap<[u8; 16], f64> = (0..members).map(|i| (member(i), 0.0)).collect();
    time("yardstick", OPERATIONS, |i| {
        black_box(yardstick.get(pick(i)));
    });
    drop(yardstick);
    let report = |name: &str, (set, nanos, resident): &(Zset, f64, usize)| {
        println!(
            "  {name:34} {nanos:>8.0} ns, {:.1} bytes a member ({:.1} resident)",
            set.heap_bytes() as f64 / members as f64,
            *resident as f64 / members as f64
        );
    };
    report("insert, ascending scores", &build(members, |i| i as f64));
    report("insert, equal scores, in order", &build(members, |_| 0.0));
    let built = build(members, |_| random.f64());
    report("insert, random scores", &built);
    let mut set = built.0;
    let limits = Limits::default();

    time("score", OPERATIONS, |i| {
        black_box(set.score(pick(i)));
    });
    time("score of a member that is missing", OPERATIONS, |i| {
        black_box(set.score(&member(members + i)));
    });
    time("rank", OPERATIONS, |i| {
        black_box(set.rank(pick(i)));
    });
    time("member of a rank", OPERATIONS, |_| {
        black_box(set.get(random.usize(..members)));
    });
    time("range of 100 by rank", OPERATIONS / 20, |_| {
        let start = random.usize(..members - 100);
        for (member, score) in set.range(start..start + 100) {
            black_box((member, score));
        }
    });
    time("range of 100 by rank, backwards", OPERATIONS / 20, |_| {
        let start = random.usize(..members - 100);
        for (member, score) in set.range(start..start + 100).rev() {
            black_box((member, score));
        }
    });
    time("count of a range of scores", OPERATIONS, |_| {
        let bound = |score| ScoreBound {
            score,
            exclusive: false,
        };
        let range = ScoreRange {
            min: bound(random.f64()),
            max: bound(random.f64()),
        };
        black_box(set.score_range(&range));
    });
    let add = |set: &mut Zset, member: &[u8], score: f64, incr: bool| {
        let flags = AddFlags {
            incr,
            ..AddFlags::default()
        };
        let _ = black_box(set.add(member, score, flags, &limits));
    };
    time("change to a random score", OPERATIONS, |i| {
        add(&mut set, pick(i), random.f64(), false);
    });
    time("small increment", OPERATIONS, |i| {
        add(&mut set, pick(i), 10.0 / members as f64, true);
    });
    time("remove and insert again", OPERATIONS, |i| {
        set.remove(pick(i));
        add(&mut set, pick(i), random.f64(), false);
    });
    time("take the first and insert it again", OPERATIONS, |_| {
        let first = set.get(0).map(|(member, _)| member.to_vec());
        set.remove_range(0..1);
        if let Some(member) = first {
            add(&mut set, &member, random.f64(), false);
        }
    });
    set.remove_range(members / 10..members);
    println!(
        "  after removing nine tenths of them {:>8.1} bytes a member",
        set.heap_bytes() as f64 / set.len() as f64
    );
}
