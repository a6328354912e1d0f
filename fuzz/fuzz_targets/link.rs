//! A replica's link: whatever a primary sends, from the handshake to the stream, comes out the same wherever it is cut; a
//! snapshot ends where it says, and the stream behind it gives the same units, each byte once.
//!
//! The first byte says what the replica is, the second where the bytes are cut; the others are the primary's.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_replica::{
    Replid,
    link::{
        Introduction, Link, State, Wish,
        units::{Broken, Units},
    },
};

const APPLIED: u64 = 77;
const NOW_MS: u64 = 1_000;

/// Everything that came out of a link.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    sent: Vec<u8>,
    snapshot: Vec<u8>,
    stream: Vec<u8>,
    /// Where units end in the stream, and their commands.
    units: Vec<(usize, Vec<Vec<Vec<u8>>>)>,
    broken: Option<Broken>,
    others: Vec<String>,
}

struct Play {
    link: Link,
    units: Units,
    heard: Heard,
    /// Bytes of units that were read.
    read: usize,
    loads: bool,
    is_lost: bool,
}

impl Play {
    fn new(what: u8) -> Play {
        let mut link = Link::default();
        link.follow(NOW_MS);
        assert_eq!(link.tick(0, None, NOW_MS), Some(Wish::Connect));
        let has = |bit: u8| what & 1 << bit != 0;
        let introduction = Introduction {
            node: None,
            user: has(0).then(|| b"user".to_vec()),
            password: has(1).then(|| b"word".to_vec()),
            port: 7000,
            address: has(2).then(|| "10.0.0.1".to_owned()),
            resume: has(3).then(|| (Replid::from_random([7; 20]), APPLIED)),
            is_failover: has(3) && has(4),
            timeout_ms: 60_000,
        };
        link.connected(introduction, NOW_MS);
        Play {
            link,
            units: Units::default(),
            heard: Heard::default(),
            read: 0,
            loads: !has(5),
            is_lost: false,
        }
    }

    /// Gives the link bytes, as far as it takes them.
    fn give(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_lost {
            let mut wishes = Vec::new();
            let taken = self.link.take(bytes, NOW_MS, &mut wishes);
            assert!(taken <= bytes.len());
            for wish in wishes {
                self.meet(wish);
            }
            self.heard.sent.append(self.link.out());
            if taken == 0 && !self.is_lost {
                assert!(!self.link.takes_bytes(), "it takes bytes, and took none");
                return;
            }
            bytes = &bytes[taken..];
        }
    }

    fn meet(&mut self, wish: Wish<'_>) {
        match wish {
            Wish::Snapshot(bytes) => {
                assert!(matches!(
                    self.link.state(),
                    State::Transfer | State::Loading | State::Pausing
                ));
                self.heard.snapshot.extend_from_slice(bytes);
            }
            Wish::Load { surplus } => {
                let whole = self.heard.snapshot.len().checked_sub(surplus);
                self.heard
                    .snapshot
                    .truncate(whole.expect("the mark came with it"));
                assert_eq!(self.link.state(), State::Loading);
                let result = match self.loads {
                    true => Ok(APPLIED),
                    false => Err("it is damaged".to_owned()),
                };
                if let Some(wish) = self.link.loaded(result, NOW_MS) {
                    self.meet(wish);
                }
            }
            Wish::Stream(bytes) => {
                self.heard.stream.extend_from_slice(bytes);
                self.units.push(bytes);
                self.read_units();
            }
            Wish::Failed(_) | Wish::Refused(_) => {
                assert_eq!(self.link.state(), State::Pausing);
                self.is_lost = true;
                // What was not sent before is not sent any more.
                self.heard.sent.clear();
                self.heard.others.push(format!("{wish:?}"));
            }
            other => self.heard.others.push(format!("{other:?}")),
        }
    }

    fn read_units(&mut self) {
        let mut ahead: Vec<Vec<Vec<u8>>> = Vec::new();
        while self.heard.broken.is_none() {
            if let Some(commands) = self.units.look_ahead(5, 200) {
                ahead = commands
                    .map(|(_, args)| args.iter().map(<[u8]>::to_vec).collect())
                    .collect();
            }
            match self.units.next_unit() {
                Ok(None) => break,
                Ok(Some(unit)) => {
                    let commands: Vec<Vec<Vec<u8>>> = unit
                        .commands()
                        .map(|args| args.iter().map(<[u8]>::to_vec).collect())
                        .collect();
                    assert!(unit.is_transaction || commands.len() < 2);
                    let bytes = unit.bytes.len();
                    assert!(bytes > 0);
                    assert_eq!(ahead.drain(..commands.len()).collect::<Vec<_>>(), commands);
                    self.read += bytes;
                    let from = self.read - bytes;
                    assert_eq!(
                        self.units.read_bytes(bytes),
                        &self.heard.stream[from..self.read]
                    );
                    self.heard.units.push((self.read, commands));
                }
                Err(broken) => self.heard.broken = Some(broken),
            }
        }
        assert_eq!(
            self.units.waiting_bytes(),
            self.heard.stream.len() - self.read
        );
    }
}

fuzz_target!(|data: &[u8]| {
    let [what, cut, primary @ ..] = data else {
        return;
    };
    let mut whole = Play::new(*what);
    whole.give(primary);
    #[cfg(feature = "planted")]
    assert!(
        whole.heard.snapshot.is_empty() || whole.heard.units.is_empty(),
        "the planted fault"
    );
    let mut rng = fastrand::Rng::with_seed(u64::from(*cut));
    for piece_max in [1, 2 + rng.usize(..60)] {
        let (mut cut, mut rest) = (Play::new(*what), primary);
        // What is not taken at once is not taken later either: loading ends at once here.
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rng.usize(1..=piece_max).min(rest.len()));
            cut.give(now);
            rest = later;
        }
        assert_eq!(cut.heard, whole.heard, "in pieces of up to {piece_max}");
    }
});
