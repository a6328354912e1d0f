//! Properties that hold for every row of the table, for any commands.

use std::collections::HashSet;

use redline_spec::table::{all, help_lines};
use redline_spec::{
    Access, Arg, ArgKind, ChannelSpec, CommandId, Find, Flags, Gate, Group, KeyShape, KeySpec,
    Plane, Propagate, Routing, Row, Scope, gate, lookup, lookup_subcommand, row,
};

#[test]
fn ids_are_dense_and_each_has_its_own_row() {
    assert_eq!(all().len(), CommandId::COUNT);
    for (at, row) in all().iter().enumerate() {
        assert_eq!(row.id as usize, at);
        assert_eq!(CommandId::ALL[at], row.id);
    }
}

/// Ensures that no such call is timed in a run: the server takes the beginning of a timed call for that of its script.
#[test]
fn calls_that_run_scripts_are_never_brief() {
    use CommandId::{Eval, EvalRo, Evalsha, EvalshaRo, Fcall, FcallRo};
    for id in [Eval, EvalRo, Evalsha, EvalshaRo, Fcall, FcallRo] {
        assert!(!gate(id).is_brief(3), "{id:?}");
    }
}

#[test]
fn names_are_unique() {
    let names: HashSet<_> = all().iter().map(|row| row.full_name).collect();
    assert_eq!(names.len(), CommandId::COUNT);
}

#[test]
fn ids_are_spelled_as_the_names() {
    for row in all() {
        let name: String = row
            .full_name
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .map(|c| c.to_ascii_lowercase())
            .collect();
        assert_eq!(format!("{:?}", row.id).to_ascii_lowercase(), name);
    }
}

#[test]
fn handlers_are_named_as_their_commands() {
    macro_rules! pairs {
        ($(($id:ident, $module:ident :: $handler:ident),)*) => {
            [$((CommandId::$id, stringify!($handler))),*]
        };
    }
    let planes = [
        &redline_spec::for_each_data_command!(pairs)[..],
        &redline_spec::for_each_session_command!(pairs)[..],
        &redline_spec::for_each_admin_command!(pairs)[..],
    ];
    for (id, handler) in planes.concat() {
        let name = row(id).full_name.replace(['|', '-', '.'], "_");
        let name = name.to_ascii_lowercase();
        let expected = match id {
            // RESTORE under a second name, which only marks the caller as another node.
            CommandId::RestoreAsking => "restore",
            // REPLICAOF under its older name.
            CommandId::Slaveof => "replicaof",
            // In a cluster only.
            CommandId::ClusterHelp => "cluster_help",
            _ if name.ends_with("_help") => "help",
            _ => &name,
        };
        assert_eq!(handler.trim_end_matches('_'), expected);
    }
}

#[test]
fn containers_have_help_and_nothing_of_their_own() {
    for row in all().iter().filter(|row| row.plane == Plane::Container) {
        assert!(lookup_subcommand(row.id, b"HELP").is_some(), "{}", row.name);
        assert_eq!(
            (row.arity, row.keys.len(), row.args.len()),
            (-2, 0, 0),
            "{}",
            row.name
        );
    }
    for row in all() {
        if let Some(container) = row.container {
            assert!(gate(container).has_subcommands);
            assert!(redline_spec::row(container).container.is_none());
            assert!(
                redline_spec::row(container).plane == Plane::Container
                    || container == CommandId::Command
            );
            assert_eq!(
                row.group,
                redline_spec::row(container).group,
                "{}",
                row.full_name
            );
        }
    }
}

#[test]
fn keyed_commands_of_the_data_plane_either_read_or_write() {
    for row in all()
        .iter()
        .filter(|row| row.plane == Plane::Data && !row.keys.is_empty())
    {
        let (write, read) = (row.flags.has(Flags::WRITE), row.flags.has(Flags::READONLY));
        assert!(write != read, "{}", row.full_name);
        if row.flags.has(Flags::MODULE) {
            continue; // Redis says of all keys of a module's commands that they may be changed.
        }
        // PFCOUNT is a read for users, and stores its result in the value. XREADGROUP only reads its keys, as in Redis,
        // and writes to the group.
        let write = write && row.id != CommandId::Xreadgroup;
        assert_eq!(
            write || row.flags.has(Flags::MAY_REPLICATE),
            row.keys.iter().any(|key| key.access.writes()),
            "{}",
            row.full_name
        );
    }
}

