//! `redline proxy` as a process in front of our servers, or of scripted servers, and helpers of its tests. Must not know
//! the proxy's internals.

pub mod seen;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redline_resp::{Args, Decoded, RequestDecoder, RequestLimits, Value};
use redline_testkit::client::Client;
use redline_testkit::process::ServerProcess;

use crate::running::until_stopped;

/// Longer than any successful operation takes, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const REDLINE: &str = env!("CARGO_BIN_EXE_redline");

/// Servers, and a proxy in front of them.
pub struct Behind {
    pub servers: Vec<ServerProcess>,
    pub proxy: ServerProcess,
}

impl Behind {
    pub fn new(servers: usize, threads: usize) -> Behind {
        let servers: Vec<ServerProcess> = (0..servers)
            .map(|_| ServerProcess::redline(Path::new(REDLINE), 1, &[]).expect("a server starts"))
            .collect();
        let addresses: Vec<SocketAddr> = servers.iter().map(ServerProcess::address).collect();
        let words = ["--threads".to_owned(), threads.to_string()];
        let proxy =
            ServerProcess::proxy(Path::new(REDLINE), &addresses, &words).expect("the proxy starts");
        Behind { servers, proxy }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.proxy.address()).expect("the proxy accepts")
    }
}

#[track_caller]
pub fn call(client: &mut Client, line: &str) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    client.call(&words).expect("a reply")
}

pub fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

pub fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

#[track_caller]
pub fn assert_error(value: &Value, start: &str) {
    let text = String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned();
    assert!(value.is_error() && text.starts_with(start), "{value:?}");
}

/// Sends a signal: `-STOP`, `-CONT`.
pub fn signal(server: &ServerProcess, name: &str) {
    let pid = server.pid().to_string();
    let sent = Command::new("kill").args([name, &pid]).status().unwrap();
    assert!(sent.success());
}

/// Stops it, with its connections open.
pub fn freeze(server: &ServerProcess) {
    signal(server, "-STOP");
    until_stopped(server.pid());
}

/// Returns a key of each of these servers.
pub fn a_key_of_each(client: &mut Client, servers: &[ServerProcess]) -> Vec<String> {
    let mut keys = vec![String::new(); servers.len()];
    for number in 0.. {
        let key = format!("key:{number}");
        assert_eq!(call(client, &format!("SET {key} v")), ok());
        for (server, found) in servers.iter().zip(&mut keys) {
            let mut direct = Client::connect(server.address()).unwrap();
            if call(&mut direct, &format!("EXISTS {key}")) == Value::Integer(1) {
                found.clone_from(&key);
            }
        }
        if keys.iter().all(|key| !key.is_empty()) {
            break;
        }
    }
    keys
}

/// Returns a key on another server than this one.
pub fn key_elsewhere(client: &mut Client, than: &str) -> String {
    (0..100)
        .map(|number| format!("other{number}"))
        .find(|key| {
            let moved = call(client, &format!("SINTER {than} {key}"));
            moved
                .as_bytes()
                .is_some_and(|text| text.starts_with(b"CROSSSLOT"))
        })
        .expect("there are several servers")
}

/// Returns a cluster node's reply to CLUSTER, if the one node on this port of this machine has all slots. `None`:
/// another request.
pub fn cluster_of_one(words: &[Vec<u8>], port: u16) -> Option<Vec<u8>> {
    if !words[0].eq_ignore_ascii_case(b"CLUSTER") {
        return None;
    }
    let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let reply = match words.get(1)?.to_ascii_uppercase().as_slice() {
        b"INFO" => text("cluster_state:ok\r\ncluster_current_epoch:1\r\n"),
        b"SLOTS" => {
            let (host, id) = (text("127.0.0.1"), text("id"));
            format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n{host}:{port}\r\n{id}")
        }
        _ => "*0\r\n".to_owned(),
    };
    Some(reply.into_bytes())
}

/// Returns a server with scripted replies, for those that no real one sends on demand.
pub fn scripted(answer: impl Fn(&[Vec<u8>]) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    scripted_over(move |words, _| Some(answer(words)))
}

