//! Any stream of commands against one keyspace, each with just the stripes that the server would hold: nothing
//! panics, no handler touches a key whose stripe its row does not name, and every command gives one whole reply.
//!
//! The input is read as a stream of choices: a command, its words, the time that passes.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use redline_fuzz::{Choices, Runner};
use redline_resp::{ArgsBuf, Proto};
use redline_spec::{self as spec, CommandId, Plane};
use redline_types::Limits;

/// Commands of one input.
const COMMANDS_MAX: usize = 60;

/// Words that mean something to some command.
const WORDS: [&str; 104] = [
    "k",
    "l",
    "m",
    "n",
    "k",
    "l",
    "m",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-2",
    "10",
    "100",
    "1000",
    "1.5",
    "-0.5",
    "1e3",
    "inf",
    "-inf",
    "+inf",
    "nan",
    "(1",
    "[a",
    "(b",
    "+",
    "-",
    "*",
    "?",
    "a*",
    "[a-c]",
    "a",
    "b",
    "c",
    "d",
    "",
    "9223372036854775807",
    "-9223372036854775808",
    "1700000000500",
    "1700000000",
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "GET",
    "SET",
    "LEFT",
    "RIGHT",
    "BEFORE",
    "AFTER",
    "WEIGHTS",
    "AGGREGATE",
    "SUM",
    "MIN",
    "MAX",
    "WITHSCORES",
    "WITHSCORE",
    "WITHVALUES",
    "LIMIT",
    "REV",
    "BYSCORE",
    "BYLEX",
    "COUNT",
    "MATCH",
    "TYPE",
    "NOVALUES",
    "STORE",
    "REPLACE",
    "DB",
    "RANK",
    "MAXLEN",
    "MINID",
    "~",
    "=",
    "NOMKSTREAM",
    "1-1",
    "1-*",
    "5-0",
    "0-0",
    "1700000000000-3",
    "IDX",
    "LEN",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "BY",
    "ASC",
    "DESC",
    "ALPHA",
    "ENCODING",
    "FREQ",
    "FIELDS",
    "u8",
    "i64",
    "OVERFLOW",
    "string",
];

fn word<'a>(choices: &mut Choices<'a>) -> Option<&'a [u8]> {
    let choice = usize::from(choices.byte()?);
    if let Some(word) = WORDS.get(choice) {
        return Some(word.as_bytes());
    }
    if choice == 255 {
        // Longer than the compact encodings hold.
        return Some(&[b'v'; 70]);
    }
    Some(choices.take(choice % 6))
}

/// The commands that there are to choose from.
static DATA_PLANE: LazyLock<Vec<CommandId>> = LazyLock::new(|| {
    CommandId::ALL
        .into_iter()
        .filter(|id| spec::gate(*id).plane == Plane::Data)
        .collect()
});

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let mut runner = Runner::new(Limits::default());
    let mut argv = ArgsBuf::default();
    for _ in 0..COMMANDS_MAX {
        let (Some(command), Some(shape)) = (choices.byte(), choices.byte()) else {
            break;
        };
        let id = DATA_PLANE[usize::from(command) % DATA_PLANE.len()];
        runner.pass(i64::from(shape >> 4));
        argv.clear();
        spec::row(id)
            .full_name
            .split('|')
            .for_each(|name| argv.push(name.as_bytes()));
        for _ in 0..shape & 15 {
            let Some(word) = word(&mut choices) else {
                break;
            };
            argv.push(word);
        }
        let proto = if shape & 16 == 0 {
            Proto::Resp2
        } else {
            Proto::Resp3
        };
        let reply = runner.call(id, argv.as_args(), u32::from(command >> 7), proto);
        #[cfg(feature = "planted")]
        assert!(
            id != CommandId::Lpop
                || reply.is_none_or(|r| !r.starts_with(b"$") || r.starts_with(b"$-")),
            "the planted fault"
        );
        let _ = reply;
    }
    runner.finish();
});