#[test]
fn what_needs_memory_writes() {
    for row in all().iter().filter(|row| row.flags.has(Flags::DENYOOM)) {
        assert!(row.flags.has(Flags::WRITE), "{}", row.full_name);
    }
}

#[test]
fn writes_propagate_and_reads_do_not() {
    for row in all() {
        if row.flags.has(Flags::WRITE) {
            assert_ne!(row.propagate, Propagate::None, "{}", row.full_name);
        } else if !row.flags.has(Flags::MAY_REPLICATE) && row.id != CommandId::Fcall {
            // Redis has no such flag for FCALL.
            assert_eq!(row.propagate, Propagate::None, "{}", row.full_name);
        }
    }
}

#[test]
fn whoever_touches_data_locks_something() {
    for row in all() {
        // Libraries of functions are changed under the script mutex.
        let libraries = row.group == Group::Scripting && row.flags.has(Flags::WRITE);
        let keys = row.keys.iter().any(|spec| !names_channels(spec)) || libraries;
        // DEBUG DIGEST reads everything.
        let whole = matches!(row.id, CommandId::Exec | CommandId::Debug);
        // The keys of a slot, and which slots are served.
        let slots = matches!(
            row.id,
            CommandId::ClusterAddslots
                | CommandId::ClusterAddslotsrange
                | CommandId::ClusterDelslots
                | CommandId::ClusterDelslotsrange
                | CommandId::ClusterFlushslot
                | CommandId::ClusterFlushslots
                | CommandId::ClusterGetkeysinslot
                | CommandId::ClusterReset
                | CommandId::ClusterSetslot
        );
        let touches = row.plane == Plane::Data || keys || whole || slots;
        assert_eq!(touches, row.scope != Scope::None, "{}", row.full_name);
    }
}

#[test]
fn texts_are_there_and_fit_one_line() {
    for row in all() {
        assert!(
            row.summary.ends_with('.') && row.summary.len() <= 100,
            "{}",
            row.full_name
        );
        assert!(!row.since.is_empty());
        let texts = row
            .history
            .iter()
            .flat_map(|(since, change)| [*since, *change]);
        for text in texts.chain([row.summary, row.complexity]) {
            assert!(!text.contains('\n'), "{}", row.full_name);
        }
        for (since, change) in row.history {
            assert!(
                !since.is_empty() && change.ends_with('.'),
                "{}",
                row.full_name
            );
        }
    }
}

#[test]
fn the_arity_agrees_with_the_grammar() {
    // These take words that their grammar does not have.
    let undocumented = [
        CommandId::Command,
        CommandId::Debug,
        CommandId::Psync,
        CommandId::Quit,
        CommandId::Replconf,
    ];
    for row in all() {
        // Commands of modules check their own number of arguments.
        let uncounted = row.flags.has(Flags::MODULE) || undocumented.contains(&row.id);
        if row.plane == Plane::Container || uncounted {
            continue;
        }
        let names = if row.container.is_some() { 2 } else { 1 };
        let (least, most) = words_of_all(row.args);
        let arity = match most {
            Some(most) if most == least => least + names,
            _ => -(least + names),
        };
        assert_eq!(i32::from(row.arity), arity, "{}", row.syntax());
    }
}

/// Returns the least and the largest number of words that arguments take; `None` if there is no largest.
fn words_of_all(args: &[Arg]) -> (i32, Option<i32>) {
    args.iter()
        .map(words_of)
        .fold((0, Some(0)), |(least, most), (l, m)| {
            (least + l, most.zip(m).map(|(a, b)| a + b))
        })
}

fn words_of(arg: &Arg) -> (i32, Option<i32>) {
    let (least, most) = words_when_chosen(arg);
    (if arg.optional { 0 } else { least }, most)
}

