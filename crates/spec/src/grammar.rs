//! The argument grammar of a command, as COMMAND DOCS describes it. A description only: it parses nothing.

/// Kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// Any bytes.
    String,
    /// A signed integer of 64 bits.
    Integer,
    /// A floating-point number.
    Double,
    /// A key.
    Key {
        /// Index of its key spec in [`Row::keys`](crate::Row::keys).
        spec: u8,
    },
    /// A glob pattern.
    Pattern,
    /// A time since the epoch, in seconds or milliseconds.
    UnixTime,
    /// A word without a value.
    PureToken,
    /// Exactly one of the nested arguments.
    OneOf,
    /// All of the nested arguments, in order.
    Block,
}

impl ArgKind {
    /// Returns the name that COMMAND DOCS prints.
    pub const fn name(self) -> &'static str {
        match self {
            ArgKind::String => "string",
            ArgKind::Integer => "integer",
            ArgKind::Double => "double",
            ArgKind::Key { .. } => "key",
            ArgKind::Pattern => "pattern",
            ArgKind::UnixTime => "unix-time",
            ArgKind::PureToken => "pure-token",
            ArgKind::OneOf => "oneof",
            ArgKind::Block => "block",
        }
    }
}

/// Argument in a command's grammar.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Name of the argument.
    pub name: &'static str,
    /// Kind of the argument.
    pub kind: ArgKind,
    /// Word before the value, or that is the argument.
    pub token: Option<&'static str>,
    /// Text shown for the value, if it is not the name.
    display: Option<&'static str>,
    /// Version that introduced it, if it is not the command's own.
    pub since: Option<&'static str>,
    /// Version that deprecated it.
    pub deprecated_since: Option<&'static str>,
    /// True if it may be omitted.
    pub optional: bool,
    /// True if it may be repeated.
    pub multiple: bool,
    /// True if the token is repeated with it.
    pub multiple_token: bool,
    /// Key spec that it belongs to without being a key itself (SORT … BY).
    pub key_spec: Option<u8>,
    /// Arguments inside a [`ArgKind::OneOf`] or a [`ArgKind::Block`].
    pub args: &'static [Arg],
}

impl Arg {
    const fn new(name: &'static str, kind: ArgKind) -> Arg {
        Arg {
            name,
            kind,
            token: None,
            display: None,
            since: None,
            deprecated_since: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            key_spec: None,
            args: &[],
        }
    }

    /// Returns the text shown for the value; COMMAND DOCS prints it for every kind but `oneof` and `block`.
    pub const fn display_text(&self) -> Option<&'static str> {
        match (self.display, self.kind) {
            (Some(text), _) => Some(text),
            (None, ArgKind::OneOf | ArgKind::Block) => None,
            (None, _) => Some(self.name),
        }
    }

    /// Returns the key spec that finds this argument.
    pub const fn key_spec_index(&self) -> Option<u8> {
        match self.kind {
            ArgKind::Key { spec } => Some(spec),
            _ => self.key_spec,
        }
    }

    /// Returns true if the argument, or one inside, has this word.
    pub fn has_token(&self, token: &str) -> bool {
        self.token == Some(token) || self.args.iter().any(|arg| arg.has_token(token))
    }

    /// Appends the syntax of the argument: optional parts in brackets, choices separated by bars.
    pub(crate) fn write_syntax(&self, out: &mut String) {
        let choice = self.kind == ArgKind::OneOf;
        if self.optional {
            out.push('[');
        }
        match (self.token, self.kind) {
            (Some(token), ArgKind::PureToken) => out.push_str(token),
            (Some(token), _) => {
                out.push_str(token);
                out.push(' ');
            }
            (None, _) => {}
        }
        // An optional choice without a token is in brackets already.
        let angled = choice && (self.token.is_some() || self.multiple || !self.optional);
        self.write_value(angled, out);
        if self.multiple {
            out.push_str(" [");
            if let Some(token) = self.token.filter(|_| self.multiple_token) {
                out.push_str(token);
                out.push(' ');
            }
            self.write_value(angled, out);
            out.push_str(" ...]");
        }
        if self.optional {
            out.push(']');
        }
    }

    fn write_value(&self, angled: bool, out: &mut String) {
        if angled {
            out.push('<');
        }
        match self.kind {
            ArgKind::PureToken => {}
            ArgKind::OneOf | ArgKind::Block => {
                for (i, arg) in self.args.iter().enumerate() {
                    if i > 0 {
                        out.push_str(if self.kind == ArgKind::OneOf {
                            " | "
                        } else {
                            " "
                        });
                    }
                    arg.write_syntax(out);
                }
            }
            _ => out.push_str(self.display_text().unwrap_or(self.name)),
        }
        if angled {
            out.push('>');
        }
    }

    pub(crate) const fn optional(mut self) -> Arg {
        self.optional = true;
        self
    }

    pub(crate) const fn multiple(mut self) -> Arg {
        self.multiple = true;
        self
    }

    /// Lets the argument be repeated, each time with its token.
    pub(crate) const fn multiple_token(mut self) -> Arg {
        self.multiple = true;
        self.multiple_token = true;
        self
    }

    /// Marks the argument as one from which keys of a spec are made.
    pub(crate) const fn of_spec(mut self, spec: u8) -> Arg {
        self.key_spec = Some(spec);
        self
    }

    pub(crate) const fn token(mut self, token: &'static str) -> Arg {
        self.token = Some(token);
        self
    }

    pub(crate) const fn display(mut self, text: &'static str) -> Arg {
        self.display = Some(text);
        self
    }

    pub(crate) const fn since(mut self, version: &'static str) -> Arg {
        self.since = Some(version);
        self
    }

    pub(crate) const fn deprecated(mut self, version: &'static str) -> Arg {
        self.deprecated_since = Some(version);
        self
    }
}

/// Functions with which rows are written.
pub(crate) mod words {
    use super::{Arg, ArgKind};

    /// Returns a key that the row's first key spec finds.
    pub(crate) const fn key(name: &'static str) -> Arg {
        key_of_spec(name, 0)
    }

    /// Returns a key that another of the row's key specs finds.
    pub(crate) const fn key_of_spec(name: &'static str, spec: u8) -> Arg {
        Arg::new(name, ArgKind::Key { spec })
    }

    pub(crate) const fn string(name: &'static str) -> Arg {
        Arg::new(name, ArgKind::String)
    }

    pub(crate) const fn integer(name: &'static str) -> Arg {
        Arg::new(name, ArgKind::Integer)
    }

    pub(crate) const fn double(name: &'static str) -> Arg {
        Arg::new(name, ArgKind::Double)
    }

    pub(crate) const fn pattern(name: &'static str) -> Arg {
        Arg::new(name, ArgKind::Pattern)
    }

    pub(crate) const fn unix_time(name: &'static str) -> Arg {
        Arg::new(name, ArgKind::UnixTime)
    }

    /// Returns a word without a value.
    pub(crate) const fn word(name: &'static str, token: &'static str) -> Arg {
        Arg::new(name, ArgKind::PureToken).token(token)
    }

    pub(crate) const fn one_of(name: &'static str, args: &'static [Arg]) -> Arg {
        let mut arg = Arg::new(name, ArgKind::OneOf);
        arg.args = args;
        arg
    }

    pub(crate) const fn block(name: &'static str, args: &'static [Arg]) -> Arg {
        let mut arg = Arg::new(name, ArgKind::Block);
        arg.args = args;
        arg
    }
}
