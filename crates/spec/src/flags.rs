//! Command flags: a command's effect and the conditions under which it may run. Knows their names on the wire, not the
//! code that checks them.

/// A set of command flags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u32);

macro_rules! flags {
    ($( $(#[doc = $doc:literal])+ $name:ident = $bit:literal, $wire:expr; )*) => {
        impl Flags {
            $( $(#[doc = $doc])+ pub const $name: Flags = Flags(1 << $bit); )*

            /// Every flag with its name in COMMAND INFO, in that order; `None` if the flag is not printed.
            const WIRE: &'static [(Flags, Option<&'static str>)] = &[$((Flags::$name, $wire),)*];
        }
    };
}

flags! {
    /// Changes the data.
    WRITE = 0, Some("write");
    /// Reads keys and changes nothing.
    READONLY = 1, Some("readonly");
    /// May need memory: refused when `maxmemory` is reached and nothing can be evicted.
    DENYOOM = 2, Some("denyoom");
    /// Belongs to a module in Redis: checks its own number of arguments, is in no ACL category, and is listed in upper
    /// case.
    MODULE = 21, Some("module");
    /// Administers the server.
    ADMIN = 3, Some("admin");
    /// Belongs to publish and subscribe.
    PUBSUB = 4, Some("pubsub");
    /// Refused inside scripts.
    NOSCRIPT = 5, Some("noscript");
    /// May block the client.
    BLOCKING = 6, Some("blocking");
    /// Runs while a data set is being loaded.
    LOADING = 7, Some("loading");
    /// Runs on a replica whose data may be stale.
    STALE = 8, Some("stale");
    /// Not shown to MONITOR.
    SKIP_MONITOR = 9, Some("skip_monitor");
    /// Not written to the slow log.
    SKIP_SLOWLOG = 10, Some("skip_slowlog");
    /// Takes constant or logarithmic time: decides between @fast and @slow.
    FAST = 11, Some("fast");
    /// Runs before the client has authenticated.
    NO_AUTH = 12, Some("no_auth");
    /// Not a write, but its effect may have to reach replicas.
    MAY_REPLICATE = 13, None;
    /// Its key arguments may all be absent.
    NO_MANDATORY_KEYS = 14, Some("no_mandatory_keys");
    /// Refused unless a directive allows it.
    PROTECTED = 15, None;
    /// Does not run while a replica loads its data set from its primary beside the old one.
    NO_ASYNC_LOADING = 22, Some("no_async_loading");
    /// Refused inside MULTI.
    NO_MULTI = 16, Some("no_multi");
    /// A first, a last and a step cannot describe the positions of its keys. Derived from the key specs.
    MOVABLEKEYS = 17, Some("movablekeys");
    /// Runs while a script exceeds its time limit.
    ALLOW_BUSY = 18, Some("allow_busy");
    /// Internal: not meant for users.
    SYSCMD = 19, None;
    /// Runs in a cluster on a slot that is being imported, as if after ASKING.
    ASKING = 20, Some("asking");
}

impl Flags {
    /// Set without flags.
    pub const NONE: Flags = Flags(0);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Returns true if every flag of `other` is set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if any flag of `other` is set.
    #[inline]
    pub const fn has_any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the names that COMMAND INFO prints, in its order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Flags::WIRE
            .iter()
            .filter(move |(flag, _)| self.has(*flag))
            .filter_map(|(_, name)| *name)
    }
}

impl std::fmt::Debug for Flags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
