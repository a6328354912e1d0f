//! Commands on streams and their groups, one after the other, and payloads of streams that somebody has changed: nothing
//! panics, counts are those of what is there, and a stream that travels as a payload arrives as it was.
//!
//! The input is read as a stream of choices: a sentence, then what goes into its places.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_fuzz::{Choices, Runner};
use redline_rdb::crc64;
use redline_types::Limits;

/// Sentences of one input.
const SENTENCES_MAX: usize = 80;
/// Bytes behind a payload's body: the version and the checksum.
const FOOTER_BYTES: usize = 10;

/// What is called. A word of one capital letter is a place: Key, Id, Group, Consumer, Number, Value, Policy.
const SENTENCES: [&str; 44] = [
    "XADD K * V V",
    "XADD K I V V V V",
    "XADD K I V V",
    "XADD K NOMKSTREAM MAXLEN = N I V V",
    "XADD K MAXLEN ~ N LIMIT N * V V",
    "XADD K P MINID = I * V V",
    "XADD K P MAXLEN = N * V V",
    "XDEL K I I",
    "XDELEX K P IDS 2 I I",
    "XACKDEL K G P IDS 2 I I",
    "XACK K G I I",
    "XTRIM K MAXLEN = N P",
    "XTRIM K MINID ~ I LIMIT N",
    "XTRIM K MINID = I P",
    "XGROUP CREATE K G I MKSTREAM ENTRIESREAD N",
    "XGROUP CREATE K G 0",
    "XGROUP CREATE K G $",
    "XGROUP SETID K G I",
    "XGROUP SETID K G I ENTRIESREAD N",
    "XGROUP DESTROY K G",
    "XGROUP CREATECONSUMER K G C",
    "XGROUP DELCONSUMER K G C",
    "XREADGROUP GROUP G C COUNT N STREAMS K >",
    "XREADGROUP GROUP G C STREAMS K >",
    "XREADGROUP GROUP G C NOACK STREAMS K >",
    "XREADGROUP GROUP G C COUNT N STREAMS K I",
    "XREAD COUNT N STREAMS K I",
    "XREAD STREAMS K K + I",
    "XCLAIM K G C N I I FORCE",
    "XCLAIM K G C 0 I TIME N RETRYCOUNT N FORCE JUSTID LASTID I",
    "XCLAIM K G C 0 I IDLE N",
    "XAUTOCLAIM K G C N I COUNT N",
    "XAUTOCLAIM K G C 0 0-0 JUSTID",
    "XPENDING K G",
    "XPENDING K G IDLE N I I N C",
    "XINFO STREAM K",
    "XINFO STREAM K FULL COUNT N",
    "XINFO GROUPS K",
    "XINFO CONSUMERS K G",
    "XRANGE K I I COUNT N",
    "XREVRANGE K I I COUNT N",
    "XSETID K I ENTRIESADDED N MAXDELETEDID I",
    "XSETID K I",
    "COPY K K REPLACE",
];
const KEYS: [&str; 3] = ["k", "l", "k"];
const GROUPS: [&str; 3] = ["g", "h", "g"];
const CONSUMERS: [&str; 3] = ["c", "d", "e"];
const POLICIES: [&str; 3] = ["KEEPREF", "DELREF", "ACKED"];
const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "2",
    "3",
    "5",
    "10",
    "100",
    "-1",
    "-2",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
];
const EDGES: [&str; 12] = [
    "-",
    "+",
    "0-0",
    "0",
    "*",
    "$",
    "5-*",
    "18446744073709551615-18446744073709551615",
    "(1-1",
    "1",
    "1700000000000-0",
    "9223372036854775807-0",
];

fn place(name: u8, choices: &mut Choices<'_>) -> Option<Vec<u8>> {
    let choice = choices.byte()?;
    let of = |words: &[&str]| words[usize::from(choice) % words.len()].as_bytes().to_vec();
    Some(match name {
        b'K' => of(&KEYS),
        b'G' => of(&GROUPS),
        b'C' => of(&CONSUMERS),
        b'P' => of(&POLICIES),
        b'N' => of(&NUMBERS),
        b'I' if choice >= 200 => of(&EDGES),
        b'I' => format!("{}-{}", choice / 16, choice % 16).into_bytes(),
        _ => vec![b'a' + choice % 8; usize::from(choice / 8)],
    })
}

/// The number of elements of an array, if it is one.
fn elements(reply: &[u8]) -> Option<usize> {
    let rest = reply.strip_prefix(b"*")?;
    let line = rest.split(|byte| *byte == b'\r').next()?;
    std::str::from_utf8(line).ok()?.parse().ok()
}

