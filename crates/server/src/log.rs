//! The log: lines on standard output, or in a file, and in the system's log if configured. The form of lines is the
//! proxy's too (`redline_net::log_line`). Must not know: the callers.

use std::{
    fs::OpenOptions,
    io::Write,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

pub(crate) use redline_net::log_line::quoted;
use redline_net::{
    log_line::{self, Form, Format, Level, Role, Timestamp},
    syslog::Syslog,
};

static LEVEL: AtomicU8 = AtomicU8::new(Level::Notice as u8);
static TARGETS: Mutex<Targets> = Mutex::new(Targets {
    file: None,
    form: Form {
        role: Role::Primary,
        format: Format::Text,
        timestamp: Timestamp::Legacy,
    },
    syslog: None,
});

struct Targets {
    file: Option<String>,
    form: Form,
    syslog: Option<Syslog>,
}

/// Sets the level below which lines are dropped.
pub fn set_level(level: u8) {
    LEVEL.store(level, Ordering::Relaxed);
}

/// Sets the format of lines.
pub fn set_format(format: Format, timestamp: Timestamp) {
    let form = &mut targets().form;
    (form.format, form.timestamp) = (format, timestamp);
}

/// Sets the role of the process, which lines name.
pub fn set_role(is_replica: bool) {
    targets().form.role = match is_replica {
        true => Role::Replica,
        false => Role::Primary,
    };
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
    write(Level::Debug, text);
}

/// Logs details for operators; dropped unless the log level includes them.
pub fn verbose(text: &str) {
    write(Level::Verbose, text);
}

/// Logs a message of interest to operators.
pub fn notice(text: &str) {
    write(Level::Notice, text);
}

/// Logs a problem that operators must know of.
pub fn warning(text: &str) {
    write(Level::Warning, text);
}

/// Returns true if a warning goes to standard output, where who started the process sees it.
pub fn is_seen() -> bool {
    targets().file.is_none() && Level::Warning as u8 >= LEVEL.load(Ordering::Relaxed)
}

fn targets() -> MutexGuard<'static, Targets> {
    TARGETS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(level: Level, text: &str) {
    if (level as u8) < LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let mut targets = targets();
    let form = targets.form;
    // A log that cannot be written must not stop the server.
    let _ = match &targets.file {
        None => {
            let mut stdout = std::io::stdout().lock();
            let line = form.line(level, log_line::is_journal(&stdout), text);
            stdout.write_all(line.as_bytes())
        }
        Some(path) => OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| file.write_all(form.line(level, false, text).as_bytes())),
    };
    if let Some(syslog) = &mut targets.syslog {
        syslog.log(level.severity(), text);
    }
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
}
