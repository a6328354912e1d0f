//! The tree beside `serde_json`'s values as the model, its memory, and hostile texts and paths.

use serde_json::{Map, Value as Model};

use super::*;

fn parsed(text: &str) -> Json {
    Json::parse(text.as_bytes()).expect(text)
}

fn text_of(json: &Json) -> String {
    String::from_utf8(json.to_text()).expect("JSON is UTF-8")
}

fn path(text: &str) -> Path<'_> {
    Path::parse(text.as_bytes()).expect(text)
}

fn found(json: &Json, text: &str) -> Vec<String> {
    let places = json.select(&path(text)).expect("the search ends");
    let texts = places.into_iter().map(|place| {
        let mut out = Vec::new();
        json.write(place, &Layout::default(), 0, &mut out);
        String::from_utf8(out).expect("JSON is UTF-8")
    });
    texts.collect()
}

const NONE: [&str; 0] = [];

#[test]
fn numbers_keep_their_kind_and_their_text() {
    for text in [
        "0",
        "-0.0",
        "1",
        "-7",
        "1152921504606846975",
        "1152921504606846976",
        "-1152921504606846977",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "18446744073709551615",
        "0.1",
        "1.0",
        "2.5",
        "1e300",
        "1e-7",
        "1.1e16",
        "5e-324",
    ] {
        assert_eq!(text_of(&parsed(text)), text);
    }
    assert_eq!(text_of(&parsed("1e3")), "1000.0");
    assert_eq!(
        text_of(&parsed("18446744073709551616")),
        "1.8446744073709552e19"
    );
    assert_eq!(text_of(&parsed("1e-400")), "0.0");
    assert_eq!(text_of(&parsed("-0")), "-0.0");
}

#[test]
fn texts_that_are_no_json_are_refused_with_their_place() {
    let error = |text: &[u8]| Json::parse(text).expect_err("refused").to_string();
    assert_eq!(error(b"1e400"), "number out of range at line 1 column 5");
    assert_eq!(error(b"[1,]"), "trailing comma at line 1 column 4");
    assert!(error(&vec![b'['; 10_000_000]).starts_with("recursion limit exceeded"));
    assert!(error(b"\"\\ud800\"").contains("hex escape"));
    assert!(error(b"\"\xff\"").contains("unicode"));
    assert!(error(b"\"a\0\"").starts_with("control character"));
    assert_eq!(
        text_of(&parsed("\"\\u0000\\u001f\\/\"")),
        "\"\\u0000\\u001f/\""
    );
}

