//! The cursor over the arguments of a call: values in their order, options in any, with Redis's errors. Must not know:
//! any one command.
//!
//! An option matches if its word is next, in any case, and if its values are there. Otherwise nothing is taken, so a
//! parser goes from option to option, and ends in the error for an unknown word:
//!
//! ```text
//! while !words.is_empty() {
//!     if words.flag("REPLACE") {
//!         replace = true;
//!     } else if let Some(db) = words.pair::<i32>("DB")? {
//!         index = db;
//!     } else {
//!         return Err(Error::Syntax);
//!     }
//! }
//! ```
//!
//! A condition precedes its option (`if !stores && words.flag("WITHSCORES")`), since one that matches is taken. In a
//! debug build each requested word must be in the grammar of the command's row.

use std::ops::RangeBounds;

use redline_resp::Args;
use redline_spec::{CommandId, row};
use redline_types::number;

use crate::Error;

/// The arguments of a call from a position on.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    /// Argument at `at`.
    next: Option<&'a [u8]>,
    /// All arguments of the call.
    args: &'a Args<'a>,
    at: usize,
    id: CommandId,
}

impl<'a> Words<'a> {
    /// Returns the arguments from the position `at` on.
    #[inline]
    pub fn new(id: CommandId, args: &'a Args<'a>, at: usize) -> Words<'a> {
        Words {
            next: args.get(at),
            args,
            at,
            id,
        }
    }

    /// Returns the command that is called.
    #[inline]
    pub fn id(&self) -> CommandId {
        self.id
    }

    /// Returns the position of the next argument in the call.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the number of arguments that are left.
    #[inline]
    pub fn len(&self) -> usize {
        self.args.len().saturating_sub(self.at)
    }

    /// Returns true if no argument is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.next.is_none()
    }

    /// Returns the next argument and leaves it there.
    #[inline]
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.next
    }

    /// Checks that no argument is left.
    ///
    /// # Errors
    /// If there is one.
    #[inline]
    pub fn end(self) -> Result<(), Error> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(Error::Syntax)
        }
    }

    /// Returns the arguments that are left.
    #[inline]
    pub fn rest(self) -> Args<'a> {
        self.args.from(self.at)
    }

    /// Takes the next argument.
    ///
    /// # Errors
    /// If there is none, or if it is not a value of this type.
    #[inline]
    pub fn read<T: FromWord<'a>>(&mut self) -> Result<T, Error> {
        T::from_word(self.next().ok_or(Error::Syntax)?)
    }

    /// Takes this number of arguments, if there are as many.
    #[inline]
    pub fn take_args(&mut self, count: usize) -> Option<Args<'a>> {
        (count <= self.len()).then(|| {
            let taken = self.rest().first(count);
            self.advance(count);
            taken
        })
    }

    /// Takes an option without a value.
    #[inline]
    pub fn flag(&mut self, token: &str) -> bool {
        self.values::<0>(token).is_some()
    }

    /// Takes a word that the grammar need not have: Redis reads more than it documents, some of it to refuse it with a text
    /// of its own.
    #[inline]
    pub fn undocumented(&mut self, token: &str) -> bool {
        self.take::<0>(token).is_some()
    }

    /// Takes an option with one value, and reads the value.
    ///
    /// # Errors
    /// If the value is not of its type.
    #[inline]
    pub fn pair<T: FromWord<'a>>(&mut self, token: &str) -> Result<Option<T>, Error> {
        self.value(token).map(T::from_word).transpose()
    }

    /// Takes an option with one value.
    #[inline(always)]
    pub fn value(&mut self, token: &str) -> Option<&'a [u8]> {
        self.values(token).map(|[value]| value)
    }

    /// Takes an option with several values.
    #[inline(always)]
    pub fn values<const N: usize>(&mut self, token: &str) -> Option<[&'a [u8]; N]> {
        debug_assert!(self.documents(token), "{:?} has no {token}", self.id);
        self.take(token)
    }

    /// Takes an option with this number of values.
    pub fn list(&mut self, token: &str, count: usize) -> Option<Args<'a>> {
        (count < self.len() && self.flag(token)).then(|| self.take_args(count))?
    }

    /// Takes one of several words, and returns its meaning.
    #[inline]
    pub fn one_of<T: Copy>(&mut self, meanings: &[(&str, T)]) -> Option<T> {
        meanings
            .iter()
            .find(|(token, _)| self.flag(token))
            .map(|(_, meaning)| *meaning)
    }

    /// Takes one of several options with one value, and returns the word's meaning and the value.
    #[inline]
    pub fn value_of<T: Copy>(&mut self, meanings: &[(&str, T)]) -> Option<(T, &'a [u8])> {
        meanings
            .iter()
            .find_map(|(token, meaning)| Some((*meaning, self.value(token)?)))
    }

    /// Returns the name of the command.
    pub fn name(&self) -> &'static str {
        row(self.id).name
    }

    /// Returns the name of the command as the client wrote it.
    pub fn written_name(&self) -> &'a [u8] {
        self.args.get(0).unwrap_or_default()
    }

    /// Returns the error for too few or too many arguments.
    #[cold]
    pub fn wrong_arity(&self) -> Error {
        let Some(container) = row(self.id).container else {
            return Error::wrong_arity(self.name());
        };
        let container = row(container).name.to_ascii_uppercase();
        Error::wrong_subcommand_arity(&container, self.args.get(1).unwrap_or_default())
    }

    /// Takes a word with its values. Inlined up to a match: a word that differs costs a comparison of lengths.
    #[inline(always)]
    fn take<const N: usize>(&mut self, token: &str) -> Option<[&'a [u8]; N]> {
        if self.is_next(token) {
            self.take_behind()
        } else {
            None
        }
    }

    #[inline]
    fn take_behind<const N: usize>(&mut self) -> Option<[&'a [u8]; N]> {
        (N < self.len()).then(|| {
            let first = self.at + 1;
            self.advance(1 + N);
            std::array::from_fn(|i| self.args.get(first + i).unwrap_or_default())
        })
    }

    /// Returns true if the next argument spells this word, in any case.
    #[inline(always)]
    fn is_next(&self, token: &str) -> bool {
        self.next.is_some_and(|word| {
            word.len() == token.len() && word.eq_ignore_ascii_case(token.as_bytes())
        })
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        *self = Words::new(self.id, self.args, self.at + count);
    }

    /// Returns true if the grammar of the command has the word.
    fn documents(&self, token: &str) -> bool {
        row(self.id).args.iter().any(|arg| arg.has_token(token))
    }
}

