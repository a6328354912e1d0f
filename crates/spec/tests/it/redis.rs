//! Compares every row with a real Redis 8.2.3: its COMMAND INFO and COMMAND DOCS (without texts for people), and the
//! keys that COMMAND GETKEYSANDFLAGS finds in thousands of calls.
//!
//! `cargo xtask compat` starts the server and passes its address in `REDLINE_REDIS` (`host:port`).

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use redline_spec::{
    Arg, Find, Flags, KeySpec, Row, UNBUILT, gate, getkeys, is_after_reference, table,
};

#[test]
#[ignore = "needs a real Redis in REDLINE_REDIS: run by cargo xtask compat"]
fn command_info_says_what_the_rows_say() {
    let mut redis = Redis::connect();
    let mut differences = Vec::new();
    for row in comparable() {
        let theirs = redis.call(&["COMMAND", "INFO", row.full_name]);
        let theirs = without_notes(first_of(theirs, row));
        compare(row, theirs, info(row), &mut differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
#[ignore = "needs a real Redis in REDLINE_REDIS: run by cargo xtask compat"]
fn command_docs_says_what_the_rows_say() {
    let mut redis = Redis::connect();
    let mut differences = Vec::new();
    for row in comparable() {
        let Value::List(theirs) = redis.call(&["COMMAND", "DOCS", row.full_name]) else {
            panic!()
        };
        let [Value::Text(name), doc] = &theirs[..] else {
            panic!("{theirs:?}")
        };
        assert_eq!(name, row.full_name);
        compare(row, without_texts(doc.clone()), docs(row), &mut differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
#[ignore = "needs a real Redis in REDLINE_REDIS: run by cargo xtask compat"]
fn getkeysandflags_finds_the_same_keys() {
    let mut redis = Redis::connect();
    let mut random = 0x1234_5678_9abc_def0u64;
    let mut differences = Vec::new();
    for row in comparable() {
        for _ in 0..200 {
            let call = random_call(row, &mut random);
            let words: Vec<&str> = ["COMMAND", "GETKEYSANDFLAGS"]
                .into_iter()
                .chain(call.iter().map(|word| &word[..]))
                .collect();
            compare_call(&call, redis.call(&words), &mut differences);
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
#[ignore = "needs a real Redis in REDLINE_REDIS: run by cargo xtask compat"]
fn every_command_of_the_server_has_a_row_or_is_named_as_unbuilt() {
    let mut redis = Redis::connect();
    let Value::List(theirs) = redis.call(&["COMMAND", "LIST"]) else {
        panic!()
    };
    let built = comparable().map(|row| row.full_name);
    let ours: BTreeSet<&str> = built.chain(UNBUILT.iter().copied()).collect();
    let theirs: BTreeSet<&str> = (theirs.iter())
        .map(|name| match name {
            Value::Text(name) => &name[..],
            _ => panic!("{name:?}"),
        })
        .collect();
    assert_eq!(ours, theirs);
}

/// Returns the rows of commands that the server has. It must not have the others, or their version is wrong.
fn comparable() -> impl Iterator<Item = &'static Row> {
    let mut redis = Redis::connect();
    table::all().iter().filter(move |row| {
        let newer = is_after_reference(row.since);
        if newer {
            let theirs = redis.call(&["COMMAND", "INFO", row.full_name]);
            assert_eq!(theirs, Value::List(vec![Value::Null]), "{}", row.full_name);
        }
        !newer
    })
}

fn compare(row: &Row, theirs: Value, ours: Value, differences: &mut Vec<String>) {
    if theirs != ours {
        differences.push(format!(
            "{}\n  theirs {theirs:?}\n  ours   {ours:?}",
            row.full_name
        ));
    }
}

fn compare_call(call: &[String], theirs: Value, differences: &mut Vec<String>) {
    let ours = match getkeys(call.len(), |i| call[i].as_bytes()) {
        Ok(keys) => Value::List(
            keys.map(|key| {
                Value::List(vec![
                    Value::text(&call[key.position]),
                    names(key.access.names()),
                ])
            })
            .collect(),
        ),
        Err(error) => Value::Error(error.message().to_owned()),
    };
    if theirs != ours {
        differences.push(format!("{call:?}\n  theirs {theirs:?}\n  ours   {ours:?}"));
    }
}

/// Returns a call with the command's name and up to eight words, some of which are significant for some commands. Key
/// counts such as `01` and `+1` are left out: Redis's GETKEYS accepts them, though the commands themselves refuse them.
fn random_call(row: &Row, random: &mut u64) -> Vec<String> {
    const WORDS: &[&str] = &[
        "0",
        "1",
        "2",
        "3",
        "4",
        "-1",
        "99999999999",
        "9223372036854775807",
        "",
        "get",
        "GET",
        "key",
        "limit",
    ];
    let mut below = |n: usize| {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        usize::try_from(*random % n as u64).unwrap()
    };
    let mut call: Vec<String> = row.full_name.split('|').map(str::to_owned).collect();
    for at in 0..below(9) {
        call.push(if below(2) == 0 {
            format!("word{at}")
        } else {
            WORDS[below(WORDS.len())].to_owned()
        });
    }
    call
}

/// Returns the reply of COMMAND INFO for a row, without its subcommands.
fn info(row: &Row) -> Value {
    let gate = gate(row.id);
    Value::List(vec![
        Value::text(row.full_name),
        Value::Int(if is_of_module(row) {
            -1
        } else {
            gate.arity.into()
        }),
        names(row.flags.names()),
        Value::Int(gate.first_key.into()),
        Value::Int(gate.last_key.into()),
        Value::Int(gate.key_step.into()),
        Value::List(
            row.acl
                .names()
                .map(|name| Value::Text(format!("@{name}")))
                .collect(),
        ),
        names(row.tips.iter().copied()),
        Value::List(row.keys.iter().map(key_spec).collect()),
    ])
}

fn key_spec(spec: &KeySpec) -> Value {
    let (kind, find) = match spec.find {
        Find::Range { last, step } => (
            "range",
            pairs([
                ("lastkey", Value::Int(last.into())),
                ("keystep", Value::Int(step.into())),
                ("limit", Value::Int(0)),
            ]),
        ),
        Find::Unknown | Find::Behind { .. } => ("unknown", pairs([])),
        Find::RestBehind { .. } => (
            "range",
            pairs([
                ("lastkey", Value::Int(-1)),
                ("keystep", Value::Int(1)),
                ("limit", Value::Int(0)),
            ]),
        ),
        Find::OneBehind { .. } | Find::OneUnless { .. } => (
            "range",
            pairs([
                ("lastkey", Value::Int(0)),
                ("keystep", Value::Int(1)),
                ("limit", Value::Int(0)),
            ]),
        ),
        Find::FirstHalf { .. } => (
            "range",
            pairs([
                ("lastkey", Value::Int(-1)),
                ("keystep", Value::Int(1)),
                ("limit", Value::Int(2)),
            ]),
        ),
        Find::PairNum => (
            "keynum",
            pairs([
                ("keynumidx", Value::Int(0)),
                ("firstkey", Value::Int(1)),
                ("keystep", Value::Int(2)),
            ]),
        ),
        Find::KeyNum => (
            "keynum",
            pairs([
                ("keynumidx", Value::Int(0)),
                ("firstkey", Value::Int(1)),
                ("keystep", Value::Int(1)),
            ]),
        ),
    };
    let (begin_kind, begin) = match spec.find {
        Find::Unknown | Find::Behind { .. } => ("unknown", pairs([])),
        Find::OneBehind { keyword, .. } | Find::FirstHalf { keyword, .. } => (
            "keyword",
            pairs([
                ("keyword", Value::text(keyword)),
                ("startfrom", Value::Int(spec.begin.into())),
            ]),
        ),
        Find::RestBehind { keyword, .. } => (
            "keyword",
            pairs([
                ("keyword", Value::text(keyword)),
                ("startfrom", Value::Int(-2)),
            ]),
        ),
        _ => ("index", pairs([("index", Value::Int(spec.begin.into()))])),
    };
    pairs([
        ("flags", names(spec.access.names())),
        (
            "begin_search",
            pairs([("type", Value::text(begin_kind)), ("spec", begin)]),
        ),
        (
            "find_keys",
            pairs([("type", Value::text(kind)), ("spec", find)]),
        ),
    ])
}

/// Returns true for commands of a module, for which Redis reports little, and no arity.
fn is_of_module(row: &Row) -> bool {
    row.flags.has(Flags::MODULE)
}

/// Returns the reply of COMMAND DOCS for a row, without the texts, and with the versions only of its history.
fn docs(row: &Row) -> Value {
    if is_of_module(row) {
        return pairs([
            ("group", Value::text(row.group.name())),
            ("module", Value::text("vectorset")),
        ]);
    }
    let mut doc = vec![
        ("since", Value::text(row.since)),
        ("group", Value::text(row.group.name())),
    ];
    if row.doc_flags().next().is_some() {
        doc.push(("doc_flags", names(row.doc_flags())));
    }
    if let Some(deprecated) = row.deprecated {
        doc.push(("deprecated_since", Value::text(deprecated.since)));
    }
    if !row.history.is_empty() {
        let versions = row.history.iter().map(|(since, _)| *since);
        doc.push((
            "history",
            names(versions.filter(|since| !is_after_reference(since))),
        ));
    }
    if !row.args.is_empty() {
        doc.push(("arguments", Value::List(args(row.args))));
    }
    pairs(doc)
}

/// Returns the arguments that the server has too.
fn args(all: &[Arg]) -> Vec<Value> {
    let there = |arg: &&Arg| arg.since.is_none_or(|since| !is_after_reference(since));
    all.iter().filter(there).map(arg).collect()
}

fn arg(arg: &Arg) -> Value {
    let mut doc = vec![
        ("name", Value::text(arg.name)),
        ("type", Value::text(arg.kind.name())),
    ];
    if let Some(text) = arg.display_text() {
        doc.push(("display_text", Value::text(text)));
    }
    if let Some(spec) = arg.key_spec_index() {
        doc.push(("key_spec_index", Value::Int(spec.into())));
    }
    for (name, text) in [
        ("token", arg.token),
        ("since", arg.since),
        ("deprecated_since", arg.deprecated_since),
    ] {
        doc.extend(text.map(|text| (name, Value::text(text))));
    }
    let flags: Vec<_> = [
        (arg.optional, "optional"),
        (arg.multiple, "multiple"),
        (arg.multiple_token, "multiple_token"),
    ]
    .into_iter()
    .filter(|(set, _)| *set)
    .collect();
    if !flags.is_empty() {
        doc.push(("flags", names(flags.into_iter().map(|(_, name)| name))));
    }
    if !arg.args.is_empty() {
        doc.push(("arguments", Value::List(args(arg.args))));
    }
    pairs(doc)
}

/// Returns the only command in a COMMAND INFO reply, without its subcommands.
fn first_of(reply: Value, row: &Row) -> Value {
    let Value::List(mut commands) = reply else {
        panic!("{}: {reply:?}", row.full_name)
    };
    let Value::List(mut fields) = commands.remove(0) else {
        panic!("Redis has no {}", row.full_name)
    };
    fields.truncate(9);
    Value::List(fields)
}

fn without_notes(info: Value) -> Value {
    let Value::List(mut fields) = info else {
        panic!()
    };
    let Some(Value::List(specs)) = fields.last_mut() else {
        panic!()
    };
    for spec in specs {
        *spec = filter_pairs(spec.clone(), |name| name != "notes");
    }
    Value::List(fields)
}

fn without_texts(doc: Value) -> Value {
    let doc = filter_pairs(doc, |name| {
        !["summary", "complexity", "replaced_by", "subcommands"].contains(&name)
    });
    let Value::List(mut fields) = doc else {
        panic!()
    };
    if let Some(at) = fields
        .iter()
        .position(|field| *field == Value::text("history"))
    {
        let Value::List(history) = &fields[at + 1] else {
            panic!()
        };
        let versions = history.iter().map(|change| match change {
            Value::List(change) => change[0].clone(),
            other => panic!("{other:?}"),
        });
        fields[at + 1] = Value::List(versions.collect());
    }
    Value::List(fields)
}

fn filter_pairs(value: Value, keep: impl Fn(&str) -> bool) -> Value {
    let Value::List(fields) = value else {
        panic!("{value:?}")
    };
    let kept = fields
        .chunks(2)
        .filter(|pair| matches!(&pair[0], Value::Text(name) if keep(name)));
    Value::List(kept.flatten().cloned().collect())
}

fn names(names: impl IntoIterator<Item = &'static str>) -> Value {
    Value::List(names.into_iter().map(Value::text).collect())
}

fn pairs(pairs: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::List(
        pairs
            .into_iter()
            .flat_map(|(name, value)| [Value::text(name), value])
            .collect(),
    )
}

/// A RESP2 reply.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(String),
    Int(i64),
    Error(String),
    Null,
    List(Vec<Value>),
}

impl Value {
    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

struct Redis(BufReader<TcpStream>);

impl Redis {
    fn connect() -> Redis {
        let address = std::env::var("REDLINE_REDIS").expect("REDLINE_REDIS names no Redis");
        Redis(BufReader::new(
            TcpStream::connect(address).expect("no Redis answers at REDLINE_REDIS"),
        ))
    }

    fn call(&mut self, words: &[&str]) -> Value {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        self.read()
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        let count = || rest.parse::<i64>().unwrap();
        match kind {
            "+" => Value::text(rest),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(count()),
            "$" | "*" if count() < 0 => Value::Null,
            "$" => {
                let mut bytes = vec![0; count() as usize + 2];
                self.0.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Value::Text(String::from_utf8(bytes).unwrap())
            }
            "*" => Value::List((0..count()).map(|_| self.read()).collect()),
            _ => panic!("not RESP2: {line:?}"),
        }
    }
}
