//! Calls made from the command table's argument grammar: most of them valid, the rest spoiled, all of them over the few
//! words of [`crate::pools`], so that they share keys. Equal seeds make equal calls.
//!
//! Must not know the effect of calls; only which calls would end or distort a comparison.

use fastrand::Rng;
use redline_spec::{Arg, ArgKind, CommandId, Group, Plane, REFERENCE, Row, is_after, table};

use crate::pools::*;
use crate::vectors;

/// The arguments of one call.
pub type Call = Vec<Vec<u8>>;

/// Largest number of calls in one batch, before expansion of blocks.
const BATCH_CALLS_MAX: usize = 24;

/// A sorted set whose members all have the score 0, and so a defined order by member.
pub const EQUAL_SCORES_KEY: &str = "zlex";
/// Largest number of elements picked with repetition: both servers would build the whole reply.
const PICKS_MAX: i64 = 10_000;

/// Makes calls.
#[derive(Debug)]
pub struct Generator {
    rng: Rng,
    rows: Vec<&'static Row>,
    /// Number of keys, or fields, that the current call has announced.
    keys_announced: Option<usize>,
    /// Version of Redis that has all commands and arguments.
    version: &'static str,
}

impl Generator {
    /// Returns a generator whose calls depend on the seed alone.
    pub fn new(seed: u64) -> Generator {
        Generator::of_version(seed, REFERENCE)
    }

    /// Returns a generator of calls that this version of Redis has.
    pub fn of_version(seed: u64, version: &'static str) -> Generator {
        // Commands that the other server does not have cannot be compared.
        let rows = table::all()
            .iter()
            .filter(|row| !is_after(row.since, version))
            .flat_map(|row| std::iter::repeat_n(row, weight(row)))
            .collect();
        Generator {
            rng: Rng::with_seed(seed),
            rows,
            keys_announced: None,
            version,
        }
    }

    /// Returns true if the other server knows this argument.
    fn is_there(&self, arg: &Arg) -> bool {
        arg.since.is_none_or(|since| !is_after(since, self.version))
    }

    /// Returns a number below `n`, for the caller's own choices.
    pub fn below(&mut self, n: usize) -> usize {
        self.rng.usize(..n)
    }

