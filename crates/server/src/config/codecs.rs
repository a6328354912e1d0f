//! Conversions of values whose fields are of no plain type. Must not know: names of parameters.

use std::{
    ffi::OsStr,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use redline_net::{
    log_line::{Format, Timestamp},
    tls::ClientAuth,
};
use redline_persist::aof::writer::Policy;
use redline_rdb::format::FileVersion;
use redline_settings::{
    Codec, choices,
    value::{Refusal, Value},
};
use redline_types::number;

use super::checks::{OUTPUT_CLASSES, output_class, output_limit};
use crate::{
    ending::Manner,
    settings::{DisklessLoad, OutputLimit, RefusedEffects},
};

/// Codec of the requirement for clients to present a certificate, by words.
pub struct ClientCertificates;

/// Words of `log-format`.
pub struct LogFormat;

/// Words of `log-timestamp-format`.
pub struct LogTimestamp;

choices! {
    LogFormat: Format { "text" => Text, "json" => Json, "logfmt" => Logfmt, "legacy" => Text }
    LogTimestamp: Timestamp { "legacy" => Legacy, "iso8601" => Iso8601, "milliseconds" => Milliseconds }
    ClientCertificates: ClientAuth { "no" => No, "yes" => Required, "optional" => Optional }
}

/// Codec of the channels of a new user, by the words for all and for none.
pub struct OpenChannels;

impl OpenChannels {
    /// Names of the two values.
    pub const NAMES: &[&str] = &["allchannels", "resetchannels"];
}

impl Codec<bool> for OpenChannels {
    fn of(value: &Value) -> Result<bool, Refusal> {
        Ok(value.integer() == 0)
    }

    fn value(are_open: &bool) -> Value {
        Value::Integer((!are_open).into())
    }
}

/// Codec of three numbers.
pub struct OomScores;

impl Codec<[i32; 3]> for OomScores {
    fn of(value: &Value) -> Result<[i32; 3], Refusal> {
        let mut scores = [0; 3];
        for (score, word) in scores.iter_mut().zip(value.words()) {
            *score = number::parse_i64(word).unwrap_or(0) as i32;
        }
        Ok(scores)
    }

    fn value(scores: &[i32; 3]) -> Value {
        Value::Words(scores.map(|n| n.to_string().into_bytes()).into())
    }
}

/// Codec of a way to end the server: a bit for each of `save`, `nosave`, `now` and `force`.
pub struct Endings;

impl Codec<Manner> for Endings {
    fn of(value: &Value) -> Result<Manner, Refusal> {
        let has = |bit: i64| value.integer() >> bit & 1 == 1;
        let saves = match (has(0), has(1)) {
            (true, true) => {
                return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into());
            }
            (saves, false) => saves.then_some(true),
            (false, true) => Some(false),
        };
        Ok(Manner {
            saves,
            is_now: has(2),
            is_forced: has(3),
        })
    }

    fn value(manner: &Manner) -> Value {
        let bits = [
            manner.saves == Some(true),
            manner.saves == Some(false),
            manner.is_now,
            manner.is_forced,
        ];
        let bits = bits.into_iter().enumerate();
        Value::Integer(bits.map(|(at, is_set)| i64::from(is_set) << at).sum())
    }
}

/// Codec of the primary: host and port; no words are none.
pub struct PrimaryAddress;

impl Codec<Option<(String, u16)>> for PrimaryAddress {
    fn of(value: &Value) -> Result<Option<(String, u16)>, Refusal> {
        let [host, port] = value.words() else {
            return Ok(None);
        };
        let host = String::from_utf8(host.clone()).map_err(|_| "the host is not UTF-8");
        let port = number::parse_i64(port).and_then(|port| u16::try_from(port).ok());
        Ok(Some((host?, port.ok_or("Invalid master port")?)))
    }

    fn value(primary: &Option<(String, u16)>) -> Value {
        let words = primary.as_ref().map(|(host, port)| {
            let port = port.to_string().into_bytes();
            vec![host.clone().into_bytes(), port]
        });
        Value::Words(words.unwrap_or_default())
    }
}

/// Codec of the policy of flushing, by words.
pub struct AppendSync;

choices! {
    AppendSync: Policy { "everysec" => EverySecond, "always" => Always, "no" => No }
}

