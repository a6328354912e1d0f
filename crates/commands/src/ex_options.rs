//! Options that the commands of exStrings and exHashes have in common: an expiry, a version, bounds. Their numbers are
//! read with the errors of Tair's modules. Must not know any one command.

use redline_types::{
    ex_string::VERSION_MAX,
    number::{Extended, parse_f64, parse_i64},
};

use crate::{Error, words::Words};

pub(crate) const STALE: Error = Error::line("ERR update version is stale");
const LAST_VERSION: Error = Error::line(
    "ERR the version is 9223372036854775807 and none comes behind it, set a lower one first",
);
pub(crate) const NOT_AN_INTEGER: Error = Error::line("ERR value is not an integer");
pub(crate) const BAD_BOUNDS: Error = Error::line("ERR min or max is specified, but not valid");

/// Change of an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewExpiry {
    /// It is removed.
    Clear,
    /// It stays.
    Keep,
    /// It is this Unix time in milliseconds.
    AtMs(i64),
}

/// Condition on a version, and the one that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewVersion {
    /// The next one, whatever the present one is.
    Next,
    /// The next one, if the present one is this; 0: whatever it is.
    After(u64),
    /// This one.
    Absolute(u64),
    /// This one, if the present one is lower.
    Greater(u64),
}

impl NewVersion {
    /// Returns the version that follows on one that is there.
    pub(crate) fn of(self, present: u64) -> Result<u64, Error> {
        match self {
            NewVersion::After(version) if version != 0 && version != present => Err(STALE),
            NewVersion::Greater(version) if version <= present => Err(STALE),
            NewVersion::Absolute(version) | NewVersion::Greater(version) => Ok(version),
            NewVersion::Next | NewVersion::After(_) => next_version(present),
        }
    }

    /// Returns the version of something new.
    pub(crate) fn of_new(self) -> u64 {
        match self {
            NewVersion::Absolute(version) | NewVersion::Greater(version) => version,
            NewVersion::Next | NewVersion::After(_) => 1,
        }
    }
}

/// Returns the version behind this one.
///
/// # Errors
///
/// If it is the last one that commands, those in the journal too, can name.
pub(crate) fn next_version(present: u64) -> Result<u64, Error> {
    match present < VERSION_MAX {
        true => Ok(present + 1),
        false => Err(LAST_VERSION),
    }
}

/// Reads an integer for which every error is one of syntax.
pub(crate) fn number(word: &[u8]) -> Result<i64, Error> {
    parse_i64(word).ok_or(Error::Syntax)
}

/// Reads a version that is not negative.
pub(crate) fn version(word: &[u8]) -> Result<u64, Error> {
    u64::try_from(number(word)?).map_err(|_| Error::Syntax)
}

/// Returns the Unix time in milliseconds of a time of this many milliseconds a unit; `base_ms`: when it begins.
pub(crate) fn at_ms(time: i64, unit_ms: i64, base_ms: i64) -> Result<i64, Error> {
    let span_ms = time.checked_mul(unit_ms).ok_or(Error::Syntax)?;
    span_ms.checked_add(base_ms).ok_or(Error::Syntax)
}

/// Takes an expiry; the least number that is one is `least`.
pub(crate) fn expiry(words: &mut Words<'_>, now_ms: i64, least: i64) -> Result<Option<i64>, Error> {
    let units = [
        ("EX", (1000, now_ms)),
        ("PX", (1, now_ms)),
        ("EXAT", (1000, 0)),
        ("PXAT", (1, 0)),
    ];
    let Some(((unit_ms, base_ms), time)) = words.value_of(&units) else {
        return Ok(None);
    };
    let time = number(time)?;
    match time < least {
        true => Err(Error::Syntax),
        false => at_ms(time, unit_ms, base_ms).map(Some),
    }
}

/// Options of a call, as far as its command has them.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    pub(crate) expiry: NewExpiry,
    pub(crate) version: NewVersion,
    /// True if it must be there (XX), false if it must not (NX).
    pub(crate) exists: Option<bool>,
    pub(crate) flags: Option<u32>,
    pub(crate) default: Option<&'a [u8]>,
    pub(crate) min: Option<&'a [u8]>,
    pub(crate) max: Option<&'a [u8]>,
    pub(crate) is_nonnegative: bool,
    pub(crate) with_version: bool,
}

/// Options that a command has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Has {
    /// EX, PX, EXAT, PXAT and KEEPTTL, and the least number of an expiry.
    pub(crate) expiry_from: Option<i64>,
    /// NX and XX.
    pub(crate) condition: bool,
    /// VER and ABS.
    pub(crate) version: bool,
    /// GT, and ABS is not 0.
    pub(crate) greater: bool,
    /// FLAGS.
    pub(crate) flags: bool,
    /// MIN and MAX.
    pub(crate) bounds: bool,
    /// DEF and NONEGATIVE.
    pub(crate) default: bool,
    /// WITHVERSION.
    pub(crate) with_version: bool,
}

