//! Helpers of the tests of a proxy's observability: one with a given configuration, fields of INFO, the page of metrics.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use redline_resp::Value;
use redline_testkit::client::Client;
use redline_testkit::process::ServerProcess;

use super::{REDLINE, call, scripted};

/// Returns a bulk string, as text.
pub fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}

/// Returns a field of INFO; the last one of that name.
pub fn field(info: &str, name: &str) -> Option<String> {
    let lines = info.lines().rev();
    let mut found = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.next().map(str::to_owned)
}

/// Returns a field of INFO that is a number.
pub fn number(client: &mut Client, line: &str, name: &str) -> u64 {
    let info = text(&call(client, line));
    let found = field(&info, name).unwrap_or_else(|| panic!("{name} in {info}"));
    found.parse().expect("a number")
}

/// Returns a proxy of this configuration, in front of these servers.
pub fn proxy(servers: &[SocketAddr], text: &str) -> (tempfile::TempDir, ServerProcess) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.toml");
    let mut whole = format!("{text}\n[[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\n");
    for server in servers {
        whole.push_str(&format!(
            "[[pool.shard]]\nserver = [{{ address = '{server}' }}]\n"
        ));
    }
    std::fs::write(&path, whole).unwrap();
    let words = [path.display().to_string()];
    let proxy = ServerProcess::proxy(Path::new(REDLINE), &[], &words).expect("the proxy starts");
    (folder, proxy)
}

/// Returns a server of ours.
pub fn server() -> ServerProcess {
    ServerProcess::redline(Path::new(REDLINE), 1, &[]).expect("a server starts")
}

/// Returns the page of metrics.
pub fn pages(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// Returns a server that is slow for keys that begin with `slow`.
pub fn slow_server() -> SocketAddr {
    scripted(|words| {
        if words.get(1).is_some_and(|key| key.starts_with(b"slow")) {
            std::thread::sleep(Duration::from_millis(30));
        }
        match words[0].to_ascii_lowercase().as_slice() {
            b"get" => b"$1\r\nv\r\n".to_vec(),
            b"incr" => b"-ERR not an integer\r\n".to_vec(),
            _ => b"+OK\r\n".to_vec(),
        }
    })
}

/// Returns all texts in a reply.
pub fn flat(value: &Value) -> String {
    match value {
        Value::Array(values) | Value::Set(values) | Value::Push(values) => {
            values.iter().map(flat).collect::<Vec<_>>().join(" ")
        }
        other => text(other),
    }
}
