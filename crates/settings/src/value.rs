//! Syntax of parameters: the values that they take, how values are written, and how they are shown. Must not know any parameter.

use redline_types::number;

/// The value of a parameter before it is parsed: words of a configuration file, the command line or CONFIG SET.
pub type RawValue<'a> = [&'a [u8]];

/// Reason why a value was refused: the end of Redis's error line.
pub type Refusal = String;

/// A checked value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Holds `yes` or `no`.
    Switch(bool),
    /// Holds a number; a choice's index; a percentage as its negative.
    Integer(i64),
    /// Holds any text.
    Text(Vec<u8>),
    /// Holds several words.
    Words(Vec<Vec<u8>>),
}

impl Value {
    /// Returns the switch.
    pub fn is_on(&self) -> bool {
        matches!(self, Value::Switch(true))
    }

    /// Returns the number; 0 for a value that is not a number.
    pub fn integer(&self) -> i64 {
        match self {
            Value::Integer(n) => *n,
            _ => 0,
        }
    }

    /// Returns the bytes; none for a value that is not a text.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Value::Text(text) => text,
            _ => b"",
        }
    }

    /// Returns the words; none for a value without words.
    pub fn words(&self) -> &[Vec<u8>] {
        match self {
            Value::Words(words) => words,
            _ => &[],
        }
    }
}

/// Notation of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// In decimal.
    Plain,
    /// As permission bits.
    Octal,
    /// In bytes, with `k`, `kb`, `m`, `mb`, `g`, `gb` for more.
    Memory,
    /// As `Memory`, or as a percentage.
    MemoryOrPercent,
}

