//! Scenes: what several clients do one after the other where generated calls seldom meet it: transactions and scripts by
//! their number of writes, functions, clients that wait, several databases, keys whose time comes. Must not know servers.

use crate::generate::Call;

/// A step of a scene.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The client sends the call and reads the reply.
    Call(usize, Call),
    /// The client sends a call that has to wait.
    Wait(usize, Call),
    /// The client reads the reply of the call that waited.
    Served(usize),
    /// The key's time comes: it is looked at until it is gone.
    Gone(Call),
}

/// Number of clients of a scene.
pub const CLIENTS: usize = 3;

/// The scenes. A line is a step: `a CALL`, `a? CALL` for one that waits, `a!` for its reply, `~ CALL` until that answers
/// 0. After a step that ends with ` &` the stream is not divided: nobody can say on which side an effect falls. Backquotes
/// hold a word with spaces together.
const SCENES: &[&str] = &[
    // Transactions.
    "a MULTI\na SET k 1\na EXEC\na MULTI\na SET k 2\na INCR k\na EXEC\na MULTI\na GET k\na DEL none\na EXEC",
    "a MULTI\na SET k 1\na SELECT 3\na SET k 2\na SELECT 0\na SET k 3\na EXEC\na SELECT 3\na DEL k\na SELECT 0",
    "a SET k x\na MULTI\na INCR k\na LPUSH k a\na SET k 1 EX 1000\na EXEC",
    "a MULTI\na SET k 1\na PUBLISH ch m\na EXEC\na MULTI\na PUBLISH ch m\na PUBLISH ch n\na EXEC",
    "a MULTI\na SET k 1\na PUBLISH ch m\na SET k 2\na EXEC\na PUBLISH ch m\na SPUBLISH ch m",
    "a WATCH k\nb SET k 7\na MULTI\na SET k 8\na EXEC",
    "a MULTI\na SELECT 5\na EXEC\na SET k 5\na DEL k\na SELECT 0",
    "a MULTI\na FLUSHALL\na SET k 1\na EXEC\na MULTI\na SWAPDB 0 2\na SET k 2\na EXEC\na SWAPDB 0 2",
    "a DEL q\na MULTI\na BLPOP q 0\na RPUSH q 1 2\na BLPOP q 0\na EXEC",
    // Scripts.
    "a EVAL `return redis.call('set', KEYS[1], 1)` 1 k\na EVAL `redis.call('set', KEYS[1], 1) return redis.call('incr', KEYS[1])` 1 k",
    "a EVAL `redis.call('set', KEYS[1], 1) return redis.call('nonesuch')` 1 k\na EVAL `return redis.call('get', KEYS[1])` 1 k",
    "a EVAL `redis.call('select', 4) redis.call('set', 'k', 4)` 0\na SET k 5\na SELECT 4\na DEL k\na SELECT 0",
    "a EVAL `redis.call('set', 'k', 1) redis.call('select', 4) redis.call('set', 'k', 4) redis.call('select', 0) redis.call('incr', 'k')` 0",
    "a SADD k a\na EVAL `return redis.call('spop', KEYS[1])` 1 k\na EVAL `redis.call('rpush', KEYS[1], 'a', 'b') return redis.call('lmpop', 1, KEYS[1], 'LEFT')` 1 k",
    "a MULTI\na EVAL `redis.call('set', 'k', 1) redis.call('incr', 'k')` 0\na INCR k\na EXEC",
    "a MULTI\na EVAL `return redis.call('set', 'k', 1)` 0\na EXEC\na MULTI\na EVAL `return 1` 0\na EXEC",
    "a EVAL `redis.call('publish', 'ch', 'm') redis.call('set', 'k', 1)` 0\na EVAL `redis.call('set', 'k', 1, 'ex', 1000) redis.call('incrbyfloat', 'k', '0.5')` 0",
    "a EVAL `redis.call('set', 'k', redis.call('time')[1]) redis.call('expire', 'k', 1000) redis.call('getdel', 'k')` 0",
    "a SCRIPT LOAD `return redis.call('set', 'k', 'v')`\na SCRIPT FLUSH",
    // Functions.
    "a FUNCTION FLUSH\na FUNCTION LOAD `#!lua name=l\nredis.register_function('f', function(keys) redis.call('set', keys[1], 1) return redis.call('incr', keys[1]) end)`\na FCALL f 1 k\na FUNCTION LOAD REPLACE `#!lua name=l\nredis.register_function('f', function(keys) return redis.call('set', keys[1], 1) end)`\na FCALL f 1 k\na FUNCTION DELETE l\na FUNCTION FLUSH\na FUNCTION DELETE l",
    "a FUNCTION FLUSH\na MULTI\na FUNCTION LOAD `#!lua name=m\nredis.register_function('g', function() return redis.call('set', 'k', 1) end)`\na FCALL g 0\na EXEC",
    // Clients that wait.
    "a DEL q\na? BLPOP q 0\nb RPUSH q 1\na!\na? BRPOP q 0\nb RPUSH q 1 2\na!\na DEL q",
    "a DEL q\na? BLPOP q 0\nc? BRPOP q 0\nb RPUSH q 1 2 3\na!\nc!\na DEL q",
    "a DEL q w\na? BLMOVE q w LEFT RIGHT 0\nc? BLPOP w 0\nb RPUSH q 1\na!\nc!",
    "a DEL q w\na? BRPOPLPUSH q w 0\nb MULTI\nb RPUSH q 1\nb SET k 1\nb EXEC\na!\na DEL w",
    "a DEL q\na? BLMPOP 0 1 q RIGHT COUNT 2\nb EVAL `redis.call('rpush', 'q', 1) redis.call('rpush', 'q', 2) redis.call('rpush', 'q', 3)` 0\na!\na DEL q",
    "a DEL z\na? BZPOPMIN z 0\nb ZADD z 1 a\na!\na? BZPOPMAX z 0\nb ZADD z 1 a 2 b\na!\na? BZMPOP 0 2 y w MAX COUNT 2\nb ZADD y 1 a 2 b 3 c\na!\na DEL z y",
    "a DEL x\na XGROUP CREATE x g $ MKSTREAM\na? XREADGROUP GROUP g c BLOCK 0 STREAMS x >\nb XADD x 1-1 a b\na!\na? XREADGROUP GROUP g d BLOCK 0 NOACK STREAMS x >\nb XADD x 2-1 a b\na!",
    "a DEL x\na? XREAD BLOCK 0 STREAMS x $\nb XADD x 1-1 a b\na!",
    "a DEL x\na XGROUP CREATE x g $ MKSTREAM\na? XREADGROUP GROUP g c BLOCK 0 STREAMS x >\nc? XREADGROUP GROUP g d BLOCK 0 STREAMS x >\nb MULTI\nb XADD x 1-1 a b\nb XADD x 2-1 a b\nb EXEC\na!\nb XADD x 3-1 a b\nc!",
    "a DEL x\na XGROUP CREATE x g $ MKSTREAM\na? XREADGROUP GROUP g c BLOCK 0 STREAMS x >\nb DEL x\na!",
    "a DEL q\na? BLPOP q 0\nb SELECT 4\nb RPUSH q 1\nb SWAPDB 0 4\na!\nb SELECT 0",
    "a DEL q w\na? BLPOP q 0\nb RPUSH w 1\nb RENAME w q\na!",
    // Streams and their groups.
    "a DEL x\na XADD x 1-1 a b\na XADD x 2-1 a b\na XADD x 3-1 a b\na XADD x 4-1 a b\na XGROUP CREATE x g 0\na XREADGROUP GROUP g c COUNT 1 STREAMS x >\na XREADGROUP GROUP g c COUNT 2 STREAMS x >\na XREADGROUP GROUP g c STREAMS x 0\na XREADGROUP GROUP g d NOACK STREAMS x >\na XREADGROUP GROUP g e STREAMS x 0\na XCLAIM x g d 0 1-1 2-1\na XDEL x 2-1\na XCLAIM x g f 0 2-1\na XCLAIM x g f2 0 1-1\na XAUTOCLAIM x g h 0 0 COUNT 10\na XAUTOCLAIM x g i 100000000 0\na XCLAIM x g h 0 1-1 LASTID 9-9\na XCLAIM x g h 0 7-7 LASTID 10-9\na XACK x g 1-1 2-1\na XGROUP DELCONSUMER x g h\na XGROUP SETID x g 0\na XGROUP CREATECONSUMER x g z\na XGROUP CREATECONSUMER x g z\na XGROUP DESTROY x g",
    "a DEL x\na XADD x 1-1 a b\na XADD x 2-1 a b\na XGROUP CREATE x g 0\na XGROUP CREATE x j 0\na XREADGROUP GROUP g c STREAMS x >\na DEL y\na XADD y 1-1 a b\na XGROUP CREATE y g 0\na XADD x 5-1 a b\na XREADGROUP GROUP g c STREAMS x y > >\na XDEL x 1-1\na XAUTOCLAIM x g d 0 0\na XACKDEL x g IDS 1 2-1\na XDELEX x DELREF IDS 1 5-1\na XSETID x 9-9",
    "a CONFIG SET stream-node-max-entries 2\na DEL x\na XADD x 1-1 a b\na XADD x 2-1 a b\na XADD x 3-1 a b\na XADD x 4-1 a b\na XADD x 5-1 a b\na XADD x MAXLEN ~ 4 6-1 a b\na XADD x MAXLEN = 5 7-1 a b\na XADD x MINID ~ 4 8-1 a b\na XADD x MAXLEN ~ 3 DELREF 9-1 a b\na XTRIM x MAXLEN ~ 3\na XADD x 10-1 a b\na XADD x 11-1 a b\na XADD x 12-1 a b\na XTRIM x MAXLEN ~ 3 DELREF\na XTRIM x MAXLEN = 2 DELREF\na XTRIM x MINID 12\na XADD x NOMKSTREAM MAXLEN 1 KEEPREF 13-1 a b\na XADD x MAXLEN = 100 14-* a b\na XADD none NOMKSTREAM 1-1 a b",
    // Several databases.
    "a SELECT 2\na SET k 1\nb SET k 2\na SELECT 3\na SET k 3\na FLUSHDB\na SELECT 2\na FLUSHDB\na FLUSHDB",
    "a SET k 1\na SELECT 6\na DEL k\na SELECT 0\na MOVE k 6\na SET k 2\na MOVE k 6\na COPY k j DB 6\na COPY k k DB 6 REPLACE\na SELECT 6\na FLUSHDB ASYNC\na FLUSHALL\na FLUSHALL SYNC\na SELECT 0",
    "a SET k 1\na SWAPDB 0 5\na SWAPDB 5 5\na SWAPDB 0 5\na DEL k",
    // Times.
    "a SET k 1 PX 100 &\n~ EXISTS k &\na SET k 1 &\na DEL k",
    "a DEL h\na HSET h f 1 g 2 &\na HPEXPIRE h 50 FIELDS 1 f &\n~ HEXISTS h f &\na DEL h",
    "a DEL h\na HSET h f 1 &\na HPEXPIRE h 50 FIELDS 1 f &\n~ EXISTS h &\na DEL h",
    "a SET k 1\na EXPIRE k -1\na SET k 1\na PEXPIREAT k 1\na SET k 1\na GETEX k EXAT 1\na SET k 1 EXAT 1\na SET k 1 EX 1000\na EXPIRE k 100 GT\na EXPIRE k 5000 GT\na EXPIRE k 5000 NX\na PERSIST k\na PERSIST k",
    "a SET k 1 PX 1000000\na GETEX k PERSIST\na GETEX k PX 1000000\na GETEX k\na SET k 2 KEEPTTL\na SETEX k 1000 v\na PSETEX k 1000000 v\na SET k 1 XX GET EX 500\na SET k 2 NX GET\na APPEND k a\na GETDEL k\na GETDEL k",
    "a DEL h\na HSET h f 1 g 2 i 3\na HEXPIRE h 1000 FIELDS 2 f g\na HINCRBYFLOAT h f 0.5\na HINCRBYFLOAT h i 0.5\na HINCRBY h f 1\na HPERSIST h FIELDS 1 f\na HPEXPIREAT h 1 FIELDS 1 f\na HSETEX h EX 1000 FIELDS 1 j 1\na HSETEX h KEEPTTL FIELDS 1 j 2\na HSETEX h PXAT 1 FIELDS 1 j 2\na HGETEX h EX 100 FIELDS 1 g\na HGETEX h PERSIST FIELDS 1 g\na HGETDEL h FIELDS 2 g none\na HGETDEL h FIELDS 1 i",
    "a SET k 10\na INCRBYFLOAT k 0.5\na SET k 10 EX 1000\na INCRBYFLOAT k 0.5\na INCRBY k 5\na DEL k\na SETRANGE k 3 abc\na MSETNX k 1 j 2\na GETSET k 5\na DEL k j",
    "a DEL z\na ZADD z 1 a 2 b 3 c\na ZPOPMIN z\na ZMPOP 1 z MAX COUNT 5\na ZADD z INCR 5 a\na ZINCRBY z 1 a\na ZADD z GT 1 a\na ZADD z XX 1 none\na DEL z",
    "a DEL l\na RPUSH l a b c d e f\na LMPOP 2 none l RIGHT COUNT 2\na LMOVE l l LEFT RIGHT\na RPOPLPUSH l l\na LPOP l 2\na LPOP l\na RPOP l\na LPUSHX l a",
    "a DEL s t\na SADD s a b c d e\na SPOP s\na SPOP s 2\na SPOP s 100\na SADD s a\na SMOVE s t a\na SMOVE s t a\na DEL t",
];

