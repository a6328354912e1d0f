//! Sorting where only part of the order is wanted, and where equal elements must come out in the order of Redis:
//! clients see it wherever COUNT or LIMIT cuts through equals. Must not know the sorted elements.
//!
//! The method is the quicksort of Bentley and McIlroy, "Engineering a sort function" (1993), which leaves out parts that
//! hold none of the wanted places. It is not stable, so every choice in it (pivots, swaps) is part of the result.

use std::{cmp::Ordering, ops::RangeInclusive};

/// Number of elements below which they are sorted by insertion.
const INSERTION_BELOW: usize = 7;
/// Number of elements above which the pivot is the median of nine.
const NINE_ABOVE: usize = 40;

/// Brings the elements of the wanted places into them; the others end up on the right side of those.
pub fn partial_sort<T>(
    items: &mut [T],
    wanted: RangeInclusive<usize>,
    compare: &mut impl FnMut(&T, &T) -> Ordering,
) {
    let (mut start, mut end) = (0, items.len());
    loop {
        let part = &mut items[start..end];
        if part.len() < INSERTION_BELOW {
            insertion_sort(part, compare);
            return;
        }
        let [below, above] = partition(part, compare);
        let left = start..start + below;
        let right = end - above..end;
        if below > 1 && touches(&left, &wanted) {
            let wanted = wanted.start().saturating_sub(left.start)
                ..=(wanted.end() - left.start).min(below - 1);
            partial_sort(&mut items[left], wanted, compare);
        }
        if above <= 1 || !touches(&right, &wanted) {
            return;
        }
        (start, end) = (right.start, right.end);
    }
}

fn touches(part: &std::ops::Range<usize>, wanted: &RangeInclusive<usize>) -> bool {
    *wanted.end() >= part.start && *wanted.start() < part.end
}

fn insertion_sort<T>(items: &mut [T], compare: &mut impl FnMut(&T, &T) -> Ordering) {
    for sorted in 1..items.len() {
        let mut at = sorted;
        while at > 0 && compare(&items[at - 1], &items[at]).is_gt() {
            items.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Splits around a pivot: returns how many elements are below it, at the front, and how many above, at the back.
fn partition<T>(items: &mut [T], compare: &mut impl FnMut(&T, &T) -> Ordering) -> [usize; 2] {
    let len = items.len();
    let pivot = pivot(items, compare);
    items.swap(0, pivot);
    // Equals gather at both ends: [..a] and [d..]; [a..b] is below the pivot, [c..d] above.
    let (mut a, mut b, mut c, mut d) = (1, 1, len, len);
    loop {
        while b < c {
            match compare(&items[b], &items[0]) {
                Ordering::Greater => break,
                Ordering::Equal => {
                    items.swap(a, b);
                    a += 1;
                }
                Ordering::Less => {}
            }
            b += 1;
        }
        while b < c {
            match compare(&items[c - 1], &items[0]) {
                Ordering::Less => break,
                Ordering::Equal => {
                    d -= 1;
                    items.swap(c - 1, d);
                }
                Ordering::Greater => {}
            }
            c -= 1;
        }
        if b >= c {
            break;
        }
        items.swap(b, c - 1);
        b += 1;
        c -= 1;
    }
    // The equals move to the middle.
    let (below, above) = (b - a, d - c);
    let moved = a.min(below);
    swap_ranges(items, 0, b - moved, moved);
    let moved = above.min(len - d);
    swap_ranges(items, b, len - moved, moved);
    [below, above]
}

fn swap_ranges<T>(items: &mut [T], a: usize, b: usize, len: usize) {
    (0..len).for_each(|at| items.swap(a + at, b + at));
}

fn pivot<T>(items: &[T], compare: &mut impl FnMut(&T, &T) -> Ordering) -> usize {
    let (len, middle) = (items.len(), items.len() / 2);
    if len == INSERTION_BELOW {
        return middle;
    }
    let (mut low, mut mid, mut high) = (0, middle, len - 1);
    let mut median = |a: usize, b: usize, c: usize| {
        let mut is = |x: usize, order: Ordering, y: usize| compare(&items[x], &items[y]) == order;
        if is(a, Ordering::Less, b) {
            if is(b, Ordering::Less, c) {
                b
            } else if is(a, Ordering::Less, c) {
                c
            } else {
                a
            }
        } else if is(b, Ordering::Greater, c) {
            b
        } else if is(a, Ordering::Less, c) {
            a
        } else {
            c
        }
    };
    if len > NINE_ABOVE {
        let eighth = len / 8;
        low = median(low, low + eighth, low + 2 * eighth);
        mid = median(mid - eighth, mid, mid + eighth);
        high = median(high - 2 * eighth, high - eighth, high);
    }
    median(low, mid, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wanted_places_are_right() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..2000 {
            let len = rng.usize(1..120);
            let values: Vec<u32> = (0..len).map(|_| rng.u32(..len as u32)).collect();
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let start = rng.usize(..len);
            let end = rng.usize(start..len);
            let mut partly = values.clone();
            partial_sort(&mut partly, start..=end, &mut u32::cmp);
            assert_eq!(partly[start..=end], sorted[start..=end], "{values:?}");
            partly.sort_unstable();
            assert_eq!(partly, sorted);
        }
    }
}
