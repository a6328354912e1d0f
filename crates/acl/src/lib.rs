//! Access control: users, their rules, and the check whether a user may make a call.
//!
//! Start in [`User`] (what a user is), then [`Selector`] (commands, keys and channels that go together, and the
//! check), then [`Users`] (all of them, as the server publishes them). [`Log`] keeps refusals; [`NO_AUTH`] and its like
//! are replies to a client that is not logged in.
//!
//! A rule is a word such as `+get` or `~cache:*`; the language and the order in which rules are printed are
//! those of Redis 8.2.3, since users keep such words in files. Checking allocates nothing: a bit for the command,
//! then a glob for each key and channel of the call, whose places come from the command table.
//!
//! Must not know: clients, handlers, sockets, files, a clock.

#![forbid(unsafe_code)]

mod log;
mod login;
mod password;
mod rule;
mod selector;
mod user;
mod users;

#[cfg(test)]
mod tests;

pub use log::{Context, Entry, Event, Log};
pub use login::{HELLO_NEEDS_AUTH, NO_AUTH, NO_PASSWORD, WRONG_PASSWORD};
pub use password::{PASSWORD_HASH_BYTES, PasswordHash};
pub use rule::{Dialect, RuleError, UnmatchedParenthesis, merge_selectors};
pub use selector::{Denied, KeyUse, Reason, Selector};
pub use user::User;
pub use users::{DEFAULT_USER, SetUserError, Users, is_user_name};
