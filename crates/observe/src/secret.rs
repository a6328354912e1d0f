//! Arguments of a call that are secrets of its client: passwords, in the logs of calls and to MONITOR. Must not know
//! the readers of the logs.

use redline_resp::Args;
use redline_spec::CommandId;

/// Text that takes the place of a secret.
pub const REDACTED: &[u8] = b"(redacted)";

/// Returns true if the argument at `index` of AUTH, HELLO, MIGRATE or ACL SETUSER is a secret.
pub fn is_secret(id: CommandId, args: Args<'_>, index: usize) -> bool {
    let is = |at: usize, name: &[u8]| {
        let word = args.get(at);
        word.is_some_and(|word| word.eq_ignore_ascii_case(name))
    };
    match id {
        CommandId::Auth => index >= 1,
        CommandId::AclSetuser => index >= 2,
        CommandId::Hello => {
            let is_auth = |at: usize| at >= 2 && is(at, b"auth");
            index >= 1 && (is_auth(index - 1) || (index >= 2 && is_auth(index - 2)))
        }
        CommandId::Migrate => {
            // A key that is named as an option is hidden, too: rather that than a password that is not.
            let is_auth = |at: usize| at >= 6 && (is(at, b"auth") || is(at, b"auth2"));
            index >= 7 && (is_auth(index - 1) || is(index - 2, b"auth2") && is_auth(index - 2))
        }
        _ => false,
    }
}
