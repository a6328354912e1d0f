//! Command flags: what a command does and when it may run. Knows their names on the wire, not who checks them.

/// A set of command flags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u32);

macro_rules! flags {
    ($( $(#[doc = $doc:literal])+ $name:ident = $bit:literal, $wire:expr; )*) => {
        impl Flags {
            $( $(#[doc = $doc])+ pub const $name: Flags = Flags(1 << $bit); )*

            /// Every flag with its name as COMMAND INFO prints it, in that order; `None` where the flag is not printed.
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
    /// Redis brings it in a module: it checks by itself how many arguments it has, is in no ACL category, and is listed
    /// in upper case.
    MODULE = 21, Some("module");
    /// Administers the server.
    ADMIN = 3, Some("admin");
    /// Belongs to publish and subscribe.
    PUBSUB = 4, Some("pubsub");
    /// Refused inside scripts.
    NOSCRIPT = 5, Some("noscript");
    /// May make the client wait.
    BLOCKING = 6, Some("blocking");
    /// Runs while a data set is being loaded.
    LOADING = 7, Some("loading");
    /// Runs on a replica whose data may be stale.
    STALE = 8, Some("stale");
    /// Not shown to MONITOR.
    SKIP_MONITOR = 9, Some("skip_monitor");
    /// Not written to the slow log.
    SKIP_SLOWLOG = 10, Some("skip_slowlog");
    /// Takes constant or logarithmic time: also decides between @fast and @slow.
    FAST = 11, Some("fast");
    /// Runs before the client has authenticated.
    NO_AUTH = 12, Some("no_auth");
    /// Not a write, but what it does may have to reach replicas.
    MAY_REPLICATE = 13, None;
    /// Its key arguments may be absent altogether.
    NO_MANDATORY_KEYS = 14, Some("no_mandatory_keys");
    /// Refused unless a directive allows it.
    PROTECTED = 15, None;
    /// Does not run while a replica loads its data set from its primary beside the old one.
    NO_ASYNC_LOADING = 22, Some("no_async_loading");
    /// Refused inside MULTI.
    NO_MULTI = 16, Some("no_multi");
    /// A first, a last and a step cannot describe where the keys are. Derived from the key specs.
    MOVABLEKEYS = 17, Some("movablekeys");
    /// Runs while a script is past its time.
    ALLOW_BUSY = 18, Some("allow_busy");
    /// Part of the machinery: not meant for users.
    SYSCMD = 19, None;
    /// Runs in a cluster on a slot that is being imported, as if after ASKING.
    ASKING = 20, Some("asking");
}

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);

    /// Both sets together.
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

    /// The names that COMMAND INFO prints, in its order.
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