    /// Returns one of these.
    pub fn one_of<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.rng.usize(..among.len())]
    }

    /// Returns two keys, perhaps the same.
    pub fn two_keys(&mut self) -> [&'static str; 2] {
        [self.pick(ALL_KEYS), self.pick(ALL_KEYS)]
    }

    /// Returns calls that leave the connection outside of a transaction, and not subscribed.
    pub fn batch(&mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        for _ in 0..1 + self.below(BATCH_CALLS_MAX) {
            match self.below(40) {
                0 | 1 => self.transaction(&mut calls),
                2 => self.script(&mut calls),
                3 => calls.push(self.unknown()),
                4 => calls.push(self.parameter()),
                5 => calls.push(self.asking_about_commands()),
                6 => calls.push(self.debugging()),
                _ => self.one(&mut calls),
            }
        }
        calls
    }

    /// Returns calls about channels: their replies are compared as one sequence, since one call may have several.
    /// Nothing is published: the time of a message among replies is not defined. The client programs test that.
    pub fn channel_batch(&mut self) -> Vec<Call> {
        const CALLS: &[&str] = &[
            "SUBSCRIBE a b",
            "SUBSCRIBE a",
            "PSUBSCRIBE a* ?",
            "UNSUBSCRIBE a",
            "UNSUBSCRIBE",
            "PUNSUBSCRIBE",
            "PUNSUBSCRIBE a*",
            "PUBSUB CHANNELS b",
            "PUBLISH a m",
            "PUBLISH b n",
            "SSUBSCRIBE s",
            "SSUBSCRIBE s t s",
            "SUNSUBSCRIBE s",
            "SPUBLISH s m",
            "SPUBLISH s",
            "PUBSUB SHARDCHANNELS t*",
            "PUBSUB SHARDNUMSUB s t",
            "MULTI",
            "EXEC",
            "PUBSUB CHANNELS a*",
            "PUBSUB NUMSUB a b c",
            "PUBSUB NUMPAT",
            "PING",
            "PING x",
            "GET s1",
            "SUBSCRIBE",
            "PSUBSCRIBE",
            "PUBLISH a",
            "ECHO x",
            "PUBSUB NUMSUB",
            "PUBSUB NONESUCH",
            "UNSUBSCRIBE nope",
            "PUNSUBSCRIBE nope",
            "PING a b",
        ];
        let mut calls: Vec<Call> = (0..2 + self.below(12))
            .map(|_| split(self.pick(CALLS)))
            .collect();
        calls.push(split("UNSUBSCRIBE"));
        calls.push(split("DISCARD"));
        calls.push(split("UNSUBSCRIBE"));
        calls.push(split("PUNSUBSCRIBE"));
        calls.push(split("SUNSUBSCRIBE"));
        calls
    }

    /// Returns calls of a client that tracks keys and changes them itself: it gets those invalidations between its
    /// replies. Not broadcast ones: their time depends on how the requests arrive.
    pub fn tracking_batch(&mut self) -> Vec<Call> {
        const CALLS: &[&str] = &[
            "CLIENT TRACKING ON",
            "CLIENT TRACKING ON NOLOOP",
            "CLIENT TRACKING ON OPTIN",
            "CLIENT TRACKING ON OPTOUT",
            "CLIENT TRACKING ON OPTIN OPTOUT",
            "CLIENT TRACKING ON BCAST OPTIN",
            "CLIENT TRACKING ON PREFIX a",
            "CLIENT TRACKING ON REDIRECT 99999999",
            "CLIENT TRACKING MAYBE",
            "CLIENT TRACKING OFF",
            "CLIENT CACHING YES",
            "CLIENT CACHING NO",
            "CLIENT GETREDIR",
            "CLIENT TRACKINGINFO",
            "GET s1",
            "GET s1",
            "MGET s1 s2 s1",
            "SET s1 1",
            "DEL s1 s2",
            "MSET s2 2 s1 1",
            "RENAME s1 s2",
            "APPEND s2 x",
            "MULTI",
            "EXEC",
        ];
        // Keys that expire would be invalidated at different times.
        let mut calls = vec![split("MSET s1 1 s2 2")];
        for _ in 0..2 + self.below(14) {
            calls.push(split(self.pick(CALLS)));
        }
        calls.push(split("DISCARD"));
        calls.push(split("CLIENT TRACKING OFF"));
        calls
    }

    /// Returns calls of a client with MONITOR, which gets its own calls between its replies.
    pub fn monitor_batch(&mut self) -> Vec<Call> {
        const CALLS: &[&str] = &[
            "MONITOR",
            "MONITOR x",
            "PING",
            "ECHO a\\b\"'\u{7}\u{8}\t\r\n\u{1}\u{e9}\u{7f}",
            "echo x",
            "SELECT 3",
            "SELECT 0",
            "SELECT x",
            "AUTH secret",
            "AUTH default secret",
            "HELLO 9",
            "CLIENT SETNAME a",
            "CLIENT NO-EVICT off",
            "CONFIG GET hz",
            "ACL WHOAMI",
            "NONESUCH a",
            "GET",
            "GET s1",
            "SET s1 1",
            "PUBLISH a m",
            "SUBSCRIBE a",
            "UNSUBSCRIBE a",
            "MULTI",
            "EXEC",
            "EXEC",
            "EXEC x",
            "DISCARD",
            "WATCH s1",
            "UNWATCH",
            "WAIT 0 0",
            "SCRIPT EXISTS a",
            "EVAL return(1) 0",
            "RESET",
        ];
        let mut calls = vec![split("MONITOR")];
        for _ in 0..2 + self.below(14) {
            calls.push(split(self.pick(CALLS)));
        }
        calls.push(split("RESET"));
        calls
    }

    /// Returns calls after which some replies are missing, and one that enables them. No EXEC: one whose queue enables
    /// replies makes Redis send elements without their array.
    pub fn silenced_batch(&mut self) -> Vec<Call> {
        const CALLS: &[&str] = &[
            "CLIENT REPLY SKIP",
            "CLIENT REPLY OFF",
            "CLIENT REPLY ON",
            "CLIENT REPLY",
            "CLIENT REPLY MAYBE",
            "SET s1 1",
            "GET s1",
            "INCR s1",
            "NONESUCH",
            "LPUSH l1 a b",
        ];
        let mut calls: Vec<Call> = (0..1 + self.below(10))
            .map(|_| split(self.pick(CALLS)))
            .collect();
        calls.push(split("CLIENT REPLY ON"));
        calls.push(split("DISCARD"));
        // The first may have been queued, and dropped.
        calls.push(split("CLIENT REPLY ON"));
        calls
    }

    fn one(&mut self, calls: &mut Vec<Call>) {
        let row = self.rows[self.rng.usize(..self.rows.len())];
        if row.full_name == "zadd" && self.below(5) == 0 {
            let member = self.pick(MEMBERS);
            let words = ["ZADD", EQUAL_SCORES_KEY, "0", member];
            calls.push(words.map(|word| word.as_bytes().to_vec()).to_vec());
            return;
        }
        let mut call = self.call_of(row);
        let spoilt = self.below(100) < 18;
        if spoilt {
            self.spoil(&mut call);
        }
        if self.below(12) == 0 {
            call[0].make_ascii_uppercase();
        }
        if ends_comparison(&call) || short_lived(&call) {
            return;
        }
        let repair = repair(row, &call);
        calls.push(call);
        calls.extend(repair);
    }

    /// Returns a call of the command of this row, by its grammar.
    pub fn call_of(&mut self, row: &'static Row) -> Call {
        match row.group {
            Group::Module => vectors::call(&mut self.rng, row),
            _ => self.call(row),
        }
    }

    fn call(&mut self, row: &'static Row) -> Call {
        let mut call: Call = row
            .full_name
            .split('|')
            .map(|name| name.as_bytes().to_vec())
            .collect();
        self.keys_announced = None;
        for arg in row.args {
            self.arg(row, arg, &mut call);
        }
        // Elements equal under BY … ALPHA have no defined order: the two would hold different data.
        let has = |name: &str| {
            let mut words = call.iter();
            words.any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
        };
        if row.id == CommandId::Sort && has("BY") && has("STORE") {
            call.retain(|word| !word.eq_ignore_ascii_case(b"alpha"));
        }
        call
    }

    fn arg(&mut self, row: &'static Row, arg: &Arg, call: &mut Call) {
        if !self.is_there(arg) || arg.optional && self.below(100) >= 40 {
            return;
        }
        let times = match (arg.multiple, self.keys_announced) {
            (true, None) if row.id == CommandId::Xread && arg.name == "key" => {
                let n = 1 + self.below(2);
                self.keys_announced = Some(n);
                n
            }
            (true, Some(n))
                if matches!(arg.kind, ArgKind::Key { .. })
                    || matches!(arg.name, "weight" | "id" | "field" | "data") =>
            {
                n
            }
            (true, _) => 1 + self.below(4),
            (false, _) => 1,
        };
        let token = arg.token.filter(|token| !token.is_empty());
        if let Some(token) = token {
            let lower = self.below(8) == 0;
            call.push(
                if lower {
                    token.to_ascii_lowercase()
                } else {
                    token.to_owned()
                }
                .into_bytes(),
            );
        }
        for time in 0..times {
            if let Some(token) = token.filter(|_| time > 0 && arg.multiple_token) {
                call.push(token.as_bytes().to_vec());
            }
            match arg.kind {
                ArgKind::PureToken => {}
                ArgKind::OneOf => {
                    let choices: Vec<&Arg> =
                        arg.args.iter().filter(|arg| self.is_there(arg)).collect();
                    let choice = self.below(choices.len());
                    self.arg_present(row, choices[choice], call);
                }
                ArgKind::Block => {
                    if arg.name == "streams" {
                        self.keys_announced = Some(1 + self.below(2));
                    }
                    for inner in arg.args {
                        self.arg(row, inner, call);
                    }
                }
                _ => {
                    let word = self.value(row, arg);
                    call.push(word.as_bytes().to_vec());
                }
            }
        }
    }

    /// Appends an argument that was chosen, and so is present even if it is optional elsewhere.
    fn arg_present(&mut self, row: &'static Row, arg: &Arg, call: &mut Call) {
        let mut arg = *arg;
        arg.optional = false;
        self.arg(row, &arg, call);
    }

    fn value(&mut self, row: &Row, arg: &Arg) -> String {
        let name = row.full_name;
        let pool = match (arg.kind, arg.name) {
            (ArgKind::Key { .. }, _) => return self.key(row).to_owned(),
            (_, "numkeys" | "numids" | "numfields") => {
                let n = 1 + self.below(3);
                self.keys_announced = Some(n);
                if self.below(12) == 0 {
                    return self.pick(INTEGERS).to_owned();
                }
                return n.to_string();
            }
            (_, "by-pattern" | "get-pattern") => SORT_PATTERNS,
            (ArgKind::Pattern, _) => PATTERNS,
            (_, "subcommand") if name == "pfdebug" => {
                &["GETREG", "decode", "ENCODING", "todense", "nonesuch"]
            }
            (_, "encoding") if row.group == Group::Bitmap => BIT_FIELDS,
            (_, "offset") if row.group == Group::Bitmap => BIT_OFFSETS,
            (_, "bit") => &["0", "1", "0", "1", "2", "-1", "abc"],
            (_, "value") if name == "setbit" => &["0", "1", "0", "1", "2", "-1", "abc"],
            (ArgKind::UnixTime, _) if name == "xclaim" => &UNIX_MILLISECONDS[..3],
            (_, "milliseconds") if row.group == Group::Stream => &["1", "1", "1", "-1", "abc"],
            (_, "script") => return self.pick_script().0.to_owned(),
            (_, "sha1") => &["e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0", "f"][..],
            // A key stored as expired counts until it is reclaimed, at no defined time.
            (ArgKind::UnixTime, what) if name == "set" && what.contains("milliseconds") => {
                &UNIX_MILLISECONDS[3..]
            }
            (ArgKind::UnixTime, _) if name == "set" => &UNIX_SECONDS[3..],
            (ArgKind::UnixTime, what) if what.contains("milliseconds") => UNIX_MILLISECONDS,
            (ArgKind::UnixTime, _) if name.starts_with('p') => UNIX_MILLISECONDS,
            (ArgKind::UnixTime, _) => UNIX_SECONDS,
            (ArgKind::Double, "timeout") => TIMEOUTS,
            (_, "milliseconds") if row.id == CommandId::Xread => BLOCK_MILLISECONDS,
            (_, "timeout") if matches!(row.id, CommandId::Wait | CommandId::Waitaof) => {
                BLOCK_MILLISECONDS
            }
            (_, "numreplicas" | "numlocal") => &["0", "0", "1", "1", "2", "-1", "abc"],
            (_, "id") if row.id == CommandId::Xread => AFTER_IDS,
            (_, what) if what.contains("milliseconds") => MILLISECONDS,
            (_, what) if what.contains("seconds") || what == "ttl" => SECONDS,
            (ArgKind::Double, _) if row.group == Group::Geo && self.below(25) == 0 => OFF_THE_MAP,
            (ArgKind::Double, "longitude") => LONGITUDES,
            (ArgKind::Double, "latitude") => LATITUDES,
            (ArgKind::Double, "radius" | "width" | "height") => DISTANCES,
            (ArgKind::Double, _) => DOUBLES,
            (_, "id") if name == "xreadgroup" => READ_IDS,
            (_, "id" | "last-id" | "max-deleted-id" | "lastid") if row.group == Group::Stream => {
                STREAM_IDS
            }
            (_, "group") => GROUPS,
            (_, "consumer") if row.group == Group::Stream => CONSUMERS,
            // Above the length of a test, or none at all: idle times of pending entries are never close.
            (_, "min-idle-time" | "ms") => &["0", "0", "0", "100000000", "-1", "abc"],
            (_, "id-selector" | "threshold") => &[
                "*", "2-*", "5-*", "3-0", "1", "0", "10", "-1", "9-9", "15-*", "16-1",
            ],
            (_, "index" | "index1" | "index2" | "db" | "destination-db")
                if row.group != Group::List =>
            {
                &["0", "1", "2", "15", "16", "-1", "abc"]
            }
            (ArgKind::Integer, _) => INTEGERS,
            (_, "min" | "max" | "start" | "stop" | "end") if row.group == Group::Stream => {
                ID_BOUNDS
            }
            (_, "min" | "max" | "start" | "stop") if row.group == Group::SortedSet => {
                self.bounds(name)
            }
            (_, "cursor") => &["0", "0", "0", "1", "abc", "-1", "18446744073709551616"],
            _ if row.group == Group::String || name == "echo" || name == "ping" => VALUES,
            _ => MEMBERS,
        };
        // Strings of numbers make more of the numeric commands succeed.
        if row.group == Group::String && self.below(4) == 0 && pool == VALUES {
            return self.pick(&["1", "10", "3.5", "100", "-7"]).to_owned();
        }
        if pool == INTEGERS && self.below(3) > 0 {
            return self.pick(&INTEGERS[..15]).to_owned();
        }
        self.pick(pool).to_owned()
    }

    fn bounds(&mut self, name: &str) -> &'static [&'static str] {
        if name.contains("lex") {
            LEX_BOUNDS
        } else if name.contains("score") || name == "zcount" {
            SCORE_BOUNDS
        } else {
            [SCORE_BOUNDS, LEX_BOUNDS, &INTEGERS[..15]][self.below(3)]
        }
    }

    fn key(&mut self, row: &Row) -> &'static str {
        if row.full_name.contains("lex") && self.below(3) > 0 {
            return EQUAL_SCORES_KEY;
        }
        let pool = match row.group {
            _ if self.below(9) == 0 => ALL_KEYS,
            Group::String | Group::Bitmap => STRING_KEYS,
            Group::List => LIST_KEYS,
            Group::Hash => HASH_KEYS,
            Group::Set => SET_KEYS,
            Group::SortedSet if self.below(8) == 0 => SET_KEYS,
            Group::SortedSet if self.below(12) == 0 => GEO_KEYS,
            Group::SortedSet => ZSET_KEYS,
            Group::Stream => STREAM_KEYS,
            Group::Hyperloglog => HLL_KEYS,
            Group::Geo => GEO_KEYS,
            _ => ALL_KEYS,
        };
        self.pick(pool)
    }

    /// Spoils a call: arguments removed, doubled, swapped, replaced, added.
    fn spoil(&mut self, call: &mut Call) {
        let name_words = 1;
        let at = |rng: &mut Rng, len: usize| name_words + rng.usize(..len - name_words);
        for _ in 0..1 + self.below(2) {
            let len = call.len();
            match self.below(5) {
                0 if len > name_words => {
                    call.remove(at(&mut self.rng, len));
                }
                1 if len > name_words => {
                    let word = call[at(&mut self.rng, len)].clone();
                    call.push(word);
                }
                2 if len > name_words + 1 => {
                    let (a, b) = (at(&mut self.rng, len), at(&mut self.rng, len));
                    call.swap(a, b);
                }
                3 if len > name_words => {
                    let pool = [MEMBERS, VALUES, INTEGERS, DOUBLES, ALL_KEYS][self.below(5)];
                    let place = at(&mut self.rng, len);
                    call[place] = self.pick(pool).as_bytes().to_vec();
                }
                _ => {
                    let pool = [
                        MEMBERS,
                        INTEGERS,
                        &[
                            "NX",
                            "XX",
                            "GT",
                            "LT",
                            "COUNT",
                            "LIMIT",
                            "GET",
                            "WITHSCORES",
                            "REV",
                            "KEEPTTL",
                        ],
                    ][self.below(3)];
                    call.push(self.pick(pool).as_bytes().to_vec());
                }
            }
        }
    }

    fn transaction(&mut self, calls: &mut Vec<Call>) {
        if self.below(3) == 0 {
            let key = self.pick(ALL_KEYS).to_owned();
            calls.push(vec![b"WATCH".to_vec(), key.into_bytes()]);
        }
        calls.push(split("MULTI"));
        for _ in 0..self.below(6) {
            match self.below(12) {
                0 => self.script(calls),
                1 => calls.push(self.unknown()),
                _ => self.one(calls),
            }
        }
        calls.push(split(self.pick(&[
            "EXEC", "EXEC", "EXEC", "EXEC", "DISCARD", "EXEC x", "WATCH s1", "MULTI",
        ])));
        calls.push(split("EXEC"));
        calls.push(split("UNWATCH"));
    }

    fn pick_script(&mut self) -> (&'static str, usize) {
        SCRIPTS[self.below(SCRIPTS.len())]
    }

    fn script(&mut self, calls: &mut Vec<Call>) {
        let name = self.pick(&["EVAL", "EVAL", "EVAL", "eval", "EVAL_RO"]);
        // A command of ours without a row is not to be called.
        let name = if name == "EVAL_RO" { "EVAL" } else { name };
        if self.below(2) == 0 {
            let (script, keys) = self.pick_script();
            let mut call = vec![
                name.as_bytes().to_vec(),
                script.as_bytes().to_vec(),
                keys.to_string().into_bytes(),
            ];
            for _ in 0..keys + self.below(3) {
                let pool = [ALL_KEYS, MEMBERS][self.below(2)];
                call.push(self.pick(pool).as_bytes().to_vec());
            }
            calls.push(call);
            return;
        }
        // Any command, called from a script.
        let mut inner = Vec::new();
        self.one(&mut inner);
        for words in inner {
            if words[0].eq_ignore_ascii_case(b"eval") || words[0].eq_ignore_ascii_case(b"evalsha") {
                continue;
            }
            let script = self.pick(&[CALL_IN_SCRIPT, PCALL_IN_SCRIPT]);
            let mut call = vec![
                name.as_bytes().to_vec(),
                script.as_bytes().to_vec(),
                b"0".to_vec(),
            ];
            call.extend(words);
            calls.push(call);
        }
    }

    fn unknown(&mut self) -> Call {
        split(self.pick(&[
            "NONESUCH", "nonesuch a b c", "CONFIG NONESUCH", "CLIENT NONESUCH x", "OBJECT NONESUCH", "SCRIPT NONESUCH a",
            "COMMAND NONESUCH", "MEMORY NONESUCH", "CONFIG", "CLIENT", "OBJECT", "SCRIPT", "PUBSUB", "MEMORY",
            "aVeryLongNameOfACommandThatNobodyHasEverHeardOfAndThatGoesOnForMoreThanOneHundredAndTwentyEightBytesSoThatItMustBeCutSomewhereInTheReply x y",
            "GET", "SET", "SET a", "GETRANGE", "HELLO 9", "HELLO abc", "HELLO 2 SETNAME a", "HELLO 3 AUTH", "SELECT", "AUTH",
            "AUTH a b c", "AUTH nopass", "AUTH default x", "QUIT", "RESET",
        ]))
    }

    fn parameter(&mut self) -> Call {
        let (name, values) = PARAMETERS[self.below(PARAMETERS.len())];
        let (other, others) = PARAMETERS[self.below(PARAMETERS.len())];
        let value = self.pick(values);
        let words: Vec<&str> = match self.below(6) {
            0 => vec!["CONFIG", "GET", name],
            1 => vec!["CONFIG", "GET", name, other],
            2 => vec!["CONFIG", "SET", name, value, other, self.pick(others)],
            3 => vec!["CONFIG", "SET", name, value, name],
            4 => vec!["CONFIG", "GET", "*-max-listpack-*"],
            _ => vec!["CONFIG", "SET", name, value],
        };
        words
            .into_iter()
            .map(|word| word.as_bytes().to_vec())
            .collect()
    }

    /// Returns a call of DEBUG: a subcommand whose reply is the same on every server that holds the same data.
    fn debugging(&mut self) -> Call {
        const CALLS: &[&str] = &[
            "DEBUG DIGEST",
            "DEBUG DIGEST x",
            "DEBUG DIGEST-VALUE",
            "DEBUG ERROR mine",
            "DEBUG ERROR",
            "DEBUG LOG",
            "DEBUG PROTOCOL string",
            "DEBUG PROTOCOL integer",
            "DEBUG PROTOCOL double",
            "DEBUG PROTOCOL bignum",
            "DEBUG PROTOCOL null",
            "DEBUG PROTOCOL array",
            "DEBUG PROTOCOL set",
            "DEBUG PROTOCOL map",
            "DEBUG PROTOCOL verbatim",
            "DEBUG PROTOCOL true",
            "DEBUG PROTOCOL FALSE",
            "DEBUG PROTOCOL x",
            "DEBUG PROTOCOL",
            "DEBUG POPULATE 3",
            "DEBUG POPULATE 2 s 10",
            "DEBUG POPULATE x",
            "DEBUG POPULATE 2 s -1",
            "DEBUG OBJECT none",
            "DEBUG LISTPACK none",
            "DEBUG CHANGE-REPL-ID",
            "DEBUG SLEEP 0",
            "DEBUG SLEEP",
            "DEBUG NONESUCH",
            "DEBUG",
        ];
        if self.below(2) == 0 {
            return split(self.pick(CALLS));
        }
        let what = "DIGEST-VALUE";
        let mut call = vec![b"DEBUG".to_vec(), what.as_bytes().to_vec()];
        for _ in 0..1 + self.below(2) {
            call.push(self.pick(ALL_KEYS).as_bytes().to_vec());
        }
        call
    }

    fn asking_about_commands(&mut self) -> Call {
        let row = self.rows[self.rng.usize(..self.rows.len())];
        let mut call = match self.below(3) {
            0 => {
                return vec![
                    b"COMMAND".to_vec(),
                    b"INFO".to_vec(),
                    row.full_name.as_bytes().to_vec(),
                ];
            }
            1 => split("COMMAND GETKEYS"),
            _ => split("COMMAND GETKEYSANDFLAGS"),
        };
        call.extend(self.call(row));
        call
    }

    fn pick<'a>(&mut self, pool: &[&'a str]) -> &'a str {
        pool[self.rng.usize(..pool.len())]
    }
}

