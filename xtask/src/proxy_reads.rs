//! `redline proxy` that reads from replicas of the system's redis-servers: the servers' own counters show which one
//! answered. One hangs, one falls behind with its link up, and a cluster's replicas answer for their primaries.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redline_testkit::client::{Client, Value};
use redline_testkit::process::ServerProcess;

use crate::clusters::{Cluster, told};
use crate::compat::Setting;
use crate::install;
use crate::proxy::{call, connect, proxy, signal};
use crate::run::{Failure, Folder, until};

/// Number of counted reads.
const READS: u64 = 400;
const KEYS: u64 = 40;
/// Largest age of a reply, without the proxy's own delay of detection.
const LAG_MAX_MS: u64 = 600;

/// Runs all of it.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let worst = replicas_answer_and_one_hangs(setting)?;
    let left_out = a_replica_falls_behind(setting)?;
    replicas_of_a_cluster(setting)?;
    Ok(format!(
        "{READS} reads answered by two replicas alone, none lost while one hung (the longest took {worst:.1} s), \
         a replica left out {left_out:.1} s after it stopped to hear its primary, a cluster's replicas"
    ))
}

fn redis(words: &[&str]) -> Result<ServerProcess, Failure> {
    let program = install::older_redis_server()?;
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    ServerProcess::redis(&program, &words).map_err(|error| format!("redis-server: {error}"))
}

/// Returns a replica of the server at this address.
fn replica(of: SocketAddr) -> Result<ServerProcess, Failure> {
    let replica = redis(&["--replicaof", "127.0.0.1", &of.port().to_string()])?;
    until("a replica is in step", || {
        let said = told(&replica, &["INFO", "replication"]).unwrap_or_default();
        said.contains("master_link_status:up")
    })?;
    Ok(replica)
}

/// Returns the number of calls of this command at a server since its counters began.
fn calls(server: &ServerProcess, command: &str) -> u64 {
    let said = told(server, &["INFO", "commandstats"]).unwrap_or_default();
    let start = format!("cmdstat_{command}:calls=");
    let count = said.lines().find_map(|line| {
        let (count, _) = line.strip_prefix(&start)?.split_once(',')?;
        count.parse().ok()
    });
    count.unwrap_or(0)
}

fn says(proxy: &ServerProcess, text: &str, times: usize) -> Result<(), Failure> {
    until(text, || proxy.log().matches(text).count() >= times)
}

fn get(client: &mut Client, key: u64, value: &str) -> Result<(), Failure> {
    let got = call(client, &["GET", &format!("key:{key}")])?;
    match got.as_bytes() == Some(value.as_bytes()) {
        true => Ok(()),
        false => Err(format!("key:{key} is {got:?} instead of {value}")),
    }
}

fn fill(client: &mut Client, value: &str) -> Result<(), Failure> {
    for key in 0..KEYS {
        let got = call(client, &["SET", &format!("key:{key}"), value])?;
        if got != Value::Simple(b"OK".to_vec()) {
            return Err(format!("SET: {got:?}"));
        }
    }
    Ok(())
}

/// Checks that reads go to the replicas alone, and none is lost while one of them hangs with its connections open.
fn replicas_answer_and_one_hangs(setting: &Setting) -> Result<f64, Failure> {
    let primary = redis(&[])?;
    let replicas = [replica(primary.address())?, replica(primary.address())?];
    let folder = Folder::new("proxy-reads")?;
    let proxy = proxy(
        setting,
        &folder,
        &format!(
            "[[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\nreads = {{ primary-priority = 10, static-replica-priority = 50 }}\n\
             shard = [{{ server = [{{ address = '{}' }}, {{ address = '{}' }}, {{ address = '{}' }}] }}]\n",
            primary.address(),
            replicas[0].address(),
            replicas[1].address()
        ),
    )?;
    says(&proxy, "may answer reads", 2)?;
    let mut client = connect(proxy.address())?;
    fill(&mut client, "v")?;
    let mut direct = connect(primary.address())?;
    call(&mut direct, &["WAIT", "2", "10000"])?;
    for read in 0..READS {
        get(&mut client, read % KEYS, "v")?;
    }
    let counted = [&primary, &replicas[0], &replicas[1]].map(|server| calls(server, "get"));
    if counted[0] != 0
        || counted[1] + counted[2] != READS
        || counted[1].abs_diff(counted[2]) > READS / 10
    {
        return Err(format!(
            "primary and replicas have answered {counted:?}; the proxy says:\n{}",
            proxy.log()
        ));
    }
    signal(replicas[0].pid(), "STOP")?;
    let worst = (|| {
        let mut worst = Duration::ZERO;
        let until_then = Instant::now() + Duration::from_secs(60);
        while !proxy.log().contains("is marked down") {
            let began = Instant::now();
            get(&mut client, 1, "v")?;
            worst = worst.max(began.elapsed());
            if Instant::now() > until_then {
                return Err("a replica that hangs is never marked down".to_owned());
            }
        }
        Ok(worst)
    })();
    signal(replicas[0].pid(), "CONT")?;
    let worst = worst?;
    let before = calls(&replicas[0], "get");
    until("the replica that goes on is read from again", || {
        get(&mut client, 2, "v").is_ok() && calls(&replicas[0], "get") > before
    })?;
    Ok(worst.as_secs_f64())
}

