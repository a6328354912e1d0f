//! Paths of JSON as text: both dialects, parsed. Must not know documents; what a path finds is in `select`.
//!
//! A path that is `$` or begins with `$.` or `$[` is a JSONPath. Any other is one of the older dialect, which names one value:
//! it becomes a JSONPath by a `$` or `$.` before it. A path that begins with a slash is a JSON Pointer, as Tair has it, and
//! names one value too. Errors have the form of RedisJSON's: the place, and what could have stood there.

use std::{borrow::Cow, fmt};

use regex::bytes::Regex;

use super::Json;

/// Number of parentheses around a filter.
pub const FILTER_DEPTH_MAX: usize = 128;
/// Bytes that a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Number of patterns in a path.
const PATTERNS_MAX: usize = 64;

const STEP_NAME: &str = "<string>, '*'";
const STEP_BRACKET: &str = "'<string>[,<string>,...]', '<number>', ['start:end:steps'], '*'";
const FILTER: &str = "single_filter";
const OPERATOR: &str = "ge, gt, le, lt, eq, ne, re, and, or, '..'";
const CONNECTIVE: &str = "and, or";
const END: &str = "EOI, all, '..', '.', '['";

/// A path that does not parse: the line that a client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError(String);

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A path.
#[derive(Clone, Debug)]
pub struct Path<'a> {
    /// As the client sent it.
    given: &'a str,
    /// As a JSONPath.
    fixed: Cow<'a, str>,
    is_legacy: bool,
    pub(super) steps: Vec<Step>,
}

/// One step: from values to values in them.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// From all values in the values, these included.
    pub(super) deep: bool,
    pub(super) select: Select,
}

#[derive(Clone, Debug)]
pub(super) enum Select {
    Name(Box<str>),
    Names(Vec<Box<str>>),
    Index(i64),
    Indexes(Vec<i64>),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: usize,
    },
    All,
    Filter(Filter),
    /// A token of a JSON Pointer: a name, or a position of an array.
    Token(Box<str>),
}

#[derive(Clone, Debug)]
pub(super) enum Filter {
    Or(Vec<Filter>),
    And(Vec<Filter>),
    Exists(Term),
    Compare(Term, Operator, Term),
    /// The pattern is none if it is given by a path.
    Matches(Term, Option<Regex>, Term),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug)]
pub(super) enum Term {
    /// A document that is one value.
    Literal(Box<Json>),
    /// Steps from the value that is looked at.
    Current(Vec<Step>),
    /// Steps from the root.
    Root(Vec<Step>),
}

/// Compiles a pattern of `=~`; none if it is no pattern, which matches nothing.
pub(super) fn pattern(text: &[u8]) -> Option<Regex> {
    let mut builder = regex::bytes::RegexBuilder::new(str::from_utf8(text).ok()?);
    builder
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX);
    builder.build().ok()
}

impl<'a> Path<'a> {
    /// Parses a path.
    ///
    /// # Errors
    ///
    /// If it is not UTF-8, or of neither dialect.
    pub fn parse(given: &'a [u8]) -> Result<Path<'a>, PathError> {
        let given = str::from_utf8(given)
            .map_err(|_| PathError("ERR the path is not valid UTF-8".to_owned()))?;
        if given.starts_with('/') {
            return Ok(Path {
                given,
                fixed: given.into(),
                is_legacy: true,
                steps: pointer(given),
            });
        }
        let is_legacy = given != "$" && !given.starts_with("$.") && !given.starts_with("$[");
        let fixed = match given {
            _ if !is_legacy => given.into(),
            "." => "$".into(),
            _ if given.starts_with('.') => format!("${given}").into(),
            _ => Cow::from(format!("$.{given}")),
        };
        let mut parser = Parser {
            patterns: 0,
            text: &fixed,
            at: 1,
            depth: 0,
        };
        let steps = parser.steps(false)?;
        if parser.at < fixed.len() {
            return Err(parser.expected(END));
        }
        Ok(Path {
            given,
            fixed,
            is_legacy,
            steps,
        })
    }

    /// Returns the path of the whole document: `.` of the older dialect.
    pub fn root() -> Path<'a> {
        Path {
            given: ".",
            fixed: "$".into(),
            is_legacy: true,
            steps: Vec::new(),
        }
    }

    /// Returns the path as it was given.
    pub fn given(&self) -> &str {
        self.given
    }

    /// Returns the path as a JSONPath.
    pub fn fixed(&self) -> &str {
        &self.fixed
    }

    /// Returns true if the path is of the older dialect, or a JSON Pointer: replies have one value, and no array around it.
    pub fn is_legacy(&self) -> bool {
        self.is_legacy
    }

