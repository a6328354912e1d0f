//! Tests of rewrites and starts, and of what heals.

use std::path::Path;

use super::super::tests::steps::{plain, started};
use super::super::tests::{Server, base, command, disk, load, paths};
use super::super::{Base, Policy, Settings, State};
use crate::disk::Disk;
use crate::disk::double::{FAULTS, Fault, Kept};
use crate::manifest;

#[test]
fn after_a_failed_sync_only_new_files_are_believed() {
    let mut server = started(plain(Policy::EverySecond));
    let acknowledged = server.acknowledged;
    server.write();
    server
        .disk
        .fail_at(server.disk.calls(), Fault::PagesDropped);
    server.sync();
    server.run_job();
    assert_eq!(server.writer.state(), State::Refusing);
    assert!(
        server
            .refused
            .as_deref()
            .unwrap()
            .ends_with("Input/output error")
    );
    // A sync that succeeds now proves nothing.
    assert!(server.writer.sync().is_none());
    server.write();
    assert_eq!(server.acknowledged, acknowledged);
    server.run_jobs();
    let rewrite = server.cut;
    assert!(rewrite.is_some(), "it begins by itself");
    server.rewrite_if_cut(1);
    assert_eq!((server.writer.state(), &server.refused), (State::On, &None));
    server.settle();
    assert_eq!(server.acknowledged, server.last);
    server.disk.restart(Kept::Nothing);
    assert_eq!(load(&server.disk).unwrap(), server.last);
}

#[test]
fn while_a_file_heals_nobody_finds_another_file_behind_the_damaged_one() {
    let mut server = started(plain(Policy::EverySecond));
    let before = server.writer.manifest().clone();
    server.write();
    server
        .disk
        .fail_at(server.disk.calls(), Fault::PagesDropped);
    server.sync();
    server.run_jobs();
    let rewrite = server.switch();
    server.first_waiting = server.last + 1;
    server.last += 1;
    server.append();
    server.sync();
    server.run_jobs();
    assert_eq!(
        manifest::load(&server.disk, &paths()).unwrap().unwrap(),
        before
    );
    assert!(server.acknowledged < server.last);
    let wishes = server.writer.base_failed(rewrite, "planned", server.now_s);
    server.take(wishes);
    assert_eq!(server.writer.state(), State::Refusing);
    server.settle();
    server.write();
    server.settle();
    assert_eq!(
        (server.writer.state(), server.acknowledged),
        (State::On, server.last)
    );
}

#[test]
fn a_rewrite_that_fails_leaves_one_file_more_and_waits_longer_each_time() {
    let mut server = started(Settings {
        rewrite_bytes_min: 0,
        rewrite_percentage: 1,
        ..plain(Policy::No)
    });
    for (failures, pause_s) in [1, 1, 60, 120, 240, 480, 960, 1920, 3600, 3600]
        .into_iter()
        .enumerate()
    {
        server.write();
        assert!(server.writer.wants_rewrite(server.now_s));
        let wishes = server.writer.rewrite().unwrap();
        assert!(!server.writer.wants_rewrite(server.now_s));
        server.take(wishes);
        server.run_jobs();
        let rewrite = server.switch();
        server.run_jobs();
        let wishes = server.writer.base_failed(rewrite, "planned", server.now_s);
        server.take(wishes);
        assert!(!server.writer.is_last_rewrite_done());
        assert_eq!(server.writer.manifest().incrs.len(), failures + 2);
        assert!(!server.writer.wants_rewrite(server.now_s + pause_s - 1));
        server.now_s += pause_s;
    }
    assert_eq!(server.rewrites[1..], [false; 10]);
    server.write();
    let wishes = server.writer.rewrite().unwrap();
    server.take(wishes);
    server.settle();
    assert!(server.writer.is_last_rewrite_done());
    assert_eq!(server.writer.manifest().incrs.len(), 1);
    assert_eq!(load(&server.disk).unwrap(), server.last);
}

