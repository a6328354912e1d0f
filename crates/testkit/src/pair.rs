//! The same call to two servers at a time. Must not know the calls.

use std::net::SocketAddr;

use redline_resp::reply_decoder::Value;

use crate::client::Client;

/// A connection to each server.
pub(crate) struct Pair {
    ours: Client,
    theirs: Client,
}

impl Pair {
    /// Connects to both.
    pub(crate) fn connect(ours: SocketAddr, theirs: SocketAddr) -> Result<Pair, String> {
        let connect = |to| Client::connect(to).map_err(|error| format!("{to}: {error}"));
        Ok(Pair {
            ours: connect(ours)?,
            theirs: connect(theirs)?,
        })
    }

    /// Sends the call to both servers and returns their replies.
    pub(crate) fn both(&mut self, call: &[String]) -> Result<(Value, Value), String> {
        let failed = |error| format!("{call:?}: {error}");
        let ours = self.ours.call(call).map_err(failed)?;
        let theirs = self.theirs.call(call).map_err(failed)?;
        Ok((ours, theirs))
    }

    /// Checks that both replies are equal.
    pub(crate) fn same(&mut self, call: &[String]) -> Result<(), String> {
        let (ours, theirs) = self.both(call)?;
        if ours == theirs {
            return Ok(());
        }
        Err(format!("{call:?}\n  ours   {ours:?}\n  theirs {theirs:?}"))
    }

    /// Checks replies that describe the server: both are errors, or neither is.
    pub(crate) fn same_kind(&mut self, call: &[String]) -> Result<(), String> {
        let (ours, theirs) = self.both(call)?;
        match ours.is_error() == theirs.is_error() {
            true => Ok(()),
            false => Err(format!("{call:?}\n  ours   {ours:?}\n  theirs {theirs:?}")),
        }
    }
}
