//! `redline server` as a replica with an append-only file: whenever it is killed, the file has its own data or its primary's, and
//! never some of both.

use std::fs;

use crate::{
    append::{APPENDING, digest, info, names, restarted, rewrite_for_ever, set, start, until_info},
    following::{Primary, Served, expected, snapshot, stream},
    following_diskless::Halves,
    running::{Running, folder_with, until},
};

/// Starts a server with data of its own in its append-only file; it has bases written for ever from then on. Returns the digest.
fn with_own_file(more: &str) -> (Running, String) {
    let running = start(folder_with(&format!("{APPENDING}{more}")));
    for line in ["SET own value", "RPUSH list 1 2", "INCR counter"] {
        running.call(line);
    }
    set(&running, "rdb-key-save-delay", "600000000");
    let own = digest(&running);
    (running, own)
}

#[test]
fn a_replica_that_is_killed_before_its_file_has_the_primarys_data_has_its_own() {
    let snapshot = snapshot();
    let expected = expected(&snapshot);
    for is_rewriting in [false, true] {
        let primary = Primary::new(snapshot.clone(), stream());
        // What comes as it is loaded is in no file that could be the base.
        let (running, own) = with_own_file("appendfsync always\nrepl-diskless-load swapdb\n");
        if is_rewriting {
            rewrite_for_ever(&running);
        }
        running.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        assert_eq!(primary.serve(std::iter::empty()), [Served::Full]);
        until_info(&running, "slave_repl_offset", &primary.end().to_string());
        assert_eq!(digest(&running), expected);
        until_info(&running, "aof_rewrite_in_progress", "1");
        // It comes back as a primary.
        let running = restarted(running);
        assert_eq!(digest(&running), own, "rewriting: {is_rewriting}");
    }
}

#[test]
fn the_snapshot_that_came_is_the_base_of_the_file() {
    let snapshot = snapshot();
    let expected = expected(&snapshot);
    for policy in ["always", "everysec"] {
        for is_rewriting in [false, true] {
            let primary = Primary::new(snapshot.clone(), stream());
            let (running, _) = with_own_file(&format!("appendfsync {policy}\n"));
            if is_rewriting {
                rewrite_for_ever(&running);
            }
            running.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
            assert_eq!(primary.serve(std::iter::empty()), [Served::Full]);
            // Another base would never be written to its end.
            until_info(&running, "aof_rewrite_in_progress", "0");
            let mut bases = names(running.folder.path());
            bases.retain(|name| name.contains(".base."));
            let [base] = &bases[..] else {
                panic!("one base: {bases:?}");
            };
            let base = fs::read(running.path("appendonlydir").join(base)).unwrap();
            assert!(base == snapshot, "{} bytes", base.len());
            assert_eq!(digest(&running), expected);
            let all = fs::read_dir(running.folder.path()).unwrap();
            let mut all = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            assert!(all.all(|name| !name.starts_with("temp-")));
            // It comes back as a primary.
            let running = restarted(running);
            assert_eq!(digest(&running), expected, "{policy}");
        }
    }
}

#[test]
fn a_snapshot_that_cannot_be_the_base_is_followed_by_one_that_is_written() {
    // As commands there is no snapshot; Redis could not read the other.
    for (lines, is_valkey) in [("aof-use-rdb-preamble no\n", false), ("", true)] {
        let running = Running::start(folder_with("save \"\"\n"), &["r.conf"], None);
        running.call("SET k v");
        if is_valkey {
            running.call("HSET timed f v");
            running.call("HPEXPIRE timed 10000000 FIELDS 1 f");
            set(&running, "rdb-format-version", "80");
        }
        assert_eq!(running.call("SAVE"), "+OK");
        let snapshot = fs::read(running.path("dump.rdb")).unwrap();
        let primary = Primary::new(snapshot.clone(), Vec::new());
        let running = start(folder_with(&format!("{APPENDING}{lines}")));
        running.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        assert_eq!(primary.serve(std::iter::empty()), [Served::Full]);
        until_info(&running, "aof_rewrite_in_progress", "0");
        let data = digest(&running);
        assert_eq!(running.call("GET k"), "v");
        let mut bases = names(running.folder.path());
        bases.retain(|name| name.contains(".base."));
        let base = fs::read(running.path("appendonlydir").join(&bases[0])).unwrap();
        assert!(base != snapshot);
        assert_eq!(digest(&restarted(running)), data);
    }
}

#[test]
fn a_replica_that_dropped_its_data_keeps_them_in_its_file_until_it_has_others_or_is_promoted() {
    let halves = Halves::new();
    let begun = || {
        let (running, own) = with_own_file("repl-diskless-load flush-before-load\n");
        running.call(&format!("REPLICAOF 127.0.0.1 {}", halves.port()));
        let peer = halves.first();
        until("the data are dropped", || {
            info(&running, "db0").is_empty().then_some(())
        });
        (running, peer, own)
    };
    let (running, _peer, own) = begun();
    // Neither is a word about the settings one about the file.
    set(&running, "appendfsync", "no");
    assert_eq!(digest(&restarted(running)), own);
    let (running, peer, _) = begun();
    set(&running, "rdb-key-save-delay", "0");
    drop(peer);
    until_info(&running, "loading", "0");
    assert_eq!(info(&running, "aof_enabled"), "0");
    assert_eq!(running.call("REPLICAOF NO ONE"), "+OK");
    until_info(&running, "aof_enabled", "1");
    until_info(&running, "aof_rewrite_in_progress", "0");
    assert_eq!(running.call("SET later 1"), "+OK");
    let data = digest(&running);
    assert_eq!(digest(&restarted(running)), data);
}
