//! Interface to the server for a running script. Must not know Lua.

use std::borrow::Cow;

use redline_resp::{Args, Proto, ReplyBuffer};

/// Wording that an error uses: that of the table by which the script calls, `redis` or `server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Redis's.
    Redis,
    /// Valkey's.
    Valkey,
}

/// The server, as one running script sees it.
pub trait ScriptEnv {
    /// Runs one command as `redis.call` does and appends its reply, in the version `proto`, to `reply`. A refusal is
    /// an error reply, in the words of `family`. `reply` is empty before.
    fn call(&mut self, args: Args<'_>, family: Family, proto: Proto, reply: &mut ReplyBuffer);

    /// Counts an error that the script returns, also deep inside, or raises. `counted`: the error is marked as one that
    /// statistics have already, as the errors of [`call`](ScriptEnv::call) are.
    fn failed(&mut self, _error: &[u8], _counted: bool) {}

    /// Called about every millisecond while a script runs. The server counts the script's time here, serves its event
    /// loop once that is over the threshold, and may end the script.
    fn tick(&mut self) -> Tick;

    /// `redis.log`: level 0 (debug) to 3 (warning).
    fn log(&mut self, level: i64, text: &[u8]);

    /// Answers `redis.acl_check_cmd`: whether the script's user may run this command, or `None` if there is no such
    /// command.
    fn acl_check(&mut self, args: Args<'_>) -> Option<bool>;

    /// Sets where later effects go (`redis.set_repl`). Bit 0 is the AOF, bit 1 the replicas.
    fn set_repl(&mut self, targets: u8);
}

/// Decision about the script that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tick {
    /// It goes on.
    Continue,
    /// It ends here with this error, whose code `ERR` is put in front. Nothing in the script can catch it.
    Kill(Cow<'static, str>),
}
