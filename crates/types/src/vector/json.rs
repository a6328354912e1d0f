//! The value of a field at the top of a JSON object, without parsing the rest. Must not know filters.
//!
//! Skipped text is not checked: only the wanted value must be well-formed. Values that a filter cannot use (objects,
//! arrays with objects in them) count as missing, as in Redis 8.2.3. Keys are compared as they stand, so a name with an
//! escape in it is found under its escaped form only.

use std::borrow::Cow;

/// Depth to which arrays inside arrays are read.
const DEPTH_MAX: usize = 64;
/// Length at which texts of numbers are cut off.
const NUMBER_BYTES_MAX: usize = 255;

/// A value that a filter can use.
#[derive(Clone, Debug, PartialEq)]
pub enum Json<'a> {
    /// `null`.
    Null,
    /// A number; `true` is 1 and `false` is 0.
    Number(f64),
    /// A string, its escapes resolved.
    String(Cow<'a, [u8]>),
    /// An array.
    Array(Vec<Json<'a>>),
}

/// Returns the value of a field; the first, if it is there more than once.
pub fn field<'a>(object: &'a [u8], name: &[u8]) -> Option<Json<'a>> {
    let mut reader = Reader { rest: object };
    reader.spaces();
    reader.expect(b'{')?;
    loop {
        reader.spaces();
        let key = reader.raw_string()?;
        reader.spaces();
        reader.expect(b':')?;
        reader.spaces();
        if key == name {
            return reader.value(0);
        }
        reader.skip()?;
        reader.spaces();
        reader.expect(b',')?;
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn spaces(&mut self) {
        let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
        let len = self.rest.iter().take_while(|byte| is_space(byte)).count();
        self.rest = &self.rest[len..];
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        (*first == byte).then_some(())
    }

    /// Returns the inside of a string as it stands.
    fn raw_string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let mut len = 0;
        loop {
            match *self.rest.get(len)? {
                b'"' => break,
                b'\\' => len += 2,
                _ => len += 1,
            }
        }
        let (inside, rest) = self.rest.split_at_checked(len)?;
        self.rest = &rest[1..];
        Some(inside)
    }

    fn skip(&mut self) -> Option<()> {
        match *self.rest.first()? {
            b'"' => self.raw_string().map(|_| ()),
            b'{' => self.skip_brackets(b'{', b'}'),
            b'[' => self.skip_brackets(b'[', b']'),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => (!self.number_text().is_empty()).then_some(()),
        }
    }

    fn skip_brackets(&mut self, open: u8, close: u8) -> Option<()> {
        let mut depth = 0usize;
        loop {
            let byte = *self.rest.first()?;
            if byte == b'"' {
                self.raw_string()?;
                continue;
            }
            self.rest = &self.rest[1..];
            if byte == open {
                depth += 1;
            } else if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Some(());
                }
            }
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    /// Returns a word with nothing behind it that could belong to it.
    fn whole_word(&mut self, word: &[u8]) -> Option<()> {
        self.word(word)?;
        let ends = self.rest.first().is_none_or(|byte| {
            byte.is_ascii_whitespace() || matches!(byte, 0x0b | b',' | b']' | b'}')
        });
        ends.then_some(())
    }

    fn number_text(&mut self) -> &'a [u8] {
        let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let len = self.rest.iter().take_while(|byte| is_part(byte)).count();
        let (text, rest) = self.rest.split_at(len);
        self.rest = rest;
        text
    }

    fn value(&mut self, depth: usize) -> Option<Json<'a>> {
        self.spaces();
        Some(match *self.rest.first()? {
            b'"' => Json::String(unescape(self.raw_string()?)),
            b'[' => Json::Array(self.array(depth)?),
            b't' => self.whole_word(b"true").map(|()| Json::Number(1.0))?,
            b'f' => self.whole_word(b"false").map(|()| Json::Number(0.0))?,
            b'n' => self.whole_word(b"null").map(|()| Json::Null)?,
            b'0'..=b'9' | b'-' | b'+' => {
                let text = self.number_text();
                let text = &text[..text.len().min(NUMBER_BYTES_MAX)];
                Json::Number(std::str::from_utf8(text).ok()?.parse().ok()?)
            }
            _ => return None,
        })
    }

    fn array(&mut self, depth: usize) -> Option<Vec<Json<'a>>> {
        if depth == DEPTH_MAX {
            return None;
        }
        self.expect(b'[')?;
        self.spaces();
        let mut values = Vec::new();
        if self.rest.first() == Some(&b']') {
            self.rest = &self.rest[1..];
            return Some(values);
        }
        loop {
            values.push(self.value(depth + 1)?);
            self.spaces();
            let (separator, rest) = self.rest.split_first()?;
            self.rest = rest;
            match separator {
                b',' => {}
                b']' => return Some(values),
                _ => return None,
            }
        }
    }
}

