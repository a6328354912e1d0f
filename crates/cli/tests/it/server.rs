//! `redline server` as a process: its start from files, standard input and options, refusals, and its end.

use std::{fs, os::unix::fs::symlink, process::Command};

use crate::running::{REDLINE, Running, folder, folder_with, refused, until};

#[test]
fn signals_end_it_cleanly() {
    for signal in ["TERM", "INT"] {
        let running = Running::start(folder_with("pidfile redline.pid\n"), &["r.conf"], None);
        let mut client = running.connect();
        assert_eq!(client.call("SET k v"), "+OK");
        let pid = until("the pid is written", || {
            let text = fs::read_to_string(running.path("redline.pid")).ok()?;
            text.ends_with('\n').then_some(text)
        });
        assert_eq!(pid.trim(), running.child.id().to_string());
        running.signal(signal);
        let (status, log, folder) = running.ended();
        assert_eq!(status.code(), Some(0), "{signal}: {log}");
        let received = format!("Received SIG{signal} scheduling shutdown...");
        assert!(log.contains(&received), "{log}");
        assert!(log.contains("User requested shutdown..."), "{log}");
        assert!(log.trim_end().ends_with("bye bye..."), "{log}");
        let left = |name: &str| folder.path().join(name).exists();
        assert!(
            !left("redline.pid") && !left("s"),
            "{signal}: files are left"
        );
    }
}

/// Asks for the stream over a connection, and never says how far it is.
fn lagging_replica(running: &Running) -> crate::running::Client {
    let mut replica = running.connect();
    assert_eq!(running.call("CONFIG SET repl-diskless-sync-delay 0"), "+OK");
    replica.send("PSYNC ? -1");
    assert!(replica.read().starts_with("+FULLRESYNC"));
    replica
}

#[test]
fn a_signal_ends_it_as_is_configured() {
    for (lines, signal, saves, waits) in [
        ("shutdown-timeout 1", "TERM", false, true),
        ("shutdown-on-sigterm now save", "TERM", true, false),
        ("shutdown-on-sigint default", "INT", false, true),
        (
            "save 3600 1000000\nshutdown-on-sigint nosave now",
            "INT",
            false,
            false,
        ),
        (
            "save 3600 1000000\nshutdown-on-sigint nosave now",
            "TERM",
            true,
            true,
        ),
    ] {
        let config = format!("save \"\"\nshutdown-timeout 1\n{lines}\n");
        let running = Running::start(folder_with(&config), &["r.conf"], None);
        let _replica = lagging_replica(&running);
        assert_eq!(running.call("SET k v"), "+OK");
        running.signal(signal);
        let (status, log, folder) = running.ended();
        assert_eq!(status.code(), Some(0), "{lines}: {log}");
        let is_saved = folder.path().join("dump.rdb").exists();
        assert_eq!(is_saved, saves, "{lines}: {log}");
        let has_waited = log.contains("Waiting for replicas before shutting down.");
        assert_eq!(has_waited, waits, "{lines}: {log}");
        for line in [
            "Lagging replica ",
            "0 of 1 replicas are in sync when shutting down.",
        ] {
            assert!(log.contains(line), "{lines}: {log}");
        }
    }
}

