//! Properties of a command that the request path checks before its handler runs, in sixteen bytes. Derived from the rows.

use crate::{
    Categories, CommandId, Find, Flags, Group, KeySpec, Plane, Propagate, Routing, Row, Scope,
    table, table::same,
};

/// Part of a row for the request path.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Flags for its effect and the conditions under which it may run.
    pub flags: Flags,
    /// Number of words in a call, all names included; negative: at least that many.
    pub arity: i16,
    /// Layout of its keys.
    pub keys: KeyShape,
    /// Position of the first key; 0: no key, or not in every call.
    pub first_key: u8,
    /// Position of the last key; negative: from the end of the call, -1 being the last argument.
    pub last_key: i8,
    /// Distance of one key to the next.
    pub key_step: u8,
    /// Plane that hosts its handler.
    pub plane: Plane,
    /// Scope of what its unit locks.
    pub scope: Scope,
    /// Form in which its effect reaches the journal.
    pub propagate: Propagate,
    /// Routing by a proxy or a cluster.
    pub routing: Routing,
    /// True if a second word names a subcommand: for every container, and for COMMAND.
    pub has_subcommands: bool,
    /// Largest number of words of a brief call, see [`Gate::is_brief`]; 0: no call is brief.
    brief_argc_max: u8,
}

/// Number of words above which a call is not brief, whatever its row says: its effort grows with them.
const BRIEF_ARGC_MAX: u8 = 32;

const _: () = assert!(size_of::<Gate>() <= 16, "four gates fit in a cache line");

/// Layout of the keys of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyShape {
    /// No keys.
    None,
    /// Exactly one key, at `first_key`.
    One,
    /// Keys from `first_key` to `last_key` in steps of `key_step`.
    Range,
    /// Keys by the row's key specs: see [`keys`](crate::keys()).
    Specs,
}

impl Gate {
    /// Returns true if a call of that many words, name included, has neither too few nor too many.
    #[inline]
    pub const fn arity_allows(&self, argc: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 {
            argc >= arity
        } else {
            argc == arity
        }
    }

    /// Returns true if a call of that many words is refused only when it runs, if at all: Redis does not know the number of
    /// words of a module's commands, so it queues them in a transaction, and reports that a user may make the call.
    #[inline]
    pub const fn lets_pass(&self, argc: usize) -> bool {
        self.arity_allows(argc) || self.flags.has(Flags::MODULE)
    }

    /// Returns true if a call of that many words takes about as long as the lookup of a key: its row is `fast`, or
    /// constant in effort, as SET, and it neither names many things nor gives their number (as `LPOP key count`). Such
    /// calls are timed in runs, not one by one.
    #[inline]
    pub const fn is_brief(&self, argc: usize) -> bool {
        argc <= self.brief_argc_max as usize
    }

    pub(crate) const fn of(row: &Row) -> Gate {
        let LegacyRange {
            first,
            last,
            step,
            complete,
        } = LegacyRange::of(row.keys);
        let keys = match (row.keys.len(), complete) {
            (0, _) => KeyShape::None,
            (_, false) => KeyShape::Specs,
            (_, true) if last == first as i8 => KeyShape::One,
            (_, true) => KeyShape::Range,
        };
        Gate {
            flags: row.flags,
            arity: row.arity,
            keys,
            first_key: first,
            last_key: last,
            key_step: step,
            plane: row.plane,
            scope: row.scope,
            propagate: row.propagate,
            routing: row.routing,
            has_subcommands: false,
            brief_argc_max: brief_argc_max(row),
        }
    }
}

const fn brief_argc_max(row: &Row) -> u8 {
    if !row.flags.has(Flags::FAST) && !is_constant(row.complexity) {
        return 0;
    }
    let mut i = 0;
    while i < row.args.len() {
        let arg = row.args[i];
        if arg.optional && same(arg.name.as_bytes(), b"count") {
            return row.arity.unsigned_abs() as u8;
        }
        i += 1;
    }
    BRIEF_ARGC_MAX
}

/// Properties of a command for the shortest path to a handler: few commands take it, but most calls.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    argc_min: u8,
    argc_max: u8,
    /// Position of its key.
    pub key: u8,
    /// True if [`Flags::WRITE`] is among its flags.
    pub writes: bool,
    /// True if [`Flags::DENYOOM`] is among its flags.
    pub needs_memory: bool,
}

impl Plain {
    /// Returns true if a call of that many words, name included, is *plain*: there are neither too few nor too many, it
    /// uses one key, at a fixed position, needs nothing but that key's stripe, and is [brief](Gate::is_brief).
    #[inline]
    pub const fn allows(&self, argc: usize) -> bool {
        argc >= self.argc_min as usize && argc <= self.argc_max as usize
    }

