//! Checks for the values of one parameter, or a few: addresses, save points, names. Must not know: fields.

use redline_settings::{
    codec::NOT_UTF8,
    row::Line,
    value::{RawValue, Refusal, Value, c_string, memory_text, parse_memory},
};
use redline_types::number;

use crate::{service::is_title_template, settings::OutputLimit};

pub fn no(text: &[u8]) -> bool {
    text == b"no"
}

pub fn zero(text: &[u8]) -> bool {
    text == b"0"
}

pub fn empty(text: &[u8]) -> bool {
    text.is_empty()
}

fn owned(words: &RawValue<'_>) -> Vec<Vec<u8>> {
    words
        .iter()
        .filter(|word| !word.is_empty())
        .map(|word| word.to_vec())
        .collect()
}

/// Checks addresses, at most as many as Redis takes; a worker could not distinguish more listeners from its clients.
pub fn addresses(words: &RawValue<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    const ADDRESSES_MAX: usize = 16;
    match words.len() > ADDRESSES_MAX {
        true => Err("Too many bind addresses specified.".into()),
        false => Ok(owned(words)),
    }
}

/// Checks names of hosts: any, a few of them.
pub fn host_names(words: &RawValue<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    const NAMES_MAX: usize = 64;
    match words.len() > NAMES_MAX {
        true => Err("Too many names of hosts specified.".into()),
        false => Ok(owned(words)),
    }
}

/// Checks host and port; `no one` is none.
pub fn primary(words: &RawValue<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    let is = |at: usize, word: &str| words[at].eq_ignore_ascii_case(word.as_bytes());
    match words.len() {
        2 if is(0, "no") && is(1, "one") => Ok(Vec::new()),
        2 => Ok(owned(words)),
        // CONFIG GET's form for none.
        0 => Ok(Vec::new()),
        1 if words[0].is_empty() => Ok(Vec::new()),
        _ => Err("wrong number of arguments".into()),
    }
}

/// Parses a number; an empty word counts as 0, as in Redis's lists.
fn number_or_nothing(word: &[u8]) -> Option<i64> {
    match word {
        b"" => Some(0),
        word => number::parse_i64(word),
    }
}

/// Returns true for CONFIG SET with an empty text: no words.
fn is_nothing(words: &RawValue<'_>) -> bool {
    matches!(words, [] | [b""])
}

fn plain_name<'a>(name: &'a [u8], refusal: &'static str) -> Result<&'a [u8], Refusal> {
    let name = c_string(name);
    match name {
        _ if name.contains(&b'/') => Err(refusal.into()),
        _ if std::str::from_utf8(name).is_err() => Err(NOT_UTF8.into()),
        name => Ok(name),
    }
}

/// Checks the name of a file in the working directory.
pub fn file_name(name: &[u8]) -> Result<&[u8], Refusal> {
    plain_name(name, "dbfilename can't be a path, just a filename")
}

/// Checks the beginning of the names of the append-only files.
pub fn append_filename(name: &[u8]) -> Result<&[u8], Refusal> {
    match name {
        b"" => Err("appendfilename can't be empty".into()),
        name => plain_name(name, "appendfilename can't be a path, just a filename"),
    }
}

/// Checks the name of the folder of the append-only files.
pub fn append_dir_name(name: &[u8]) -> Result<&[u8], Refusal> {
    match name {
        b"" => Err("appenddirname can't be empty".into()),
        name => plain_name(name, "appenddirname can't be a path, just a dirname"),
    }
}

pub fn save_points(words: &RawValue<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    let invalid = || Err("Invalid save parameters".into());
    if is_nothing(words) {
        return Ok(Vec::new());
    }
    let mut points = Vec::new();
    for pair in words.chunks(2) {
        let [seconds, changes] = pair else {
            return invalid();
        };
        match (number_or_nothing(seconds), number_or_nothing(changes)) {
            (Some(seconds @ 1..), Some(changes @ 0..)) => points.extend([seconds, changes]),
            _ => return invalid(),
        }
    }
    Ok(points.iter().map(|n| n.to_string().into_bytes()).collect())
}

