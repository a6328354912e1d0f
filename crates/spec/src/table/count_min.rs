//! Count-min sketches: the rows of what Redis 8 has in its module `bf`. Rows only.

use super::prelude::*;

rows! { Module:
    CmsIncrby = "cms.incrby" {
        summary: "Count items in a count-min sketch.",
        complexity: "O(1) for an item and a row, O(N*d) for N items in d rows",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [CMS, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), block("items", &[string("item"), integer("increment")]).multiple()],
    }

    CmsInfo = "cms.info" {
        summary: "Tell dimensions and sum of a count-min sketch.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE, FAST],
        acl: [CMS, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    CmsInitbydim = "cms.initbydim" {
        summary: "Make a count-min sketch of these dimensions.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [CMS, WRITE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("width"), integer("depth")],
    }

    CmsInitbyprob = "cms.initbyprob" {
        summary: "Make a count-min sketch for a share and a probability of errors.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [CMS, WRITE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), double("error"), double("probability")],
    }

    CmsMerge = "cms.merge" {
        summary: "Store the sum of count-min sketches in one that exists.",
        complexity: "O(N*w*d), N: sketches, w: width, d: depth",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [CMS, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE), KeySpec::counted_at(2, READ)],
        args: [
            key("destination"),
            integer("numKeys"),
            key_of_spec("source", 1).multiple(),
            integer("weight").token("WEIGHTS").optional().multiple(),
        ],
    }

    CmsQuery = "cms.query" {
        summary: "Get the counts of items from a count-min sketch.",
        complexity: "O(1) for an item and a row, O(N*d) for N items in d rows",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [CMS, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("item").multiple()],
    }
}