/// A script that runs the command in its arguments.
pub const CALL_IN_SCRIPT: &str = "return redis.call(unpack(ARGV))";
/// A script that runs the command in its arguments, and returns its error as a value.
pub const PCALL_IN_SCRIPT: &str = "return redis.pcall(unpack(ARGV))";

/// Returns the call made by a script of this module, or the call itself.
pub fn innermost(call: &Call) -> &[Vec<u8>] {
    let scripted = call.len() > 3
        && call[0].eq_ignore_ascii_case(b"eval")
        && (call[1] == CALL_IN_SCRIPT.as_bytes() || call[1] == PCALL_IN_SCRIPT.as_bytes());
    if scripted { &call[3..] } else { call }
}

/// Returns the relative frequency of a command.
fn weight(row: &Row) -> usize {
    match row.id {
        // These have their own batches, or are never sent: they end, distort or stop a connection or a server.
        CommandId::Subscribe
        | CommandId::Psubscribe
        | CommandId::Unsubscribe
        | CommandId::Punsubscribe
        | CommandId::Ssubscribe
        | CommandId::Sunsubscribe
        | CommandId::ClientTracking
        | CommandId::ClientReply
        | CommandId::ClientPause
        | CommandId::ClientUnpause
        | CommandId::Monitor
        | CommandId::Migrate
        | CommandId::Shutdown
        | CommandId::Failover
        | CommandId::Replicaof
        | CommandId::Slaveof
        | CommandId::Debug
        | CommandId::ConfigSet
        | CommandId::ConfigRewrite
        | CommandId::Multi
        | CommandId::Exec
        | CommandId::Discard
        | CommandId::Command
        | CommandId::ConfigGet
        | CommandId::CommandGetkeys
        | CommandId::CommandGetkeysandflags
        | CommandId::Quit
        | CommandId::Reset
        | CommandId::Hello
        | CommandId::Auth => 0,
        // Redis's takes seconds.
        CommandId::Pfselftest => 0,
        // Their replies depend on how long the file before takes.
        CommandId::Save | CommandId::Bgsave | CommandId::Bgrewriteaof => 0,
        // They make the connection a replica's.
        CommandId::Psync | CommandId::Sync | CommandId::Replconf => 0,
        // Its reply depends on whether more requests follow.
        CommandId::ScriptDebug => 0,
        // See `access.rs`.
        _ if row.container == Some(CommandId::Acl) => 0,
        CommandId::Flushall | CommandId::Flushdb | CommandId::Swapdb | CommandId::Select => 1,
        // Commands that fill the keys.
        CommandId::Rpush
        | CommandId::Lpush
        | CommandId::Hset
        | CommandId::Sadd
        | CommandId::Zadd
        | CommandId::Geoadd => 24,
        CommandId::Set | CommandId::Xadd | CommandId::Xreadgroup => 20,
        CommandId::Vadd => 40,
        CommandId::Vsim => 24,
        CommandId::Pfdebug => 4,
        CommandId::Del | CommandId::Unlink | CommandId::Rename | CommandId::Expire => 4,
        _ if row.plane == Plane::Data => 8,
        _ if row.plane == Plane::Container => 0,
        _ => 1,
    }
}

