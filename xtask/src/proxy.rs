//! `redline proxy` in front of the system's redis-servers: keys where nutcracker puts them, servers that hang, a primary
//! that Sentinels replace, a Redis Cluster whose slots move and whose primary dies, a configuration that changes while clients are connected, predixy's file.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redline_testkit::client::{Client, Value, encode};
use redline_testkit::process::ServerProcess;

use crate::clusters::{Cluster, reshard};
use crate::compat::Setting;
use crate::failover::Watched;
use crate::install;
use crate::names::a_name_that_means_another_server;
use crate::run::{Failure, Folder, Process, captured, free_port, until};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Keys that are checked for each hash and distribution.
const KEYS: usize = 300;
/// Number of counters for the cluster, and of slots that move meanwhile.
const COUNTERS: u64 = 300;
const RESHARDED: u32 = 500;
/// nutcracker's hashes.
const HASHES: [&str; 12] = [
    "one_at_a_time",
    "md5",
    "crc16",
    "crc32",
    "crc32a",
    "fnv1_64",
    "fnv1a_64",
    "fnv1_32",
    "fnv1a_32",
    "hsieh",
    "murmur",
    "jenkins",
];

/// Runs all of it.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let found = keys_are_where_nutcracker_puts_them(setting)?;
    let hung = a_server_that_hangs(setting)?;
    let switched = a_primary_that_sentinels_replace(setting)?;
    let renamed = a_name_that_means_another_server(setting)?;
    let (counted, whole) = a_cluster_that_changes(setting)?;
    another_configuration(setting)?;
    the_file_of_predixy(setting)?;
    the_end(setting)?;
    Ok(format!(
        "{found} keys found where nutcracker put them, a server that hangs marked down after {hung:.1} s, \
         writes again {switched:.1} s after a primary died, another server {renamed:.1} s after its name meant it, \
         {counted} counts while slots of a cluster moved and none lost or done twice, all of its keys {whole:.1} s after a \
         primary died, a new file without losing a client, predixy's file, an end without a lost reply"
    ))
}

/// Redis-servers of the system.
pub fn servers(count: usize) -> Result<Vec<ServerProcess>, Failure> {
    let program = install::older_redis_server()?;
    let started = (0..count).map(|_| ServerProcess::redis(&program, &[]));
    started
        .collect::<Result<_, _>>()
        .map_err(|error| format!("redis-server: {error}"))
}

/// Returns the proxy with a configuration file of this text.
pub fn proxy(setting: &Setting, folder: &Folder, text: &str) -> Result<ServerProcess, Failure> {
    let path = folder.path().join("proxy.toml");
    write(&path, text)?;
    proxy_of(setting, &[path.display().to_string()])
}