#[test]
fn turned_off_and_on_again_it_begins_with_new_files() {
    let mut server = started(plain(Policy::EverySecond));
    server.write();
    let wishes = server.writer.stop(server.now_s);
    server.take(wishes);
    assert_eq!(server.writer.state(), State::Ending);
    assert!(!server.stopped);
    server.run_jobs();
    assert!(server.stopped);
    assert_eq!(
        (server.writer.state(), server.acknowledged),
        (State::Off, server.last)
    );
    let missed = server.last + 3;
    (server.last, server.first_waiting) = (missed, missed + 1);
    let wishes = server.writer.start();
    server.take(wishes);
    server.run_jobs();
    server.rewrite_if_cut(1);
    assert_eq!(server.writer.state(), State::On);
    assert_eq!(load(&server.disk).unwrap(), server.last);
    let text = String::from_utf8(server.writer.manifest().text()).unwrap();
    assert_eq!(
        text,
        "file appendonly.aof.2.base.aof seq 2 type b\nfile appendonly.aof.2.incr.aof seq 2 type i\n"
    );
    assert_eq!(server.disk.list(&paths().folder()).unwrap().len(), 3);
}

#[test]
fn a_start_that_fails_is_tried_again() {
    let mut server = Server::new(&disk(), plain(Policy::Always));
    server.disk.fail_at(server.disk.calls(), Fault::Error);
    let wishes = server.writer.start();
    server.take(wishes);
    server.run_jobs();
    assert_eq!(
        (server.writer.state(), &server.rewrites[..]),
        (State::Off, &[false][..])
    );
    assert!(
        server.log[0].contains("Can't open or create append-only dir appendonlydir"),
        "{:?}",
        server.log
    );
    server.settle();
    assert_eq!(
        (server.writer.state(), &server.rewrites[..]),
        (State::On, &[false, true][..])
    );
    assert_eq!(server.exit, None);
}

#[test]
fn replaced_files_stay_if_that_is_wanted() {
    let mut server = started(Settings {
        keeps_history: true,
        ..plain(Policy::No)
    });
    server.begin_rewrite();
    server.rewrite_if_cut(0);
    let manifest = manifest::load(&server.disk, &paths()).unwrap().unwrap();
    assert_eq!(manifest.history.len(), 2);
    for entry in &manifest.history {
        assert!(server.disk.exists(&paths().file(&entry.name)).unwrap());
    }
}

#[test]
fn a_base_of_a_rewrite_that_was_given_up_is_removed() {
    let mut server = started(plain(Policy::No));
    let path = Path::new("/data/temp-old.rdb");
    server.disk.create(path).unwrap();
    let wishes = server.writer.base_written(77, base(path, 1));
    server.take(wishes);
    server.run_jobs();
    assert!(!server.disk.exists(path).unwrap());
}

#[test]
fn a_file_that_no_manifest_names_acknowledges_nothing() {
    let mut server = Server::new(&disk(), plain(Policy::No));
    let wishes = server.writer.start();
    server.take(wishes);
    server.run_jobs();
    server.switch();
    server.write();
    server.sync();
    server.run_jobs();
    assert_eq!((server.writer.written(), server.acknowledged), (1, 0));
}

#[test]
fn a_base_that_replaces_a_damaged_file_is_followed_by_a_sync() {
    let mut server = started(plain(Policy::No));
    server.begin_rewrite();
    server.write();
    let rewrite = server.switch();
    server
        .disk
        .fail_at(server.disk.calls(), Fault::PagesDropped);
    server.run_jobs();
    assert_eq!(server.writer.state(), State::Refusing);
    let path = Path::new("/data/temp-base.aof");
    let bytes = command(&["BASE", &server.last.to_string()]);
    server.write_base(path, &bytes).unwrap();
    let wishes = server.writer.base_written(rewrite, base(path, bytes.len()));
    server.take(wishes);
    server.run_jobs();
    assert_eq!((server.writer.state(), &server.refused), (State::On, &None));
    server.sync();
    server.run_jobs();
    assert_eq!(server.acknowledged, server.last);
    server.disk.restart(Kept::Nothing);
    assert_eq!(load(&server.disk).unwrap(), server.last);
}

/// Number of the last unit of the data that come in a file.
const RECEIVED: u64 = 100;

