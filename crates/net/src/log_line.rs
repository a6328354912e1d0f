//! Lines of a log: as text in the form that redis-server's users know, structured for programs, or for systemd's
//! journal, which has the time and the process id itself.
//!
//! It must not know where lines go, nor what they are about.

use std::{
    env,
    fmt::Write as _,
    fs::File,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    sync::OnceLock,
};

use crate::{
    clock::{self, LocalTime},
    syslog::Severity,
};

/// Level of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Details for developers.
    Debug,
    /// Details for operators.
    Verbose,
    /// A message of interest to operators.
    Notice,
    /// A problem that operators must know of.
    Warning,
}

impl Level {
    /// Returns its name, its mark in text, and its severity in the system's log.
    fn facts(self) -> (&'static str, char, Severity) {
        match self {
            Level::Debug => ("debug", '.', Severity::Debug),
            Level::Verbose => ("verbose", '-', Severity::Info),
            Level::Notice => ("notice", '*', Severity::Notice),
            Level::Warning => ("warning", '#', Severity::Warning),
        }
    }

    /// Returns its severity in the system's log.
    pub fn severity(self) -> Severity {
        self.facts().2
    }
}

/// Format of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Format of redis-server.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
    /// Pairs of `key=value`, with the keys of Valkey's `logfmt`.
    Logfmt,
}

/// Format of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timestamp {
    /// By the format of the line: in text as redis-server, otherwise ISO 8601.
    #[default]
    Legacy,
    /// ISO 8601.
    Iso8601,
    /// Milliseconds since 1970.
    Milliseconds,
}

/// Role of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A server that takes writes.
    Primary,
    /// A server that follows another.
    Replica,
    /// A proxy.
    Proxy,
}

impl Role {
    /// Returns its mark in text, and its name.
    fn facts(self) -> (char, &'static str) {
        match self {
            Role::Primary => ('M', "primary"),
            Role::Replica => ('S', "replica"),
            Role::Proxy => ('P', "proxy"),
        }
    }
}

/// Form of a log's lines.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Role that lines name.
    pub role: Role,
    /// Format of lines.
    pub format: Format,
    /// Format of times.
    pub timestamp: Timestamp,
}

impl Form {
    /// Returns a line of this moment, with its end. `is_journal`: it goes to systemd's journal.
    pub fn line(self, level: Level, is_journal: bool, text: &str) -> String {
        let now_ms = clock::wall_ms();
        let now = clock::local(now_ms / 1000);
        self.line_at(std::process::id(), &now, now_ms, level, is_journal, text)
    }

    /// Returns a line. `now_ms` is the time since 1970, and `now` the local time then.
    fn line_at(
        self,
        pid: u32,
        now: &LocalTime,
        now_ms: u64,
        level: Level,
        is_journal: bool,
        text: &str,
    ) -> String {
        let (name, mark, severity) = level.facts();
        let (role_mark, role) = self.role.facts();
        let priority = match is_journal {
            true => format!("<{}>", severity as u8),
            false => String::new(),
        };
        let time = match (self.timestamp, self.format) {
            (Timestamp::Legacy, Format::Text) => as_redis(now, now_ms % 1000),
            (Timestamp::Milliseconds, _) => now_ms.to_string(),
            _ => iso_8601(now, now_ms % 1000),
        };
        match self.format {
            Format::Text if is_journal => format!("{priority}{text}\n"),
            Format::Text => format!("{pid}:{role_mark} {time} {mark} {text}\n"),
            Format::Json => format!(
                "{priority}{{\"pid\":{pid},\"role\":\"{role}\",\"timestamp\":\"{time}\",\"level\":\"{name}\",\"message\":{}}}\n",
                quoted(text),
            ),
            Format::Logfmt => format!(
                "{priority}pid={pid} role={role} timestamp=\"{time}\" level={name} message={}\n",
                quoted(text),
            ),
        }
    }
}

/// Returns true if the descriptor is the connection to systemd's journal that systemd made for this process.
pub fn is_journal(stream: impl AsFd) -> bool {
    /// Device and inode of the connection.
    static STREAM: OnceLock<Option<(u64, u64)>> = OnceLock::new();
    let named = STREAM.get_or_init(|| parse_stream(env::var_os("JOURNAL_STREAM")?.to_str()?));
    named.is_some_and(|named| place(stream.as_fd()) == Some(named))
}

