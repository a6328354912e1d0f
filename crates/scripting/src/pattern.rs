//! Lua 5.1's patterns. Must not know the interpreter.
//!
//! The interpreter's own matcher cannot be interrupted, and a pattern like `(.-)*x` on a long string takes exponential
//! time; so scripts get this one, which counts its steps and asks every so often whether to go on. It also bounds its
//! recursion. It accepts and finds the same as Lua 5.1, with the same errors.

use std::ops::Range;

/// Captures that a pattern may have.
const CAPTURES_MAX: usize = 32;

/// Nested sub-matches. Each takes some native stack.
const DEPTH_MAX: u32 = 200;

/// Steps between two calls of the function that says whether to go on: some 50 us.
const STEPS_PER_POLL: u32 = 16_384;

/// Bytes that make a pattern of a text that would be plain without them.
const SPECIALS: &[u8] = b"^$*+?.([%-";

/// Reason why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The pattern is wrong: the error's text.
    Malformed(&'static str),
    /// The function that was asked whether to go on returned false.
    Stopped,
}

/// Capture of one pair of parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// The bytes from `start` on.
    Bytes { start: usize, len: usize },
    /// `()`: a place.
    Position(usize),
    /// It was opened at `start` and is not closed yet.
    Open { start: usize },
}

/// A match in progress or done: a pattern against a subject.
pub(crate) struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    anchored: bool,
    captures: [Capture; CAPTURES_MAX],
    level: usize,
    depth: u32,
    steps: u32,
    /// Called every [`STEPS_PER_POLL`] steps; returns true to go on.
    poll: &'a mut dyn FnMut() -> bool,
}

/// Returns true if a text has no special characters of patterns, so that it stands only for itself.
pub(crate) fn is_plain(pattern: &[u8]) -> bool {
    !until_nul(pattern).iter().any(|b| SPECIALS.contains(b))
}

/// Cuts a pattern at a NUL, which ends it: to Lua 5.1 it is a C string.
fn until_nul(pattern: &[u8]) -> &[u8] {
    memchr::memchr(0, pattern).map_or(pattern, |nul| &pattern[..nul])
}

