//! Error replies of the data plane, and the one place that words them. Clients match on these texts, so
//! they are Redis 8.2.3's. Must not know: which command fails how.

use std::{borrow::Cow, sync::Arc};

use redline_keyspace::{Busy, Missing, NoDraw, WrongType};
use redline_spec::refusal;

use crate::Block;

/// Why a command did not run.
#[derive(Clone, Debug)]
pub enum Error {
    /// The key holds a value of another type.
    WrongType,
    /// The arguments do not fit the command's grammar.
    Syntax,
    /// An argument or a stored value is not a 64-bit integer.
    NotInteger,
    /// An argument or a stored value is not a number.
    NotFloat,
    /// An argument is outside what the command takes.
    OutOfRange,
    /// The key must exist.
    NoSuchKey,
    /// A list index beyond the list.
    IndexOutOfRange,
    /// The sum does not fit 64 bits.
    Overflow,
    /// An expiry that is zero, negative or too far away; names the command in lower case.
    InvalidExpire(&'static str),
    /// A string would grow beyond `proto-max-bulk-len`.
    StringTooLong,
    /// A payload with damage inside; says what does not hold, for the log alone.
    Damaged(&'static str),
    /// Any other: the whole line, its code included.
    Line(Cow<'static, str>),
    /// The same, with bytes that the caller has sent: they are given back as they came, whether they are text or not.
    Quoting(Box<[u8]>),
    /// Not an error of the caller's: a stripe is in use, run the command again when it is free.
    Busy(Busy),
    /// Nor this: the unit lacks stripes of keys that it knows only now; run the command again with them.
    Missing(Missing),
    /// Nor this: a key has expired that is in the way; take it out and run the command again.
    Expired(Box<[u8]>),
    /// Not an error of the caller's: there is nothing for the command, and it would wait. The reply for callers who may
    /// not wait has been written.
    Block(Arc<Block>),
    /// Not an error of anybody's: the client that was to be served has gone; nothing has happened.
    Gone,
}

impl Error {
    /// A count below zero, or none at all, where nothing can be taken from the other end.
    pub const NOT_POSITIVE: Error = Error::line("ERR value is out of range, must be positive");
    /// A number of keys that is none, or zero.
    pub(crate) const NO_KEYS: Error = Error::line("ERR numkeys should be greater than 0");
    /// A LIMIT that is none, or below zero.
    pub(crate) const NEGATIVE_LIMIT: Error = Error::line("ERR LIMIT can't be negative");

    /// An error that only one command, or one reader of arguments, has.
    pub const fn line(text: &'static str) -> Error {
        Error::Line(Cow::Borrowed(text))
    }

    /// An error that repeats an argument: up to its first zero byte, with spaces for what would end the line.
    pub fn quoting(
        before: &(impl AsRef<[u8]> + ?Sized),
        argument: &[u8],
        after: &(impl AsRef<[u8]> + ?Sized),
    ) -> Error {
        Error::Quoting(refusal::quoting(before, argument, after).into())
    }

    /// Too few arguments, or too many: where only the handler can tell.
    pub fn wrong_arity(command: &str) -> Error {
        Error::Line(refusal::wrong_arity(command).into())
    }

    /// Too few arguments of a subcommand, or too many, in the words of a container that has HELP.
    pub fn wrong_subcommand_arity(container: &str, subcommand: &[u8]) -> Error {
        Error::Quoting(refusal::wrong_subcommand_arity(container, subcommand).into())
    }

    /// The line of the reply, without the leading `-`.
    pub fn text(&self) -> Cow<'_, [u8]> {
        let text = match self {
            Error::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Error::Syntax => "ERR syntax error",
            Error::NotInteger => "ERR value is not an integer or out of range",
            Error::NotFloat => "ERR value is not a valid float",
            Error::OutOfRange => "ERR value is out of range",
            Error::NoSuchKey => "ERR no such key",
            Error::IndexOutOfRange => "ERR index out of range",
            Error::Overflow => "ERR increment or decrement would overflow",
            Error::StringTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Error::InvalidExpire(command) => {
                let text = format!("ERR invalid expire time in '{command}' command");
                return Cow::Owned(text.into_bytes());
            }
            Error::Damaged(_) => "ERR Bad data format",
            Error::Line(line) => line,
            Error::Quoting(line) => return Cow::Borrowed(line),
            Error::Busy(_) | Error::Missing(_) | Error::Expired(_) => {
                unreachable!("the executor runs the command again")
            }
            Error::Block(_) => {
                unreachable!("the executor lets the client wait, or the reply stand")
            }
            Error::Gone => unreachable!("nobody is left to be told"),
        };
        Cow::Borrowed(text.as_bytes())
    }
}

impl From<WrongType> for Error {
    fn from(_: WrongType) -> Error {
        Error::WrongType
    }
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Error {
        Error::Missing(missing)
    }
}

impl From<NoDraw> for Error {
    fn from(why: NoDraw) -> Error {
        match why {
            NoDraw::Busy(busy) => Error::Busy(busy),
            NoDraw::Expired(key) => Error::Expired(key),
        }
    }
}

impl From<Busy> for Error {
    fn from(busy: Busy) -> Error {
        Error::Busy(busy)
    }
}
