//! The longest common subsequence of two byte strings, as the `LCS` command answers it. Must not know the origin of the
//! strings.
//!
//! The textbook table: cell (i, j) holds the length for the first i bytes of `a` and the first j of
//! `b`. Only the length is wanted: two rows do. The subsequence or its matches are wanted: the whole
//! table is kept and walked back from its last cell, up on a tie-breaking "greater", else left,
//! which decides *which* of several equally long subsequences clients see.

/// Reason why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LcsError {
    /// A string is too long for 32-bit cells.
    StringTooLong,
    /// The table would take more bytes than the caller allows.
    TableTooLarge,
    /// The table could not be allocated.
    OutOfMemory,
}

/// A stretch that both strings have in common: `len` bytes from each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Index of its first byte in `a`.
    pub a_start: usize,
    /// Index of its first byte in `b`.
    pub b_start: usize,
    /// Bytes; at least 1.
    pub len: usize,
}

/// Returns the length of the longest common subsequence. `table_bytes_max` bounds the whole table, though
/// only two rows of it are allocated here.
pub fn length(a: &[u8], b: &[u8], table_bytes_max: u64) -> Result<usize, LcsError> {
    check(a, b, table_bytes_max)?;
    let width = b.len() + 1;
    let mut rows = allocate(2 * width)?;
    let (mut above, mut row) = rows.split_at_mut(width);
    for &byte in a {
        fill_row(above, row, byte, b);
        std::mem::swap(&mut above, &mut row);
    }
    Ok(above[b.len()] as usize)
}

/// Returns the longest common subsequence itself.
pub fn subsequence(a: &[u8], b: &[u8], table_bytes_max: u64) -> Result<Vec<u8>, LcsError> {
    let table = Table::new(a, b, table_bytes_max)?;
    let mut backwards = Vec::with_capacity(table.length());
    table.walk_back(|i, _| backwards.push(a[i]));
    backwards.reverse();
    Ok(backwards)
}

/// Returns the stretches that make up the longest common subsequence, the last one first, without those shorter than
/// `len_min`; and the length of the whole.
pub fn matches(
    a: &[u8],
    b: &[u8],
    len_min: usize,
    table_bytes_max: u64,
) -> Result<(Vec<Match>, usize), LcsError> {
    let table = Table::new(a, b, table_bytes_max)?;
    let mut matches: Vec<Match> = Vec::new();
    let mut current: Option<Match> = None;
    let mut emit = |found: Option<Match>| matches.extend(found.filter(|m| m.len >= len_min));
    table.walk_back(|i, j| match &mut current {
        Some(m) if m.a_start == i + 1 && m.b_start == j + 1 => {
            (m.a_start, m.b_start, m.len) = (i, j, m.len + 1);
        }
        _ => {
            let (a_start, b_start, len) = (i, j, 1);
            emit(current.replace(Match {
                a_start,
                b_start,
                len,
            }));
        }
    });
    emit(current);
    Ok((matches, table.length()))
}

fn check(a: &[u8], b: &[u8], table_bytes_max: u64) -> Result<(), LcsError> {
    let longest = a.len().max(b.len());
    if longest >= u32::MAX as usize - 1 {
        return Err(LcsError::StringTooLong);
    }
    // Both factors fit in 32 bits, so only the last step can overflow.
    let cells = (a.len() as u64 + 1) * (b.len() as u64 + 1);
    match cells.checked_mul(size_of::<u32>() as u64) {
        Some(bytes) if bytes <= table_bytes_max => Ok(()),
        Some(_) => Err(LcsError::TableTooLarge),
        None => Err(LcsError::OutOfMemory),
    }
}

fn allocate(cells: usize) -> Result<Vec<u32>, LcsError> {
    let mut table = Vec::new();
    table
        .try_reserve_exact(cells)
        .map_err(|_| LcsError::OutOfMemory)?;
    table.resize(cells, 0);
    Ok(table)
}

/// Computes the row of one byte of `a` from the row above it. Column 0 stays 0.
fn fill_row(above: &[u32], row: &mut [u32], byte: u8, b: &[u8]) {
    let mut left = 0;
    for (((cell, &other), &diagonal), &up) in row[1..].iter_mut().zip(b).zip(above).zip(&above[1..])
    {
        left = if byte == other {
            diagonal + 1
        } else {
            left.max(up)
        };
        *cell = left;
    }
}

