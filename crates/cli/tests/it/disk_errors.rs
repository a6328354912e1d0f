//! Errors of a disk that no folder can be made to have: `redline server` with a library before the C library's whose calls
//! fail with EIO while a file of a certain name is in the server's folder. What is acknowledged then, what is refused, and
//! what is there after the next start.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use tempfile::TempDir;

use crate::{
    append::{APPENDING, digest, info, killed, names, restarted, rewrite, set, start, until_info},
    following::{Primary, Served, accepted, encoded, snapshot, stream},
    running::{Client, REDLINE, Running, failed_start_of, folder_with, until},
};

/// The library: each call fails while its file is there, writes only if they go to a file.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(const char *name) {
    int before = errno, there = access(name, F_OK) == 0;
    errno = there ? EIO : before;
    return there;
}

int fdatasync(int fd) {
    return fails("fail-fdatasync") ? -1 : syscall(SYS_fdatasync, fd);
}

int rename(const char *from, const char *to) {
    return fails("fail-rename") ? -1 : syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

ssize_t writev(int fd, const struct iovec *slices, int count) {
    struct stat facts;
    if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && fails("fail-writev")) return -1;
    return syscall(SYS_writev, fd, slices, count);
}
"#;

/// Returns the library's place.
fn library() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = TempDir::new().unwrap();
        let (source, path) = (folder.path().join("l.c"), folder.path().join("l.so"));
        fs::write(&source, LIBRARY).unwrap();
        // The linker of Rust's programs.
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&path, &source])
            .status();
        assert!(built.expect("cc runs").success());
        (folder, path)
    });
    path
}

fn command() -> Command {
    let mut command = Command::new(REDLINE);
    command
        .args(["server", "r.conf"])
        .env("LD_PRELOAD", library());
    command
}

/// Starts a server with the library.
fn failing(more: &str) -> Running {
    let running = Running::of(command(), folder_with(more), None);
    until_info(&running, "loading", "0");
    running
}

/// Has a call fail from now on.
fn fail(folder: &Path, call: &str) {
    fs::write(folder.join(format!("fail-{call}")), "").unwrap();
}

/// Has it succeed again.
fn mend(folder: &Path, call: &str) {
    fs::remove_file(folder.join(format!("fail-{call}"))).unwrap();
}

const REFUSED: &str = "-MISCONF Errors writing to the AOF file: Input/output error";

/// Waits until writes are refused; returns how many of `INCR` were not.
fn until_refused(client: &mut Client, counter: &str) -> u64 {
    let mut done = 0;
    until("writes are refused", || {
        match client.call(&format!("INCR {counter}")) {
            reply if reply == REFUSED => Some(()),
            reply => {
                done += 1;
                assert_eq!(reply, format!(":{done}"));
                None
            }
        }
    });
    done
}

#[track_caller]
fn until_accepted(client: &mut Client) {
    until("writes are accepted", || {
        (client.call("SET last 1") == "+OK").then_some(())
    });
}

#[track_caller]
fn assert_lines(log: &str, lines: &[&str]) {
    for line in lines {
        assert!(log.contains(line), "no {line:?} in:\n{log}");
    }
}

#[test]
fn an_error_under_always_ends_the_process_before_any_reply() {
    for (call, line) in [
        (
            "writev",
            "Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting...",
        ),
        (
            "fdatasync",
            "Can't persist AOF for fsync error when the AOF fsync policy is 'always': Input/output error. Exiting...",
        ),
    ] {
        let running = failing(&format!("{APPENDING}appendfsync always\nthreads 2\n"));
        assert_eq!(running.call("SET a 1"), "+OK");
        let [mut writes, mut reads] = [(); 2].map(|()| running.connect());
        assert_eq!(reads.call("PING"), "+PONG");
        fail(running.folder.path(), call);
        assert_eq!(writes.call("SET a 2"), "", "{call}: no reply");
        let (status, log, folder) = running.ended();
        assert_eq!(status.code(), Some(1), "{log}");
        assert_eq!(log.matches(line).count(), 1, "{log}");
        mend(folder.path(), call);
        let running = start(folder);
        // What was not acknowledged may be there.
        let there = running.call("GET a");
        assert!(there == "1" || there == "2", "{there}");
    }
}

