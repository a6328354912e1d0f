//! Areas of geometries: the rows of TairGis's commands. Rows only.

use super::prelude::*;
use crate::Arg;

const UNIT: Arg = one_of(
    "unit",
    &[
        word("m", "M"),
        word("km", "KM"),
        word("ft", "FT"),
        word("mi", "MI"),
    ],
);
const WITHOUT_TEXT: Arg = word("withoutwkt", "WITHOUTWKT").optional();
const RANGE: &[Arg] = &[
    string("wkt"),
    string("geometry").token("GEOM"),
    block(
        "circle",
        &[
            double("longitude"),
            double("latitude"),
            double("distance"),
            UNIT,
        ],
    )
    .token("RADIUS"),
    block("circle-around", &[string("name"), double("distance"), UNIT]).token("MEMBER"),
];

rows! { Module:
    GisAdd = "gis.add" {
        summary: "Set geometries of an area.",
        complexity: "O(log(N)) per geometry, N: geometries of the area",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRGIS],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("area"), block("data", &[string("name"), string("wkt")]).multiple()],
    }

    GisContains = "gis.contains" {
        summary: "Find the geometries that have every point of another.",
        complexity: "O(log(N)+M), M: edges of the geometries near it",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRGIS],
        keys: [KeySpec::at(1, READ)],
        args: [key("area"), string("wkt"), WITHOUT_TEXT],
    }

    GisDel = "gis.del" {
        summary: "Remove a geometry from an area.",
        complexity: "O(log(N))",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, MODULE],
        acl: [TAIR, TAIRGIS],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("area"), string("name")],
    }

    GisGet = "gis.get" {
        summary: "Get a geometry as well-known text.",
        complexity: "O(log(N))",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, FAST, MODULE],
        acl: [TAIR, TAIRGIS],
        keys: [KeySpec::at(1, READ)],
        args: [key("area"), string("name")],
    }

    GisGetall = "gis.getall" {
        summary: "Get all geometries of an area with their names.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRGIS],
        keys: [KeySpec::at(1, READ)],
        args: [key("area"), WITHOUT_TEXT],
    }

    GisIntersects = "gis.intersects" {
        summary: "Find the geometries that have a point in common with another.",
        complexity: "O(log(N)+M), M: edges of the geometries near it",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRGIS],
        keys: [KeySpec::at(1, READ)],
        args: [key("area"), string("wkt"), WITHOUT_TEXT],
    }

    GisSearch = "gis.search" {
        summary: "Find points and polygons within a distance or a geometry.",
        complexity: "O(log(N)+M), M: edges of the geometries near it",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRGIS],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("area"),
            one_of("range", RANGE),
            integer("count").token("COUNT").optional(),
            integer("limit").token("LIMIT").optional(),
            one_of("order", &[word("asc", "ASC"), word("desc", "DESC")]).optional(),
            word("withdist", "WITHDIST").optional(),
            one_of(
                "values",
                &[
                    word("withvalue", "WITHVALUE"),
                    word("withoutvalue", "WITHOUTVALUE"),
                    word("withoutwkt", "WITHOUTWKT"),
                ],
            )
            .optional(),
        ],
    }

    GisWithin = "gis.within" {
        summary: "Find the geometries of which every point is in another.",
        complexity: "O(log(N)+M), M: edges of the geometries near it",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRGIS],
        keys: [KeySpec::at(1, READ)],
        args: [key("area"), string("wkt"), WITHOUT_TEXT],
    }
}
