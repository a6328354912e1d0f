//! The log: lines on standard output, or in a file, in the form that redis-server's users know. Must not know: who
//! logs.

use std::{
    fs::OpenOptions,
    io::Write,
    sync::{
        Mutex,
        atomic::{AtomicU8, Ordering},
    },
};

use redline_net::clock;

/// Weights of a line, and of `loglevel`: its words' indexes.
const DEBUG: u8 = 0;
/// What an operator wants to know.
pub const NOTICE: u8 = 2;
const WARNING: u8 = 3;

static LEVEL: AtomicU8 = AtomicU8::new(NOTICE);
static FILE: Mutex<Option<String>> = Mutex::new(None);

/// Lines below this weight are dropped from now on.
pub fn set_level(level: u8) {
    LEVEL.store(level, Ordering::Relaxed);
}

/// Lines go to this file from now on; it is opened for each, so that it may be rotated.
pub fn set_file(path: Option<&str>) -> std::io::Result<()> {
    if let Some(path) = path {
        OpenOptions::new().append(true).create(true).open(path)?;
    }
    *FILE.lock().expect("no panic under the log's path") = path.map(str::to_string);
    Ok(())
}

/// Details for developers; dropped unless the log level asks for them.
pub fn debug(text: &str) {
    write(DEBUG, '.', text);
}

/// What an operator wants to know.
pub fn notice(text: &str) {
    write(NOTICE, '*', text);
}

/// What an operator must know.
pub fn warning(text: &str) {
    write(WARNING, '#', text);
}

fn write(level: u8, mark: char, text: &str) {
    if level < LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let now_ms = clock::wall_ms();
    let line = format!("{}:M {} {mark} {text}\n", std::process::id(), utc(now_ms));
    // A log that cannot be written must not stop the server.
    let file = FILE.lock().expect("no panic under the log's path");
    let _ = match &*file {
        None => std::io::stdout().write_all(line.as_bytes()),
        Some(path) => OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes())),
    };
}

/// `21 Nov 2026 22:10:00.123`, in UTC.
fn utc(unix_ms: u64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    // Civil date from a day count, by Howard Hinnant's method: years begin in March, eras have 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    let month = MONTHS[month as usize - 1];
    format!(
        "{day:02} {month} {year} {hour:02}:{minute:02}:{second:02}.{:03}",
        ms % 1000
    )
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "01 Jan 1970 00:00:00.000");
        assert_eq!(utc(951_782_400_000), "29 Feb 2000 00:00:00.000");
        assert_eq!(utc(1_795_298_400_123), "21 Nov 2026 22:00:00.123");
    }
}