fn proxy_of(setting: &Setting, words: &[String]) -> Result<ServerProcess, Failure> {
    ServerProcess::proxy(&setting.redline, &[], words)
        .map_err(|error| format!("redline proxy: {error}"))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

pub fn connect(address: SocketAddr) -> Result<Client, Failure> {
    Client::connect(address).map_err(|error| format!("{address}: {error}"))
}

pub fn call(client: &mut Client, words: &[&str]) -> Result<Value, Failure> {
    client
        .call(words)
        .map_err(|error| format!("{words:?}: {error}"))
}

/// Checks that each key that nutcracker has written is found through the proxy, which asks one server only.
fn keys_are_where_nutcracker_puts_them(setting: &Setting) -> Result<usize, Failure> {
    let servers = servers(5)?;
    // Names of several lengths, one server without: modula counts servers in nutcracker's order of names.
    let names = ["shard10", "shard9", "", "b", "aa"];
    let named: Vec<(String, u16, u32)> = servers
        .iter()
        .zip(names)
        .enumerate()
        .map(|(at, (server, name))| (name.to_owned(), server.address().port(), 1 + at as u32 % 3))
        .collect();
    let mut found = 0;
    for distribution in ["ketama", "modula"] {
        for theirs in HASHES {
            let what = format!("{theirs}, {distribution}");
            let nutcracker = Nutcracker::start(theirs, distribution, &named)?;
            let file = nutcracker.file.display().to_string();
            let proxy = proxy_of(setting, &["--nutcracker".to_owned(), file])?;
            let mut writer = connect(SocketAddr::from((Ipv4Addr::LOCALHOST, nutcracker.port)))?;
            let mut reader = connect(proxy.address())?;
            for number in 0..KEYS {
                // Beyond ASCII as well, of many lengths, with tags and without.
                let key = match number % 3 {
                    0 => format!("{what}:{number}"),
                    1 => format!("{what}:\u{fc}\u{20ac}{}{number}", "x".repeat(number % 29)),
                    _ => format!("{number}{{{what} {number}\u{e4}}}"),
                };
                let value = number.to_string();
                call(&mut writer, &["SET", &key, &value])?;
                let got = call(&mut reader, &["GET", &key])?;
                if got.as_bytes() != Some(value.as_bytes()) {
                    return Err(format!("{what}: {key} is elsewhere: {got:?}"));
                }
                found += 1;
            }
        }
    }
    Ok(found)
}

/// A real nutcracker in front of servers.
pub struct Nutcracker {
    /// Its listening port.
    pub port: u16,
    /// Its configuration.
    pub file: PathBuf,
    /// Ends when it is dropped.
    pub process: Process,
    _folder: Folder,
}

impl Nutcracker {
    /// Starts it for servers with a name, a port of the loopback and a weight each.
    pub fn start(
        hash: &str,
        distribution: &str,
        servers: &[(String, u16, u32)],
    ) -> Result<Nutcracker, Failure> {
        let program = install::nutcracker()?;
        let folder = Folder::new("nutcracker")?;
        let (port, statistics) = (free_port()?, free_port()?);
        let file = folder.path().join("nutcracker.yml");
        let mut text = format!(
            "pool:\n  listen: 127.0.0.1:{port}\n  hash: {hash}\n  hash_tag: \"{{}}\"\n  \
             distribution: {distribution}\n  redis: true\n  servers:\n"
        );
        for (name, server, weight) in servers {
            let line = format!("   - 127.0.0.1:{server}:{weight} {name}");
            text += &format!("{}\n", line.trim_end());
        }
        write(&file, &text)?;
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(&file)
            .args(["-s", &statistics.to_string()]);
        let process = Process::start(&mut command)?;
        let connects = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        until("nutcracker listens", connects)?;
        Ok(Nutcracker {
            port,
            file,
            process,
            _folder: folder,
        })
    }
}

pub fn signal(pid: u32, name: &str) -> Result<(), Failure> {
    let mut kill = Command::new("kill");
    kill.args([&format!("-{name}"), &pid.to_string()]);
    captured(kill, b"", TIMEOUT).map(drop)
}

/// Stops a server with its connections open: its keys are soon refused at once, those of the others are served all the
/// while, and its own again after it continues.
fn a_server_that_hangs(setting: &Setting) -> Result<f64, Failure> {
    let servers = servers(2)?;
    let words: Vec<String> = servers
        .iter()
        .flat_map(|server| ["--upstream".to_owned(), server.address().to_string()])
        .collect();
    let proxy = proxy_of(setting, &words)?;
    let mut client = connect(proxy.address())?;
    let mut keys = [None, None];
    for number in 0.. {
        let key = format!("key:{number}");
        call(&mut client, &["SET", &key, "v"])?;
        for (server, found) in servers.iter().zip(&mut keys) {
            let got = call(&mut connect(server.address())?, &["EXISTS", &key])?;
            if got == Value::Integer(1) {
                *found = Some(key.clone());
            }
        }
        if keys.iter().all(Option::is_some) {
            break;
        }
    }
    let [hung, other] = keys.map(Option::unwrap_or_default);
    signal(servers[0].pid(), "STOP")?;
    let began = Instant::now();
    let gone = until("a server that hangs is marked down", || {
        proxy.log().contains("is marked down")
    });
    let took = began.elapsed().as_secs_f64();
    let refused = (|| {
        gone?;
        let began = Instant::now();
        let answer = call(&mut client, &["GET", &hung])?;
        if !answer.is_error() || began.elapsed() > Duration::from_millis(500) {
            return Err(format!("{answer:?} after {:?}", began.elapsed()));
        }
        let answer = call(&mut client, &["GET", &other])?;
        match answer.as_bytes() {
            Some(b"v") => Ok(()),
            _ => Err(format!("a key of the other server: {answer:?}")),
        }
    })();
    signal(servers[0].pid(), "CONT")?;
    refused?;
    until("its keys are served again", || {
        call(&mut client, &["GET", &hung]).is_ok_and(|got| got.as_bytes() == Some(b"v"))
    })?;
    Ok(took)
}

/// Kills the primary: writes continue with the one that Sentinels name.
fn a_primary_that_sentinels_replace(setting: &Setting) -> Result<f64, Failure> {
    let mut watched = Watched::start()?;
    let mut words = vec!["--sentinel".to_owned(), "mymaster".to_owned()];
    for place in watched.places() {
        words.extend(["--upstream".to_owned(), place]);
    }
    let proxy = proxy_of(setting, &words)?;
    let mut client = connect(proxy.address())?;
    let set = |client: &mut Client, value: &str| {
        client
            .call(&["SET", "key", value])
            .is_ok_and(|got| got == Value::Simple(b"OK".to_vec()))
    };
    until("the first write", || set(&mut client, "one"))?;
    watched.kill_primary();
    let began = Instant::now();
    until("writes go to the new primary", || set(&mut client, "two"))?;
    let took = began.elapsed().as_secs_f64();
    let mut replica = connect(watched.replica())?;
    let got = call(&mut replica, &["GET", "key"])?;
    match got.as_bytes() {
        Some(b"two") => Ok(took),
        _ => Err(format!("the new primary has {got:?}")),
    }
}

/// Increments counters through the proxy while slots move, each request exactly once; then a primary dies, and its keys
/// are served by its replica.
fn a_cluster_that_changes(setting: &Setting) -> Result<(u64, f64), Failure> {
    let mut cluster = Cluster::start()?;
    let seed = cluster.nodes[0].address().to_string();
    let words = ["--cluster", "--threads", "2", "--upstream", &seed];
    let proxy = proxy_of(setting, &words.map(str::to_owned))?;
    let address = proxy.address();
    let stop = AtomicBool::new(false);
    let counted = thread::scope(|scope| {
        let counting = scope.spawn(|| count_up(address, &stop));
        let moved = reshard(&cluster.nodes[0], &cluster.nodes[1], RESHARDED);
        stop.store(true, Ordering::Relaxed);
        let counted = counting
            .join()
            .map_err(|_| "the counting thread panicked".to_owned())?;
        moved.and(counted)
    })?;
    let mut client = connect(address)?;
    let mut sum = 0;
    for counter in 0..COUNTERS {
        let got = call(&mut client, &["GET", &format!("counter:{counter}")])?;
        let text = got
            .as_bytes()
            .map(String::from_utf8_lossy)
            .unwrap_or_default();
        sum += text.parse::<u64>().unwrap_or(0);
    }
    if sum != counted {
        return Err(format!("{counted} were counted, the counters say {sum}"));
    }
    let victim = cluster.primary()?;
    drop(cluster.nodes.remove(victim));
    let began = Instant::now();
    let ok = Value::Simple(b"OK".to_vec());
    until("every key can be written again", || {
        (0..COUNTERS).all(|counter| {
            let set = client.call(&["SET", &format!("counter:{counter}"), "0"]);
            set.is_ok_and(|got| got == ok)
        })
    })?;
    Ok((counted, began.elapsed().as_secs_f64()))
}

/// Increments counters until stopped; returns the number of increments.
fn count_up(address: SocketAddr, stop: &AtomicBool) -> Result<u64, Failure> {
    let mut client = connect(address)?;
    let mut counted = 0;
    while !stop.load(Ordering::Relaxed) {
        let counter = format!("counter:{}", counted % COUNTERS);
        match call(&mut client, &["INCR", &counter])? {
            Value::Integer(_) => counted += 1,
            other => return Err(format!("INCR {counter}: {other:?}")),
        }
    }
    Ok(counted)
}

/// Changes the file under connected clients: a faulty one changes nothing, a valid one routes them elsewhere.
fn another_configuration(setting: &Setting) -> Result<(), Failure> {
    let servers = servers(2)?;
    for (server, value) in servers.iter().zip(["first", "second"]) {
        call(&mut connect(server.address())?, &["SET", "who", value])?;
    }
    let text = |server: &ServerProcess| {
        format!(
            "threads = 2\n[[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\n[[pool.shard]]\nserver = [{{ address = '{}' }}]\n",
            server.address()
        )
    };
    let folder = Folder::new("proxy")?;
    let proxy = proxy(setting, &folder, &text(&servers[0]))?;
    let path = folder.path().join("proxy.toml");
    let mut client = connect(proxy.address())?;
    let mut who = || {
        call(&mut client, &["GET", "who"])
            .ok()
            .and_then(|got| got.as_bytes().map(<[u8]>::to_vec))
    };
    let is = |got: Option<Vec<u8>>, value: &str| got.as_deref() == Some(value.as_bytes());
    if !is(who(), "first") {
        return Err(format!("before anything changed: {:?}", who()));
    }
    write(&path, "[[pool]\n")?;
    signal(proxy.pid(), "HUP")?;
    until("a faulty file is complained of", || {
        proxy.log().contains("TOML parse error")
    })?;
    if !is(who(), "first") {
        return Err("a faulty file changed something".to_owned());
    }
    write(&path, &text(&servers[1]))?;
    signal(proxy.pid(), "HUP")?;
    until("the same client is served from the second server", || {
        is(who(), "second")
    })?;
    write(&path, &text(&servers[0]))?;
    let answer = call(&mut connect(proxy.address())?, &["CONFIG", "RELOAD"])?;
    if answer != Value::Simple(b"OK".to_vec()) {
        return Err(format!("CONFIG RELOAD: {answer:?}"));
    }
    until("and from the first again", || is(who(), "first"))
}

/// Checks draining: no new clients, idle ones are closed, and those with due replies get them first.
fn the_end(setting: &Setting) -> Result<(), Failure> {
    let servers = servers(1)?;
    let words = [
        "--threads",
        "2",
        "--upstream",
        &servers[0].address().to_string(),
    ];
    let mut proxy = proxy_of(setting, &words.map(str::to_owned))?;
    let address = proxy.address();
    let (mut waiting, mut idle) = (connect(address)?, connect(address)?);
    call(&mut idle, &["PING"])?;
    let failed = |error: std::io::Error| format!("at the end: {error}");
    waiting
        .send(&encode_words(&["BLPOP", "queue", "0"]))
        .map_err(failed)?;
    let mut direct = connect(servers[0].address())?;
    until("the call waits", || {
        let info = call(&mut direct, &["INFO", "clients"]).unwrap_or(Value::NullBulk);
        let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
        info.contains("blocked_clients:1")
    })?;
    signal(proxy.pid(), "TERM")?;
    until("nobody is let in", || TcpStream::connect(address).is_err())?;
    if let Ok(Some(got)) = idle.reply() {
        return Err(format!("who waits for nothing got {got:?}"));
    }
    call(&mut direct, &["RPUSH", "queue", "item"])?;
    let got = waiting.reply().map_err(failed)?;
    let item = Value::Array(
        ["queue", "item"]
            .map(|text| Value::Bulk(text.into()))
            .to_vec(),
    );
    if got != Some(item) {
        return Err(format!("who waited got {got:?}"));
    }
    until("the process has ended", || !proxy.is_running())
}

fn encode_words(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(words, &mut bytes);
    bytes
}

/// Starts the proxy with predixy's file; one with a fault is refused, and the fault is named.
fn the_file_of_predixy(setting: &Setting) -> Result<(), Failure> {
    let servers = servers(2)?;
    let folder = Folder::new("predixy")?;
    let path = folder.path().join("predixy.conf");
    let mut text = "WorkerThreads 2\nStandaloneServerPool {\n  RefreshMethod fixed\n  Hash crc16\n  HashTag \"{}\"\n  \
                    Distribution modula\n  Databases 16\n  ServerTimeout 2\n"
        .to_owned();
    for (at, server) in servers.iter().enumerate() {
        text += &format!("  Group g{at} {{\n    + {}\n  }}\n", server.address());
    }
    text += "}\n";
    write(&path, &text)?;
    let words = ["--predixy".to_owned(), path.display().to_string()];
    let proxy = proxy_of(setting, &words)?;
    let mut client = connect(proxy.address())?;
    // The slot of "foo" is 12182: of two groups the first; that of "bar" 5061: the second.
    for (key, at) in [("foo", 0), ("bar", 1), ("x{foo}", 0)] {
        call(&mut client, &["SET", key, "v"])?;
        let got = call(&mut connect(servers[at].address())?, &["EXISTS", key])?;
        if got != Value::Integer(1) {
            return Err(format!("{key} is not in group {at}"));
        }
    }
    write(&path, &text.replace("WorkerThreads", "WorkerThread"))?;
    let mut command = Command::new(&setting.redline);
    command.arg("proxy").args(&words);
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(1)
        || !said.contains("predixy.conf:1: ")
        || !said.contains("did you mean WorkerThreads?")
    {
        return Err(format!("{}: {said}", output.status));
    }
    Ok(())
}
