//! A primary and replicas in memory: what each is sent, whatever is lost, cut or doubled.

use super::*;
use crate::{
    blocks::BLOCK_BYTES,
    identity::{Identity, REPLID_LEN},
};

const LIMITS: Limits = Limits {
    backlog_bytes: 1000,
    backlog_ttl_ms: 60_000,
    timeout_ms: 10_000,
    ping_period_ms: 1_000_000,
    is_diskless: true,
    delay_ms: 0,
    enough_replicas: 0,
    hard_bytes: 500_000,
    soft_bytes: 300_000,
    soft_ms: 5_000,
    spool_bytes: 0,
};
const MARK: [u8; MARK_BYTES] = [b'm'; MARK_BYTES];

fn id(seed: u8) -> Replid {
    Replid::from_random([seed; REPLID_LEN / 2])
}

fn primary() -> Primary {
    Primary::new(Log::new(Identity::new(id(1))), LIMITS)
}

/// Takes everything that there is for a replica, with snapshots read from `snapshot`.
fn take(primary: &mut Primary, client: u64, snapshot: &[u8], now_ms: u64) -> Vec<u8> {
    let (mut all, mut out) = (Vec::new(), ReplyBuffer::new());
    loop {
        let next = primary.fill(client, &mut out, 1 + all.len() % 100);
        out.chunks().for_each(|chunk| all.extend_from_slice(chunk));
        out.clear();
        match next {
            Next::Nothing => return all,
            Next::More => {}
            Next::Spilled { .. } => unreachable!("these tests have no file"),
            Next::Snapshot { from, bytes, .. } => {
                let from = from as usize;
                all.extend_from_slice(&snapshot[from..from + bytes]);
                primary.snapshot_handed_out(client, bytes as u64, now_ms);
            }
        }
    }
}

fn write(primary: &mut Primary, bytes: &[u8], number: u64) -> (Vec<u64>, Vec<u64>) {
    primary.append(bytes);
    primary.end_round(number)
}

/// Brings a replica that marks ends online; returns what it was sent.
fn full_sync(primary: &mut Primary, client: u64, snapshot: &[u8]) -> Vec<u8> {
    primary.peer_mut(client, 0).eof = true;
    assert_eq!(primary.psync(client, b"?", -1, || id(2), 0), Answer::Full);
    let form = primary.due_walk(0).expect("somebody waits");
    let walk = primary.begin_walk(form, MARK);
    primary.cut_walk(walk, 0, 0);
    primary.walk_grew(walk, snapshot.len() as u64, true);
    let sent = take(primary, client, snapshot, 0);
    let offset = primary.log().identity().offset();
    assert!(primary.ack(client, offset, None, 0));
    sent
}

fn replica(primary: &Primary, client: u64) -> &Replica {
    let mut replicas = primary.replicas().iter();
    replicas.find(|replica| replica.client == client).unwrap()
}

#[test]
fn a_full_sync_sends_the_snapshot_then_the_stream_behind_its_cut() {
    let mut primary = primary();
    primary.peer_mut(7, 0).eof = true;
    assert_eq!(primary.psync(7, b"?", -1, || id(2), 0), Answer::Full);
    let walk = primary.begin_walk(primary.due_walk(0).unwrap(), MARK);
    assert_eq!(primary.due_walk(0), None);
    write(&mut primary, b"before", 3);
    assert_eq!(take(&mut primary, 7, b"", 0), b"");
    assert_eq!(primary.cut_walk(walk, 0, 0), [7], "it was asleep");
    write(&mut primary, b"behind", 4);
    let head = format!(
        "+FULLRESYNC {} 6\r\n$EOF:{}\r\n",
        id(2),
        "m".repeat(MARK_BYTES)
    );
    assert_eq!(take(&mut primary, 7, b"", 0), head.as_bytes());
    assert_eq!(primary.walk_grew(walk, 4, false), [7]);
    assert_eq!(take(&mut primary, 7, b"snap", 0), b"snap");
    assert_eq!(primary.walk_grew(walk, 8, true), [7]);
    let rest = take(&mut primary, 7, b"snapshot", 0);
    assert_eq!(rest, [b"shot", &MARK[..]].concat());
    assert!(primary.is_over(walk), "its file may go");
    assert_eq!(
        take(&mut primary, 7, b"", 0),
        b"",
        "its end would be hidden"
    );
    assert!(primary.ack(7, 6, None, 0));
    assert_eq!(take(&mut primary, 7, b"", 0), b"behind");
    assert_eq!(replica(&primary, 7).state_name(), "online");
}

