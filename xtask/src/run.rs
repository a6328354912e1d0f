//! Running programs: their output is kept, their exit status decides, and none may hang.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longer than any successful program takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Description of an error, for a person to read.
pub type Failure = String;

/// Returns the workspace's folder.
pub fn workspace() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map(PathBuf::from).unwrap_or(xtask)
}

/// Returns a cargo command in the workspace. What `cargo xtask` has told us of our own package is not in its environment: some
/// build scripts look at such variables, and would run again, with all that stands on them, each time that they differ.
pub fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let ours = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_PRIMARY_PACKAGE"];
        if let Some(text) = name.to_str()
            && ours.iter().any(|prefix| text.starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
    command.args(words).current_dir(workspace());
    command
}

/// Runs it, with our standard output and error.
pub fn watched(mut command: Command) -> Result<(), Failure> {
    let status = command
        .status()
        .map_err(|error| format!("{}: {error}", line(&command)))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{}: {status}", line(&command)))
}

/// Runs it with `input` on its standard input and returns its output; it must succeed, within the time-out.
pub fn captured(command: Command, input: &[u8], timeout: Duration) -> Result<String, Failure> {
    let text = line(&command);
    let output = ended(command, input, timeout)?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{text}: {}\n{stdout}{stderr}", output.status))
}

/// Runs it to its end, with any exit status.
pub fn ended(command: Command, input: &[u8], timeout: Duration) -> Result<Output, Failure> {
    let text = line(&command);
    let (output, in_time) = watched_to_end(command, input, timeout, Scope::Process)?;
    if in_time {
        return Ok(output);
    }
    Err(format!(
        "{text}: not done after {timeout:?}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Runs it to its end or to the time-out, and kills the processes that it has left running. Returns its output, and true
/// if it was in time.
pub fn ended_group(command: Command, timeout: Duration) -> Result<(Vec<u8>, bool), Failure> {
    let (output, in_time) = watched_to_end(command, b"", timeout, Scope::Group)?;
    Ok((output.stdout, in_time))
}

/// Scope of a kill.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The program alone.
    Process,
    /// Its whole process group.
    Group,
}

impl Scope {
    /// Kills the processes in scope.
    fn kill(self, leader: u32) {
        let victim = match self {
            Scope::Process => leader.to_string(),
            Scope::Group => format!("-{leader}"),
        };
        let mut kill = Command::new("kill");
        // It may have ended.
        kill.args(["-KILL", "--", &victim]).stderr(Stdio::null());
        let _ = kill.status();
    }
}

/// Runs it, and kills it at the time-out; a group at its end as well.
fn watched_to_end(
    mut command: Command,
    input: &[u8],
    timeout: Duration,
    scope: Scope,
) -> Result<(Output, bool), Failure> {
    let text = line(&command);
    let fail = |error: std::io::Error| format!("{text}: {error}");
    if scope == Scope::Group {
        command.process_group(0);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    let id = child.id();
    let stdin = child.stdin.take();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A program that does not read its input to the end is not at fault.
        let _ = stdin.map(|mut stdin| stdin.write_all(&input));
    });
    let (done, over) = mpsc::channel();
    let watch = std::thread::spawn(move || {
        let in_time = over.recv_timeout(timeout) != Err(mpsc::RecvTimeoutError::Timeout);
        if !in_time {
            scope.kill(id);
        }
        in_time
    });
    let output = child.wait_with_output().map_err(fail)?;
    let _ = done.send(());
    let _ = writer.join();
    if scope == Scope::Group {
        scope.kill(id);
    }
    Ok((output, watch.join().unwrap_or(false)))
}

/// Returns the command as it would be typed.
pub fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A program that is killed when this is dropped.
pub struct Process(Child);

impl Process {
    /// Starts it, silent.
    pub fn start(command: &mut Command) -> Result<Process, Failure> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let spawned = command.spawn();
        spawned
            .map(Process)
            .map_err(|error| format!("{}: {error}", line(command)))
    }

    /// Starts it with its output in a file, which is made.
    pub fn start_into(command: &mut Command, file: &Path) -> Result<Process, Failure> {
        let shown = |error| format!("{}: {error}", file.display());
        let out = fs::File::create(file).map_err(shown)?;
        let err = out.try_clone().map_err(shown)?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let spawned = command.spawn();
        spawned
            .map(Process)
            .map_err(|error| format!("{}: {error}", line(command)))
    }

    /// Returns its status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder that is removed when this is dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates it, in the folder of temporary files.
    pub fn new(name: &str) -> Result<Folder, Failure> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("redline-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a free port of the loopback.
pub fn free_port() -> Result<u16, Failure> {
    redline_testkit::process::free_port().map_err(|error| format!("a free port: {error}"))
}

/// Waits until `so` returns true.
pub fn until(what: &str, mut so: impl FnMut() -> bool) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        if Instant::now() > deadline {
            return Err(format!("in vain: {what}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_suite_left_running_ran_on() {
        let mut suite = Command::new("sh");
        suite.args(["-c", "sleep 300 >/dev/null 2>&1 & echo $!"]);
        let (said, in_time) = ended_group(suite, PATIENCE).unwrap();
        assert!(in_time);
        let left: u32 = String::from_utf8(said).unwrap().trim().parse().unwrap();
        let state = || fs::read_to_string(format!("/proc/{left}/stat")).unwrap_or_default();
        // A killed process exists until its parent has waited for it.
        let is_gone = || {
            state()
                .rsplit_once(") ")
                .is_none_or(|(_, then)| then.starts_with('Z'))
        };
        until("it has been ended", is_gone).unwrap();
    }
}