    /// Returns true if the path is that of the whole document.
    pub fn is_root(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns true if the path names at most one value, whatever the document is.
    pub fn is_static(&self) -> bool {
        self.steps.iter().all(|step| {
            let one = matches!(
                step.select,
                Select::Name(_) | Select::Index(_) | Select::Token(_)
            );
            one && !step.deep
        })
    }

    /// Returns the number of steps.
    pub fn depth(&self) -> usize {
        self.steps.len()
    }

    /// Splits a path at its last step: the path before, and the name, if the step is one.
    pub fn split_last(&self) -> Option<(Path<'a>, Option<&str>)> {
        let (last, before) = self.steps.split_last()?;
        let name = match &last.select {
            Select::Name(name) | Select::Token(name) => Some(&**name),
            _ => None,
        };
        Some((
            Path {
                steps: before.to_vec(),
                ..self.clone()
            },
            name,
        ))
    }
}

fn pointer(text: &str) -> Vec<Step> {
    let tokens = text.split('/').skip(1).filter(|_| text != "/");
    let tokens = tokens.map(|token| token.replace("~1", "/").replace("~0", "~"));
    tokens
        .map(|token| Step {
            deep: false,
            select: Select::Token(token.into()),
        })
        .collect()
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    patterns: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        let space = [' ', '\t', '\n', '\r'];
        self.at += rest.len() - rest.trim_start_matches(space).len();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expected(&self, what: &str) -> PathError {
        let (before, after) = self.text.split_at(self.at);
        let place = match after {
            "" => format!("{before} <<<<----"),
            _ => format!("{before} ---->>>> {after}"),
        };
        let at = self.at;
        PathError(format!(
            "Error occurred on position {at}, \"{place}\", expected one of the following: {what}."
        ))
    }

    /// Steps up to what is none; in a filter, up to what ends an operand.
    fn steps(&mut self, in_filter: bool) -> Result<Vec<Step>, PathError> {
        let mut steps = Vec::new();
        loop {
            let start = self.at;
            let step = if self.eat("..") {
                self.skip_space();
                let select = match self.rest().starts_with('[') {
                    true => self.bracket()?,
                    false => self.name()?,
                };
                Step { deep: true, select }
            } else if self.eat(".") {
                self.skip_space();
                let select = match self.rest().starts_with('[') {
                    true => self.bracket()?,
                    false => self.name()?,
                };
                Step {
                    deep: false,
                    select,
                }
            } else if self.eat("*") {
                Step {
                    deep: false,
                    select: Select::All,
                }
            } else if self.rest().starts_with('[') {
                Step {
                    deep: false,
                    select: self.bracket()?,
                }
            } else {
                if !in_filter {
                    self.at = start;
                    self.skip_space();
                }
                return Ok(steps);
            };
            steps.push(step);
        }
    }

    fn name(&mut self) -> Result<Select, PathError> {
        if self.eat("*") {
            return Ok(Select::All);
        }
        let is_name =
            |c: char| c.is_ascii_alphanumeric() || "-_`~+#%$^/".contains(c) || !c.is_ascii();
        let rest = self.rest();
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        if end == 0 {
            return Err(self.expected(STEP_NAME));
        }
        self.at += end;
        Ok(Select::Name(rest[..end].into()))
    }

    fn bracket(&mut self) -> Result<Select, PathError> {
        assert!(self.eat("["), "a bracket was seen");
        self.skip_space();
        let select = match self.rest().bytes().next() {
            Some(b'*') => {
                self.at += 1;
                Select::All
            }
            Some(b'?') => {
                self.at += 1;
                Select::Filter(self.filter()?)
            }
            Some(b'\'' | b'"') => {
                let mut names = vec![self.string(STEP_BRACKET)?];
                while self.eat(",") {
                    self.skip_space();
                    names.push(self.string("<string>")?);
                }
                match names.len() {
                    1 => Select::Name(names.remove(0)),
                    _ => Select::Names(names),
                }
            }
            _ => self.numbers()?,
        };
        match self.eat("]") {
            true => Ok(select),
            false => Err(self.expected(match select {
                Select::Filter(_) => CONNECTIVE,
                _ => "',', ']'",
            })),
        }
    }

    /// Positions or a range of them.
    fn numbers(&mut self) -> Result<Select, PathError> {
        let start = self.integer();
        if self.eat(":") {
            let end = self.integer();
            let mut step = 1;
            if self.eat(":") {
                let at = self.at;
                step = match self.integer() {
                    None => 1,
                    Some(step) if step > 0 => usize::try_from(step).unwrap_or(usize::MAX),
                    Some(_) => {
                        self.at = at;
                        return Err(self.expected("a step above 0"));
                    }
                };
            }
            return Ok(Select::Slice { start, end, step });
        }
        let first = start.ok_or_else(|| self.expected(STEP_BRACKET))?;
        let mut indexes = vec![first];
        while self.eat(",") {
            let index = self.integer();
            indexes.push(index.ok_or_else(|| self.expected("'<number>'"))?);
        }
        Ok(match indexes[..] {
            [index] => Select::Index(index),
            _ => Select::Indexes(indexes),
        })
    }

    /// An integer; those beyond 64 bits become the nearest one, which no array has either.
    fn integer(&mut self) -> Option<i64> {
        self.skip_space();
        let rest = self.rest();
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return None;
        }
        let end = rest.len() - digits.len() + count;
        self.at += end;
        let beyond = if rest.starts_with('-') {
            i64::MIN
        } else {
            i64::MAX
        };
        Some(rest[..end].parse().unwrap_or(beyond))
    }