/// Returns true for calls that would close the connection under a pipeline, or change the comparison's own settings.
fn ends_comparison(call: &Call) -> bool {
    let is = |at: usize, word: &str| {
        call.get(at)
            .is_some_and(|w| w.eq_ignore_ascii_case(word.as_bytes()))
    };
    // Killing by filter may close the comparison's other connection: only forms without a match are left.
    let kills = is(0, "client") && is(1, "kill") && !call.iter().any(|word| word == b"99999");
    // Repeatable picks, by the thousand million.
    let picks = is(0, "srandmember") || is(0, "hrandfield") || is(0, "zrandmember");
    let endless = |word: &Vec<u8>| {
        let number = std::str::from_utf8(word)
            .ok()
            .and_then(|word| word.parse::<i64>().ok());
        number.is_some_and(|number| (-i64::MAX..-PICKS_MAX).contains(&number))
    };
    // The difference in trimming is on the list, but its reply does not show it.
    let trims_unseen = is(0, "xadd") && call.iter().any(|word| word.eq_ignore_ascii_case(b"acked"));
    kills
        || trims_unseen
        || (picks && call.iter().any(endless))
        || (is(0, "config") && is(1, "set"))
        || waits_long(call)
        || vectors::is_unwise(call)
}

/// Returns true for blocking calls that would delay the comparison.
fn waits_long(call: &Call) -> bool {
    const LONG_MS: f64 = 50.0;
    let name = call[0].to_ascii_lowercase();
    let after_block = || {
        let at = call.iter().position(|w| w.eq_ignore_ascii_case(b"block"));
        at.map_or(0, |at| at + 1)
    };
    let (at, unit_ms) = match &name[..] {
        b"blpop" | b"brpop" | b"bzpopmin" | b"bzpopmax" | b"blmove" | b"brpoplpush" => {
            (call.len() - 1, 1000.0)
        }
        b"blmpop" | b"bzmpop" => (1, 1000.0),
        b"wait" => (2, 1.0),
        b"waitaof" => (3, 1.0),
        b"xread" | b"xreadgroup" => (after_block(), 1.0),
        _ => return false,
    };
    let Some(text) = call.get(at).and_then(|word| std::str::from_utf8(word).ok()) else {
        return false;
    };
    let hexadecimal = text.contains(['x', 'X']) && text.len() > 1;
    let span_ms = text.parse().map_or(f64::NAN, |span: f64| span * unit_ms);
    // 0 and values that round to it mean no time-out.
    hexadecimal || (-1.0 < span_ms && span_ms <= 0.0) || (LONG_MS..1e19).contains(&span_ms)
}

