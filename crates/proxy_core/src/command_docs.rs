//! Servers' descriptions of their commands, filtered for clients of the proxy: without forbidden commands, and with
//! renamed ones. If the configuration renames nothing, replies pass unchanged. Must not know connections.

use std::io::Write as _;

use redline_resp::{Proto, ReplyDecoder, Value};

use crate::command_names::Names;

/// The kind of reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// COMMAND: a row for each.
    Rows,
    /// COMMAND INFO: a row for each requested command, or null.
    Asked,
    /// COMMAND COUNT, of all rows.
    Count,
    /// COMMAND DOCS: names and texts.
    Docs,
    /// COMMAND LIST.
    Names,
}

/// Position of a container's subcommands in its row.
const SUBCOMMANDS: usize = 9;

/// Returns the reply for clients; `None`: it has another form.
pub fn rewritten(names: &Names, listing: Listing, proto: Proto, reply: &[u8]) -> Option<Vec<u8>> {
    let value = ReplyDecoder::new().decode(reply).ok()?.value?;
    let null = || match proto {
        Proto::Resp2 => Value::NullArray,
        Proto::Resp3 => Value::Null,
    };
    let shown = match listing {
        Listing::Docs => docs(names, value),
        Listing::Rows => Value::Array(rows(names, elements(value)?)),
        Listing::Count => Value::Integer(rows(names, elements(value)?).len() as i64),
        Listing::Asked => {
            let asked = elements(value)?.into_iter();
            Value::Array(
                asked
                    .map(|it| row(names, it).unwrap_or_else(null))
                    .collect(),
            )
        }
        Listing::Names => {
            let all = elements(value)?.into_iter();
            Value::Array(all.filter_map(|name| renamed(names, &name)).collect())
        }
    };
    let mut bytes = Vec::with_capacity(reply.len());
    write(&shown, &mut bytes);
    Some(bytes)
}

fn elements(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(elements) | Value::Set(elements) => Some(elements),
        _ => None,
    }
}

/// Returns the name for clients; `None`: it is hidden from them.
fn renamed(names: &Names, name: &Value) -> Option<Value> {
    names.new_name(name.as_bytes()?).map(Value::Bulk)
}

fn rows(names: &Names, rows: Vec<Value>) -> Vec<Value> {
    rows.into_iter().filter_map(|it| row(names, it)).collect()
}

fn row(names: &Names, row: Value) -> Option<Value> {
    let Value::Array(mut parts) = row else {
        return Some(row);
    };
    let name = parts.first_mut()?;
    *name = renamed(names, name)?;
    if let Some(Value::Array(subcommands) | Value::Set(subcommands)) = parts.get_mut(SUBCOMMANDS) {
        *subcommands = rows(names, std::mem::take(subcommands));
    }
    Some(Value::Array(parts))
}

/// Filters names with their texts; a container has the same for its subcommands.
fn docs(names: &Names, value: Value) -> Value {
    pairs(value, |name, text| {
        let text = pairs(text, |field, value| {
            let is_parts = field.as_bytes() == Some(b"subcommands");
            let value = match is_parts {
                true => docs(names, value),
                false => value,
            };
            Some((field, value))
        });
        Some((renamed(names, &name)?, text))
    })
}

/// Maps the pairs of a map, which RESP2 encodes as an array.
fn pairs(value: Value, change: impl Fn(Value, Value) -> Option<(Value, Value)>) -> Value {
    match value {
        Value::Map(pairs) => {
            let pairs = pairs.into_iter();
            Value::Map(pairs.filter_map(|(one, two)| change(one, two)).collect())
        }
        Value::Array(words) => {
            let (mut words, mut changed) = (words.into_iter(), Vec::new());
            while let (Some(one), Some(two)) = (words.next(), words.next()) {
                changed.extend(change(one, two).into_iter().flat_map(<[Value; 2]>::from));
            }
            Value::Array(changed)
        }
        other => other,
    }
}

/// Encodes a value as it was decoded.
fn write(value: &Value, out: &mut Vec<u8>) {
    let all = |values: &[Value], out: &mut Vec<u8>| values.iter().for_each(|it| write(it, out));
    let map = |pairs: &[(Value, Value)], out: &mut Vec<u8>| {
        for (one, two) in pairs {
            write(one, out);
            write(two, out);
        }
    };
    // A line, and what follows it.
    let line = |out: &mut Vec<u8>, sign: char, text: &dyn std::fmt::Display| {
        // Writing into a vector cannot fail.
        let _ = write!(out, "{sign}{text}\r\n");
    };
    let bulk = |out: &mut Vec<u8>, sign: char, parts: &[&[u8]]| {
        line(out, sign, &parts.iter().map(|it| it.len()).sum::<usize>());
        parts.iter().for_each(|it| out.extend_from_slice(it));
        out.extend_from_slice(b"\r\n");
    };
    match value {
        Value::Simple(text) => line(out, '+', &String::from_utf8_lossy(text)),
        Value::Error(text) => line(out, '-', &String::from_utf8_lossy(text)),
        Value::Integer(number) => line(out, ':', number),
        Value::Bulk(text) => bulk(out, '$', &[text]),
        Value::Array(values) => {
            line(out, '*', &values.len());
            all(values, out);
        }
        Value::NullBulk => line(out, '$', &-1),
        Value::NullArray => line(out, '*', &-1),
        Value::Null => line(out, '_', &""),
        Value::Boolean(is) => line(out, '#', if *is { &'t' } else { &'f' }),
        Value::Double(text) => line(out, ',', text),
        Value::BigNumber(text) => line(out, '(', text),
        Value::BulkError(text) => bulk(out, '!', &[text]),
        Value::Verbatim { format, text } => bulk(out, '=', &[format, b":", text]),
        Value::Map(pairs) => {
            line(out, '%', &pairs.len());
            map(pairs, out);
        }
        Value::Set(values) => {
            line(out, '~', &values.len());
            all(values, out);
        }
        Value::Push(values) => {
            line(out, '>', &values.len());
            all(values, out);
        }
        Value::Attributed { attributes, value } => {
            line(out, '|', &attributes.len());
            map(attributes, out);
            write(value, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_as_it_was() {
        let text = b"*16\r\n+a\r\n-ERR b\r\n:-1\r\n$2\r\n\r\n\r\n*1\r\n$0\r\n\r\n$-1\r\n*-1\r\n_\r\n#t\r\n#f\r\n,1.5\r\n(12\r\n!3\r\nERR\r\n=5\r\ntxt:x\r\n%1\r\n+k\r\n~1\r\n:2\r\n|1\r\n+a\r\n:1\r\n+v\r\n";
        let value = ReplyDecoder::new().decode(text).unwrap().value.unwrap();
        let mut bytes = Vec::new();
        write(&value, &mut bytes);
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            String::from_utf8_lossy(text)
        );
    }
}