fn words_when_chosen(arg: &Arg) -> (i32, Option<i32>) {
    let (least, most) = match arg.kind {
        ArgKind::PureToken => (0, Some(0)),
        ArgKind::Block => words_of_all(arg.args),
        ArgKind::OneOf => {
            let least = arg.args.iter().map(|arg| words_when_chosen(arg).0).min();
            let most: Option<Vec<_>> = arg
                .args
                .iter()
                .map(|arg| words_when_chosen(arg).1)
                .collect();
            (least.unwrap(), most.and_then(|most| most.into_iter().max()))
        }
        _ => (1, Some(1)),
    };
    let token = i32::from(arg.token.is_some());
    (
        least + token,
        if arg.multiple {
            None
        } else {
            most.map(|most| most + token)
        },
    )
}

#[test]
fn the_key_specs_agree_with_the_grammar() {
    for row in all() {
        if row.keys.iter().any(names_channels) {
            continue; // channels of shards, which the grammar calls strings
        }
        let mut named = HashSet::new();
        collect_keys(row.args, &mut named);
        let specs = (0..row.keys.len()).map(|at| at as u8).collect();
        assert_eq!(named, specs, "{}", row.full_name);
        for (at, spec) in row.keys.iter().enumerate() {
            if matches!(
                spec.find,
                Find::Unknown
                    | Find::Behind { .. }
                    | Find::OneBehind { .. }
                    | Find::FirstHalf { .. }
                    | Find::OneUnless { .. }
                    | Find::RestBehind { .. }
            ) {
                continue; // at no fixed place
            }
            assert_eq!(
                position_of_key(row, at as u8),
                Some(spec.begin),
                "{} {at}",
                row.full_name
            );
        }
    }
}

/// Returns true for a spec of shard channels, which are routed like keys and are none.
fn names_channels(spec: &KeySpec) -> bool {
    spec.access.has(Access::NOT_KEY)
}

fn collect_keys(args: &[Arg], found: &mut HashSet<u8>) {
    for arg in args {
        found.extend(arg.key_spec_index());
        collect_keys(arg.args, found);
    }
}

/// Returns the position at which the spec begins by the grammar: its first key, or the count before it.
fn position_of_key(row: &Row, spec: u8) -> Option<u8> {
    let mut position = if row.container.is_some() { 2 } else { 1 };
    let counted = row.keys[usize::from(spec)].find == Find::KeyNum
        || row.keys[usize::from(spec)].find == Find::PairNum;
    for arg in row.args {
        let mut inside = HashSet::new();
        collect_keys(std::slice::from_ref(arg), &mut inside);
        if inside.contains(&spec) {
            return Some(position - u8::from(counted));
        }
        if arg.optional || arg.multiple {
            return None;
        }
        position += u8::try_from(words_of(arg).0).unwrap();
    }
    None
}

#[test]
fn names_inside_a_grammar_are_unique_among_neighbours() {
    fn check(args: &[Arg], of: &str) {
        let names: HashSet<_> = args.iter().map(|arg| arg.name).collect();
        assert_eq!(names.len(), args.len(), "{of}");
        for arg in args {
            assert_eq!(
                arg.args.is_empty(),
                !matches!(arg.kind, ArgKind::OneOf | ArgKind::Block),
                "{of}"
            );
            assert!(
                arg.token.is_some() || arg.kind != ArgKind::PureToken,
                "{of}"
            );
            check(arg.args, of);
        }
    }
    for row in all() {
        check(row.args, row.full_name);
    }
}

#[test]
fn gates_say_what_the_rows_say() {
    for row in all() {
        let Gate {
            flags,
            arity,
            keys,
            first_key,
            last_key,
            key_step,
            plane,
            scope,
            ..
        } = gate(row.id);
        assert_eq!(
            (flags, arity, plane, scope),
            (row.flags, row.arity, row.plane, row.scope)
        );
        assert_eq!(keys == KeyShape::None, row.keys.is_empty());
        assert_eq!(
            keys == KeyShape::Specs,
            flags.has(Flags::MOVABLEKEYS),
            "{}",
            row.full_name
        );
        if keys == KeyShape::One {
            assert_eq!(
                (last_key, key_step),
                (i8::try_from(first_key).unwrap(), 1),
                "{}",
                row.full_name
            );
        }
    }
}

