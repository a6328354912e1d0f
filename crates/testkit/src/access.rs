//! Users and rules, generated: the same on both servers, and then calls under these rules. Every reply must be equal. In
//! RESP2 and RESP3.
//!
//! Must not know the meaning of rules.

use std::net::SocketAddr;

use fastrand::Rng;
use redline_spec::{Categories, CommandId, Module, Row, is_after_reference, table};

use crate::pair::Pair;

/// Number of calls of ACL DRYRUN, and of calls under the rules, for each user.
const CALLS_PER_USER: usize = 30;
const NAMES: &[&str] = &["ann", "bob", "cy"];
const KEYS: &[&str] = &["a", "b", "ab", "x:1", "x:2", "y:1", "", "[k]", "*"];
const PATTERNS: &[&str] = &[
    "*", "a", "a*", "x:*", "?", "[ab]", "\\*", "", "x:[12]", "**",
];
const CHANNELS: &[&str] = &["news", "n*", "*", "news.1", ""];
/// Fixed rules, valid and invalid ones.
const WORDS: &[&str] = &[
    "on",
    "OFF",
    "on",
    "on",
    "nopass",
    "resetpass",
    ">p",
    ">q",
    "<p",
    "allkeys",
    "resetkeys",
    "~*",
    "&*",
    "allchannels",
    "resetchannels",
    "+@all",
    "-@all",
    "allcommands",
    "NoCommands",
    "reset",
    "clearselectors",
    "sanitize-payload",
    "skip-sanitize-payload",
    "",
    "(",
    ")",
    "()",
    "+",
    "-",
    "~",
    "%",
    "%R",
    "%~x",
    "%RW~a",
    "foo",
    "#abc",
    "+select|0",
    "+SELECT|1",
    "-select",
    "-select|0",
    "+config|get",
    "-config|get",
    "+config|",
    "+config|x",
    "+select|",
    "+get|a|b",
    "+config|get|x",
    "+cluster",
    "-cluster",
    "+Cluster|Info",
    "-cluster|nodes",
    "+cluster|x",
    "+cluster|",
    "+cluster|info|x",
    "+BGSAVE",
    "-bgsave",
    "+save|x",
    "-save|x",
    "+@nosuch",
    "-@nosuch",
    "+nosuch",
    "-nosuch",
    "+@",
    "~a b",
    "&a b",
    "#2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "!2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "#2C26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
];

type Call = Vec<String>;

/// Compares `rounds` users; returns the number of calls, or the first difference.
pub fn run(
    ours: SocketAddr,
    theirs: SocketAddr,
    seed: u64,
    rounds: usize,
) -> Result<usize, String> {
    let mut pair = Pair::connect(ours, theirs)?;
    let mut maker = Maker(Rng::with_seed(seed));
    let mut calls = 0;
    for round in 0..rounds {
        let name = maker.pick(NAMES).to_owned();
        let mut setuser = vec!["ACL".into(), "SETUSER".into(), name.clone()];
        setuser.extend(maker.rules());
        pair.same(&setuser)?;
        for call in [
            vec!["ACL".into(), "GETUSER".into(), name.clone()],
            vec!["ACL".into(), "LIST".into()],
            vec!["ACL".into(), "USERS".into()],
        ] {
            pair.same(&call)?;
        }
        calls += 4;
        for _ in 0..CALLS_PER_USER {
            let mut dryrun = vec!["ACL".into(), "DRYRUN".into(), name.clone()];
            dryrun.extend(maker.call());
            pair.same(&dryrun)?;
            calls += 1;
        }
        calls += as_user(ours, theirs, &mut maker, &name, round % 2 == 1)?;
        if maker.one_in(8) {
            pair.same(&["ACL".into(), "DELUSER".into(), name])?;
        }
    }
    Ok(calls)
}

/// Authenticates as the user, if possible, and makes calls.
fn as_user(
    ours: SocketAddr,
    theirs: SocketAddr,
    maker: &mut Maker,
    name: &str,
    resp3: bool,
) -> Result<usize, String> {
    let mut user = Pair::connect(ours, theirs)?;
    if resp3 {
        user.same_kind(&["HELLO".into(), "3".into()])?;
    }
    for password in ["p", "q", "foo"] {
        user.same(&["AUTH".into(), name.to_owned(), password.into()])?;
    }
    user.same(&["ACL".into(), "WHOAMI".into()])?;
    for _ in 0..CALLS_PER_USER {
        let call = maker.harmless_call();
        user.same(&call)?;
    }
    Ok(CALLS_PER_USER + 4)
}

struct Maker(Rng);

