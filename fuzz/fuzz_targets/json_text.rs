//! Any text as a JSON document: what is read has a text that reads as the same, and whatever is changed in it, its account
//! of memory and its text stay sound.
//!
//! The first byte is the length of the text; the rest are changes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_types::{
    DataType, Json,
    json::{Item, Path, Place},
};

fuzz_target!(|data: &[u8]| {
    let Some((&len, rest)) = data.split_first() else {
        return;
    };
    let (text, changes) = rest.split_at(usize::from(len).min(rest.len()));
    let Ok(mut json) = Json::parse(text) else {
        return;
    };
    check(&json);
    let values = [
        json.clone(),
        Json::of_string("a longer text"),
        Json::of_integer(-1),
    ];
    let all = Path::parse(b"$..*").expect("a path");
    for change in changes.chunks_exact(3).take(64) {
        let Ok(ways) = json.ways(&all) else {
            return;
        };
        // A document that doubles is of no use after some changes.
        if json.heap_bytes() > 1 << 20 {
            return;
        }
        let place = match ways.get(usize::from(change[1]) % (ways.len() + 1)) {
            Some(way) => json.follow(way).expect("it was found"),
            None => Place::ROOT,
        };
        let value = &values[usize::from(change[2]) % values.len()];
        let at = usize::from(change[2] >> 2);
        match change[0] % 8 {
            0 => json.set(place, value),
            1 => drop(json.array_insert(place, at, &[value])),
            2 => drop(json.array_remove(place, at)),
            3 => drop(json.array_keep(place, at..at + 3)),
            4 => drop(json.object_set(place, &format!("name {at}"), value)),
            5 => drop(json.object_remove(place, format!("name {at}").as_bytes())),
            6 => drop(json.append(place, &[b'x'; 9])),
            _ => json.merge(place, value),
        }
        json.settle();
        assert!(json.heap_bytes() >= json.bytes_at(Place::ROOT));
        if json.depth_at(Place::ROOT) > redline_types::json::DEPTH_MAX {
            return;
        }
    }
    check(&json);
});

fn check(json: &Json) {
    let again = Json::parse(&json.to_text()).expect("our text is JSON");
    let planted = cfg!(feature = "planted") && matches!(json.root(), Item::Double(_));
    assert!(again.root() == json.root() && !planted);
}
