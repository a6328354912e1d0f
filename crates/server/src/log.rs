//! The log: lines on standard output, or in a file, and in the system's log if configured. As text in the form that
//! redis-server's users know, or structured, for programs. Must not know: the callers.

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io::Write,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use redline_net::{
    clock::{self, LocalTime},
    syslog::{Severity, Syslog},
};
use redline_settings::choices;

/// Levels of a line, and of `loglevel`: its words' indexes.
const DEBUG: u8 = 0;
const VERBOSE: u8 = 1;
/// Level of messages of interest to operators.
pub const NOTICE: u8 = 2;
const WARNING: u8 = 3;

/// Names, marks and severities in the system's log, by level.
const WEIGHTS: [(&str, char, Severity); 4] = [
    ("debug", '.', Severity::Debug),
    ("verbose", '-', Severity::Info),
    ("notice", '*', Severity::Notice),
    ("warning", '#', Severity::Warning),
];

/// Format of lines: `log-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Format of redis-server.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
    /// Pairs of `key=value`, with the keys of Valkey's `logfmt`.
    Logfmt,
}

/// Format of times: `log-timestamp-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogTimestamp {
    /// By the format of the line: in text as redis-server, otherwise ISO 8601.
    #[default]
    Legacy,
    /// ISO 8601.
    Iso8601,
    /// Milliseconds since 1970.
    Milliseconds,
}

choices! {
    LogFormat: LogFormat { "text" => Text, "json" => Json, "logfmt" => Logfmt, "legacy" => Text }
    LogTimestamp: LogTimestamp { "legacy" => Legacy, "iso8601" => Iso8601, "milliseconds" => Milliseconds }
}

static LEVEL: AtomicU8 = AtomicU8::new(NOTICE);
static TARGETS: Mutex<Targets> = Mutex::new(Targets {
    file: None,
    form: Form {
        format: LogFormat::Text,
        timestamp: LogTimestamp::Legacy,
    },
    syslog: None,
});

struct Targets {
    file: Option<String>,
    form: Form,
    syslog: Option<Syslog>,
}

#[derive(Clone, Copy)]
struct Form {
    format: LogFormat,
    timestamp: LogTimestamp,
}

/// Sets the level below which lines are dropped.
pub fn set_level(level: u8) {
    LEVEL.store(level, Ordering::Relaxed);
}

/// Sets the format of lines.
pub fn set_format(format: LogFormat, timestamp: LogTimestamp) {
    targets().form = Form { format, timestamp };
}

/// Sets the file of the log; it is opened for each line, so that it may be rotated.
pub fn set_file(path: Option<&str>) -> std::io::Result<()> {
    if let Some(path) = path {
        OpenOptions::new().append(true).create(true).open(path)?;
    }
    targets().file = path.map(str::to_string);
    Ok(())
}

/// Adds the system's log as a target.
pub fn set_syslog(syslog: Syslog) {
    targets().syslog = Some(syslog);
}

/// Logs details for developers; dropped unless the log level includes them.
pub fn debug(text: &str) {
    write(DEBUG, text);
}

/// Logs details for operators; dropped unless the log level includes them.
pub fn verbose(text: &str) {
    write(VERBOSE, text);
}

/// Logs a message of interest to operators.
pub fn notice(text: &str) {
    write(NOTICE, text);
}

/// Logs a problem that operators must know of.
pub fn warning(text: &str) {
    write(WARNING, text);
}

/// Returns true if a warning goes to standard output, where who started the process sees it.
pub fn is_seen() -> bool {
    targets().file.is_none() && WARNING >= LEVEL.load(Ordering::Relaxed)
}

