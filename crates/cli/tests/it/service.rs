//! `redline server` as a service: in the background, under a supervisor, with the configuration file of a distribution;
//! its title, its log's forms, and the options that start no server.

use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{MetadataExt, symlink},
            net::{SocketAddr, UnixDatagram, UnixStream},
        },
    },
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::running::{self, PATIENCE, REDLINE, Running, folder, folder_with, refused, until};

/// A process that is not a child of the test; ended when this is dropped.
struct Background(u32);

impl Background {
    /// Returns the process that a file names.
    fn named_in(pidfile: &Path) -> Background {
        Background(until("the process id is written", || {
            let text = fs::read_to_string(pidfile).ok()?;
            text.strip_suffix('\n')?.parse().ok()
        }))
    }

    fn proc(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.0)
    }

    fn kill(&self, signal: &str) {
        let _ = Command::new("kill")
            .args([signal, &self.0.to_string()])
            .stderr(std::process::Stdio::null())
            .status();
    }

    /// Returns field `number` of its `stat`, for fields from the state, which is field 3, on.
    fn stat(&self, number: usize) -> Option<String> {
        let stat = fs::read_to_string(self.proc("stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        fields.split(' ').nth(number - 3).map(String::from)
    }

    /// Returns true if it has ended; it may stay as a zombie if no process waits for orphans.
    fn has_ended(&self) -> bool {
        self.stat(3).is_none_or(|state| state == "Z")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.kill("-KILL");
        }
    }
}

/// Returns the title that the list of processes shows.
fn title(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    text.trim_end_matches('\0').to_string()
}