/// Takes the arguments in their order.
impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let word = self.next?;
        self.advance(1);
        Some(word)
    }
}

/// A type that an argument is read as.
pub trait FromWord<'a>: Sized {
    /// Reads an argument.
    ///
    /// # Errors
    /// If it is not a value of this type.
    fn from_word(word: &'a [u8]) -> Result<Self, Error>;
}

impl<'a> FromWord<'a> for &'a [u8] {
    #[inline]
    fn from_word(word: &'a [u8]) -> Result<&'a [u8], Error> {
        Ok(word)
    }
}

impl FromWord<'_> for i64 {
    #[inline]
    fn from_word(word: &[u8]) -> Result<i64, Error> {
        integer(word)
    }
}

impl FromWord<'_> for i32 {
    #[inline]
    fn from_word(word: &[u8]) -> Result<i32, Error> {
        int(word)
    }
}

impl FromWord<'_> for f64 {
    #[inline]
    fn from_word(word: &[u8]) -> Result<f64, Error> {
        float(word)
    }
}

/// Reads a 64-bit integer.
#[inline]
pub(crate) fn integer(word: &[u8]) -> Result<i64, Error> {
    number::parse_i64(word).ok_or(Error::NotInteger)
}

/// Reads a 32-bit integer: the range of an `int` of Redis.
pub(crate) fn int(word: &[u8]) -> Result<i32, Error> {
    i32::try_from(integer(word)?).map_err(|_| {
        Error::line("ERR value is out of range, value must between -2147483648 and 2147483647")
    })
}

/// Reads a 64-bit integer for which there is one error: no integer, or out of range.
#[inline]
pub(crate) fn integer_in(
    word: &[u8],
    range: impl RangeBounds<i64>,
    error: Error,
) -> Result<i64, Error> {
    number::parse_i64(word)
        .filter(|number| range.contains(number))
        .ok_or(error)
}

/// Reads a number.
#[inline]
pub(crate) fn float(word: &[u8]) -> Result<f64, Error> {
    number::parse_f64(word).ok_or(Error::NotFloat)
}

/// Reads a number of elements to take.
#[inline]
pub(crate) fn positive(word: &[u8]) -> Result<usize, Error> {
    integer_in(word, 0.., Error::NOT_POSITIVE).map(|count| count as usize)
}

