//! Which format ours sends a snapshot in, by who is to read it and by what the data needs: read on its way.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fastrand::Rng;
use redline_testkit::client::encode;
use redline_testkit::relay::Relay;

use super::{Breadth, Group, Kind, LITTLE, LOOK, NAMED_KEYS_MAX, PATIENCE, Scene, contents};
use crate::compat::Setting;
use crate::run::Failure;

/// Length of the word that a snapshot begins with.
const MAGIC_BYTES: usize = 9;
/// Length of the mark behind a snapshot of unknown length.
const MARK_BYTES: usize = 40;

/// A replica, data of ours, and what is to be sent.
struct Case {
    replica: Kind,
    /// A field of a hash expires.
    has_timed_fields: bool,
    magic: &'static str,
    /// The replica reads it.
    is_taken: bool,
}

const fn case(replica: Kind, has_timed_fields: bool, magic: &'static str, is_taken: bool) -> Case {
    Case {
        replica,
        has_timed_fields,
        magic,
        is_taken,
    }
}

const CASES: [Case; 8] = [
    case(Kind::Redis7, false, "REDIS0010", true),
    // It tells what a Redis 7.4 tells, which reads this.
    case(Kind::Redis7, true, "REDIS0012", false),
    case(Kind::Redis8, false, "REDIS0012", true),
    case(Kind::Redis8, true, "REDIS0012", true),
    case(Kind::Valkey, false, "REDIS0011", true),
    case(Kind::Valkey, true, "VALKEY080", true),
    case(Kind::Ours, false, "REDIS0012", true),
    case(Kind::Ours, true, "REDIS0012", true),
];

/// Tries each case; returns their number.
pub fn run(setting: &Setting) -> Result<usize, Failure> {
    for case in &CASES {
        let named = |failure: Failure| {
            let timed = match case.has_timed_fields {
                true => "with",
                false => "without",
            };
            format!(
                "to {:?}, {timed} fields that expire: {failure}",
                case.replica
            )
        };
        send(setting, case).map_err(named)?;
    }
    refuse(setting)?;
    Ok(CASES.len() + 1)
}

fn primary_alone(setting: &Setting, has_timed_fields: bool) -> Result<Group, Failure> {
    let scene = Scene {
        name: "formats",
        servers: &[(Kind::Ours, None)],
        breadth: Breadth::Timed,
        backlog: LITTLE,
    };
    let group = Group::start(setting, &scene, &mut Rng::with_seed(setting.seed()))?;
    let primary = &group.members[0];
    primary.call(&["SET", "a", "1"])?;
    primary.call(&["HSET", "h", "f", "v", "g", "w"])?;
    if has_timed_fields {
        primary.call(&["HPEXPIRE", "h", "10000000", "FIELDS", "1", "f"])?;
    }
    Ok(group)
}

fn send(setting: &Setting, case: &Case) -> Result<(), Failure> {
    let mut group = primary_alone(setting, case.has_timed_fields)?;
    group.join(setting, case.replica, Some(0), LITTLE, |target| {
        Relay::start(target, setting.seed())
    })?;
    let [primary, replica] = &group.members[..] else {
        return Err("a primary and a replica".to_owned());
    };
    let relay = replica.relay.as_ref().expect("it follows by one");
    let deadline = Instant::now() + PATIENCE;
    loop {
        std::thread::sleep(LOOK);
        let sent: Vec<String> = relay
            .beginnings()
            .iter()
            .filter_map(|said| magic(said))
            .collect();
        if let Some(other) = sent.iter().find(|sent| *sent != case.magic) {
            return Err(replica.failed(&format!("{other} was sent, {} was due", case.magic)));
        }
        let is_up = replica.info("master_link_status")? == "up";
        if is_up && !case.is_taken {
            return Err(replica.failed("it has taken what it cannot read"));
        }
        let is_done = match case.is_taken {
            true => is_up && sent.len() == 1,
            // It has tried again, which changes nothing.
            false => sent.len() > 1,
        };
        if is_done {
            break;
        }
        if Instant::now() > deadline {
            return Err(replica.failed("no snapshot came of it"));
        }
    }
    if !case.is_taken {
        return Ok(());
    }
    let digests = group.digests();
    let (wanted, held) = (primary.keys(digests)?, replica.keys(digests)?);
    match wanted == held {
        true => Ok(()),
        false => Err(replica.failed(&contents::difference(&wanted, &held, NAMED_KEYS_MAX))),
    }
}