struct Table<'a> {
    a: &'a [u8],
    b: &'a [u8],
    cells: Vec<u32>,
}

impl<'a> Table<'a> {
    fn new(a: &'a [u8], b: &'a [u8], table_bytes_max: u64) -> Result<Table<'a>, LcsError> {
        check(a, b, table_bytes_max)?;
        let width = b.len() + 1;
        let mut cells = allocate((a.len() + 1) * width)?;
        for (i, &byte) in a.iter().enumerate() {
            let (above, row) = cells[i * width..(i + 2) * width].split_at_mut(width);
            fill_row(above, row, byte, b);
        }
        Ok(Table { a, b, cells })
    }

    fn cell(&self, i: usize, j: usize) -> u32 {
        self.cells[i * (self.b.len() + 1) + j]
    }

    fn length(&self) -> usize {
        self.cell(self.a.len(), self.b.len()) as usize
    }

    /// Calls `visit` with the index in `a` and in `b` of each byte of the subsequence, last first.
    fn walk_back(&self, mut visit: impl FnMut(usize, usize)) {
        let (mut i, mut j) = (self.a.len(), self.b.len());
        while i > 0 && j > 0 {
            if self.a[i - 1] == self.b[j - 1] {
                i -= 1;
                j -= 1;
                visit(i, j);
            } else if self.cell(i - 1, j) > self.cell(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: u64 = 1 << 30;

    #[test]
    fn the_documented_example() {
        let (a, b) = (b"ohmytext", b"mynewtext");
        assert_eq!(length(a, b, ROOMY), Ok(6));
        assert_eq!(subsequence(a, b, ROOMY).unwrap(), b"mytext");
        let part = |a_start, b_start, len| Match {
            a_start,
            b_start,
            len,
        };
        let (all, total) = matches(a, b, 0, ROOMY).unwrap();
        assert_eq!((all, total), (vec![part(4, 5, 4), part(2, 0, 2)], 6));
        assert_eq!(matches(a, b, 4, ROOMY).unwrap(), (vec![part(4, 5, 4)], 6));
        assert_eq!(matches(a, b, 5, ROOMY).unwrap(), (vec![], 6));
    }

    #[test]
    fn empty_strings_have_nothing_in_common() {
        assert_eq!(length(b"", b"abc", ROOMY), Ok(0));
        assert_eq!(subsequence(b"abc", b"", ROOMY).unwrap(), b"");
        assert_eq!(matches(b"", b"", 0, ROOMY).unwrap(), (vec![], 0));
    }

    #[test]
    fn the_table_is_bounded_before_it_is_allocated() {
        // 11 by 11 cells of 4 bytes.
        let text = [b'x'; 10];
        assert_eq!(length(&text, &text, 484), Ok(10));
        assert_eq!(length(&text, &text, 483), Err(LcsError::TableTooLarge));
        let long = vec![0; 100_000];
        let refused = subsequence(&long, &long, 512 << 20);
        assert_eq!(refused, Err(LcsError::TableTooLarge));
    }

    #[test]
    fn random_strings_agree_with_recursion() {
        fn by_definition(a: &[u8], b: &[u8]) -> usize {
            match (a, b) {
                ([x, a @ ..], [y, b @ ..]) if x == y => 1 + by_definition(a, b),
                ([_, rest_a @ ..], [_, rest_b @ ..]) => {
                    by_definition(rest_a, b).max(by_definition(a, rest_b))
                }
                _ => 0,
            }
        }
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2_000 {
            let mut text = || -> Vec<u8> {
                (0..random.usize(..10))
                    .map(|_| random.u8(b'a'..b'd'))
                    .collect()
            };
            let (a, b) = (text(), text());
            let expected = by_definition(&a, &b);
            assert_eq!(length(&a, &b, ROOMY), Ok(expected));
            let found = subsequence(&a, &b, ROOMY).unwrap();
            let (parts, total) = matches(&a, &b, 0, ROOMY).unwrap();
            assert_eq!((found.len(), total), (expected, expected));
            let joined: Vec<u8> = parts
                .iter()
                .rev()
                .flat_map(|m| &a[m.a_start..m.a_start + m.len])
                .copied()
                .collect();
            assert_eq!(joined, found);
            for m in &parts {
                let in_b = &b[m.b_start..m.b_start + m.len];
                assert_eq!(&a[m.a_start..m.a_start + m.len], in_b);
            }
        }
    }
}
