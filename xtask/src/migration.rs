//! MIGRATE to and from real servers while clients write to the same keys: nothing is lost, and nothing is there twice.
//!
//! Each list has one writer, who pushes numbers where the list is. Lists move to and fro meanwhile. In the end each is at
//! one server, with the numbers that were acknowledged, in order. Moved by a client, by DUMP, RESTORE and DEL, some are
//! lost: that has to be noticed.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redline_testkit::client::{Client, Value};
use redline_testkit::process::ServerProcess;

use crate::compat::Setting;
use crate::install;
use crate::run::Failure;

/// Seconds of the whole step by default.
const SECONDS: u64 = 20;
const LISTS: usize = 12;
/// Longest time of a call of MIGRATE: milliseconds.
const TIMEOUT_MS: &str = "10000";
/// Pause of a writer behind each number: a list that changes all the time is not moved.
const PAUSE: Duration = Duration::from_micros(300);
/// Pause between two looks for a list that is on its way.
const LOOK: Duration = Duration::from_micros(100);
/// Time that a list may be on its way.
const PATIENCE: Duration = Duration::from_secs(60);

/// A list: where it is, and how many numbers were acknowledged.
#[derive(Default)]
struct List {
    place: AtomicUsize,
    pushed: AtomicU64,
    /// Held from the look at the place to the answer of the server there, and before a move. A write that comes to the target
    /// of a later move than it knows of would be written over, if the list has to be sent again.
    turn: Mutex<()>,
}

/// Number of moves, and of those that were given up since the list changed too often.
#[derive(Debug, Default)]
struct Figures {
    moves: AtomicU64,
    given_up: AtomicU64,
}

/// Moves lists between ours and each other server, and finds the planted fault.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let others: [(&str, PathBuf); 3] = [
        ("Redis 7.0.15", install::older_redis_server()?),
        ("Redis 8.2.3", setting.redis.clone()),
        ("Valkey 9.1.2", install::valkey_server()?),
    ];
    let time = Duration::from_secs(setting.seconds_or(SECONDS)) / 5;
    let mut said = Vec::new();
    let ours = || {
        let started = ServerProcess::redline(&setting.redline, 3, &words());
        started.map_err(|error| format!("ours: {error}"))
    };
    for (name, program) in &others {
        let other = ServerProcess::redis(program, &words());
        let other = other.map_err(|error| format!("{name}: {error}"))?;
        let (figures, pushed) = play(&[ours()?, other], time, false, setting.seed())
            .map_err(|failure| format!("ours and {name}: {failure}"))?;
        said.push(format!(
            "{name}: {} moves and {} given up under {pushed} writes",
            figures.moves.load(Ordering::Relaxed),
            figures.given_up.load(Ordering::Relaxed)
        ));
    }
    play(&[ours()?, ours()?], time, false, setting.seed())
        .map_err(|failure| format!("ours and ours: {failure}"))?;
    match play(&[ours()?, ours()?], time, true, setting.seed()) {
        Err(_) => Ok(format!("{}; the planted fault was found", said.join("; "))),
        Ok(_) => Err("lists were moved by hand under writes, and nobody noticed".to_owned()),
    }
}

fn words() -> Vec<String> {
    ["--save", ""].map(str::to_owned).to_vec()
}

/// Moves lists for a while under writes. Returns the figures and the number of writes.
fn play(
    servers: &[ServerProcess; 2],
    time: Duration,
    by_hand: bool,
    seed: u64,
) -> Result<(Figures, u64), Failure> {
    let lists: Vec<List> = (0..LISTS).map(|_| List::default()).collect();
    let (figures, ends) = (Figures::default(), AtomicBool::new(false));
    let mut first = connect(&servers[0])?;
    for number in 0..LISTS {
        call(&mut first, &["RPUSH", &name(number), "0"])?;
    }
    let results = thread::scope(|scope| {
        let (lists, ends, figures) = (&lists, &ends, &figures);
        let mut parts = Vec::new();
        for (number, list) in lists.iter().enumerate() {
            parts.push(scope.spawn(move || write(servers, &name(number), list, ends)));
        }
        for part in 0..2 {
            let mut random = Rng::with_seed(seed + part);
            // Each list has one mover.
            let mine = move |number: &usize| *number % 2 == part as usize;
            let numbers: Vec<usize> = (0..LISTS).filter(mine).collect();
            parts.push(scope.spawn(move || {
                let until = Instant::now() + time;
                let result = loop {
                    if Instant::now() > until {
                        break Ok(());
                    }
                    let number = numbers[random.usize(..numbers.len())];
                    if let Err(failure) = moved(servers, number, &lists[number], by_hand, figures) {
                        break Err(failure);
                    }
                };
                ends.store(true, Ordering::Release);
                result
            }));
        }
        let joined = parts.into_iter().map(|part| part.join());
        joined
            .map(|result| result.map_err(|_| "a thread panicked".to_owned())?)
            .collect::<Vec<Result<(), Failure>>>()
    });
    results.into_iter().collect::<Result<Vec<()>, Failure>>()?;
    check(servers, &lists)?;
    let pushed = lists.iter().map(|list| list.pushed.load(Ordering::Relaxed));
    Ok((figures, pushed.sum()))
}

impl List {
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().expect("no panic under a turn")
    }
}

