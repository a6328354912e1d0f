//! Settings for actions on calls beside answering them: faults, copies, rate limits. Must not know how.

use serde::{Deserialize, Serialize};

use super::Span;

/// Policy for a client that asks for more than its user may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Excess {
    /// Its requests wait until it may go on.
    #[default]
    Wait,
    /// They are errors until then.
    Refuse,
}

/// Something that goes wrong on purpose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Fault {
    /// With calls of these; none: of all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// With keys of which one begins so; empty: whatever the keys.
    pub key_prefix: String,
    /// With so many of a hundred, more than 0.
    pub percent: f64,
    /// They wait so long first.
    pub delay: Span,
    /// They are this error, and no server hears of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Their client is cut off.
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

/// Calls that are made on the servers of another pool as well, whatever becomes of them there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mirror {
    /// The pool that gets them.
    pub pool: String,
    /// Of clients of this pool; none: of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Those that write, or read, or both.
    #[serde(default)]
    pub calls: Mirrored,
    /// Those whose first key begins so; empty: whatever it is.
    #[serde(default)]
    pub key_prefix: String,
    /// So many of a hundred, more than 0.
    #[serde(default = "all")]
    pub percent: f64,
}

fn all() -> f64 {
    100.0
}

/// Which calls are mirrored.
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
