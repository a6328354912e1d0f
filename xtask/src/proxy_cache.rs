//! `redline proxy` with its cache in front of real Redis servers, which report changed keys: a Redis 8.2.3, and a Redis
//! Cluster whose slots move. Counters that clients increment, also past the proxy, never decrease for any client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use redline_testkit::client::{Client, Value};
use redline_testkit::process::ServerProcess;

use crate::clusters::{Cluster, reshard, told};
use crate::compat::Setting;
use crate::proxy::{call, connect, proxy};
use crate::run::{Failure, Folder, until};

const COUNTERS: u64 = 8;
const CLIENTS: u64 = 8;
const ROUNDS: u64 = 20_000;
const RESHARDED: u32 = 1_000;
/// Configuration of the cache: keys with this prefix are cached as long as nothing changes.
const CACHE: &str = "[pool.cache]\nprefixes = ['k']\nmax-age = '1h'\n";

/// Runs all of it.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let hits = one_server(setting)?;
    let of_cluster = a_cluster(setting)?;
    Ok(format!(
        "{hits} hits before one server, {of_cluster} before a cluster whose slots moved, and no counter went back"
    ))
}

fn started(setting: &Setting, pool: &str) -> Result<ServerProcess, Failure> {
    let folder = Folder::new("proxy-cache")?;
    let listener = "threads = 2\n[[listener]]\nbind = '127.0.0.1:1'\n";
    proxy(setting, &folder, &format!("{listener}[[pool]]\n{pool}"))
}

fn stat(proxy: &ServerProcess, name: &str) -> u64 {
    let said = told(proxy, &["INFO", "everything"]).unwrap_or_default();
    said.lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .filter_map(|text| text.trim().parse::<u64>().ok())
        .sum()
}

fn one_server(setting: &Setting) -> Result<u64, Failure> {
    let redis = setting.start_redis(&[])?;
    let shard = format!(
        "shard = [{{ server = [{{ address = '{}' }}] }}]\n",
        redis.address()
    );
    let proxy = started(setting, &format!("{shard}{CACHE}"))?;
    until("the server tells what changes", || {
        stat(&proxy, "CacheWorkers") == 2
    })?;
    let (mut direct, mut client) = (connect(redis.address())?, connect(proxy.address())?);
    for value in ["one", "two"] {
        call(&mut direct, &["SET", "k", value])?;
        seen(&mut client, "k", Some(value))?;
        kept(&proxy, &mut client, "k")?;
        call(&mut direct, &["DEL", "k"])?;
        seen(&mut client, "k", None)?;
        kept(&proxy, &mut client, "k")?;
        call(&mut direct, &["SET", "k", value, "PX", "500"])?;
        seen(&mut client, "k", Some(value))?;
        seen(&mut client, "k", None)?;
        call(&mut direct, &["SET", "k", value])?;
        kept(&proxy, &mut client, "k")?;
        call(&mut direct, &["FLUSHALL"])?;
        seen(&mut client, "k", None)?;
    }
    let stop = AtomicBool::new(false);
    let past = AtomicU64::new(0);
    thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut direct = connect(redis.address())?;
            while !stop.load(Ordering::Relaxed) {
                let key = counter(past.fetch_add(1, Ordering::Relaxed));
                call(&mut direct, &["INCR", &key])?;
                thread::yield_now();
            }
            Ok(())
        });
        let counted = all_count(proxy.address(), None);
        stop.store(true, Ordering::Relaxed);
        let beside: Result<(), Failure> = beside.join().map_err(|_| "a panic".to_owned())?;
        counted.and(beside)
    })?;
    Ok(stat(&proxy, "cache_hits"))
}

fn a_cluster(setting: &Setting) -> Result<u64, Failure> {
    let cluster = Cluster::start()?;
    let seed = cluster.nodes[0].address();
    let pool = format!("kind = 'cluster'\nseed = [{{ address = '{seed}' }}]\n{CACHE}");
    let proxy = started(setting, &pool)?;
    until("all primaries tell what changes", || {
        stat(&proxy, "CacheWorkers") == 6
    })?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let counting = scope.spawn(|| all_count(proxy.address(), Some(&stop)));
        let moved = reshard(&cluster.nodes[0], &cluster.nodes[1], RESHARDED);
        let back = reshard(&cluster.nodes[1], &cluster.nodes[0], RESHARDED);
        stop.store(true, Ordering::Relaxed);
        let counted = counting.join().map_err(|_| "a panic".to_owned())?;
        moved.and(back).and(counted)
    })?;
    Ok(stat(&proxy, "cache_hits"))
}

/// Reads until this is the value.
fn seen(client: &mut Client, key: &str, value: Option<&str>) -> Result<(), Failure> {
    until("a value is seen", || {
        let got = call(client, &["GET", key]);
        got.is_ok_and(|got| got.as_bytes() == value.map(str::as_bytes))
    })
}

/// Reads until the reply is cached.
fn kept(proxy: &ServerProcess, client: &mut Client, key: &str) -> Result<(), Failure> {
    until("a value is kept", || {
        let before = stat(proxy, "cache_hits");
        call(client, &["GET", key]).is_ok() && stat(proxy, "cache_hits") > before
    })
}

fn counter(number: u64) -> String {
    format!("k:{}", number % COUNTERS)
}

/// Lets all clients count, for this many rounds, or until they are stopped.
fn all_count(address: SocketAddr, stop: Option<&AtomicBool>) -> Result<(), Failure> {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|seed| scope.spawn(move || count(address, seed, stop)))
            .collect();
        clients.into_iter().try_for_each(|client| {
            let counted = client.join().map_err(|_| "a panic".to_owned())?;
            counted.map(drop)
        })
    })
}

/// Increments now and then, and reads counters: they never decrease.
fn count(address: SocketAddr, seed: u64, stop: Option<&AtomicBool>) -> Result<(), Failure> {
    let mut client = connect(address)?;
    if seed.is_multiple_of(2) {
        call(&mut client, &["HELLO", "3"])?;
    }
    let mut last = [0_u64; COUNTERS as usize];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for round in 0.. {
        if stop.map_or(round == ROUNDS, |stop| stop.load(Ordering::Relaxed)) {
            break;
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = state >> 20;
        let key = counter(at);
        let got = match (state >> 40) % 200 {
            0..=2 => call(&mut client, &["INCR", &key])?,
            3 => call(
                &mut client,
                &["EVAL", "return redis.call('INCR', KEYS[1])", "1", &key],
            )?,
            4 => {
                call(&mut client, &["MULTI"])?;
                call(&mut client, &["INCR", &key])?;
                match call(&mut client, &["EXEC"])? {
                    Value::Array(mut values) => values.pop().unwrap_or(Value::Null),
                    // A transaction cannot follow its slot.
                    error => error,
                }
            }
            _ => call(&mut client, &["GET", &key])?,
        };
        let value = match &got {
            Value::Integer(value) => *value as u64,
            Value::Null | Value::NullBulk => 0,
            error if error.is_error() && stop.is_some() => continue,
            other => {
                let text = String::from_utf8_lossy(other.as_bytes().unwrap_or_default());
                text.parse().map_err(|_| format!("{key}: {other:?}"))?
            }
        };
        let last = &mut last[(at % COUNTERS) as usize];
        if value < *last {
            return Err(format!("{key} went back from {last} to {value}"));
        }
        *last = value;
    }
    Ok(())
}