#[test]
fn after_a_sync_that_failed_writes_are_refused_until_there_are_new_files() {
    let running = failing(&format!("{APPENDING}appendfsync everysec\nthreads 2\n"));
    let mut client = running.connect();
    assert_eq!(client.call("SET before 1"), "+OK");
    assert_eq!(client.call("WAITAOF 1 0 0"), ":1 :0");
    let first = names(running.folder.path());
    fail(running.folder.path(), "fdatasync");
    let counted = until_refused(&mut client, "n");
    assert!(counted > 0, "a reply does not wait for the sync");
    assert_eq!(info(&running, "aof_last_write_status"), "err");
    let waited = client.call("WAITAOF 1 0 20");
    assert_eq!(waited, ":0 :0", "nothing is acknowledged");
    assert_eq!(client.call("GET before"), "1");
    mend(running.folder.path(), "fdatasync");
    until_accepted(&mut client);
    assert_eq!(info(&running, "aof_last_write_status"), "ok");
    assert_eq!(client.call("WAITAOF 1 0 0"), ":1 :0");
    until("the old files go", || {
        let now = names(running.folder.path());
        (now.len() == 3 && !first[..2].iter().any(|name| now.contains(name))).then_some(())
    });
    let data = digest(&running);
    let (log, folder) = killed(running);
    assert_lines(
        &log,
        &[
            "Fail to fsync the AOF file: Input/output error. Nothing is acknowledged from it any more",
            "The AOF file has been rewritten into new files, writes are accepted again.",
        ],
    );
    let running = start(folder);
    assert_eq!(digest(&running), data);
    assert_eq!(running.call("GET n"), counted.to_string());
}

#[test]
fn after_a_write_that_failed_writes_are_refused_until_one_succeeds() {
    for policy in ["everysec", "no"] {
        let running = failing(&format!("{APPENDING}appendfsync {policy}\nthreads 2\n"));
        let mut client = running.connect();
        assert_eq!(client.call("SET before 1"), "+OK");
        fail(running.folder.path(), "writev");
        let counted = until_refused(&mut client, "n");
        for line in ["SET k 1", "DEL before", "FLUSHALL", "PING"] {
            assert_eq!(client.call(line), REFUSED, "{line}");
        }
        assert_eq!(client.call("GET before"), "1");
        mend(running.folder.path(), "writev");
        until_accepted(&mut client);
        let data = digest(&running);
        let (log, folder) = killed(running);
        assert_lines(
            &log,
            &[
                "Error writing to the AOF file: Input/output error",
                "AOF write error looks solved, writes are accepted again.",
            ],
        );
        let running = start(folder);
        assert_eq!(digest(&running), data, "{policy}");
        assert_eq!(running.call("GET n"), counted.to_string());
    }
}

#[test]
fn a_rewrite_that_cannot_be_put_into_its_place_leaves_all_as_it_is() {
    for call in ["rename", "fdatasync"] {
        // Without syncs of its own the file has no trouble when that of the base fails.
        let running = failing(&format!("{APPENDING}appendfsync no\nthreads 2\n"));
        let mut client = running.connect();
        assert_eq!(client.call("SET a 1"), "+OK");
        rewrite(&running);
        assert_eq!(client.call("SET b 1"), "+OK");
        fail(running.folder.path(), call);
        assert!(client.call("BGREWRITEAOF").starts_with("+Background"));
        until_info(&running, "aof_last_bgrewrite_status", "err");
        mend(running.folder.path(), call);
        until_accepted(&mut client);
        until("nothing is left in the folder", || {
            let all = fs::read_dir(running.folder.path()).unwrap();
            let mut all = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            all.all(|name| !name.starts_with("temp-")).then_some(())
        });
        let data = digest(&running);
        let running = restarted(running);
        assert_eq!(digest(&running), data, "{call}");
        rewrite(&running);
        assert_eq!(digest(&restarted(running)), data, "{call}");
    }
}

