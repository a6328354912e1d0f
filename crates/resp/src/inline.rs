//! Inline requests: a line of words with shell-like quoting, as people type them into a raw connection, and as Redis
//! has them in its files too ([`split_words`]). Words are unquoted in place, since unquoting never makes them longer.
//! Knows no commands.

use memchr::memchr;

use crate::args::Span;

/// Returns true if a request that begins with this word is a line of HTTP. A web page can make a browser send a form to
/// any port, whose lines would be taken for requests.
pub fn is_of_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}

/// Returns the words of a line that is no request: of a configuration file, of a script's first line. As in Redis the
/// line ends at its first zero byte. `None`: a quote is not closed, or is followed by something other than a space.
pub fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let words = split_words_at(line)?;
    Some(words.into_iter().map(|(_, word)| word).collect())
}

/// Returns the same, each with its offset in the line: that of its first quote, if the word begins with one.
pub fn split_words_at(line: &[u8]) -> Option<Vec<(usize, Vec<u8>)>> {
    let end = memchr(0, line).unwrap_or(line.len());
    let (mut line, mut spans) = (line[..end].to_vec(), Vec::new());
    split(&mut line, &mut spans).ok()?;
    let word = |span: &Span| {
        let start = span.start as usize;
        (start, line[start..][..span.len as usize].to_vec())
    };
    Some(spans.iter().map(word).collect())
}

/// Error for a quote that is not closed, or that is followed by something other than a space.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnbalancedQuotes;

/// Splits `line` (without its line feed, and without NUL bytes) into words and appends their spans. Returns the number
/// of words.
pub(crate) fn split(line: &mut [u8], spans: &mut Vec<Span>) -> Result<usize, UnbalancedQuotes> {
    let before = spans.len();
    let mut read = 0;
    loop {
        while line.get(read).is_some_and(|&c| is_space(c)) {
            read += 1;
        }
        if read == line.len() {
            return Ok(spans.len() - before);
        }
        let start = read;
        let mut write = read;
        read = match word(line, start, &mut write) {
            Some(end) => end,
            None => {
                spans.truncate(before);
                return Err(UnbalancedQuotes);
            }
        };
        spans.push(Span {
            start: start as u32,
            len: (write - start) as u32,
        });
    }
}

/// Unquotes the word that starts at `read` down to `write`; returns the offset where reading continues, `None` on a wrong quote.
fn word(line: &mut [u8], mut read: usize, write: &mut usize) -> Option<usize> {
    let mut put = |line: &mut [u8], c: u8| {
        line[*write] = c;
        *write += 1;
    };
    loop {
        match line.get(read) {
            None | Some(b' ' | b'\n' | b'\r' | b'\t') => return Some(read),
            Some(b'"') => break read += 1,
            Some(b'\'') => return single_quoted(line, read + 1, put),
            Some(&c) => {
                put(line, c);
                read += 1;
            }
        }
    }
    // Inside double quotes, where backslashes escape.
    loop {
        match line[read..] {
            [] => return None,
            [b'"', ..] => return closed(line, read),
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                put(line, hex(high) << 4 | hex(low));
                read += 4;
            }
            [b'\\', c, ..] => {
                let c = match c {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => other,
                };
                put(line, c);
                read += 2;
            }
            [c, ..] => {
                put(line, c);
                read += 1;
            }
        }
    }
}

/// Unquotes the rest of a word inside single quotes, where only `\'` is an escape.
fn single_quoted(
    line: &mut [u8],
    mut read: usize,
    mut put: impl FnMut(&mut [u8], u8),
) -> Option<usize> {
    loop {
        match line[read..] {
            [] => return None,
            [b'\'', ..] => return closed(line, read),
            [b'\\', b'\'', ..] => {
                put(line, b'\'');
                read += 2;
            }
            [c, ..] => {
                put(line, c);
                read += 1;
            }
        }
    }
}

/// Returns the offset after a closing quote. The quote ends its word: after it comes a space or the end.
fn closed(line: &[u8], quote: usize) -> Option<usize> {
    line.get(quote + 1)
        .is_none_or(|&c| is_space(c))
        .then_some(quote + 1)
}

fn is_space(c: u8) -> bool {
    matches!(c, b' ' | b'\t'..=b'\r')
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<String>, UnbalancedQuotes> {
        let (mut line, mut spans) = (line.as_bytes().to_vec(), Vec::new());
        let n = split(&mut line, &mut spans)?;
        assert_eq!(n, spans.len());
        let text = |s: &Span| {
            line[s.start as usize..(s.start + s.len) as usize]
                .escape_ascii()
                .to_string()
        };
        Ok(spans.iter().map(text).collect())
    }

    #[test]
    fn words_are_separated_by_white_space() {
        assert_eq!(words("").unwrap(), [""; 0]);
        assert_eq!(words(" \t\r\x0b\x0c ").unwrap(), [""; 0]);
        assert_eq!(words("PING").unwrap(), ["PING"]);
        assert_eq!(words("  set  k\tv \r").unwrap(), ["set", "k", "v"]);
    }

    #[test]
    fn a_zero_byte_had_no_end_of_words_behind_it() {
        let words = |line: &str| split_words(line.as_bytes());
        let some =
            |words: &[&str]| Some(words.iter().map(|word| word.as_bytes().to_vec()).collect());
        assert_eq!(
            words(" port 'it\\'s' \"a b\" "),
            some(&["port", "it's", "a b"])
        );
        assert_eq!(words("port 1\0"), some(&["port", "1"]));
        assert_eq!(words("port \0\"1"), some(&["port"]));
        assert_eq!(words("\0"), some(&[]));
        assert_eq!(words("port \"1\0 2\""), None);
    }

    #[test]
    fn vertical_tab_and_form_feed_separate_only_before_a_word() {
        assert_eq!(words("\x0ba\x0bb \x0cc").unwrap(), ["a\\x0bb", "c"]);
    }

    #[test]
    fn double_quotes_escape() {
        assert_eq!(
            words(r#""a b" "" "\x41\n\r\t\b\a\"\\\q""#).unwrap(),
            ["a b", "", r#"A\n\r\t\x08\x07\"\\q"#]
        );
        assert_eq!(
            words(r#""\x00\x99\xaf\xFA""#).unwrap(),
            ["\\x00\\x99\\xaf\\xfa"]
        );
        assert_eq!(words(r#""\x4" "\xZZ""#).unwrap(), ["x4", "xZZ"]);
    }

    #[test]
    fn single_quotes_escape_only_themselves() {
        assert_eq!(words(r"'a b' '' '\'\n'").unwrap(), ["a b", "", r"\'\\n"]);
    }

    #[test]
    fn a_quote_may_open_inside_a_word() {
        assert_eq!(words(r#"ab"c d" e'f'"#).unwrap(), ["abc d", "ef"]);
    }

    #[test]
    fn wrong_quotes_are_an_error_and_leave_no_words() {
        for line in [
            r#"a "b"#, "a 'b", r#""a"b"#, "'a'b", r#"""""#, r#""\"#, r#""\""#, r#"a '\'"#,
        ] {
            assert_eq!(words(line), Err(UnbalancedQuotes), "{line}");
        }
    }
}