#[test]
fn equal_names_are_stored_once_and_the_last_value_stays() {
    assert_eq!(
        text_of(&parsed(r#"{"a":1,"b":2,"a":3}"#)),
        r#"{"a":3,"b":2}"#
    );
    let member = r#"{"a long name of a member":1}"#;
    let one = parsed(&format!("[{member}]"));
    let many = parsed(&format!("[{}]", [member; 100].join(",")));
    assert_eq!(one.text.len(), many.text.len());
    let members = (0..200).map(|n| format!("\"n{}\":{n}", n % 100));
    let wide = parsed(&format!("{{{}}}", members.collect::<Vec<_>>().join(",")));
    let Item::Object(object) = wide.root() else {
        panic!("an object");
    };
    assert_eq!(object.len(), 100);
    assert!(object.get(b"n7") == Some(Item::Integer(107)));
}

fn random_text(rng: &mut fastrand::Rng) -> String {
    let chars = ['a', 'b', '"', '\\', '\n', '\u{1}', 'é', '中', '😀', '/'];
    (0..rng.usize(..12))
        .map(|_| chars[rng.usize(..chars.len())])
        .collect()
}

fn random_model(rng: &mut fastrand::Rng, depth: usize) -> Model {
    match rng.u8(..if depth == 0 { 6 } else { 9 }) {
        0 => Model::Null,
        1 => rng.bool().into(),
        2 => rng.i64(..).into(),
        3 => rng.i64(-9..9).into(),
        4 => Model::from(f64::from(rng.i32(..)) / f64::from(rng.i32(1..1000))),
        5 => random_text(rng).into(),
        6 | 7 => {
            let len = rng.usize(..6);
            (0..len).map(|_| random_model(rng, depth - 1)).collect()
        }
        _ => {
            let members = (0..rng.usize(..24)).map(|_| {
                let name = format!("{}{}", rng.u8(..40), random_text(rng));
                (name, random_model(rng, depth - 1))
            });
            Model::Object(members.collect::<Map<_, _>>())
        }
    }
}

fn model_of(json: &Json) -> Model {
    serde_json::from_slice(&json.to_text()).expect("our text is JSON")
}

/// Changes the value of a member of both, if it is an array or a string.
fn change_inside(
    json: &mut Json,
    place: Place,
    model: &mut Model,
    given: Model,
    rng: &mut fastrand::Rng,
) {
    let value = parsed(&given.to_string());
    match model {
        Model::Array(array) => {
            let at = rng.usize(..=array.len());
            array.insert(at, given);
            assert_eq!(json.array_insert(place, at, &[&value]), Some(array.len()));
            let keep = rng.usize(..=at)..array.len();
            *array = array[keep.clone()].to_vec();
            assert_eq!(json.array_keep(place, keep), Some(array.len()));
            if !array.is_empty() {
                let at = rng.usize(..array.len());
                array.remove(at);
                assert!(json.array_remove(place, at));
            }
        }
        Model::String(text) => {
            text.push_str("more");
            assert_eq!(json.append(place, b"more"), Some(text.len()));
        }
        _ => {}
    }
}

#[test]
fn random_changes_do_what_they_do_to_the_model() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..60 {
        let mut model = Map::new();
        let mut json = parsed("{}");
        for _ in 0..120 {
            let given = random_model(&mut rng, 2);
            let name = format!("name {}", rng.u8(..40));
            match rng.u8(..6) {
                0..=2 => {
                    let value = parsed(&given.to_string());
                    model.insert(name.clone(), given);
                    assert!(json.object_set(Place::ROOT, &name, &value));
                }
                3 => {
                    let was_there = model.remove(&name).is_some();
                    assert_eq!(json.object_remove(Place::ROOT, name.as_bytes()), was_there);
                }
                4 => {
                    let place = json.follow(&[Hop::Member(name.as_str().into())]);
                    assert_eq!(place.is_some(), model.contains_key(&name));
                    if let (Some(place), Some(inner)) = (place, model.get_mut(&name)) {
                        change_inside(&mut json, place, inner, given, &mut rng);
                    }
                }
                _ => {
                    let copy = parsed(&Model::Object(model.clone()).to_string());
                    assert!(copy.root() == json.root(), "equal, whatever the order");
                }
            }
            json.settle();
            assert_eq!(model_of(&json), Model::Object(model.clone()));
        }
    }
}

#[test]
fn what_changes_leave_behind_is_given_back() {
    let mut json = parsed(r#"{"list":[],"text":"","n":0}"#);
    let element = parsed(r#"{"a name of some length":"and a text of some"}"#);
    for n in 0..20_000 {
        let list = json.follow(&[Hop::Member("list".into())]).expect("there");
        json.array_insert(list, 0, &[&element]);
        json.array_keep(list, 0..3);
        let text = json.follow(&[Hop::Member("text".into())]).expect("there");
        json.append(text, b"x");
        if n % 50 == 0 {
            json.set(text, &Json::of_string(""));
        }
        json.settle();
    }
    assert!(json.heap_bytes() < 8 * 1024, "{}", json.heap_bytes());
}

#[test]
fn a_patch_is_merged_as_the_rfc_has_it() {
    // The cases of appendix A of RFC 7396.
    for (target, patch, result) in [
        (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
        (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
        (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
        (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
        (
            r#"{"a":{"b":"c"}}"#,
            r#"{"a":{"b":"d","c":null}}"#,
            r#"{"a":{"b":"d"}}"#,
        ),
        (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
        (r#"{"a":"foo"}"#, "null", "null"),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
        ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
    ] {
        let mut json = parsed(target);
        json.merge(Place::ROOT, &parsed(patch));
        assert_eq!(text_of(&json), result, "{target} {patch}");
    }
}

#[test]
fn paths_find_values_in_order() {
    let json = parsed(
        r#"{"a":[1,2,{"b":3}],"o":{"b":[4],"c":null},"s":"x","rows":[{"n":1,"t":"ab"},{"n":2,"p":"^A"}]}"#,
    );
    let whole = text_of(&json);
    let cases: [(&str, &[&str]); 17] = [
        ("$", &[&whole]),
        ("$..b", &["3", "[4]"]),
        ("$.a[0,2,0]", &["1", r#"{"b":3}"#, "1"]),
        ("$.a[-2:]", &["2", r#"{"b":3}"#]),
        ("$.a[::2]", &["1", r#"{"b":3}"#]),
        ("$['o','s']", &[r#"{"b":[4],"c":null}"#, "\"x\""]),
        ("$.rows[?(@.n>1 && @.p || @.t=='ab')].n", &["1", "2"]),
        ("$.rows[?((@.n==2))].n", &["2"]),
        ("$.rows[?(@.t=~'^a.$')].n", &["1"]),
        ("$.rows[?(@.t=~'(')].n", &[]),
        ("$.rows[?($.s=='x')].n", &["1", "2"]),
        ("$.o[?(@==null)]", &["null"]),
        ("$..[?(@.n)].n", &["1", "2"]),
        (".o.b[0]", &["4"]),
        ("/o/b/0", &["4"]),
        ("/o/b/1", &[]),
        ("/", &[&whole]),
    ];
    for (text, expected) in cases {
        assert_eq!(found(&json, text), expected, "{text}");
    }
}

#[test]
fn ways_lead_to_what_a_path_finds() {
    let json = parsed(r#"{"a":[1,{"b":{"b":2}}],"b":3}"#);
    for text in ["$..b", "$..*", "$.a[*]", "$.a[1].b", "$..[?(@.b)]"] {
        let ways = json.ways(&path(text)).expect("the search ends");
        let places: Vec<Place> = ways.iter().filter_map(|way| json.follow(way)).collect();
        assert!(!places.is_empty());
        assert_eq!(Ok(places), json.select(&path(text)), "{text}");
    }
}

#[test]
fn searches_of_hostile_paths_end() {
    let wide = parsed(&format!("[{}]", vec!["[[1,2],[3,4]]"; 2_000].join(",")));
    assert!(wide.select(&path("$..*")).is_ok());
    assert_eq!(wide.select(&path("$[?($..*)]")), Err(Exhausted));
    let deep = parsed(&format!("{}{}", "[".repeat(127), "]".repeat(127)));
    assert_eq!(
        deep.select(&path(&format!("${}", "..*".repeat(20)))),
        Err(Exhausted)
    );
    let steps = format!("${}", ".a".repeat(10_000));
    assert_eq!(wide.select(&path(&steps)), Ok(vec![]));
    let huge = "$[99999999999999999999:-99999999999999999999:99999999999999999999]";
    assert_eq!(found(&wide, huge), NONE);
    // A pattern that would take much memory, and one that would take long if it were tried by going back.
    let texts = parsed(&format!("[\"{}!\"]", "a".repeat(50_000)));
    assert_eq!(found(&texts, "$[?(@=~'(((a{1000}){1000}){1000})')]"), NONE);
    assert_eq!(found(&texts, "$[?(@=~'^(a+)+$')]"), NONE);
}

#[test]
fn a_search_that_finds_nothing_looked_without_end() {
    let rows = |len: usize, inner: &str| vec![inner; len].join(",");
    // Names that are not there, in each of many objects.
    let names: Vec<String> = (0..1_500).map(|n| format!("'n{n}'")).collect();
    let names = format!("$[*][{}]", names.join(","));
    let objects = parsed(&format!("[{}]", rows(1_500, "{}")));
    assert_eq!(objects.select(&path(&names)), Err(Exhausted));
    // Two large values that are equal, again and again.
    let zeros = rows(1_500, "0");
    let equal = parsed(&format!(r#"{{"l":[{zeros}],"v":[{zeros}],"w":[{zeros}]}}"#));
    assert_eq!(equal.select(&path("$.l[?($.v==$.w)]")), Err(Exhausted));
    assert_eq!(equal.select(&path("$.v[?($.l!=$.w)]")), Err(Exhausted));
    // A long text, and a pattern that it does not match.
    let text = "y".repeat(200_000);
    let long = parsed(&format!(r#"{{"l":[{}],"t":"{text}"}}"#, rows(400, "0")));
    for filter in [r#"$.l[?($.t=~"x")]"#, "$.l[?($.t<$.t)]"] {
        assert_eq!(long.select(&path(filter)), Err(Exhausted), "{filter}");
    }
}

#[test]
fn filters_that_begin_at_the_root_again_do_not_exhaust_the_stack() {
    let deep = parsed(&format!("{}1{}", "[".repeat(127), "]".repeat(127)));
    let steps = "[0]".repeat(126);
    let nested = |depth| {
        let open = format!("${steps}[?(").repeat(depth);
        let text = format!("{open}@>0{}", ")]".repeat(depth));
        Path::parse(text.as_bytes()).map(|path| deep.select(&path).map(|places| places.len()))
    };
    assert_eq!(nested(1).ok(), Some(Ok(1)));
    // A filter in parentheses counts twice.
    assert_eq!(nested(60).ok(), Some(Err(Exhausted)));
    assert!(nested(65).is_err());
    let current = |depth| {
        let open = "[?(@".repeat(depth);
        format!("${open}{}", ")]".repeat(depth))
    };
    assert_eq!(
        deep.select(&path(&current(60))).map(|places| places.len()),
        Ok(1)
    );
}

#[test]
fn patterns_of_a_document_are_few_or_the_same() {
    let rows = |pattern: fn(usize) -> String| {
        let rows = (0..5_000).map(|n| format!(r#"{{"t":"a{n}","p":"{}"}}"#, pattern(n)));
        parsed(&format!("[{}]", rows.collect::<Vec<_>>().join(",")))
    };
    let search = path("$[?(@.t=~@.p)]");
    let same = rows(|_| "^a.*7$".to_owned());
    assert_eq!(same.select(&search).map(|places| places.len()), Ok(500));
    assert_eq!(rows(|n| format!("a{n}b")).select(&search), Err(Exhausted));
    let many = |count| format!("$[?({}@.n)]", "@.t=~'a' || ".repeat(count));
    assert!(Path::parse(many(64).as_bytes()).is_ok());
    assert!(Path::parse(many(65).as_bytes()).is_err());
}

#[test]
fn hostile_paths_are_refused() {
    let nested = |depth| format!("$[?{}@>1{}]", "(".repeat(depth), ")".repeat(depth));
    assert!(Path::parse(nested(100).as_bytes()).is_ok());
    let error = Path::parse(nested(100_000).as_bytes()).expect_err("too deep");
    assert!(error.to_string().contains("128"), "{error}");
    for text in [
        "$[", "$['", "$['\\", "$[?", "$[?(", "$[?(@", "$[?(@==", "$[?(@=='", "$..", "$.a[1,",
        "$[1:2", "é[", "$[::0]",
    ] {
        assert!(Path::parse(text.as_bytes()).is_err(), "{text}");
    }
    assert!(Path::parse(b"$.a\xff").is_err());
}

#[test]
fn indexes_before_the_first_element_are_the_first() {
    let json = parsed("[1,2,3]");
    assert_eq!(found(&json, "$[3]"), NONE);
    assert_eq!(found(&json, "$[-3]"), ["1"]);
    assert_eq!(found(&json, "$[-9]"), ["1"]);
    assert_eq!(found(&json, "$[-9223372036854775808]"), ["1"]);
    assert_eq!(found(&parsed("[]"), "$[-1]"), NONE);
    assert_eq!(found(&json, "$[2:1]"), NONE);
}