#[test]
fn a_signal_that_is_followed_by_an_abort_does_not_end_it() {
    let running = Running::start(
        folder_with("logfile log\nshutdown-timeout 3600\n"),
        &["r.conf"],
        None,
    );
    let log = |running: &Running| fs::read_to_string(running.path("log")).unwrap();
    let _replica = lagging_replica(&running);
    let waiting = "Waiting for replicas before shutting down.";
    for round in 1..=2 {
        // The second has no effect of its own.
        for _ in 0..2 {
            running.signal("TERM");
        }
        until("it waits", || {
            let has_heard = log(&running).matches("scheduling shutdown...").count() == 2 * round;
            (has_heard && log(&running).matches(waiting).count() == round).then_some(())
        });
        assert_eq!(running.call("SHUTDOWN ABORT"), "+OK");
    }
    assert_eq!(running.call("SET k v"), "+OK");
    assert_eq!(
        running.call("CONFIG SET shutdown-on-sigterm \"save nosave\""),
        "-ERR CONFIG SET failed (possibly related to argument 'shutdown-on-sigterm') - shutdown options SAVE and NOSAVE can't be used simultaneously"
    );
    assert_eq!(running.call("CONFIG SET shutdown-on-sigterm now"), "+OK");
    running.signal("TERM");
    let (status, ..) = running.ended();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn it_says_what_it_listens_on_and_with_how_many_workers() {
    let running = Running::start(folder_with("threads 2\n"), &["r.conf"], None);
    assert_eq!(running.call("SHUTDOWN NOSAVE"), "");
    let (status, log, folder) = running.ended();
    assert_eq!(status.code(), Some(0));
    let listening = format!(
        "Listening on {} with 2 workers\n",
        folder.path().join("s").display()
    );
    assert!(log.contains(&listening), "{log}");
    assert!(log.contains("Ready to accept connections unix\n"), "{log}");
}

#[test]
fn what_starts_it_finds_its_process_id_and_a_busy_port_in_the_log() {
    let running = Running::start(folder_with("always-show-logo yes\n"), &["r.conf"], None);
    let pid = running.child.id();
    assert_eq!(running.call("SHUTDOWN NOSAVE"), "");
    let (_, log, _) = running.ended();
    assert!(log.contains(&format!(" PID: {pid}\n")), "{log}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = Command::new(REDLINE)
        .args(["server", "--bind", "127.0.0.1", "--port", &port.to_string()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8(output.stdout).unwrap();
    let line = format!("Failed listening on port {port} (tcp), aborting: ");
    assert!(log.contains(&line), "{log}");
}

#[test]
fn settings_come_from_a_file_standard_input_and_options_in_this_order() {
    let folder = folder_with("maxmemory 1mb\nhz 20\ntimeout 30\ninclude more.conf\n");
    fs::write(folder.path().join("more.conf"), "lfu-log-factor 7\n").unwrap();
    let args = ["r.conf", "-", "--timeout", "32", "--lfu-decay-time 9"];
    let running = Running::start(folder, &args, Some("# more\nhz 21\ntimeout 31\n"));
    let values = running.call("CONFIG GET maxmemory hz timeout lfu-log-factor lfu-decay-time");
    let mut pairs: Vec<&str> = values.split(' ').collect();
    let mut pairs: Vec<_> = pairs.chunks_mut(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.sort_unstable();
    assert_eq!(
        pairs,
        [
            ("hz", "21"),
            ("lfu-decay-time", "9"),
            ("lfu-log-factor", "7"),
            ("maxmemory", "1048576"),
            ("timeout", "32"),
        ]
    );
    assert!(running.call("CONFIG SET hz 22").starts_with("+OK"));
}

#[test]
fn standard_input_alone_is_enough() {
    let text = "port 0\nunixsocket s\nmaxmemory 2mb\n";
    let running = Running::start(folder(), &["-"], Some(text));
    assert_eq!(running.call("CONFIG GET maxmemory"), "maxmemory 2097152");
    let refusal = running.call("CONFIG REWRITE");
    assert_eq!(refusal, "-ERR The server is running without a config file");
}

#[test]
fn includes_may_have_wildcards() {
    let folder = folder_with("include conf.d/*.conf\ninclude nosuch/*.conf\n");
    let inner = folder.path().join("conf.d");
    fs::create_dir(&inner).unwrap();
    for (name, text) in [
        ("b.conf", "hz 22\n"),
        ("a.conf", "hz 21\nmaxmemory 3mb\n"),
        (".hidden.conf", "hz 23\n"),
        ("c.txt", "hz 24\n"),
    ] {
        fs::write(inner.join(name), text).unwrap();
    }
    let running = Running::start(folder, &["r.conf"], None);
    assert_eq!(
        running.call("CONFIG GET hz"),
        "hz 22",
        "in the order of their names"
    );
    assert_eq!(running.call("CONFIG GET maxmemory"), "maxmemory 3145728");
}

#[test]
fn a_wrong_line_is_named() {
    let folder = folder_with("\n# comment\nhz many\n");
    assert_eq!(
        refused(folder.path(), &["r.conf"]),
        "redline server: r.conf:6: hz many: argument couldn't be parsed into an integer"
    );
    fs::write(
        folder.path().join("outer.conf"),
        "port 0\ninclude inner.conf\n",
    )
    .unwrap();
    fs::write(folder.path().join("inner.conf"), "\nnosuch 1\n").unwrap();
    assert_eq!(
        refused(folder.path(), &["outer.conf"]),
        "redline server: inner.conf:2: nosuch: Bad directive or wrong number of arguments"
    );
    fs::write(folder.path().join("outer.conf"), "include outer.conf\n").unwrap();
    let endless = refused(folder.path(), &["outer.conf"]);
    assert!(
        endless.starts_with("redline server: outer.conf:1: "),
        "{endless}"
    );
    let missing = refused(folder.path(), &["nosuch.conf"]);
    assert!(
        missing.starts_with("redline server: can't open config file 'nosuch.conf': "),
        "{missing}"
    );
    assert_eq!(
        refused(folder.path(), &["--port", "x"]),
        "redline server: --port x: argument couldn't be parsed into an integer"
    );
    assert_eq!(
        refused(folder.path(), &["--requirepass", "a", "b"]),
        "redline server: --requirepass: wrong number of arguments"
    );
    assert_eq!(
        refused(folder.path(), &["--nosuch", "1"]),
        "redline server: --nosuch: Bad directive or wrong number of arguments"
    );
    refused(folder.path(), &["-x"]);
    refused(folder.path(), &["--port", "0"]);
    refused(folder.path(), &["--port", "0", "--dir", "nosuch"]);
    refused(folder.path(), &["--port", "0", "--logfile", "nosuch/log"]);
    refused(folder.path(), &["--bind", "nosuch.invalid"]);
}

#[test]
fn parts_that_do_not_exist_end_the_start_and_cannot_be_set() {
    let unbuilt = [
        ("mptcp yes", "Multipath TCP is not built yet"),
        ("replicaof h x", "Invalid master port"),
        ("import-mode yes", "import mode is not built yet"),
    ];
    for (directive, why) in unbuilt {
        let folder = folder_with(&format!("{directive}\n"));
        let said = refused(folder.path(), &["r.conf"]);
        assert_eq!(
            said,
            format!("redline server: r.conf:4: {directive}: {why}")
        );
        let option: Vec<String> = directive.split(' ').map(String::from).collect();
        let mut args = vec![format!("--{}", option[0])];
        args.extend_from_slice(&option[1..]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let said = refused(folder.path(), &args);
        assert_eq!(said, format!("redline server: --{directive}: {why}"));
    }
    let harmless = "mptcp no\nappendonly no\nimport-mode no\ntls-port 0\n";
    let running = Running::start(folder_with(harmless), &["r.conf"], None);
    for (directive, _) in unbuilt {
        let (name, value) = directive.split_once(' ').unwrap();
        let reply = running.call(&format!("CONFIG SET {name} \"{value}\""));
        assert!(
            reply.starts_with("-ERR CONFIG SET failed"),
            "{directive}: {reply}"
        );
    }
    for harmless in ["min-replicas-to-write 0", "appendonly no", "tls-port 0"] {
        assert_eq!(running.call(&format!("CONFIG SET {harmless}")), "+OK");
    }
}

#[test]
fn config_rewrite_keeps_comments_and_what_it_does_not_change() {
    let folder = folder_with("# how often\nhz 20 \n\n# memory\nmaxmemory 1mb\nhz 30\n");
    let running = Running::start(folder, &["r.conf"], None);
    assert_eq!(running.call("CONFIG SET hz 40 timeout 9"), "+OK");
    assert_eq!(running.call("CONFIG REWRITE"), "+OK");
    let text = fs::read_to_string(running.path("r.conf")).unwrap();
    let dir = fs::canonicalize(running.folder.path()).unwrap();
    assert_eq!(
        text,
        format!(
            "port 0\nunixsocket \"s\"\nthreads 1\n# how often\nhz 40\n\n# memory\nmaxmemory 1mb\n\n\
             # Generated by CONFIG REWRITE\ntimeout 9\ndir \"{}\"\nlatency-tracking-info-percentiles 50 99 99.9\n\
             user default on nopass sanitize-payload ~* &* +@all\n",
            dir.display()
        )
    );
    // It can be started from again.
    running.signal("TERM");
    let (_, _, folder) = running.ended();
    let again = Running::start(folder, &["r.conf"], None);
    assert_eq!(again.call("CONFIG GET timeout"), "timeout 9");
}

#[test]
fn dir_is_the_working_directory_and_can_be_changed_where_that_is_allowed() {
    let folder = folder_with("dir work\nenable-protected-configs yes\npidfile p\nlogfile log\n");
    for name in ["work", "other"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let config = fs::read_to_string(folder.path().join("r.conf")).unwrap();
    // From `work`; from another folder it would be another file.
    let config = config.replace("unixsocket s", "unixsocket ../s");
    fs::write(folder.path().join("r.conf"), config).unwrap();
    let running = Running::start(folder, &["r.conf"], None);
    let cwd = || fs::read_link(format!("/proc/{}/cwd", running.child.id())).unwrap();
    let work = fs::canonicalize(running.path("work")).unwrap();
    let other = fs::canonicalize(running.path("other")).unwrap();
    assert_eq!(cwd(), work);
    assert_eq!(
        running.call("CONFIG GET dir"),
        format!("dir {}", work.display())
    );
    assert_eq!(running.call("CONFIG SET dir ../other"), "+OK");
    assert_eq!(cwd(), other);
    let shown = format!("dir {}", other.display());
    assert_eq!(running.call("CONFIG GET dir"), shown);
    assert!(running.call("CONFIG SET dir nosuch").starts_with("-ERR "));
    assert_eq!(cwd(), other);
    assert_eq!(running.call("CONFIG REWRITE"), "+OK");
    let config = fs::read_to_string(running.path("r.conf")).unwrap();
    let line = format!("\ndir \"{}\"\n", other.display());
    assert!(config.contains(&line), "{config}");
    assert!(work.join("p").exists());
    assert_eq!(running.call("CONFIG SET dir /"), "+OK");
    running.signal("TERM");
    let (status, _, folder) = running.ended();
    assert_eq!(status.code(), Some(0));
    assert!(!work.join("p").exists(), "the file with the pid is left");
    assert!(!folder.path().join("s").exists(), "the socket is left");
}

#[test]
fn the_log_goes_to_its_file_from_its_level_on() {
    let running = Running::start(folder_with("logfile log\n"), &["r.conf"], None);
    let log = |running: &Running| fs::read_to_string(running.path("log")).unwrap();
    until("it says what it listens on", || {
        log(&running).contains("Listening on ").then_some(())
    });
    let noticed = |running: &Running| {
        assert_eq!(running.call("CONFIG REWRITE"), "+OK");
        log(running).matches("CONFIG REWRITE executed").count()
    };
    assert_eq!(noticed(&running), 1);
    assert_eq!(running.call("CONFIG SET loglevel warning"), "+OK");
    assert_eq!(noticed(&running), 1, "a notice weighs less than a warning");
    assert_eq!(running.call("CONFIG SET loglevel notice"), "+OK");
    assert_eq!(noticed(&running), 2);
    assert_eq!(running.call("CONFIG SET loglevel nothing"), "+OK");
    running.signal("TERM");
    let (_, stdout, folder) = running.ended();
    assert_eq!(stdout, "");
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(!log.contains("User requested shutdown"), "{log}");
}

#[test]
fn through_a_link_named_redis_server_it_is_the_server() {
    let folder = folder_with("");
    let link = folder.path().join("redis-server");
    symlink(REDLINE, &link).unwrap();
    let version = Command::new(&link).arg("--version").output().unwrap();
    let line = String::from_utf8(version.stdout).unwrap();
    assert!(line.starts_with("Redis server v=8.2.3 "), "{line}");
    let mut command = Command::new(&link);
    command.arg("r.conf");
    let running = Running::of(command, folder, None);
    assert_eq!(running.call("PING"), "+PONG");
}
