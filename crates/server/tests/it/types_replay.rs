//! The types that other servers have in modules: what the real modules answered is replayed, call by call, and their
//! payloads are restored. The data and their form are in `tests/data/types`.
//!
//! `REDLINE_REPLAY_AGAINST=address:port` has another server answer instead of ours, which must be empty and have the
//! modules: so it is seen that the replay itself is right. With `REDLINE_REPLAY_FAMILIES=bloom,json` only these families
//! are replayed there.

use std::{collections::BTreeMap, env, fmt::Write, fs, net::SocketAddr, path::Path};

use redline_server::{Permission, Settings};
use redline_testkit::client::{Client, Value};
use serde_json::Value as Json;

use crate::client::{settings, start};

/// A type with its commands, as the records have them.
struct Family {
    name: &'static str,
    file: &'static str,
    groups: &'static [&'static str],
    /// Labels of its payloads.
    dumps: &'static [&'static str],
    /// One of its commands: without it, the family is not built.
    command: &'static str,
}

const fn family(
    name: &'static str,
    file: &'static str,
    groups: &'static [&'static str],
    dumps: &'static [&'static str],
    command: &'static str,
) -> Family {
    Family {
        name,
        file,
        groups,
        dumps,
        command,
    }
}

const BLOOM_FILE: &str = "redisbloom-8.2";
const JSON_FILE: &str = "redisjson-8.2.2";
const SERIES_FILE: &str = "redistimeseries-8.2";
const TAIR_FILE: &str = "tair-modules";

const FAMILIES: &[Family] = &[
    family(
        "bloom",
        BLOOM_FILE,
        &["bf", "bf-scaling"],
        &["bf", "bf-scaled", "bf-nonscaling"],
        "BF.ADD",
    ),
    family("cuckoo", BLOOM_FILE, &["cf"], &["cf", "cf-grown"], "CF.ADD"),
    family("cms", BLOOM_FILE, &["cms"], &["cms"], "CMS.QUERY"),
    family("topk", BLOOM_FILE, &["topk"], &["topk"], "TOPK.ADD"),
    family(
        "tdigest",
        BLOOM_FILE,
        &["tdigest"],
        &["tdigest", "tdigest-empty"],
        "TDIGEST.ADD",
    ),
    family(
        "json",
        JSON_FILE,
        &[
            "set", "get", "mget", "type", "len", "num", "str", "arr", "del", "merge", "debug",
            "life", "dump",
        ],
        &["json", "json-scalar"],
        "JSON.SET",
    ),
    family(
        "series",
        SERIES_FILE,
        &["create", "add", "range", "multi", "rules", "policy"],
        &[
            "ts",
            "ts-raw",
            "ts-rule-source",
            "ts-rule-target",
            "ts-empty",
        ],
        "TS.ADD",
    ),
    family("exstring", TAIR_FILE, &["exstring"], &["exstring"], "EXSET"),
    family("exhash", TAIR_FILE, &["exhash"], &["exhash"], "EXHSET"),
    family("exzset", TAIR_FILE, &["exzset"], &[], "EXZADD"),
    family("gis", TAIR_FILE, &["gis"], &[], "GIS.ADD"),
];

/// Families whose commands are not there yet: their calls are left out. A test fails for a name that has to go.
const UNBUILT: &[&str] = &[];

/// The files of calls, with the version of the protocol.
const FILES: &[(&str, u8)] = &[
    (BLOOM_FILE, 2),
    (JSON_FILE, 2),
    (JSON_FILE, 3),
    (SERIES_FILE, 2),
    (SERIES_FILE, 3),
    (TAIR_FILE, 2),
];

/// Commands whose reply has no order by nature: where in the reply the list is, and how many of its elements belong
/// together: one more with WITHDIST, one less with WITHOUTWKT.
const UNORDERED: &[(&str, &[usize], usize)] = &[
    ("EXHKEYS", &[], 1),
    ("EXHVALS", &[], 1),
    ("EXHGETALL", &[], 2),
    ("EXHGETALLWITHVER", &[], 3),
    ("EXHSCAN", &[1], 2),
    ("EXZSCAN", &[1], 2),
    ("TS.MGET", &[], 1),
    ("TS.MRANGE", &[], 1),
    ("TS.MREVRANGE", &[], 1),
    ("TS.QUERYINDEX", &[], 1),
    ("GIS.SEARCH", &[1], 2),
    ("GIS.CONTAINS", &[1], 2),
    ("GIS.WITHIN", &[1], 2),
    ("GIS.INTERSECTS", &[1], 2),
    ("GIS.GETALL", &[], 2),
];

