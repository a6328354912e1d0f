//! Geo: the rows of the group `geo`. Rows only.

use super::prelude::*;
use crate::Arg;

const UNITS: &[Arg] = &[
    word("m", "M"),
    word("km", "KM"),
    word("ft", "FT"),
    word("mi", "MI"),
];
const ORDER: &[Arg] = &[word("asc", "ASC"), word("desc", "DESC")];
/// Options of GEORADIUS with arguments, each with their number.
const RADIUS_OPTIONS: &[(&str, u8)] = &[("COUNT", 1), ("STORE", 1), ("STOREDIST", 1)];
const FROM: &[Arg] = &[
    string("member").token("FROMMEMBER"),
    block("fromlonlat", &[double("longitude"), double("latitude")]).token("FROMLONLAT"),
];
const BY: &[Arg] = &[
    block(
        "circle",
        &[double("radius").token("BYRADIUS"), one_of("unit", UNITS)],
    ),
    block(
        "box",
        &[
            double("width").token("BYBOX"),
            double("height"),
            one_of("unit", UNITS),
        ],
    ),
    // Without a FROM, which Redis's grammar cannot express.
    block(
        "polygon",
        &[
            integer("corners").token("BYPOLYGON"),
            block("corner", &[double("longitude"), double("latitude")]).multiple(),
        ],
    )
    .since("9.0.0"),
];

