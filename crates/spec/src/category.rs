//! ACL categories, and the rule that derives categories from flags. Knows no users and no ACL rules.

use crate::Flags;

/// A set of ACL categories.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Categories(u64);

macro_rules! categories {
    ($( $(#[doc = $doc:literal])+ $name:ident = $bit:literal, $wire:literal; )*) => {
        impl Categories {
            $( $(#[doc = $doc])+ pub const $name: Categories = Categories(1 << $bit); )*

            /// Every category with its name, in the order of ACL CAT and COMMAND INFO.
            pub const ALL: &'static [(Categories, &'static str)] = &[$((Categories::$name, $wire),)*];
        }
    };
}

categories! {
    /// Works on keys of any type.
    KEYSPACE = 0, "keyspace";
    /// Reads data.
    READ = 1, "read";
    /// Changes data.
    WRITE = 2, "write";
    /// Sets.
    SET = 3, "set";
    /// Sorted sets.
    SORTEDSET = 4, "sortedset";
    /// Lists.
    LIST = 5, "list";
    /// Hashes.
    HASH = 6, "hash";
    /// Strings.
    STRING = 7, "string";
    /// Bitmaps.
    BITMAP = 8, "bitmap";
    /// HyperLogLogs.
    HYPERLOGLOG = 9, "hyperloglog";
    /// Geospatial indexes.
    GEO = 10, "geo";
    /// Streams.
    STREAM = 11, "stream";
    /// Publish and subscribe.
    PUBSUB = 12, "pubsub";
    /// Administration.
    ADMIN = 13, "admin";
    /// Constant or logarithmic time.
    FAST = 14, "fast";
    /// Not in constant or logarithmic time.
    SLOW = 15, "slow";
    /// May block the client.
    BLOCKING = 16, "blocking";
    /// May harm the server or other clients.
    DANGEROUS = 17, "dangerous";
    /// The client's own connection.
    CONNECTION = 18, "connection";
    /// Transactions.
    TRANSACTION = 19, "transaction";
    /// Scripts and functions.
    SCRIPTING = 20, "scripting";
    /// JSON documents.
    JSON = 21, "json";
    /// Bloom filters.
    BLOOM = 22, "bloom";
    /// Cuckoo filters.
    CUCKOO = 23, "cuckoo";
    /// Count-min sketches.
    CMS = 24, "cms";
    /// The most frequent items.
    TOPK = 25, "topk";
    /// Digests for quantiles.
    TDIGEST = 26, "tdigest";
    /// Time series.
    TIMESERIES = 27, "timeseries";
    /// Commands that Tair has beside those of Redis; they are also in one of the categories below.
    TAIR = 28, "tair";
    /// Strings with a version and flags.
    TAIRSTRING = 29, "tairstring";
    /// Hashes whose fields have versions.
    TAIRHASH = 30, "tairhash";
    /// Sorted sets with scores of several parts.
    TAIRZSET = 31, "tairzset";
    /// Areas of shapes.
    TAIRGIS = 32, "tairgis";
    /// Time series under two keys.
    TAIRTS = 33, "tairts";
    /// Sketches of numbers of distinct items.
    TAIRCPC = 34, "taircpc";
    /// Compressed bitmaps.
    TAIRROARING = 35, "tairroaring";
}

impl Categories {
    /// Set without categories.
    pub const NONE: Categories = Categories(0);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Categories) -> Categories {
        Categories(self.0 | other.0)
    }

    /// Returns true if a category is in both sets.
    pub const fn meets(self, other: Categories) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns true if every category of `other` is in the set.
    #[inline]
    pub const fn has(self, other: Categories) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the names without the `@`, in the order of COMMAND INFO.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Categories::ALL
            .iter()
            .filter(move |(category, _)| self.has(*category))
            .map(|(_, name)| *name)
    }

    /// Returns the category of that name (without the `@`, any case).
    pub fn by_name(name: &[u8]) -> Option<Categories> {
        Categories::ALL
            .iter()
            .find(|(_, known)| known.as_bytes().eq_ignore_ascii_case(name))
            .map(|(category, _)| *category)
    }

    /// Returns the categories that a row's flags imply, together with those of the row.
    pub(crate) const fn derived(self, flags: Flags) -> Categories {
        // Redis's vector sets are in none.
        if flags.has(Flags::MODULE) && self.0 == 0 {
            return self;
        }
        let mut all = self;
        if flags.has(Flags::WRITE) {
            all = all.with(Categories::WRITE);
        }
        if flags.has(Flags::READONLY) && !self.has(Categories::SCRIPTING) {
            all = all.with(Categories::READ);
        }
        if flags.has(Flags::ADMIN) {
            all = all.with(Categories::ADMIN).with(Categories::DANGEROUS);
        }
        if flags.has(Flags::PUBSUB) {
            all = all.with(Categories::PUBSUB);
        }
        if flags.has(Flags::BLOCKING) {
            all = all.with(Categories::BLOCKING);
        }
        all.with(if flags.has(Flags::FAST) {
            Categories::FAST
        } else {
            Categories::SLOW
        })
    }
}

impl std::fmt::Debug for Categories {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