impl<'a> Matcher<'a> {
    /// Makes a pattern in which `^` at the start is an anchor, as for `find`, `match` and `gsub`.
    pub(crate) fn new(
        subject: &'a [u8],
        pattern: &'a [u8],
        poll: &'a mut dyn FnMut() -> bool,
    ) -> Matcher<'a> {
        let pattern = until_nul(pattern);
        let anchored = pattern.first() == Some(&b'^');
        Matcher {
            anchored,
            ..Matcher::unanchored(subject, &pattern[usize::from(anchored)..], poll)
        }
    }

    /// Makes a pattern in which `^` is nothing special, as for `gmatch`.
    pub(crate) fn unanchored(
        subject: &'a [u8],
        pattern: &'a [u8],
        poll: &'a mut dyn FnMut() -> bool,
    ) -> Matcher<'a> {
        Matcher {
            subject,
            pattern: until_nul(pattern),
            anchored: false,
            captures: [Capture::Position(0); CAPTURES_MAX],
            level: 0,
            depth: 0,
            steps: STEPS_PER_POLL,
            poll,
        }
    }

    /// Returns true if the pattern is tried at one place only.
    pub(crate) fn is_anchored(&self) -> bool {
        self.anchored
    }

    /// Returns the first match that begins at `from` or, if the pattern is not anchored, after it.
    pub(crate) fn search(&mut self, from: usize) -> Result<Option<Range<usize>>, Problem> {
        let mut start = from;
        loop {
            self.level = 0;
            if let Some(end) = self.run(start, 0)? {
                return Ok(Some(start..end));
            }
            if self.anchored || start >= self.subject.len() {
                return Ok(None);
            }
            start += 1;
        }
    }

    /// Returns how many values a match yields: its captures, or all of it if it has none.
    pub(crate) fn values(&self) -> usize {
        self.level.max(1)
    }

    /// Returns how many captures the pattern has, as far as it was needed.
    pub(crate) fn captures(&self) -> usize {
        self.level
    }

    /// Returns value `i` of the match that was found last, at `found`.
    pub(crate) fn value(&self, i: usize, found: &Range<usize>) -> Result<Capture, Problem> {
        match self.captures[..self.level].get(i) {
            Some(Capture::Open { .. }) => Err(Problem::Malformed("unfinished capture")),
            Some(&capture) => Ok(capture),
            None if i == 0 => Ok(Capture::Bytes {
                start: found.start,
                len: found.len(),
            }),
            None => Err(Problem::Malformed("invalid capture index")),
        }
    }

    /// Returns the byte of the pattern at `p`; 0, which no pattern contains, at its end.
    fn at(&self, p: usize) -> u8 {
        self.pattern.get(p).copied().unwrap_or(0)
    }

    fn charge(&mut self, steps: usize) -> Result<(), Problem> {
        match u32::try_from(steps)
            .ok()
            .and_then(|steps| self.steps.checked_sub(steps))
        {
            Some(left) => self.steps = left,
            None => {
                self.steps = STEPS_PER_POLL;
                if !(self.poll)() {
                    return Err(Problem::Stopped);
                }
            }
        }
        Ok(())
    }

    /// Matches the pattern from `p` on at `s`; returns the end of the match.
    fn run(&mut self, s: usize, p: usize) -> Result<Option<usize>, Problem> {
        if self.depth == DEPTH_MAX {
            return Err(Problem::Malformed("pattern too complex"));
        }
        self.depth += 1;
        let end = self.run_items(s, p);
        self.depth -= 1;
        end
    }

    fn run_items(&mut self, mut s: usize, mut p: usize) -> Result<Option<usize>, Problem> {
        loop {
            self.charge(1)?;
            match (self.at(p), self.at(p + 1)) {
                (0, _) => return Ok(Some(s)),
                (b'(', b')') => return self.open_capture(Capture::Position(s), s, p + 2),
                (b'(', _) => return self.open_capture(Capture::Open { start: s }, s, p + 1),
                (b')', _) => return self.close_capture(s, p + 1),
                (b'$', 0) => return Ok((s == self.subject.len()).then_some(s)),
                (b'%', b'b') => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (b'%', b'f') => {
                    if self.at(p + 2) != b'[' {
                        return Err(Problem::Malformed("missing '[' after '%f' in pattern"));
                    }
                    let end = self.item_end(p + 2)?;
                    let before = s.checked_sub(1).map_or(0, |i| self.subject[i]);
                    let here = self.subject.get(s).copied().unwrap_or(0);
                    if self.in_set(before, p + 2, end) || !self.in_set(here, p + 2, end) {
                        return Ok(None);
                    }
                    p = end;
                }
                (b'%', digit @ b'0'..=b'9') => match self.repeated(s, digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.item_end(p)?;
                    self.charge(end - p)?;
                    match self.at(end) {
                        b'?' => {
                            if self.single(s, p, end)
                                && let Some(end) = self.run(s + 1, end + 1)?
                            {
                                return Ok(Some(end));
                            }
                            p = end + 1;
                        }
                        b'*' => return self.longest(s, p, end),
                        b'+' if self.single(s, p, end) => return self.longest(s + 1, p, end),
                        b'+' => return Ok(None),
                        b'-' => return self.shortest(s, p, end),
                        _ if self.single(s, p, end) => (s, p) = (s + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    /// Returns where the single-character item at `p` ends.
    fn item_end(&self, mut p: usize) -> Result<usize, Problem> {
        match self.at(p) {
            b'%' if self.at(p + 1) == 0 => {
                Err(Problem::Malformed("malformed pattern (ends with '%')"))
            }
            b'%' => Ok(p + 2),
            b'[' => {
                p += 1;
                if self.at(p) == b'^' {
                    p += 1;
                }
                loop {
                    match self.at(p) {
                        0 => return Err(Problem::Malformed("malformed pattern (missing ']')")),
                        b'%' if self.at(p + 1) != 0 => p += 2,
                        _ => p += 1,
                    }
                    if self.at(p) == b']' {
                        return Ok(p + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Returns true if the byte at `s` is matched by the item from `p` to `end`.
    fn single(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.subject.get(s) else {
            return false;
        };
        match self.pattern[p] {
            b'.' => true,
            b'%' => in_class(byte, self.pattern[p + 1]),
            b'[' => self.in_set(byte, p, end),
            literal => literal == byte,
        }
    }

    /// Returns true if `byte` is in the set from `p` (its bracket) to `end` (behind its other bracket).
    fn in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let mut set = &self.pattern[p + 1..end - 1];
        let negated = set.first() == Some(&b'^');
        if negated {
            set = &set[1..];
        }
        loop {
            let (found, rest) = match set {
                [] => return negated,
                [b'%', class, rest @ ..] => (in_class(byte, *class), rest),
                [low, b'-', high, rest @ ..] => ((*low..=*high).contains(&byte), rest),
                [literal, rest @ ..] => (*literal == byte, rest),
            };
            if found {
                return !negated;
            }
            set = rest;
        }
    }

    fn longest(&mut self, s: usize, p: usize, end: usize) -> Result<Option<usize>, Problem> {
        let mut n = 0;
        while self.single(s + n, p, end) {
            n += 1;
            self.charge(end - p)?;
        }
        loop {
            if let Some(end) = self.run(s + n, end + 1)? {
                return Ok(Some(end));
            }
            if n == 0 {
                return Ok(None);
            }
            n -= 1;
        }
    }

    fn shortest(&mut self, mut s: usize, p: usize, end: usize) -> Result<Option<usize>, Problem> {
        loop {
            if let Some(end) = self.run(s, end + 1)? {
                return Ok(Some(end));
            }
            if !self.single(s, p, end) {
                return Ok(None);
            }
            s += 1;
            self.charge(end - p)?;
        }
    }

    /// Matches `%bxy` with `x` and `y` at `p`.
    fn balanced(&mut self, s: usize, p: usize) -> Result<Option<usize>, Problem> {
        let (open, close) = (self.at(p), self.at(p + 1));
        if open == 0 || close == 0 {
            return Err(Problem::Malformed("unbalanced pattern"));
        }
        if self.subject.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut nested = 1usize;
        for i in s + 1..self.subject.len() {
            self.charge(1)?;
            if self.subject[i] == close {
                nested -= 1;
                if nested == 0 {
                    return Ok(Some(i + 1));
                }
            } else if self.subject[i] == open {
                nested += 1;
            }
        }
        Ok(None)
    }

    fn open_capture(
        &mut self,
        capture: Capture,
        s: usize,
        p: usize,
    ) -> Result<Option<usize>, Problem> {
        let level = self.level;
        if level == CAPTURES_MAX {
            return Err(Problem::Malformed("too many captures"));
        }
        self.captures[level] = capture;
        self.level = level + 1;
        let end = self.run(s, p)?;
        if end.is_none() {
            self.level -= 1;
        }
        Ok(end)
    }

    fn close_capture(&mut self, s: usize, p: usize) -> Result<Option<usize>, Problem> {
        let is_open = |capture: &Capture| matches!(capture, Capture::Open { .. });
        let Some(i) = self.captures[..self.level].iter().rposition(is_open) else {
            return Err(Problem::Malformed("invalid pattern capture"));
        };
        let open = self.captures[i];
        if let Capture::Open { start } = open {
            self.captures[i] = Capture::Bytes {
                start,
                len: s - start,
            };
        }
        let end = self.run(s, p)?;
        if end.is_none() {
            self.captures[i] = open;
        }
        Ok(end)
    }

    /// Matches `%1` to `%9`: the text of that capture, once more.
    fn repeated(&mut self, s: usize, digit: u8) -> Result<Option<usize>, Problem> {
        let invalid = Problem::Malformed("invalid capture index");
        let i = usize::from(digit)
            .checked_sub(usize::from(b'1'))
            .ok_or(invalid)?;
        match self.captures[..self.level].get(i) {
            None | Some(Capture::Open { .. }) => Err(invalid),
            Some(Capture::Position(_)) => Ok(None),
            Some(&Capture::Bytes { start, len }) => {
                self.charge(len / 16)?;
                let caught = &self.subject[start..start + len];
                Ok(self.subject[s..].starts_with(caught).then_some(s + len))
            }
        }
    }
}

/// Returns true if `byte` is of the class that a letter names; a capital names the opposite, and any other byte itself.
fn in_class(byte: u8, class: u8) -> bool {
    let found = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    found != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the match and its values, as `start-end:value,value`; or the problem.
    fn matched(subject: &str, pattern: &str) -> String {
        let mut poll = || true;
        let mut matcher = Matcher::new(subject.as_bytes(), pattern.as_bytes(), &mut poll);
        match matcher.search(0) {
            Err(Problem::Malformed(text)) => text.to_owned(),
            Err(Problem::Stopped) => "stopped".to_owned(),
            Ok(None) => "nil".to_owned(),
            Ok(Some(found)) => {
                let values: Vec<String> = (0..matcher.values())
                    .map(|i| match matcher.value(i, &found) {
                        Ok(Capture::Bytes { start, len }) => subject[start..start + len].to_owned(),
                        Ok(Capture::Position(at)) => format!("@{at}"),
                        Ok(Capture::Open { .. }) => unreachable!("open captures are a problem"),
                        Err(problem) => format!("{problem:?}"),
                    })
                    .collect();
                format!("{}-{}:{}", found.start, found.end, values.join(","))
            }
        }
    }

    #[test]
    fn patterns_match_as_in_lua() {
        for (subject, pattern, expected) in [
            ("hello", "l+", "2-4:ll"),
            ("hello", "", "0-0:"),
            ("hello", "^l", "nil"),
            ("hello", "o$", "4-5:o"),
            ("a$b", "a$b", "0-3:a$b"),
            ("hello", "(h)(e)", "0-2:h,e"),
            ("hello", "()ll()", "2-4:@2,@4"),
            ("key = value", "^(%w+)%s*=%s*(%w+)$", "0-11:key,value"),
            ("<<a><b>>", "%b<>", "0-8:<<a><b>>"),
            ("THE (quick) fox", "%f[%a]%a+%f[%A]", "0-3:THE"),
            ("aXb", "%u", "1-2:X"),
            ("x-y", "[a-]", "1-2:-"),
            ("x]y", "[]]", "1-2:]"),
            ("x]y", "[^]]", "0-1:x"),
            ("a^b", "[b^]", "1-2:^"),
            ("a%b", "%%", "1-2:%"),
            ("abcabc", "(abc)%1", "0-6:abc"),
            ("aaa", "a-", "0-0:"),
            ("aaab", "a-b", "0-4:aaab"),
            ("ab", "a?b?c?", "0-2:ab"),
            ("abc", "[%a-z]", "0-1:a"),
            ("0x1F", "%x+$", "2-4:1F"),
            ("\u{b}", "%s", "0-1:\u{b}"),
            ("a\0b", "%z", "1-2:\0"),
            ("abc", "b\0zzz", "1-2:b"),
            ("((a", "((%()%()", "0-2:((,("),
        ] {
            assert_eq!(
                matched(subject, pattern),
                expected,
                "{subject:?} {pattern:?}"
            );
        }
    }

    #[test]
    fn wrong_patterns_are_told_as_in_lua() {
        for (pattern, expected) in [
            ("%", "malformed pattern (ends with '%')"),
            ("[a", "malformed pattern (missing ']')"),
            ("[", "malformed pattern (missing ']')"),
            ("[]", "malformed pattern (missing ']')"),
            ("[^]", "malformed pattern (missing ']')"),
            ("[a%", "malformed pattern (missing ']')"),
            ("a)", "invalid pattern capture"),
            ("(a)%2", "invalid capture index"),
            ("(a)%0", "invalid capture index"),
            ("(a%1", "invalid capture index"),
            ("%f", "missing '[' after '%f' in pattern"),
            ("%b", "unbalanced pattern"),
            ("%bx", "unbalanced pattern"),
        ] {
            assert_eq!(matched("aaa", pattern), expected, "{pattern:?}");
        }
        assert_eq!(
            matched("aaa", "(a"),
            "0-1:Malformed(\"unfinished capture\")"
        );
        assert_eq!(matched("a", &"()".repeat(33)), "too many captures");
        assert_eq!(
            matched(&"a".repeat(9999), &"a?".repeat(9999)),
            "pattern too complex"
        );
    }

    #[test]
    fn exponential_patterns_can_be_stopped() {
        for pattern in [
            ".-.-.-.-.-.-.-.-.-.-x",
            "a*a*a*a*a*a*a*a*a*a*x",
            "(.-)%1%1x",
        ] {
            let subject = "a".repeat(100_000);
            let mut polls = 0;
            let mut poll = || {
                polls += 1;
                polls < 10
            };
            let mut matcher = Matcher::new(subject.as_bytes(), pattern.as_bytes(), &mut poll);
            assert_eq!(matcher.search(0), Err(Problem::Stopped), "{pattern}");
        }
    }

    #[test]
    fn no_pattern_makes_the_matcher_panic() {
        let alphabet = b"ab%[]^-()$*+?.bf1z\0";
        let mut state = 7u64;
        let mut next = move |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % n
        };
        for _ in 0..200_000 {
            let pattern: Vec<u8> = (0..next(12))
                .map(|_| alphabet[next(alphabet.len())])
                .collect();
            let subject: Vec<u8> = (0..next(8)).map(|_| b"ab[]\0"[next(5)]).collect();
            let mut left = 20;
            let mut poll = || {
                left -= 1;
                left > 0
            };
            let mut matcher = Matcher::new(&subject, &pattern, &mut poll);
            if let Ok(Some(found)) = matcher.search(0) {
                assert!(found.end <= subject.len());
                for i in 0..matcher.values() {
                    let _ = matcher.value(i, &found);
                }
            }
        }
    }
}
