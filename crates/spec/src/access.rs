//! Use of a key by a command: its effect on the key as a whole, and on the data inside.

/// A set of key access flags, for key specs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u16);

macro_rules! access {
    ($( $(#[doc = $doc:literal])+ $name:ident = $bit:literal, $wire:literal; )*) => {
        impl Access {
            $( $(#[doc = $doc])+ pub const $name: Access = Access(1 << $bit); )*

            /// Every flag with its name, in the order of COMMAND INFO.
            const WIRE: &'static [(Access, &'static str)] = &[$((Access::$name, $wire),)*];
        }
    };
}

access! {
    /// Reads the key.
    RO = 0, "RO";
    /// Reads and changes the key.
    RW = 1, "RW";
    /// Overwrites the key without reading it.
    OW = 2, "OW";
    /// Removes the key.
    RM = 3, "RM";
    /// Returns, copies or otherwise uses the data.
    ACCESS = 4, "access";
    /// Changes existing data.
    UPDATE = 5, "update";
    /// Adds data only.
    INSERT = 6, "insert";
    /// Deletes data.
    DELETE = 7, "delete";
    /// No key, though in the position of one: a channel that is routed like a key.
    NOT_KEY = 9, "not_key";
    /// Clients cannot find all keys by the spec.
    INCOMPLETE = 10, "incomplete";
    /// The arguments decide which of the flags apply.
    VARIABLE_FLAGS = 8, "variable_flags";
}

impl Access {
    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    /// Returns the set without the flags of `other`.
    #[must_use]
    pub const fn without(self, other: Access) -> Access {
        Access(self.0 & !other.0)
    }

    /// Returns true if every flag of `other` is set.
    #[inline]
    pub const fn has(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if the key may be changed or removed.
    #[inline]
    pub const fn writes(self) -> bool {
        self.0 & (Access::RW.0 | Access::OW.0 | Access::RM.0) != 0
    }

    /// Returns the names that COMMAND INFO prints, in its order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Access::WIRE
            .iter()
            .filter(move |(flag, _)| self.has(*flag))
            .map(|(_, name)| *name)
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
