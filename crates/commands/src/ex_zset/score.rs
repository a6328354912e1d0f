//! Scores of several parts as text. Must not know commands.

use redline_resp::Reply;
use redline_types::{
    number::parse_f64,
    zset::{
        ScoreBound,
        several::{Bound, PARTS_MAX},
    },
};

use crate::Error;

pub(super) const INVALID_SCORE: Error = Error::line("ERR score is not a valid format");
pub(super) const INVALID_BOUND: Error = Error::line("ERR min or max is not a float");

/// Significant digits of a part.
const DIGITS: usize = 17;

/// Reads the parts of a score, none of which is NaN.
pub(super) fn parse(text: &[u8]) -> Option<Vec<f64>> {
    let parts = text.split(|byte| *byte == b'#').take(PARTS_MAX + 1);
    let score: Vec<f64> = parts.map(parse_f64).collect::<Option<_>>()?;
    (score.len() <= PARTS_MAX).then_some(score)
}

/// Reads a bound of a range of scores.
pub(super) fn bound(text: &[u8]) -> Result<Bound, Error> {
    let (exclusive, text) = match text {
        [b'(', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let parts = text.split(|byte| *byte == b'#').take(PARTS_MAX + 1);
    let read = |part: &[u8]| match part {
        [] | [b'(', ..] => Err(INVALID_BOUND),
        part => match ScoreBound::parse(part) {
            Ok(bound) => Ok(bound.score),
            Err(_) => Err(INVALID_BOUND),
        },
    };
    let score = parts.map(read).collect::<Result<Vec<_>, _>>()?;
    match score.len() <= PARTS_MAX {
        true => Ok(Bound { score, exclusive }),
        false => Err(INVALID_BOUND),
    }
}

/// Writes a score as a bulk string.
pub(super) fn write(reply: &mut Reply<'_>, score: &[f64]) {
    let mut text = String::new();
    for (at, part) in score.iter().enumerate() {
        if at > 0 {
            text.push('#');
        }
        push(&mut text, *part);
    }
    reply.bulk(text.as_bytes());
}

/// Appends a number with 17 significant digits at most, as C's `%.17g` does.
fn push(text: &mut String, number: f64) {
    use std::fmt::Write;
    if number.is_infinite() {
        text.push_str(if number > 0.0 { "inf" } else { "-inf" });
        return;
    }
    if number.fract() == 0.0 && number.abs() < 1e15 {
        let sign = if number == 0.0 && number.is_sign_negative() {
            "-"
        } else {
            ""
        };
        write!(text, "{sign}{}", number as i64).expect("a string takes everything");
        return;
    }
    let scientific = format!("{:.*e}", DIGITS - 1, number);
    let (digits, exponent) = scientific.split_once('e').expect("it has an exponent");
    let exponent: i32 = exponent.parse().expect("it is a number");
    if !(-4..DIGITS as i32).contains(&exponent) {
        let digits = trimmed(digits);
        let (sign, size) = (if exponent < 0 { '-' } else { '+' }, exponent.abs());
        write!(text, "{digits}e{sign}{size:02}").expect("a string takes everything");
        return;
    }
    let decimals = (DIGITS as i32 - 1 - exponent) as usize;
    text.push_str(trimmed(&format!("{number:.decimals$}")));
}

/// Returns a number without the zeros behind its last decimal.
fn trimmed(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_of_c() {
        for (number, text) in [
            (1.0, "1"),
            (1.1, "1.1000000000000001"),
            (-2.5, "-2.5"),
            (0.0, "0"),
            (-0.0, "-0"),
            (1e15, "1000000000000000"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e300, "1.5000000000000001e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (123_456_789.125, "123456789.125"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "4.9406564584124654e-324"),
        ] {
            let mut found = String::new();
            push(&mut found, number);
            assert_eq!(found, text);
        }
    }

    #[test]
    fn scores_have_parts() {
        assert_eq!(
            parse(b"1#2.5#-inf"),
            Some(vec![1.0, 2.5, f64::NEG_INFINITY])
        );
        for text in ["", "#", "1#", "1##2", "x", "1#x", "nan", "1#nan", "(1"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        let many = vec!["1"; PARTS_MAX].join("#");
        assert_eq!(
            parse(many.as_bytes()).map(|score| score.len()),
            Some(PARTS_MAX)
        );
        let more = format!("{many}#1");
        assert_eq!(parse(more.as_bytes()), None);
        assert!(bound(more.as_bytes()).is_err());
        let found = bound(b"(1#2").expect("a bound");
        assert_eq!((found.score, found.exclusive), (vec![1.0, 2.0], true));
        assert!(bound(b"1#(2").is_err());
    }
}