/// Returns true for calls whose keys would expire a moment later: on one server before the next call, on the other after.
fn short_lived(call: &Call) -> bool {
    let name = call[0].to_ascii_lowercase();
    let soon = |at: usize, most: i64| {
        let number = call
            .get(at)
            .and_then(|word| std::str::from_utf8(word).ok()?.parse::<i64>().ok());
        number.is_some_and(|number| (1..=most).contains(&number))
    };
    match &name[..] {
        b"psetex" | b"pexpire" | b"hpexpire" => soon(2, 60_000),
        b"setex" | b"expire" | b"hexpire" => soon(2, 60),
        b"set" | b"getex" | b"hsetex" | b"hgetex" => (1..call.len()).any(|at| {
            call[at].eq_ignore_ascii_case(b"px") && soon(at + 1, 60_000)
                || call[at].eq_ignore_ascii_case(b"ex") && soon(at + 1, 60)
        }),
        _ => false,
    }
}

/// Returns the call that makes both servers equal again after a command with a random or time-dependent outcome.
fn repair(row: &Row, call: &Call) -> Option<Call> {
    let random = match row.id {
        CommandId::Spop => true,
        CommandId::Xadd => call.iter().any(|word| word == b"*"),
        _ => false,
    };
    random.then(|| vec![b"DEL".to_vec(), call.get(1).cloned().unwrap_or_default()])
}

fn split(text: &str) -> Call {
    text.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn equal_seeds_make_equal_calls() {
        let calls = |seed| {
            (0..50)
                .flat_map(|_| Generator::new(seed).batch())
                .collect::<Vec<_>>()
        };
        assert_eq!(calls(7), calls(7));
        assert_ne!(calls(7), calls(8));
    }

    #[test]
    fn every_command_with_a_weight_comes_up() {
        let mut generator = Generator::new(1);
        let mut seen = HashSet::new();
        for _ in 0..4000 {
            for call in generator.batch() {
                let call = innermost(&call);
                let second = call.get(1).map(|word| &word[..]);
                if let Ok(id) = redline_spec::resolve(&call[0], second) {
                    seen.insert(id);
                }
            }
        }
        let missing: Vec<_> = table::all()
            .iter()
            .filter(|row| {
                weight(row) > 0
                    && !is_after(row.since, REFERENCE)
                    && row.id != CommandId::ClientKill
                    && !seen.contains(&row.id)
            })
            .map(|row| row.full_name)
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