#[test]
fn who_reads_no_marks_gets_the_length_when_it_is_known() {
    let mut primary = primary();
    assert_eq!(primary.sync(5, false, || id(2), 0), Answer::Full);
    let walk = primary.begin_walk(primary.due_walk(0).unwrap(), MARK);
    primary.cut_walk(walk, 0, 0);
    primary.walk_grew(walk, 4, false);
    assert_eq!(take(&mut primary, 5, b"snap", 0), b"");
    write(&mut primary, b"stream", 1);
    primary.walk_grew(walk, 8, true);
    assert_eq!(
        take(&mut primary, 5, b"snapshot", 0),
        b"$8\r\nsnapshotstream"
    );
}

#[test]
fn who_wants_a_snapshot_alone_is_sent_no_stream() {
    let mut primary = primary();
    primary.peer_mut(5, 0).rdb_only = true;
    primary.sync(5, false, || id(2), 0);
    let walk = primary.begin_walk(primary.due_walk(0).unwrap(), MARK);
    primary.cut_walk(walk, 0, 0);
    primary.walk_grew(walk, 4, true);
    write(&mut primary, b"stream", 1);
    assert_eq!(take(&mut primary, 5, b"snap", 0), b"$4\r\nsnap");
}

#[test]
fn a_replica_that_comes_back_goes_on_at_any_byte() {
    let stream: Vec<u8> = (0..200_u8).collect();
    for kept in 0..=stream.len() {
        let mut primary = primary();
        full_sync(&mut primary, 1, b"x");
        primary.peer_mut(1, 0).psync2 = true;
        let begin = primary.log().identity().offset();
        write(&mut primary, &stream[..50], 1);
        assert!(primary.gone(1, 0));
        write(&mut primary, &stream[50..], 2);
        let asked = begin as i64 + kept as i64 + 1;
        let own = primary.log().identity().replid();
        primary.peer_mut(2, 0).psync2 = true;
        assert_eq!(
            primary.psync(2, own.as_bytes(), asked, || id(3), 0),
            Answer::Partial
        );
        let sent = take(&mut primary, 2, b"", 0);
        let text = format!("+CONTINUE {own}\r\n");
        assert_eq!(sent, [text.as_bytes(), &stream[kept..]].concat());
    }
}

#[test]
fn a_history_of_another_or_what_is_not_kept_costs_a_full_sync() {
    let mut primary = primary();
    full_sync(&mut primary, 1, b"x");
    let own = primary.log().identity().replid();
    for (replid, asked) in [(id(9), 1), (own, 0), (own, -5), (own, i64::MAX), (own, 2)] {
        let answer = primary.psync(2, replid.as_bytes(), asked, || id(3), 0);
        assert_eq!(answer, Answer::Full, "{replid} {asked}");
        primary.gone(2, 0);
    }
    assert_eq!(primary.figures.partial_refused, 5);
    assert_eq!(
        primary.psync(2, own.as_bytes(), 1, || id(3), 0),
        Answer::Partial
    );
    assert_eq!(
        primary.log().identity().replid(),
        own,
        "its history goes on"
    );
}

#[test]
fn a_request_that_comes_twice_is_answered_once() {
    let mut primary = primary();
    full_sync(&mut primary, 1, b"x");
    write(&mut primary, b"abc", 1);
    let own = primary.log().identity().replid();
    assert_eq!(
        primary.psync(1, own.as_bytes(), 1, || id(3), 0),
        Answer::Partial
    );
    assert_eq!(take(&mut primary, 1, b"", 0), b"abc");
    assert_eq!(primary.sync(1, true, || id(3), 0), Answer::Full);
    assert_eq!(primary.due_walk(1_000_000), None);
    write(&mut primary, b"def", 2);
    assert_eq!(take(&mut primary, 1, b"", 0), b"def");
}

