//! The route of each command: derived from its row. Must not know connections or servers.

use redline_spec::{self as spec, CommandId, Flags, Gate, Group, KeyShape, Plane, Routing};

use crate::command_docs::Listing;

/// No command, where commands are numbers.
pub const NO_COMMAND: u16 = u16::MAX - 1;

/// The route of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// To the server of its one key, unchanged.
    Key,
    /// To the one server of all its keys, which its key specs find.
    Keys,
    /// In parts to the servers of its keys.
    Split(Merge),
    /// To one server of each shard.
    All(Merge),
    /// From shard to shard, by its cursor.
    Scan,
    /// To any server.
    Any,
    /// To the one server of its keys, on a dedicated connection, since it may block.
    Blocks,
    /// Begins, ends or guards a transaction.
    Transaction,
    /// Changes the client's subscriptions.
    Subscribe,
    /// The proxy answers.
    Local,
    /// The proxy answers as a node of a cluster, if it presents itself as one.
    Cluster,
    /// The proxy refuses it.
    Refused,
    /// No command has this name.
    Forbidden,
}

/// How the replies of several servers are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The elements, each at the place of its key.
    Elements,
    /// The sum.
    Sum,
    /// OK if all are OK.
    AllOk,
    /// The first one's reply, if all succeeded.
    First,
    /// Concatenated.
    Concat,
    /// Concatenated, without duplicates.
    Distinct,
    /// Element by element: 1 where all have 1.
    And,
    /// Any that is not an error, else the first error other than that nothing is running.
    AnyOk,
    /// Any that is not null; null if all are.
    AnyValue,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// A cursor and elements of one shard.
    Scan,
    /// Names and numbers: the numbers of each name are added.
    SumByName,
    /// The reply of one server, filtered for clients.
    Commands(Listing),
}

/// Properties of a command that the request path needs.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its number.
    pub id: CommandId,
    /// Its route.
    pub class: Class,
    /// Position of its key, if it has exactly one.
    pub key: u8,
    /// Its arity, as in its row.
    pub arity: i16,
    /// The second word is a subcommand.
    pub has_subcommands: bool,
    /// It is read-only, so a replica may answer it.
    pub reads: bool,
}

impl Command {
    /// Returns the properties of a command.
    pub fn of(id: CommandId) -> Command {
        let gate = spec::gate(id);
        Command {
            id,
            class: class_of(id, &gate),
            key: gate.first_key,
            arity: gate.arity,
            has_subcommands: gate.has_subcommands,
            reads: gate.flags.has(Flags::READONLY),
        }
    }

    /// Returns true if a call of this many words fits the arity.
    #[inline]
    pub fn allows(&self, argc: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        argc == least || (self.arity < 0 && argc > least)
    }
}

/// Words of a call of many keys that is split: some for each key, beginning with it, and some behind all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// Number of words for each key, itself included.
    pub(crate) step: usize,
    /// Position behind the words of the last key: what follows belongs to every part.
    pub(crate) end: usize,
}

impl Words {
    /// Returns the layout of a call of that many words, name included; `None` if these are too few or too many.
    pub(crate) fn of(id: CommandId, argc: usize) -> Option<Words> {
        let gate = spec::gate(id);
        let behind = usize::from((gate.last_key + 1).unsigned_abs());
        let step = usize::from(gate.key_step);
        let end = argc.checked_sub(behind)?;
        (end > step && (end - 1).is_multiple_of(step)).then_some(Words { step, end })
    }

    /// Returns the positions of the keys.
    pub(crate) fn keys(self) -> impl Iterator<Item = usize> {
        (1..self.end).step_by(self.step)
    }
}

