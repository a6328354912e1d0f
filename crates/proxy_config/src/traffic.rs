//! Settings for actions on calls beside answering them: faults, copies, rate limits. Must not know their implementation.

use serde::{Deserialize, Serialize};

use super::Span;

/// Policy for calls beyond a user's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Excess {
    /// They wait until they are within the limits.
    #[default]
    Wait,
    /// They are refused until then.
    Refuse,
}

/// An injected fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Fault {
    /// The affected commands; none: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Prefix of one of the call's keys; empty: any keys.
    pub key_prefix: String,
    /// Percentage of the calls, more than 0.
    pub percent: f64,
    /// Delay before anything else.
    pub delay: Span,
    /// The error that answers them, without any server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Their client's connection is closed.
    pub cut: bool,
}

impl Default for Fault {
    fn default() -> Fault {
        Fault {
            commands: Vec::new(),
            key_prefix: String::new(),
            percent: 100.0,
            delay: Span::default(),
            error: None,
            cut: false,
        }
    }
}

/// Calls that are made on the servers of another pool as well, whose replies are dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mirror {
    /// The pool that gets them.
    pub pool: String,
    /// The pool of the clients; none: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The mirrored calls: those that write, or read, or both.
    #[serde(default)]
    pub calls: Mirrored,
    /// Prefix of the first key; empty: any key.
    #[serde(default)]
    pub key_prefix: String,
    /// Percentage of the calls, more than 0.
    #[serde(default = "all")]
    pub percent: f64,
}

fn all() -> f64 {
    100.0
}

/// The kind of mirrored calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mirrored {
    /// Those that may write.
    #[default]
    Writes,
    /// Those that only read.
    Reads,
    /// Both.
    All,
}
