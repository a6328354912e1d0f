//! Random requests on the types that other servers have in modules.

use fastrand::Rng;

use super::DATABASES;
use crate::client::{encode, request};

/// Letters of the keys of each type.
const KINDS: &[&str] = &[
    "j", "b", "c", "m", "k", "d", "t", "i", "H", "Z", "r", "g", "T",
];

/// A request on few keys, or one that moves a key or lets it expire.
pub fn typed_request(rng: &mut Rng) -> Vec<u8> {
    let key = |rng: &mut Rng, kind: &str| format!("{kind}:{}", rng.u8(..4));
    let kind = KINDS[rng.usize(..KINDS.len())];
    let (n, ms) = (rng.u16(..40), rng.u32(1..60));
    let line = match rng.u8(..50) {
        0 => format!(
            "JSON.SET {} $ {{\"a\":{n},\"b\":[1,{n},\"x\"]}}",
            key(rng, "j")
        ),
        1 => format!("JSON.NUMINCRBY {} $.a 1.5", key(rng, "j")),
        2 => format!(
            "JSON.ARRAPPEND {} $.b {n} {{\"deep\":[{n}]}}",
            key(rng, "j")
        ),
        3 => format!("JSON.ARRPOP {} $.b", key(rng, "j")),
        4 => format!("JSON.DEL {} $.b", key(rng, "j")),
        5 => format!("JSON.MERGE {} $ {{\"c\":{{\"d{n}\":{n}}}}}", key(rng, "j")),
        6 => format!("BF.ADD {} {n}", key(rng, "b")),
        7 => format!(
            "BF.INSERT {} CAPACITY 10 ITEMS {n} a{n} b{n}",
            key(rng, "b")
        ),
        8 => format!("CF.ADD {} {n}", key(rng, "c")),
        9 => format!("CF.DEL {} {n}", key(rng, "c")),
        10 => format!("CMS.INITBYDIM {} 20 3", key(rng, "m")),
        11 => format!("CMS.INCRBY {} {n} 2 a{n} 1", key(rng, "m")),
        12 => format!(
            "CMS.MERGE {} 2 {} {}",
            key(rng, "m"),
            key(rng, "m"),
            key(rng, "m")
        ),
        13 => format!("TOPK.RESERVE {} 3 8 4 0.9", key(rng, "k")),
        14 | 15 => format!("TOPK.ADD {} {n} a{n}", key(rng, "k")),
        16 => format!("TDIGEST.CREATE {} COMPRESSION 20", key(rng, "d")),
        17 | 18 => format!("TDIGEST.ADD {} {n} {n}.5", key(rng, "d")),
        19 => format!("TDIGEST.MERGE {} 1 {}", key(rng, "d"), key(rng, "d")),
        20 => format!("TS.ADD {} * {n} ON_DUPLICATE SUM", key(rng, "t")),
        21 => format!(
            "TS.ADD {} {n} {n} ON_DUPLICATE LAST LABELS l {n}",
            key(rng, "t")
        ),
        22 => format!("TS.INCRBY {} {n}", key(rng, "t")),
        23 => format!("TS.DEL {} 0 {n}", key(rng, "t")),
        24 => format!("EXSET {} {n} FLAGS {n}", key(rng, "i")),
        25 => format!("EXINCRBY {} {n} PX {ms}", key(rng, "i")),
        26 => format!("EXHSET {} {n} {n} PX {ms}", key(rng, "H")),
        27 => format!("EXHINCRBY {} {n} 1", key(rng, "H")),
        28 => format!("EXHDEL {} {n}", key(rng, "H")),
        29 => format!("EXZADD {} {n}#1 m{n}", key(rng, "Z")),
        30 => format!("EXZPOPMIN {}", key(rng, "Z")),
        31 => format!("TR.SETBITS {} {n} {n}000", key(rng, "r")),
        32 => format!("TR.FLIPRANGE {} {n} {n}0", key(rng, "r")),
        33 => format!(
            "TR.BITOP {} XOR {} {}",
            key(rng, "r"),
            key(rng, "r"),
            key(rng, "r")
        ),
        34 | 35 => {
            let text = match n % 3 {
                0 => format!("POINT({n} 1)"),
                1 => format!("LINESTRING(0 0,{n} {n})"),
                _ => format!("POLYGON((0 0,{n} 0,{n} 9))"),
            };
            let (key, name) = (key(rng, "g"), n.to_string());
            let words = ["GIS.ADD", &key, &name, &text].map(str::as_bytes);
            return encode(&words);
        }
        36 => format!("GIS.DEL {} {n}", key(rng, "g")),
        37 | 38 => format!("PEXPIRE {} {ms}", key(rng, kind)),
        39 | 40 => format!("RENAME {} {}", key(rng, kind), key(rng, kind)),
        41 => format!(
            "COPY {} {} DB {} REPLACE",
            key(rng, kind),
            key(rng, kind),
            rng.u32(..DATABASES)
        ),
        42 => format!("MOVE {} {}", key(rng, kind), rng.u32(..DATABASES)),
        43 => format!("DEL {}", key(rng, kind)),
        44 | 45 => format!(
            "EXTS.S.ADD {} line{} {n} {n}.5 DATA_ET 30 CHUNK_SIZE 4 LABELS l {n}",
            key(rng, "T"),
            n % 3
        ),
        46 => format!("EXTS.S.MADD {} 2 a * {n} b {n} 1", key(rng, "T")),
        47 => format!("EXTS.S.INCRBY {} line1 * {n}", key(rng, "T")),
        48 => format!("EXTS.S.RAW_INCRBY {} line2 {n} 0.25", key(rng, "T")),
        _ => format!("EXTS.S.DEL {} line{}", key(rng, "T"), n % 3),
    };
    request(&line)
}
