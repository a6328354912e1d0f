//! Contents of a row. Knows nothing of the lookup, the execution or the output of a command.

use crate::{Arg, Categories, CommandId, Flags, KeySpec};

/// All facts about one command, or about one subcommand of a container.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Number of the command.
    pub id: CommandId,
    /// Name in a call, in lower case unless Redis has it in a module: `get`; for a subcommand the second word:
    /// `rewrite`.
    pub name: &'static str,
    /// Name in lists: `get`, `config|rewrite`, `VADD`.
    pub full_name: &'static str,
    /// Container, for a subcommand.
    pub container: Option<CommandId>,
    /// Group in the documentation.
    pub group: Group,
    /// Redis version that introduced it.
    pub since: &'static str,
    /// Summary of its effect, in one line.
    pub summary: &'static str,
    /// Time complexity; empty if none can be given.
    pub complexity: &'static str,
    /// Version and change, oldest first.
    pub history: &'static [(&'static str, &'static str)],
    /// Set if a newer command is recommended instead.
    pub deprecated: Option<Deprecation>,
    /// Number of words in a call, its name (for a subcommand: both names) included; negative: at least that many.
    pub arity: i16,
    /// Flags for its effect and the conditions under which it may run.
    pub flags: Flags,
    /// ACL categories, those that the flags imply included.
    pub acl: Categories,
    /// Hints for clients and proxies, in the form of COMMAND INFO.
    pub tips: &'static [&'static str],
    /// Positions of its keys.
    pub keys: &'static [KeySpec],
    /// Arguments that are channels it publishes to or subscribes to. (Leaving a channel needs no permission, so
    /// commands that unsubscribe have none.)
    pub channels: Option<ChannelSpec>,
    /// Grammar of its arguments.
    pub args: &'static [Arg],
    /// Plane that hosts its handler.
    pub plane: Plane,
    /// Scope of what its unit locks.
    pub scope: Scope,
    /// Form in which its effect reaches the journal.
    pub propagate: Propagate,
    /// Routing by a proxy or a cluster.
    pub routing: Routing,
}

/// The Redis release whose replies are authoritative, and with which the rows are compared.
pub const REFERENCE: &str = "8.2.3";

/// Returns true if a version is above [`REFERENCE`]: its additions are not in the reference. (Additions of Valkey alone
/// have Valkey's version, which is always above.)
pub fn is_after_reference(since: &str) -> bool {
    is_after(since, REFERENCE)
}

/// Returns true if a version is above another one: what came with the first is not in the second.
pub fn is_after(since: &str, version: &str) -> bool {
    let numbers = |version: &str| -> Vec<u32> {
        version
            .split('.')
            .filter_map(|number| number.parse().ok())
            .collect()
    };
    numbers(since) > numbers(version)
}

impl Row {
    /// Returns the flags that COMMAND DOCS prints.
    pub fn doc_flags(&self) -> impl Iterator<Item = &'static str> {
        let deprecated = self.deprecated.map(|_| "deprecated");
        let syscmd = self.flags.has(Flags::SYSCMD).then_some("syscmd");
        deprecated.into_iter().chain(syscmd)
    }

    /// Returns the syntax of a call: `GETEX key [EX seconds | PX milliseconds | …]`.
    pub fn syntax(&self) -> String {
        let mut text = self.full_name.replace('|', " ").to_ascii_uppercase();
        for arg in self.args {
            text.push(' ');
            arg.write_syntax(&mut text);
        }
        text
    }
}

/// Positions of the channels of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// Position of the first one.
    pub first: u8,
    /// True for all arguments from there on, not that one alone.
    pub to_the_end: bool,
    /// True if they are patterns of channels.
    pub patterns: bool,
}

impl ChannelSpec {
    /// Returns the positions in a call of `argc` words.
    pub fn positions(self, argc: usize) -> std::ops::Range<usize> {
        let first = usize::from(self.first).min(argc);
        let end = if self.to_the_end { argc } else { first + 1 };
        first..end.min(argc)
    }
}

/// Plane that hosts the handler of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Plane {
    /// Works on keys only: hosted by `commands`.
    Data,
    /// Works on the client's session: hosted by `engine`.
    Session,
    /// Works on the process: hosted by `server`.
    Admin,
    /// Only a first word: has subcommands and no handler of its own.
    Container,
}

/// Scope of what a command's unit locks while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Scope {
    /// Locks nothing.
    None,
    /// Locks nothing when it runs alone, since counters hold the reply; all stripes inside EXEC or a script.
    Counters,
    /// Locks the keys among its arguments.
    Keys,
    /// Locks the keys among its arguments, and keys that are known only during the run or from the session.
    KeysPlus,
    /// Locks one stripe at a time; all stripes inside EXEC or a script.
    OneStripe,
    /// Locks all stripes.
    All,
}

impl Scope {
    /// Returns the scope that the command locks when it runs inside EXEC or a script, where stripes are taken once for
    /// the whole unit.
    #[must_use]
    pub const fn inside_unit(self) -> Scope {
        match self {
            Scope::Counters | Scope::OneStripe => Scope::All,
            other => other,
        }
    }
}

/// Form in which a command's effect is written to the journal, and so reaches replicas and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Propagate {
    /// No effect on the data.
    None,
    /// The call itself.
    Verbatim,
    /// The outcome (`SET … PXAT`, `SREM` for SPOP): running the call again could give another result, or a simpler
    /// command has the same effect.
    Effect,
}

/// Routing of a command when the data is spread over several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Routing {
    /// To the node of its one key.
    SingleKey,
    /// Several keys; may be split by key (or by key and value), and the replies merged.
    MultiSplit,
    /// Several keys, which must be on one node.
    MultiAtomic,
    /// To every node; the replies are merged.
    AllNodes,
    /// From node to node, by the cursor among its arguments.
    Cursor,
    /// To any node: all replies are equally good.
    AnyNode,
    /// Concerns the client's connection: the server that holds that connection replies.
    Connection,
}

/// Deprecation of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deprecation {
    /// Version that deprecated it.
    pub since: &'static str,
    /// Command to use instead.
    pub replaced_by: &'static str,
}

/// Group of a command in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // a variant is its group
pub enum Group {
    String,
    Bitmap,
    Hyperloglog,
    Geo,
    Generic,
    List,
    Hash,
    Set,
    SortedSet,
    Stream,
    Transactions,
    Pubsub,
    Connection,
    Cluster,
    Scripting,
    Server,
    /// Vector sets, which Redis has in a module.
    Module,
}

impl Group {
    /// Returns the name that COMMAND DOCS prints.
    pub const fn name(self) -> &'static str {
        match self {
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::Hyperloglog => "hyperloglog",
            Group::Geo => "geo",
            Group::Generic => "generic",
            Group::List => "list",
            Group::Hash => "hash",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Stream => "stream",
            Group::Transactions => "transactions",
            Group::Pubsub => "pubsub",
            Group::Connection => "connection",
            Group::Cluster => "cluster",
            Group::Scripting => "scripting",
            Group::Server => "server",
            Group::Module => "module",
        }
    }
}
