//! Any bytes as a compressed chunk of a time series: nothing panics, and what passes for a sound one has as many samples as
//! it says, in order, which make a chunk of the same samples again.
//!
//! The first bytes are the state beside the bits, and the rest are the bits.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_types::series::{
    Sample,
    gorilla::{Compressed, State},
};

fuzz_target!(|data: &[u8]| {
    let Some((head, rest)) = data.split_first_chunk::<20>() else {
        return;
    };
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let base = Sample {
        time: word(4),
        value: f64::from_bits(word(12)),
    };
    let mut bytes = rest.to_vec();
    bytes.resize(rest.len().next_multiple_of(8), 0);
    let state = State {
        size: bytes.len() as u64,
        count: u64::from(u16::from_le_bytes([head[0], head[1]])),
        bits: u64::from(u16::from_le_bytes([head[2], head[3]])),
        base,
        last: base,
        delta: 0,
        leading: 0,
        trailing: 0,
    };
    let Some(chunk) = Compressed::restore(&state, &bytes) else {
        return;
    };
    let samples: Vec<Sample> = chunk.iter().collect();
    assert_eq!(samples.len() as u64, state.count);
    assert!(samples.is_sorted_by(|a, b| a.time < b.time));
    // Other bits may tell the same; ours are never more than the largest form of each sample.
    let size = (samples.len() * 24).next_multiple_of(8) as u32;
    let mut again = Compressed::new(size);
    let all = samples.iter().all(|sample| again.push(*sample));
    assert!(all && !(cfg!(feature = "planted") && samples.len() > 2));
    let same =
        |(a, b): (&Sample, Sample)| a.time == b.time && a.value.to_bits() == b.value.to_bits();
    assert!(samples.iter().zip(again.iter()).all(same));
    let restored = Compressed::restore(&again.state(), &again.bytes()).expect("it is ours");
    assert_eq!(restored.bytes(), again.bytes());
});
