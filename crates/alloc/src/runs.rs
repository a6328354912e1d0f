//! Free runs of pages of one range: takes and frees runs, joins neighbours, finds those that have been free for long.
//! Knows page numbers only, no address, no lock and no operating system.
//!
//! A free run is *dirty* (its pages hold memory) or *clean* (they were never used or were returned to the system, and
//! read as zeros). Dirty ones are taken first. Runs of each kind are in lists by size: one size a list below 32 pages,
//! 32 lists for each doubling above, and a bit for each list that is not empty; so every operation takes constant time
//! but for a walk over a few runs of the wanted size's own list. The idea is that of two-level segregated fits (Masmano
//! and others, TLSF, 2004), with the data of a run in a table beside the range: clean pages must not be touched.
//!
//! The rest of a split run keeps its age, and of two joined runs the larger one's is kept: otherwise a small value that
//! comes and goes at the edge of a large free run would keep all of it from being returned.

/// Stands for "no run" in a list.
const NONE: u32 = u32::MAX;
/// Number of pages below which each size has a list of its own.
const EXACT_PAGES: u32 = 32;
/// Number of lists for each doubling above.
const STEPS: u32 = 32;
const LISTS: usize = list_of(u32::MAX) + 1;
const WORDS: usize = LISTS.div_ceil(64);
/// Number of runs of the wanted size's own list that are looked at.
const TRIES: usize = 8;

/// State of a page. Zeroed memory is a page that begins and ends no free run.
#[derive(Clone, Copy, Default)]
pub(crate) struct Mark {
    /// Length of the free run that begins or ends here, 0 elsewhere.
    pages: u32,
    /// Neighbours in the run's list; set at its first page, as are the fields below.
    next: u32,
    prev: u32,
    /// Twice the tick at which the run was freed, and 1 if it is dirty.
    age: u32,
}

/// A run of consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) pages: u32,
}

/// Returns the list of runs with this number of pages (at least 1).
const fn list_of(pages: u32) -> usize {
    let last = pages - 1;
    if last < EXACT_PAGES {
        return last as usize;
    }
    let doubling = last.ilog2() - EXACT_PAGES.ilog2();
    (EXACT_PAGES + doubling * STEPS + (last >> doubling) - STEPS) as usize
}

/// Free runs of one kind, by size. The most recently freed of a size come first.
struct Lists {
    first: [u32; LISTS],
    last: [u32; LISTS],
    filled: [u64; WORDS],
}

impl Lists {
    const EMPTY: Lists = Lists {
        first: [NONE; LISTS],
        last: [NONE; LISTS],
        filled: [0; WORDS],
    };

    /// Returns the first list from this one on that is not empty.
    fn filled_from(&self, list: usize) -> Option<usize> {
        let mut word = list / 64;
        let mut bits = self.filled.get(word)? & (u64::MAX << (list % 64));
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}

/// Free pages of a range.
pub(crate) struct Runs {
    marks: &'static mut [Mark],
    /// First page from which on all pages were never used, or are clean again.
    top: u32,
    /// Lists of clean and of dirty runs.
    lists: [Lists; 2],
    now: u32,
    dirty_pages: u32,
    live_pages: u32,
}

impl Runs {
    /// Returns a range of as many pages as there are marks, all zero and fewer than `u32::MAX`; none is used.
    pub(crate) fn new(marks: &'static mut [Mark]) -> Runs {
        Runs {
            marks,
            top: 0,
            lists: [Lists::EMPTY; 2],
            now: 0,
            dirty_pages: 0,
            live_pages: 0,
        }
    }

    /// Returns the number of pages in use.
    pub(crate) fn live_pages(&self) -> u32 {
        self.live_pages
    }

    /// Returns the number of free pages that hold memory.
    pub(crate) fn dirty_pages(&self) -> u32 {
        self.dirty_pages
    }