fn bulk(reply: &[u8]) -> Option<&[u8]> {
    let start = reply.iter().position(|byte| *byte == b'\n')? + 1;
    (reply[0] == b'$').then(|| reply.get(start..reply.len() - 2))?
}

/// What is counted is there.
fn counts_hold(runner: &mut Runner, key: &[u8]) {
    let all = runner.words(&[b"XRANGE", key, b"-", b"+"]);
    let Some(entries) = all.as_deref().and_then(elements) else {
        return;
    };
    let len = runner.words(&[b"XLEN", key]).expect("a reply");
    assert_eq!(len, format!(":{entries}\r\n").as_bytes());
    for group in ["g", "h"].map(str::as_bytes) {
        let summary = runner.words(&[b"XPENDING", key, group]).expect("a reply");
        let listed = runner.words(&[b"XPENDING", key, group, b"-", b"+", b"1000000"]);
        if let Some(pending) = listed.as_deref().and_then(elements) {
            let told = format!("*4\r\n:{pending}\r\n");
            assert!(
                summary.starts_with(told.as_bytes()),
                "{}",
                summary.escape_ascii()
            );
        }
    }
}

/// What travels arrives.
fn arrives(runner: &mut Runner, key: &[u8]) {
    let payload = runner.words(&[b"DUMP", key]).expect("a reply");
    let Some(payload) = bulk(&payload) else {
        return;
    };
    let restored = runner.words(&[b"RESTORE", b"copy", b"0", payload, b"REPLACE"]);
    assert_eq!(restored.as_deref(), Some(&b"+OK\r\n"[..]));
    let [sent, got] = [key, b"copy"].map(|key| {
        [
            &[&b"XRANGE"[..], key, b"-", b"+"][..],
            &[b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"],
        ]
        .map(|words| runner.words(words).expect("a reply"))
    });
    assert!(
        sent == got,
        "sent: {}\ngot: {}",
        sent.concat().escape_ascii(),
        got.concat().escape_ascii()
    );
}

/// The payload of a key, changed in a few places, under another key.
fn travels_through_bad_hands(runner: &mut Runner, key: &[u8], choices: &mut Choices<'_>) {
    let payload = runner.words(&[b"DUMP", key]).expect("a reply");
    let Some(payload) = bulk(&payload) else {
        return;
    };
    let mut payload = payload[..payload.len() - 8].to_vec();
    let body = payload.len() - (FOOTER_BYTES - 8);
    for _ in 0..1 + choices.byte().unwrap_or(0) % 3 {
        let (Some(spot), Some(byte)) = (choices.byte(), choices.byte()) else {
            break;
        };
        // Near the end are the groups, near the beginning the entries.
        let far = usize::from(spot >> 1) % body;
        let at = if spot & 1 == 0 { far } else { body - 1 - far };
        payload[at] = byte;
    }
    payload.extend_from_slice(&crc64::update(0, &payload).to_le_bytes());
    runner.words(&[b"RESTORE", key, b"0", &payload, b"REPLACE"]);
}

fuzz_target!(|data: &[u8]| {
    let mut choices = Choices(data);
    let mut runner = Runner::new(Limits {
        // Small, so that short inputs have several nodes.
        stream_node_max_entries: 3,
        ..Limits::default()
    });
    for _ in 0..SENTENCES_MAX {
        let Some(choice) = choices.byte() else { break };
        runner.pass(i64::from(choice & 1));
        let key = KEYS[usize::from(choice) % KEYS.len()].as_bytes();
        match choice {
            0..8 => counts_hold(&mut runner, key),
            8..16 => arrives(&mut runner, key),
            16..32 => travels_through_bad_hands(&mut runner, key, &mut choices),
            _ => {
                let sentence = SENTENCES[usize::from(choice) % SENTENCES.len()];
                let words: Option<Vec<Vec<u8>>> = sentence
                    .split(' ')
                    .map(|word| match word.as_bytes() {
                        [name @ b'A'..=b'Z'] => place(*name, &mut choices),
                        word => Some(word.to_vec()),
                    })
                    .collect();
                let Some(words) = words else { break };
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                let reply = runner.words(&words);
                #[cfg(feature = "planted")]
                assert!(
                    words[0] != b"XAUTOCLAIM"
                        || reply.is_none_or(|r| r.starts_with(b"-") || r.ends_with(b"*0\r\n")),
                    "the planted fault: an entry that has been deleted is claimed"
                );
                let _ = reply;
            }
        }
    }
    for key in KEYS[..2].iter().map(|key| key.as_bytes()) {
        counts_hold(&mut runner, key);
        arrives(&mut runner, key);
    }
    runner.leave(&["k", "l", "copy"]);
});