/// Reads a count whose sign selects the mode or the end: its opposite is a 64-bit integer as well.
pub(crate) fn signed_count(word: &[u8]) -> Result<i64, Error> {
    let count = integer(word)?;
    if count == i64::MIN {
        return Err(Error::line(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use redline_resp::ArgsBuf;
    use redline_spec::{Arg, ArgKind, Group, gate};

    use super::*;
    use crate::{handler, testing::TestDb};

    fn call(line: &str) -> ArgsBuf {
        line.split(' ').map(str::as_bytes).collect()
    }

    #[test]
    fn an_option_is_taken_with_all_that_belongs_to_it_or_not_at_all() {
        let call = call("SORT k limit 1 2 Alpha BY p LIMIT 3");
        let args = call.as_args();
        let mut words = Words::new(CommandId::Sort, &args, 2);
        assert!(!words.flag("ALPHA"));
        assert_eq!(words.value("BY"), None);
        assert_eq!(words.values("LIMIT"), Some([&b"1"[..], b"2"]));
        assert!(words.flag("ALPHA"));
        assert_eq!((words.at(), words.len()), (6, 4));
        assert_eq!(words.value("BY"), Some(&b"p"[..]));
        assert_eq!(words.values::<2>("LIMIT"), None);
        assert_eq!(words.peek(), Some(&b"LIMIT"[..]));
        assert!(words.end().is_err());
        assert_eq!(words.rest().len(), 2);
        assert!(words.take_args(3).is_none());
        assert_eq!(words.take_args(2).map(|args| args.len()), Some(2));
        assert!(words.is_empty() && words.end().is_ok());
        assert!(matches!(words.read::<&[u8]>(), Err(Error::Syntax)));
    }

    #[test]
    fn words_and_values_have_a_meaning() {
        let call = call("ZUNION 2 a b AGGREGATE max WEIGHTS 1 x");
        let args = call.as_args();
        let mut words = Words::new(CommandId::Zunion, &args, 1);
        assert!(matches!(words.read(), Ok(2i64)));
        assert!(matches!(words.read::<f64>(), Err(Error::NotFloat)));
        assert!(matches!(words.read::<i32>(), Err(Error::NotInteger)));
        assert!(words.flag("AGGREGATE"));
        assert_eq!(words.one_of(&[("MIN", 1), ("MAX", 2)]), Some(2));
        assert_eq!(words.one_of(&[("MIN", 1), ("MAX", 2)]), None);
        assert!(words.list("WEIGHTS", 3).is_none());
        let weights = words.list("WEIGHTS", 2).unwrap();
        assert_eq!((weights.len(), words.len()), (2, 0));
    }

    #[test]
    fn a_wrong_arity_names_the_command_or_the_help_of_its_container() {
        let text = |id, line| {
            let call = call(line);
            let error = Words::new(id, &call.as_args(), 2).wrong_arity();
            String::from_utf8(error.text().into_owned()).unwrap()
        };
        assert_eq!(
            text(CommandId::Zrank, "ZRANK k"),
            "ERR wrong number of arguments for 'zrank' command"
        );
        assert_eq!(
            text(CommandId::XinfoStream, "xinfo Stream k"),
            "ERR unknown subcommand or wrong number of arguments for 'Stream'. Try XINFO HELP."
        );
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "Zrank has no WITHSCORES")]
    fn a_word_that_the_grammar_does_not_have_is_a_bug() {
        let call = call("ZRANK k m");
        Words::new(CommandId::Zrank, &call.as_args(), 3).flag("WITHSCORES");
    }
    /// Appends one form of an argument.
    fn write(arg: &Arg, choice: usize, call: &mut Vec<&'static str>) {
        call.extend(arg.token);
        match arg.kind {
            ArgKind::PureToken => {}
            ArgKind::OneOf => write(&arg.args[choice % arg.args.len()], choice, call),
            ArgKind::Block => arg.args.iter().for_each(|arg| write(arg, choice, call)),
            ArgKind::Key { .. } => call.push("k"),
            _ => call.push("1"),
        }
    }

    /// Ensures that a word that is no option is compared with each that the handler knows, wherever options are allowed.
    #[test]
    fn handlers_ask_for_words_of_their_row_only() {
        let mut db = TestDb::new();
        for id in CommandId::ALL
            .into_iter()
            .filter(|id| handler(*id).is_some())
        {
            let row = row(id);
            let key = match row.group {
                Group::Hash => "HSET k 1 1",
                Group::List => "RPUSH k 1",
                Group::Set => "SADD k 1",
                Group::SortedSet => "ZADD k 1 1",
                Group::Geo => "GEOADD k 1 1 1",
                Group::Stream => "XGROUP CREATE k 1 0 MKSTREAM",
                Group::Module => match row.name.split_once('.') {
                    Some(("bf", _)) => "BF.ADD k 1",
                    Some(("cf", _)) => "CF.ADD k 1",
                    Some(("cms", _)) => "CMS.INITBYDIM k 1 1",
                    Some(("topk", _)) => "TOPK.RESERVE k 1",
                    Some(("tdigest", _)) => "TDIGEST.CREATE k",
                    _ => "VADD k VALUES 1 1 1",
                },
                _ => "SET k 1",
            };
            for (choice, with_options) in [(0, false), (1, false), (0, true), (1, true)] {
                let mut call: Vec<&str> = row.full_name.split('|').collect();
                let head = call.len();
                let args = row.args.iter().filter(|arg| with_options || !arg.optional);
                args.for_each(|arg| write(arg, choice, &mut call));
                for at in head..=call.len() {
                    let mut call = call.clone();
                    call.insert(at, "nonsense");
                    if gate(id).arity_allows(call.len()) {
                        db.words("FLUSHALL");
                        db.words(key);
                        db.run(&call);
                    }
                }
            }
        }
    }
}
