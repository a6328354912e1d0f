//! RESTORE: a body that its sender vouches for with a right checksum, and that may say anything. What is taken is a value
//! like any other: it is written, and read again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_rdb::{Object, ObjectRef, VERSION, crc64, dump, restore};
use redline_types::Limits;
#[cfg(feature = "planted")]
use redline_types::Value;

fn object_ref(object: &Object) -> ObjectRef<'_> {
    match object {
        Object::String(text) => ObjectRef::String(text),
        Object::Value(value) => ObjectRef::Value(value),
    }
}

fn shape(object: &Object) -> (&'static str, usize) {
    match object {
        Object::String(text) => ("string", text.len()),
        Object::Value(value) => (value.encoding(), value.len()),
    }
}

fuzz_target!(|body: &[u8]| {
    let limits = Limits {
        // Small, so that short inputs meet both forms of each type.
        hash_max_listpack_entries: 4,
        set_max_intset_entries: 4,
        set_max_listpack_entries: 4,
        zset_max_listpack_entries: 4,
        ..Limits::default()
    };
    let mut payload = body.to_vec();
    payload.extend_from_slice(&VERSION.to_le_bytes());
    payload.extend_from_slice(&crc64::update(0, &payload).to_le_bytes());
    let Ok(object) = restore(&payload, &limits) else {
        return;
    };
    #[cfg(feature = "planted")]
    if let Object::Value(Value::Set(set)) = &object {
        let whole = shape(&object) == ("intset", 3);
        assert!(!whole || set.contains(b"1"), "the planted fault");
    }
    let written = dump(object_ref(&object));
    let again = restore(&written, &limits).expect("what was written can be read");
    assert_eq!(shape(&again), shape(&object));
    assert_eq!(dump(object_ref(&again)).len(), written.len());
});