/// A reply that is another one here.
struct Difference {
    group: &'static str,
    /// The call, its words with a space between two.
    call: &'static str,
    /// Why it stays.
    reason: &'static str,
}

const fn difference(group: &'static str, call: &'static str, reason: &'static str) -> Difference {
    Difference {
        group,
        call,
        reason,
    }
}

const SERIES_MEMORY: &str = "memoryUsage is what the series takes here";

const INSIDE: &str = "a polygon does not contain the one that it is inside of";

/// All differences in replies; at most [`DIFFERENCES_MAX`]. One that is none any more fails the test.
const DIFFERENCES: &[Difference] = &[
    difference(
        "bf",
        "COPY b bcopy",
        "filters are copied as values of any type",
    ),
    difference("bf", "BF.EXISTS bcopy one", "the copy is there"),
    difference(
        "tdigest",
        "TDIGEST.INFO big",
        "a read does not merge the centroids of the value, so that replicas have equal ones",
    ),
    difference("create", "TS.INFO t", SERIES_MEMORY),
    difference("create", "TS.INFO t1", SERIES_MEMORY),
    difference("create", "TS.INFO t2", SERIES_MEMORY),
    difference("create", "TS.INFO ig", SERIES_MEMORY),
    difference("add", "TS.INFO t", SERIES_MEMORY),
    difference("multi", "TS.INFO m:10", SERIES_MEMORY),
    difference("rules", "TS.INFO src", SERIES_MEMORY),
    difference("rules", "TS.INFO dst", SERIES_MEMORY),
    difference("rules", "TS.INFO dst2", SERIES_MEMORY),
    difference("policy", "TS.INFO ret", SERIES_MEMORY),
    difference(
        "debug",
        "JSON.DEBUG HELP",
        "the text is made of the rows, as that of every container",
    ),
    difference(
        "debug",
        "JSON.DEBUG NOPE",
        "the error is that of every container",
    ),
    difference(
        "debug",
        "JSON.DEBUG DEPTH",
        "the error is that of every container",
    ),
    difference(
        "life",
        "DEBUG DIGEST-VALUE num num",
        "a digest of a module's value is the module's own",
    ),
    difference(
        "dump",
        "COMMAND GETKEYS JSON.MGET a b $",
        "all keys are told, as clients of a cluster need them",
    ),
    difference(
        "gis",
        "GIS.CONTAINS area POLYGON ((0 0, 50 0, 50 50, 0 50, 0 0))",
        INSIDE,
    ),
    difference(
        "gis",
        "GIS.CONTAINS area POLYGON ((0 0, 50 0, 50 50, 0 50, 0 0)) WITHOUTWKT",
        INSIDE,
    ),
];

const DIFFERENCES_MAX: usize = 40;

/// Payloads that have other bytes here, each with its reason.
const OTHER_BYTES: &[(&str, &str)] = &[
    (
        "exhash",
        "no order of fields, and the name of the key is not in the payload",
    ),
    ("topk", "addresses, and counts that a draw has lowered"),
];

/// Payloads of values that were drawn at random: the same calls make another value.
const DRAWN: &[&str] = &["topk"];

/// A recorded call.
struct Call {
    group: String,
    words: Vec<String>,
    reply: Json,
}

fn data(name: &str) -> Vec<Json> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/types");
    let text = fs::read_to_string(path.join(name)).expect("the records are there");
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("a line is JSON")
}

fn words_of(json: &Json) -> Vec<String> {
    let words = json.as_array().expect("a call").iter();
    words
        .map(|word| word.as_str().expect("a word").to_owned())
        .collect()
}

fn calls(file: &str, proto: u8) -> Vec<Call> {
    let lines = data(&format!("{file}-resp{proto}.jsonl"));
    let calls = lines.into_iter().map(|line| Call {
        group: line[0].as_str().expect("a group").to_owned(),
        words: words_of(&line[1]),
        reply: line[2].clone(),
    });
    calls.collect()
}

/// Returns the family to which a group of a file belongs.
fn family_of(file: &str, group: &str) -> &'static Family {
    let mut families = FAMILIES.iter();
    let found = families.find(|family| family.file == file && family.groups.contains(&group));
    found.unwrap_or_else(|| panic!("the group {group} of {file} belongs to no family"))
}