/// Syntax of a parameter's values.
#[derive(Clone, Copy, Debug)]
pub enum Syntax {
    /// `yes` or `no`.
    Switch,
    /// A number from `min` to `max`.
    Integer {
        /// Smallest value.
        min: i64,
        /// Largest value; `i64::MAX` also stands for Redis's unsigned limits.
        max: i64,
        /// Notation.
        unit: Unit,
        /// True if a negative number has an error text of its own.
        unsigned: bool,
    },
    /// One of the words, in any case.
    Choice(&'static [&'static str]),
    /// Any of the words; each stands for a bit, the first for none.
    Bits(&'static [&'static str]),
    /// Any text; as in Redis, which keeps it as a C string, up to the first zero.
    Text,
    /// Any text, zeros included.
    Bytes,
    /// Text that a function checks, which returns the part that is kept.
    Checked(fn(&[u8]) -> Result<&[u8], Refusal>),
    /// Several words, which a function checks.
    Words(fn(&RawValue<'_>) -> Result<Vec<Vec<u8>>, Refusal>),
}

/// Syntax of `yes` or `no`.
pub const SWITCH: Syntax = Syntax::Switch;
/// Syntax of any text.
pub const TEXT: Syntax = Syntax::Text;
/// Largest number where Redis keeps an `int`.
pub const INT_MAX: i64 = i32::MAX as i64;
/// Syntax of a TCP port.
pub const PORT: Syntax = int(0, 65535);
/// Syntax of a number of seconds, or of another number that Redis keeps as an `int`.
pub const SECONDS: Syntax = int(0, INT_MAX);

/// Returns the syntax of a number.
pub const fn int(min: i64, max: i64) -> Syntax {
    Syntax::Integer {
        min,
        max,
        unit: Unit::Plain,
        unsigned: false,
    }
}

/// Returns the syntax of a number; a negative one has an error text of its own.
pub const fn unsigned(min: i64, max: i64) -> Syntax {
    Syntax::Integer {
        min,
        max,
        unit: Unit::Plain,
        unsigned: true,
    }
}

/// Returns the syntax of bytes. Redis keeps some sizes as signed numbers and others not, which its error texts for
/// values beyond 2^63 show.
pub const fn memory(min: i64) -> Syntax {
    Syntax::Integer {
        min,
        max: i64::MAX,
        unit: Unit::Memory,
        unsigned: false,
    }
}

/// Returns the syntax of bytes; see [`memory`].
pub const fn size(min: i64) -> Syntax {
    Syntax::Integer {
        min,
        max: i64::MAX,
        unit: Unit::Memory,
        unsigned: true,
    }
}

const WRONG_COUNT: &str = "wrong number of arguments";

impl Syntax {
    /// Returns true if CONFIG SET's one argument holds several words.
    pub fn is_wordy(self) -> bool {
        matches!(self, Syntax::Words(_) | Syntax::Bits(_))
    }

    /// Reads a value.
    pub fn parse(self, words: &RawValue<'_>) -> Result<Value, Refusal> {
        match self {
            Syntax::Words(check) => return check(words).map(Value::Words),
            Syntax::Bits(names) => return parse_bits(names, words).map(Value::Integer),
            _ => {}
        }
        let [word] = words else {
            return Err(WRONG_COUNT.into());
        };
        match self {
            Syntax::Switch if word.eq_ignore_ascii_case(b"yes") => Ok(Value::Switch(true)),
            Syntax::Switch if word.eq_ignore_ascii_case(b"no") => Ok(Value::Switch(false)),
            Syntax::Switch => Err("argument must be 'yes' or 'no'".into()),
            Syntax::Choice(names) => match position(names, word) {
                Some(index) => Ok(Value::Integer(index as i64)),
                None => Err(one_of(names)),
            },
            Syntax::Integer {
                min,
                max,
                unit,
                unsigned,
            } => parse_integer(word, min, max, unit, unsigned).map(Value::Integer),
            Syntax::Checked(check) => check(word).map(|text| Value::Text(text.to_vec())),
            Syntax::Bytes => Ok(Value::Text(word.to_vec())),
            _ => Ok(Value::Text(c_string(word).to_vec())),
        }
    }

    /// Returns the value as it is shown, and written to a file.
    pub fn text(self, value: &Value) -> Vec<u8> {
        match (self, value) {
            (_, Value::Switch(on)) => if *on { "yes" } else { "no" }.into(),
            (_, Value::Text(text)) => text.clone(),
            (_, Value::Words(words)) => words.join(&b' '),
            (Syntax::Choice(names), Value::Integer(index)) => names
                .get(*index as usize)
                .copied()
                .unwrap_or_default()
                .into(),
            (Syntax::Bits(names), Value::Integer(bits)) => bits_text(names, *bits).into(),
            (
                Syntax::Integer {
                    unit: Unit::Octal, ..
                },
                Value::Integer(n),
            ) => format!("{n:o}").into(),
            (_, Value::Integer(n)) if *n < 0 && self.allows_percent() => {
                format!("{}%", n.unsigned_abs()).into()
            }
            (_, Value::Integer(n)) => n.to_string().into(),
        }
    }

    /// Returns the values in words, for an operator; `None` for any text, and for words that a function checks.
    pub fn values(self) -> Option<String> {
        Some(match self {
            Syntax::Switch => "yes or no".into(),
            Syntax::Choice([names @ .., last]) => format!("{} or {last}", names.join(", ")),
            Syntax::Bits(names) => format!("any of {}", names.join(", ")),
            Syntax::Integer { min, max, unit, .. } => match unit {
                Unit::Octal => format!("{min:o} to {max:o}, in octal"),
                Unit::Plain => numbers(min, max),
                Unit::Memory => sizes(min),
                Unit::MemoryOrPercent => format!("{}, or a percentage", sizes(min)),
            },
            Syntax::Choice([]) | Syntax::Text | Syntax::Bytes => return None,
            Syntax::Checked(_) | Syntax::Words(_) => return None,
        })
    }

    fn allows_percent(self) -> bool {
        matches!(
            self,
            Syntax::Integer {
                unit: Unit::MemoryOrPercent,
                ..
            }
        )
    }
}

/// Reads the default of a row.
///
/// # Panics
///
/// If it is no value of the syntax, which every structure of defaults would show.
pub fn default_of(syntax: Syntax, default: &str) -> Value {
    let words: Vec<&[u8]> = match syntax.is_wordy() {
        true => default
            .split(' ')
            .filter(|w| !w.is_empty())
            .map(str::as_bytes)
            .collect(),
        false => vec![default.as_bytes()],
    };
    syntax
        .parse(&words)
        .expect("the default of a row is of its syntax")
}

/// Returns the numbers of a range in words. A bound of a machine's integers is omitted.
pub fn numbers(min: i64, max: i64) -> String {
    match (min <= i32::MIN.into(), max >= INT_MAX) {
        (false, false) => format!("{min} to {max}"),
        (false, true) => format!("{min} or more"),
        (true, false) => format!("{max} or less"),
        (true, true) => "a number".into(),
    }
}

fn sizes(min: i64) -> String {
    match u64::try_from(min) {
        Ok(0) => "a size".into(),
        Ok(least) => format!("a size from {}", memory_text(least)),
        Err(_) => format!("a size, or {min}"),
    }
}

fn position(names: &[&str], word: &[u8]) -> Option<usize> {
    names
        .iter()
        .position(|name| name.as_bytes().eq_ignore_ascii_case(word))
}

fn one_of(names: &[&str]) -> Refusal {
    format!(
        "argument(s) must be one of the following: {}",
        names.join(", ")
    )
}

fn parse_bits(names: &[&str], words: &RawValue<'_>) -> Result<i64, Refusal> {
    if words.is_empty() {
        return Err(one_of(names));
    }
    words
        .iter()
        .try_fold(0, |bits, word| match position(names, word) {
            Some(0) => Ok(bits),
            Some(index) => Ok(bits | 1 << (index - 1)),
            None => Err(one_of(names)),
        })
}

fn bits_text(names: &[&str], bits: i64) -> String {
    let set = names.iter().skip(1).enumerate();
    let set: Vec<&str> = set
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .map(|(_, name)| *name)
        .collect();
    if set.is_empty() {
        names[0].into()
    } else {
        set.join(" ")
    }
}

fn parse_integer(
    word: &[u8],
    min: i64,
    max: i64,
    unit: Unit,
    unsigned: bool,
) -> Result<i64, Refusal> {
    let n = match unit {
        Unit::Plain => number::parse_i64(word)
            .ok_or_else(|| "argument couldn't be parsed into an integer".to_string())?,
        Unit::Octal => parse_octal(word)
            .ok_or_else(|| "argument couldn't be parsed as an octal number".to_string())?,
        Unit::Memory => {
            let below = number::parse_i64(word).filter(|n| min < 0 && *n < 0);
            let bytes = || match parse_memory(word)? {
                bytes if min < 0 => Some(i64::try_from(bytes).unwrap_or(i64::MIN)),
                bytes => Some(bytes as i64),
            };
            let n = below.or_else(bytes);
            n.ok_or_else(|| "argument must be a memory value".to_string())?
        }
        Unit::MemoryOrPercent => match word.strip_suffix(b"%").and_then(number::parse_i64) {
            Some(percent) if percent > 100 => {
                return Err("percentage argument must be less or equal to 100".into());
            }
            Some(percent) if percent >= 0 => return Ok(-percent),
            // A number beyond 2^63 counts as negative, and so as a percentage, as in Redis.
            _ => match parse_memory(word).map(|bytes| bytes as i64) {
                Some(percent) if (-100..0).contains(&percent) => return Ok(percent),
                Some(..0) => return Err("percentage argument must be less or equal to 100".into()),
                Some(bytes) => bytes,
                None => return Err("argument must be a memory or percent value".into()),
            },
        },
    };
    if (min..=max).contains(&n) {
        return Ok(n);
    }
    Err(match unit {
        _ if unsigned && n < 0 => "argument must be greater or equal to 0".into(),
        Unit::Octal => format!("argument must be between {min:o} and {max:o} inclusive"),
        _ => format!("argument must be between {min} and {max} inclusive"),
    })
}

fn parse_octal(word: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(word)
        .ok()
        .filter(|text| !text.is_empty())?;
    digits
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'7'))
        .then_some(())?;
    i64::from_str_radix(digits, 8).ok()
}