/// Parses `DEVICE:INODE`.
fn parse_stream(text: &str) -> Option<(u64, u64)> {
    let (device, inode) = text.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

/// Returns device and inode of an open descriptor.
fn place(stream: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let file = File::from(stream.try_clone_to_owned().ok()?);
    let data = file.metadata().ok()?;
    Some((data.dev(), data.ino()))
}

/// Returns `21 Nov 2026 22:10:00.123`.
fn as_redis(now: &LocalTime, ms: u64) -> String {
    format!(
        "{:02} {} {} {:02}:{:02}:{:02}.{ms:03}",
        now.day,
        now.month_name(),
        now.year,
        now.hour,
        now.minute,
        now.second,
    )
}

/// Returns `2026-11-21T22:10:00.123+01:00`.
fn iso_8601(now: &LocalTime, ms: u64) -> String {
    let sign = if now.offset_s < 0 { '-' } else { '+' };
    let minutes = now.offset_s.abs() / 60;
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{ms:03}{sign}{:02}:{:02}",
        now.year,
        now.month,
        now.day,
        now.hour,
        now.minute,
        now.second,
        minutes / 60,
        minutes % 60,
    )
}

/// Returns the text in quotes, and on one line, as in JSON.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a string does not fail");
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: LocalTime = LocalTime {
        year: 2026,
        month: 11,
        day: 1,
        hour: 22,
        minute: 0,
        second: 9,
        offset_s: -5400,
    };
    const NOW_MS: u64 = 1_793_573_109_042;

    fn line_of(role: Role, format: Format, timestamp: Timestamp, text: &str) -> String {
        let form = Form {
            role,
            format,
            timestamp,
        };
        form.line_at(7, &NOW, NOW_MS, Level::Warning, false, text)
    }

    #[test]
    fn a_line_in_each_form() {
        let in_form = |format, text: &str| line_of(Role::Primary, format, Timestamp::Legacy, text);
        assert_eq!(
            in_form(Format::Text, "a \"b\""),
            "7:M 01 Nov 2026 22:00:09.042 # a \"b\"\n"
        );
        let of_replica = |format| line_of(Role::Replica, format, Timestamp::Milliseconds, "a");
        assert_eq!(of_replica(Format::Text), "7:S 1793573109042 # a\n");
        assert!(of_replica(Format::Logfmt).contains(" role=replica "));
        assert_eq!(
            in_form(Format::Json, "a \"b\"\n\\\u{1}é"),
            "{\"pid\":7,\"role\":\"primary\",\"timestamp\":\"2026-11-01T22:00:09.042-01:30\",\"level\":\"warning\",\"message\":\"a \\\"b\\\"\\n\\\\\\u0001é\"}\n"
        );
        assert_eq!(
            in_form(Format::Logfmt, "a b"),
            "pid=7 role=primary timestamp=\"2026-11-01T22:00:09.042-01:30\" level=warning message=\"a b\"\n"
        );
        for (timestamp, shown) in [
            (Timestamp::Iso8601, "2026-11-01T22:00:09.042-01:30"),
            (Timestamp::Milliseconds, "1793573109042"),
        ] {
            assert_eq!(
                line_of(Role::Proxy, Format::Text, timestamp, "a"),
                format!("7:P {shown} # a\n")
            );
            for format in [Format::Json, Format::Logfmt] {
                let line = line_of(Role::Proxy, format, timestamp, "a");
                assert!(line.contains(&format!("\"{shown}\"")), "{line}");
                assert!(line.contains("proxy"), "{line}");
            }
        }
    }

    #[test]
    fn the_journal_gets_the_priority_and_in_text_neither_time_nor_process() {
        let of = |format, level| {
            let form = Form {
                role: Role::Primary,
                format,
                timestamp: Timestamp::Legacy,
            };
            form.line_at(7, &NOW, NOW_MS, level, true, "a")
        };
        for (level, line) in [
            (Level::Debug, "<7>a\n"),
            (Level::Verbose, "<6>a\n"),
            (Level::Notice, "<5>a\n"),
            (Level::Warning, "<4>a\n"),
        ] {
            assert_eq!(of(Format::Text, level), line);
        }
        assert!(of(Format::Json, Level::Notice).starts_with("<5>{\"pid\":7,"));
        assert!(of(Format::Logfmt, Level::Notice).starts_with("<5>pid=7 "));
    }

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        assert_eq!(parse_stream("9:12345"), Some((9, 12345)));
        for wrong in ["", "9", "9:", ":1", "a:1", "9:1:1"] {
            assert_eq!(parse_stream(wrong), None, "{wrong}");
        }
        let (one, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        assert_ne!(place(one.as_fd()), place(other.as_fd()));
        assert_eq!(place(one.as_fd()), place(one.try_clone().unwrap().as_fd()));
    }
}