/// Returns the first word of the snapshot in what a primary has said.
fn magic(said: &[u8]) -> Option<String> {
    let mut lines = said.windows(3);
    let at = lines.position(|bytes| bytes[0] == b'\n' && bytes[1] == b'$')?;
    let head = said.get(at + 1..)?;
    let end = head.windows(2).position(|bytes| bytes == b"\r\n")? + 2;
    let word = head.get(end..end + MAGIC_BYTES)?;
    Some(String::from_utf8_lossy(word).into_owned())
}

/// Returns true if a snapshot has come to its end, which is the mark that its head tells.
fn is_whole(said: &[u8]) -> bool {
    const HEAD: &[u8] = b"$EOF:";
    let mut heads = said.windows(HEAD.len());
    let Some(at) = heads.position(|bytes| bytes == HEAD) else {
        return false;
    };
    let behind = &said[at + HEAD.len()..];
    behind
        .split_at_checked(MARK_BYTES)
        .is_some_and(|(mark, behind)| behind.windows(MARK_BYTES).any(|bytes| bytes == mark))
}

/// Asks as a Valkey 8, which reads no fields that expire: it is closed without the end of a snapshot, and the log says why, once.
fn refuse(setting: &Setting) -> Result<(), Failure> {
    let group = primary_alone(setting, true)?;
    let primary = &group.members[0];
    let failed = |error: std::io::Error| primary.failed(&format!("a Valkey 8: {error}"));
    let mut stream = TcpStream::connect(primary.running().address()).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut words = Vec::new();
    encode(&["REPLCONF", "version", "8.0.1", "capa", "eof"], &mut words);
    encode(&["PSYNC", "?", "-1"], &mut words);
    stream.write_all(&words).map_err(failed)?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said).map_err(failed)?;
    if is_whole(&said) {
        return Err(primary.failed("a Valkey 8 was sent a snapshot that has fields that expire"));
    }
    let lines = || {
        let log = primary.running().log();
        log.lines()
            .filter(|line| line.contains("Snapshot for replicas failed"))
            .count()
    };
    // The line is there before the connection is closed; the file of the log may be read later.
    let deadline = Instant::now() + Duration::from_secs(5);
    while lines() == 0 && Instant::now() < deadline {
        std::thread::sleep(LOOK);
    }
    match lines() {
        1 => Ok(()),
        count => Err(primary.failed(&format!("{count} lines say that a Valkey 8 was refused"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_seen_on_its_way() {
        let mark = "m".repeat(MARK_BYTES);
        let head = format!("+FULLRESYNC x 0\r\n\n\n$EOF:{mark}\r\n");
        let cut = format!("{head}REDIS00");
        let begun = format!("{head}REDIS0012 and more");
        let whole = format!("{begun}{mark}");
        let sized = "+FULLRESYNC x 0\r\n$200\r\nVALKEY080 and more";
        let seen = |said: &str| (magic(said.as_bytes()), is_whole(said.as_bytes()));
        assert_eq!(seen(&head), (None, false));
        assert_eq!(seen(&cut), (None, false));
        assert_eq!(seen(&begun), (Some("REDIS0012".to_owned()), false));
        assert_eq!(seen(&whole), (Some("REDIS0012".to_owned()), true));
        assert_eq!(seen(sized), (Some("VALKEY080".to_owned()), false));
    }
}
