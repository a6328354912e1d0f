//! Digests for quantiles: the rows of what Redis 8 has in its module `bf`. Rows only.

use super::prelude::*;

rows! { Module:
    TdigestAdd = "tdigest.add" {
        summary: "Add values to a t-digest.",
        complexity: "O(1) for a value in the mean, O(N) for N of them",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TDIGEST, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), double("value").multiple()],
    }

    TdigestByrank = "tdigest.byrank" {
        summary: "Get the values that have these ranks among all in ascending order.",
        complexity: "O(N), N: ranks",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE, FAST],
        acl: [TDIGEST, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("rank").multiple()],
    }

    TdigestByrevrank = "tdigest.byrevrank" {
        summary: "Get the values that have these ranks among all in descending order.",
        complexity: "O(N), N: ranks",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE, FAST],
        acl: [TDIGEST, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("reverse_rank").multiple()],
    }

    TdigestCdf = "tdigest.cdf" {
        summary: "Get for each value the share of values that are smaller, and half of those equal to it.",
        complexity: "O(N), N: values",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE, FAST],
        acl: [TDIGEST, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), double("value").multiple()],
    }

    TdigestCreate = "tdigest.create" {
        summary: "Make an empty t-digest.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -2,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TDIGEST, WRITE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("compression").token("COMPRESSION").optional()],
    }

    TdigestInfo = "tdigest.info" {
        summary: "Tell size and state of a t-digest.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE, FAST],
        acl: [TDIGEST, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    TdigestMax = "tdigest.max" {
        summary: "Get the largest value of a t-digest.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE, FAST],
        acl: [TDIGEST, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    TdigestMerge = "tdigest.merge" {
        summary: "Merge t-digests into one.",
        complexity: "O(N*K), N: centroids, K: digests",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TDIGEST, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE), KeySpec::counted_at(2, READ)],
        args: [
            key("destination-key"),
            integer("numkeys"),
            key_of_spec("source-key", 1).multiple(),
            integer("compression").token("COMPRESSION").optional(),
            word("override", "OVERRIDE").optional(),
        ],
    }

    TdigestMin = "tdigest.min" {
        summary: "Get the smallest value of a t-digest.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE, FAST],
        acl: [TDIGEST, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    TdigestQuantile = "tdigest.quantile" {
        summary: "Get the values below which these shares of all values are.",
        complexity: "O(N), N: quantiles",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE, FAST],
        acl: [TDIGEST, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), double("quantile").multiple()],
    }

    TdigestRank = "tdigest.rank" {
        summary: "Get for each value the number of values that are smaller, and half of those equal to it.",
        complexity: "O(N), N: values",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE, FAST],
        acl: [TDIGEST, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), double("value").multiple()],
    }

    TdigestReset = "tdigest.reset" {
        summary: "Forget the values of a t-digest.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TDIGEST, WRITE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key")],
    }

    TdigestRevrank = "tdigest.revrank" {
        summary: "Get for each value the number of values that are larger, and half of those equal to it.",
        complexity: "O(N), N: values",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE, FAST],
        acl: [TDIGEST, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), double("value").multiple()],
    }

    TdigestTrimmedMean = "tdigest.trimmed_mean" {
        summary: "Get the mean of the values between two quantiles.",
        complexity: "O(N), N: centroids",
        since: "9.0.0",
        arity: 4,
        flags: [READONLY, MODULE],
        acl: [TDIGEST, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), double("low_cut_quantile"), double("high_cut_quantile")],
    }
}