#[test]
fn all_who_wait_share_a_walk_of_their_form() {
    let mut primary = primary();
    let delayed = Limits {
        delay_ms: 500,
        enough_replicas: 4,
        ..LIMITS
    };
    primary.set_limits(delayed);
    for client in 1..=3 {
        primary.peer_mut(client, 0).rdb_channel = client == 3;
        primary.psync(client, b"?", -1, || id(2), 100 * client);
    }
    assert_eq!(primary.due_walk(599), None);
    let form = primary
        .due_walk(600)
        .expect("the first has waited for long enough");
    assert_eq!(form, Form::Unknown);
    let walk = primary.begin_walk(form, MARK);
    let states: Vec<State> = primary.replicas().iter().map(|one| one.state).collect();
    assert_eq!(states, [State::Receives, State::Receives, State::Waits]);
    assert_eq!(primary.due_walk(10_000), None, "one after the other");
    primary.walk_grew(walk, 1, true);
    assert_eq!(primary.due_walk(10_000), Some(Form::Redis8));
    primary.psync(4, b"?", -1, || id(2), 100);
    primary.psync(5, b"?", -1, || id(2), 100);
    primary.psync(6, b"?", -1, || id(2), 100);
    assert!(primary.due_walk(301).is_some(), "there are enough");
}

#[test]
fn who_never_acknowledged_gets_the_old_format_next() {
    let mut primary = primary();
    let come = |primary: &mut Primary, client| {
        primary.peer_mut(client, 0).ip = "10.0.0.1".into();
        primary.peer_mut(client, 0).port = 6380;
        primary.psync(client, b"?", -1, || id(2), 0);
        let form = primary.due_walk(0).unwrap();
        let walk = primary.begin_walk(form, MARK);
        primary.cut_walk(walk, 0, 0);
        primary.walk_grew(walk, 4, true);
        take(primary, client, b"snap", 0);
        form
    };
    assert_eq!(come(&mut primary, 1), Form::Unknown);
    primary.gone(1, 0);
    assert_eq!(come(&mut primary, 2), Form::Old);
    primary.ack(2, 1, None, 0);
    primary.gone(2, 0);
    assert_eq!(
        come(&mut primary, 3),
        Form::Unknown,
        "what works is not changed"
    );
}

#[test]
fn a_walk_that_fails_closes_those_that_take_part() {
    let mut primary = primary();
    full_sync(&mut primary, 1, b"x");
    primary.psync(2, b"?", -1, || id(2), 0);
    let walk = primary.begin_walk(primary.due_walk(0).unwrap(), MARK);
    assert_eq!(primary.walk_failed(walk), [2]);
    primary.gone(2, 0);
    assert!(primary.is_over(walk));
    primary.psync(3, b"?", -1, || id(2), 0);
    assert!(primary.due_walk(0).is_some());
}

#[test]
fn what_a_slow_replica_lacks_is_kept_up_to_a_limit() {
    let mut primary = primary();
    full_sync(&mut primary, 1, b"x");
    full_sync(&mut primary, 2, b"x");
    let piece = vec![7; 100_000];
    for number in 1..=5 {
        let (_, late) = write(&mut primary, &piece, number);
        assert_eq!(late, [0_u64; 0]);
        assert_eq!(take(&mut primary, 2, b"", 0), piece);
    }
    assert_eq!(primary.debt(), 500_000);
    assert_eq!(write(&mut primary, &piece, 6).1, [1]);
    primary.gone(1, 0);
    take(&mut primary, 2, b"", 0);
    write(&mut primary, b"x", 7);
    let kept = primary.log().blocks().unwrap().len();
    assert!((1000..70_000).contains(&kept), "{kept}");
}

#[test]
fn a_replica_behind_for_too_long_or_silent_is_closed() {
    let mut primary = primary();
    full_sync(&mut primary, 1, b"x");
    write(&mut primary, &vec![7; 300_001], 1);
    assert_eq!(primary.tick(|| id(4), 1000).close, []);
    assert_eq!(primary.tick(|| id(4), 6000).close, []);
    let reason = primary.tick(|| id(4), 6001).close;
    assert_eq!(reason, [(1, "too far behind for too long")]);
    take(&mut primary, 1, b"", 0);
    assert_eq!(primary.tick(|| id(4), 10_000).close, []);
    assert_eq!(primary.tick(|| id(4), 10_001).close, [(1, "timed out")]);
    primary.ack(1, 0, None, 10_001);
    assert_eq!(primary.tick(|| id(4), 10_001).close, []);
}

#[test]
fn signs_of_life_are_part_of_the_stream_and_new_lines_are_not() {
    let mut primary = primary();
    primary.set_limits(Limits {
        ping_period_ms: 3000,
        ..LIMITS
    });
    full_sync(&mut primary, 1, b"x");
    primary.psync(2, b"?", -1, || id(2), 0);
    take(&mut primary, 2, b"", 0);
    assert_eq!(take(&mut primary, 1, b"", 0), b"");
    assert_eq!(primary.tick(|| id(4), 5000).wake, [1, 2]);
    assert_eq!(take(&mut primary, 1, b"", 0), PING);
    assert_eq!(take(&mut primary, 2, b"", 0), b"\n");
    let offset = PING.len() as u64;
    assert_eq!(primary.log().identity().offset(), offset);
    assert_eq!(primary.tick(|| id(4), 5100).wake, [0; 0]);
    assert_eq!(primary.tick(|| id(4), 7999).wake, [2]);
}