impl Maker {
    fn pick(&mut self, from: &'static [&'static str]) -> &'static str {
        from[self.0.usize(..from.len())]
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.0.usize(..n) == 0
    }

    /// Returns a command that both servers have.
    fn row(&mut self) -> &'static Row {
        // The reference has loaded its module of vector sets alone.
        let is_there = |row: &&Row| Module::of(row).is_none_or(|module| module.name == "vectorset");
        let rows: Vec<&'static Row> = table::all().iter().filter(is_there).collect();
        loop {
            let row = rows[self.0.usize(..rows.len())];
            if !is_after_reference(row.since) {
                return row;
            }
        }
    }

    /// Returns the name of a category that a command of both servers is in.
    fn category(&mut self) -> &'static str {
        let has_both = |category: Categories| {
            let mut both = table::all()
                .iter()
                .filter(|row| !is_after_reference(row.since));
            both.any(|row| row.acl.has(category))
        };
        let all = Categories::ALL.iter();
        let names: Vec<_> = all
            .filter(|(category, _)| has_both(*category))
            .map(|(_, name)| *name)
            .collect();
        names[self.0.usize(..names.len())]
    }

    fn rules(&mut self) -> Call {
        let mut rules = Call::new();
        for _ in 0..self.0.usize(..7) {
            match self.0.usize(..12) {
                0 => {
                    let inside: Call = (0..self.0.usize(..4)).map(|_| self.inner_rule()).collect();
                    let selector = format!("({})", inside.join(" "));
                    match self.one_in(2) {
                        true => rules.push(selector),
                        // As the words that a shell would make of it.
                        false => rules.extend(selector.split(' ').map(str::to_owned)),
                    }
                }
                1..=3 => rules.push(self.pick(WORDS).to_owned()),
                4 => rules.push("on".into()),
                5 => rules.push("nopass".into()),
                _ => rules.push(self.inner_rule()),
            }
        }
        rules
    }

    /// Returns a rule on commands, keys or channels.
    fn inner_rule(&mut self) -> String {
        let sign = if self.one_in(3) { "-" } else { "+" };
        match self.0.usize(..9) {
            0 => format!("~{}", self.pick(PATTERNS)),
            1 => format!("%R~{}", self.pick(PATTERNS)),
            2 => format!("%W~{}", self.pick(PATTERNS)),
            3 => format!("&{}", self.pick(CHANNELS)),
            4 => {
                let category = self.category();
                format!("{sign}@{category}")
            }
            5 => "+@all".into(),
            6 if self.one_in(4) => self.pick(WORDS).to_owned(),
            _ => {
                let row = self.row();
                match self.one_in(4) {
                    true => format!("{sign}{}", row.full_name.to_ascii_uppercase()),
                    false => format!("{sign}{}", row.full_name),
                }
            }
        }
    }

    /// Returns a call of any command, by its arity, whether it is meaningful or not.
    fn call(&mut self) -> Call {
        let row = self.row();
        let mut call: Call = row.full_name.split('|').map(str::to_owned).collect();
        // See docs/differences.md: keys are compared in calls that the command itself accepts.
        if matches!(row.id, CommandId::Xread | CommandId::Xreadgroup) {
            if row.id == CommandId::Xreadgroup {
                call.extend(["GROUP", self.pick(KEYS), self.pick(KEYS)].map(str::to_owned));
            }
            call.push("STREAMS".into());
            let keys = 1 + self.0.usize(..3);
            call.extend((0..keys * 2).map(|_| self.pick(KEYS).to_owned()));
            return call;
        }
        // See docs/differences.md: here a PFMERGE without sources has a key.
        let sources = usize::from(row.id == CommandId::Pfmerge);
        let least = usize::from(row.arity.unsigned_abs()) + sources;
        let more = if row.arity < 0 { self.0.usize(..4) } else { 0 };
        while call.len() < least + more && (sources > 0 || !self.one_in(40)) {
            call.push(match self.0.usize(..8) {
                0 => self.pick(&["1", "2", "0", "3"]).to_owned(),
                1 => self.pick(CHANNELS).to_owned(),
                2 => self
                    .pick(&["GET", "STORE", "KEYS", "STREAMS", "BY"])
                    .to_owned(),
                _ => self.pick(KEYS).to_owned(),
            });
        }
        call
    }

    /// Returns a call whose reply depends on the rules and on few keys, not on the process, and that leaves the
    /// connection unchanged.
    fn harmless_call(&mut self) -> Call {
        const CALLS: &[&str] = &[
            "GET k",
            "SET k 1",
            "SET k 1 GET",
            "MGET k k",
            "DEL k",
            "EXISTS k k",
            "COPY k k",
            "RENAME k k",
            "TYPE k",
            "APPEND k x",
            "MSET k 1 k 2",
            "GETDEL k",
            "SISMEMBER k a",
            "LPOP k",
            "OBJECT ENCODING k",
            "PUBLISH c m",
            "CONFIG GET hz",
            "CONFIG NOSUCH",
            "SELECT 0",
            "SELECT 1",
            "SELECT 0",
            "ECHO x",
            "PING",
            "NOSUCH",
            "GET",
            "ACL WHOAMI",
            "ACL GETUSER nobody",
            "FLUSHDB",
            "MULTI",
            "EXEC",
            "MULTI",
            "EXEC",
            "DISCARD",
            "WATCH k",
            "UNWATCH",
            "LMPOP 2 k k LEFT",
            "LMPOP x k LEFT",
        ];
        const SCRIPTS: &[&str] = &[
            "return redis.pcall('get','k')",
            "return redis.pcall('set','k','1')",
            "return redis.pcall('publish','c','m')",
            "return redis.acl_check_cmd('get','k')",
            "return redis.acl_check_cmd('set','k','1')",
            "return redis.acl_check_cmd('publish','c','m')",
            "return redis.acl_check_cmd('flushall')",
        ];
        if self.one_in(6) {
            let script = self
                .pick(SCRIPTS)
                .replace("'k'", &format!("'{}'", self.pick(KEYS)));
            let script = script.replace("'c'", &format!("'{}'", self.pick(CHANNELS)));
            return vec!["EVAL".into(), script, "0".into()];
        }
        let words = self.pick(CALLS).split(' ');
        words
            .map(|word| match word {
                "k" => self.pick(KEYS).to_owned(),
                "c" => self.pick(CHANNELS).to_owned(),
                word => word.to_owned(),
            })
            .collect()
    }
}
