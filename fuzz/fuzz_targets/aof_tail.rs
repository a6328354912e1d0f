//! The end of an append-only file: any bytes give units up to the first flaw. Up to there the file is whole when it is cut
//! there; the pieces in which it arrives do not matter; a part of it gives a part of the units.
//!
//! The first byte says where the part ends; the others are the file.

#![no_main]

use std::io::{self, Read};

use libfuzzer_sys::fuzz_target;
use redline_persist::aof::scan::{End, Item, Scanner};

/// Yields at most so many bytes at once.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.0.len().min(self.1).min(into.len());
        let (now, rest) = self.0.split_at(count);
        self.0 = rest;
        into[..count].copy_from_slice(now);
        Ok(count)
    }
}

fn read(file: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, End) {
    let mut scanner = Scanner::new(Pieces(file, piece), 0, file.len() as u64);
    let mut items = Vec::new();
    loop {
        match scanner.next().unwrap() {
            Item::Command(command) => items.push(command.args.iter().map(<[u8]>::to_vec).collect()),
            Item::Annotation(annotation) => items.push(vec![annotation.line.to_vec()]),
            Item::End(end) => return (items, end),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&share, file)) = data.split_first() else {
        return;
    };
    let (items, end) = read(file, usize::MAX);
    assert_eq!(read(file, 1), (items.clone(), end.clone()));
    let whole = match &end {
        End::Whole { size } => {
            assert_eq!(*size, file.len() as u64);
            *size
        }
        End::Cut { whole, size, flaw } | End::Corrupt { whole, size, flaw } => {
            assert_eq!(*size, file.len() as u64);
            assert!(whole < size && *whole <= flaw.at && flaw.at <= *size);
            *whole
        }
    };
    #[cfg(feature = "planted")]
    assert!(
        !matches!(&end, End::Cut { .. }) || items.len() < 3,
        "the planted fault"
    );
    let (kept, end) = read(&file[..whole as usize], usize::MAX);
    assert!(items.starts_with(&kept));
    assert_eq!(end, End::Whole { size: whole });

    let part = &file[..file.len() * usize::from(share) / 255];
    let (of_part, end_of_part) = read(part, 7);
    assert!(items.starts_with(&of_part));
    let (End::Whole {
        size: whole_of_part,
    }
    | End::Cut {
        whole: whole_of_part,
        ..
    }
    | End::Corrupt {
        whole: whole_of_part,
        ..
    }) = end_of_part;
    assert!(whole_of_part <= whole);
});