fn class_of(id: CommandId, gate: &Gate) -> Class {
    use CommandId::*;
    match id {
        Mget | JsonMget => return Class::Split(Merge::Elements),
        Mset | JsonMset => return Class::Split(Merge::AllOk),
        Del | Unlink | Exists | Touch => return Class::Split(Merge::Sum),
        // A server that lacks the script gets it when it is called.
        ScriptLoad => return Class::All(Merge::AnyOk),
        Dbsize => return Class::All(Merge::Sum),
        Keys => return Class::All(Merge::Concat),
        // Series are found by their labels, on whichever server they are.
        TsQueryindex | TsMget | TsMrange | TsMrevrange => return Class::All(Merge::Concat),
        Randomkey => return Class::All(Merge::AnyValue),
        Scan => return Class::Scan,
        Multi | Exec | Discard | Watch | Unwatch => return Class::Transaction,
        Subscribe | Unsubscribe | Psubscribe | Punsubscribe | Ssubscribe | Sunsubscribe => {
            return Class::Subscribe;
        }
        // With a number of 0 there is no server to wait for. Otherwise they concern writes of the same connection, and
        // would block the shared one.
        Wait | Waitaof => return Class::Local,
        // Subscribers of patterns and notifications use several servers.
        PubsubChannels | PubsubShardchannels => return Class::All(Merge::Distinct),
        // All servers that were asked have the same.
        PubsubNumpat => return Class::All(Merge::Max),
        PubsubNumsub | PubsubShardnumsub => return Class::All(Merge::SumByName),
        Lolwut => return Class::Any,
        // Its patterns are checked.
        SortRo => return Class::Keys,
        // By their channel.
        Publish | Spublish => return Class::Keys,
        // The proxy has its own answer to these.
        Info | Time | Role | AclWhoami | ConfigGet | ConfigSet | ConfigResetstat | Monitor => {
            return Class::Local;
        }
        _ if matches!(spec::row(id).container, Some(Slowlog | Latency)) => return Class::Local,
        Command
        | CommandCount
        | CommandDocs
        | CommandGetkeys
        | CommandGetkeysandflags
        | CommandHelp
        | CommandInfo
        | CommandList => return Class::Any,
        // All servers have the same here, or should have.
        AclCat | AclGenpass | AclHelp | ModuleHelp | ModuleList => return Class::Any,
        ClientHelp | ScriptHelp | FunctionHelp | FunctionList | FunctionDump | FunctionStats
        | ScriptShow | ObjectHelp | PubsubHelp | XgroupHelp | XinfoHelp | MemoryHelp => {
            return Class::Any;
        }
        // These wait for other clients of the same server, or change what others see.
        ClientPause | ClientUnpause | ClientUnblock | ClientCaching | Swapdb | Migrate => {
            return Class::Refused;
        }
        _ => {}
    }
    if spec::row(id).group == Group::Cluster {
        return Class::Cluster;
    }
    if gate.routing == Routing::Connection {
        return Class::Local;
    }
    if gate.routing == Routing::AllNodes {
        // State of the server itself, shared by all its users, is set on the server directly.
        let is_data = spec::row(id).group == Group::Scripting || matches!(id, Flushall | Flushdb);
        return match is_data {
            true => Class::All(merge_of(id)),
            false => Class::Refused,
        };
    }
    match (gate.keys, gate.plane) {
        (KeyShape::None, Plane::Data) => Class::Any,
        (KeyShape::None, _) => Class::Refused,
        _ if gate.flags.has(Flags::BLOCKING) => Class::Blocks,
        (KeyShape::One, _) => Class::Key,
        _ => Class::Keys,
    }
}

/// Returns the merge that the command's tips ask for.
fn merge_of(id: CommandId) -> Merge {
    let policy = spec::row(id)
        .tips
        .iter()
        .find_map(|tip| tip.strip_prefix("response_policy:"));
    match policy {
        Some("agg_sum") => Merge::Sum,
        Some("agg_min") => Merge::Min,
        Some("agg_logical_and") => Merge::And,
        Some("one_succeeded") => Merge::AnyOk,
        _ => Merge::First,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_from_the_rows() {
        let class = |id| Command::of(id).class;
        assert_eq!(class(CommandId::Get), Class::Key);
        assert_eq!(class(CommandId::Hset), Class::Key);
        assert_eq!(class(CommandId::Rename), Class::Keys);
        assert_eq!(class(CommandId::Eval), Class::Keys);
        assert_eq!(class(CommandId::Blpop), Class::Blocks);
        assert_eq!(class(CommandId::ScriptExists), Class::All(Merge::And));
        assert_eq!(class(CommandId::FunctionLoad), Class::All(Merge::First));
        assert_eq!(class(CommandId::Flushall), Class::All(Merge::First));
        for id in [
            CommandId::Ping,
            CommandId::ConfigSet,
            CommandId::LatencyReset,
        ] {
            assert_eq!(class(id), Class::Local, "{id:?}");
        }
        for id in [
            CommandId::Shutdown,
            CommandId::ConfigRewrite,
            CommandId::AclSetuser,
            CommandId::MemoryPurge,
        ] {
            assert_eq!(class(id), Class::Refused, "{id:?}");
        }
        assert_eq!(class(CommandId::Msetnx), Class::Keys);
    }

    #[test]
    fn the_words_of_a_call_that_is_split_follow_from_its_row() {
        let words = |id, argc| Words::of(id, argc).map(|words| (words.step, words.end));
        assert_eq!(words(CommandId::Mget, 3), Some((1, 3)));
        assert_eq!(words(CommandId::Mset, 5), Some((2, 5)));
        assert_eq!(words(CommandId::Mset, 4), None);
        assert_eq!(words(CommandId::JsonMget, 4), Some((1, 3)));
        assert_eq!(words(CommandId::JsonMget, 2), None);
        assert_eq!(words(CommandId::JsonMset, 7), Some((3, 7)));
        assert_eq!(words(CommandId::JsonMset, 6), None);
        for row in redline_spec::table::all() {
            if let Class::Split(_) = Command::of(row.id).class {
                let gate = redline_spec::gate(row.id);
                assert!(
                    gate.first_key == 1 && gate.last_key < 0,
                    "{}",
                    row.full_name
                );
            }
        }
    }

    #[test]
    fn a_command_whose_key_is_at_a_fixed_place_says_where() {
        for row in redline_spec::table::all() {
            let command = Command::of(row.id);
            if command.class == Class::Key {
                assert!(command.key > 0, "{}", row.full_name);
                assert!(
                    i32::from(command.arity.unsigned_abs()) > i32::from(command.key),
                    "{}",
                    row.full_name
                );
            }
        }
    }
}