/// Reads `1gb`, `100mb`, `64kb`, `512`: decimal units without the `b`, binary ones with it. Digits may be missing, and
/// a number that does not fit 64 bits wraps around, as in Redis; bounds are checked by the caller.
pub fn parse_memory(word: &[u8]) -> Option<u64> {
    const DIGITS_MAX: usize = 127;
    const UNITS: [(&str, u64); 8] = [
        ("", 1),
        ("b", 1),
        ("k", 1000),
        ("kb", 1 << 10),
        ("m", 1_000_000),
        ("mb", 1 << 20),
        ("g", 1_000_000_000),
        ("gb", 1 << 30),
    ];
    let word = c_string(word);
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = word.split_at(digits);
    let unit = UNITS
        .iter()
        .find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(unit))?
        .1;
    if digits > DIGITS_MAX {
        return None;
    }
    let number = number.iter().fold(0u64, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    Some(number.wrapping_mul(unit))
}

/// Returns the bytes in the largest unit of which they are a multiple.
pub fn memory_text(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("gb", 30), ("mb", 20), ("kb", 10)];
    let whole = |shift: u32| bytes != 0 && bytes.trailing_zeros() >= shift;
    match UNITS.iter().find(|(_, shift)| whole(*shift)) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Returns the bytes before the first zero.
