//! Buffers that connections borrow while they hold data.
//!
//! An idle connection holds none, so ten thousand of them cost no buffer memory. It must not know their contents.

/// Sizes of a [`BufferPool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferPoolLimits {
    /// Capacity of a fresh buffer.
    pub buffer_bytes: usize,
    /// A buffer that has grown past this is given back to the allocator, not pooled.
    pub buffer_bytes_max: usize,
    /// Most bytes that all pooled buffers may hold together.
    pub pooled_bytes_max: usize,
}

impl Default for BufferPoolLimits {
    fn default() -> Self {
        BufferPoolLimits {
            buffer_bytes: 16 << 10,
            buffer_bytes_max: 64 << 10,
            pooled_bytes_max: 4 << 20,
        }
    }
}

/// Empty buffers, ready for use. One per thread; it takes no lock.
#[derive(Debug)]
pub struct BufferPool {
    limits: BufferPoolLimits,
    free: Vec<Vec<u8>>,
    pooled_bytes: usize,
    /// The fewest free buffers since the last [`BufferPool::trim`]: this many were never needed.
    free_min: usize,
}

impl BufferPool {
    /// Makes an empty pool; buffers are made when they are first needed.
    pub fn new(limits: BufferPoolLimits) -> Self {
        assert!(limits.buffer_bytes > 0 && limits.buffer_bytes <= limits.buffer_bytes_max);
        BufferPool {
            limits,
            free: Vec::new(),
            pooled_bytes: 0,
            free_min: 0,
        }
    }

    /// Returns an empty buffer, with at least `buffer_bytes` of capacity.
    pub fn take(&mut self) -> Vec<u8> {
        match self.free.pop() {
            Some(buffer) => {
                self.pooled_bytes -= buffer.capacity();
                self.free_min = self.free_min.min(self.free.len());
                buffer
            }
            None => Vec::with_capacity(self.limits.buffer_bytes),
        }
    }

    /// Takes back a buffer; its contents are dropped.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        let bytes = buffer.capacity();
        let fits = (self.limits.buffer_bytes..=self.limits.buffer_bytes_max).contains(&bytes)
            && self.pooled_bytes + bytes <= self.limits.pooled_bytes_max;
        if fits {
            buffer.clear();
            self.pooled_bytes += bytes;
            self.free.push(buffer);
        }
    }

    /// Gives the allocator back half of the buffers (rounded up) that were unused since the last call. Called about
    /// once a second, it frees a peak within some seconds, and keeps the buffers of a steady load.
    pub fn trim(&mut self) {
        let unneeded = self.free_min.min(self.free.len()).div_ceil(2);
        // The oldest are at the front; those in use are taken from and returned to the back, warm in the cache.
        for buffer in self.free.drain(..unneeded) {
            self.pooled_bytes -= buffer.capacity();
        }
        if self.free.is_empty() {
            self.free = Vec::new();
        }
        self.free_min = self.free.len();
    }

    /// Returns the number of bytes of unused buffers in the pool.
    pub fn pooled_bytes(&self) -> usize {
        self.pooled_bytes
    }
}

impl Default for BufferPool {
    fn default() -> Self {
        BufferPool::new(BufferPoolLimits::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BufferPoolLimits = BufferPoolLimits {
        buffer_bytes: 100,
        buffer_bytes_max: 400,
        pooled_bytes_max: 1000,
    };

    #[test]
    fn a_buffer_comes_back_empty_and_with_its_memory() {
        let mut pool = BufferPool::new(LIMITS);
        let mut buffer = pool.take();
        buffer.extend_from_slice(b"left over");
        let memory = buffer.as_ptr();
        pool.give(buffer);
        let again = pool.take();
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), memory);
        assert_eq!(pool.pooled_bytes(), 0);
    }

    #[test]
    fn what_has_grown_too_large_or_is_too_small_is_not_kept() {
        let mut pool = BufferPool::new(LIMITS);
        pool.give(Vec::with_capacity(401));
        pool.give(Vec::with_capacity(99));
        pool.give(Vec::new());
        assert_eq!(pool.pooled_bytes(), 0);
        pool.give(Vec::with_capacity(400));
        assert_eq!(pool.pooled_bytes(), 400);
    }

    #[test]
    fn the_pool_never_holds_more_than_its_limit() {
        let mut pool = BufferPool::new(LIMITS);
        for _ in 0..100 {
            pool.give(Vec::with_capacity(100));
        }
        assert_eq!(pool.pooled_bytes(), 1000);
    }

    #[test]
    fn trimming_gives_back_what_lay_unused_and_keeps_what_was_used() {
        let mut pool = BufferPool::new(LIMITS);
        for _ in 0..10 {
            pool.give(Vec::with_capacity(100));
        }
        pool.trim(); // all ten were free for no time at all: only now is counting begun
        assert_eq!(pool.pooled_bytes(), 1000);
        let used: Vec<Vec<u8>> = (0..4).map(|_| pool.take()).collect();
        used.into_iter().for_each(|buffer| pool.give(buffer));
        pool.trim(); // six of ten were never taken
        assert_eq!(pool.pooled_bytes(), 700);
        for _ in 0..4 {
            pool.trim();
        }
        assert_eq!(
            pool.pooled_bytes(),
            0,
            "an idle pool holds nothing in the end"
        );
    }
}
