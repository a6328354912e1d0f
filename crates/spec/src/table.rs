//! The rows, one file per command group, and their assembly into one table.
//!
//! A row has the facts that cannot be derived. The others are added here at compile time, by one rule each: the
//! container of a subcommand, the implied ACL categories, the flag `movablekeys`, and the usual scope, propagation and
//! routing. The table has exactly one row for every [`CommandId`], or it does not compile.

use crate::gate::LegacyRange;
use crate::keys::SPECS_MAX;
use crate::{
    Access, Categories, CommandId, Find, Flags, KeySpec, Plane, Propagate, Routing, Row, Scope,
};

mod acl;
mod bitmap;
mod bloom;
mod cluster;
mod connection;
mod count_min;
mod cuckoo;
mod ex_hash;
mod ex_string;
mod ex_zset;
mod generic;
mod geo;
mod gis;
mod hash;
mod hyperloglog;
mod json;
mod list;
mod pubsub;
mod roaring_bitmap;
mod scripting;
mod server;
mod set;
mod sorted_set;
mod stream;
mod string;
mod t_digest;
mod time_series;
mod timelines;
mod top_k;
mod transactions;
mod vector_set;

/// Returns the row of a command.
#[inline]
pub fn row(id: CommandId) -> &'static Row {
    &ROWS[id as usize]
}

/// Returns every row, in the order of [`CommandId`].
pub fn all() -> &'static [Row] {
    &ROWS
}

/// Returns the subcommands of a container.
pub fn subcommands(container: CommandId) -> impl Iterator<Item = &'static Row> {
    ROWS.iter()
        .filter(move |row| row.container == Some(container))
}