pub fn c_string(word: &[u8]) -> &[u8] {
    word.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_units() {
        for (text, bytes) in [
            ("1", Some(1)),
            ("1b", Some(1)),
            ("2k", Some(2000)),
            ("2Kb", Some(2048)),
            ("3m", Some(3_000_000)),
            ("3MB", Some(3 << 20)),
            ("1g", Some(1_000_000_000)),
            ("1GB", Some(1 << 30)),
            ("", Some(0)),
            ("gb", Some(0)),
            ("1kb\0x", Some(1024)),
            ("18446744073709551616", Some(u64::MAX)),
            ("-1", None),
            ("1 gb", None),
            ("1.5gb", None),
            ("1tb", None),
            (
                "9223372036854775807gb",
                Some((i64::MAX as u64).wrapping_mul(1 << 30)),
            ),
        ] {
            assert_eq!(parse_memory(text.as_bytes()), bytes, "{text}");
        }
    }

    #[test]
    fn values_are_told_in_words() {
        for (syntax, words) in [
            (SWITCH, "yes or no"),
            (Syntax::Choice(&["a", "b", "c"]), "a, b or c"),
            (PORT, "0 to 65535"),
            (SECONDS, "0 or more"),
            (int(-1, i64::MAX), "-1 or more"),
            (int(i32::MIN.into(), INT_MAX), "a number"),
            (size(0), "a size"),
            (memory(1 << 20), "a size from 1mb"),
            (memory(-1), "a size, or -1"),
        ] {
            assert_eq!(syntax.values().as_deref(), Some(words));
        }
        assert_eq!(TEXT.values(), None);
    }

    #[test]
    fn every_syntax_reads_what_it_shows() {
        let integer = |unit| Syntax::Integer {
            min: 0,
            max: 1 << 40,
            unit,
            unsigned: false,
        };
        for (syntax, words, shown) in [
            (Syntax::Switch, &["YES"][..], "yes"),
            (Syntax::Choice(&["a", "b"]), &["B"], "b"),
            (
                Syntax::Bits(&["default", "save", "now"]),
                &["now", "save"],
                "save now",
            ),
            (
                Syntax::Bits(&["default", "save", "now"]),
                &["default"],
                "default",
            ),
            (integer(Unit::Plain), &["7"], "7"),
            (integer(Unit::Octal), &["755"], "755"),
            (integer(Unit::Memory), &["1kb"], "1024"),
            (integer(Unit::MemoryOrPercent), &["10%"], "10%"),
            (Syntax::Text, &["a b"], "a b"),
        ] {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            let value = syntax.parse(&words).unwrap();
            assert_eq!(syntax.text(&value), shown.as_bytes());
        }
    }

    #[test]
    fn refusals_are_worded_as_redis_words_them() {
        let memory = |unsigned| Syntax::Integer {
            min: 0,
            max: i64::MAX,
            unit: Unit::Memory,
            unsigned,
        };
        let refusal = |syntax: Syntax, word: &str| syntax.parse(&[word.as_bytes()]).unwrap_err();
        let int = Syntax::Integer {
            min: 1,
            max: 64,
            unit: Unit::Plain,
            unsigned: false,
        };
        assert_eq!(
            refusal(int, "0"),
            "argument must be between 1 and 64 inclusive"
        );
        assert_eq!(
            refusal(int, "x"),
            "argument couldn't be parsed into an integer"
        );
        assert_eq!(
            refusal(memory(false), "9223372036854775808"),
            "argument must be between 0 and 9223372036854775807 inclusive"
        );
        assert_eq!(
            refusal(memory(true), "9223372036854775808"),
            "argument must be greater or equal to 0"
        );
        assert_eq!(
            refusal(Syntax::Switch, "1"),
            "argument must be 'yes' or 'no'"
        );
        let signed = Syntax::Integer {
            min: -1,
            max: i64::MAX,
            unit: Unit::Memory,
            unsigned: false,
        };
        assert_eq!(signed.parse(&[b"-1"]), Ok(Value::Integer(-1)));
        assert_eq!(signed.parse(&[b"1kb"]), Ok(Value::Integer(1024)));
        for word in ["-2", "18446744073709551615", "18446744073709551616"] {
            assert_eq!(
                refusal(signed, word),
                "argument must be between -1 and 9223372036854775807 inclusive"
            );
        }
        let choice = Syntax::Choice(&["ip", "hostname"]);
        assert_eq!(
            refusal(choice, "x"),
            "argument(s) must be one of the following: ip, hostname"
        );
        assert_eq!(
            int.parse(&[b"1", b"2"]).unwrap_err(),
            "wrong number of arguments"
        );
    }
}
