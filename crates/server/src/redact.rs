//! Redaction of the parts of a call that must not be shown to others: passwords and the like, in the logs of commands and to
//! MONITOR.
//!
//! Must not know: who is shown it.

use redline_observe::secret::{self, REDACTED};
use redline_resp::Args;
use redline_spec::CommandId;

use crate::config;

/// Returns true if the argument at `index` is a secret.
pub fn is_secret(id: CommandId, args: Args<'_>, index: usize) -> bool {
    match id {
        CommandId::ConfigSet => {
            index >= 3
                && index % 2 == 1
                && config::find(&args[index - 1]).is_some_and(|row| row.secret)
        }
        _ => secret::is_secret(id, args, index),
    }
}

/// The argument at `index` as others may see it.
pub fn shown(id: CommandId, args: Args<'_>, index: usize) -> &[u8] {
    match is_secret(id, args, index) {
        true => REDACTED,
        false => args.get(index).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use redline_resp::ArgsBuf;

    use super::*;

    fn shown_line(id: CommandId, words: &str) -> String {
        let mut args = ArgsBuf::new();
        words.split(' ').for_each(|word| args.push(word.as_bytes()));
        let args = args.as_args();
        let words = (0..args.len()).map(|index| String::from_utf8_lossy(shown(id, args, index)));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn secrets_are_not_shown() {
        let hello = shown_line(CommandId::Hello, "HELLO 3 AUTH user word SETNAME me");
        assert_eq!(hello, "HELLO 3 AUTH (redacted) (redacted) SETNAME me");
        let auth = shown_line(CommandId::Auth, "AUTH user word");
        assert_eq!(auth, "AUTH (redacted) (redacted)");
        let user = shown_line(CommandId::AclSetuser, "ACL SETUSER me >word");
        assert_eq!(user, "ACL SETUSER (redacted) (redacted)");
        let set = shown_line(
            CommandId::ConfigSet,
            "CONFIG SET hz 10 requirepass word tls-key-file-pass word",
        );
        assert_eq!(
            set,
            "CONFIG SET hz 10 requirepass (redacted) tls-key-file-pass (redacted)"
        );
        assert_eq!(shown_line(CommandId::Set, "SET a b"), "SET a b");
    }
}