#[test]
fn nothing_is_added_while_replicas_are_to_come_to_the_end() {
    let mut primary = primary();
    let ping_period_ms = 3000;
    primary.set_limits(Limits {
        ping_period_ms,
        ..LIMITS
    });
    full_sync(&mut primary, 1, b"x");
    write(&mut primary, b"unit", 7);
    take(&mut primary, 1, b"", 0);
    assert_eq!(primary.hold_still(Some(1000)), [0; 0]);
    assert_eq!(primary.ask_acks(7), [0; 0]);
    primary.tick(|| id(4), 1000 + LIMITS.timeout_ms / 2 - 1);
    assert_eq!(take(&mut primary, 1, b"", 0), b"");
    assert_eq!(primary.log().identity().offset(), 4);
    // Replicas that hear nothing would leave.
    primary.tick(|| id(4), 1000 + LIMITS.timeout_ms / 2);
    assert_eq!(take(&mut primary, 1, b"", 0), PING);
    // Who waits for acknowledgements has not been forgotten.
    assert_eq!(primary.hold_still(None), [1]);
    assert_eq!(take(&mut primary, 1, b"", 0), GETACK);
}

#[test]
fn what_was_kept_for_a_slow_replica_is_freed_when_it_leaves() {
    let mut primary = primary();
    full_sync(&mut primary, 1, b"x");
    let begin = |primary: &Primary| primary.log().blocks().unwrap().begin();
    for number in 1..100 {
        write(&mut primary, &vec![7; 100_000], number);
    }
    assert_eq!(begin(&primary), 0, "it has read nothing");
    primary.gone(1, 0);
    assert!(begin(&primary) > 0);
}

#[test]
fn another_period_counts_from_the_last_sign_of_life() {
    let period = |ping_period_ms| Limits {
        ping_period_ms,
        ..LIMITS
    };
    let mut primary = primary();
    primary.set_limits(period(1000));
    full_sync(&mut primary, 1, b"x");
    primary.tick(|| id(4), 5000);
    let one = PING.len() as u64;
    assert_eq!(primary.log().identity().offset(), one);
    primary.set_limits(period(3_600_000));
    primary.tick(|| id(4), 6000);
    assert_eq!(primary.log().identity().offset(), one, "due by the old one");
    primary.set_limits(period(2000));
    primary.tick(|| id(4), 6999);
    assert_eq!(primary.log().identity().offset(), one);
    primary.tick(|| id(4), 7000);
    assert_eq!(primary.log().identity().offset(), 2 * one);
}

#[test]
fn acknowledgements_stand_for_records_and_never_for_the_future() {
    let mut primary = primary();
    full_sync(&mut primary, 1, b"x");
    full_sync(&mut primary, 2, b"x");
    write(&mut primary, &[0; 10], 4);
    write(&mut primary, &[0; 10], 9);
    take(&mut primary, 1, b"", 0);
    assert_eq!(primary.ask_acks(8), [1], "the other has not slept");
    assert_eq!(take(&mut primary, 1, b"", 0), GETACK);
    assert_eq!(primary.ask_acks(10), [0; 0], "that is to come");
    assert_eq!(take(&mut primary, 1, b"", 0), b"");
    write(&mut primary, b"x", 10);
    assert_eq!(take(&mut primary, 1, b"", 0), [b"x", GETACK].concat());
    write(&mut primary, b"y", 11);
    assert_eq!(take(&mut primary, 1, b"", 0), b"y", "once");
    primary.ack(1, 19, Some(10), 0);
    assert_eq!(primary.acked_records(), [(4, 4), (0, 0)]);
    primary.ack(1, 12, Some(3), 0);
    assert_eq!(primary.acked_records(), [(4, 4), (0, 0)], "not back");
    primary.ack(2, u64::MAX, Some(u64::MAX), 0);
    assert_eq!(
        primary.acked_records(),
        [(4, 4), (0, 0)],
        "it was sent nothing"
    );
    take(&mut primary, 2, b"", 0);
    primary.ack(2, u64::MAX, Some(u64::MAX), 0);
    assert_eq!(primary.acked_records(), [(4, 4), (11, 11)]);
    assert_eq!(primary.good_replicas(10, 5), 2);
    assert_eq!(primary.good_replicas(10, 11), 0);
    assert!(!primary.ack(99, 1, None, 0));
}

