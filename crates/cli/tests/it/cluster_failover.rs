//! A shard of `redline server` whose cluster is in a real etcd: the primary is killed, stopped, asked to hand over, and ended;
//! another takes over, and nobody answers who has no right to. These tests are run by `cargo xtask compat cluster-etcd`, which
//! names the program in REDLINE_ETCD.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::running::{Running, folder_with, until};

/// Longest time without an acknowledged write when a primary dies: with this time-out some 3 s on a machine at rest. How long it
/// takes is measured by `redline bench failover`; this finds a shard that nobody serves.
const GAP_MAX: Duration = Duration::from_secs(30);
/// Time-out of nodes by which a primary that dies is replaced, and by which nothing is done without need.
const SHORT_MS: u64 = 3000;
const LONG_MS: u64 = 15_000;
/// Time in which a client waits for a reply before it asks another node, and in which it asks no other.
const IMPATIENT: Duration = Duration::from_millis(500);
const PATIENT: Duration = Duration::from_secs(60);

/// Longest time after which a hand-over that was asked for has been given up.
const HAND_OVER_MAX: Duration = Duration::from_secs(6);

/// A running etcd with one member; it ends with this.
struct Etcd {
    process: Child,
    port: u16,
    _folder: TempDir,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Etcd {
    fn start() -> Etcd {
        let program = std::env::var("REDLINE_ETCD").expect("REDLINE_ETCD names the program");
        let (port, peer_port) = (free_port(), free_port());
        let folder = TempDir::new().unwrap();
        let clients = format!("http://127.0.0.1:{port}");
        let peers = format!("http://127.0.0.1:{peer_port}");
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(folder.path().join("data"));
        command.args(["--listen-client-urls", &clients]);
        command.args(["--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers]);
        command.args(["--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("etcd starts");
        let etcd = Etcd {
            process,
            port,
            _folder: folder,
        };
        until("etcd answers", || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        etcd
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A node, which may be started again.
struct Node {
    running: Option<Running>,
    folder: Option<TempDir>,
    port: u16,
    etcd: String,
}

impl Node {
    /// Starts one with these further lines in its file of settings.
    fn start(etcd: &Etcd, more: &str) -> Node {
        let settings = format!("appendonly yes\nsave \"\"\nthreads 2\n{more}");
        let mut node = Node {
            running: None,
            folder: Some(folder_with(&settings)),
            port: free_port(),
            etcd: format!("http://127.0.0.1:{}", etcd.port),
        };
        node.begin();
        node
    }

    fn begin(&mut self) {
        let folder = self.folder.take().expect("it does not run");
        let port = self.port.to_string();
        let words = [
            "r.conf",
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--cluster-enabled",
            "yes",
            "--cluster-etcd",
            &self.etcd,
            "--logfile",
            "log",
        ];
        self.running = Some(Running::start(folder, &words, None));
        until("it answers", || {
            (self.call("PING") == "+PONG").then_some(())
        });
    }

    fn call(&self, line: &str) -> String {
        let running = self.running.as_ref().expect("it runs");
        running.call(line)
    }

    fn signal(&self, name: &str) {
        self.running.as_ref().expect("it runs").signal(name);
    }

    /// Takes the process away, which has ended or is killed.
    fn take(&mut self) {
        let mut running = self.running.take().expect("it runs");
        let _ = running.child.kill();
        let _ = running.child.wait();
        let folder = std::mem::replace(&mut running.folder, TempDir::new().unwrap());
        self.folder = Some(folder);
    }

    fn is_primary(&self) -> bool {
        self.running.is_some() && self.call("ROLE").starts_with("master")
    }

    fn is_linked(&self) -> bool {
        let role = self.call("ROLE");
        role.starts_with("slave") && role.contains(" connected ")
    }

    fn fact(&self, name: &str) -> i64 {
        let info = self.call("CLUSTER INFO");
        let found = info.lines().find_map(|line| line.strip_prefix(name));
        let value = found.and_then(|rest| rest.strip_prefix(':'));
        value.map_or(0, |value| value.trim().parse().unwrap())
    }
}

/// Three nodes of one shard with all slots.
struct Shard {
    nodes: Vec<Node>,
    _etcd: Etcd,
}

impl Shard {
    fn start(timeout_ms: u64) -> Shard {
        Shard::start_with(timeout_ms, "")
    }

    fn start_with(timeout_ms: u64, more: &str) -> Shard {
        let more = format!("cluster-node-timeout {timeout_ms}\n{more}");
        let etcd = Etcd::start();
        let nodes: Vec<Node> = (0..3).map(|_| Node::start(&etcd, &more)).collect();
        assert_eq!(nodes[0].call("CLUSTER ADDSLOTSRANGE 0 16383"), "+OK");
        let id = nodes[0].call("CLUSTER MYID");
        for node in &nodes[1..] {
            let port = nodes[0].port;
            assert_eq!(node.call(&format!("CLUSTER MEET 127.0.0.1 {port}")), "+OK");
            assert_eq!(node.call(&format!("CLUSTER REPLICATE {id}")), "+OK");
        }
        let shard = Shard { nodes, _etcd: etcd };
        shard.until_whole();
        shard
    }

    /// Waits until another node than this one leads, and returns its number.
    fn until_another_leads(&self, than: usize) -> usize {
        until("another takes over", || {
            let mut others = (0..3).filter(|at| *at != than);
            others.find(|at| self.nodes[*at].is_primary())
        })
    }

    fn primary(&self) -> usize {
        until("a node is the primary", || {
            self.nodes.iter().position(Node::is_primary)
        })
    }

    /// Waits until one leads, and both others are its candidates.
    fn until_whole(&self) {
        until("two replicas may take over", || {
            let primaries = self.nodes.iter().filter(|node| node.is_primary());
            let linked = self.nodes.iter().filter(|node| node.is_linked());
            let primary = self.nodes.iter().find(|node| node.is_primary())?;
            let is_whole = (primaries.count(), linked.count()) == (1, 2);
            (is_whole && primary.fact("cluster_candidates") == 2).then_some(())
        });
    }
}

/// A client that writes keys one after the other to whoever serves, and notes what was acknowledged, and when.
struct Writer {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Written>,
}

#[derive(Default)]
struct Written {
    /// Begin of the names of its keys.
    name: String,
    acknowledged: Vec<(u64, Instant)>,
    errors: Vec<String>,
}

impl Writer {
    fn start(shard: &Shard, patience: Duration) -> Writer {
        Writer::named(shard, "key", patience)
    }

    fn named(shard: &Shard, name: &str, patience: Duration) -> Writer {
        let name = name.to_owned();
        let stops = Arc::new(AtomicBool::new(false));
        let ports: Vec<u16> = shard.nodes.iter().map(|node| node.port).collect();
        let thread = thread::spawn({
            let stops = stops.clone();
            move || write_until(&stops, &ports, patience, name)
        });
        Writer { stops, thread }
    }

    fn end(self) -> Written {
        self.stops.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

fn write_until(stops: &AtomicBool, ports: &[u16], patience: Duration, name: String) -> Written {
    let mut written = Written {
        name,
        ..Written::default()
    };
    let (mut at, mut key) = (0, 0);
    let mut connection: Option<BufReader<TcpStream>> = None;
    while !stops.load(Ordering::Acquire) {
        let sent: std::io::Result<_> = connection.take().map_or_else(
            || {
                let stream = TcpStream::connect(("127.0.0.1", ports[at]))?;
                stream.set_read_timeout(Some(patience))?;
                Ok(BufReader::new(stream))
            },
            Ok,
        );
        let answer = sent.and_then(|mut to| {
            let mut line = String::new();
            to.get_mut()
                .write_all(format!("SET {}:{key} {key}\r\n", written.name).as_bytes())?;
            match to.read_line(&mut line)? {
                0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
                _ => Ok((to, line.trim().to_owned())),
            }
        });
        match answer {
            Ok((to, line)) if line == "+OK" => {
                written.acknowledged.push((key, Instant::now()));
                key += 1;
                connection = Some(to);
            }
            Ok((_, line)) => {
                let moved = line.strip_prefix("-MOVED ").and_then(|rest| {
                    let port: u16 = rest.rsplit(':').next()?.parse().ok()?;
                    ports.iter().position(|known| *known == port)
                });
                match moved {
                    Some(node) => at = node,
                    None => written.errors.push(line),
                }
            }
            // Its outcome is unknown: the key is not written again.
            Err(error) => {
                written.errors.push(error.to_string());
                key += 1;
                at = (at + 1) % ports.len();
            }
        }
    }
    written
}

impl Written {
    /// Returns the longest time without an acknowledged write that began after `since`.
    fn gap(&self, since: Instant) -> Duration {
        let later = self.acknowledged.iter().map(|(_, at)| *at);
        let mut last = since;
        let mut longest = Duration::ZERO;
        for at in later.filter(|at| *at > since) {
            longest = longest.max(at - last);
            last = at;
        }
        longest
    }

    /// Returns the number of acknowledged keys that a node does not have.
    fn lost_at(&self, node: &Node) -> usize {
        let running = node.running.as_ref().unwrap();
        let mut client = running.connect();
        let mut lost = 0;
        for (key, _) in &self.acknowledged {
            let found = client.call(&format!("GET {}:{key}", self.name));
            lost += usize::from(found != key.to_string());
        }
        lost
    }

    fn count_after(&self, at: Instant) -> usize {
        let later = self.acknowledged.iter().filter(|(_, then)| *then > at);
        later.count()
    }
}

#[test]
#[ignore = "wants etcd"]
fn a_primary_that_is_killed_is_replaced_and_comes_back_as_a_replica() {
    let mut shard = Shard::start(SHORT_MS);
    let writer = Writer::start(&shard, IMPATIENT);
    let old = shard.primary();
    let term = shard.nodes[old].fact("cluster_my_epoch");
    let killed = Instant::now();
    shard.nodes[old].take();
    let new = until("another takes over", || {
        shard.nodes.iter().position(Node::is_primary)
    });
    assert!(shard.nodes[new].fact("cluster_my_epoch") > term);
    shard.nodes[old].begin();
    shard.until_whole();
    let written = writer.end();
    assert_eq!(shard.primary(), new, "the old one comes back as a replica");
    assert!(written.gap(killed) < GAP_MAX, "{:?}", written.gap(killed));
    assert!(written.count_after(killed) > 0, "{:?}", written.errors);
    let lost = written.lost_at(&shard.nodes[new]);
    let all = written.acknowledged.len();
    assert!(lost < all / 2, "{lost} of {all}: more than its lag");
}

#[test]
#[ignore = "wants etcd"]
fn a_primary_that_was_stopped_answers_nothing_after_its_right_has_ended() {
    let shard = Shard::start(SHORT_MS);
    let old = shard.primary();
    let running = shard.nodes[old].running.as_ref().unwrap();
    assert_eq!(running.call("SET before 1"), "+OK");
    // Their requests wait in the sockets while the process is stopped.
    let mut clients: Vec<_> = (0..20).map(|_| running.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.call("GET before"), "1");
    }
    shard.nodes[old].signal("STOP");
    for client in &mut clients {
        client.send("SET after 1");
        client.send("GET before");
    }
    let new = until("another takes over", || {
        let others = (0..3).filter(|at| *at != old);
        others.into_iter().find(|at| shard.nodes[*at].is_primary())
    });
    until("it serves", || {
        (shard.nodes[new].call("SET before 2") == "+OK").then_some(())
    });
    shard.nodes[old].signal("CONT");
    for client in &mut clients {
        for _ in 0..2 {
            let said = client.read();
            assert!(
                said.starts_with("-MOVED") || said.starts_with("-CLUSTERDOWN") || said.is_empty(),
                "{said}"
            );
            if said.is_empty() {
                break;
            }
        }
    }
    assert_eq!(shard.nodes[new].call("GET after"), "(nil)");
    shard.until_whole();
    assert_eq!(shard.primary(), new);
}

/// Has the shard handed over five times under load, by which nothing may be lost.
fn five_hand_overs(shard: &Shard) -> Written {
    let writer = Writer::start(shard, PATIENT);
    for _ in 0..5 {
        let old = shard.primary();
        let target = (old + 1) % 3;
        let mut asked: Option<Instant> = None;
        until("the replica leads", || {
            let node = &shard.nodes[target];
            // As Redis's, one that has not come about within its time is asked for again.
            if asked.is_none_or(|at| at.elapsed() > HAND_OVER_MAX) && !node.is_primary() {
                // Its link may be made anew just now.
                let is_taken = node.call("CLUSTER FAILOVER") == "+OK";
                asked = is_taken.then(Instant::now);
            }
            node.is_primary().then_some(())
        });
        shard.until_whole();
    }
    let written = writer.end();
    let at = shard.primary();
    assert_eq!(written.lost_at(&shard.nodes[at]), 0);
    written
}

#[test]
#[ignore = "wants etcd"]
fn a_hand_over_loses_nothing_and_shows_no_error() {
    check_hand_overs("");
}

#[test]
#[ignore = "wants etcd"]
fn a_hand_over_with_acknowledgements_shows_no_error_either() {
    check_hand_overs("cluster-acks one\n");
}

fn check_hand_overs(settings: &str) {
    let mut shard = Shard::start_with(LONG_MS, settings);
    // A machine that gives the nodes no CPU for a second ends a right, as it should; it will not three times.
    let runs = (0..3).map(|_| five_hand_overs(&shard));
    let mut runs = runs.skip_while(|written| !written.errors.is_empty());
    let written = runs.next().expect("one of three runs without an error");
    let at = shard.primary();
    // The end of a primary is a hand-over, too.
    let began = Instant::now();
    shard.nodes[at].signal("TERM");
    let new = until("another leads", || {
        let mut others = (0..3).filter(|it| *it != at);
        others.find(|it| shard.nodes[*it].is_primary())
    });
    assert!(began.elapsed() < GAP_MAX);
    let ended = shard.nodes[at].running.as_mut().unwrap();
    until("it ends", || ended.child.try_wait().unwrap());
    assert_eq!(written.lost_at(&shard.nodes[new]), 0);
}

/// A client that reads the newest value of a counter, and checks that what it was shown once does not go back.
fn read_until(stops: &AtomicBool, ports: &[u16]) -> u64 {
    let (mut at, mut shown) = (0, 0);
    let mut connection: Option<BufReader<TcpStream>> = None;
    while !stops.load(Ordering::Acquire) {
        let sent: std::io::Result<_> = connection.take().map_or_else(
            || {
                let stream = TcpStream::connect(("127.0.0.1", ports[at]))?;
                stream.set_read_timeout(Some(Duration::from_millis(500)))?;
                Ok(BufReader::new(stream))
            },
            Ok,
        );
        let answer = sent.and_then(|mut to| {
            let mut line = String::new();
            to.get_mut()
                .write_all(b"INCRBY counter 0\r\nINCR counter\r\n")?;
            to.read_line(&mut line)?;
            let first = line.trim().to_owned();
            line.clear();
            to.read_line(&mut line)?;
            Ok((to, first, line.trim().to_owned()))
        });
        let number = |line: &str| line.strip_prefix(':').and_then(|n| n.parse::<u64>().ok());
        match answer {
            Ok((to, before, after)) if number(&before).is_some() => {
                let before = number(&before).expect("just looked");
                assert!(before >= shown, "{before} was shown after {shown}");
                shown = number(&after).unwrap_or(before);
                connection = Some(to);
            }
            _ => at = (at + 1) % ports.len(),
        }
    }
    shown
}

#[test]
#[ignore = "wants etcd"]
fn with_acknowledgements_no_failover_loses_what_was_acknowledged_or_shown() {
    let rounds = std::env::var("REDLINE_FAILOVERS").ok();
    let rounds = rounds.map_or(4, |rounds| rounds.parse().expect("a number"));
    let mut shard = Shard::start_with(SHORT_MS, "cluster-acks one\n");
    let writers: Vec<Writer> = (0..4)
        .map(|number| Writer::named(&shard, &format!("w{number}"), IMPATIENT))
        .collect();
    let ports: Vec<u16> = shard.nodes.iter().map(|node| node.port).collect();
    let stops = Arc::new(AtomicBool::new(false));
    let reader = thread::spawn({
        let stops = stops.clone();
        move || read_until(&stops, &ports)
    });
    for round in 0..rounds {
        let old = shard.primary();
        if round % 2 == 0 {
            shard.nodes[old].take();
            shard.until_another_leads(old);
            shard.nodes[old].begin();
        } else {
            shard.nodes[old].signal("STOP");
            shard.until_another_leads(old);
            shard.nodes[old].signal("CONT");
        }
        shard.until_whole();
    }
    stops.store(true, Ordering::Release);
    let shown = reader.join().expect("nothing was shown and then gone");
    let at = shard.primary();
    for writer in writers {
        let written = writer.end();
        assert!(written.acknowledged.len() > 50, "{:?}", written.errors);
        let lost = written.lost_at(&shard.nodes[at]);
        assert_eq!(lost, 0, "of {}", written.acknowledged.len());
    }
    let counter: u64 = shard.nodes[at].call("GET counter").parse().unwrap();
    assert!(counter >= shown && shown > 0, "{counter}, {shown}");
}

#[test]
#[ignore = "wants etcd"]
fn replies_that_tell_of_a_write_wait_for_the_replicas_and_no_other_reply_does() {
    let shard = Shard::start_with(LONG_MS, "cluster-acks one\n");
    let at = shard.primary();
    let primary = &shard.nodes[at];
    let others = || (0..3).filter(|other| *other != at);
    assert_eq!(primary.call("SET b 1"), "+OK");
    for other in others() {
        shard.nodes[other].signal("STOP");
    }
    let running = primary.running.as_ref().unwrap();
    let (mut writer, mut reader) = (running.connect(), running.connect());
    writer.send("SET a 1");
    let slot = primary.call("CLUSTER KEYSLOT a");
    let count = format!("CLUSTER COUNTKEYSINSLOT {}", &slot[1..]);
    until("it has run", || {
        (primary.call(&count) == ":1").then_some(())
    });
    reader.send("GET a");
    assert_eq!(primary.call("PING"), "+PONG");
    assert!(primary.call("INFO replication").contains("role:master"));
    assert!(primary.call("CLUSTER INFO").contains("cluster_right_ms"));
    assert_eq!(
        primary.call("CONFIG GET port"),
        "port 0".replace('0', &primary.port.to_string())
    );
    assert_eq!(primary.call("GET b"), "1", "it tells of nothing new");
    assert!(writer.is_quiet() && reader.is_quiet());
    for other in others() {
        shard.nodes[other].signal("CONT");
    }
    assert_eq!((writer.read(), reader.read()), ("+OK".into(), "1".into()));
    shard.until_whole();
}

#[test]
#[ignore = "wants etcd"]
fn without_a_replica_nothing_is_written_unless_that_is_accepted() {
    let mut shard = Shard::start_with(SHORT_MS, "cluster-acks one\n");
    let at = shard.primary();
    assert_eq!(shard.nodes[at].call("SET before 1"), "+OK");
    for other in (0..3).filter(|other| *other != at) {
        shard.nodes[other].take();
    }
    until("a write is refused", || {
        let said = shard.nodes[at].call("SET alone 1");
        said.starts_with("-NOREPLICAS").then_some(())
    });
    assert_eq!(shard.nodes[at].call("GET before"), "1");
    assert!(shard.nodes[at].fact("cluster_short_seconds") >= 4);
    let accept = "CONFIG SET cluster-acks-alone accept";
    assert_eq!(shard.nodes[at].call(accept), "+OK");
    until("writes are taken", || {
        (shard.nodes[at].call("SET alone 1") == "+OK").then_some(())
    });
    let refuse = "CONFIG SET cluster-acks-alone refuse";
    assert_eq!(shard.nodes[at].call(refuse), "+OK");
    // A replica joins while writes wait.
    for other in (0..3).filter(|other| *other != at) {
        shard.nodes[other].begin();
    }
    until("there is a replica again", || {
        (shard.nodes[at].call("SET joined 1") == "+OK").then_some(())
    });
    shard.until_whole();
    assert_eq!(shard.primary(), at);
    assert_eq!(shard.nodes[at].call("GET alone"), "1");
    assert_eq!(
        shard.nodes[at].call("CONFIG SET cluster-candidates-max 1"),
        "+OK"
    );
    until("one is not a candidate any more", || {
        (shard.nodes[at].fact("cluster_candidates") == 1).then_some(())
    });
}

#[test]
#[ignore = "wants etcd"]
fn a_shard_of_which_no_candidate_is_left_is_taken_over_by_force() {
    let mut shard = Shard::start(SHORT_MS);
    let at = shard.primary();
    let (candidate, last) = ((at + 1) % 3, (at + 2) % 3);
    let takeover = "CLUSTER FAILOVER TAKEOVER";
    let said = shard.nodes[last].call(takeover);
    assert!(
        said.starts_with("-ERR") && said.contains("is alive"),
        "{said}"
    );
    // One follows without being a candidate.
    shard.nodes[last].take();
    until("one replica may take over", || {
        (shard.nodes[at].fact("cluster_candidates") == 1).then_some(())
    });
    let one = "CONFIG SET cluster-candidates-max 1";
    assert_eq!(shard.nodes[at].call(one), "+OK");
    shard.nodes[last].begin();
    until("it follows", || shard.nodes[last].is_linked().then_some(()));
    assert_eq!(shard.nodes[at].call("SET key 1"), "+OK");
    until("it has all", || {
        (shard.nodes[at].call("WAIT 2 1000") == ":2").then_some(())
    });
    for gone in [at, candidate] {
        shard.nodes[gone].take();
    }
    until("etcd believes that they are gone", || {
        (shard.nodes[last].call(takeover) == "+OK").then_some(())
    });
    until("it serves", || {
        (shard.nodes[last].call("SET after 1") == "+OK").then_some(())
    });
    assert_eq!(shard.nodes[last].call("GET key"), "1");
    for other in [at, candidate] {
        shard.nodes[other].begin();
    }
    until("both follow it", || {
        let mut others = [at, candidate].into_iter();
        others
            .all(|other| shard.nodes[other].is_linked())
            .then_some(())
    });
    assert!(shard.nodes[last].is_primary());
}