    const fn of(gate: &Gate) -> Plain {
        let possible = matches!(gate.plane, Plane::Data)
            && matches!(gate.keys, KeyShape::One)
            && matches!(gate.scope, Scope::Keys);
        let arity = gate.arity.unsigned_abs() as u8;
        let most = gate.brief_argc_max;
        let (argc_min, argc_max) = match (possible, gate.arity > 0) {
            (false, _) => (1, 0),
            (true, true) if arity > most => (1, 0),
            (true, true) => (arity, arity),
            (true, false) => (arity, most),
        };
        Plain {
            argc_min,
            argc_max,
            key: gate.first_key,
            writes: gate.flags.has(Flags::WRITE),
            needs_memory: gate.flags.has(Flags::DENYOOM),
        }
    }
}

static PLAIN: [Plain; CommandId::COUNT] = {
    let mut plain = [Plain::of(&GATES[0]); CommandId::COUNT];
    let mut i = 0;
    while i < CommandId::COUNT {
        plain[i] = Plain::of(&GATES[i]);
        i += 1;
    }
    plain
};

/// Returns the properties that decide which calls of a command are plain.
#[inline]
pub fn plain(id: CommandId) -> Plain {
    PLAIN[id as usize]
}

static DATA_KEYS: [u8; CommandId::COUNT] = {
    let mut keys = [0; CommandId::COUNT];
    let mut i = 0;
    while i < CommandId::COUNT {
        if matches!(GATES[i].plane, Plane::Data) {
            keys[i] = GATES[i].first_key;
        }
        i += 1;
    }
    keys
};

/// Returns the position of the first key of a command of the data plane; 0: there is none, or it is not in every call,
/// or the command is of another plane. For prefetching, at the cost of one load.
#[inline]
pub fn data_key(id: CommandId) -> usize {
    usize::from(DATA_KEYS[id as usize])
}

static NAMES_ELEMENT: [bool; CommandId::COUNT] = {
    let mut names = [false; CommandId::COUNT];
    let mut i = 0;
    while i < CommandId::COUNT {
        let row = &table::ROWS[i];
        names[i] = (matches!(row.group, Group::Hash | Group::Set)
            || row.acl.has(Categories::TAIRHASH))
            && matches!(GATES[i].keys, KeyShape::One)
            && GATES[i].first_key == 1
            && GATES[i].arity.unsigned_abs() > 2;
        i += 1;
    }
    names
};

/// Returns true if the word after the key is, for most such commands, an element that the collection is searched for
/// (the field of HSET, the member of SADD). For prefetching: a wrong result costs a useless access.
#[inline]
pub fn names_element(id: CommandId) -> bool {
    NAMES_ELEMENT[id as usize]
}

/// Returns true if a complexity means that the effort does not depend on the data.
const fn is_constant(complexity: &str) -> bool {
    let text = complexity.as_bytes();
    text.len() >= 4 && text[0] == b'O' && text[1] == b'(' && text[2] == b'1' && text[3] == b')'
}

/// Key specs in the form of the older description: a first key, a last key and a step.
pub(crate) struct LegacyRange {
    first: u8,
    last: i8,
    step: u8,
    /// True if it describes all keys; otherwise the command has the flag `movablekeys`.
    pub(crate) complete: bool,
}

impl LegacyRange {
    /// Returns the range of the specs. Ranges that continue each other become one; all others are left out.
    pub(crate) const fn of(specs: &[KeySpec]) -> LegacyRange {
        let mut seen = LegacyRange {
            first: 0,
            last: 0,
            step: 0,
            complete: true,
        };
        let mut i = 0;
        while i < specs.len() {
            let begin = specs[i].begin;
            match specs[i].find {
                Find::KeyNum
                | Find::PairNum
                | Find::Unknown
                | Find::Behind { .. }
                | Find::OneBehind { .. }
                | Find::FirstHalf { .. }
                | Find::RestBehind { .. } => {
                    seen.complete = false;
                }
                Find::OneUnless { .. } => {
                    seen = LegacyRange {
                        first: begin,
                        last: begin as i8,
                        step: 1,
                        complete: false,
                    };
                }
                Find::Range { last, step } => {
                    let last = if last >= 0 { begin as i8 + last } else { last };
                    if seen.step == 0 {
                        seen = LegacyRange {
                            first: begin,
                            last,
                            step,
                            complete: seen.complete,
                        };
                    } else if seen.step == step
                        && seen.last >= 0
                        && begin as i8 == seen.last + step as i8
                    {
                        seen.last = last;
                    } else {
                        seen.complete = false;
                    }
                }
            }
            i += 1;
        }
        seen
    }
}

static GATES: [Gate; CommandId::COUNT] = {
    let mut gates = [Gate::of(&table::ROWS[0]); CommandId::COUNT];
    let mut i = 0;
    while i < CommandId::COUNT {
        let has_subcommands = gates[i].has_subcommands;
        gates[i] = Gate {
            has_subcommands,
            ..Gate::of(&table::ROWS[i])
        };
        if let Some(container) = table::ROWS[i].container {
            gates[container as usize].has_subcommands = true;
        }
        i += 1;
    }
    gates
};

/// Returns the part of a command's row for the request path.
#[inline]
pub fn gate(id: CommandId) -> Gate {
    GATES[id as usize]
}
