//! Effect of a call that goes to a server on cached values: which keys it concerns. Must not know the cached values.

use redline_resp::{Args, Span};
use redline_spec::{self as spec, CommandId, Flags, Keys};

use crate::command_names::ForeignByName;

/// The effect of a call on cached values.
pub(super) enum Call<'a> {
    /// It reads this key, and its reply may be cached.
    Get(&'a [u8]),
    /// It may change these keys, or return newer values of them than the cached ones.
    Keys(Vec<&'a [u8]>),
    /// It may change any key.
    Everything,
    /// None.
    Nothing,
    /// The calls that follow are executed at EXEC.
    Multi,
    Exec,
    Discard,
}

/// Returns the effect of a call, as servers get it, on cached values. `foreign`: commands that the table does not have.
pub(super) fn meaning<'a>(args: Args<'a>, foreign: [Option<&ForeignByName>; 2]) -> Call<'a> {
    let Some(name) = args.get(0) else {
        return Call::Nothing;
    };
    let Ok(id) = spec::resolve(name, args.get(1)) else {
        return of_foreign(name, args, foreign);
    };
    match id {
        CommandId::Get if args.len() == 2 => {
            return args.get(1).map_or(Call::Nothing, Call::Get);
        }
        CommandId::Multi => return Call::Multi,
        CommandId::Exec => return Call::Exec,
        CommandId::Discard => return Call::Discard,
        CommandId::Watch | CommandId::Unwatch => return Call::Nothing,
        _ => {}
    }
    let found: Keys = spec::reachable_keys(id, args.len(), |at| args.get(at).unwrap_or_default());
    let keys: Vec<&[u8]> = found.filter_map(|key| args.get(key.position)).collect();
    let runs_a_script = matches!(
        id,
        CommandId::Eval
            | CommandId::EvalRo
            | CommandId::Evalsha
            | CommandId::EvalshaRo
            | CommandId::Fcall
            | CommandId::FcallRo
    );
    match keys.is_empty() {
        false => Call::Keys(keys),
        true if runs_a_script || spec::gate(id).flags.has(Flags::WRITE) => Call::Everything,
        true => Call::Nothing,
    }
}

fn of_foreign<'a>(name: &[u8], args: Args<'a>, foreign: [Option<&ForeignByName>; 2]) -> Call<'a> {
    let name = name.to_ascii_lowercase();
    let Some(found) = foreign
        .into_iter()
        .flatten()
        .find_map(|known| known.get(&name))
    else {
        return Call::Everything;
    };
    let keys: Vec<&[u8]> = found
        .keys(args.len())
        .filter_map(|at| args.get(at))
        .collect();
    match keys.is_empty() || found.has_more_keys {
        true => Call::Everything,
        false => Call::Keys(keys),
    }
}

/// Finds the arguments of the first request in `bytes`, and its length; `None` if it is not a well-formed array of bulks.
pub(super) fn arguments(bytes: &[u8], spans: &mut Vec<Span>) -> Option<usize> {
    spans.clear();
    let (count, mut at) = header(bytes, 0, b'*')?;
    for _ in 0..count {
        let (len, start) = header(bytes, at, b'$')?;
        at = start.checked_add(len)?.checked_add(2)?;
        if at > bytes.len() {
            return None;
        }
        spans.push(Span {
            start: u32::try_from(start).ok()?,
            len: u32::try_from(len).ok()?,
        });
    }
    Some(at)
}

/// Returns the number in a header's line, and the start of the next line.
fn header(bytes: &[u8], at: usize, sign: u8) -> Option<(usize, usize)> {
    let line = bytes.get(at..)?;
    if *line.first()? != sign {
        return None;
    }
    let mut number = 0_usize;
    for (place, &byte) in line.iter().enumerate().skip(1) {
        match byte {
            b'0'..=b'9' => {
                let digit = usize::from(byte - b'0');
                number = number.checked_mul(10)?.checked_add(digit)?;
            }
            b'\r' if place > 1 && line.get(place + 1) == Some(&b'\n') => {
                return Some((number, at + place + 2));
            }
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use redline_proxy_config::Mode;
    use redline_resp::encode_request;

    use super::*;
    use crate::command_names::Foreign;

    fn meant(line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        encode_request(&words, &mut bytes);
        assert_eq!(arguments(&bytes, &mut spans), Some(bytes.len()));
        let foreign = Foreign {
            mode: Mode::Write,
            least: 2,
            most: 9,
            first: 1,
            last: 1,
            step: 1,
            has_more_keys: false,
        };
        let foreign = ForeignByName::from([(b"json.set".to_vec(), foreign)]);
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        match meaning(Args::new(&bytes, &spans), [Some(&foreign), None]) {
            Call::Get(key) => format!("get {}", text(key)),
            Call::Keys(keys) => {
                let keys: Vec<String> = keys.into_iter().map(text).collect();
                format!("keys {}", keys.join(" "))
            }
            Call::Everything => "everything".to_owned(),
            Call::Nothing => "nothing".to_owned(),
            Call::Multi => "multi".to_owned(),
            Call::Exec => "exec".to_owned(),
            Call::Discard => "discard".to_owned(),
        }
    }

    #[test]
    fn calls_mean_keys_or_everything_or_nothing() {
        for (line, meaning) in [
            ("GET k", "get k"),
            ("get k", "get k"),
            ("SET k v", "keys k"),
            ("GETEX k", "keys k"),
            ("MGET a b", "keys a b"),
            ("RENAME a b", "keys a b"),
            ("COPY a b DB 2", "keys a b"),
            ("BLPOP a b 0", "keys a b"),
            ("SORT a BY x* STORE b", "keys a b"),
            ("EVAL s 2 a b c", "keys a b"),
            ("EVAL s 0", "everything"),
            ("EVALSHA s 0 k", "everything"),
            ("FCALL f 0", "everything"),
            ("FLUSHALL", "everything"),
            ("FLUSHDB ASYNC", "everything"),
            ("OBJECT ENCODING k", "keys k"),
            ("XGROUP CREATE k g $", "keys k"),
            ("JSON.SET k $ 1", "keys k"),
            ("OWN.THING k", "everything"),
            ("PING", "nothing"),
            ("SELECT 3", "nothing"),
            ("WATCH k", "nothing"),
            ("MULTI", "multi"),
            ("EXEC", "exec"),
            ("DISCARD", "discard"),
            ("SCRIPT LOAD s", "nothing"),
            ("PUBLISH k v", "nothing"),
            ("DBSIZE", "nothing"),
        ] {
            assert_eq!(meant(line), meaning, "{line}");
        }
    }

    #[test]
    fn what_is_not_a_request_is_none() {
        let mut spans = Vec::new();
        for bytes in [
            &b"GET k\r\n"[..],
            b"*2\r\n$3\r\nGET\r\n$9\r\nk\r\n",
            b"*2\r\n$3\r\nGET\r\n",
            b"*\r\n",
            b"*1",
            b"*1\r\n$99999999999999999999\r\n",
            b"",
        ] {
            assert_eq!(arguments(bytes, &mut spans), None);
        }
    }
}