pub fn oom_scores(words: &RawValue<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    if words.len() != 3 {
        return Err("wrong number of arguments".into());
    }
    let scores = words
        .iter()
        .map(|word| number_or_nothing(word).filter(|n| (-2000..=2000).contains(n)));
    let scores: Option<Vec<i64>> = scores.collect();
    match scores {
        Some(scores) => Ok(scores.iter().map(|n| n.to_string().into_bytes()).collect()),
        None => {
            Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".into())
        }
    }
}

pub fn percentiles(words: &RawValue<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    if is_nothing(words) {
        return Ok(Vec::new());
    }
    let mut shown = Vec::new();
    for word in words {
        match number::parse_f64(word) {
            None => return Err("Invalid latency-tracking-info-percentiles parameters".into()),
            Some(n) if !(0.0..=100.0).contains(&n) => {
                return Err(
                    "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
                        .into(),
                );
            }
            Some(n) => {
                let text = format!("{n:.6}");
                let text = text.trim_end_matches('0').trim_end_matches('.');
                shown.push(text.as_bytes().to_vec());
            }
        }
    }
    Ok(shown)
}

pub fn hostname(name: &[u8]) -> Result<&[u8], Refusal> {
    const BYTES_MAX: usize = 255;
    let name = c_string(name);
    let right = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if name.len() > BYTES_MAX {
        return Err("Hostnames must be less than 256 characters".into());
    }
    match name.iter().all(right) {
        true => Ok(name),
        false => Err("Hostnames may only contain alphanumeric characters, hyphens or dots".into()),
    }
}

pub fn ipv4(address: &[u8]) -> Result<&[u8], Refusal> {
    addressed::<std::net::Ipv4Addr>(address).ok_or_else(|| "Invalid IPv4 address".into())
}

pub fn ipv6(address: &[u8]) -> Result<&[u8], Refusal> {
    addressed::<std::net::Ipv6Addr>(address).ok_or_else(|| "Invalid IPv6 address".into())
}

/// Returns an address of that kind, or none.
fn addressed<A: std::str::FromStr>(address: &[u8]) -> Option<&[u8]> {
    let address = c_string(address);
    let is_one = || std::str::from_utf8(address).ok()?.parse::<A>().ok();
    (address.is_empty() || is_one().is_some()).then_some(address)
}

pub fn node_name(name: &[u8]) -> Result<&[u8], Refusal> {
    let wrong = |byte: &u8| NODE_NAME_REFUSED.contains(byte);
    match name.iter().any(wrong) {
        true => Err("Announced human node name contained invalid character".into()),
        false => Ok(name),
    }
}

const NODE_NAME_REFUSED: &[u8] = b"\0!#$%&()*+:;<>?@[]^{|}~";

/// Checks the form of a locale's name; the machine's locales are not checked, since none has an effect.
pub fn locale(name: &[u8]) -> Result<&[u8], Refusal> {
    let name = c_string(name);
    let (place, _) = split_at_any(name, b".@");
    let right = match split_at_any(place, b"_") {
        (b"" | b"C" | b"POSIX", b"") => true,
        (language, place) => {
            (2..=3).contains(&language.len())
                && language.iter().all(u8::is_ascii_lowercase)
                && (place.is_empty()
                    || place.len() == 3 && place[1..].iter().all(u8::is_ascii_uppercase))
        }
    };
    match right && (!place.is_empty() || name.is_empty()) {
        true => Ok(name),
        false => Err("Invalid locale name".into()),
    }
}

/// Returns the text before the first of these bytes, and the rest from there on.
pub fn split_at_any<'a>(text: &'a [u8], bytes: &[u8]) -> (&'a [u8], &'a [u8]) {
    let at = text.iter().position(|byte| bytes.contains(byte));
    text.split_at(at.unwrap_or(text.len()))
}

/// Classes of clients in CONFIG GET's names.
pub const OUTPUT_CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];
/// The same in CONFIG REWRITE's names.
const OUTPUT_CLASSES_NOW: [&str; 3] = ["normal", "replica", "pubsub"];

