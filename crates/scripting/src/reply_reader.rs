//! Reads the replies of commands token by token, without building a tree: `redis.call` turns them into Lua values.
//! The replies come from this process, so a malformed one is a bug elsewhere; it ends in `None`, never in a panic.

/// One step of a reply. Aggregates are followed by their elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    Status(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    Bulk(&'a [u8]),
    /// `$-1` and `*-1`.
    Null2,
    /// `_`.
    Null3,
    Array(usize),
    Map(usize),
    Set(usize),
    Double(f64),
    Bool(bool),
    BigNumber(&'a [u8]),
    Verbatim {
        format: &'a [u8],
        text: &'a [u8],
    },
}

/// A place in a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyReader<'a> {
    rest: &'a [u8],
}

impl<'a> ReplyReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> ReplyReader<'a> {
        ReplyReader { rest: bytes }
    }

    pub(crate) fn next(&mut self) -> Option<Token<'a>> {
        let (&kind, rest) = self.rest.split_first()?;
        self.rest = rest;
        let line = self.line()?;
        Some(match kind {
            b'+' => Token::Status(line),
            b'-' => Token::Error(line),
            b':' => Token::Integer(integer(line)?),
            b'$' => match integer(line)? {
                -1 => Token::Null2,
                n => Token::Bulk(self.body(n)?),
            },
            b'*' | b'>' => match integer(line)? {
                -1 => Token::Null2,
                n => Token::Array(n.try_into().ok()?),
            },
            b'%' => Token::Map(integer(line)?.try_into().ok()?),
            b'~' => Token::Set(integer(line)?.try_into().ok()?),
            b'_' => Token::Null3,
            b',' => Token::Double(str::from_utf8(line).ok()?.parse().ok()?),
            b'#' => Token::Bool(line == b"t"),
            b'(' => Token::BigNumber(line),
            b'!' => Token::Error(self.body(integer(line)?)?),
            b'|' => {
                // Attributes are not shown to scripts.
                self.skip(2 * usize::try_from(integer(line)?).ok()?)?;
                return self.next();
            }
            b'=' => {
                let (format, text) = self.body(integer(line)?)?.split_at_checked(4)?;
                Token::Verbatim {
                    format: &format[..3],
                    text,
                }
            }
            _ => return None,
        })
    }

    /// Passes over so many values.
    fn skip(&mut self, values: usize) -> Option<()> {
        let mut left = values;
        while left > 0 {
            left -= 1;
            left = left.checked_add(match self.next()? {
                Token::Array(n) | Token::Set(n) => n,
                Token::Map(n) => n.checked_mul(2)?,
                _ => 0,
            })?;
        }
        Some(())
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(b'\r', self.rest)?;
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 2..)?;
        Some(line)
    }

    fn body(&mut self, len: i64) -> Option<&'a [u8]> {
        let len = usize::try_from(len).ok()?;
        let body = self.rest.get(..len)?;
        self.rest = self.rest.get(len.checked_add(2)?..)?;
        Some(body)
    }
}

fn integer(line: &[u8]) -> Option<i64> {
    str::from_utf8(line).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_read() {
        let bytes = b"+OK\r\n-ERR x\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n_\r\n*2\r\n%1\r\n~3\r\n,1.5\r\n,inf\r\n#t\r\n#f\r\n(12345678901234567890\r\n=6\r\ntxt:hi\r\n!3\r\nE x\r\n|1\r\n+a\r\n*2\r\n:1\r\n%1\r\n+b\r\n:2\r\n>1\r\n$0\r\n\r\n";
        let mut reader = ReplyReader::new(bytes);
        let expected = [
            Token::Status(b"OK"),
            Token::Error(b"ERR x"),
            Token::Integer(-7),
            Token::Bulk(b"a\r\n"),
            Token::Null2,
            Token::Null2,
            Token::Null3,
            Token::Array(2),
            Token::Map(1),
            Token::Set(3),
            Token::Double(1.5),
            Token::Double(f64::INFINITY),
            Token::Bool(true),
            Token::Bool(false),
            Token::BigNumber(b"12345678901234567890"),
            Token::Verbatim {
                format: b"txt",
                text: b"hi",
            },
            Token::Error(b"E x"),
            Token::Array(1),
            Token::Bulk(b""),
        ];
        for token in expected {
            assert_eq!(reader.next(), Some(token));
        }
        assert_eq!(reader.next(), None);
    }

    #[test]
    fn malformed_replies_end_in_none() {
        for bytes in [
            &b""[..],
            b"?\r\n",
            b":\r\n",
            b":x\r\n",
            b"$5\r\nab\r\n",
            b"$-2\r\n",
            b"*-2\r\n",
            b"$9223372036854775807\r\n",
            b"=2\r\nab\r\n",
            b"+OK",
            b"+OK\r",
        ] {
            assert_eq!(ReplyReader::new(bytes).next(), None, "{bytes:?}");
        }
    }
}