/// Checks that a replica whose link is up without progress is left out, so a written value is read by all, and that it
/// is used again after it has caught up.
fn a_replica_falls_behind(setting: &Setting) -> Result<f64, Failure> {
    let primary = redis(&[])?;
    let relay = Relay::start(primary.address())?;
    let replica = replica(relay.address)?;
    let folder = Folder::new("proxy-reads")?;
    let proxy = proxy(
        setting,
        &folder,
        &format!(
            "[[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\n\
             reads = {{ primary-priority = 0, static-replica-priority = 50, lag-max = '{LAG_MAX_MS}ms' }}\n\
             shard = [{{ server = [{{ address = '{}' }}, {{ address = '{}' }}] }}]\n",
            primary.address(),
            replica.address()
        ),
    )?;
    let mut client = connect(proxy.address())?;
    fill(&mut client, "old")?;
    let mut direct = connect(primary.address())?;
    call(&mut direct, &["WAIT", "1", "10000"])?;
    until("the replica answers", || {
        calls(&replica, "get") > 0 || get(&mut client, 0, "old").is_err()
    })?;
    relay.is_stopped.store(true, Ordering::SeqCst);
    let began = Instant::now();
    fill(&mut client, "new")?;
    until("what is behind is left out", || {
        get(&mut client, 0, "new").is_ok()
    })?;
    let took = began.elapsed().as_secs_f64();
    let said = told(&replica, &["INFO", "replication"]).unwrap_or_default();
    if !said.contains("master_link_status:up") {
        return Err("the replica has lost its link, so this shows nothing of its lag".to_owned());
    }
    for key in 0..KEYS {
        get(&mut client, key, "new")?;
    }
    relay.is_stopped.store(false, Ordering::SeqCst);
    let before = calls(&replica, "get");
    until("the replica that has caught up is back", || {
        get(&mut client, 0, "new").is_ok() && calls(&replica, "get") > before
    })?;
    Ok(took)
}

/// Checks that each replica of a cluster answers for its primary, which answers no read.
fn replicas_of_a_cluster(setting: &Setting) -> Result<(), Failure> {
    let cluster = Cluster::start()?;
    let folder = Folder::new("proxy-reads")?;
    let proxy = proxy(
        setting,
        &folder,
        &format!(
            "[[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\nkind = 'cluster'\n\
             reads = {{ primary-priority = 10, dynamic-replica-priority = 50 }}\nseed = [{{ address = '{}' }}]\n",
            // The seed is one that the file names: a static replica, if it becomes one.
            cluster.nodes[0].address()
        ),
    )?;
    says(&proxy, "may answer reads", 3)?;
    let mut client = connect(proxy.address())?;
    fill(&mut client, "v")?;
    until("all replicas have it", || {
        (0..KEYS).all(|key| get(&mut client, key, "v").is_ok())
    })?;
    let role = |node: &ServerProcess| told(node, &["ROLE"]).unwrap_or_default();
    let is_replica: Vec<bool> = cluster
        .nodes
        .iter()
        .map(|node| role(node).starts_with("slave"))
        .collect();
    let before: Vec<u64> = cluster
        .nodes
        .iter()
        .map(|node| calls(node, "get"))
        .collect();
    for read in 0..READS {
        get(&mut client, read % KEYS, "v")?;
    }
    let mut by_replicas = 0;
    for ((node, before), is_replica) in cluster.nodes.iter().zip(before).zip(&is_replica) {
        let count = calls(node, "get") - before;
        match is_replica {
            true => by_replicas += count,
            false if count > 0 => return Err(format!("a primary has answered {count} reads")),
            false => {}
        }
    }
    match by_replicas {
        READS => Ok(()),
        count => Err(format!("replicas have answered {count} of {READS} reads")),
    }
}

/// Passes bytes on in both directions, those to the client only while it is not stopped.
struct Relay {
    address: SocketAddr,
    is_stopped: Arc<AtomicBool>,
}

impl Relay {
    fn start(to: SocketAddr) -> Result<Relay, Failure> {
        let failed = |error: std::io::Error| format!("a relay: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        thread::spawn(move || {
            for near in listener.incoming() {
                let Ok(near) = near else { return };
                let Ok(far) = TcpStream::connect(to) else {
                    continue;
                };
                let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else {
                    continue;
                };
                let stopped = Arc::clone(&stopped);
                thread::spawn(move || pass(near_too, far_too, &AtomicBool::new(false)));
                thread::spawn(move || pass(far, near, &stopped));
            }
        });
        Ok(Relay {
            address,
            is_stopped,
        })
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_stopped: &AtomicBool) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while is_stopped.load(Ordering::SeqCst) {
            thread::yield_now();
            thread::sleep(Duration::from_millis(1));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