#[test]
fn a_replica_that_has_told_nothing_has_nothing() {
    let mut primary = primary();
    primary.psync(1, b"?", -1, || id(2), 0);
    let walk = primary.begin_walk(primary.due_walk(0).unwrap(), MARK);
    // Everything that was written before is at the beginning of the stream.
    primary.cut_walk(walk, 5, 0);
    primary.walk_grew(walk, 1, true);
    take(&mut primary, 1, b"x", 0);
    assert_eq!(replica(&primary, 1).state, State::Online);
    assert!(!replica(&primary, 1).has(0), "it may have yet to load it");
    assert_eq!(primary.acked_records(), []);
    primary.ack(1, 0, None, 0);
    assert!(replica(&primary, 1).has(0));
    assert_eq!(primary.acked_records(), [(5, 0)]);
    primary.ack(1, 0, Some(0), 0);
    assert_eq!(primary.acked_records(), [(5, 5)]);
    primary.ack(1, 0, None, 0);
    assert_eq!(primary.acked_records(), [(5, 5)]);
}

#[test]
fn without_a_replica_the_history_ends_when_its_time_is_up() {
    let mut primary = primary();
    full_sync(&mut primary, 1, b"x");
    write(&mut primary, b"abc", 1);
    primary.gone(1, 100);
    assert!(!primary.tick(|| id(4), 60_099).is_forgotten);
    assert!(primary.tick(|| id(4), 60_100).is_forgotten);
    assert_eq!(primary.log().identity().replid(), id(4));
    assert!(primary.log().blocks().is_none());
    write(&mut primary, b"unseen", 2);
    assert_eq!(primary.log().identity().offset(), 3);
    assert!(!primary.tick(|| id(5), 200_000).is_forgotten, "once");
}

#[test]
fn a_replica_that_is_behind_by_more_than_memory_is_sent_the_rest_from_a_file() {
    const SPOOL: usize = 10 * BLOCK_BYTES;
    let mut primary = primary();
    let limits = Limits {
        spool_bytes: SPOOL as u64,
        ..LIMITS
    };
    primary.set_limits(limits);
    full_sync(&mut primary, 7, b"snapshot");
    let mut file = vec![0; SPOOL];
    let spill_all = |primary: &mut Primary, file: &mut [u8]| {
        while let Some(spill) = primary.spill() {
            let at = spill.slot.number as usize * BLOCK_BYTES;
            let written = spill.blocks.iter().fold(Vec::new(), |mut all, block| {
                all.extend_from_slice(block);
                all
            });
            file[at..at + written.len()].copy_from_slice(&written);
            primary.spilled(&spill, true);
        }
    };
    let all: Vec<u8> = (0..12 * BLOCK_BYTES).map(|at| (at / 3) as u8).collect();
    // More than the soft and the hard limit, of which memory holds less than the soft one.
    for (number, piece) in all.chunks(10_000).enumerate() {
        let (_, late) = write(&mut primary, piece, number as u64 + 1);
        assert_eq!(late, [], "{number}");
        spill_all(&mut primary, &mut file);
    }
    let kept = primary.log().blocks().unwrap();
    assert!(kept.len() as usize >= all.len() && kept.memory_len() < LIMITS.soft_bytes);
    primary.tick(|| id(3), 1);
    assert_eq!(primary.tick(|| id(3), LIMITS.soft_ms + 2).close, []);
    // Without more room the limits are as ever.
    let mut late = Vec::new();
    for number in 0..100 {
        late = write(&mut primary, &[b'x'; 10_000], 1000 + number).1;
        spill_all(&mut primary, &mut file);
        if !late.is_empty() {
            break;
        }
    }
    assert_eq!(late, [7]);
    let (mut sent, mut out) = (Vec::new(), ReplyBuffer::new());
    while sent.len() < all.len() {
        let next = primary.fill(7, &mut out, 100_000);
        out.chunks().for_each(|chunk| sent.extend_from_slice(chunk));
        out.clear();
        match next {
            Next::More => {}
            Next::Spilled { slot, from, bytes } => {
                let at = slot.number as usize * BLOCK_BYTES + from;
                sent.extend_from_slice(&file[at..at + bytes]);
                primary.spilled_handed_out(7, bytes);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(sent.windows(all.len()).any(|part| part == all));
}