    /// Takes this number of pages (at least 1); also returns true if they are clean.
    pub(crate) fn take(&mut self, pages: u32) -> Option<(Run, bool)> {
        for dirty in [true, false] {
            if let Some(first) = self.find(pages, dirty) {
                let age = self.marks[first as usize].age;
                let free = self.unlink(first);
                let rest = free.pages - pages;
                if rest > 0 {
                    self.link(first + pages, rest, age);
                }
                self.live_pages += pages;
                return Some((Run { first, pages }, !dirty));
            }
        }
        if pages as usize > self.marks.len() - self.top as usize {
            return None;
        }
        let first = self.top;
        self.top += pages;
        self.live_pages += pages;
        Some((Run { first, pages }, true))
    }

    /// Takes the pages after a taken run as well, if so many are free there; returns true if so.
    pub(crate) fn extend(&mut self, run: Run, pages: u32) -> bool {
        let behind = run.first + run.pages;
        if behind == self.top {
            if pages as usize > self.marks.len() - self.top as usize {
                return false;
            }
            self.top += pages;
        } else {
            // After a taken page a mark can only be a free run's first.
            let Mark {
                pages: free, age, ..
            } = self.marks[behind as usize];
            if free < pages {
                return false;
            }
            self.unlink(behind);
            if free > pages {
                self.link(behind + pages, free - pages, age);
            }
        }
        self.live_pages += pages;
        true
    }

    /// Frees a taken run, or a part of one at its end, whose pages hold memory.
    pub(crate) fn give_back(&mut self, run: Run) {
        self.live_pages -= run.pages;
        self.free(run, self.now << 1 | 1);
    }

    /// Counts one tick.
    pub(crate) fn tick(&mut self) {
        self.now = (self.now + 1) & (u32::MAX >> 1);
    }

    /// Removes a dirty run that has been free for at least `ticks` ticks. [`cleaned`](Runs::cleaned) adds it again.
    pub(crate) fn expired(&mut self, ticks: u32) -> Option<Run> {
        let mut list = 0;
        while let Some(filled) = self.lists[1].filled_from(list) {
            let oldest = self.lists[1].last[filled];
            let since = self.marks[oldest as usize].age >> 1;
            if self.now.wrapping_sub(since) & (u32::MAX >> 1) >= ticks {
                return Some(self.unlink(oldest));
            }
            list = filled + 1;
        }
        None
    }

    /// Frees a run of [`expired`](Runs::expired) that is clean now.
    pub(crate) fn cleaned(&mut self, run: Run) {
        self.free(run, self.now << 1);
    }

    /// Returns a free run of at least `pages` pages.
    fn find(&self, pages: u32, dirty: bool) -> Option<u32> {
        let lists = &self.lists[usize::from(dirty)];
        let own = list_of(pages);
        let mut run = lists.first[own];
        for _ in 0..TRIES {
            if run == NONE {
                break;
            }
            let mark = &self.marks[run as usize];
            if mark.pages >= pages {
                return Some(run);
            }
            run = mark.next;
        }
        lists.filled_from(own + 1).map(|list| lists.first[list])
    }

    /// Adds a free run, joined with its neighbours of the same kind.
    fn free(&mut self, run: Run, age: u32) {
        let (mut first, mut pages, mut age) = (run.first, run.pages, age);
        let mut largest = pages;
        let mut join = |runs: &mut Runs, neighbour: u32| {
            let mark = runs.marks[neighbour as usize];
            if (mark.age ^ age) & 1 != 0 {
                return None;
            }
            if mark.pages > largest {
                largest = mark.pages;
                age = mark.age;
            }
            Some(runs.unlink(neighbour))
        };
        if first > 0 {
            let before = self.marks[first as usize - 1].pages;
            if before > 0
                && let Some(joined) = join(self, first - before)
            {
                first = joined.first;
                pages += joined.pages;
            }
        }
        let behind = run.first + run.pages;
        if behind < self.top && self.marks[behind as usize].pages > 0 {
            pages += join(self, behind).map_or(0, |joined| joined.pages);
        }
        if first + pages == self.top && age & 1 == 0 {
            self.top = first;
        } else {
            self.link(first, pages, age);
        }
    }