    /// A string in single or double quotes: a backslash makes the byte behind it one of the string.
    fn string(&mut self, what: &str) -> Result<Box<str>, PathError> {
        let rest = self.rest();
        let Some(quote @ ('\'' | '"')) = rest.chars().next() else {
            return Err(self.expected(what));
        };
        let mut text = String::new();
        let mut chars = rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.at += at + 1;
                    return Ok(text.into());
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, 'r')) => text.push('\r'),
                    Some((_, c)) if c == quote || c == '\\' => text.push(c),
                    Some((_, c)) => text.extend(['\\', c]),
                    None => break,
                },
                c => text.push(c),
            }
        }
        Err(self.expected(what))
    }

    fn filter(&mut self) -> Result<Filter, PathError> {
        self.depth += 1;
        if self.depth > FILTER_DEPTH_MAX {
            let text =
                format!("ERR the path has filters in each other, more than {FILTER_DEPTH_MAX}");
            return Err(PathError(text));
        }
        let mut either = vec![self.conjunction()?];
        while self.eat("||") {
            either.push(self.conjunction()?);
        }
        self.depth -= 1;
        Ok(match either.len() {
            1 => either.remove(0),
            _ => Filter::Or(either),
        })
    }

    fn conjunction(&mut self) -> Result<Filter, PathError> {
        let mut all = vec![self.single_filter()?];
        while self.eat("&&") {
            all.push(self.single_filter()?);
        }
        Ok(match all.len() {
            1 => all.remove(0),
            _ => Filter::And(all),
        })
    }

    fn single_filter(&mut self) -> Result<Filter, PathError> {
        self.skip_space();
        if self.eat("(") {
            let filter = self.filter()?;
            return match self.eat(")") {
                true => Ok(filter),
                false => Err(self.expected(match filter {
                    Filter::Exists(_) => OPERATOR,
                    _ => CONNECTIVE,
                })),
            };
        }
        let left = self.term(FILTER)?;
        self.skip_space();
        const OPERATORS: [(&str, Operator); 6] = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        if self.eat("=~") {
            self.patterns += 1;
            if self.patterns > PATTERNS_MAX {
                let text = format!("ERR the path has more than {PATTERNS_MAX} patterns");
                return Err(PathError(text));
            }
            let right = self.term("<string>")?;
            let regex = match &right {
                Term::Literal(json) => match json.root() {
                    super::Item::String(text) => pattern(&text),
                    _ => None,
                },
                _ => None,
            };
            return Ok(Filter::Matches(left, regex, right));
        }
        for (token, operator) in OPERATORS {
            if self.eat(token) {
                let right = self.term("<string>, <number>, true, false, null, path")?;
                return Ok(Filter::Compare(left, operator, right));
            }
        }
        match left {
            Term::Literal(_) => Err(self.expected(OPERATOR)),
            _ => Ok(Filter::Exists(left)),
        }
    }

    fn term(&mut self, what: &str) -> Result<Term, PathError> {
        self.skip_space();
        let rest = self.rest();
        let literal = |json| Ok(Term::Literal(Box::new(json)));
        match rest.bytes().next() {
            Some(b'@') => {
                self.at += 1;
                Ok(Term::Current(self.steps(true)?))
            }
            Some(b'$') => {
                self.at += 1;
                Ok(Term::Root(self.steps(true)?))
            }
            Some(b'\'' | b'"') => {
                let text = self.string(what)?;
                literal(Json::of_string(&text))
            }
            Some(b'-' | b'0'..=b'9') => {
                let is_number = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
                let end = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
                let number = Json::parse(&rest.as_bytes()[..end]);
                let number = number.map_err(|_| self.expected("<number>"))?;
                self.at += end;
                literal(number)
            }
            _ => {
                for (word, json) in [
                    ("true", Json::of_bool(true)),
                    ("false", Json::of_bool(false)),
                    ("null", Json::default()),
                ] {
                    if rest.starts_with(word) {
                        self.at += word.len();
                        return literal(json);
                    }
                }
                Err(self.expected(what))
            }
        }
    }
}
