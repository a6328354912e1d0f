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
    fn start(etcd: &Etcd) -> Node {
        let mut node = Node {
            running: None,
            folder: Some(folder_with("appendonly yes\nsave \"\"\nthreads 2\n")),
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
        let etcd = Etcd::start();
        let nodes: Vec<Node> = (0..3).map(|_| Node::start(&etcd)).collect();
        assert_eq!(nodes[0].call("CLUSTER ADDSLOTSRANGE 0 16383"), "+OK");
        let id = nodes[0].call("CLUSTER MYID");
        for node in &nodes[1..] {
            let port = nodes[0].port;
            assert_eq!(node.call(&format!("CLUSTER MEET 127.0.0.1 {port}")), "+OK");
            assert_eq!(node.call(&format!("CLUSTER REPLICATE {id}")), "+OK");
        }
        let shard = Shard { nodes, _etcd: etcd };
        for node in &shard.nodes {
            let set = format!("CONFIG SET cluster-node-timeout {timeout_ms}");
            assert_eq!(node.call(&set), "+OK");
        }
        shard.until_whole();
        shard
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
    acknowledged: Vec<(u64, Instant)>,
    errors: Vec<String>,
}

impl Writer {
    fn start(shard: &Shard, patience: Duration) -> Writer {
        let stops = Arc::new(AtomicBool::new(false));
        let ports: Vec<u16> = shard.nodes.iter().map(|node| node.port).collect();
        let thread = thread::spawn({
            let stops = stops.clone();
            move || write_until(&stops, &ports, patience)
        });
        Writer { stops, thread }
    }

    fn end(self) -> Written {
        self.stops.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

fn write_until(stops: &AtomicBool, ports: &[u16], patience: Duration) -> Written {
    let mut written = Written::default();
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
                .write_all(format!("SET key:{key} {key}\r\n").as_bytes())?;
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
            lost += usize::from(client.call(&format!("GET key:{key}")) != key.to_string());
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
    let mut shard = Shard::start(LONG_MS);
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
