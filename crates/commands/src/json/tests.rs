//! Events, changes that fail as a whole, limits and hostile arguments of JSON's commands. Their replies are compared with those
//! of the real module, call by call, in the server's `types_replay`.

use redline_resp::Proto;
use redline_types::Json;

use crate::testing::TestDb;

fn db_with(text: &str) -> TestDb {
    let mut db = TestDb::new();
    assert_eq!(db.run(&["JSON.SET", "k", "$", text]), "+OK");
    db.events();
    db
}

fn text(db: &mut TestDb) -> String {
    let reply = db.run(&["JSON.GET", "k"]);
    reply.split_once('|').expect("a bulk").1.to_owned()
}

#[test]
fn each_change_has_its_event_and_what_changes_nothing_has_none() {
    let mut db = db_with(r#"{"n":1,"s":"x","b":true,"a":[1,2,3]}"#);
    for (call, event) in [
        ("JSON.SET k $.new 1", "json.set k"),
        ("JSON.MERGE k $ {\"m\":1}", "json.merge k"),
        ("JSON.NUMINCRBY k $.n 1", "json.numincrby k"),
        ("JSON.NUMMULTBY k $.n 2", "json.nummultby k"),
        ("JSON.NUMPOWBY k $.n 2", "json.numpowby k"),
        ("JSON.STRAPPEND k $.s \"y\"", "json.strappend k"),
        ("JSON.TOGGLE k $.b", "json.toggle k"),
        ("JSON.ARRAPPEND k $.a 4", "json.arrappend k"),
        ("JSON.ARRINSERT k $.a 0 0", "json.arrinsert k"),
        ("JSON.ARRPOP k $.a", "json.arrpop k"),
        ("JSON.ARRTRIM k $.a 0 1", "json.arrtrim k"),
        ("JSON.MSET k $.n 7", "json.mset k"),
        ("JSON.CLEAR k $.a", "json.clear k"),
        ("JSON.DEL k $.a", "json.del k"),
        ("JSON.FORGET k", "json.del k"),
    ] {
        db.words(call);
        assert_eq!(db.events(), [event], "{call}");
        assert_eq!(db.changes, 1, "{call}");
    }
    let mut db = db_with(r#"{"s":"x","a":[]}"#);
    for call in [
        "JSON.SET k $.s 1 NX",
        "JSON.SET k $.x.y 1",
        "JSON.NUMINCRBY k $.s 1",
        "JSON.TOGGLE k $.s",
        "JSON.ARRPOP k $.a",
        "JSON.CLEAR k $.a",
        "JSON.DEL k $.none",
        "JSON.STRAPPEND k $.a \"y\"",
    ] {
        db.words(call);
        assert_eq!(db.changes, 0, "{call}");
        assert!(db.events().is_empty(), "{call}");
    }
}

#[test]
fn what_fails_for_one_value_changes_none() {
    let mut db = db_with(r#"{"a":[1],"b":[1,2,3],"n":1,"m":1e308}"#);
    let before = text(&mut db);
    for (call, error) in [
        ("JSON.ARRINSERT k $.* 2 0", "-ERR index out of bounds"),
        ("JSON.NUMMULTBY k $.* 1e9", "-result is not a number"),
        (
            "JSON.MSET k $.n 5 none $.a 1",
            "-ERR new objects must be created at the root",
        ),
        (
            "JSON.MSET k $.n 5 k $.a[7] 1",
            "-ERR array index out of range",
        ),
    ] {
        assert_eq!(db.words(call), error, "{call}");
        assert_eq!(text(&mut db), before, "{call}");
    }
}

#[test]
fn indexes_at_the_ends_of_64_bits() {
    let mut db = db_with("[1,2,3]");
    for (call, reply) in [
        (
            "JSON.ARRINSERT k $ 9223372036854775807 0",
            "-ERR index out of bounds",
        ),
        (
            "JSON.ARRINSERT k $ -9223372036854775808 0",
            "-ERR index out of bounds",
        ),
        (
            "JSON.ARRINSERT k $ 9223372036854775808 0",
            "-Couldn't parse as integer",
        ),
        (
            "JSON.ARRINDEX k . 3 -9223372036854775808 9223372036854775807",
            ":2",
        ),
        (
            "JSON.ARRINDEX k . 3 9223372036854775807 -9223372036854775808",
            ":-1",
        ),
        (
            "JSON.ARRTRIM k . -9223372036854775808 9223372036854775807",
            ":3",
        ),
        ("JSON.ARRPOP k . 9223372036854775807", "$1|3"),
        ("JSON.ARRPOP k . -9223372036854775808", "$1|1"),
        (
            "JSON.ARRTRIM k . 9223372036854775807 -9223372036854775808",
            ":0",
        ),
    ] {
        assert_eq!(db.words(call), reply, "{call}");
    }
}

#[test]
fn a_document_cannot_be_nested_so_that_its_text_is_not_read_again() {
    let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
    let mut db = db_with(&deep);
    let innermost = format!("${}", "[0]".repeat(126));
    const REFUSED: &str = "-ERR recursion limit exceeded";
    assert_eq!(db.run(&["JSON.ARRAPPEND", "k", &innermost, "[]"]), REFUSED);
    assert_eq!(
        db.run(&["JSON.ARRINSERT", "k", &innermost, "0", "{}"]),
        REFUSED
    );
    assert_eq!(db.run(&["JSON.SET", "k", &innermost, "[[]]"]), REFUSED);
    assert_eq!(
        db.run(&["JSON.MERGE", "k", &innermost, r#"{"a":{}}"#]),
        REFUSED
    );
    assert_eq!(db.run(&["JSON.ARRAPPEND", "k", &innermost, "1"]), "*1|:1");
    let kept = text(&mut db);
    assert_eq!(db.run(&["JSON.SET", "copy", "$", &kept]), "+OK");
}

#[test]
fn a_string_stays_below_the_limit_on_bulks() {
    let mut db = db_with(r#"["abc","abcdefgh"]"#);
    db.bulk_bytes_max = 10;
    let error = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    assert_eq!(db.run(&["JSON.STRAPPEND", "k", "$[*]", "\"xyz\""]), error);
    assert_eq!(text(&mut db), r#"["abc","abcdefgh"]"#);
    assert_eq!(
        db.run(&["JSON.STRAPPEND", "k", "$[*]", "\"xy\""]),
        "*2|:5|:10"
    );
}

#[test]
fn values_that_a_path_finds_in_each_other_are_changed_one_after_the_other() {
    // Each insertion moves those that were found behind it: what stands there then is changed, or left alone.
    let mut db = db_with("[[1,[2,[3]]],[[4]]]");
    for (call, result) in [
        ("JSON.ARRINSERT k $..* 0 []", "[[[],1,[2,[3]]],[[[]],[4]]]"),
        ("JSON.ARRPOP k $..* 0", "[[1,[2,[3]]],[[]]]"),
        ("JSON.ARRTRIM k $..* 0 0", "[[1],[[]]]"),
    ] {
        db.words(call);
        assert_eq!(text(&mut db), result, "{call}");
    }
    assert_eq!(db.words("JSON.DEL k $..*"), ":2");
    assert_eq!(db.words("JSON.GET k"), "$-1");
}

#[test]
fn a_deletion_moves_no_value_that_is_still_to_be_deleted() {
    let mut db = db_with(r#"[{"a":0},{"x":1},[{"x":1}],[{"keep":1}]]"#);
    assert_eq!(db.words("JSON.DEL k $..[?(@.x==1)]"), ":2");
    assert_eq!(text(&mut db), r#"[{"a":0},[],[{"keep":1}]]"#);
}

/// A document in which some values are marked.
enum Tree {
    Leaf,
    Marked,
    List(Vec<Tree>),
    Object(Vec<Tree>),
}

impl Tree {
    fn random(random: &mut fastrand::Rng, depth: u32) -> Tree {
        let kind = random.u32(..if depth == 0 { 2 } else { 6 });
        let inner = |random: &mut fastrand::Rng| {
            let len = random.usize(..4);
            (0..len).map(|_| Tree::random(random, depth - 1)).collect()
        };
        match kind {
            0 => Tree::Leaf,
            1 => Tree::Marked,
            2 | 3 => Tree::List(inner(random)),
            _ => Tree::Object(inner(random)),
        }
    }

    /// Returns the text, with the marked values or without.
    fn text(&self, marked: bool) -> String {
        let parts = |inner: &[Tree], named: bool| {
            let parts = inner.iter().enumerate();
            let parts = parts.filter(|(_, part)| marked || !matches!(part, Tree::Marked));
            let parts = parts.map(|(at, part)| match named {
                true => format!("\"n{at}\":{}", part.text(marked)),
                false => part.text(marked),
            });
            parts.collect::<Vec<_>>().join(",")
        };
        match self {
            Tree::Leaf => "0".to_owned(),
            Tree::Marked => r#"{"x":1,"y":[{"x":1}]}"#.to_owned(),
            Tree::List(inner) => format!("[{}]", parts(inner, false)),
            Tree::Object(inner) => format!("{{{}}}", parts(inner, true)),
        }
    }
}

#[test]
fn what_is_deleted_is_what_the_path_finds() {
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..300 {
        let tree = Tree::List(vec![Tree::Leaf, Tree::random(&mut random, 4)]);
        let mut db = db_with(&tree.text(true));
        db.words("JSON.DEL k $..[?(@.x==1)]");
        // The members of an object may change their order.
        let parsed = |text: &str| Json::parse(text.as_bytes()).expect("a document");
        let (left, expected) = (parsed(&text(&mut db)), parsed(&tree.text(false)));
        assert!(left.root() == expected.root(), "{}", tree.text(true));
    }
}

#[test]
fn values_are_expanded_in_resp3() {
    let mut db = db_with(r#"{"a":[1,{"b":null}],"d":2.5}"#);
    db.proto = Proto::Resp3;
    let call = |db: &mut TestDb, format| db.run(&["JSON.GET", "k", "FORMAT", format, "$"]);
    let all = "*1|*1|%2|$1|a|*2|:1|%1|$1|b|_|$1|d|,2.5";
    assert_eq!(call(&mut db, "EXPAND"), all);
    let one = "*1|*1|%2|$1|a|$14|[1,{\"b\":null}]|$1|d|,2.5";
    assert_eq!(call(&mut db, "expand1"), one);
}

#[test]
fn a_path_that_looks_at_too_many_values_is_an_error() {
    let mut db = db_with(&format!("[{}]", vec!["[[1,2],[3,4]]"; 2_000].join(",")));
    let error = "-ERR the path looks at too many values";
    for call in [
        "JSON.GET",
        "JSON.TYPE",
        "JSON.DEL",
        "JSON.CLEAR",
        "JSON.ARRLEN",
        "JSON.ARRPOP",
    ] {
        assert_eq!(db.run(&[call, "k", "$[?($..*)]"]), error, "{call}");
    }
}
