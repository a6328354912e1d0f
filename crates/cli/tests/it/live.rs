//! `redline bench run --live` on a terminal: its view, and the restored terminal afterwards.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::running::{REDLINE, Running, signal, until};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

const OTHER_SCREEN: &str = "\x1b[?1049h";
const USUAL_SCREEN: &str = "\x1b[?1049l";
const CURSOR_HIDDEN: &str = "\x1b[?25l";
const CURSOR_SHOWN: &str = "\x1b[?25h";

/// A terminal whose screen is this test.
struct Screen {
    /// Kept open, so that the end of the program is not the end of the terminal.
    inside: File,
    said: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Screen {
    fn new() -> Screen {
        let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&outside).expect("it is ours");
        unlockpt(&outside).expect("it is ours");
        let size = Winsize {
            ws_row: 30,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&outside, size).expect("it has a size");
        let name = ptsname(&outside, Vec::new()).expect("it has a name");
        let name = name.to_str().expect("it is a path").to_owned();
        let inside = File::options().read(true).write(true).open(name);
        let said: Arc<Mutex<Vec<u8>>> = Arc::default();
        let log = Arc::clone(&said);
        let reader = thread::spawn(move || {
            let (mut outside, mut bytes) = (File::from(outside), [0; 4096]);
            // The end is an error: it is closed on the other side.
            while let Ok(count @ 1..) = outside.read(&mut bytes) {
                log.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Screen {
            inside: inside.expect("it can be opened"),
            said,
            reader,
        }
    }

    fn run(&self, server: &Running, words: &[&str]) -> Child {
        self.run_of(server, &[&["--live", "--interval", "0.1"], words].concat())
    }

    /// Runs without a view, with all streams on the terminal.
    fn run_of(&self, server: &Running, words: &[&str]) -> Child {
        let stream = || Stdio::from(self.inside.try_clone().expect("a descriptor"));
        Command::new(REDLINE)
            .args(["bench", "run", "-S"])
            .arg(server.path("s"))
            .args(["--command", "GET key:{uniform:10}"])
            .args(words)
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .expect("the binary starts")
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    fn modes(&self) -> Termios {
        tcgetattr(&self.inside).expect("it is a terminal")
    }

    /// Returns everything that was printed.
    fn end(self) -> String {
        drop(self.inside);
        self.reader.join().expect("it reads to the end");
        let bytes = self.said.lock().unwrap().clone();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn server() -> Running {
    let folder = tempfile::tempdir().expect("a folder of its own");
    let args = ["--port", "0", "--unixsocket", "s", "--threads", "1"];
    Running::start(folder, &args, None)
}

/// Returns the words on the screen, in the order in which they were drawn: cursor movements are blanks.
fn words(text: &str) -> String {
    let mut pieces = text.split("\x1b[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| c.is_ascii_alphabetic());
        plain += " ";
        plain += end.map_or("", |end| &piece[end + 1..]);
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Checks that the view was shown and removed, and the report follows it.
#[track_caller]
fn check(screen: Screen, before: &Termios) {
    let after = screen.modes();
    let text = screen.end();
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
    let at = |what: &str| {
        text.find(what)
            .unwrap_or_else(|| panic!("{what:?}: {text:?}"))
    };
    assert!(at(OTHER_SCREEN) < at(USUAL_SCREEN) && at(CURSOR_HIDDEN) < at(USUAL_SCREEN));
    let (view, report) = text.split_once(USUAL_SCREEN).expect("it was just found");
    for part in [
        "verdict so far",
        "CPUs now",
        "newest piece",
        "generator",
        "measured",
    ] {
        assert!(words(view).contains(part), "{part}: {view:?}");
    }
    assert!(report.starts_with(CURSOR_SHOWN), "{report:?}");
    assert!(
        !report.contains(CURSOR_HIDDEN) && report.contains("CPU, us/request"),
        "{report:?}"
    );
}

#[test]
fn a_run_to_its_end_leaves_the_terminal_as_it_was() {
    let (server, screen) = (server(), Screen::new());
    let before = screen.modes();
    let mut child = screen.run(&server, &["--duration", "1.5", "--warmup", "0.3"]);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    check(screen, &before);
}

#[test]
fn so_does_one_that_is_interrupted_or_terminated() {
    let server = server();
    for name in ["INT", "TERM", "HUP", "QUIT"] {
        let screen = Screen::new();
        let before = screen.modes();
        let mut child = screen.run(&server, &["--duration", "600", "--rps", "500"]);
        until("figures are shown", || {
            let text = words(&screen.text());
            (text.contains("CPUs now") && text.contains("measured")).then_some(())
        });
        signal(&child, name);
        assert_eq!(child.wait().expect("it ends").code(), Some(130), "{name}");
        check(screen, &before);
    }
}

#[test]
fn so_does_one_whose_server_goes() {
    let (mut server, screen) = (server(), Screen::new());
    let before = screen.modes();
    let mut child = screen.run(&server, &["--duration", "600"]);
    until("figures are shown", || {
        screen.text().contains("CPUs now").then_some(())
    });
    server.child.kill().expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    check(screen, &before);
}

#[test]
fn without_a_terminal_there_is_one_clear_line() {
    let server = server();
    let output = Command::new(REDLINE)
        .args(["bench", "run", "--live", "--command", "PING", "-S"])
        .arg(server.path("s"))
        .output()
        .expect("the binary ends");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        said,
        "--live draws on a terminal, and standard output is none.\n"
    );
}

#[test]
fn a_fill_shows_its_progress_on_a_terminal_only() {
    let (server, screen) = (server(), Screen::new());
    let fill = [
        "--load",
        "SET key:{seq:400000} {value}",
        "-c",
        "1",
        "--duration",
        "0.5",
    ];
    let mut child = screen.run(&server, &fill);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let text = screen.end();
    assert!(
        text.contains("filling") && text.contains("/400000"),
        "{text:?}"
    );
    let output = Command::new(REDLINE)
        .args(["bench", "run", "--command", "PING", "-n", "10", "-S"])
        .arg(server.path("s"))
        .args(fill)
        .output()
        .expect("the binary ends");
    assert_eq!(
        (output.status.code(), &output.stderr[..]),
        (Some(0), &b""[..])
    );
}

#[test]
fn a_run_with_a_duration_showed_nothing_while_it_measured() {
    let (server, screen) = (server(), Screen::new());
    let mut child = screen.run_of(&server, &["--duration", "600", "-c", "2"]);
    until("rate and p99 so far are shown", || {
        let text = words(&screen.text());
        (text.contains("requests/s, p99 ") && text.contains("left")).then_some(())
    });
    signal(&child, "INT");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(
        screen.end().contains("CPU, us/request"),
        "the report follows"
    );
}

#[test]
fn a_suite_shows_which_of_its_runs_is_measured() {
    let (server, screen) = (server(), Screen::new());
    let suite = server.path("two.toml");
    let text = "name = 's'\ntitle = 't'\nsource = 'u'\n[[group]]\nname = 'PING'\ncommand = ['PING']\n\
                [[group.run]]\nname = 'one'\n[[group.run]]\nname = 'two'\n";
    std::fs::write(&suite, text).expect("the folder is ours");
    let stream = || Stdio::from(screen.inside.try_clone().expect("a descriptor"));
    // The command is dropped at once: its descriptors would keep the terminal open.
    let mut child = Command::new(REDLINE)
        .args(["bench", "run"])
        .arg(&suite)
        .arg("-S")
        .arg(server.path("s"))
        .args(["--duration", "1.2", "--threads", "1"])
        .stdin(stream())
        .stdout(stream())
        .stderr(stream())
        .spawn()
        .expect("the binary starts");
    until("the second run is shown", || {
        let text = words(&screen.text());
        (text.contains("1 of 2: PING one: ") && text.contains("2 of 2, about ")).then_some(())
    });
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert!(screen.end().contains("Published: u"));
}

#[test]
fn a_run_whose_errors_are_piped_has_no_bar() {
    let server = server();
    let output = Command::new(REDLINE)
        .args([
            "bench",
            "run",
            "--duration",
            "0.7",
            "--command",
            "PING",
            "-S",
        ])
        .arg(server.path("s"))
        .output()
        .expect("the binary ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
