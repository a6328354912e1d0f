//! Any string as a HyperLogLog: nothing panics, nothing is written outside the registers, and what passes for a sound
//! one stays sound whatever is added to it.
//!
//! The first byte says how the rest is taken: as it is, or as the registers behind a header.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_types::hll::{self, Registers};

fuzz_target!(|data: &[u8]| {
    let Some((&how, rest)) = data.split_first() else {
        return;
    };
    let mut bytes = rest.to_vec();
    if how & 1 == 1 {
        bytes = hll::empty()[..16].to_vec();
        bytes[4] = how >> 1 & 1;
        bytes.extend_from_slice(rest);
        if bytes[4] == 0 {
            bytes.resize(12_304, 0);
        }
    }
    if !hll::is_valid(&bytes) {
        return;
    }
    let sparse_bytes_max = usize::from(how) * 16;
    let _ = hll::cached_count(&bytes);
    if hll::encoding(&bytes) == hll::Encoding::Sparse {
        hll::describe_runs(&bytes);
    }
    let sound = hll::count(&bytes).is_ok();
    let mut registers = Registers::new();
    assert_eq!(
        registers.merge(&bytes).is_ok(),
        sound || cfg!(feature = "planted")
    );
    for element in 0..16u8 {
        let added = hll::add(&mut bytes, &[element, how], sparse_bytes_max);
        assert!(added.is_ok() || !sound);
    }
    assert!(hll::is_valid(&bytes));
    if sound {
        let count = hll::count(&bytes).expect("it was sound");
        let mut dense = bytes.clone();
        hll::to_dense(&mut dense).expect("it was sound");
        assert_eq!(hll::count(&dense), Ok(count));
    } else {
        let _ = hll::to_dense(&mut bytes);
    }
});
