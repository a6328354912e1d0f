//! Single steps of the writer: what it answers, logs and leaves in files.

use super::*;

/// A server that is on, with an empty base and one unit that is on disk.
pub(in super::super) fn started(settings: Settings) -> Server {
    let mut server = Server::new(&disk(), settings);
    let wishes = server.writer.start();
    assert_eq!(server.writer.state(), State::Starting);
    server.take(wishes);
    server.run_jobs();
    server.rewrite_if_cut(0);
    server.write();
    server.sync();
    server.run_jobs();
    assert_eq!(
        (server.writer.state(), server.acknowledged),
        (State::On, server.last)
    );
    server
}

pub(in super::super) fn plain(policy: Policy) -> Settings {
    Settings {
        writes_timestamps: false,
        ..settings(policy)
    }
}

fn last_file(server: &Server) -> Vec<u8> {
    let name = server.writer.manifest().incrs.last().unwrap().name.clone();
    read_whole(&server.disk, &paths().file(name), 1 << 20)
        .unwrap()
        .unwrap()
}

fn units(from: u64, to: u64) -> Vec<u8> {
    (from..=to).flat_map(unit).collect()
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let mut server = started(plain(Policy::EverySecond));
    let first = last_file(&server);
    server.disk.fail_at(server.disk.calls(), Fault::Full);
    server.write();
    assert_eq!(server.writer.state(), State::Refusing);
    let refused = "MISCONF Errors writing to the AOF file: No space left on device";
    assert_eq!(server.refused.as_deref(), Some(refused));
    assert!(
        server
            .log
            .last()
            .unwrap()
            .starts_with("Short write while writing to the AOF file: (nwritten=")
    );
    assert_eq!(last_file(&server), first, "cut back to the last whole unit");
    let lines = server.log.len();
    for _ in 0..10 {
        server.append();
    }
    assert_eq!(server.log.len(), lines, "one line in 30 s");
    server.now_s += LOG_PAUSE_S + 1;
    server.append();
    assert_eq!(server.log.len(), lines + 1);
    assert!(server.writer.rewrite().is_none());
    server.disk.make_room();
    server.append();
    assert_eq!((server.writer.state(), &server.refused), (State::On, &None));
    assert_eq!(last_file(&server), [first, unit(server.last)].concat());
    server.settle();
    assert_eq!(load(&server.disk).unwrap(), server.acknowledged);
    assert_eq!(server.acknowledged, server.last);
}

#[test]
fn a_short_write_that_cannot_be_cut_off_is_gone_on_behind() {
    let mut server = started(settings(Policy::No));
    let first = last_file(&server);
    let calls = server.disk.calls();
    server.now_s += 1;
    server.disk.fail_at(calls, Fault::Full);
    server.disk.fail_at(calls + 2, Fault::Error);
    server.write();
    assert!(last_file(&server).len() > first.len());
    server.now_s += 5;
    server.disk.make_room();
    server.append();
    let annotation = b"#TS:1001\r\n".to_vec();
    assert_eq!(
        last_file(&server),
        [first, annotation, unit(server.last)].concat()
    );
}

#[test]
fn under_always_an_error_ends_the_process() {
    for (fault, line) in [
        (
            Fault::Full,
            "Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting...",
        ),
        (
            Fault::PagesDropped,
            "Can't persist AOF for fsync error when the AOF fsync policy is 'always': Input/output error. Exiting...",
        ),
    ] {
        let mut server = started(plain(Policy::Always));
        let acknowledged = server.acknowledged;
        let call = server.disk.calls() + usize::from(fault == Fault::PagesDropped);
        server.disk.fail_at(call, fault);
        server.write();
        server.sync();
        server.run_jobs();
        assert_eq!(server.exit, Some(1));
        assert_eq!(server.log.last().unwrap(), line);
        assert_eq!(server.acknowledged, acknowledged);
    }
}

#[test]
fn nothing_is_written_behind_a_file_that_is_not_on_disk() {
    for may_wait in [true, false] {
        let mut server = started(plain(Policy::No));
        server.begin_rewrite();
        server.write();
        server.switch();
        let next = unit(server.last + 1);
        let append = |server: &mut Server| {
            server
                .writer
                .append(&[&next], server.last + 1, server.now_s, may_wait)
                .0
        };
        let expected = if may_wait {
            Appended::Wait
        } else {
            Appended::Written
        };
        assert_eq!(append(&mut server), expected);
        server.run_jobs();
        assert_eq!(server.acknowledged, server.last);
        assert_eq!(append(&mut server), Appended::Written);
    }
}

