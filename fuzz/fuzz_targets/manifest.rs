//! Manifests of append-only files: any text is refused, or read as one that its own text says again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_persist::Manifest;

fuzz_target!(|data: &[u8]| {
    let Ok(manifest) = Manifest::parse(data) else {
        return;
    };
    #[cfg(feature = "planted")]
    assert!(
        manifest.base.is_none() || manifest.incrs.len() < 2 || manifest.history.is_empty(),
        "the planted fault"
    );
    assert!(
        manifest
            .incrs
            .is_sorted_by(|one, other| one.seq < other.seq)
    );
    for entry in manifest.files().chain(&manifest.history) {
        let name = entry.name.as_encoded_bytes();
        assert!(!name.is_empty() && !name.contains(&b'/') && entry.seq != 0);
    }
    let text = manifest.text();
    if text.is_empty() {
        return;
    }
    match Manifest::parse(&text) {
        Ok(again) => assert_eq!(again, manifest),
        // Escapes make names longer.
        Err(error) => assert_eq!(error.what, "The AOF manifest file contains too long line"),
    }
});