/// Returns the same, which also gets the connection, and closes it if the reply is `None`.
pub fn scripted_over(
    answer: impl Fn(&[Vec<u8>], &mut TcpStream) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), Arc::clone(&answer));
            thread::spawn(move || {
                let (mut held, mut piece) = (Vec::new(), [0; 4096]);
                let limits = RequestLimits::default();
                while let Ok(read @ 1..) = stream.read(&mut piece) {
                    held.extend_from_slice(&piece[..read]);
                    let (mut decoder, mut spans) = (RequestDecoder::new(), Vec::new());
                    while let Ok(Decoded::Request { consumed, .. }) =
                        decoder.decode(&mut held, &limits, &mut spans)
                    {
                        let words: Vec<Vec<u8>> = Args::new(&held, &spans)
                            .iter()
                            .map(<[u8]>::to_vec)
                            .collect();
                        let Some(reply) = answer(&words, &mut stream) else {
                            return;
                        };
                        if stream.write_all(&reply).is_err() {
                            return;
                        }
                        held.drain(..consumed);
                        spans.clear();
                    }
                }
            });
        }
    });
    address
}

pub fn proxy_of(upstreams: &[SocketAddr]) -> ServerProcess {
    ServerProcess::proxy(Path::new(REDLINE), upstreams, &[]).expect("the proxy starts")
}

/// Returns the proxy with a configuration file of this text, after a `[[listener]]` that the text need not have.
pub fn proxy_with(text: &str) -> ServerProcess {
    let text = format!("{text}\n[[listener]]\nbind = '127.0.0.1:1'\n");
    ServerProcess::proxy_of_file(Path::new(REDLINE), &text).expect("the proxy starts")
}

/// Polls until `so` returns true, and leaves the CPU meanwhile to those that it waits for.
#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the number of failed calls, by the proxy's counters, of the commands with this prefix.
pub fn failed_calls(client: &mut Client, start: &str) -> usize {
    let Value::Bulk(info) = call(client, "INFO commandstats") else {
        panic!("a text");
    };
    let start = format!("cmdstat_{start}");
    let info = String::from_utf8(info).unwrap();
    let lines = info.lines().filter(|line| line.starts_with(&start));
    let failed = lines.map(|line| line.rsplit_once("failed_calls=").unwrap().1);
    failed.map(|count| count.parse::<usize>().unwrap()).sum()
}

/// Returns `[[pool.shard]]` for each of these servers.
pub fn shards(servers: &[SocketAddr]) -> String {
    let shard = |address| format!("[[pool.shard]]\nserver = [{{ address = '{address}' }}]\n");
    servers.iter().map(shard).collect()
}

/// Returns the words of an array, or of a push message.
pub fn words(value: Option<Value>) -> Vec<String> {
    let (Some(Value::Array(values)) | Some(Value::Push(values))) = value else {
        panic!("no message: {value:?}");
    };
    let text = |value: &Value| match value {
        Value::Integer(number) => number.to_string(),
        Value::NullBulk | Value::Null => "nil".to_owned(),
        other => String::from_utf8_lossy(other.as_bytes().unwrap_or_default()).into_owned(),
    };
    values.iter().map(text).collect()
}

/// Returns the peak memory of a process: bytes.
pub fn peak_bytes(server: &ServerProcess) -> usize {
    let path = format!("/proc/{}/status", server.pid());
    let status = fs::read_to_string(path).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// A command as COMMAND describes it: name, number of words, and positions of its keys.
pub struct Told {
    pub name: String,
    /// Number of words, its name included.
    pub words: usize,
    pub first: usize,
    /// Below 0: counted from the end.
    pub last: i64,
    pub step: usize,
    /// Redis flags it as read-only.
    pub reads: bool,
}

impl Told {
    /// Returns the least number of words with which a call has its last key.
    pub fn words_to_last(&self) -> usize {
        match self.last {
            0.. => self.last as usize + 1,
            behind => self.first + behind.unsigned_abs() as usize,
        }
    }
}

/// Returns the commands of data that have keys at fixed positions, and do not block.
pub fn commands_of_keys() -> Vec<Told> {
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    let Value::Array(entries) = call(&mut client, "COMMAND") else {
        panic!("COMMAND answers an array");
    };
    let told = entries.iter().filter_map(|entry| {
        let Value::Array(parts) = entry else {
            panic!("{entry:?}");
        };
        let number = |at: usize| match &parts[at] {
            Value::Integer(number) => *number,
            other => panic!("{other:?}"),
        };
        let has =
            |flag: &str| format!("{:?}", parts[2]).contains(&format!("{:?}", flag.as_bytes()));
        let name = String::from_utf8_lossy(parts[0].as_bytes().unwrap()).to_lowercase();
        let is_passed_on = name != "watch" && name != "migrate";
        (number(3) > 0 && !has("blocking") && !has("pubsub") && is_passed_on).then(|| Told {
            reads: has("readonly"),
            name,
            words: number(1).unsigned_abs() as usize,
            first: number(3) as usize,
            last: number(4),
            step: number(5) as usize,
        })
    });
    told.collect()
}
