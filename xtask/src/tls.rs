//! TLS across: the real redis-cli and redis-benchmark against our server, and our bench against both servers. The real
//! server is the system's redis-server, since the one of the other steps is built without TLS.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redline_testkit::certificates::Authority;
use redline_testkit::process::ServerProcess;

use crate::compat::{Setting, stop};
use crate::install;
use crate::run::{Failure, captured, ended, line};

const TIMEOUT: Duration = Duration::from_secs(120);
/// Commands for redis-cli.
const SESSION: &str = "set greeting hello\nget greeting\nlpush list a b c\nlrange list 0 -1\nconfig get tls-auth-clients\n";

/// Tries every pair of versions, certificates of both sides, and pairs of programs.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let redis_server = install::redis_server_with_tls()?;
    let folder = Certificates::new()?;
    for ours in [true, false] {
        for version in ["TLSv1.2", "TLSv1.3"] {
            let port = free_port()?;
            let words = folder.server_words(port, version);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let server = if ours {
                setting.start_redline(2, &words)?
            } else {
                let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
                ServerProcess::redis(&redis_server, &words).map_err(|error| error.to_string())?
            };
            let bench = |words: &[&str]| {
                let mut command = Command::new(&setting.redline);
                command.arg("bench").args(words);
                command
            };
            ran(&folder, bench(&["-p", &port.to_string()]))?;
            ran(
                &folder,
                bench(&["-p", &port.to_string(), "--threads", "2", "-k", "0"]),
            )?;
            let uri = format!("rediss://127.0.0.1:{port}/1");
            let mut by_uri = bench(&["-u", &uri, "--cacert"]);
            by_uri.arg(folder.path("ca.pem"));
            refused(by_uri, "Could not negotiate a TLS connection")?;
            if ours {
                typed(&folder, port)?;
                ran(&folder, benchmark(port, &["-P", "16"]))?;
                ran(&folder, benchmark(port, &["--threads", "2"]))?;
                stop(server)?;
            }
        }
    }
    Ok("redis-cli, redis-benchmark and our bench over TLS 1.2 and 1.3 with certificates of both sides".to_owned())
}

/// An authority, and certificates of it for a server and a client, in a folder that is removed when this is dropped.
pub struct Certificates(PathBuf);

impl Certificates {
    /// Creates them.
    pub fn new() -> Result<Certificates, Failure> {
        let folder =
            std::env::temp_dir().join(format!("redline-compat-tls-{}", std::process::id()));
        let made = Certificates(folder);
        let authority = Authority::new("authority.test");
        let (server, client) = (
            authority.certify("localhost"),
            authority.certify("client.test"),
        );
        let write = || {
            fs::create_dir_all(&made.0)?;
            fs::write(made.path("ca.pem"), authority.cert())?;
            for (name, certified) in [("server", server), ("client", client)] {
                fs::write(made.path(&format!("{name}.pem")), certified.cert)?;
                fs::write(made.path(&format!("{name}.key")), certified.key)?;
            }
            Ok(())
        };
        write().map_err(|error: std::io::Error| error.to_string())?;
        Ok(made)
    }

    /// Returns the path of a file: `ca.pem`, `server.pem`, `server.key`, `client.pem`, `client.key`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the arguments of a server for these versions.
    pub fn server_words(&self, port: u16, version: &str) -> Vec<String> {
        let path = |name: &str| self.path(name).display().to_string();
        let port = port.to_string();
        [
            ("--tls-port", port),
            ("--tls-cert-file", path("server.pem")),
            ("--tls-key-file", path("server.key")),
            ("--tls-ca-cert-file", path("ca.pem")),
            ("--tls-protocols", version.to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    }

    /// Returns the arguments of a client.
    pub fn client_words(&self) -> Vec<PathBuf> {
        let words = [
            "--tls",
            "--cacert",
            "ca.pem",
            "--cert",
            "client.pem",
            "--key",
            "client.key",
        ];
        let word = |word: &str| {
            if word.starts_with("--") {
                Path::new(word).into()
            } else {
                self.path(word)
            }
        };
        words.map(word).into()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        // It is in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn benchmark(port: u16, words: &[&str]) -> Command {
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &port.to_string()]).args(words);
    command
}

/// Runs a load generator with our certificates, which must print a rate for each test.
pub fn ran(folder: &Certificates, mut command: Command) -> Result<(), Failure> {
    command.args(["-q", "-n", "2000", "-t", "ping,set,get,lrange_100"]);
    command.args(folder.client_words());
    let text = line(&command);
    let output = ended(command, b"", TIMEOUT)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    let rates = said.matches(" requests per second").count();
    if output.status.success() && rates >= 5 && !complaints.contains("rror") {
        return Ok(());
    }
    Err(format!("{text}: {}\n{said}{complaints}", output.status))
}

fn refused(mut command: Command, why: &str) -> Result<(), Failure> {
    // Its own certificate is missing: over TLS 1.3 the connection is established for a moment, then it is closed.
    command.args(["-q", "-n", "10", "-t", "ping"]);
    let text = line(&command);
    let output = ended(command, b"", TIMEOUT)?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && (complaints.contains(why) || complaints.contains("Error")) {
        return Ok(());
    }
    Err(format!(
        "{text} without a certificate: {}\n{complaints}",
        output.status
    ))
}

fn typed(folder: &Certificates, port: u16) -> Result<(), Failure> {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &port.to_string(), "--no-raw"]);
    command.args(folder.client_words());
    let said = captured(command, SESSION.as_bytes(), TIMEOUT)?;
    let expected = "OK\n\"hello\"\n(integer) 3\n1) \"c\"\n2) \"b\"\n3) \"a\"\n1) \"tls-auth-clients\"\n2) \"yes\"\n";
    if said == expected {
        return Ok(());
    }
    Err(format!("redis-cli --tls printed\n{said}"))
}

fn free_port() -> Result<u16, Failure> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr());
    address
        .map(|address| address.port())
        .map_err(|error| error.to_string())
}