#[test]
fn a_snapshot_that_cannot_be_written_leaves_the_one_before() {
    for call in ["writev", "fdatasync", "rename"] {
        let running = failing("save 3600 1000000\nthreads 2\n");
        let mut client = running.connect();
        assert_eq!(client.call("SET a 1"), "+OK");
        assert_eq!(client.call("SAVE"), "+OK");
        let before = fs::read(running.path("dump.rdb")).unwrap();
        assert_eq!(client.call("SET a 2"), "+OK");
        fail(running.folder.path(), call);
        assert_eq!(client.call("SAVE"), "-ERR", "{call}");
        let refused = client.call("SET a 3");
        assert!(refused.starts_with("-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."), "{refused}");
        let reply = client.call("SHUTDOWN");
        assert_eq!(
            reply, "-ERR Errors trying to SHUTDOWN. Check logs.",
            "{call}"
        );
        assert_eq!(fs::read(running.path("dump.rdb")).unwrap(), before);
        let temporary = format!("temp-{}.rdb", running.child.id());
        assert!(!running.path(&temporary).exists(), "{call}");
        mend(running.folder.path(), call);
        assert_eq!(client.call("SAVE"), "+OK");
        assert_eq!(client.call("SET a 3"), "+OK");
        let (_, folder) = killed(running);
        let running = start(folder);
        assert_eq!(running.call("GET a"), "2", "{call}");
    }
}

#[test]
fn a_file_that_cannot_be_begun_ends_the_start() {
    let later = || {
        let running = start(folder_with(APPENDING));
        assert_eq!(running.call("SET a 1"), "+OK");
        killed(running).1
    };
    let first = || folder_with(APPENDING);
    for (call, folder, line) in [
        ("rename", first(), "AOF"),
        ("fdatasync", first(), "AOF"),
        (
            "fdatasync",
            later(),
            "Fail to fsync the AOF file appendonly.aof.1.incr.aof: ",
        ),
    ] {
        fail(folder.path(), call);
        let (log, _) = failed_start_of(&mut command(), folder.path());
        assert!(!log.contains("Ready to accept"), "{log}");
        let is_it = |text: &&str| text.contains(line) && text.contains("Input/output error");
        assert_eq!(log.lines().filter(is_it).count(), 1, "{call}: {log}");
        mend(folder.path(), call);
        assert_eq!(start(folder).call("SET b 1"), "+OK");
    }
}

#[test]
fn a_value_that_the_format_cannot_hold_fails_the_snapshot_and_is_named() {
    let running = failing("save \"\"\n");
    let mut client = running.connect();
    assert_eq!(client.call("SELECT 3"), "+OK");
    assert_eq!(client.call("HSET timed f v"), ":1");
    assert_eq!(client.call("HEXPIRE timed 1000 FIELDS 1 f"), ":1");
    assert_eq!(client.call("CONFIG SET rdb-format-version 9"), "+OK");
    assert_eq!(client.call("SAVE"), "-ERR");
    assert_eq!(client.call("SET k v"), "+OK");
    let (log, _) = killed(running);
    assert_lines(&log, &["the key 'timed' of database 3 has "]);
}

#[test]
fn a_value_of_a_module_ends_the_start_with_the_name_of_the_module() {
    /// The type `NoSuchOne`, version 3: nine characters of six bits each, and ten bits.
    const UNKNOWN: u64 = {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let (name, mut id, mut at) = (b"NoSuchOne", 0, 0);
        while at < name.len() {
            let mut digit = 0;
            while alphabet[digit] != name[at] {
                digit += 1;
            }
            id = (id << 6) | digit as u64;
            at += 1;
        }
        (id << 10) | 3
    };
    let mut file = b"REDIS0011\xfe\x00\x07\x03doc\x81".to_vec();
    file.extend(UNKNOWN.to_be_bytes());
    // One number, and the end.
    file.extend(b"\x02\x05\x00\xff\0\0\0\0\0\0\0\0");
    let folder = folder_with("");
    fs::write(folder.path().join("dump.rdb"), &file).unwrap();
    let (log, _) = failed_start_of(&mut command(), folder.path());
    let line = "RDB file has a value of the type NoSuchOne, version 3, of a module that is not here; `skip-unknown-module-values yes` leaves out such keys";
    assert_eq!(log.matches(line).count(), 1, "{log}");
    assert_eq!(fs::read(folder.path().join("dump.rdb")).unwrap(), file);
}

