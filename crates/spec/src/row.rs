//! Contents of a row. Knows nothing of how a command is looked up, run or rendered.

use crate::{Arg, Categories, CommandId, Flags, KeySpec};

/// Everything about one command, or about one subcommand of a container.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its number.
    pub id: CommandId,
    /// The name with which it is called, in lower case unless Redis brings it in a module: `get`; for a subcommand the
    /// second word: `rewrite`.
    pub name: &'static str,
    /// The name under which it is listed: `get`, `config|rewrite`, `VADD`.
    pub full_name: &'static str,
    /// The command whose subcommand it is.
    pub container: Option<CommandId>,
    /// The family it is documented in.
    pub group: Group,
    /// The Redis version that brought it.
    pub since: &'static str,
    /// Summary of what it does, in one line.
    pub summary: &'static str,
    /// How its time grows; empty where nothing sensible can be said.
    pub complexity: &'static str,
    /// Version and change, oldest first.
    pub history: &'static [(&'static str, &'static str)],
    /// Set where a newer command is advised instead.
    pub deprecated: Option<Deprecation>,
    /// How many words a call has, its name (for a subcommand: both names) included; negative: at least that many.
    pub arity: i16,
    /// Flags for what it does and when it may run.
    pub flags: Flags,
    /// Its ACL categories, those that the flags imply included.
    pub acl: Categories,
    /// Hints for clients and proxies, as COMMAND INFO prints them.
    pub tips: &'static [&'static str],
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// Which of its arguments are channels that it publishes to or subscribes to. (To leave a channel is nobody's
    /// business, so those that unsubscribe state none.)
    pub channels: Option<ChannelSpec>,
    /// The grammar of its arguments.
    pub args: &'static [Arg],
    /// Plane that hosts its handler.
    pub plane: Plane,
    /// Scope of what its unit locks.
    pub scope: Scope,
    /// How its effect reaches the journal.
    pub propagate: Propagate,
    /// How a proxy or a cluster routes it.
    pub routing: Routing,
}

/// The Redis release that decides what a command answers, and that the rows are compared with.
pub const REFERENCE: &str = "8.2.3";

/// Returns true if a version is above [`REFERENCE`]: what came with it is not there to be compared with. (What only Valkey
/// has is named by Valkey's version, which is always above.)
pub fn is_after_reference(since: &str) -> bool {
    let numbers = |version: &str| -> Vec<u32> {
        version
            .split('.')
            .filter_map(|number| number.parse().ok())
            .collect()
    };
    numbers(since) > numbers(REFERENCE)
}

impl Row {
    /// The flags that COMMAND DOCS prints.
    pub fn doc_flags(&self) -> impl Iterator<Item = &'static str> {
        let deprecated = self.deprecated.map(|_| "deprecated");
        let syscmd = self.flags.has(Flags::SYSCMD).then_some("syscmd");
        deprecated.into_iter().chain(syscmd)
    }

    /// How a call is written: `GETEX key [EX seconds | PX milliseconds | …]`.
    pub fn syntax(&self) -> String {
        let mut text = self.full_name.replace('|', " ").to_ascii_uppercase();
        for arg in self.args {
            text.push(' ');
            arg.write_syntax(&mut text);
        }
        text
    }
}

/// Where the channels of a call are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// The first one's position.
    pub first: u8,
    /// All arguments from there on, not that one alone.
    pub to_the_end: bool,
    /// They are patterns of channels.
    pub patterns: bool,
}

impl ChannelSpec {
    /// The positions in a call of `argc` words.
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
    /// Only a first word: it has subcommands and no handler of its own.
    Container,
}

/// Scope of what a command's unit locks while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Scope {
    /// Nothing.
    None,
    /// Nothing when it stands alone, since counters answer it; everything inside EXEC or a script.
    Counters,
    /// The keys among its arguments.
    Keys,
    /// The keys among its arguments, and keys that only the run (or the session) knows.
    KeysPlus,
    /// One stripe at a time; everything inside EXEC or a script.
    OneStripe,
    /// Everything.
    All,
}

impl Scope {
    /// Returns the scope that the command locks when it runs inside EXEC or a script, where stripes are taken once and for
    /// the whole unit.
    #[must_use]
    pub const fn inside_unit(self) -> Scope {
        match self {
            Scope::Counters | Scope::OneStripe => Scope::All,
            other => other,
        }
    }
}

/// How a command's effect is written to the journal, and so reaches replicas and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Propagate {
    /// It has no effect on the data.
    None,
    /// As it was called.
    Verbatim,
    /// As what came of it (`SET … PXAT`, `SREM` for SPOP): running the call again could give another result, or a
    /// simpler command says the same.
    Effect,
}

/// Where a command goes when the data is spread over several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Routing {
    /// To the node of its one key.
    SingleKey,
    /// Several keys; may be cut by key (or by key and value), and the replies merged.
    MultiSplit,
    /// Several keys, which must live on one node.
    MultiAtomic,
    /// To every node, and the replies merged.
    AllNodes,
    /// From node to node, as the cursor among its arguments says.
    Cursor,
    /// To any node: all give an equally good answer.
    AnyNode,
    /// Concerns the client's connection: whoever holds that connection answers.
    Connection,
}

/// Advice against a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deprecation {
    /// The version that gave the advice.
    pub since: &'static str,
    /// Replacement to use instead.
    pub replaced_by: &'static str,
}

/// The family a command is documented in.
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
    /// Vector sets: what Redis brings in a module.
    Module,
}

impl Group {
    /// The name that COMMAND DOCS prints.
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