/// Returns the number of scenes.
pub fn count() -> usize {
    SCENES.len()
}

/// Returns a scene: its steps, each with the answer whether the stream is divided after it.
pub fn scene(at: usize) -> Vec<(Step, bool)> {
    lines(SCENES[at])
        .into_iter()
        .map(|line| step(&line))
        .collect()
}

/// Splits a scene into lines; a line break between backquotes is part of a word.
fn lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        quoted ^= c == '`';
        match c {
            '\n' if !quoted => lines.push(String::new()),
            c => lines.last_mut().expect("there is one").push(c),
        }
    }
    lines
}

fn step(line: &str) -> (Step, bool) {
    let (line, divided) = match line.strip_suffix(" &") {
        Some(line) => (line, false),
        None => (line, true),
    };
    let (who, call) = line.split_once(' ').unwrap_or((line, ""));
    let call = words(call);
    let client = usize::from(who.as_bytes()[0].saturating_sub(b'a'));
    let step = match &who[1..] {
        _ if who == "~" => Step::Gone(call),
        "?" => Step::Wait(client, call),
        "!" => Step::Served(client),
        _ => Step::Call(client, call),
    };
    (step, divided)
}

fn words(text: &str) -> Call {
    // Every second part stands between backquotes.
    let parts = text.split('`').enumerate();
    parts
        .flat_map(|(at, part)| match at % 2 {
            1 => vec![part],
            _ => part.split_whitespace().collect(),
        })
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_that_waits_is_answered_and_no_transaction_stays_open() {
        for at in 0..count() {
            let (mut waiting, mut queues) = ([false; CLIENTS], [false; CLIENTS]);
            for (step, _) in scene(at) {
                match step {
                    Step::Call(client, call) => {
                        assert!(!waiting[client], "scene {at}: {client} waits");
                        let id = redline_spec::resolve(&call[0], call.get(1).map(|word| &word[..]));
                        let known = id.is_ok();
                        assert!(known, "scene {at}: {}", call.join(&b' ').escape_ascii());
                        match &call[0][..] {
                            b"MULTI" => queues[client] = true,
                            b"EXEC" => queues[client] = false,
                            _ => {}
                        }
                    }
                    Step::Wait(client, _) => waiting[client] = true,
                    Step::Served(client) => waiting[client] = false,
                    Step::Gone(call) => assert!(call.len() >= 2),
                }
            }
            assert_eq!(
                (waiting, queues),
                ([false; CLIENTS], [false; CLIENTS]),
                "scene {at}"
            );
        }
    }

    #[test]
    fn backquotes_hold_a_word_together() {
        let (step, divided) = step("b? EVAL `return 1` 0 &");
        let call = ["EVAL", "return 1", "0"].map(|word| word.as_bytes().to_vec());
        assert_eq!((step, divided), (Step::Wait(1, call.to_vec()), false));
    }
}
