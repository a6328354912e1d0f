//! A server as a separate process: on a free loopback port, in its own directory, stopped when dropped. Knows the
//! arguments that start a redis-server and `redline server`, and nothing else of them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redline_resp::reply_decoder::Value;

use crate::client::Client;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest number of attempts: a free port may be taken before the server binds it.
const START_ATTEMPTS_MAX: u32 = 5;

/// Arguments that keep a server from writing files.
const UNSAVED: [&str; 4] = ["--save", "", "--appendonly", "no"];
const CONFIG_FILE: &str = "redis.conf";
/// Placeholder for the server's port in the text of a configuration file: not in any real file.
pub const PORT: &str = "@port@";
/// Placeholder for a second port in arguments and files: see [`ServerProcess::second_port`].
pub const SECOND_PORT: &str = "@second-port@";

/// A running server.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    address: SocketAddr,
    second_port: u16,
    directory: PathBuf,
}

impl ServerProcess {
    /// Starts a redis-server without persistence; `words` are further arguments.
    pub fn redis(program: &Path, words: &[String]) -> io::Result<ServerProcess> {
        ServerProcess::start(program, &[], None, words)
    }

    /// Starts a redis-server with a configuration file of this text; `words` are further arguments.
    pub fn redis_of_file(
        program: &Path,
        text: &str,
        words: &[String],
    ) -> io::Result<ServerProcess> {
        ServerProcess::start(program, &[], Some(text), words)
    }

    /// Starts `redline server` with a configuration file of this text.
    pub fn redline_of_file(
        program: &Path,
        text: &str,
        words: &[String],
    ) -> io::Result<ServerProcess> {
        ServerProcess::start(program, &["server"], Some(text), words)
    }

    /// Starts `redline server` with that many workers.
    pub fn redline(program: &Path, workers: usize, words: &[String]) -> io::Result<ServerProcess> {
        let mut all = vec!["--threads".to_owned(), workers.to_string()];
        all.extend_from_slice(words);
        ServerProcess::start(program, &["server"], None, &all)
    }

    /// Starts `redline proxy` in front of these servers; `words` are further arguments.
    pub fn proxy(
        program: &Path,
        upstreams: &[SocketAddr],
        words: &[String],
    ) -> io::Result<ServerProcess> {
        let mut all = Vec::new();
        for upstream in upstreams {
            all.extend(["--upstream".to_owned(), upstream.to_string()]);
        }
        all.extend_from_slice(words);
        ServerProcess::start(program, &["proxy"], None, &all)
    }

    /// Starts `redline proxy` with a configuration file of this text, which [`ServerProcess::config_file`] finds. A
    /// [`PORT`] in it is the port that is waited for, and the file has all listeners.
    pub fn proxy_of_file(program: &Path, text: &str) -> io::Result<ServerProcess> {
        ServerProcess::start(program, &["proxy"], Some(text), &[])
    }

    fn start(
        program: &Path,
        first: &[&str],
        file: Option<&str>,
        words: &[String],
    ) -> io::Result<ServerProcess> {
        let mut attempt = 1;
        loop {
            match ServerProcess::start_once(program, first, file, words) {
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse && attempt < START_ATTEMPTS_MAX =>
                {
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    fn start_once(
        program: &Path,
        first: &[&str],
        file: Option<&str>,
        words: &[String],
    ) -> io::Result<ServerProcess> {
        let address = free_address()?;
        let directory = fresh_directory()?;
        let log = File::create(directory.join("log"))?;
        let config = directory.join(CONFIG_FILE);
        let port = address.port().to_string();
        let second_port = free_address()?.port();
        let filled = |text: &str| text.replace(SECOND_PORT, &second_port.to_string());
        if let Some(text) = file {
            fs::write(&config, filled(&text.replace(PORT, &port)))?;
        }
        let listens: &[&str] = match file.is_some_and(|text| text.contains(PORT)) {
            true => &[],
            false => &["--port", &port, "--bind", "127.0.0.1"],
        };
        let child = Command::new(program)
            .args(first)
            .args(file.map(|_| config))
            .args(listens)
            .args(if first == ["proxy"] {
                &[][..]
            } else {
                &UNSAVED
            })
            .args(words.iter().map(|word| filled(word)))
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut server = ServerProcess {
            child,
            address,
            second_port,
            directory,
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        let pong = Value::Simple(b"PONG".to_vec());
        loop {
            if let Some(status) = self.child.try_wait()? {
                let log = self.log();
                let kind = if log.contains("Address already in use") {
                    io::ErrorKind::AddrInUse
                } else {
                    io::ErrorKind::Other
                };
                return Err(io::Error::new(kind, format!("ended with {status}:\n{log}")));
            }
            let answer = Client::connect(self.address).and_then(|mut c| c.call(&["PING"]));
            let secured = |answer: &Value| {
                answer.is_error()
                    && answer
                        .as_bytes()
                        .is_some_and(|text| text.starts_with(b"NOAUTH"))
            };
            if answer.is_ok_and(|answer| answer == pong || secured(&answer)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let log = self.log();
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("never ready:\n{log}"),
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns its listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the port in place of [`SECOND_PORT`]. Like the first it changes with each attempt to start, until both
    /// are free.
    pub fn second_port(&self) -> u16 {
        self.second_port
    }

    /// Returns its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its working directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns its configuration file, if it was started with one.
    pub fn config_file(&self) -> PathBuf {
        self.directory.join(CONFIG_FILE)
    }

    /// Returns the output of the process so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.directory.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns true if the process still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to stop as an operator would; returns true if it ended cleanly.
    pub fn stop(mut self) -> io::Result<bool> {
        Command::new("kill")
            .arg(self.child.id().to_string())
            .status()?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(false)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns a free port of the loopback that this process has not returned before, since it may not be bound yet.
pub fn free_port() -> io::Result<u16> {
    free_address().map(|address| address.port())
}

fn free_address() -> io::Result<SocketAddr> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut given = GIVEN.lock().expect("nobody panics under it");
        if given.insert(address.port()) {
            return Ok(address);
        }
    }
}

fn fresh_directory() -> io::Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let name = format!(
            "redline-testkit-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(|()| path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_to_two() {
        let ports = (0..2_000).map(|_| free_port().unwrap());
        assert_eq!(ports.collect::<BTreeSet<_>>().len(), 2_000);
    }
}
