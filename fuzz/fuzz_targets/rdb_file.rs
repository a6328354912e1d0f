//! Files: any bytes behind a header of any version. What the scanner finds is decoded; what is decoded is written in
//! every version that holds it, and read again as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_rdb::{
    FileVersion, Format, Object, ObjectRef, dump,
    file::{Record, Scanner, Source, decode, write},
    primitive::Writer,
};
use redline_types::Limits;

/// Source that gives pieces of one size.
struct Pieces<'a> {
    rest: &'a [u8],
    piece: usize,
}

impl Source for Pieces<'_> {
    fn fill(&mut self, buffer: &mut Vec<u8>) -> std::io::Result<usize> {
        let (piece, rest) = self.rest.split_at(self.piece.min(self.rest.len()));
        buffer.extend_from_slice(piece);
        self.rest = rest;
        Ok(piece.len())
    }
}

const VERSIONS: [FileVersion; 5] = [
    FileVersion::Redis(9),
    FileVersion::Redis(10),
    FileVersion::Redis(11),
    FileVersion::LATEST,
    FileVersion::VALKEY,
];

fn object_ref(object: &Object) -> ObjectRef<'_> {
    match object {
        Object::String(text) => ObjectRef::String(text),
        Object::Value(value) => ObjectRef::Value(value),
    }
}

fn shape(object: &Object) -> (&'static str, usize) {
    match object {
        Object::String(text) => ("string", text.len()),
        Object::Value(value) => (value.kind().name(), value.len()),
    }
}

/// Writes an entry in every version, and reads it again.
fn comes_back(object: &Object, key: &[u8], meta: &redline_rdb::file::EntryMeta, limits: &Limits) {
    for version in VERSIONS {
        let format = Format {
            version,
            compresses: true,
            checksums: false,
        };
        let mut out = Writer::new(format.compresses);
        write::header(&mut out, &format);
        if write::entry(&mut out, &format, key, object_ref(object), meta).is_err() {
            assert!(version != FileVersion::LATEST, "it holds every value");
            continue;
        }
        write::trailer(&mut out, None);
        let mut scanner = Scanner::new(&out[..]);
        let Ok(Record::Entry(entry)) = scanner.next() else {
            panic!("no entry in {version}");
        };
        assert_eq!((&*entry.key, &entry.meta), (key, meta));
        let again = decode(version, entry.rdb_type, entry.value, limits).expect("a value of ours");
        assert_eq!(shape(&again), shape(object), "{version}");
        if version == FileVersion::LATEST {
            assert_eq!(
                dump(object_ref(&again), false).len(),
                dump(object_ref(object), false).len()
            );
        }
        assert!(matches!(scanner.next(), Ok(Record::End)));
    }
}

fuzz_target!(|input: &[u8]| {
    let limits = Limits {
        // Small, so that short inputs meet both forms of each type.
        hash_max_listpack_entries: 4,
        set_max_intset_entries: 4,
        set_max_listpack_entries: 4,
        zset_max_listpack_entries: 4,
        ..Limits::default()
    };
    // The first byte chooses the size of the pieces.
    let Some((&piece, file)) = input.split_first() else {
        return;
    };
    let mut scanner = Scanner::new(Pieces {
        rest: file,
        piece: 1 + usize::from(piece),
    });
    scanner.ignore_checksum();
    let Ok(version) = scanner.header() else {
        return;
    };
    loop {
        match scanner.next() {
            Ok(Record::Entry(entry)) => {
                assert!(entry.value.len() <= file.len() && entry.offset < file.len() as u64);
                let Ok(object) = decode(version, entry.rdb_type, entry.value, &limits) else {
                    continue;
                };
                #[cfg(feature = "planted")]
                assert!(
                    shape(&object) != ("set", 3) || entry.meta.expire_at_ms.is_none(),
                    "the planted fault"
                );
                comes_back(&object, &entry.key, &entry.meta, &limits);
            }
            Ok(Record::End) => break,
            Ok(_) => {}
            Err(error) => {
                assert!(error.offset <= file.len() as u64);
                return;
            }
        }
    }
    assert!(scanner.offset() <= file.len() as u64);
});