/// Resolves `\n`, `\r` and `\t`; of any other escape the backslash goes.
fn unescape(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.contains(&b'\\') {
        return Cow::Borrowed(raw);
    }
    let mut text = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter();
    while let Some(&byte) = bytes.next() {
        text.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(other) => *other,
                None => break,
            },
            byte => byte,
        });
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x(object: &str) -> Option<Json<'_>> {
        field(object.as_bytes(), b"x")
    }

    #[test]
    fn every_kind_of_value_is_read() {
        let string = |text: &'static str| Some(Json::String(text.as_bytes().into()));
        let number = |value| Some(Json::Number(value));
        assert_eq!(x(r#"{"x":1}"#), number(1.0));
        assert_eq!(x(r#" { "y" : 2 , "x" : -2.5e1 } behind"#), number(-25.0));
        assert_eq!(x(r#"{"x":true}"#), number(1.0));
        assert_eq!(x(r#"{"x":false }"#), number(0.0));
        assert_eq!(x(r#"{"x":null}"#), Some(Json::Null));
        assert_eq!(x(r#"{"x":"a b"}"#), string("a b"));
        assert_eq!(x(r#"{"x":"a\"b\n\u0041"}"#), string("a\"b\nu0041"));
        assert_eq!(x(r#"{"x":[]}"#), Some(Json::Array(vec![])));
        assert_eq!(
            x(r#"{"x": [1, "b" ,[null]]}"#),
            Some(Json::Array(vec![
                Json::Number(1.0),
                Json::String(b"b".into()),
                Json::Array(vec![Json::Null])
            ]))
        );
    }

    #[test]
    fn what_stands_in_front_is_skipped_and_what_stands_behind_not_looked_at() {
        for object in [
            r#"{"y":{"a":"}"},"x":1}"#,
            r#"{"y":[1,[2],"]"],"x":1}"#,
            r#"{"y":"\"","x":1}"#,
            r#"{"y":true,"z":null,"x":1x}"#,
            r#"{"x":1"#,
            r#"{"x":1,}"#,
            r#"{"x":1,"x":2}"#,
        ] {
            assert_eq!(x(object), Some(Json::Number(1.0)), "{object}");
        }
    }

    #[test]
    fn what_is_damaged_or_of_no_use_is_missing() {
        for object in [
            "",
            "[1]",
            "{}",
            r#"{"x" 1}"#,
            r#"{"x":tru}"#,
            r#"{"x":truex}"#,
            r#"{"x":-}"#,
            r#"{"x":.5}"#,
            r#"{"x":infinity}"#,
            r#"{"x":{"y":1}}"#,
            r#"{"x":[1,{"a":1}]}"#,
            r#"{"x":[1,]}"#,
            r#"{"x":[1"#,
            r#"{"x":"open}"#,
            r#"{"x":"open\"#,
            r#"{"a":b,"x":1}"#,
            r#"{"a":1 "x":1}"#,
            r#"{"a":1,,"x":1}"#,
        ] {
            assert_eq!(x(object), None, "{object}");
        }
        assert_eq!(x(&format!(r#"{{"x":{}"#, "[".repeat(100_000))), None);
    }
}