#[test]
fn an_interrupt_that_is_repeated_ends_a_save_and_the_file_before_stays() {
    let running = failing("save 3600 1000000\n");
    let mut client = running.connect();
    assert_eq!(client.call("SET a 1"), "+OK");
    assert_eq!(client.call("SAVE"), "+OK");
    assert_eq!(client.call("SET a 2"), "+OK");
    assert_eq!(
        client.call("CONFIG SET rdb-key-save-delay 600000000"),
        "+OK"
    );
    running.signal("INT");
    until("it saves", || {
        (info(&running, "rdb_bgsave_in_progress") == "1").then_some(())
    });
    running.signal("INT");
    let (status, _, folder) = running.ended();
    assert_eq!(status.code(), Some(1));
    let running = start(folder);
    assert_eq!(running.call("GET a"), "1");
    let all = fs::read_dir(running.folder.path()).unwrap();
    let mut all = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(all.all(|name| !name.starts_with("temp-")));
}

#[test]
fn settings_that_files_cannot_have_are_refused() {
    let running = failing("save \"\"\n");
    let mut client = running.connect();
    for line in ["save 1", "save x 1", "save -1 1", "save 60 -1"] {
        let mut words = vec!["CONFIG", "SET"];
        words.extend(line.splitn(2, ' '));
        let reply = client.call_words(&words);
        assert!(
            reply.ends_with("Invalid save parameters"),
            "{line}: {reply}"
        );
    }
    let (reply, folder) = {
        let folder = folder_with("appendfilename a/b.aof\n");
        let (log, said) = failed_start_of(&mut command(), folder.path());
        (log + &said, folder)
    };
    assert!(
        reply.contains("appendfilename can't be a path, just a filename"),
        "{reply}"
    );
    drop(folder);
}

#[test]
fn a_replica_whose_files_cannot_be_written_ends_unless_it_is_to_go_on() {
    for goes_on in [false, true] {
        let primary = Primary::new(snapshot(), stream());
        let word = if goes_on { "yes" } else { "no" };
        let running = failing(&format!(
            "{APPENDING}appendfsync everysec\nreplicaof 127.0.0.1 {}\n",
            primary.port()
        ));
        set(&running, "replica-ignore-disk-write-errors", word);
        let mut peer = accepted(&primary.listener);
        primary
            .serve_one(&mut peer, &mut Served::Handshake)
            .unwrap();
        until_info(&running, "aof_rewrite_in_progress", "0");
        fail(running.folder.path(), "writev");
        peer.send(&encoded("SET first 1")).unwrap();
        until_info(&running, "aof_last_write_status", "err");
        // It changes nothing.
        peer.send(&encoded("PING")).unwrap();
        assert_eq!(running.call("GET first"), "1");
        let ends = "Replica was unable to write command to disk.";
        let tells = "Replica is applying a command even though it is unable to write to disk.";
        for key in ["second", "third"] {
            peer.send(&encoded(&format!("SET {key} 1"))).unwrap();
            if goes_on {
                until("it is applied", || {
                    (running.call(&format!("GET {key}")) == "1").then_some(())
                });
            }
        }
        if !goes_on {
            let (status, log, _) = running.ended();
            assert_eq!(status.code(), Some(1), "{log}");
            assert_lines(&log, &[ends]);
            continue;
        }
        mend(running.folder.path(), "writev");
        until_info(&running, "aof_last_write_status", "ok");
        let data = digest(&running);
        let (log, folder) = killed(running);
        assert_eq!(log.matches(tells).count(), 1, "{log}");
        assert_eq!(digest(&start(folder)), data);
    }
}
