//! Error replies for calls that reach no handler: lines of errors, without the leading `-`. Clients match on these
//! texts, so they are those of Redis 8.2.3. Bytes of a client are returned as sent, text or not. Must not know the
//! caller, or the way a line is sent.

/// Number of bytes of an argument, and of all arguments, that the unknown-command error repeats.
const PREVIEW_BYTES_MAX: usize = 128;

/// Returns a line that repeats an argument: up to its first zero byte, with spaces for bytes that would end the line.
pub fn quoting(
    before: &(impl AsRef<[u8]> + ?Sized),
    argument: &[u8],
    after: &(impl AsRef<[u8]> + ?Sized),
) -> Vec<u8> {
    let mut line = [before.as_ref(), shown(argument), after.as_ref()].concat();
    while let Some(b'\r' | b'\n') = line.last() {
        line.pop();
    }
    for byte in &mut line {
        if matches!(byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
    line
}

/// Returns the error for a call whose first word is no command.
pub fn unknown_command<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut words = words.into_iter();
    let name = words.next().unwrap_or_default();
    let mut rest = b"', with args beginning with: ".to_vec();
    let before = rest.len();
    for word in words {
        let left = PREVIEW_BYTES_MAX.saturating_sub(rest.len() - before);
        if left == 0 {
            break;
        }
        let shown = preview(word);
        rest.push(b'\'');
        rest.extend_from_slice(&shown[..shown.len().min(left)]);
        rest.extend_from_slice(b"' ");
    }
    quoting("ERR unknown command '", preview(name), &rest)
}

/// Returns the error for an unknown subcommand of a container, whose name is in upper case.
pub fn unknown_subcommand(container: &str, subcommand: &[u8]) -> Vec<u8> {
    let after = format!("'. Try {container} HELP.");
    quoting("ERR unknown subcommand '", preview(subcommand), &after)
}

/// Returns the error for too few or too many arguments of a subcommand, in the words of a container that has HELP.
pub fn wrong_subcommand_arity(container: &str, subcommand: &[u8]) -> Vec<u8> {
    let before = "ERR unknown subcommand or wrong number of arguments for '";
    quoting(
        before,
        preview(subcommand),
        &format!("'. Try {container} HELP."),
    )
}

/// Returns the error for too few or too many arguments of the command of this full name.
pub fn wrong_arity(full_name: &str) -> String {
    format!("ERR wrong number of arguments for '{full_name}' command")
}

/// Returns the error for a subscribed client in RESP2 that may not call the command of this full name.
pub fn subscribed(full_name: &str) -> String {
    format!(
        "ERR Can't execute '{full_name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    )
}

/// The error for a client name that is none: see [`is_client_name`].
pub const NO_CLIENT_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters.";

/// Returns true if a name, of a client or of its library, may stand in a line of fields with spaces between them, as
/// CLIENT LIST has them.
pub fn is_client_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// Returns the error for CLIENT SETINFO with a value that is no such name.
pub fn no_client_info(option: &[u8]) -> Vec<u8> {
    let why = " cannot contain spaces, newlines or special characters.";
    quoting("ERR ", option, why)
}

/// Returns the error for a transaction that is aborted because of an error line for EXEC itself.
pub fn exec_aborted(line: &[u8]) -> Vec<u8> {
    let reason = line.strip_prefix(b"ERR ").unwrap_or(line);
    quoting("EXECABORT Transaction discarded because of: ", reason, "")
}

/// Returns an argument as part of an error: up to its first zero byte, and cut.
fn preview(argument: &[u8]) -> &[u8] {
    let text = shown(argument);
    &text[..text.len().min(PREVIEW_BYTES_MAX)]
}

fn shown(argument: &[u8]) -> &[u8] {
    argument.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sent_comes_back_as_bytes_and_on_one_line() {
        let line = unknown_command([&b"a\xff\nb\0c"[..], b"\xfe\xff\r", b"b"]);
        let expected = b"ERR unknown command 'a\xff b', with args beginning with: '\xfe\xff ' 'b' ";
        assert_eq!(line, expected);
        assert_eq!(quoting("ERR '", b"\xff", "' no\r\n"), b"ERR '\xff' no");
    }

    /// Uses characters of two bytes, so that a limit of characters would let twice as many bytes through.
    #[test]
    fn arguments_are_cut_by_bytes() {
        let long = "é".repeat(100);
        let line = unknown_command([&b"x"[..], b"12345678", long.as_bytes(), b"y"]);
        let shown = &long.as_bytes()[..128 - "'12345678' ".len()];
        let before = b"ERR unknown command 'x', with args beginning with: '12345678' '";
        assert_eq!(line, [before, shown, b"' "].concat());
        let name = unknown_subcommand("OBJECT", long.as_bytes());
        let before = b"ERR unknown subcommand '";
        let expected = [before, &long.as_bytes()[..128], b"'. Try OBJECT HELP."].concat();
        assert_eq!(name, expected);
    }

    #[test]
    fn a_client_name_has_no_spaces() {
        assert!(is_client_name(b"a-b") && is_client_name(b""));
        assert!(!is_client_name(b"a b") && !is_client_name(b"\n") && !is_client_name(b"\xff"));
    }

    #[test]
    fn exec_says_why_without_the_code_of_any_error() {
        for (line, expected) in [
            ("ERR no", "EXECABORT Transaction discarded because of: no"),
            (
                "NOPERM no",
                "EXECABORT Transaction discarded because of: NOPERM no",
            ),
        ] {
            assert_eq!(exec_aborted(line.as_bytes()), expected.as_bytes());
        }
    }
}