/// A server whose data have become those of a file, and two units more; that file is to be the base. Returns how much it has
/// acknowledged before.
fn with_a_base(server: &mut Server, is_cut_first: bool) -> u64 {
    let wishes = server.writer.leave(server.now_s);
    server.take(wishes);
    server.run_jobs();
    let before = server.acknowledged;
    let path = Path::new("/data/temp-1.2.rdb");
    let bytes = command(&["BASE", &RECEIVED.to_string()]);
    let file = server.disk.create(path).unwrap();
    crate::disk::write_all(&*file, &[&bytes]).unwrap();
    (server.last, server.first_waiting) = (RECEIVED, RECEIVED + 1);
    let base = Base {
        is_synced: false,
        ..base(path, bytes.len())
    };
    let (rewrite, wishes) = server.writer.start_with(|| base).expect("it is off");
    server.take(wishes);
    if !is_cut_first {
        server.run_job();
    }
    let wishes = server.writer.switch(rewrite, RECEIVED, server.now_s);
    server.take(wishes);
    server.write();
    server.write();
    before
}

#[test]
fn data_that_came_in_a_file_have_it_as_their_base() {
    for is_cut_first in [false, true] {
        let mut server = started(plain(Policy::EverySecond));
        let before = with_a_base(&mut server, is_cut_first);
        assert_eq!(server.writer.state(), State::Starting);
        assert_eq!(server.writer.on_disk(), None);
        assert_eq!(load(&server.disk), Ok(before), "it does not count yet");
        server.run_jobs();
        server.append();
        assert_eq!((server.writer.state(), server.cut), (State::On, None));
        server.sync();
        server.run_jobs();
        assert_eq!(server.acknowledged, RECEIVED + 2);
        assert_eq!(server.disk.list(&paths().dir).unwrap(), ["appendonlydir"]);
        assert_eq!(server.disk.list(&paths().folder()).unwrap().len(), 3);
        server.disk.restart(Kept::Nothing);
        assert_eq!(load(&server.disk), Ok(RECEIVED + 2));
    }
}

#[test]
fn data_that_came_in_a_file_which_cannot_be_the_base_are_written_into_another() {
    for is_cut_first in [false, true] {
        for fault in FAULTS {
            let mut hit = 0;
            for call in 0.. {
                let mut server = started(plain(Policy::EverySecond));
                // Behind the calls that have made the file.
                let first = server.disk.calls() + 2;
                server.disk.fail_at(first + call, fault);
                let before = with_a_base(&mut server, is_cut_first);
                server.run_jobs();
                server.append();
                if server.disk.calls() <= first + call {
                    break;
                }
                hit += 1;
                let story = format!("{fault:?} of {call}, the cut first: {is_cut_first}");
                if fault == Fault::PowerLost {
                    server.disk.restart(Kept::Nothing);
                    let loaded = load(&server.disk).expect("one or the other");
                    let is_new = loaded >= server.acknowledged.max(RECEIVED);
                    assert!(loaded == before || is_new, "{story}: {loaded}");
                    continue;
                }
                let is_first = server.writer.state() == State::On;
                server.disk.make_room();
                server.settle();
                server.write();
                server.settle();
                assert_eq!(server.writer.state(), State::On, "{story}");
                let (acknowledged, last) = (server.acknowledged, server.last);
                assert_eq!(acknowledged, last, "{story}");
                server.disk.restart(Kept::Nothing);
                assert_eq!(load(&server.disk), Ok(last), "{story}");
                assert!(last > before);
                if !is_first {
                    let left = server.disk.list(&paths().dir).unwrap();
                    assert!(left.iter().all(|name| name != "temp-1.2.rdb"), "{story}");
                }
            }
            assert!(hit > 8, "{hit} calls had {fault:?}");
        }
    }
}

#[test]
fn a_start_with_a_base_that_is_left_removes_it() {
    let mut server = started(plain(Policy::EverySecond));
    let before = with_a_base(&mut server, true);
    let wishes = server.writer.leave(server.now_s);
    server.take(wishes);
    server.run_jobs();
    assert_eq!(server.writer.state(), State::Off);
    assert_eq!(load(&server.disk), Ok(before));
    assert_eq!(server.disk.list(&paths().dir).unwrap(), ["appendonlydir"]);
}
