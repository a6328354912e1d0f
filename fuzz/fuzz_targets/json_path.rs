//! Any text as a path: it parses or has an error with a place in it, its search ends, and ways lead to what it finds.
//!
//! Up to the first zero byte it is the path, behind it a document, if that is JSON.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_types::{Json, json::Path};

const DOCUMENT: &[u8] =
    br#"{"a":[1,2,{"b":3.5}],"o":{"b":[4],"c":null,"t":"ab"},"rows":[{"n":1},{"n":2,"p":"^A"}]}"#;

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let text = parts.next().unwrap_or_default();
    let given = parts.next().and_then(|text| Json::parse(text).ok());
    let json = given.unwrap_or_else(|| Json::parse(DOCUMENT).expect("a document"));
    let Ok(path) = Path::parse(text) else {
        return;
    };
    let (places, ways) = (json.select(&path), json.ways(&path));
    let (Ok(places), Ok(ways)) = (places, ways) else {
        return;
    };
    let followed: Vec<_> = ways.iter().filter_map(|way| json.follow(way)).collect();
    assert_eq!(followed, places);
    assert!(!path.is_static() || places.len() <= 1);
    let planted = cfg!(feature = "planted") && places.len() == 3;
    assert!(!planted, "the planted fault");
    let again = Path::parse(path.fixed().as_bytes()).expect("it is a path");
    assert_eq!(json.select(&again), Ok(places));
});