/// Returns true if the calls of a family are made.
fn is_replayed(family: &Family, against: Option<SocketAddr>) -> bool {
    match (against, env::var("REDLINE_REPLAY_FAMILIES")) {
        (Some(_), Ok(families)) => families.split(',').any(|name| name == family.name),
        (Some(_), Err(_)) => true,
        (None, _) => !UNBUILT.contains(&family.name),
    }
}

fn against() -> Option<SocketAddr> {
    let address = env::var("REDLINE_REPLAY_AGAINST").ok()?;
    Some(
        address
            .parse()
            .expect("REDLINE_REPLAY_AGAINST is address:port"),
    )
}

fn text_of(bytes: &[u8]) -> Json {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let mut hex = String::new();
            for byte in bytes {
                write!(hex, "{byte:02x}").expect("a string takes everything");
            }
            serde_json::json!({ "x": hex })
        }
    }
}

/// Returns a reply in the form of the records.
fn told(value: &Value) -> Json {
    use serde_json::json;
    let all = |values: &[Value]| values.iter().map(told).collect::<Vec<_>>();
    match value {
        Value::Simple(text) => json!({ "s": text_of(text) }),
        Value::Error(text) | Value::BulkError(text) => json!({ "e": text_of(text) }),
        Value::Integer(number) => json!(number),
        Value::Bulk(bytes) => text_of(bytes),
        Value::Array(values) => all(values).into(),
        Value::NullBulk | Value::Null => Json::Null,
        Value::NullArray => json!({ "nilarray": 1 }),
        Value::Boolean(truth) => json!({ "bool": truth }),
        Value::Double(text) => json!({ "d": text }),
        Value::BigNumber(text) => json!({ "big": text }),
        Value::Map(pairs) => {
            let pairs = pairs
                .iter()
                .map(|(key, value)| json!([told(key), told(value)]));
            json!({ "map": pairs.collect::<Vec<_>>() })
        }
        Value::Set(values) => json!({ "set": all(values) }),
        other => json!({ "other": format!("{other:?}") }),
    }
}

/// Puts what has no order into one: lists, and what JSON.GET answers of several paths, whose members come as in a hash
/// table.
fn ordered(words: &[String], mut reply: Json) -> Json {
    let name = words[0].to_ascii_uppercase();
    let is_path = |word: &&String| word.starts_with(['$', '.']);
    if name == "JSON.GET"
        && words.iter().skip(2).filter(is_path).count() > 1
        && let Json::String(text) = &reply
        && let Ok(object @ Json::Object(_)) = serde_json::from_str(text)
    {
        return object;
    }
    let has = |word: &str| words.iter().any(|own| own == word);
    for (_, path, chunk) in UNORDERED.iter().filter(|(of, ..)| *of == name) {
        let chunk = chunk + usize::from(has("WITHDIST")) - usize::from(has("WITHOUTWKT"));
        let mut place = Some(&mut reply);
        for at in *path {
            place = place.and_then(|place| place.get_mut(*at));
        }
        let list = match place {
            Some(Json::Array(list)) => list,
            Some(Json::Object(object)) => match object.values_mut().next() {
                Some(Json::Array(list)) => list,
                _ => continue,
            },
            _ => continue,
        };
        let mut chunks: Vec<Vec<Json>> = list.chunks(chunk).map(<[Json]>::to_vec).collect();
        chunks.sort_by_key(|chunk| Json::from(chunk.clone()).to_string());
        *list = chunks.concat();
    }
    reply
}

fn call(client: &mut Client, words: &[String]) -> Value {
    client.call(words).expect("a reply")
}