pub fn output_class(word: &[u8]) -> Option<usize> {
    let word = if word.eq_ignore_ascii_case(b"replica") {
        b"slave"
    } else {
        word
    };
    OUTPUT_CLASSES
        .iter()
        .position(|name| name.as_bytes().eq_ignore_ascii_case(word))
}

pub fn output_limit(words: &[Vec<u8>]) -> Option<OutputLimit> {
    Some(OutputLimit {
        hard_bytes: parse_memory(&words[0])?,
        soft_bytes: parse_memory(&words[1])?,
        soft_seconds: u64::try_from(number_or_nothing(&words[2])?).ok()?,
    })
}

pub fn output_limits(words: &RawValue<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    if is_nothing(words) {
        return Ok(Vec::new());
    }
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    for group in words.chunks(4) {
        if output_class(&group[0]).is_none() {
            return Err("Invalid client class specified in buffer limit configuration.".into());
        }
        if output_limit(&group[1..]).is_none() {
            return Err(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.".into(),
            );
        }
    }
    Ok(words)
}

/// Returns a line for each class of clients, with the class's current name.
pub fn output_limit_lines(value: &Value) -> Vec<Line> {
    let line = |group: &[Vec<u8>]| {
        let (class, limit) = (output_class(&group[0])?, output_limit(&group[1..])?);
        let words = [
            OUTPUT_CLASSES_NOW[class].into(),
            memory_text(limit.hard_bytes),
            memory_text(limit.soft_bytes),
            limit.soft_seconds.to_string(),
        ];
        Some(words.map(String::into_bytes).into())
    };
    value.words().chunks(4).filter_map(line).collect()
}

/// Checks a template of which a title can be made.
pub fn title_template(text: &[u8]) -> Result<&[u8], Refusal> {
    let text = c_string(text);
    match std::str::from_utf8(text) {
        Err(_) => Err(NOT_UTF8.into()),
        Ok(template) if is_title_template(template) => Ok(text),
        Ok(_) => Err("template format is invalid or contains unknown variables".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_takes_what_redis_takes() {
        type Check = fn(&[u8]) -> Result<&[u8], Refusal>;
        let cases: [(Check, &[&str], &[&str]); 5] = [
            (hostname, &["", "a-b.c"], &["a b", "a_b"]),
            (ipv4, &["", "1.2.3.4"], &["1.2.3", "::1", "x"]),
            (ipv6, &["", "::1"], &["1.2.3.4", "x"]),
            (node_name, &["", "name-1"], &["a(b", "a b{"]),
            (
                locale,
                &["", "C", "POSIX", "de_DE.UTF-8"],
                &["german", "de_de"],
            ),
        ];
        for (check, right, wrong) in cases {
            for text in right {
                assert_eq!(check(text.as_bytes()), Ok(text.as_bytes()), "{text}");
            }
            for text in wrong {
                assert!(check(text.as_bytes()).is_err(), "{text}");
            }
        }
    }

    #[test]
    fn words_are_checked_together() {
        type Check = fn(&RawValue<'_>) -> Result<Vec<Vec<u8>>, Refusal>;
        let cases: [(Check, &str, Option<&str>); 10] = [
            (primary, "no one", Some("")),
            (primary, "host 1", Some("host 1")),
            (primary, "host", None),
            (save_points, "60 1 5", None),
            (save_points, "60 1", Some("60 1")),
            (oom_scores, "0 200 800", Some("0 200 800")),
            (oom_scores, "0 200 8000", None),
            (percentiles, "50.0 99.90", Some("50 99.9")),
            (percentiles, "101", None),
            (output_limits, "nobody 1 2 3", None),
        ];
        for (check, text, kept) in cases {
            let words: Vec<&[u8]> = text.as_bytes().split(|byte| *byte == b' ').collect();
            let taken = check(&words).ok().map(|words| words.join(&b' '));
            assert_eq!(taken.as_deref(), kept.map(str::as_bytes), "{text}");
        }
    }
}
