//! Random calls on all types of values, in four databases: what a primary is sent while its replicas' links are cut.
//!
//! Must not know what replicates them.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use redline_testkit::client::{Client, encode};

/// Number of databases in use.
pub const DATABASES: u32 = 4;
/// Number of keys of each type.
const KEYS: u32 = 30;
/// Number of batches between two that empty a database or everything, about.
const CALM_BATCHES: u32 = 1_500;
/// Pause of a client behind each batch.
const PACE: Duration = Duration::from_millis(5);
/// The key of which one effect is altered in the run with a planted fault: a set of digits, which SPOP takes from.
pub const PLANTED_KEY: &str = "pops";

const SCRIPTS: [&str; 3] = [
    "redis.call('incr', KEYS[1]) redis.call('rpush', KEYS[2], ARGV[1]) return redis.call('spop', KEYS[3])",
    "redis.call('set', KEYS[1], redis.call('time')[2]) return redis.call('lpop', KEYS[2])",
    "redis.call('sadd', KEYS[3], ARGV[1], KEYS[1]) redis.call('pexpire', KEYS[3], 150) return redis.error_reply('half')",
];
const LIBRARY: &str = "#!lua name=lib\nredis.register_function('f', function(keys, args) redis.call('set', keys[1], args[1]) return 1 end) -- ";

/// The features that all servers of a run have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breadth {
    /// Those of Redis 7.0.
    Common,
    /// Also fields that expire, as in Valkey 9.
    Timed,
    /// Also vector sets, as in Redis 8.
    Newer,
    /// Only what shows the planted fault.
    Planted,
}

impl Breadth {
    /// Returns true if fields of hashes expire.
    pub fn has_timed_fields(self) -> bool {
        matches!(self, Breadth::Timed | Breadth::Newer)
    }
}

/// The state that clients of a load share.
pub struct Load {
    /// The primary of the moment.
    pub primary: Mutex<SocketAddr>,
    /// True when clients are to end.
    pub is_over: AtomicBool,
    /// Number of calls that were answered.
    pub calls: AtomicU64,
    pub breadth: Breadth,
}

impl Load {
    /// Sends batches until the end, to whoever is the primary; a connection that breaks is made again.
    pub fn run(&self, seed: u64) {
        let mut random = Rng::with_seed(seed);
        let mut client = None;
        while !self.is_over.load(Ordering::Acquire) {
            let address = *self.primary.lock().expect("nobody panics under it");
            let mut connected = match client.take() {
                Some(connected) => connected,
                None => match Client::connect(address) {
                    Ok(connected) => connected,
                    Err(_) => {
                        std::thread::sleep(PACE);
                        continue;
                    }
                },
            };
            let calls = batch(&mut random, self.breadth);
            let mut bytes = Vec::new();
            for call in &calls {
                encode(&call.split('\t').collect::<Vec<_>>(), &mut bytes);
            }
            let count = calls.len() as u64;
            // What a killed primary has not answered is nobody's loss here.
            if connected.send(&bytes).is_ok() && connected.skip(count).is_ok() {
                self.calls.fetch_add(count, Ordering::Relaxed);
                client = Some(connected);
            }
            std::thread::sleep(PACE);
        }
    }
}

/// Returns calls, each as words with tabs between them.
fn batch(random: &mut Rng, breadth: Breadth) -> Vec<String> {
    if breadth == Breadth::Planted {
        let digit = random.u8(1..=9);
        return vec![
            format!("SADD\t{PLANTED_KEY}\t1\t5\t9\t{digit}"),
            format!("SPOP\t{PLANTED_KEY}"),
            one(random, Breadth::Common),
        ];
    }
    let mut calls = vec![format!("SELECT\t{}", random.u32(..DATABASES))];
    if random.u32(..CALM_BATCHES) == 0 {
        calls.push(["FLUSHALL", "FLUSHDB", "FLUSHALL\tASYNC"][random.usize(..3)].to_owned());
    }
    if random.u8(..200) == 0 {
        let (one, other) = (random.u32(..DATABASES), random.u32(..DATABASES));
        calls.push(format!("SWAPDB\t{one}\t{other}"));
    }
    let is_transaction = random.u8(..4) == 0;
    calls.extend(is_transaction.then(|| "MULTI".to_owned()));
    for _ in 0..random.u8(1..12) {
        calls.push(one(random, breadth));
        if random.u8(..30) == 0 {
            calls.push(format!("SELECT\t{}", random.u32(..DATABASES)));
        }
    }
    calls.extend(is_transaction.then(|| "EXEC".to_owned()));
    calls
}

