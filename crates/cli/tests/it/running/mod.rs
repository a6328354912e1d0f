//! `redline server` as a process in its own folder, and a client for it. Must not know the server's internals.

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

pub const REDLINE: &str = env!("CARGO_BIN_EXE_redline");
/// Longer than any successful operation takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
pub fn until<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = so() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A server that listens on a socket in its own folder, which is also its working directory.
pub struct Running {
    pub child: Child,
    out: BufReader<ChildStdout>,
    pub folder: TempDir,
}

impl Running {
    /// Starts `redline server` with these arguments, and with `stdin` if there is any. The arguments make it listen on `s`.
    pub fn start(folder: TempDir, args: &[&str], stdin: Option<&str>) -> Running {
        let mut command = Command::new(REDLINE);
        command.arg("server").args(args);
        Running::of(command, folder, stdin)
    }

    pub fn of(mut command: Command, folder: TempDir, stdin: Option<&str>) -> Running {
        let mut child = command
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut input = child.stdin.take().unwrap();
        input.write_all(stdin.unwrap_or("").as_bytes()).unwrap();
        drop(input);
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut running = Running { child, out, folder };
        until("the server listens", || {
            let ended = running.child.try_wait().unwrap();
            assert_eq!(ended, None, "the server has ended");
            running.try_connect()
        });
        running
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn try_connect(&self) -> Option<UnixStream> {
        UnixStream::connect(self.path("s")).ok()
    }

    pub fn connect(&self) -> Client {
        let stream = self.try_connect().expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    pub fn call(&self, line: &str) -> String {
        self.connect().call(line)
    }

    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits for its end; returns its exit status, and its log on standard output.
    pub fn ended(mut self) -> (ExitStatus, String, TempDir) {
        let status = until("the server ends", || self.child.try_wait().unwrap());
        let mut log = String::new();
        self.out.read_to_string(&mut log).unwrap();
        let folder = std::mem::replace(&mut self.folder, TempDir::new().unwrap());
        (status, log, folder)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client.
pub struct Client(BufReader<UnixStream>);

impl Client {
    /// Sends a command and reads its reply.
    pub fn call(&mut self, line: &str) -> String {
        self.send(line);
        self.read()
    }

    /// Sends a command of these words, which may contain any characters, and reads its reply.
    pub fn call_words(&mut self, words: &[&str]) -> String {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.send_bytes(request.as_bytes());
        self.read()
    }

    /// Sends a command.
    pub fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\r\n").as_bytes());
    }

    /// Returns true if no reply has come.
    pub fn is_quiet(&mut self) -> bool {
        self.0.get_ref().set_nonblocking(true).unwrap();
        let come = self.0.fill_buf().map(<[u8]>::len);
        self.0.get_ref().set_nonblocking(false).unwrap();
        come.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Sends these bytes.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// Returns the next reply: its line, or the text that follows it, `(nil)` without one; of an array its elements, by
    /// spaces.
    pub fn read(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let rest = line.trim_end().get(1..).unwrap_or("").to_string();
        match line.as_bytes().first() {
            Some(b'$') if rest == "-1" => "(nil)".to_owned(),
            Some(b'$') => {
                let mut text = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut text).unwrap();
                text.truncate(text.len() - 2);
                String::from_utf8(text).unwrap()
            }
            Some(b'*') => {
                let count = rest.parse().unwrap();
                (0..count)
                    .map(|_| self.read())
                    .collect::<Vec<_>>()
                    .join(" ")
            }
            _ => line.trim_end().to_string(),
        }
    }
}

/// Waits until a process that was sent STOP stands still: its threads run on for a moment.
pub fn until_stopped(pid: u32) {
    let is_stopped = |task: &Path| {
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:\tT"))
    };
    until("all of it stands still", || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let mut tasks = tasks.flatten();
        tasks.all(|task| is_stopped(&task.path())).then_some(())
    });
}

/// Sends a signal to a process that was started here, named as in `kill`. STOP has stopped it when this returns.
pub fn signal(child: &Child, name: &str) {
    let kill = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status();
    assert!(kill.expect("kill runs").success());
    if name == "STOP" {
        until_stopped(child.id());
    }
}

pub fn folder() -> TempDir {
    TempDir::new().unwrap()
}

/// Returns a folder with a configuration file `r.conf`, which makes the server listen on `s`, and with `more` lines.
pub fn folder_with(more: &str) -> TempDir {
    let folder = folder();
    let text = format!("port 0\nunixsocket s\nthreads 1\n{more}");
    fs::write(folder.path().join("r.conf"), text).unwrap();
    folder
}

/// Runs `redline server`, which must end by itself with status 1, in a folder; returns its outputs.
#[track_caller]
pub fn failed_start(folder: &Path, args: &[&str]) -> (String, String) {
    failed_start_of(Command::new(REDLINE).arg("server").args(args), folder)
}

/// Does the same with a command of the test's own.
#[track_caller]
pub fn failed_start_of(command: &mut Command, folder: &Path) -> (String, String) {
    let mut child = command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("it has started: {command:?}");
        }
        thread::sleep(Duration::from_millis(1));
    }
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    let log = String::from_utf8(stdout).unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{command:?}: {said}{log}");
    (log, said)
}

/// Runs `redline server` with a faulty configuration, and returns its message: what it says, or the last line of its log.
#[track_caller]
pub fn refused(folder: &Path, args: &[&str]) -> String {
    let (log, mut said) = failed_start(folder, args);
    assert!(!log.contains("Ready to accept"), "{args:?}: {log}");
    if said.is_empty() {
        let (_, last) = log.rsplit_once(" # ").expect("a reason in the log");
        said = format!("redline server: {last}");
    }
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    said.trim_end().to_string()
}