/// Codec of the way of a primary's snapshot, by words.
pub struct DisklessLoading;

choices! {
    DisklessLoading: DisklessLoad {
        "disabled" => Never,
        "on-empty-db" => OnEmpty,
        "swapdb" => Beside,
        "flush-before-load" => Emptied,
    }
}

/// Codec of what follows a command of a primary or a file that fails.
pub struct OnRefusedEffect;

choices! {
    OnRefusedEffect: RefusedEffects { "ignore" => Ignore, "panic" => End, "panic-on-replicas" => EndReplicas }
}

/// Codec of save points: seconds and changes.
pub struct SavePoints;

impl Codec<Vec<(u64, u64)>> for SavePoints {
    fn of(value: &Value) -> Result<Vec<(u64, u64)>, Refusal> {
        let number = |word: &Vec<u8>| number::parse_i64(word).unwrap_or(0) as u64;
        let pairs = value.words().chunks_exact(2);
        Ok(pairs
            .map(|pair| (number(&pair[0]), number(&pair[1])))
            .collect())
    }

    fn value(points: &Vec<(u64, u64)>) -> Value {
        let words = points
            .iter()
            .flat_map(|(seconds, changes)| [seconds, changes]);
        Value::Words(words.map(|n| n.to_string().into_bytes()).collect())
    }
}

/// Codec of the version of the format of snapshots, by name; `None`: the lowest that holds the data.
pub struct RdbFormat;

impl RdbFormat {
    /// Names of the values.
    pub const NAMES: &[&str] = &["auto", "9", "10", "11", "12", "80"];
    const VERSIONS: &[Option<FileVersion>] = &[
        None,
        Some(FileVersion::Redis(9)),
        Some(FileVersion::Redis(10)),
        Some(FileVersion::Redis(11)),
        Some(FileVersion::Redis(12)),
        Some(FileVersion::VALKEY),
    ];
}

impl Codec<Option<FileVersion>> for RdbFormat {
    fn of(value: &Value) -> Result<Option<FileVersion>, Refusal> {
        Ok(Self::VERSIONS[value.integer() as usize])
    }

    fn value(version: &Option<FileVersion>) -> Value {
        let at = Self::VERSIONS.iter().position(|known| known == version);
        Value::Integer(at.unwrap_or(0) as i64)
    }
}

/// Codec of the working directory. By default it is the process's; if set, it is a path, and must not be empty.
pub struct WorkingDir;

impl Codec<Option<PathBuf>> for WorkingDir {
    fn of(value: &Value) -> Result<Option<PathBuf>, Refusal> {
        let path = OsStr::from_bytes(value.bytes());
        Ok((!path.is_empty()).then(|| path.into()))
    }

    fn value(dir: &Option<PathBuf>) -> Value {
        let dir = dir.clone().or_else(|| std::env::current_dir().ok());
        Value::Text(dir.unwrap_or_default().into_os_string().into_vec())
    }

    fn set(dir: &mut Option<PathBuf>, value: &Value) -> Result<(), Refusal> {
        *dir = Some(OsStr::from_bytes(value.bytes()).into());
        Ok(())
    }
}

/// Codec of limits by class of clients; a class that a value does not name keeps its limit.
pub struct OutputLimits;

impl Codec<[OutputLimit; 3]> for OutputLimits {
    fn of(value: &Value) -> Result<[OutputLimit; 3], Refusal> {
        let mut limits = [OutputLimit::NONE; 3];
        Self::set(&mut limits, value)?;
        Ok(limits)
    }

    fn value(limits: &[OutputLimit; 3]) -> Value {
        let mut words = Vec::new();
        for (name, limit) in OUTPUT_CLASSES.iter().zip(limits) {
            words.push(name.as_bytes().to_vec());
            words.push(limit.hard_bytes.to_string().into_bytes());
            words.push(limit.soft_bytes.to_string().into_bytes());
            words.push(limit.soft_seconds.to_string().into_bytes());
        }
        Value::Words(words)
    }

    fn set(limits: &mut [OutputLimit; 3], value: &Value) -> Result<(), Refusal> {
        for group in value.words().chunks(4) {
            let (class, limit) = (output_class(&group[0]), output_limit(&group[1..]));
            if let (Some(class), Some(limit)) = (class, limit) {
                limits[class] = limit;
            }
        }
        Ok(())
    }
}