    /// Puts a run into its list: in front if it was just freed, else at the end.
    fn link(&mut self, first: u32, pages: u32, age: u32) {
        let lists = &mut self.lists[age as usize & 1];
        let list = list_of(pages);
        let (next, prev) = if age >> 1 == self.now {
            (std::mem::replace(&mut lists.first[list], first), NONE)
        } else {
            (NONE, std::mem::replace(&mut lists.last[list], first))
        };
        match next {
            NONE => lists.last[list] = first,
            next => self.marks[next as usize].prev = first,
        }
        match prev {
            NONE => lists.first[list] = first,
            prev => self.marks[prev as usize].next = first,
        }
        lists.filled[list / 64] |= 1 << (list % 64);
        self.marks[first as usize + pages as usize - 1].pages = pages;
        self.marks[first as usize] = Mark {
            pages,
            next,
            prev,
            age,
        };
        if age & 1 != 0 {
            self.dirty_pages += pages;
        }
    }

    /// Removes a run from its list.
    fn unlink(&mut self, first: u32) -> Run {
        let Mark {
            pages,
            next,
            prev,
            age,
        } = self.marks[first as usize];
        let lists = &mut self.lists[age as usize & 1];
        let list = list_of(pages);
        match next {
            NONE => lists.last[list] = prev,
            next => self.marks[next as usize].prev = prev,
        }
        match prev {
            NONE => lists.first[list] = next,
            prev => self.marks[prev as usize].next = next,
        }
        if lists.first[list] == NONE {
            lists.filled[list / 64] &= !(1 << (list % 64));
        }
        self.marks[first as usize].pages = 0;
        self.marks[first as usize + pages as usize - 1].pages = 0;
        if age & 1 != 0 {
            self.dirty_pages -= pages;
        }
        Run { first, pages }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn runs(pages: usize) -> Runs {
        Runs::new(Vec::leak(vec![Mark::default(); pages]))
    }

    #[test]
    fn lists_are_by_size_and_none_is_larger_than_a_step() {
        let mut before = 0;
        for pages in 1..100_000 {
            let list = list_of(pages);
            assert!(
                list == before || list == before + 1 || pages == 1,
                "{pages}"
            );
            before = list;
        }
        assert_eq!(list_of(u32::MAX), LISTS - 1);
        assert_ne!(list_of(31), list_of(32));
    }

    /// Kind of each page, in a plain array.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Page {
        Clean,
        Dirty,
        Taken,
        Out,
    }

    /// Checks that the lists hold the free runs of these pages, joined as far as kinds allow.
    fn check(runs: &Runs, pages: &[Page]) {
        let mut listed = BTreeMap::new();
        for (kind, lists) in runs.lists.iter().enumerate() {
            for list in 0..LISTS {
                let (mut run, mut prev) = (lists.first[list], NONE);
                assert_eq!(lists.filled[list / 64] >> (list % 64) & 1 == 1, run != NONE);
                while run != NONE {
                    let mark = runs.marks[run as usize];
                    assert_eq!(mark.prev, prev);
                    assert_eq!(list_of(mark.pages), list);
                    assert_eq!(mark.age as usize & 1, kind);
                    assert_eq!(
                        runs.marks[(run + mark.pages) as usize - 1].pages,
                        mark.pages
                    );
                    listed.insert(run, (mark.pages, kind == 1));
                    (prev, run) = (run, mark.next);
                }
                assert_eq!(lists.last[list], prev);
            }
        }
        let mut expected = BTreeMap::new();
        let mut at = 0;
        while at < pages.len() {
            let same = pages[at..]
                .iter()
                .take_while(|page| **page == pages[at])
                .count();
            match pages[at] {
                Page::Clean if at + same == pages.len() => assert_eq!(runs.top as usize, at),
                Page::Clean => _ = expected.insert(at as u32, (same as u32, false)),
                Page::Dirty => _ = expected.insert(at as u32, (same as u32, true)),
                Page::Taken | Page::Out => {}
            }
            at += same;
        }
        assert_eq!(listed, expected);
        let count = |kind| pages.iter().filter(|page| **page == kind).count() as u32;
        assert_eq!(runs.dirty_pages(), count(Page::Dirty));
        assert_eq!(runs.live_pages(), count(Page::Taken));
    }