impl<'a> Options<'a> {
    /// Reads the arguments that are left.
    pub(crate) fn parse(mut words: Words<'a>, has: Has, now_ms: i64) -> Result<Options<'a>, Error> {
        let mut options = Options {
            expiry: NewExpiry::Clear,
            version: NewVersion::Next,
            exists: None,
            flags: None,
            default: None,
            min: None,
            max: None,
            is_nonnegative: false,
            with_version: false,
        };
        while !words.is_empty() {
            if options.condition(&mut words, has)?
                || options.version(&mut words, has)?
                || options.bound(&mut words, has)?
            {
                continue;
            }
            if let Some(least) = has.expiry_from {
                let new = match words.flag("KEEPTTL") {
                    true => Some(NewExpiry::Keep),
                    false => expiry(&mut words, now_ms, least)?.map(NewExpiry::AtMs),
                };
                if let Some(new) = new {
                    if !matches!(
                        (options.expiry, new),
                        (NewExpiry::Clear, _) | (NewExpiry::Keep, NewExpiry::Keep)
                    ) {
                        return Err(Error::Syntax);
                    }
                    options.expiry = new;
                    continue;
                }
            }
            if has.flags
                && let Some(flags) = words.value("FLAGS")
            {
                let flags = u32::try_from(number(flags)?).map_err(|_| Error::Syntax)?;
                if options.flags.replace(flags).is_some() {
                    return Err(Error::Syntax);
                }
            } else if has.with_version && words.flag("WITHVERSION") {
                options.with_version = true;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(options)
    }

    fn condition(&mut self, words: &mut Words<'a>, has: Has) -> Result<bool, Error> {
        if !has.condition {
            return Ok(false);
        }
        let Some(exists) = words.one_of(&[("NX", false), ("XX", true)]) else {
            return Ok(false);
        };
        match self.exists.replace(exists) {
            Some(old) if old != exists => Err(Error::Syntax),
            _ => Ok(true),
        }
    }

    fn version(&mut self, words: &mut Words<'a>, has: Has) -> Result<bool, Error> {
        if !has.version {
            return Ok(false);
        }
        let new = if let Some(word) = words.value("VER") {
            NewVersion::After(version(word)?)
        } else if let Some(word) = words.value("ABS") {
            NewVersion::Absolute(version(word)?)
        } else if has.greater
            && let Some(word) = words.value("GT")
        {
            NewVersion::Greater(version(word)?)
        } else {
            return Ok(false);
        };
        let is_zero = matches!(new, NewVersion::Absolute(0) | NewVersion::Greater(0));
        if self.version != NewVersion::Next || has.greater && is_zero {
            return Err(Error::Syntax);
        }
        self.version = new;
        Ok(true)
    }

    fn bound(&mut self, words: &mut Words<'a>, has: Has) -> Result<bool, Error> {
        let taken = if has.bounds
            && let Some(min) = words.value("MIN")
        {
            self.min.replace(min)
        } else if has.bounds
            && let Some(max) = words.value("MAX")
        {
            self.max.replace(max)
        } else if has.default
            && let Some(default) = words.value("DEF")
        {
            self.default.replace(default)
        } else if has.default && words.flag("NONEGATIVE") {
            self.is_nonnegative = true;
            None
        } else {
            return Ok(false);
        };
        match taken {
            Some(_) => Err(Error::Syntax),
            None => Ok(true),
        }
    }

    /// Returns the bounds as integers.
    pub(crate) fn integer_bounds(&self) -> Result<(i64, i64), Error> {
        let read = |word: Option<&[u8]>, none| match word {
            Some(word) => parse_i64(word).ok_or(BAD_BOUNDS),
            None => Ok(none),
        };
        let (min, max) = (read(self.min, i64::MIN)?, read(self.max, i64::MAX)?);
        match min > max {
            true => Err(BAD_BOUNDS),
            false => Ok((min, max)),
        }
    }

    /// Returns the bounds as numbers.
    pub(crate) fn float_bounds(&self) -> Result<(f64, f64), Error> {
        let read = |word: Option<&[u8]>, none| match word {
            Some(word) => parse_f64(word).ok_or(BAD_BOUNDS),
            None => Ok(none),
        };
        let (min, max) = (
            read(self.min, f64::NEG_INFINITY)?,
            read(self.max, f64::INFINITY)?,
        );
        match min > max {
            true => Err(BAD_BOUNDS),
            false => Ok((min, max)),
        }
    }
}

/// Returns the sum of two integers, if it is within bounds.
pub(crate) fn sum_within(a: i64, b: i64, (min, max): (i64, i64)) -> Result<i64, Error> {
    let sum = a.checked_add(b).filter(|sum| (min..=max).contains(sum));
    sum.ok_or(Error::Overflow)
}

/// Returns the sum of two numbers as text, if it is within bounds. `not_a_number`: the error for a text that is none.
pub(crate) fn float_sum_within(
    a: &[u8],
    b: &[u8],
    (min, max): (f64, f64),
    not_a_number: Error,
) -> Result<Vec<u8>, Error> {
    let read = |text| Extended::parse(text).ok_or(not_a_number.clone());
    let (a, b) = (read(a)?, read(b)?);
    let sum = a.checked_add(b).filter(|sum| sum.is_finite());
    let mut text = Vec::new();
    sum.ok_or(Error::Overflow)?.format(&mut text);
    match parse_f64(&text).is_some_and(|sum| (min..=max).contains(&sum)) {
        true => Ok(text),
        false => Err(Error::Overflow),
    }
}
