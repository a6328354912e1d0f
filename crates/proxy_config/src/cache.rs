//! The cache of a pool: its settings, and their checks.

use serde::{Deserialize, Serialize};

use super::{DistributionKind, Pool, Size, Span};

/// Smallest useful memory.
const MEMORY_MIN: Size = Size(64 * 1024);
/// The longest time for which a value may be cached; a longer one would allow stale values for too long.
const MAX_AGE_MAX: Span = Span::seconds(3600);

/// Cache of replies to GET: they are kept for a moment, and the servers report which keys have changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Cache {
    /// Prefixes of the keys whose values are cached, as servers know them; `""`: all. Empty: there is no cache.
    pub prefixes: Vec<String>,
    /// Memory of all workers together; 64 KiB at least.
    pub memory: Size,
    /// Largest age of a cached value; an hour at most.
    pub max_age: Span,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            prefixes: Vec::new(),
            memory: Size(64 << 20),
            max_age: Span::seconds(1),
        }
    }
}

/// Returns the problems of a pool's cache settings.
pub(super) fn problems(pool: &Pool) -> Vec<String> {
    let mut problems = Vec::new();
    let cache = &pool.cache;
    if cache.prefixes.is_empty() {
        return problems;
    }
    for (at, prefix) in cache.prefixes.iter().enumerate() {
        let mut others = cache.prefixes.iter().enumerate();
        let covers = |(other, shorter): &(usize, &String)| {
            *other != at
                && prefix.starts_with(shorter.as_str())
                && (prefix != *shorter || *other < at)
        };
        if let Some((_, shorter)) = others.find(covers) {
            problems.push(format!(
                "`cache.prefixes`: \"{prefix}\" begins with \"{shorter}\", which covers it (servers refuse both); leave it out"
            ));
        }
    }
    if cache.memory < MEMORY_MIN {
        problems.push(format!("`cache.memory` is at least {MEMORY_MIN}"));
    }
    if cache.max_age.on().is_none() || cache.max_age > MAX_AGE_MAX {
        problems.push(format!(
            "`cache.max-age` is more than nothing and at most {MAX_AGE_MAX}: it bounds how old a value may be that is told"
        ));
    }
    let reads = &pool.reads;
    if reads.static_replica_priority > 0 || reads.dynamic_replica_priority > 0 {
        problems.push(
            "`cache` does not go with reads from replicas: one may tell what was before, after its primary has said that it \
             has changed; leave out `cache.prefixes`, or the replicas' priorities"
                .to_owned(),
        );
    }
    if pool.distribution == DistributionKind::Random && pool.shards.len() > 1 {
        problems.push(
            "`cache` does not go with `distribution = \"random\"`, where each server may have another value; leave out \
             `cache.prefixes`, or take another distribution"
                .to_owned(),
        );
    }
    problems
}
