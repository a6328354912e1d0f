//! COMMAND and every HELP: the command table, rendered.
//!
//! Must not know: facts about a command that are not in its row.

use redline_commands::{Error, Words};
use redline_resp::{Args, Reply};
use redline_spec::{
    self as spec, Arg, ArgKind, Categories, CommandId, Find, Flags, KeySpec, Keys, Module, Row,
    table,
};
use redline_types::glob::{self, Case};

use crate::worker::Worker;
use redline_engine::{Caller, Halt, Names};

pub(crate) fn command(_: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    let mut reply = caller.reply();
    reply.array(top_level().count());
    top_level().for_each(|row| write_info(&mut reply, row));
    Ok(())
}

pub(crate) fn command_count(_: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    caller.reply().integer(top_level().count() as i64);
    Ok(())
}

pub(crate) fn command_info(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    if args.len() == 2 {
        return command(worker, caller, args);
    }
    let mut reply = caller.reply();
    reply.array(args.len() - 2);
    for name in args.iter().skip(2) {
        match named(&worker.shared.names, name) {
            Some(row) => write_info(&mut reply, row),
            None => reply.null(),
        }
    }
    Ok(())
}

pub(crate) fn command_docs(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let rows: Vec<&Row> = match args.len() {
        2 => top_level().collect(),
        _ => {
            let names = &worker.shared.names;
            let named = args.iter().skip(2).filter_map(|name| named(names, name));
            named.collect()
        }
    };
    let mut reply = caller.reply();
    reply.map(rows.len());
    rows.into_iter().for_each(|row| write_docs(&mut reply, row));
    Ok(())
}

pub(crate) fn command_list(
    _: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut words = Words::new(CommandId::CommandList, &args, 2);
    let filter = if words.is_empty() {
        Filter::None
    } else if words.len() != 3 || !words.flag("FILTERBY") {
        return Err(Error::Syntax.into());
    } else if let Some(module) = words.value("MODULE") {
        let found = Module::all().find(|known| known.name.as_bytes() == module);
        found.map_or(Filter::Nothing, Filter::Module)
    } else if let Some(category) = words.value("ACLCAT") {
        Categories::by_name(category).map_or(Filter::Nothing, Filter::Category)
    } else if let Some(pattern) = words.value("PATTERN") {
        Filter::Pattern(pattern)
    } else {
        return Err(Error::Syntax.into());
    };
    let names: Vec<&str> = table::all()
        .iter()
        .filter(|row| filter.admits(row))
        .map(|row| row.full_name)
        .collect();
    let mut reply = caller.reply();
    reply.array(names.len());
    names
        .into_iter()
        .for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

pub(crate) fn command_getkeys(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let call = args.from(2);
    let keys = keys_of(&worker.shared.names, call)?;
    let mut reply = caller.reply();
    reply.array(keys.len());
    keys.for_each(|key| reply.bulk(&call[key.position]));
    Ok(())
}

pub(crate) fn command_getkeysandflags(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let call = args.from(2);
    let keys = keys_of(&worker.shared.names, call)?;
    let mut reply = caller.reply();
    reply.array(keys.len());
    for key in keys {
        reply.array(2);
        reply.bulk(&call[key.position]);
        write_set(&mut reply, key.access.names());
    }
    Ok(())
}

/// Writes the subcommands of a container, each with its syntax and its summary.
pub(crate) fn help(worker: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    let container = worker
        .shared
        .names
        .lookup(&args[0])
        .expect("the executor found the container of this HELP");
    let name = spec::row(container).name.to_ascii_uppercase();
    let mut lines = vec![format!(
        "{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    )];
    let (help, others): (Vec<&Row>, Vec<&Row>) =
        subcommands(container).partition(|row| row.name == "help");
    for row in others.into_iter().chain(help) {
        let syntax = row.syntax();
        lines.push(
            syntax
                .strip_prefix(&name)
                .unwrap_or(&syntax)
                .trim_start()
                .to_string(),
        );
        let summary = if row.name == "help" {
            "Print this help."
        } else {
            row.summary
        };
        lines.push(format!("    {summary}"));
    }
    write_help(&mut caller.reply(), &lines);
    Ok(())
}

/// Writes a HELP reply: one status per line.
pub(crate) fn write_help<S: AsRef<str>>(reply: &mut Reply<'_>, lines: &[S]) {
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.simple(line.as_ref()));
}

/// Filter of COMMAND LIST.
enum Filter<'a> {
    None,
    Nothing,
    Module(&'static Module),
    Category(Categories),
    Pattern(&'a [u8]),
}

impl Filter<'_> {
    fn admits(&self, row: &Row) -> bool {
        match self {
            Filter::None => true,
            Filter::Nothing => false,
            Filter::Module(module) => Module::of(row) == Some(module),
            Filter::Category(category) => row.acl.has(*category),
            Filter::Pattern(pattern) => {
                glob::matches(pattern, row.full_name.as_bytes(), Case::Insensitive)
            }
        }
    }
}

fn top_level() -> impl Iterator<Item = &'static Row> {
    table::all().iter().filter(|row| row.container.is_none())
}

fn subcommands(container: CommandId) -> impl Iterator<Item = &'static Row> {
    table::all()
        .iter()
        .filter(move |row| row.container == Some(container))
}

