//! Outcomes of a handler that did not complete: stops, and error replies of the data plane with their texts. Clients
//! match on these texts, so they are those of Redis 8.2.3. Must not know: which command fails how.

use std::{borrow::Cow, sync::Arc};

use redline_keyspace::{Busy, Missing, NoDraw, WrongType};
use redline_spec::{self as spec, CommandId, refusal};

use crate::Block;

/// Reason why a handler did not complete.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The client gets an error reply.
    Reply(Error),
    /// The executor has to act first, or must drop the command.
    Stop(Stop),
}

/// Reason why control returns to the executor: never rendered as a reply.
#[derive(Clone, Debug)]
pub enum Stop {
    /// A stripe is in use: the command is run again when it is free.
    Busy(Busy),
    /// The unit lacks stripes of keys that are known only now: the command is run again with them.
    Widen(Missing),
    /// An expired key is in the way: the key is removed, and the command run again.
    Expired(Box<[u8]>),
    /// The command finds nothing and would block. The reply for callers that may not block has been written.
    Wait(Arc<Block>),
    /// The client that was to be served is gone; nothing has happened.
    Gone,
}

/// An error reply.
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
    /// An argument is outside the command's range.
    OutOfRange,
    /// The key must exist.
    NoSuchKey,
    /// A list index is beyond the list.
    IndexOutOfRange,
    /// The sum does not fit 64 bits.
    Overflow,
    /// An expiry is zero, negative or too far away.
    InvalidExpire(CommandId),
    /// A string would grow beyond `proto-max-bulk-len`.
    StringTooLong,
    /// A payload is damaged; holds the condition that fails, only for the log.
    Damaged(&'static str),
    /// Any other error: the whole line, its code included.
    Line(Cow<'static, str>),
    /// Any other error that repeats bytes of the client: they are returned as sent, text or not.
    Quoting(Box<[u8]>),
}

impl Error {
    /// Error for a count that is negative or no number, where nothing can be taken from the other end.
    pub const NOT_POSITIVE: Error = Error::line("ERR value is out of range, must be positive");
    /// Error for a number of keys that is zero or no number.
    pub(crate) const NO_KEYS: Error = Error::line("ERR numkeys should be greater than 0");
    /// Error for a LIMIT that is negative or no number.
    pub(crate) const NEGATIVE_LIMIT: Error = Error::line("ERR LIMIT can't be negative");

    /// Returns an error that only one command, or one reader of arguments, has.
    pub const fn line(text: &'static str) -> Error {
        Error::Line(Cow::Borrowed(text))
    }

    /// Returns an error that repeats an argument: up to its first zero byte, with spaces for bytes that would end the line.
    pub fn quoting(
        before: &(impl AsRef<[u8]> + ?Sized),
        argument: &[u8],
        after: &(impl AsRef<[u8]> + ?Sized),
    ) -> Error {
        Error::Quoting(refusal::quoting(before, argument, after).into())
    }

    /// Returns the error for too few or too many arguments, where only the handler can tell.
    pub fn wrong_arity(command: &str) -> Error {
        Error::Line(refusal::wrong_arity(command).into())
    }

    /// Returns the error for too few or too many arguments of a subcommand, in the words of a container that has HELP.
    pub fn wrong_subcommand_arity(container: &str, subcommand: &[u8]) -> Error {
        Error::Quoting(refusal::wrong_subcommand_arity(container, subcommand).into())
    }

    /// Returns the line of the reply, without the leading `-`.
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
            Error::InvalidExpire(id) => {
                let command = spec::row(*id).name;
                let text = format!("ERR invalid expire time in '{command}' command");
                return Cow::Owned(text.into_bytes());
            }
            Error::Damaged(_) => "ERR Bad data format",
            Error::Line(line) => line,
            Error::Quoting(line) => return Cow::Borrowed(line),
        };
        Cow::Borrowed(text.as_bytes())
    }
}

impl From<WrongType> for Error {
    fn from(_: WrongType) -> Error {
        Error::WrongType
    }
}

impl Failure {
    /// Returns the error reply, where the command's scope rules out every stop, or the caller has looked for them.
    ///
    /// # Panics
    /// On a stop.
    #[inline]
    pub fn expect_error(self) -> Error {
        match self {
            Failure::Reply(error) => error,
            Failure::Stop(stop) => unreachable!("a stop that nobody heeds: {stop:?}"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Reply(error)
    }
}

impl From<WrongType> for Failure {
    fn from(error: WrongType) -> Failure {
        Failure::Reply(error.into())
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Failure {
        Failure::Stop(stop)
    }
}

impl From<Missing> for Failure {
    fn from(missing: Missing) -> Failure {
        Failure::Stop(Stop::Widen(missing))
    }
}

impl From<NoDraw> for Failure {
    fn from(why: NoDraw) -> Failure {
        Failure::Stop(match why {
            NoDraw::Busy(busy) => Stop::Busy(busy),
            NoDraw::Expired(key) => Stop::Expired(key),
        })
    }
}

impl From<Busy> for Failure {
    fn from(busy: Busy) -> Failure {
        Failure::Stop(Stop::Busy(busy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_drawn_is_a_stop_and_a_wrong_type_a_reply() {
        let expired: Failure = NoDraw::Expired(Box::from(*b"k")).into();
        assert!(matches!(expired, Failure::Stop(Stop::Expired(key)) if *key == *b"k"));
        let wrong: Failure = WrongType.into();
        assert_eq!(
            *wrong.expect_error().text(),
            *b"WRONGTYPE Operation against a key holding the wrong kind of value"
        );
    }

    #[test]
    #[should_panic(expected = "a stop that nobody heeds: Gone")]
    fn a_stop_is_no_error() {
        Failure::from(Stop::Gone).expect_error();
    }
}