fn targets() -> MutexGuard<'static, Targets> {
    TARGETS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(level: u8, text: &str) {
    if level < LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let now_ms = clock::wall_ms();
    let now = clock::local(now_ms / 1000);
    let mut targets = targets();
    let line = line(targets.form, std::process::id(), &now, now_ms, level, text);
    // A log that cannot be written must not stop the server.
    let _ = match &targets.file {
        None => std::io::stdout().write_all(line.as_bytes()),
        Some(path) => OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes())),
    };
    if let Some(syslog) = &mut targets.syslog {
        syslog.log(WEIGHTS[usize::from(level)].2, text);
    }
}

/// Returns a line. `now_ms` is the time since 1970, and `now` the local time then.
fn line(form: Form, pid: u32, now: &LocalTime, now_ms: u64, level: u8, text: &str) -> String {
    let (name, mark, _) = WEIGHTS[usize::from(level)];
    let time = match (form.timestamp, form.format) {
        (LogTimestamp::Legacy, LogFormat::Text) => as_redis(now, now_ms % 1000),
        (LogTimestamp::Milliseconds, _) => now_ms.to_string(),
        _ => iso_8601(now, now_ms % 1000),
    };
    match form.format {
        LogFormat::Text => format!("{pid}:M {time} {mark} {text}\n"),
        LogFormat::Json => format!(
            "{{\"pid\":{pid},\"role\":\"primary\",\"timestamp\":\"{time}\",\"level\":\"{name}\",\"message\":{}}}\n",
            quoted(text),
        ),
        LogFormat::Logfmt => format!(
            "pid={pid} role=primary timestamp=\"{time}\" level={name} message={}\n",
            quoted(text),
        ),
    }
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
pub(crate) fn quoted(text: &str) -> String {
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

    #[test]
    fn lines_go_to_the_systems_log_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let daemon = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        set_syslog(Syslog::new(
            &path,
            "redis",
            redline_net::syslog::Facility::Local(0),
        ));
        warning("something to know");
        let mut heard = [0; 200];
        let len = daemon.recv(&mut heard).unwrap();
        let heard = String::from_utf8_lossy(&heard[..len]).into_owned();
        assert!(heard.starts_with("<132>"), "{heard}");
        assert!(heard.ends_with("]: something to know"), "{heard}");
    }

    #[test]
    fn a_line_in_each_form() {
        let now = LocalTime {
            year: 2026,
            month: 11,
            day: 1,
            hour: 22,
            minute: 0,
            second: 9,
            offset_s: -5400,
        };
        let line_of = |format, timestamp, text| {
            line(
                Form { format, timestamp },
                7,
                &now,
                1_793_573_109_042,
                WARNING,
                text,
            )
        };
        let in_form = |format, text| line_of(format, LogTimestamp::Legacy, text);
        assert_eq!(
            in_form(LogFormat::Text, "a \"b\""),
            "7:M 01 Nov 2026 22:00:09.042 # a \"b\"\n"
        );
        assert_eq!(
            in_form(LogFormat::Json, "a \"b\"\n\\\u{1}é"),
            "{\"pid\":7,\"role\":\"primary\",\"timestamp\":\"2026-11-01T22:00:09.042-01:30\",\"level\":\"warning\",\"message\":\"a \\\"b\\\"\\n\\\\\\u0001é\"}\n"
        );
        assert_eq!(
            in_form(LogFormat::Logfmt, "a b"),
            "pid=7 role=primary timestamp=\"2026-11-01T22:00:09.042-01:30\" level=warning message=\"a b\"\n"
        );
        for (timestamp, shown) in [
            (LogTimestamp::Iso8601, "2026-11-01T22:00:09.042-01:30"),
            (LogTimestamp::Milliseconds, "1793573109042"),
        ] {
            assert_eq!(
                line_of(LogFormat::Text, timestamp, "a"),
                format!("7:M {shown} # a\n")
            );
            for format in [LogFormat::Json, LogFormat::Logfmt] {
                let line = line_of(format, timestamp, "a");
                assert!(line.contains(&format!("\"{shown}\"")), "{line}");
            }
        }
    }
}