fn name(number: usize) -> String {
    format!("list:{number}")
}

fn connect(server: &ServerProcess) -> Result<Client, Failure> {
    Client::connect(server.address()).map_err(|error| error.to_string())
}

/// Makes a call; an error of the server is a failure.
fn call<W: AsRef<[u8]>>(client: &mut Client, words: &[W]) -> Result<Value, Failure> {
    match client.call(words) {
        Ok(Value::Error(text)) => Err(String::from_utf8_lossy(&text).into_owned()),
        Ok(value) => Ok(value),
        Err(error) => Err(error.to_string()),
    }
}

/// Pushes one number after the other, each where the list is.
fn write(
    servers: &[ServerProcess; 2],
    name: &str,
    list: &List,
    ends: &AtomicBool,
) -> Result<(), Failure> {
    let mut clients = [connect(&servers[0])?, connect(&servers[1])?];
    while !ends.load(Ordering::Acquire) {
        let number = (list.pushed.load(Ordering::Relaxed) + 1).to_string();
        let since = Instant::now();
        loop {
            let turn = list.turn();
            let client = &mut clients[list.place.load(Ordering::Acquire)];
            let length = call(client, &["RPUSHX", name, &number])?;
            drop(turn);
            match length {
                // It is on its way.
                Value::Integer(0) if since.elapsed() < PATIENCE => thread::sleep(LOOK),
                Value::Integer(0) => return Err(format!("{name} is nowhere")),
                _ => break,
            }
        }
        list.pushed.fetch_add(1, Ordering::Relaxed);
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Moves a list to the other server.
fn moved(
    servers: &[ServerProcess; 2],
    number: usize,
    list: &List,
    by_hand: bool,
    figures: &Figures,
) -> Result<(), Failure> {
    drop(list.turn());
    let from = list.place.load(Ordering::Acquire);
    let (mut source, mut target) = (connect(&servers[from])?, connect(&servers[1 - from])?);
    let name = name(number);
    if by_hand {
        let Value::Bulk(payload) = call(&mut source, &["DUMP", &name])? else {
            return Err(format!("{name} is not where it should be"));
        };
        let words = [b"RESTORE".as_slice(), name.as_bytes(), b"0", &payload];
        call(&mut target, &words)?;
        call(&mut source, &["DEL", &name])?;
    } else {
        let port = servers[1 - from].address().port().to_string();
        let words = ["MIGRATE", "127.0.0.1", &port, &name, "0", TIMEOUT_MS];
        match call(&mut source, &words) {
            Ok(Value::Simple(text)) if text == b"OK" => {}
            Ok(other) => return Err(format!("MIGRATE of {name}: {other:?}")),
            // It has changed too often: both have it, and the source's is the one that counts.
            Err(text) if text.starts_with("IOERR") => {
                call(&mut target, &["DEL", &name])?;
                figures.given_up.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            Err(text) => return Err(format!("MIGRATE of {name}: {text}")),
        }
    }
    figures.moves.fetch_add(1, Ordering::Relaxed);
    list.place.store(1 - from, Ordering::Release);
    Ok(())
}

/// Looks for each list at both servers.
fn check(servers: &[ServerProcess; 2], lists: &[List]) -> Result<(), Failure> {
    let mut clients = [connect(&servers[0])?, connect(&servers[1])?];
    for (number, list) in lists.iter().enumerate() {
        let (name, place) = (name(number), list.place.load(Ordering::Acquire));
        let mut contents = Vec::new();
        for client in &mut clients {
            let Value::Array(elements) = call(client, &["LRANGE", &name, "0", "-1"])? else {
                return Err(format!("LRANGE of {name} is no array"));
            };
            let texts = elements.iter().map(|element| {
                String::from_utf8_lossy(element.as_bytes().unwrap_or_default()).into_owned()
            });
            contents.push(texts.collect::<Vec<String>>());
        }
        let pushed = list.pushed.load(Ordering::Relaxed);
        compare(&contents[place], &contents[1 - place], pushed)
            .map_err(|fault| format!("{name} {fault}"))?;
    }
    Ok(())
}

/// Compares a list with the numbers that were acknowledged; `elsewhere` is what the other server has of it.
fn compare(contents: &[String], elsewhere: &[String], pushed: u64) -> Result<(), Failure> {
    if !elsewhere.is_empty() {
        return Err("is there twice".to_owned());
    }
    let expected = (0..=pushed).map(|number| number.to_string());
    match expected.eq(contents.iter().cloned()) {
        true => Ok(()),
        false => Err(format!(
            "has {} numbers behind its first, or has them out of order: {pushed} were acknowledged",
            contents.len().saturating_sub(1)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_doubled_or_out_of_order_is_a_fault() {
        let list = |numbers: &[u64]| {
            let texts = numbers.iter().map(u64::to_string);
            texts.collect::<Vec<String>>()
        };
        let whole = list(&[0, 1, 2]);
        assert_eq!(compare(&whole, &[], 2), Ok(()));
        assert!(compare(&whole, &list(&[0]), 2).is_err());
        assert!(compare(&whole, &[], 3).is_err());
        assert!(compare(&whole, &[], 1).is_err());
        assert!(compare(&list(&[0, 2, 1]), &[], 2).is_err());
        assert!(compare(&list(&[0, 1, 1, 2]), &[], 2).is_err());
    }
}
