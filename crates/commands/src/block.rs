//! How a command reports that it would block, and how it takes the element that it has waited for.
//!
//! A handler knows no session and cannot block. A blocking one reads its keys as any other does. If it finds nothing,
//! it writes the reply for callers that may not block (EXEC, scripts), and returns [`Stop::Wait`] with the keys that it
//! would wait for. The server decides if that reply stands, or is discarded and the client waits.
//!
//! A waiting client is served by running its call again when one of its keys has changed. Then the context holds its
//! [`Waiter`](redline_keyspace::Waiter), and the handler calls [`Ctx::claim`] when it has found an element and before
//! it takes it: if the client is gone by then, that fails, and nothing changes. To be run again, calls must mean the
//! same at any later time: one that refers to the present (`XREAD … $`) provides another call to wait with.
//!
//! Must not know: any one command, sessions, which client is served by which.

use std::{ops::Range, sync::Arc};

use redline_keyspace::End;
use redline_resp::ArgsBuf;
use redline_types::{
    Kind,
    number::{self, Extended},
};

use crate::{Ctx, Error, Failure, Stop};

/// Wait of a command that blocks.
#[derive(Clone, Debug)]
pub struct Block {
    /// Type that a key must have to serve the command.
    pub kind: Kind,
    /// Arguments that are the keys waited for.
    pub keys: Range<usize>,
    /// Arguments that are keys written when the client is served.
    pub targets: Range<usize>,
    /// Longest wait in milliseconds. `None`: without limit.
    pub timeout_ms: Option<u64>,
    /// True if it is also run again when a key is deleted or gets another type, to fail with an error (XREADGROUP).
    pub when_gone: bool,
    /// Call that is run again, if that is not the original call.
    pub call: Option<ArgsBuf>,
}

impl Block {
    /// Returns a wait for one of these keys to be of this type.
    pub(crate) fn on(kind: Kind, keys: Range<usize>, timeout_ms: Option<u64>) -> Block {
        Block {
            kind,
            keys,
            targets: 0..0,
            timeout_ms,
            when_gone: false,
            call: None,
        }
    }
}

impl From<Block> for Failure {
    fn from(block: Block) -> Failure {
        Failure::Stop(Stop::Wait(Arc::new(block)))
    }
}

impl Ctx<'_> {
    /// Ends the wait before a blocking command takes the element that it has found. Fails if the client that waits for
    /// it is gone; never if no client has waited.
    pub(crate) fn claim(&self) -> Result<(), Stop> {
        match self.waiter {
            Some(waiter) if !waiter.end(End::Served) => Err(Stop::Gone),
            _ => Ok(()),
        }
    }
}

/// Reads a timeout in seconds, with fractions: as milliseconds, rounded up; 0 is without limit.
pub(crate) fn seconds(ctx: &Ctx<'_>, argument: &[u8]) -> Result<Option<u64>, Error> {
    const NOT_A_FLOAT: Error = Error::line("ERR timeout is not a float or out of range");
    let seconds = match number::parse_f64(argument) {
        Some(seconds) => seconds,
        None => {
            // Redis reads a wider format: a number out of our range only is too long, or almost zero.
            let wide = Extended::parse(argument).ok_or(NOT_A_FLOAT)?;
            let mut digits = Vec::new();
            wide.format(&mut digits);
            let size = if digits.len() > 20 {
                f64::INFINITY
            } else {
                f64::MIN_POSITIVE
            };
            if argument[0] == b'-' { -size } else { size }
        }
    };
    let milliseconds = (seconds * 1000.0).ceil();
    // The largest number that is an i64 is below 2^63, which is a double.
    if milliseconds >= i64::MAX as f64 {
        return Err(Error::line("ERR timeout is out of range"));
    }
    span(milliseconds as i64, ctx.keys.now_ms())
}

/// Reads a timeout in whole milliseconds; 0 is without limit.
pub(crate) fn milliseconds(ctx: &Ctx<'_>, argument: &[u8]) -> Result<Option<u64>, Error> {
    wait_ms(argument, ctx.keys.now_ms())
}

/// Reads the timeout in milliseconds; `None`: without limit. `now_ms`: Unix time; the end must be a valid time, too.
///
/// # Errors
/// If it is no integer, negative, or too large.
pub fn wait_ms(argument: &[u8], now_ms: i64) -> Result<Option<u64>, Error> {
    const NOT_AN_INTEGER: Error = Error::line("ERR timeout is not an integer or out of range");
    span(number::parse_i64(argument).ok_or(NOT_AN_INTEGER)?, now_ms)
}

fn span(milliseconds: i64, now_ms: i64) -> Result<Option<u64>, Error> {
    if milliseconds < 0 {
        return Err(Error::line("ERR timeout is negative"));
    }
    if milliseconds > i64::MAX - now_ms {
        return Err(Error::line("ERR timeout is out of range"));
    }
    Ok((milliseconds > 0).then_some(milliseconds as u64))
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn times_to_wait() {
        let mut db = TestDb::new();
        for (timeout, reply) in [
            ("0", "*-1"),
            ("0.001", "*-1"),
            ("1e-400", "*-1"),
            ("-0.0001", "*-1"),
            ("0x1p-3", "*-1"),
            ("x", "-ERR timeout is not a float or out of range"),
            ("nan", "-ERR timeout is not a float or out of range"),
            ("-1", "-ERR timeout is negative"),
            ("-inf", "-ERR timeout is negative"),
            ("inf", "-ERR timeout is out of range"),
            ("1e400", "-ERR timeout is out of range"),
            ("9223372036854775", "-ERR timeout is out of range"),
        ] {
            assert_eq!(db.run(&["BLPOP", "l", timeout]), reply, "{timeout}");
        }
        for (timeout, reply) in [
            ("0", "*-1"),
            ("1.5", "-ERR timeout is not an integer or out of range"),
            ("-1", "-ERR timeout is negative"),
            ("9223372036854775807", "-ERR timeout is out of range"),
        ] {
            let call = ["XREAD", "BLOCK", timeout, "STREAMS", "s", "$"];
            assert_eq!(db.run(&call), reply, "{timeout}");
        }
    }
}