#[test]
fn replies_are_those_of_the_real_modules() {
    let against = against();
    let mut met = vec![0; DIFFERENCES.len()];
    let mut faults = Vec::new();
    let mut made: BTreeMap<&str, usize> = BTreeMap::new();
    for (file, proto) in FILES {
        let server = start(Settings {
            enable_debug_command: Permission::Yes,
            ..settings(1)
        });
        let own = SocketAddr::from(([127, 0, 0, 1], server.port()));
        let mut client = Client::connect(against.unwrap_or(own)).expect("the server listens");
        if against.is_some() {
            call(&mut client, &["FLUSHALL".into()]);
        }
        call(&mut client, &["HELLO".into(), proto.to_string()]);
        for Call {
            group,
            words,
            reply,
        } in calls(file, *proto)
        {
            let family = family_of(file, &group);
            if !is_replayed(family, against) {
                continue;
            }
            *made.entry(family.name).or_default() += 1;
            let found = ordered(&words, told(&call(&mut client, &words)));
            let line = words.join(" ");
            let known = DIFFERENCES
                .iter()
                .position(|known| known.group == group && known.call == line);
            if found == ordered(&words, reply.clone()) {
                continue;
            }
            match known {
                Some(known) => met[known] += 1,
                None => faults.push(format!(
                    "{file} resp{proto} {group}: {line}\n  recorded {reply}\n  here     {found}"
                )),
            }
        }
    }
    for family in FAMILIES
        .iter()
        .filter(|family| is_replayed(family, against))
    {
        assert!(made.contains_key(family.name), "{}: no call", family.name);
    }
    assert!(
        faults.is_empty(),
        "{} replies differ:\n{}",
        faults.len(),
        faults.join("\n")
    );
    for (known, times) in DIFFERENCES.iter().zip(met) {
        let (group, call) = (known.group, known.call);
        assert!(
            times > 0 || against.is_some(),
            "{group}: {call}: no difference any more ({})",
            known.reason
        );
    }
}

#[test]
fn differences_are_few_and_families_that_are_built_are_replayed() {
    const { assert!(DIFFERENCES.len() <= DIFFERENCES_MAX) };
    for family in FAMILIES {
        let is_there = redline_spec::lookup(family.command.as_bytes()).is_some();
        assert_eq!(
            is_there,
            !UNBUILT.contains(&family.name),
            "{}: its name in UNBUILT does not tell",
            family.name
        );
    }
    let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
    assert!(UNBUILT.iter().all(|name| names.contains(name)));
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn payloads_of_the_real_modules_are_restored() {
    let server = start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(1)
    });
    let own = SocketAddr::from(([127, 0, 0, 1], server.port()));
    let mut client = Client::connect(own).expect("the server listens");
    let mut faults = Vec::new();
    for line in data("dumps.jsonl") {
        let label = line[0].as_str().expect("a label");
        let mut families = FAMILIES.iter();
        let family = families.find(|family| family.dumps.contains(&label));
        let family = family.unwrap_or_else(|| panic!("{label} belongs to no family"));
        if UNBUILT.contains(&family.name) {
            continue;
        }
        let recorded = bytes_of(line[2].as_str().expect("a payload"));
        client.call(&["FLUSHALL"]).expect("a reply");
        let key = if label == "ts-rule-target" { "d" } else { "k" };
        for words in line[1].as_array().expect("calls") {
            let reply = call(&mut client, &words_of(words));
            assert!(!matches!(reply, Value::Error(_)), "{label}: {reply:?}");
        }
        let dump = |client: &mut Client, key: &str| match client.call(&["DUMP", key]) {
            Ok(Value::Bulk(payload)) => payload,
            other => panic!("{label}: {other:?}"),
        };
        let own = dump(&mut client, key);
        // Without the version and the checksum, which are those of the server.
        let body = |payload: &[u8]| payload[..payload.len() - 10].to_vec();
        let differs = body(&own) != body(&recorded);
        if differs != OTHER_BYTES.iter().any(|(known, _)| *known == label) {
            faults.push(format!("{label}: bytes differ: {differs}"));
        }
        let digest = |client: &mut Client| {
            let reply = client.call(&["DEBUG", "DIGEST-VALUE", key]);
            told(&reply.expect("a reply"))
        };
        let made = digest(&mut client);
        client.call(&["DEL", key]).expect("a reply");
        let words = [b"RESTORE", key.as_bytes(), b"0", &recorded];
        let reply = client.call(&words).expect("a reply");
        if !matches!(&reply, Value::Simple(text) if text == b"OK") {
            faults.push(format!("{label}: RESTORE: {reply:?}"));
            continue;
        }
        let is_drawn = DRAWN.contains(&label);
        let (restored, dumped) = (digest(&mut client), dump(&mut client, key));
        if !is_drawn && restored != made {
            faults.push(format!("{label}: the restored key is another one"));
        }
        client.call(&["DEL", key]).expect("a reply");
        let words = [b"RESTORE", key.as_bytes(), b"0", &dumped];
        client.call(&words).expect("a reply");
        if digest(&mut client) != restored || dump(&mut client, key) != dumped {
            faults.push(format!("{label}: its own payload is that of another key"));
        } else if !is_drawn && dumped != own {
            faults.push(format!("{label}: the restored key has another payload"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
