//! A configuration that was made of another program's file, and notes on what became of its lines. Must not know any
//! program's file.

use super::Config;

/// A converted configuration, and notes for the user.
#[derive(Debug)]
pub struct Converted {
    /// The configuration.
    pub config: Config,
    /// Notes on differences from the other program, by line.
    pub notes: Vec<Note>,
}

/// A note on a line of another program's file.
#[derive(Clone, Debug)]
pub struct Note {
    /// File, line and note.
    pub text: String,
    /// True if the proxy behaves otherwise than the other program would.
    pub differs: bool,
}

impl Note {
    /// Makes a note on what is written otherwise here, or not at all, and is the same in effect.
    pub fn same(text: String) -> Note {
        Note {
            text,
            differs: false,
        }
    }

    /// Makes a note on other behaviour.
    pub fn other(text: String) -> Note {
        Note {
            text,
            differs: true,
        }
    }
}