rows! { Geo:
    Geoadd = "geoadd" {
        summary: "Add members with their places to a sorted set, or move them.",
        complexity: "O(log(N)) per member, N: members",
        since: "3.2.0",
        history: [("6.2.0", "CH, NX and XX.")],
        arity: -5,
        flags: [WRITE, DENYOOM],
        acl: [GEO],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            one_of("condition", &[word("nx", "NX"), word("xx", "XX")]).since("6.2.0").optional(),
            word("change", "CH").since("6.2.0").optional(),
            block("data", &[double("longitude"), double("latitude"), string("member")]).multiple(),
        ],
        propagate: Effect,
    }

    Geodist = "geodist" {
        summary: "Measure the distance between two members.",
        complexity: "O(1)",
        since: "3.2.0",
        arity: -4,
        flags: [READONLY],
        acl: [GEO],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            string("member1"),
            string("member2"),
            one_of("unit", UNITS).optional(),
        ],
    }

    Geohash = "geohash" {
        summary: "Read the places of members as geohash texts.",
        complexity: "O(1) per member",
        since: "3.2.0",
        arity: -2,
        flags: [READONLY],
        acl: [GEO],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member").optional().multiple()],
    }

    Geopos = "geopos" {
        summary: "Read the longitudes and latitudes of members.",
        complexity: "O(1) per member",
        since: "3.2.0",
        arity: -2,
        flags: [READONLY],
        acl: [GEO],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member").optional().multiple()],
    }

    Georadius = "georadius" {
        summary: "Find the members in a circle around a place; optionally store them.",
        complexity: "O(N+log(M)), N: places in the boxes around the circle, M: members",
        since: "3.2.0",
        history: [("6.2.0", "ANY."), ("7.0.0", "Units in upper case.")],
        deprecated: { since: "6.2.0", replaced_by: "GEOSEARCH or GEOSEARCHSTORE with BYRADIUS" },
        arity: -6,
        flags: [WRITE, DENYOOM],
        acl: [GEO],
        keys: [
            KeySpec::at(1, READ),
            KeySpec::one_behind(6, "STORE", RADIUS_OPTIONS, OVERWRITE),
            KeySpec::one_behind(6, "STOREDIST", RADIUS_OPTIONS, OVERWRITE),
        ],
        args: [
            key("key"),
            double("longitude"), double("latitude"), double("radius"), one_of("unit", UNITS),
            word("withcoord", "WITHCOORD").optional(),
            word("withdist", "WITHDIST").optional(),
            word("withhash", "WITHHASH").optional(),
            block("count-block", &[integer("count").token("COUNT"), word("any", "ANY").since("6.2.0").optional()]).optional(),
            one_of("order", ORDER).optional(),
            one_of("store", &[
                key_of_spec("storekey", 1).display("key").token("STORE"),
                key_of_spec("storedistkey", 2).display("key").token("STOREDIST"),
            ]).optional(),
        ],
    }

    GeoradiusRo = "georadius_ro" {
        summary: "Find the members in a circle around a place.",
        complexity: "O(N+log(M)), N: places in the boxes around the circle, M: members",
        since: "3.2.10",
        history: [("6.2.0", "ANY."), ("7.0.0", "Units in upper case.")],
        deprecated: { since: "6.2.0", replaced_by: "GEOSEARCH with BYRADIUS" },
        arity: -6,
        flags: [READONLY],
        acl: [GEO],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            double("longitude"), double("latitude"), double("radius"), one_of("unit", UNITS),
            word("withcoord", "WITHCOORD").optional(),
            word("withdist", "WITHDIST").optional(),
            word("withhash", "WITHHASH").optional(),
            block("count-block", &[integer("count").token("COUNT"), word("any", "ANY").since("6.2.0").optional()]).optional(),
            one_of("order", ORDER).optional(),
        ],
    }

    Georadiusbymember = "georadiusbymember" {
        summary: "Find the members in a circle around a member; optionally store them.",
        complexity: "O(N+log(M)), N: places in the boxes around the circle, M: members",
        since: "3.2.0",
        history: [("6.2.0", "ANY."), ("7.0.0", "Units in upper case.")],
        deprecated: { since: "6.2.0", replaced_by: "GEOSEARCH or GEOSEARCHSTORE with BYRADIUS and FROMMEMBER" },
        arity: -5,
        flags: [WRITE, DENYOOM],
        acl: [GEO],
        keys: [
            KeySpec::at(1, READ),
            KeySpec::one_behind(5, "STORE", RADIUS_OPTIONS, OVERWRITE),
            KeySpec::one_behind(5, "STOREDIST", RADIUS_OPTIONS, OVERWRITE),
        ],
        args: [
            key("key"),
            string("member"), double("radius"), one_of("unit", UNITS),
            word("withcoord", "WITHCOORD").optional(),
            word("withdist", "WITHDIST").optional(),
            word("withhash", "WITHHASH").optional(),
            block("count-block", &[integer("count").token("COUNT"), word("any", "ANY").optional()]).optional(),
            one_of("order", ORDER).optional(),
            one_of("store", &[
                key_of_spec("storekey", 1).display("key").token("STORE"),
                key_of_spec("storedistkey", 2).display("key").token("STOREDIST"),
            ]).optional(),
        ],
    }

    GeoradiusbymemberRo = "georadiusbymember_ro" {
        summary: "Find the members in a circle around a member.",
        complexity: "O(N+log(M)), N: places in the boxes around the circle, M: members",
        since: "3.2.10",
        history: [("6.2.0", "ANY."), ("7.0.0", "Units in upper case.")],
        deprecated: { since: "6.2.0", replaced_by: "GEOSEARCH with BYRADIUS and FROMMEMBER" },
        arity: -5,
        flags: [READONLY],
        acl: [GEO],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            string("member"), double("radius"), one_of("unit", UNITS),
            word("withcoord", "WITHCOORD").optional(),
            word("withdist", "WITHDIST").optional(),
            word("withhash", "WITHHASH").optional(),
            block("count-block", &[integer("count").token("COUNT"), word("any", "ANY").optional()]).optional(),
            one_of("order", ORDER).optional(),
        ],
    }

    Geosearch = "geosearch" {
        summary: "Find the members in a circle, a box or a polygon.",
        complexity: "O(N+log(M)), N: places in the boxes around the area, M: members",
        since: "6.2.0",
        history: [("7.0.0", "Units in upper case."), ("9.0.0", "BYPOLYGON, as in Valkey.")],
        arity: -7,
        flags: [READONLY],
        acl: [GEO],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            one_of("from", FROM),
            one_of("by", BY),
            one_of("order", ORDER).optional(),
            block("count-block", &[integer("count").token("COUNT"), word("any", "ANY").optional()]).optional(),
            word("withcoord", "WITHCOORD").optional(),
            word("withdist", "WITHDIST").optional(),
            word("withhash", "WITHHASH").optional(),
        ],
    }

    Geosearchstore = "geosearchstore" {
        summary: "Store the members in a circle, a box or a polygon under another key.",
        complexity: "O(N+log(M)), N: places in the boxes around the area, M: members",
        since: "6.2.0",
        history: [("7.0.0", "Units in upper case."), ("9.0.0", "BYPOLYGON, as in Valkey.")],
        arity: -8,
        flags: [WRITE, DENYOOM],
        acl: [GEO],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::at(2, READ)],
        args: [
            key("destination"),
            key_of_spec("source", 1),
            one_of("from", FROM),
            one_of("by", BY),
            one_of("order", ORDER).optional(),
            block("count-block", &[integer("count").token("COUNT"), word("any", "ANY").optional()]).optional(),
            word("storedist", "STOREDIST").optional(),
        ],
    }
}