#[test]
fn it_is_rewritten_when_it_has_grown_enough() {
    let mut server = started(plain(Policy::No));
    let base = server.writer.base_bytes();
    assert!(base > 0 && server.writer.current_bytes() > base);
    for (percentage, bytes_min, wanted) in [
        (100, 0, false),
        (0, 0, false),
        (1, 0, true),
        (1, 1 << 20, false),
    ] {
        server.writer.set(Settings {
            rewrite_percentage: percentage,
            rewrite_bytes_min: bytes_min,
            ..plain(Policy::No)
        });
        let grown = server.writer.current_bytes() * 100 / base - 100;
        let wanted = if percentage == 100 {
            grown >= 100
        } else {
            wanted
        };
        assert_eq!(
            server.writer.wants_rewrite(server.now_s),
            wanted,
            "{percentage} % of {bytes_min}"
        );
    }
}

#[test]
fn a_time_is_written_when_the_second_changes_and_first_in_each_file() {
    let mut server = started(settings(Policy::No));
    assert_eq!(
        last_file(&server),
        [b"#TS:1000\r\n".to_vec(), units(1, 2)].concat()
    );
    server.write();
    server.now_s += 1;
    server.write();
    server.write();
    let expected = [
        b"#TS:1000\r\n".to_vec(),
        units(1, 3),
        b"#TS:1001\r\n".to_vec(),
        units(4, 5),
    ]
    .concat();
    assert_eq!(last_file(&server), expected);
    server.begin_rewrite();
    server.rewrite_if_cut(1);
    assert!(last_file(&server).starts_with(b"#TS:1001\r\n"));
}

#[test]
fn replies_wait_under_always_only_and_not_before_it_is_on() {
    let mut server = Server::new(&disk(), plain(Policy::Always));
    assert_eq!(server.writer.gate(), Gate::Open);
    let wishes = server.writer.start();
    server.take(wishes);
    assert_eq!(server.writer.gate(), Gate::Open);
    server.run_jobs();
    server.rewrite_if_cut(0);
    server.write();
    let synced = server.acknowledged;
    assert_eq!(server.writer.gate(), Gate::UpTo(synced));
    server.sync();
    server.run_jobs();
    assert_eq!(server.writer.gate(), Gate::UpTo(server.last));
    server.writer.set(plain(Policy::EverySecond));
    assert_eq!(server.writer.gate(), Gate::Open);
}

#[test]
fn each_second_has_its_sync() {
    let mut server = started(plain(Policy::EverySecond));
    server.tick();
    server.write();
    for (seconds, jobs) in [(0, 1), (0, 0), (1, 0)] {
        server.now_s += seconds;
        let wishes = server.writer.tick(server.now_s);
        assert_eq!(wishes.len(), jobs);
        server.take(wishes);
        server.run_jobs();
    }
    assert_eq!(server.acknowledged, server.last);
    server.write();
    assert_eq!(server.writer.tick(server.now_s).len(), 1);
    server.write();
    assert_eq!(server.writer.tick(server.now_s).len(), 0, "once a second");
}

#[test]
fn an_end_says_if_all_is_on_disk() {
    for fault in [None, Some(Fault::Error)] {
        let mut server = started(plain(Policy::EverySecond));
        server.write();
        if let Some(fault) = fault {
            server.disk.fail_at(server.disk.calls(), fault);
        }
        let wishes = server.writer.end(server.now_s);
        server.take(wishes);
        server.run_jobs();
        assert_eq!(server.ended, Some(fault.is_none()));
    }
    let mut off = Server::new(&disk(), plain(Policy::Always));
    let wishes = off.writer.end(0);
    off.take(wishes);
    assert_eq!(off.ended, Some(true));
}

#[test]
fn a_sync_behind_one_that_failed_proves_nothing() {
    let mut server = started(plain(Policy::No));
    let acknowledged = server.acknowledged;
    server.write();
    server.sync();
    server.write();
    server.sync();
    server
        .disk
        .fail_at(server.disk.calls(), Fault::PagesDropped);
    assert!(server.run_job() && server.run_job());
    assert_eq!(server.acknowledged, acknowledged);
}

#[test]
fn what_a_process_has_loaded_is_on_disk_before_anybody_sees_it() {
    let mut killed = started(plain(Policy::No));
    killed.write();
    killed.write();
    let mut server = Server::new(&killed.disk, plain(Policy::Always));
    assert_eq!(server.last, killed.last);
    let line = server.writer.open(&server.disk).unwrap();
    assert_eq!(
        line,
        "Opening AOF incr file appendonly.aof.1.incr.aof on server start"
    );
    server.disk.restart(Kept::Nothing);
    assert_eq!(load(&server.disk).unwrap(), server.last);
}

