//! The imitated release of redis-benchmark: its suite, its titles and the form of its reports.

/// A release of redis-benchmark whose output is imitated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compat {
    /// 2.4: "PING (inline)" and MSET near the front.
    Redis24,
    /// 2.6 to 3.0.
    Redis26,
    /// 3.2 to 5.0: RPUSH, RPOP and HSET are in the suite.
    Redis5,
    /// 7.0.15, the default.
    #[default]
    Redis70,
    /// 7.2 and later: XADD is in the suite.
    Redis8,
}

/// The shape of reports and live lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Before 6.2: rates only, and one latency line per millisecond.
    Classic,
    /// Percentiles from a histogram.
    Histogram,
}

const NAMES: [(&str, Compat); 5] = [
    ("redis-2.4", Compat::Redis24),
    ("redis-2.6", Compat::Redis26),
    ("redis-5", Compat::Redis5),
    ("redis-7.0", Compat::Redis70),
    ("redis-8", Compat::Redis8),
];

impl Compat {
    /// Returns the release that an argument of `--compat` names.
    pub fn from_name(name: &str) -> Option<Compat> {
        NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, compat)| *compat)
    }

    /// Returns every name that `--compat` takes, for a message.
    pub fn names() -> String {
        NAMES.map(|(name, _)| name).join(", ")
    }

    /// Returns the version that `--version` claims compatibility with.
    pub fn version(self) -> &'static str {
        match self {
            Compat::Redis24 => "2.4.2",
            Compat::Redis26 => "2.6.14",
            Compat::Redis5 => "5.0.14",
            Compat::Redis70 => "7.0.15",
            Compat::Redis8 => "8.2.3",
        }
    }

    /// Returns the form of reports.
    pub fn form(self) -> Form {
        match self {
            Compat::Redis24 | Compat::Redis26 | Compat::Redis5 => Form::Classic,
            Compat::Redis70 | Compat::Redis8 => Form::Histogram,
        }
    }
}