#[test]
fn arity_allows_exact_and_least_counts() {
    let get = gate(CommandId::Get);
    assert!(!get.arity_allows(1) && get.arity_allows(2) && !get.arity_allows(3));
    let del = gate(CommandId::Del);
    assert!(!del.arity_allows(1) && del.arity_allows(2) && del.arity_allows(1000));
    let config_get = gate(CommandId::ConfigGet);
    assert!(!config_get.arity_allows(2) && config_get.arity_allows(3));
}

#[test]
fn routing_follows_keys_and_tips() {
    let routing = |name: &[u8]| row(lookup(name).unwrap()).routing;
    assert_eq!(routing(b"get"), Routing::SingleKey);
    assert_eq!(routing(b"mget"), Routing::MultiSplit);
    assert_eq!(routing(b"mset"), Routing::MultiSplit);
    assert_eq!(routing(b"msetnx"), Routing::MultiAtomic);
    assert_eq!(routing(b"rename"), Routing::MultiAtomic);
    assert_eq!(routing(b"eval"), Routing::MultiAtomic);
    assert_eq!(routing(b"flushall"), Routing::AllNodes);
    assert_eq!(routing(b"scan"), Routing::Cursor);
    assert_eq!(routing(b"ping"), Routing::Connection);
    assert_eq!(routing(b"time"), Routing::AnyNode);
}

#[test]
fn syntax_shows_options_choices_and_repetition() {
    let syntax = |name: &[u8]| row(lookup(name).unwrap()).syntax();
    assert_eq!(syntax(b"get"), "GET key");
    assert_eq!(syntax(b"mset"), "MSET key value [key value ...]");
    assert_eq!(
        syntax(b"set"),
        "SET key value [NX | XX | IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest] [GET] \
         [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]"
    );
    assert_eq!(
        syntax(b"lmpop"),
        "LMPOP numkeys key [key ...] <LEFT | RIGHT> [COUNT count]"
    );
    assert_eq!(
        syntax(b"zunion"),
        "ZUNION numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]"
    );
}

#[test]
fn help_lists_every_subcommand() {
    assert_eq!(
        help_lines(CommandId::Memory),
        [
            "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "USAGE key [SAMPLES count]",
            "    Estimate the bytes that a key and its value take.",
            "DOCTOR",
            "    Explain what is remarkable about the use of memory.",
            "MALLOC-STATS",
            "    Show the allocator's own figures.",
            "PURGE",
            "    Give memory back that is kept for later.",
            "STATS",
            "    List what memory is used for.",
            "HELP",
            "    Print this text.",
        ]
    );
}

/// Access to channels is decided by these: a command that is missing could be used by every user.
#[test]
fn whoever_uses_channels_says_where_they_are() {
    for row in all().iter().filter(|row| row.container.is_none()) {
        let leaves = row.name.ends_with("unsubscribe");
        let named = |arg: &Arg| matches!(arg.name, "channel" | "shardchannel" | "pattern");
        let first = row.args.first().filter(|arg| named(arg));
        let expected = first.filter(|_| row.flags.has(Flags::PUBSUB) && !leaves);
        let expected = expected.map(|arg| ChannelSpec {
            first: 1,
            to_the_end: arg.multiple,
            patterns: arg.name == "pattern",
        });
        assert_eq!(row.channels, expected, "{}", row.name);
    }
    let positions = |name: &[u8], argc| {
        let channels = row(lookup(name).unwrap()).channels.unwrap();
        channels.positions(argc).collect::<Vec<_>>()
    };
    assert_eq!(positions(b"publish", 3), [1]);
    assert_eq!(positions(b"subscribe", 3), [1, 2]);
    assert_eq!(positions(b"subscribe", 1), []);
}
