//! The command table: one row holds every fact about a command. Rows only.
//!
//! Start in [`table`] for the rows (one file per command group), in [`id`] for the list of commands and the module of
//! each handler, and in [`Row`] for the contents of a row. Every property of a command in the server, the proxy or the
//! load generator is derived from its row: the lookup by name, the arity check, the locks, the positions of its keys,
//! routing and propagation, its ACL categories, and its documentation.
//!
//! [`refusal`] has the error texts for calls that reach no handler, for server and proxy.
//!
//! This crate must not know handlers, storage, sockets, or how a reply is rendered.
//!
//! The request path uses three functions, each a few nanoseconds: [`lookup()`] turns a name into a [`CommandId`], [`gate()`]
//! returns in sixteen bytes the properties that are checked before the handler runs, and [`keys()`] finds the keys.

#![forbid(unsafe_code)]

mod access;
mod category;
mod flags;
mod gate;
mod grammar;
pub mod id;
mod keys;
mod lookup;
mod module;
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
    getkeys, keys, reachable_keys, routed_keys,
};
pub use lookup::{NAME_BYTES_MAX, Unresolved, lookup, lookup_subcommand, resolve};
pub use module::Module;
pub use nearest::nearest;
pub use row::{
    ChannelSpec, Deprecation, Group, Plane, Propagate, REFERENCE, Routing, Row, Scope, is_after,
    is_after_reference,
};
pub use table::row;
pub use unbuilt::{UNBUILT, unbuilt};
