//! The ends of ranges of scores and of members, and their text. Must not know how members are stored, nor the error of
//! a refused text.

/// The text is not a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidBound;

/// One end of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreBound {
    /// The score.
    pub score: f64,
    /// True if the score itself is left out.
    pub exclusive: bool,
}

impl ScoreBound {
    /// Parses `1.5`, `(1.5`, `-inf`. As in Redis: text ends at a zero byte, no text is 0, a number that is too large is
    /// infinite.
    pub fn parse(text: &[u8]) -> Result<ScoreBound, InvalidBound> {
        let (exclusive, number) = match text {
            [b'(', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        let end = number.iter().position(|byte| *byte == 0);
        let number = &number[..end.unwrap_or(number.len())];
        let score = if number.is_empty() {
            0.0
        } else {
            fast_float2::parse::<f64, _>(number).map_err(|_| InvalidBound)?
        };
        if score.is_nan() {
            return Err(InvalidBound);
        }
        Ok(ScoreBound { score, exclusive })
    }
}

/// A range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreRange {
    /// The lower end.
    pub min: ScoreBound,
    /// The upper end.
    pub max: ScoreBound,
}

impl ScoreRange {
    /// Parses the two ends.
    pub fn parse(min: &[u8], max: &[u8]) -> Result<ScoreRange, InvalidBound> {
        Ok(ScoreRange {
            min: ScoreBound::parse(min)?,
            max: ScoreBound::parse(max)?,
        })
    }

    /// Returns true if a score is too low.
    #[inline]
    pub(super) fn is_below(&self, score: f64) -> bool {
        score < self.min.score || (self.min.exclusive && score == self.min.score)
    }

    /// Returns true if a score is too high.
    #[inline]
    pub(super) fn is_above(&self, score: f64) -> bool {
        score > self.max.score || (self.max.exclusive && score == self.max.score)
    }
}

/// One end of a range of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// The end before all members.
    Lowest,
    /// The end after all members.
    Highest,
    /// A member, which is in the range, and the members on its inner side.
    Inclusive(&'a [u8]),
    /// The range on the inner side of a member, without the member.
    Exclusive(&'a [u8]),
}

impl<'a> LexBound<'a> {
    /// Parses `-`, `+`, `[member`, `(member`.
    pub fn parse(text: &'a [u8]) -> Result<LexBound<'a>, InvalidBound> {
        match text {
            b"-" => Ok(LexBound::Lowest),
            b"+" => Ok(LexBound::Highest),
            [b'[', member @ ..] => Ok(LexBound::Inclusive(member)),
            [b'(', member @ ..] => Ok(LexBound::Exclusive(member)),
            _ => Err(InvalidBound),
        }
    }
}

/// A range of members, meant for sets in which all scores are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LexRange<'a> {
    /// The lower end.
    pub min: LexBound<'a>,
    /// The upper end.
    pub max: LexBound<'a>,
}

impl<'a> LexRange<'a> {
    /// Parses the two ends.
    pub fn parse(min: &'a [u8], max: &'a [u8]) -> Result<LexRange<'a>, InvalidBound> {
        Ok(LexRange {
            min: LexBound::parse(min)?,
            max: LexBound::parse(max)?,
        })
    }

    /// Returns true if a member is too low.
    #[inline]
    pub(super) fn is_below(&self, member: &[u8]) -> bool {
        match self.min {
            LexBound::Lowest => false,
            LexBound::Highest => true,
            LexBound::Inclusive(min) => member < min,
            LexBound::Exclusive(min) => member <= min,
        }
    }

    /// Returns true if a member is too high.
    #[inline]
    pub(super) fn is_above(&self, member: &[u8]) -> bool {
        match self.max {
            LexBound::Lowest => true,
            LexBound::Highest => false,
            LexBound::Inclusive(max) => member > max,
            LexBound::Exclusive(max) => member >= max,
        }
    }

    /// Returns true if the range must be empty, judged by its ends alone.
    pub(super) fn is_empty(&self) -> bool {
        use LexBound::{Exclusive, Highest, Inclusive, Lowest};
        match (self.min, self.max) {
            (Lowest, Lowest) | (Highest, Highest) => true,
            (Lowest, _) | (_, Highest) => false,
            (Highest, _) | (_, Lowest) => true,
            (Inclusive(min), Inclusive(max)) => min > max,
            (Inclusive(min) | Exclusive(min), Inclusive(max) | Exclusive(max)) => min >= max,
        }
    }
}

/// Returns the ranks of `ZRANGE key start stop`: negative numbers count from the end, both ends included.
pub fn index_range(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let from_start = |index: i64| {
        if index >= 0 {
            usize::try_from(index).unwrap_or(usize::MAX)
        } else {
            let back = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
            len.saturating_sub(back)
        }
    };
    let is_before_all = |index: i64| index < 0 && index.unsigned_abs() > len as u64;
    let start = from_start(start);
    let end = if is_before_all(stop) {
        0
    } else {
        from_start(stop).saturating_add(1).min(len)
    };
    if start >= end { 0..0 } else { start..end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_scores() {
        for (text, score, exclusive) in [
            ("1.5", 1.5, false),
            ("(1.5", 1.5, true),
            ("+1", 1.0, false),
            ("", 0.0, false),
            ("(", 0.0, true),
            ("-inf", f64::NEG_INFINITY, false),
            ("(+inf", f64::INFINITY, true),
            ("Infinity", f64::INFINITY, false),
            ("1e400", f64::INFINITY, false),
            ("1e-400", 0.0, false),
            ("5.", 5.0, false),
            (".5", 0.5, false),
            ("1\0x", 1.0, false),
            ("\0", 0.0, false),
        ] {
            let bound = ScoreBound { score, exclusive };
            assert_eq!(ScoreBound::parse(text.as_bytes()), Ok(bound), "{text}");
        }
        for text in [
            "x", " 1", "1 ", "((1", "0x1", "nan", "(nan", "1e", "+-1", "-", "+", "infi",
        ] {
            assert_eq!(
                ScoreBound::parse(text.as_bytes()),
                Err(InvalidBound),
                "{text}"
            );
        }
    }

    #[test]
    fn bounds_of_members() {
        assert_eq!(LexBound::parse(b"-"), Ok(LexBound::Lowest));
        assert_eq!(LexBound::parse(b"+"), Ok(LexBound::Highest));
        assert_eq!(LexBound::parse(b"["), Ok(LexBound::Inclusive(b"")));
        assert_eq!(LexBound::parse(b"(-"), Ok(LexBound::Exclusive(b"-")));
        for text in ["", "a", "--", "+x", "++"] {
            assert_eq!(
                LexBound::parse(text.as_bytes()),
                Err(InvalidBound),
                "{text}"
            );
        }
    }

    #[test]
    fn an_index_range_agrees_with_walking_over_all_indices() {
        for len in 0..5i64 {
            for start in [i64::MIN, -7, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 7, i64::MAX] {
                for stop in [i64::MIN, -7, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 7, i64::MAX] {
                    let real = |index: i64| {
                        if index < 0 {
                            index.saturating_add(len)
                        } else {
                            index
                        }
                    };
                    let expected: Vec<usize> = (0..len)
                        .filter(|i| *i >= real(start) && *i <= real(stop))
                        .map(|i| i as usize)
                        .collect();
                    let found: Vec<usize> = index_range(start, stop, len as usize).collect();
                    assert_eq!(found, expected, "{start} {stop} of {len}");
                }
            }
        }
    }
}
