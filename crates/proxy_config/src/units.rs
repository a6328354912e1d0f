//! Spans of time, sizes and places as configuration files write them, ours and predixy's. Knows no option.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A span of time: `250us`, `15ms`, `10s`, `5min`, `1h`; zero is `off`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// Returns a span of this many seconds.
    pub const fn seconds(count: u64) -> Span {
        Span(Duration::from_secs(count))
    }

    /// Returns a span of this many milliseconds.
    pub const fn milliseconds(count: u64) -> Span {
        Span(Duration::from_millis(count))
    }

    /// Returns the span, unless it is off.
    pub fn on(self) -> Option<Duration> {
        (!self.0.is_zero()).then_some(self.0)
    }

    /// Returns the seconds, rounded up; 0 if it is off.
    pub fn whole_seconds(self) -> u32 {
        let seconds = self.0.as_millis().div_ceil(1_000);
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }

    /// Parses predixy's form: a bare number means seconds, and `m` means milliseconds as `ms` does.
    pub fn of_predixy(text: &str) -> Option<Span> {
        let (number, unit) = split_number(text)?;
        let us_each = match unit {
            "" | "s" => 1_000_000,
            "m" | "ms" => 1_000,
            "u" | "us" => 1,
            _ => return None,
        };
        Some(Span(Duration::from_micros(number.checked_mul(us_each)?)))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        if text == "off" {
            return Ok(Span::default());
        }
        let us_each = |unit| match unit {
            "us" => Some(1),
            "ms" => Some(1_000),
            "s" => Some(1_000_000),
            "min" => Some(60_000_000),
            "h" => Some(3_600_000_000),
            _ => None,
        };
        let span = split_number(text).and_then(|(number, unit)| {
            let us = number.checked_mul(us_each(unit)?)?;
            Some(Span(Duration::from_micros(us)))
        });
        span.ok_or_else(|| {
            format!("\"{text}\" is no span of time: write it as 250us, 15ms, 10s, 5min, 1h or off")
        })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.as_micros();
        if us == 0 {
            return f.write_str("off");
        }
        let units = [
            (3_600_000_000, "h"),
            (60_000_000, "min"),
            (1_000_000, "s"),
            (1_000, "ms"),
        ];
        let fits = units
            .iter()
            .find(|(us_each, _)| us.is_multiple_of(*us_each));
        let (us_each, unit) = fits.copied().unwrap_or((1, "us"));
        write!(f, "{}{unit}", us / us_each)
    }
}

/// A number of bytes: `64kb`, `1mb`, `2gb`, `100b`, in powers of 1,024; zero is `off`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// Returns true if it is no limit.
    pub fn is_off(&self) -> bool {
        self.0 == 0
    }

    /// Parses predixy's form: a bare number, or one with B, K, KB, M, MB, G or GB.
    pub fn of_predixy(text: &str) -> Option<Size> {
        let (number, unit) = split_number(text)?;
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" => 10,
            "m" | "mb" => 20,
            "g" | "gb" => 30,
            _ => return None,
        };
        number.checked_mul(1 << shift).map(Size)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        if text == "off" {
            return Ok(Size(0));
        }
        let shift = |unit: &str| match unit {
            "b" => Some(0),
            "kb" => Some(10),
            "mb" => Some(20),
            "gb" => Some(30),
            _ => None,
        };
        let size = split_number(text)
            .and_then(|(number, unit)| number.checked_mul(1 << shift(unit)?).map(Size));
        size.ok_or_else(|| {
            format!("\"{text}\" is no size: write it as 100b, 64kb, 1mb, 2gb or off")
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("off");
        }
        let units = [(30, "gb"), (20, "mb"), (10, "kb")];
        let fits = units
            .iter()
            .find(|(shift, _)| self.0.is_multiple_of(1 << shift));
        let (shift, unit) = fits.copied().unwrap_or((0, "b"));
        write!(f, "{}{unit}", self.0 >> shift)
    }
}

/// An address to listen at or connect to: `host:port`, `[ipv6]:port`, or the path of a unix socket, from its slash on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A host (a name, an IPv4 or an IPv6 address without brackets) and a port.
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl Place {
    /// Returns the place of a TCP port.
    pub fn tcp(host: impl Into<String>, port: u16) -> Place {
        let host = host.into();
        Place::Tcp { host, port }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let wrong = || {
            format!(
                "\"{}\" is no address: write it as host:port, [ipv6]:port or /path/of/a.socket",
                without_credentials(text)
            )
        };
        if text.starts_with('/') {
            return Ok(Place::Unix(text.into()));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let host = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']').ok_or_else(wrong)?,
            None => host,
        };
        // A URI, or misplaced credentials, would be resolved as a name.
        let foreign = |c: char| c.is_whitespace() || matches!(c, '/' | '@');
        if host.is_empty() || host.contains(foreign) {
            return Err(wrong());
        }
        Ok(Place::tcp(host, port))
    }
}

/// Returns an address, or an attempt at one, for error messages: the text before its last `@` may be a password.
pub(super) fn without_credentials(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, address)) => format!("(not shown)@{address}"),
        None => text.to_owned(),
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp { host, port } => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A password, or words among which one may be. It is text, but is not shown in debug output.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

impl std::ops::Deref for Secret {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Secret {
        Secret(text.into())
    }
}

fn split_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim_start()))
}

/// As text in files.
macro_rules! as_text {
    ($($kind:ty),*) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
as_text!(Span, Size, Place);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["250us", "15ms", "10s", "5min", "1h", "1500ms", "off"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["100b", "64kb", "1mb", "2gb", "1536kb", "off"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        for text in ["h:1", "[::1]:6379", "/tmp/a.sock", "10.0.0.1:6379"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_wrong_is_refused_and_never_guessed() {
        for text in [
            "",
            "1",
            "1m",
            "s",
            "-1s",
            "1.5s",
            "99999999999999999999s",
            "1d",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["", "1", "1k", "kb", "-1b", "99999999999gb"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        for text in [
            "",
            "h",
            ":1",
            "h:99999",
            "[::1:1",
            "a b:1",
            "redis://h:1",
            "p@h:1",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_m_of_predixy_is_a_millisecond() {
        for (text, ms) in [
            ("1", 1000),
            ("2s", 2000),
            ("3m", 3),
            ("4ms", 4),
            ("5000us", 5),
            ("6000u", 6),
        ] {
            assert_eq!(
                Span::of_predixy(text),
                Some(Span::milliseconds(ms)),
                "{text}"
            );
        }
        assert_eq!(Span::of_predixy("1h"), None);
        for (text, bytes) in [
            ("10", 10),
            ("1K", 1024),
            ("1kb", 1024),
            ("2M", 2 << 20),
            ("1G", 1 << 30),
        ] {
            assert_eq!(Size::of_predixy(text), Some(Size(bytes)), "{text}");
        }
    }
}