/// Returns the lines of a container's HELP: the syntax of each subcommand, and indented below, its summary.
pub fn help_lines(container: CommandId) -> Vec<String> {
    let name = row(container).name.to_ascii_uppercase();
    let mut lines = vec![format!(
        "{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    )];
    for subcommand in subcommands(container).filter(|row| row.name != "help") {
        let syntax = subcommand.syntax();
        lines.push(syntax[name.len() + 1..].to_owned());
        lines.push(format!("    {}", subcommand.summary));
    }
    lines.push("HELP".to_owned());
    lines.push("    Print this text.".to_owned());
    lines
}

pub(crate) static ROWS: [Row; CommandId::COUNT] = assemble(&[
    acl::ROWS,
    bitmap::ROWS,
    bloom::ROWS,
    cluster::ROWS,
    connection::ROWS,
    ex_hash::ROWS,
    ex_string::ROWS,
    ex_zset::ROWS,
    count_min::ROWS,
    cuckoo::ROWS,
    generic::ROWS,
    geo::ROWS,
    hash::ROWS,
    hyperloglog::ROWS,
    json::ROWS,
    list::ROWS,
    pubsub::ROWS,
    scripting::ROWS,
    server::ROWS,
    set::ROWS,
    sorted_set::ROWS,
    stream::ROWS,
    string::ROWS,
    t_digest::ROWS,
    top_k::ROWS,
    time_series::ROWS,
    transactions::ROWS,
    vector_set::ROWS,
    roaring_bitmap::ROWS,
    gis::ROWS,
    timelines::ROWS,
]);

/// Writes the rows of one group. The fields have one order, and optional ones may be omitted.
macro_rules! rows {
    ($group:ident: $(
        $id:ident = $name:literal {
            summary: $summary:literal,
            $(complexity: $complexity:literal,)?
            since: $since:literal,
            $(history: [$($history:expr),+ $(,)?],)?
            $(deprecated: { since: $deprecated:literal, replaced_by: $replaced_by:literal },)?
            arity: $arity:literal,
            $(flags: [$($flag:ident),+],)?
            $(acl: [$($category:ident),+],)?
            $(tips: [$($tip:literal),+ $(,)?],)?
            $(keys: [$($key:expr),+ $(,)?],)?
            $(channels: $channels:expr,)?
            $(args: [$($arg:expr),+ $(,)?],)?
            $(scope: $scope:ident,)?
            $(propagate: $propagate:ident,)?
            $(routing: $routing:ident,)?
        }
    )+) => {
        pub(super) const ROWS: &[crate::table::Source] = &[$(
            crate::table::Source {
                row: crate::Row {
                    id: crate::CommandId::$id,
                    full_name: $name,
                    group: crate::Group::$group,
                    since: $since,
                    summary: $summary,
                    $(complexity: $complexity,)?
                    $(history: &[$($history),+],)?
                    $(deprecated: Some(crate::Deprecation { since: $deprecated, replaced_by: $replaced_by }),)?
                    arity: $arity,
                    $(flags: crate::Flags::NONE$(.with(crate::Flags::$flag))+,)?
                    $(acl: crate::Categories::NONE$(.with(crate::Categories::$category))+,)?
                    $(tips: &[$($tip),+],)?
                    $(keys: &[$($key),+],)?
                    $(channels: Some($channels),)?
                    $(args: &[$($arg),+],)?
                    ..crate::table::BLANK
                },
                scope: crate::table::stated!($(crate::Scope::$scope)?),
                propagate: crate::table::stated!($(crate::Propagate::$propagate)?),
                routing: crate::table::stated!($(crate::Routing::$routing)?),
            },
        )+];
    };
}
use rows;

/// Wraps a field of a row in `Some`; `None` if it is omitted.
macro_rules! stated {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}
use stated;

/// A row as written: omitted fields are not derived yet.
#[derive(Clone, Copy)]
struct Source {
    row: Row,
    scope: Option<Scope>,
    propagate: Option<Propagate>,
    routing: Option<Routing>,
}

const BLANK: Row = Row {
    id: CommandId::ALL[0],
    name: "",
    full_name: "",
    container: None,
    group: crate::Group::Generic,
    since: "",
    summary: "",
    complexity: "",
    history: &[],
    deprecated: None,
    arity: 0,
    flags: Flags::NONE,
    acl: Categories::NONE,
    tips: &[],
    keys: &[],
    channels: None,
    args: &[],
    plane: Plane::Data,
    scope: Scope::None,
    propagate: Propagate::None,
    routing: Routing::AnyNode,
};

const fn assemble(groups: &[&[Source]]) -> [Row; CommandId::COUNT] {
    let mut rows = [BLANK; CommandId::COUNT];
    let mut group = 0;
    while group < groups.len() {
        let mut i = 0;
        while i < groups[group].len() {
            let source = &groups[group][i];
            let at = source.row.id as usize;
            assert!(rows[at].full_name.is_empty(), "two rows for one command");
            rows[at] = derived(source);
            i += 1;
        }
        group += 1;
    }
    let mut at = 0;
    while at < rows.len() {
        assert!(
            !rows[at].full_name.is_empty(),
            "a command of the roll has no row"
        );
        if let Some((container, name)) = split(rows[at].full_name) {
            rows[at].name = name;
            rows[at].container = Some(find(&rows, container));
        }
        at += 1;
    }
    rows
}

const fn derived(source: &Source) -> Row {
    let mut row = source.row;
    assert!(
        row.keys.len() <= SPECS_MAX,
        "a row has more key specs than Keys holds: raise SPECS_MAX"
    );
    row.name = row.full_name;
    row.plane = row.id.plane();
    if !LegacyRange::of(row.keys).complete {
        row.flags = row.flags.with(Flags::MOVABLEKEYS);
    }
    row.acl = row.acl.derived(row.flags);
    row.scope = match source.scope {
        Some(scope) => scope,
        None if row.keys.is_empty() => Scope::None,
        None => Scope::Keys,
    };
    row.propagate = match source.propagate {
        Some(propagate) => propagate,
        None if row.flags.has(Flags::WRITE) => Propagate::Verbatim,
        None => Propagate::None,
    };
    row.routing = match source.routing {
        Some(routing) => routing,
        None => usual_routing(&row),
    };
    row
}

/// Returns the usual routing of such a command: by its keys, or by the policy in a tip for clients. A command on the
/// session is not routed, whatever the tip: the server that holds the connection replies for all nodes.
const fn usual_routing(row: &Row) -> Routing {
    if has_tip(row, "request_policy:multi_shard") {
        return Routing::MultiSplit;
    }
    match (row.keys, row.plane) {
        ([], Plane::Session) => Routing::Connection,
        ([], _) if has_tip(row, "request_policy:all_shards") => Routing::AllNodes,
        ([], _) if has_tip(row, "request_policy:all_nodes") => Routing::AllNodes,
        ([], _) => Routing::AnyNode,
        (
            [
                KeySpec {
                    find: Find::Range { last: 0, .. },
                    ..
                },
            ],
            _,
        ) => Routing::SingleKey,
        _ => Routing::MultiAtomic,
    }
}

const fn has_tip(row: &Row, tip: &str) -> bool {
    let mut i = 0;
    while i < row.tips.len() {
        if same(row.tips[i].as_bytes(), tip.as_bytes()) {
            return true;
        }
        i += 1;
    }
    false
}

/// Splits a subcommand's full name into its two words.
const fn split(full_name: &str) -> Option<(&str, &str)> {
    let mut bar = 0;
    while bar < full_name.len() {
        if full_name.as_bytes()[bar] == b'|' {
            let (container, name) = full_name.split_at(bar);
            return Some((container, name.split_at(1).1));
        }
        bar += 1;
    }
    None
}

const fn find(rows: &[Row], full_name: &str) -> CommandId {
    let mut i = 0;
    while i < rows.len() {
        if same(rows[i].full_name.as_bytes(), full_name.as_bytes()) {
            return rows[i].id;
        }
        i += 1;
    }
    panic!("a subcommand's container has no row");
}

pub(crate) const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Names with which the rows of every group are written.
mod prelude {
    pub(super) use super::{access::*, channels::*, rows};
    pub(super) use crate::grammar::words::*;
    pub(super) use crate::keys::{KeySpec, VariableAccess, When};
}

/// Channels that rows name.
mod channels {
    use crate::ChannelSpec;

    /// First argument.
    pub(in crate::table) const CHANNEL: ChannelSpec = ChannelSpec {
        first: 1,
        to_the_end: false,
        patterns: false,
    };
    /// All arguments.
    pub(in crate::table) const CHANNELS: ChannelSpec = ChannelSpec {
        to_the_end: true,
        ..CHANNEL
    };
    /// All arguments, as patterns.
    pub(in crate::table) const CHANNEL_PATTERNS: ChannelSpec = ChannelSpec {
        patterns: true,
        ..CHANNELS
    };
}

/// Uses of a key that rows name.
mod access {
    use super::Access;

    pub(in crate::table) const READ: Access = Access::RO.with(Access::ACCESS);
    /// Returns a property of the key, but nothing of its data.
    pub(in crate::table) const INSPECT: Access = Access::RO;
    /// Channels of shards.
    pub(in crate::table) const NOT_KEY: Access = Access::NOT_KEY;
    pub(in crate::table) const OVERWRITE: Access = Access::OW.with(Access::UPDATE);
    pub(in crate::table) const CREATE: Access = Access::OW.with(Access::INSERT);
    pub(in crate::table) const INSERT: Access = Access::RW.with(Access::INSERT);
    pub(in crate::table) const UPDATE: Access = Access::RW.with(Access::UPDATE);
    pub(in crate::table) const DELETE: Access = Access::RW.with(Access::DELETE);
    pub(in crate::table) const DELETE_UPDATE: Access = DELETE.with(Access::UPDATE);
    pub(in crate::table) const REMOVE: Access = Access::RM.with(Access::DELETE);
    pub(in crate::table) const READ_UPDATE: Access = UPDATE.with(Access::ACCESS);
    pub(in crate::table) const READ_INSERT: Access = INSERT.with(Access::ACCESS);
    /// Reads, and may store its result in the value.
    pub(in crate::table) const READ_REMEMBER: Access = Access::RW.with(Access::ACCESS);
    pub(in crate::table) const READ_DELETE: Access = DELETE.with(Access::ACCESS);
    /// The same of keys that clients cannot all find by the spec.
    pub(in crate::table) const READ_DELETE_SOME: Access = READ_DELETE.with(Access::INCOMPLETE);
}