#[test]
fn in_the_background_it_has_a_session_of_its_own_and_the_caller_gets_success() {
    let folder = folder_with("threads 2\ndaemonize yes\npidfile p\nlogfile log\n");
    // It must not hold the pipe whose end a caller waits for.
    let output = Command::new(REDLINE)
        .args(["server", "r.conf"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
    let server = Background::named_in(&folder.path().join("p"));
    for standard in 0..3 {
        let target = fs::read_link(server.proc(&format!("fd/{standard}"))).unwrap();
        assert_eq!(target, Path::new("/dev/null"));
    }
    assert_eq!(server.stat(6), Some(server.0.to_string()), "its session");
    let socket = folder.path().join("s");
    until("it listens", || UnixStream::connect(&socket).ok());
    let log = || fs::read_to_string(folder.path().join("log")).unwrap();
    until("it is ready", || {
        log().contains(" with 2 workers\n").then_some(())
    });
    server.kill("-TERM");
    until("it ends", || server.has_ended().then_some(()));
    assert!(!folder.path().join("p").exists() && !socket.exists());
    assert!(log().contains("Removing the pid file."), "{}", log());
}

/// The directives of the file that Debian's redis-server package installs (7.0.15), with other folders; only saving is
/// switched off. `cargo xtask compat` takes the real file.
const DEBIAN: &str = r#"
bind 127.0.0.1 -::1
protected-mode yes
port 0
tcp-backlog 511
timeout 0
tcp-keepalive 300
daemonize yes
pidfile FOLDER/redis-server.pid
loglevel notice
logfile FOLDER/redis-server.log
databases 16
always-show-logo no
set-proc-title yes
proc-title-template "{title} {listen-addr} {server-mode}"
stop-writes-on-bgsave-error yes
rdbcompression yes
rdbchecksum yes
dbfilename dump.rdb
rdb-del-sync-files no
dir FOLDER
replica-serve-stale-data yes
replica-read-only yes
repl-diskless-sync yes
repl-diskless-sync-delay 5
repl-diskless-sync-max-replicas 0
repl-diskless-load disabled
repl-disable-tcp-nodelay no
replica-priority 100
acllog-max-len 128
lazyfree-lazy-eviction no
lazyfree-lazy-expire no
lazyfree-lazy-server-del no
replica-lazy-flush no
lazyfree-lazy-user-del no
lazyfree-lazy-user-flush no
oom-score-adj no
oom-score-adj-values 0 200 800
disable-thp yes
appendonly no
appendfilename "appendonly.aof"
appenddirname "appendonlydir"
appendfsync everysec
no-appendfsync-on-rewrite no
auto-aof-rewrite-percentage 100
auto-aof-rewrite-min-size 64mb
aof-load-truncated yes
aof-use-rdb-preamble yes
aof-timestamp-enabled no
slowlog-log-slower-than 10000
slowlog-max-len 128
latency-monitor-threshold 0
notify-keyspace-events ""
hash-max-listpack-entries 512
hash-max-listpack-value 64
list-max-listpack-size -2
list-compress-depth 0
set-max-intset-entries 512
zset-max-listpack-entries 128
zset-max-listpack-value 64
hll-sparse-max-bytes 3000
stream-node-max-bytes 4096
stream-node-max-entries 100
activerehashing yes
client-output-buffer-limit normal 0 0 0
client-output-buffer-limit replica 256mb 64mb 60
client-output-buffer-limit pubsub 32mb 8mb 60
hz 10
dynamic-hz yes
aof-rewrite-incremental-fsync yes
rdb-save-incremental-fsync yes
jemalloc-bg-thread yes
"#;

#[test]
fn the_file_of_a_distribution_starts_it() {
    let folder = folder();
    let text = DEBIAN.replace("FOLDER", folder.path().to_str().unwrap());
    let config = folder.path().join("redis.conf");
    fs::write(
        &config,
        format!("{text}unixsocket {}/s\n", folder.path().display()),
    )
    .unwrap();
    let link = folder.path().join("redis-server");
    symlink(REDLINE, &link).unwrap();
    let status = Command::new(&link).arg(&config).status().unwrap();
    assert!(status.success());
    let server = Background::named_in(&folder.path().join("redis-server.pid"));
    let listens_on = format!("{} {}/s", link.display(), folder.path().display());
    assert_eq!(title(server.0), listens_on);
    server.kill("-TERM");
    until("it ends", || server.has_ended().then_some(()));
    let log = fs::read_to_string(folder.path().join("redis-server.log")).unwrap();
    assert!(log.contains("Ready to accept connections unix"), "{log}");
    assert!(log.contains("bye bye"), "{log}");
}

/// A supervisor that hears messages.
struct Supervisor(UnixDatagram);

impl Supervisor {
    fn at(address: &SocketAddr) -> Supervisor {
        let socket = UnixDatagram::bind_addr(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Supervisor(socket)
    }

    /// Returns the next message that says this; others may come before it.
    #[track_caller]
    fn heard(&self, wanted: &str) -> String {
        loop {
            let mut message = [0; 500];
            let len = self.0.recv(&mut message);
            let len = len.unwrap_or_else(|error| panic!("no {wanted}: {error}"));
            let message = String::from_utf8_lossy(&message[..len]).into_owned();
            assert!(message.ends_with('\n'), "{message}");
            if message.contains(wanted) {
                return message;
            }
        }
    }
}

#[test]
fn systemd_is_told_when_it_is_ready_and_when_it_ends() {
    for by_name in [false, true] {
        // Under a supervisor it stays in the foreground, whatever daemonize says.
        let folder = folder_with("daemonize yes\npidfile p\n");
        let path = folder.path().join("notify");
        let (address, shown) = if by_name {
            let name = format!("redline-test-{}", std::process::id());
            let address = SocketAddr::from_abstract_name(&name).unwrap();
            (address, format!("@{name}"))
        } else {
            let address = SocketAddr::from_pathname(&path).unwrap();
            (address, path.display().to_string())
        };
        let systemd = Supervisor::at(&address);
        let mut command = Command::new(REDLINE);
        let supervised = if by_name { "auto" } else { "systemd" };
        command
            .args(["server", "r.conf", "--supervised", supervised])
            .env("NOTIFY_SOCKET", shown);
        let running = Running::of(command, folder, None);
        assert_eq!(systemd.heard("STATUS="), "STATUS=Starting\n");
        assert_eq!(
            systemd.heard("READY=1"),
            "READY=1\nSTATUS=Ready to accept connections\n"
        );
        let info = running.call("INFO server");
        assert!(info.contains("\nprocess_supervised:systemd\r\n"), "{info}");
        running.signal("HUP");
        systemd.heard("RELOADING=1\nMONOTONIC_USEC=");
        systemd.heard("READY=1");
        running.signal("TERM");
        systemd.heard("STOPPING=1\n");
        let (status, log, _) = running.ended();
        assert!(status.success());
        assert!(log.contains("Supervised by systemd."), "{log}");
    }
}

#[test]
fn a_long_load_asks_systemd_for_time_and_says_how_far_it_is() {
    let folder = folder_with("");
    let running = Running::start(folder, &["r.conf"], None);
    let mut client = running.connect();
    for key in 0..100 {
        assert_eq!(client.call(&format!("SET key:{key} value")), "+OK");
    }
    drop(client);
    assert_eq!(running.call("SAVE"), "+OK");
    running.signal("TERM");
    let (_, _, folder) = running.ended();
    let path = folder.path().join("notify");
    let systemd = Supervisor::at(&SocketAddr::from_pathname(&path).unwrap());
    let mut command = Command::new(REDLINE);
    command
        .args(["server", "r.conf", "--supervised", "systemd"])
        // Longer than anybody waits: the end does not wait for it.
        .args(["--key-load-delay", "10000000"])
        .env("NOTIFY_SOCKET", &path);
    let running = Running::of(command, folder, None);
    let message = systemd.heard("EXTEND_TIMEOUT_USEC=");
    assert!(message.starts_with("STATUS=Loading: "), "{message}");
    running.signal("KILL");
}

#[test]
fn the_watchdog_is_fed_while_workers_turn() {
    let folder = folder_with("threads 2\n");
    let path = folder.path().join("notify");
    let systemd = Supervisor::at(&SocketAddr::from_pathname(&path).unwrap());
    let mut command = Command::new(REDLINE);
    command
        .args(["server", "r.conf", "--supervised", "systemd"])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "400000");
    let running = Running::of(command, folder, None);
    systemd.heard("READY=1");
    for _ in 0..3 {
        systemd.heard("WATCHDOG=1\n");
    }
    running.signal("TERM");
    systemd.heard("STOPPING=1");
    let (status, _, folder) = running.ended();
    assert!(status.success());
    let mut proxy = proxy_under(&path, &folder.path().join("p"))
        .env("WATCHDOG_USEC", "400000")
        .spawn()
        .unwrap();
    for _ in 0..3 {
        systemd.heard("WATCHDOG=1\n");
    }
    running::signal(&proxy, "TERM");
    assert!(proxy.wait().unwrap().success());
}

#[test]
fn the_proxy_never_told_systemd_that_it_is_ready() {
    let folder = folder();
    let path = folder.path().join("notify");
    let systemd = Supervisor::at(&SocketAddr::from_pathname(&path).unwrap());
    let bind = folder.path().join("p");
    let mut proxy = proxy_under(&path, &bind).spawn().unwrap();
    systemd.heard("READY=1\n");
    // Ready means that clients are served.
    assert!(UnixStream::connect(&bind).is_ok());
    running::signal(&proxy, "HUP");
    systemd.heard("RELOADING=1\nMONOTONIC_USEC=");
    systemd.heard("READY=1\n");
    running::signal(&proxy, "TERM");
    systemd.heard("STOPPING=1\nSTATUS=Draining\n");
    assert!(proxy.wait().unwrap().success());
}

/// Returns the command of a proxy that listens on `bind`, with a supervisor.
fn proxy_under(supervisor: &Path, bind: &Path) -> Command {
    let mut command = Command::new(REDLINE);
    command
        .args(["proxy", "--upstream", "127.0.0.1:1", "--bind"])
        .arg(bind)
        .env("NOTIFY_SOCKET", supervisor)
        .stderr(std::process::Stdio::null());
    command
}

#[test]
fn the_journal_gets_priorities_and_neither_time_nor_process() {
    let folder = folder_with("");
    let bind = folder.path().join("p");
    let bind = bind.to_str().unwrap();
    let server = ["server", "r.conf"];
    let proxy = ["proxy", "--upstream", "127.0.0.1:1", "--bind", bind];
    for (args, ready) in [
        (&server[..], "<5>Ready to accept connections"),
        (&proxy, "<5>redline proxy"),
    ] {
        let path = folder.path().join("journal");
        let journal = fs::File::create(&path).unwrap();
        let data = journal.metadata().unwrap();
        let mut child = Command::new(REDLINE)
            .args(args)
            .current_dir(folder.path())
            .env("JOURNAL_STREAM", format!("{}:{}", data.dev(), data.ino()))
            .stdout(journal.try_clone().unwrap())
            .stderr(journal)
            .spawn()
            .unwrap();
        until("it is ready", || {
            let log = fs::read_to_string(&path).unwrap();
            log.contains(ready).then_some(())
        });
        running::signal(&child, "TERM");
        assert!(child.wait().unwrap().success());
        let log = fs::read_to_string(&path).unwrap();
        for line in log.lines() {
            assert!(line.starts_with("<5>") || line.starts_with("<4>"), "{log}");
        }
    }
}

#[test]
fn a_supervisor_that_is_not_there_is_told_of_and_not_waited_for() {
    for (supervised, line) in [
        (
            "systemd",
            "systemd supervision error: NOTIFY_SOCKET not found!",
        ),
        (
            "upstart",
            "upstart supervision requested, but UPSTART_JOB not found!",
        ),
    ] {
        let folder = folder_with(&format!("supervised {supervised}\n"));
        let mut command = Command::new(REDLINE);
        command
            .args(["server", "r.conf"])
            .env_remove("NOTIFY_SOCKET")
            .env_remove("UPSTART_JOB");
        let running = Running::of(command, folder, None);
        let info = running.call("INFO server");
        assert!(info.contains("\nprocess_supervised:no\r\n"), "{info}");
        running.signal("TERM");
        let (_, log, _) = running.ended();
        assert!(log.contains(line), "{log}");
    }
}

#[test]
fn for_upstart_it_stops_until_it_is_let_go_on() {
    let folder = folder_with("supervised auto\n");
    let child = Command::new(REDLINE)
        .args(["server", "r.conf"])
        .current_dir(folder.path())
        .env("UPSTART_JOB", "redline")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let server = Background(child.id());
    let mut child = child;
    until("it has stopped", || {
        (server.stat(3).as_deref() == Some("T")).then_some(())
    });
    assert!(!folder.path().join("s").exists());
    server.kill("-CONT");
    until("it listens", || {
        UnixStream::connect(folder.path().join("s")).ok()
    });
    server.kill("-TERM");
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_title_shows_what_its_template_says() {
    let running = Running::start(
        folder_with("# room for a title\n"),
        &["r.conf", "--hz", "10"],
        None,
    );
    let socket = "s";
    let pid = running.child.id();
    assert_eq!(running.call("PING"), "+PONG");
    let whole = format!("{REDLINE} server {socket}");
    assert_eq!(title(pid), whole);
    let set =
        |template: &str| running.call(&format!("CONFIG SET proc-title-template \"{template}\""));
    assert_eq!(set("{port}+{tls-port}"), "+OK");
    assert_eq!(title(pid), "0+0");
    assert!(set("{nosuch}").contains("template format is invalid or contains unknown variables"));
    // A title that is too long first loses the folders of its name.
    let room = format!("{REDLINE} server r.conf --hz 10").len();
    let filler = "x".repeat(room - "redline server ".len());
    assert_eq!(set(&format!("{{title}} {filler}")), "+OK");
    assert_eq!(title(pid), format!("redline server {filler}"));
    let unwanted = Running::start(folder_with("set-proc-title no\n"), &["r.conf"], None);
    assert_eq!(unwanted.call("PING"), "+PONG");
    assert!(title(unwanted.child.id()).ends_with("server\0r.conf"));
}

#[test]
fn workers_run_on_the_cpus_of_the_list() {
    // As many workers as there are CPUs for them.
    let folder = folder_with("threads 0\nserver-cpulist 0\n");
    let running = Running::start(folder, &["r.conf"], None);
    let tasks = format!("/proc/{}/task", running.child.id());
    let cpus = || {
        let mut cpus = Vec::new();
        for task in fs::read_dir(&tasks).unwrap() {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
            if field("Name:").unwrap().trim().starts_with("worker-") {
                cpus.push(field("Cpus_allowed_list:").unwrap().trim().to_string());
            }
        }
        cpus
    };
    assert_eq!(running.call("PING"), "+PONG");
    assert_eq!(cpus(), ["0"]);
}

#[test]
fn the_kernel_is_told_whom_to_end_first() {
    let folder = folder_with("oom-score-adj yes\noom-score-adj-values 100 200 800\n");
    let given = || {
        let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        own.trim().parse::<i32>().unwrap()
    };
    let running = Running::start(folder, &["r.conf"], None);
    assert_eq!(running.call("PING"), "+PONG");
    let path = format!("/proc/{}/oom_score_adj", running.child.id());
    let score = || {
        let text = fs::read_to_string(&path).unwrap();
        text.trim().parse::<i32>().unwrap()
    };
    assert_eq!(score(), (given() + 100).min(1000));
    let set = |pairs: &str| assert_eq!(running.call(&format!("CONFIG SET {pairs}")), "+OK");
    set("oom-score-adj-values \"300 0 0\"");
    assert_eq!(score(), (given() + 300).min(1000));
    set("oom-score-adj absolute oom-score-adj-values \"1500 0 0\"");
    assert_eq!(score(), 1000);
    set("oom-score-adj no");
    assert_eq!(score(), given());
    set("oom-score-adj-values \"1 0 0\"");
    assert_eq!(score(), given());
}

#[test]
fn a_hangup_does_not_end_it() {
    let running = Running::start(folder_with(""), &["r.conf"], None);
    running.signal("HUP");
    assert_eq!(running.call("PING"), "+PONG");
    running.signal("TERM");
    let (status, log, _) = running.ended();
    assert!(status.success(), "{log}");
}

#[test]
fn who_interrupted_twice_waited_for_a_worker_that_was_busy() {
    let folder = folder_with("threads 2\nenable-debug-command yes\n");
    let mut running = Running::start(folder, &["r.conf"], None);
    // The first worker receives signals, and one of two clients is on it.
    let mut clients = [running.connect(), running.connect()];
    let on_first =
        |client: &mut running::Client| client.call("CLIENT INFO").contains(" io-thread=0 ");
    let at = clients.iter_mut().position(on_first).unwrap();
    let id = clients[at].call("CLIENT ID");
    let id = id.trim_start_matches(':');
    clients[at].send("DEBUG SLEEP 1000");
    until("it sleeps", || {
        let seen = clients[1 - at].call(&format!("CLIENT LIST ID {id}"));
        seen.contains(" cmd=debug ").then_some(())
    });
    running.signal("TERM");
    // A pending signal absorbs the next.
    let status = until("it ends", || {
        running.signal("INT");
        running.child.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(1));
}

#[test]
fn the_log_has_other_forms_and_the_time_of_the_place() {
    let folder = folder_with("logfile log\nlog-format json\n");
    let mut command = Command::new(REDLINE);
    command.args(["server", "r.conf"]).env("TZ", "TST-05:30");
    let running = Running::of(command, folder, None);
    let pid = running.child.id();
    assert_eq!(running.call("CONFIG SET log-format logfmt"), "+OK");
    assert_eq!(running.call("CONFIG REWRITE"), "+OK");
    assert_eq!(running.call("CONFIG SET log-format text"), "+OK");
    assert_eq!(running.call("CONFIG REWRITE"), "+OK");
    for format in ["iso8601", "milliseconds"] {
        let call = format!("CONFIG SET log-timestamp-format {format}");
        assert_eq!(running.call(&call), "+OK");
        assert_eq!(running.call("CONFIG REWRITE"), "+OK");
    }
    let log = fs::read_to_string(running.path("log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let begins = format!("{{\"pid\":{pid},\"role\":\"primary\",\"timestamp\":\"20");
    assert!(lines[0].starts_with(&begins), "{log}");
    assert!(
        lines[0].contains("+05:30\",\"level\":\"notice\",\"message\":\"Redline version="),
        "{log}"
    );
    let [pairs, text, iso_8601, milliseconds] = lines[lines.len() - 4..] else {
        panic!("{log}")
    };
    let time_of = |line: &str| {
        let time = line.strip_prefix(&format!("{pid}:M "));
        time.and_then(|rest| rest.strip_suffix(" * CONFIG REWRITE executed with success."))
            .map(str::to_owned)
            .unwrap_or_else(|| panic!("{log}"))
    };
    let iso_8601 = time_of(iso_8601);
    assert!(
        iso_8601.starts_with("20") && iso_8601.ends_with("+05:30"),
        "{log}"
    );
    assert_eq!(
        iso_8601.len(),
        "2026-11-21T22:10:00.123+01:00".len(),
        "{log}"
    );
    let milliseconds: u64 = time_of(milliseconds).parse().unwrap();
    let now_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64;
    assert!((now_ms - 60_000..=now_ms).contains(&milliseconds), "{log}");
    assert!(
        pairs.starts_with(&format!("pid={pid} role=primary timestamp=\"20")),
        "{log}"
    );
    assert!(
        pairs.ends_with(" level=notice message=\"CONFIG REWRITE executed with success.\""),
        "{log}"
    );
    assert!(text.starts_with(&format!("{pid}:M ")), "{log}");
}

#[test]
fn a_group_that_nobody_knows_ends_the_start() {
    let folder = folder_with("unixsocketgroup no-such-group\n");
    let said = refused(folder.path(), &["r.conf"]);
    assert!(said.contains("s: no group \"no-such-group\""), "{said}");
}

#[test]
fn a_configuration_can_be_checked_without_a_server() {
    let folder = folder_with("io-threads 4\njemalloc-bg-thread no\nhz 20\nlogfile log\n");
    let check = |words: &[&str]| {
        let output = Command::new(REDLINE)
            .args(["server", "--check-config"])
            .args(words)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let report = check(&["r.conf"]);
    assert!(
        report.starts_with("The configuration is valid: "),
        "{report}"
    );
    for line in ["r.conf:4: io-threads 4", "r.conf:5: jemalloc-bg-thread no"] {
        assert!(report.contains(line), "{line}: {report}");
    }
    assert!(!folder.path().join("s").exists() && !folder.path().join("log").exists());
    let wrong = |words: &[&str], why: &str| {
        let words = [&["--check-config"], words].concat();
        let said = refused(folder.path(), &words);
        assert!(said.contains(why), "{said}");
    };
    wrong(
        &["r.conf", "--mptcp", "yes"],
        "Multipath TCP is not built yet",
    );
    wrong(
        &[
            "r.conf",
            "--cluster-enabled",
            "yes",
            "--replicaof",
            "h",
            "1",
        ],
        "replicaof directive not allowed in cluster mode",
    );
    wrong(
        &["r.conf", "--logfile", "nosuch/log"],
        "can't open the log file",
    );
    wrong(&["r.conf", "--dir", "nosuch"], "can't chdir to 'nosuch'");
    wrong(&["r.conf", "--aclfile", "nosuch"], "nosuch");
    wrong(&["r.conf", "--server-cpulist", "a"], "the CPUs 'a'");
    wrong(&["r.conf", "--tls-port", "1"], "Failed to configure TLS");
    wrong(&["nosuch.conf"], "can't open config file 'nosuch.conf'");
    wrong(&[], "which file?");
}

#[test]
fn sentinel_is_refused_and_memory_is_tested() {
    let folder = folder_with("");
    let said = refused(folder.path(), &["r.conf", "--sentinel"]);
    assert!(said.contains("Sentinel is not built"), "{said}");
    let link = folder.path().join("redis-sentinel");
    symlink(REDLINE, &link).unwrap();
    let output = Command::new(&link).arg("sentinel.conf").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Sentinel is not built"));
    let tested = Command::new(REDLINE)
        .args(["server", "--test-memory", "1"])
        .output()
        .unwrap();
    assert!(tested.status.success(), "{tested:?}");
    let said = String::from_utf8(tested.stdout).unwrap();
    assert!(
        said.ends_with("\nYour memory passed this test.\n"),
        "{said}"
    );
    refused(folder.path(), &["--test-memory"]);
    refused(folder.path(), &["--test-memory", "0"]);
}