fn one(random: &mut Rng, breadth: Breadth) -> String {
    let k = random.u32(..KEYS);
    let j = random.u32(..KEYS);
    let n = random.u32(..60);
    let m = random.u32(..1_000);
    let soon = random.u32(1..300);
    let quarter = f64::from(random.u16(..400)) / 4.0;
    let text = "x".repeat(random.usize(..200));
    let forms = match breadth {
        Breadth::Common | Breadth::Planted => 60,
        Breadth::Timed => 65,
        Breadth::Newer => 68,
    };
    let form = random.u8(..forms);
    match form {
        0 => format!("SET\ts:{k}\t{m}{text}"),
        1 => format!("SET\ts:{k}\t{m}\tPX\t{soon}"),
        2 => format!("SET\ts:{k}\t{m}\tEX\t1000\tNX"),
        3 => format!("INCRBY\tn:{k}\t{m}"),
        4 => format!("INCRBYFLOAT\tn:{k}\t{quarter}"),
        5 => format!("APPEND\ts:{k}\t{text}"),
        6 => format!("SETRANGE\ts:{k}\t{n}\t{m}"),
        7 => format!("GETEX\ts:{k}\tPX\t{soon}"),
        8 => format!("GETDEL\ts:{k}"),
        9 => format!("MSET\ts:{k}\t{m}\ts:{j}\t{n}"),
        10 => format!("SETBIT\tb:{k}\t{m}\t1"),
        11 => format!("BITOP\tXOR\tb:{k}\tb:{j}\tb:{k}"),
        12 => format!("PFADD\tp:{k}\t{m}\t{n}"),
        13 => format!("PFMERGE\tp:{k}\tp:{j}"),
        14 | 15 => format!("RPUSH\tl:{k}\t{m}\t{n}\t{text}"),
        16 => format!("LPOP\tl:{k}\t2"),
        17 => format!("LMOVE\tl:{k}\tl:{j}\tLEFT\tRIGHT"),
        18 => format!("BLPOP\tl:{k}\tl:{j}\t0.005"),
        19 => format!("BLMOVE\tl:{k}\tl:{j}\tRIGHT\tLEFT\t0.005"),
        20 => format!("LTRIM\tl:{k}\t0\t50"),
        21 => format!("LINSERT\tl:{k}\tBEFORE\t{n}\t{m}"),
        22 => format!("LMPOP\t2\tl:{k}\tl:{j}\tLEFT\tCOUNT\t3"),
        23 => format!("SORT\tl:{k}\tALPHA\tSTORE\tl:{j}"),
        24 | 25 => format!("HSET\th:{k}\tf{n}\t{m}\tg{n}\t{text}"),
        26 => format!("HDEL\th:{k}\tf{n}"),
        27 => format!("HINCRBYFLOAT\th:{k}\tc\t{quarter}"),
        28 => format!("HINCRBY\th:{k}\td\t{m}"),
        29 | 30 => format!("SADD\tt:{k}\t{n}\t{m}\ta{n}"),
        31 | 32 => format!("SPOP\tt:{k}"),
        33 => format!("SPOP\tt:{k}\t{}", n / 10),
        34 => format!("SMOVE\tt:{k}\tt:{j}\t{n}"),
        35 => format!("SUNIONSTORE\tt:{k}\tt:{k}\tt:{j}"),
        36 | 37 => format!("ZADD\tz:{k}\t{quarter}\t{n}\t{quarter}\tm{m}"),
        38 => format!("ZINCRBY\tz:{k}\t{quarter}\t{n}"),
        39 => format!("ZPOPMIN\tz:{k}\t2"),
        40 => format!("BZPOPMAX\tz:{k}\tz:{j}\t0.005"),
        41 => format!("ZUNIONSTORE\tz:{k}\t2\tz:{k}\tz:{j}"),
        42 => format!("ZREMRANGEBYRANK\tz:{k}\t50\t-1"),
        43 | 44 => format!("XADD\tx:{k}\tMAXLEN\t~\t300\t*\tf{n}\t{m}"),
        45 => format!("XGROUP\tCREATE\tx:{k}\tg\t0\tMKSTREAM"),
        46 => format!(
            "XREADGROUP\tGROUP\tg\tc{}\tCOUNT\t5\tSTREAMS\tx:{k}\t>",
            n % 3
        ),
        47 => format!("XAUTOCLAIM\tx:{k}\tg\tc1\t0\t0\tCOUNT\t3"),
        48 => format!("XTRIM\tx:{k}\tMAXLEN\t{n}"),
        49 => format!("XSETID\tx:{k}\t9999999999999-1"),
        50 => format!("PEXPIRE\t{}\t{soon}", any_key(random, k)),
        51 => format!("EXPIRE\t{}\t5000", any_key(random, k)),
        52 => format!("PERSIST\t{}", any_key(random, k)),
        53 => format!("UNLINK\t{}\t{}", any_key(random, k), any_key(random, j)),
        54 => format!("RENAME\th:{k}\th:{j}"),
        55 => format!("COPY\tz:{k}\tz:{j}\tDB\t{}\tREPLACE", n % DATABASES),
        56 => format!("MOVE\tt:{k}\t{}", n % DATABASES),
        57 | 58 => {
            let script = SCRIPTS[random.usize(..SCRIPTS.len())];
            format!("EVAL\t{script}\t3\tn:{k}\tl:{j}\tt:{k}\t{m}")
        }
        59 if random.u8(..20) == 0 => format!("FUNCTION\tLOAD\tREPLACE\t{LIBRARY}{m}"),
        59 => format!("FCALL\tf\t1\ts:{k}\t{m}"),
        60 | 61 => format!("HPEXPIRE\th:{k}\t{soon}\tFIELDS\t2\tf{n}\tg{n}"),
        62 => format!("HSETEX\th:{k}\tPX\t{soon}\tFIELDS\t1\tf{n}\t{m}"),
        63 => format!("HGETDEL\th:{k}\tFIELDS\t1\tf{n}"),
        64 => format!("HEXPIRE\th:{k}\t5000\tFIELDS\t1\tf{n}"),
        // The same vector each time: Redis does not tell replicas of an update, and its copies would differ.
        65 | 66 => format!("VADD\tv:{k}\tVALUES\t3\t7\t1\t{n}\te{n}"),
        _ => format!("VREM\tv:{k}\te{n}"),
    }
}

fn any_key(random: &mut Rng, number: u32) -> String {
    let types = ["s", "n", "b", "p", "l", "h", "t", "z", "x"];
    format!("{}:{number}", types[random.usize(..types.len())])
}