#[test]
fn a_file_whose_end_is_unknown_is_replaced() {
    let mut server = started(plain(Policy::EverySecond));
    server.begin_rewrite();
    server.switch();
    server.run_jobs();
    // A write that is done in part, and neither can that be undone nor is it known how much it was.
    let call = server.disk.calls();
    server.disk.fail_at(call, Fault::Full);
    for next in [call + 2, call + 3] {
        server.disk.fail_at(next, Fault::Error);
    }
    server.write();
    assert_eq!(
        (server.writer.state(), server.rewrites.last()),
        (State::Refusing, Some(&false))
    );
    server.disk.make_room();
    server.settle();
    server.write();
    server.settle();
    assert_eq!(
        (server.writer.state(), server.acknowledged),
        (State::On, server.last)
    );
    server.disk.restart(Kept::Nothing);
    assert_eq!(load(&server.disk).unwrap(), server.last);
}

#[test]
fn numbers_without_units_are_counted_and_end_no_trouble() {
    let mut server = started(plain(Policy::No));
    let file = last_file(&server);
    let append = |server: &mut Server, last| server.writer.append(&[], last, 0, true).0;
    assert_eq!(append(&mut server, 100), Appended::Written);
    server.sync();
    server.run_jobs();
    assert_eq!((server.acknowledged, last_file(&server)), (100, file));
    (server.last, server.first_waiting) = (100, 101);
    server.disk.fail_at(server.disk.calls(), Fault::Error);
    server.write();
    assert_eq!(append(&mut server, 102), Appended::Refused);
    assert_eq!(server.writer.state(), State::Refusing);
}

#[test]
fn a_file_that_is_turned_off_in_trouble_refuses_nobody() {
    let mut server = started(plain(Policy::No));
    server.disk.fail_at(server.disk.calls(), Fault::Error);
    server.write();
    assert!(server.refused.is_some());
    let wishes = server.writer.stop(server.now_s);
    server.take(wishes);
    server.run_jobs();
    assert_eq!((server.stopped, &server.refused), (true, &None));
}

#[test]
fn a_slow_disk_is_asked_for_one_sync_at_a_time() {
    let mut server = started(plain(Policy::EverySecond));
    for _ in 0..3 {
        server.write();
        server.tick();
    }
    assert_eq!((server.jobs.len(), server.writer.syncs_pending()), (1, 1));
    server.run_jobs();
    server.tick();
    server.run_jobs();
    assert_eq!(
        (server.acknowledged, server.writer.syncs_pending()),
        (server.last, 0)
    );
}

#[test]
fn a_file_that_is_left_keeps_what_it_had_and_its_successor_begins_with_a_base() {
    // Steps of a rewrite that are done when it is left; at last it is at its end, and its file is being ended.
    for steps in 0..6 {
        let mut server = started(plain(Policy::EverySecond));
        server.write();
        server.sync();
        server.run_jobs();
        let before = server.last;
        if (1..5).contains(&steps) {
            let wishes = server.writer.rewrite().unwrap();
            server.take(wishes);
        }
        if steps > 1 && steps < 5 {
            server.run_jobs();
        }
        if steps > 2 && steps < 5 {
            let rewrite = server.switch();
            let path = Path::new("/data/temp-rewriteaof-bg.aof");
            let bytes = command(&["BASE", &before.to_string()]);
            server.write_base(path, &bytes).unwrap();
            if steps == 4 {
                let base = base(path, bytes.len());
                let wishes = server.writer.base_written(rewrite, base);
                server.take(wishes);
            }
        }
        if steps == 5 {
            server.write();
            let wishes = server.writer.stop(server.now_s);
            server.take(wishes);
            assert_eq!(server.writer.state(), State::Ending);
        }
        let kept = server.last;
        let wishes = server.writer.leave(server.now_s);
        server.take(wishes);
        assert!(
            server.stopped && server.writer.state() == State::Off,
            "{steps}"
        );
        assert_eq!(server.writer.on_disk(), None, "{steps}");
        // These belong to other data.
        server.write();
        server.run_jobs();
        assert_eq!(load(&server.disk), Ok(kept), "{steps}");
        server.cut = None;
        let wishes = server.writer.start();
        server.take(wishes);
        server.write();
        server.run_jobs();
        assert_eq!(load(&server.disk), Ok(kept), "{steps}");
        server.rewrite_if_cut(2);
        server.settle();
        assert_eq!(server.writer.state(), State::On, "{steps}");
        assert_eq!(server.acknowledged, server.last, "{steps}");
        server.disk.restart(Kept::Nothing);
        assert_eq!(load(&server.disk), Ok(server.last), "{steps}");
    }
}
