//! The command table: one row says everything about a command. Rows only.
//!
//! Start in [`table`] for the rows (one file per command group), in [`id`] for the roll of commands and the
//! module that hosts each handler, and in [`Row`] for what a row says. Everything that a server, a proxy or a
//! load generator wants to know about a command is derived from its row: the lookup by name, the arity check,
//! what it locks, where its keys are, how it is routed and propagated, its ACL categories, and its documentation.
//!
//! What a call is told that comes to no handler is worded in [`refusal`], for server and proxy.
//!
//! This room must not know handlers, storage, sockets, or how a reply is rendered.
//!
//! The request path uses three functions, each a few nanoseconds: [`lookup()`] turns a name into a [`CommandId`],
//! [`gate()`] says in sixteen bytes what is checked before the handler runs, and [`keys()`] finds the keys.

#![forbid(unsafe_code)]

mod access;
mod category;
mod flags;
mod gate;
mod grammar;
pub mod id;
mod keys;
mod lookup;
mod nearest;
pub mod refusal;
mod row;
pub mod table;
mod unbuilt;

pub use access::Access;
pub use category::Categories;
pub use flags::Flags;
pub use gate::{Gate, KeyShape, Plain, data_key, gate, names_element, plain};
pub use grammar::{Arg, ArgKind};
pub use id::CommandId;
pub use keys::{
    Find, GetKeysError, InvalidKeys, KeyRange, KeyRef, KeySpec, Keys, VariableAccess, When,
    getkeys, keys, reachable_keys,
};
pub use lookup::{NAME_BYTES_MAX, Unresolved, lookup, lookup_subcommand, resolve};
pub use nearest::nearest;
pub use row::{
    ChannelSpec, Deprecation, Group, Plane, Propagate, REFERENCE, Routing, Row, Scope,
    is_after_reference,
};
pub use table::row;
pub use unbuilt::{UNBUILT, unbuilt};