    #[test]
    fn random_calls_agree_with_an_array_of_pages() {
        const PAGES: usize = 600;
        for seed in 0..30 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut runs = runs(PAGES);
            let mut pages = vec![Page::Clean; PAGES];
            let (mut taken, mut out): (Vec<Run>, Vec<Run>) = (Vec::new(), Vec::new());
            let mark = |pages: &mut [Page], run: Run, kind| {
                pages[run.first as usize..(run.first + run.pages) as usize].fill(kind);
            };
            for _ in 0..2000 {
                match random.u32(..10) {
                    0..4 => {
                        let most = if random.bool() { 3 } else { 60 };
                        let want = 1 + random.u32(..most);
                        if let Some((run, clean)) = runs.take(want) {
                            assert_eq!(run.pages, want);
                            let range = run.first as usize..(run.first + want) as usize;
                            let kind = if clean { Page::Clean } else { Page::Dirty };
                            assert!(pages[range].iter().all(|page| *page == kind));
                            mark(&mut pages, run, Page::Taken);
                            taken.push(run);
                        } else {
                            let longest =
                                |kind| pages.split(|page| *page != kind).map(<[Page]>::len).max();
                            let free = longest(Page::Clean).max(longest(Page::Dirty));
                            assert!(free < Some(want as usize));
                        }
                    }
                    4 if !taken.is_empty() => {
                        let run = random.choice(&mut taken).unwrap();
                        let want = 1 + random.u32(..8);
                        if runs.extend(*run, want) {
                            run.pages += want;
                            mark(&mut pages, *run, Page::Taken);
                        }
                    }
                    5..8 if !taken.is_empty() => {
                        let index = random.usize(..taken.len());
                        let mut part = taken[index];
                        let keep = if random.bool() {
                            0
                        } else {
                            random.u32(..part.pages)
                        };
                        part.first += keep;
                        part.pages -= keep;
                        runs.give_back(part);
                        mark(&mut pages, part, Page::Dirty);
                        match keep {
                            0 => _ = taken.swap_remove(index),
                            keep => taken[index].pages = keep,
                        }
                    }
                    8 => {
                        runs.tick();
                        if let Some(run) = runs.expired(1) {
                            mark(&mut pages, run, Page::Out);
                            out.push(run);
                        }
                    }
                    _ => {
                        if let Some(run) = out.pop() {
                            runs.cleaned(run);
                            mark(&mut pages, run, Page::Clean);
                        }
                    }
                }
                check(&runs, &pages);
            }
        }
    }

    #[test]
    fn what_comes_and_goes_at_the_edge_of_a_free_run_does_not_keep_it_dirty() {
        let mut runs = runs(10_000);
        let (large, clean) = runs.take(5000).unwrap();
        assert!(clean);
        runs.give_back(large);
        for _ in 0..4 {
            runs.tick();
            let (small, clean) = runs.take(16).unwrap();
            assert!(!clean && runs.expired(5).is_none());
            runs.give_back(small);
        }
        runs.tick();
        assert_eq!(runs.expired(5), Some(large));
        assert_eq!(runs.expired(0), None);
        runs.cleaned(large);
        assert_eq!((runs.top, runs.dirty_pages(), runs.live_pages()), (0, 0, 0));
    }

    #[test]
    fn the_end_of_the_range_is_an_answer() {
        let mut runs = runs(100);
        assert!(runs.take(101).is_none());
        let (run, _) = runs.take(60).unwrap();
        assert!(runs.take(41).is_none() && !runs.extend(run, 41));
        assert!(runs.extend(run, 40));
        assert!(runs.take(1).is_none());
    }
}
