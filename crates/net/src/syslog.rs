//! Lines for the system's log: datagrams to a socket, in the form of RFC 3164, as every syslog daemon and journald take
//! them.
//!
//! A line that cannot be sent is dropped: a log that does not answer must not stop a program. It must not know the
//! contents of lines.

use std::{
    io,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process,
};

use crate::clock;

/// The socket of the system's log.
pub const SYSTEM_LOG: &str = "/dev/log";

/// The facility of syslog: the part of the system that a line is filed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Facility {
    /// Programs of users.
    User,
    /// For local use: 0 to 7.
    Local(u8),
}

/// Severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Something that needs attention.
    Warning = 4,
    /// Normal, but worth noting.
    Notice = 5,
    /// For information.
    Info = 6,
    /// For developers.
    Debug = 7,
}

/// A connection to the system's log, made when it is first needed and again when it was lost.
#[derive(Debug)]
pub struct Syslog {
    path: PathBuf,
    ident: String,
    facility: Facility,
    socket: Option<UnixDatagram>,
}

impl Syslog {
    /// Makes a connection to the socket at `path`, usually [`SYSTEM_LOG`], under the name `ident`.
    pub fn new(path: &Path, ident: &str, facility: Facility) -> Syslog {
        Syslog {
            path: path.into(),
            ident: ident.into(),
            facility,
            socket: None,
        }
    }

    /// Sends a line.
    pub fn log(&mut self, severity: Severity, text: &str) {
        let line = self.line(severity, text, clock::local(clock::wall_ms() / 1000));
        // The daemon may have been started anew since the last line: then its old socket leads nowhere.
        if self.send(line.as_bytes()).is_err() {
            self.socket = None;
            let _ = self.send(line.as_bytes());
        }
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(&self.path)?;
                // A daemon that has stalled loses lines, and delays no caller.
                socket.set_nonblocking(true)?;
                socket
            }
        };
        let sent = socket.send(line);
        self.socket = Some(socket);
        sent.map(|_| ())
    }

    fn line(&self, severity: Severity, text: &str, now: clock::LocalTime) -> String {
        let facility = match self.facility {
            Facility::User => 1,
            Facility::Local(number) => 16 + u32::from(number.min(7)),
        };
        format!(
            "<{}>{} {:2} {:02}:{:02}:{:02} {}[{}]: {text}",
            facility * 8 + severity as u32,
            now.month_name(),
            now.day,
            now.hour,
            now.minute,
            now.second,
            self.ident,
            process::id(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_weight_time_name_and_process() {
        let syslog = Syslog::new(Path::new("x"), "redis", Facility::Local(3));
        let now = clock::LocalTime {
            year: 2026,
            month: 11,
            day: 2,
            hour: 3,
            minute: 4,
            second: 5,
            offset_s: 0,
        };
        let line = syslog.line(Severity::Notice, "ready", now);
        let expected = format!("<157>Nov  2 03:04:05 redis[{}]: ready", process::id());
        assert_eq!(line, expected);
    }

    #[test]
    fn a_daemon_that_comes_back_gets_lines_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut syslog = Syslog::new(&path, "redis", Facility::User);
        syslog.log(Severity::Warning, "nobody hears this");
        for _ in 0..2 {
            let daemon = UnixDatagram::bind(&path).unwrap();
            syslog.log(Severity::Warning, "somebody hears this");
            let mut line = [0; 200];
            let len = daemon.recv(&mut line).unwrap();
            let line = String::from_utf8_lossy(&line[..len]).into_owned();
            assert!(line.starts_with("<12>"), "{line}");
            assert!(line.ends_with("]: somebody hears this"), "{line}");
            drop(daemon);
            std::fs::remove_file(&path).unwrap();
        }
    }
}