/// Returns the row of a name as COMMAND INFO takes it: `get`, `config|get`.
fn named(names: &Names, name: &[u8]) -> Option<&'static Row> {
    let id = match name.iter().position(|byte| *byte == b'|') {
        None => names.lookup(name)?,
        Some(bar) => spec::lookup_subcommand(names.lookup(&name[..bar])?, &name[bar + 1..])?,
    };
    Some(spec::row(id))
}

fn keys_of(names: &Names, call: Args<'_>) -> Result<Keys, Error> {
    // The table has a command by its own name only.
    let own_name = match names.lookup(&call[0]) {
        Some(id) => spec::row(id).name.as_bytes(),
        None => b"",
    };
    let word = |index| match index {
        0 => own_name,
        _ => call.get(index).unwrap_or_default(),
    };
    spec::getkeys(call.len(), word).map_err(|error| Error::line(error.message()))
}

fn write_set<'a>(reply: &mut Reply<'_>, names: impl Iterator<Item = &'a str>) {
    write_prefixed_set(reply, "", names);
}

fn write_prefixed_set<'a>(
    reply: &mut Reply<'_>,
    prefix: &str,
    names: impl Iterator<Item = &'a str>,
) {
    let mark = reply.mark();
    let mut count = 0;
    for name in names {
        reply.simple(&format!("{prefix}{name}"));
        count += 1;
    }
    reply.insert_set_header(mark, count);
}

fn write_info(reply: &mut Reply<'_>, row: &Row) {
    let gate = spec::gate(row.id);
    reply.array(10);
    reply.bulk(row.full_name.as_bytes());
    // Redis has no arity for a module's command.
    let is_module = row.flags.has(Flags::MODULE);
    reply.integer(if is_module { -1 } else { row.arity.into() });
    write_set(reply, row.flags.names());
    reply.integer(gate.first_key.into());
    reply.integer(gate.last_key.into());
    reply.integer(gate.key_step.into());
    write_prefixed_set(reply, "@", row.acl.names());
    reply.set(row.tips.len());
    row.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(row.keys.len());
    row.keys.iter().for_each(|spec| write_key_spec(reply, spec));
    // Redis writes an empty set but a non-empty array here, and clients accept both.
    match subcommands(row.id).count() {
        0 => reply.set(0),
        count => reply.array(count),
    }
    subcommands(row.id).for_each(|row| write_info(reply, row));
}

fn write_key_spec(reply: &mut Reply<'_>, spec: &KeySpec) {
    reply.map(3 + usize::from(spec.note.is_some()));
    if let Some(note) = spec.note {
        reply.bulk(b"notes");
        reply.bulk(note.as_bytes());
    }
    reply.bulk(b"flags");
    write_set(reply, spec.access.names());
    reply.bulk(b"begin_search");
    if let Find::Unknown | Find::Behind { .. } = spec.find {
        write_search(reply, "unknown", &[]);
    } else if let Find::OneBehind { keyword, .. } | Find::FirstHalf { keyword, .. } = spec.find {
        write_search_head(reply, "keyword", 2);
        reply.bulk(b"keyword");
        reply.bulk(keyword.as_bytes());
        reply.bulk(b"startfrom");
        reply.integer(spec.begin.into());
    } else if let Find::RestBehind { keyword, .. } = spec.find {
        write_search_head(reply, "keyword", 2);
        reply.bulk(b"keyword");
        reply.bulk(keyword.as_bytes());
        reply.bulk(b"startfrom");
        reply.integer(-2);
    } else {
        write_search(reply, "index", &[("index", spec.begin.into())]);
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step } => {
            let fields = [
                ("lastkey", last.into()),
                ("keystep", step.into()),
                ("limit", 0),
            ];
            write_search(reply, "range", &fields);
        }
        Find::Unknown | Find::Behind { .. } => write_search(reply, "unknown", &[]),
        Find::RestBehind { .. } => {
            write_search(
                reply,
                "range",
                &[("lastkey", -1), ("keystep", 1), ("limit", 0)],
            );
        }
        Find::OneBehind { .. } | Find::OneUnless { .. } => {
            write_search(
                reply,
                "range",
                &[("lastkey", 0), ("keystep", 1), ("limit", 0)],
            );
        }
        Find::FirstHalf { .. } => {
            write_search(
                reply,
                "range",
                &[("lastkey", -1), ("keystep", 1), ("limit", 2)],
            );
        }
        Find::PairNum => {
            write_search(
                reply,
                "keynum",
                &[("keynumidx", 0), ("firstkey", 1), ("keystep", 2)],
            );
        }
        Find::KeyNum => {
            write_search(
                reply,
                "keynum",
                &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)],
            );
        }
    }
}

