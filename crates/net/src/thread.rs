//! Threads whose panic ends the process. Must not know their work.

use std::io;
use std::process::abort;
use std::thread::{Builder, JoinHandle, panicking};

/// Starts a thread. If it panics, data may be torn, or its work may be left undone: the panic is reported, and the
/// process ends.
pub fn spawn(
    name: &str,
    last_words: fn(),
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        let _no_survivor = NoSurvivor { last_words };
        body();
    })
}

struct NoSurvivor {
    last_words: fn(),
}

impl Drop for NoSurvivor {
    fn drop(&mut self) {
        if panicking() {
            (self.last_words)();
            abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;
    use crate::console;

    #[test]
    fn a_thread_that_panics_ends_the_process() {
        const CHILD: &str = "REDLINE_TEST_PANICKING_THREAD";
        let last_words = || console::line_to_stderr("these are its last words");
        if std::env::var_os(CHILD).is_some() {
            let thread = spawn("torn", last_words, || panic!("this is wanted")).unwrap();
            // The thread that survives comes to an end without a fault.
            let _ = thread.join();
            return;
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "thread::tests::a_thread_that_panics_ends_the_process",
                "--nocapture",
            ])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let (panic, rest) = said.split_once("this is wanted").expect("a panic");
        assert!(panic.contains("torn") && rest.contains("these are its last words"));
    }

    #[test]
    fn a_thread_that_comes_to_its_end_ends_nothing() {
        let last_words = || unreachable!("nothing has gone wrong");
        spawn("whole", last_words, || ()).unwrap().join().unwrap();
    }
}