fn write_search_head(reply: &mut Reply<'_>, kind: &str, fields: usize) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields);
}

fn write_search(reply: &mut Reply<'_>, kind: &str, fields: &[(&str, i64)]) {
    write_search_head(reply, kind, fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.integer(*value);
    }
}

/// Pairs of a map, counted while they are written.
struct Pairs<'r, 'a> {
    reply: &'r mut Reply<'a>,
    mark: redline_resp::Mark,
    count: usize,
}

impl<'r, 'a> Pairs<'r, 'a> {
    fn begin(reply: &'r mut Reply<'a>) -> Self {
        let mark = reply.mark();
        Pairs {
            reply,
            mark,
            count: 0,
        }
    }

    fn key(&mut self, key: &str) -> &mut Reply<'a> {
        self.count += 1;
        self.reply.bulk(key.as_bytes());
        self.reply
    }

    fn text(&mut self, key: &str, text: &str) {
        self.key(key).bulk(text.as_bytes());
    }

    fn text_if(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    fn end(self) {
        self.reply.insert_map_header(self.mark, self.count);
    }
}

fn write_docs(reply: &mut Reply<'_>, row: &Row) {
    reply.bulk(row.full_name.as_bytes());
    let mut pairs = Pairs::begin(reply);
    pairs.text("summary", row.summary);
    if row.flags.has(Flags::MODULE) {
        // Redis has no more fields of them.
        pairs.text("group", row.group.name());
        pairs.text_if("module", Module::of(row).map(|module| module.name));
        return pairs.end();
    }
    pairs.text("since", row.since);
    pairs.text("group", row.group.name());
    pairs.text_if(
        "complexity",
        Some(row.complexity).filter(|text| !text.is_empty()),
    );
    if row.doc_flags().next().is_some() {
        write_set(pairs.key("doc_flags"), row.doc_flags());
    }
    if let Some(deprecation) = row.deprecated {
        pairs.text("deprecated_since", deprecation.since);
        pairs.text("replaced_by", deprecation.replaced_by);
    }
    if !row.history.is_empty() {
        let reply = pairs.key("history");
        reply.set(row.history.len());
        for (version, change) in row.history {
            reply.array(2);
            reply.bulk(version.as_bytes());
            reply.bulk(change.as_bytes());
        }
    }
    if !row.args.is_empty() {
        write_args(pairs.key("arguments"), row.args);
    }
    let count = subcommands(row.id).count();
    if count > 0 {
        let reply = pairs.key("subcommands");
        reply.map(count);
        subcommands(row.id).for_each(|row| write_docs(reply, row));
    }
    pairs.end();
}

fn write_args(reply: &mut Reply<'_>, args: &[Arg]) {
    reply.array(args.len());
    for arg in args {
        let mut pairs = Pairs::begin(reply);
        pairs.text("name", arg.name);
        pairs.text("type", arg.kind.name());
        pairs.text_if("display_text", arg.display_text());
        if let Some(index) = arg.key_spec_index() {
            pairs.key("key_spec_index").integer(index.into());
        }
        pairs.text_if("token", arg.token);
        pairs.text_if("since", arg.since);
        pairs.text_if("deprecated_since", arg.deprecated_since);
        if arg.optional || arg.multiple {
            let flags = [
                (arg.optional, "optional"),
                (arg.multiple, "multiple"),
                (arg.multiple_token, "multiple_token"),
            ];
            let set = flags.into_iter().filter(|(set, _)| *set);
            write_set(pairs.key("flags"), set.map(|(_, name)| name));
        }
        if matches!(arg.kind, ArgKind::OneOf | ArgKind::Block) {
            write_args(pairs.key("arguments"), arg.args);
        }
        pairs.end();
    }
}
