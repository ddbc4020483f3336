//! Memory for groups: a bounded pool of 1 MiB buffers that go round.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use longhaul_objects::limits::GROUP_SIZE;
use longhaul_sys::memory::Pages;
use longhaul_sys::sync::lock;

/// Buffers made at a time, so that they lie in huge pages of 2 MiB.
const BUFFERS_PER_HUGE_PAGE: usize = 2;

/// A bounded number of group buffers. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    free: Mutex<Free>,
    returned: Condvar,
}

#[derive(Debug)]
struct Free {
    /// The one returned last is given out first: it is still in the cache.
    buffers: Vec<Pages>,
    /// Buffers that may still be made, and all that there may be.
    left: usize,
    most: usize,
    /// Count of buffers given back.
    given_back: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// No thread waits any more.
    Closed,
}

impl Pool {
    /// A pool of at most `buffers` buffers of 1 MiB, made when first needed.
    pub fn new(buffers: usize) -> Self {
        let free = Free {
            buffers: Vec::new(),
            left: buffers,
            most: buffers,
            given_back: 0,
            state: State::Open,
        };
        let inner = Inner { free: Mutex::new(free), returned: Condvar::new() };
        Self { inner: Arc::new(inner) }
    }

    /// Makes and touches all buffers now, so that no page fault falls into a measurement.
    pub fn fill(&self) {
        let mut all = Vec::new();
        while let Some(mut buffer) = self.try_take() {
            buffer.pages.as_mut().into_iter().for_each(Pages::touch);
            all.push(buffer);
        }
    }

    /// A buffer if one is free.
    pub fn try_take(&self) -> Option<Buffer> {
        self.take_from(&mut lock(&self.inner.free))
    }

    /// A buffer, when one is free; `None` once the pool is closed.
    pub fn take(&self) -> Option<Buffer> {
        let mut free = lock(&self.inner.free);
        loop {
            if free.state == State::Closed {
                return None;
            }
            if let Some(buffer) = self.take_from(&mut free) {
                return Some(buffer);
            }
            free = self.inner.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Allows so many buffers from now on, or as many as before if those were more; true if that changed the bound.
    pub fn grow(&self, buffers: usize) -> bool {
        let mut free = lock(&self.inner.free);
        let more = buffers.saturating_sub(free.most);
        free.left += more;
        free.most += more;
        drop(free);
        if more > 0 {
            self.inner.returned.notify_all();
        }
        more > 0
    }

    /// True if a buffer is free.
    pub fn has_free(&self) -> bool {
        let free = lock(&self.inner.free);
        free.left > 0 || !free.buffers.is_empty()
    }

    /// Buffers that can be had.
    pub fn free(&self) -> usize {
        let free = lock(&self.inner.free);
        free.left + free.buffers.len()
    }

    /// Count of buffers given back since the start.
    pub fn given_back(&self) -> u64 {
        lock(&self.inner.free).given_back
    }

    /// Ends all waiting.
    pub fn close(&self) {
        lock(&self.inner.free).state = State::Closed;
        self.inner.returned.notify_all();
    }

    fn take_from(&self, free: &mut Free) -> Option<Buffer> {
        let pages = free.buffers.pop().or_else(|| {
            let count = free.left.min(BUFFERS_PER_HUGE_PAGE);
            free.left -= count;
            // Memory that cannot be had is a smaller pool; waiting for a buffer goes on.
            let mut pieces = Pages::pieces(GROUP_SIZE as usize, count).ok()?;
            let first = pieces.pop();
            free.buffers.extend(pieces);
            first
        })?;
        Some(Buffer { pages: Some(pages), pool: self.inner.clone() })
    }
}

/// A buffer of 1 MiB, given back to its pool when dropped.
#[derive(Debug)]
pub struct Buffer {
    /// `None` only while it is dropped.
    pages: Option<Pages>,
    pool: Arc<Inner>,
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.pages.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.pages.as_deref_mut().unwrap_or_default()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut free = lock(&self.pool.free);
        free.buffers.extend(self.pages.take());
        free.given_back += 1;
        drop(free);
        self.pool.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_bounded_and_waits() {
        let pool = Pool::new(2);
        let (a, b) = (pool.try_take().unwrap(), pool.try_take().unwrap());
        assert_eq!((a.len(), b.len()), (1 << 20, 1 << 20));
        assert!(pool.try_take().is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.take().is_some());
            drop(a);
            assert!(waiter.join().unwrap());
        });
        pool.close();
        assert!(pool.take().is_none());
    }

    #[test]
    fn a_pool_grows_and_does_not_shrink() {
        let pool = Pool::new(1);
        assert!(!pool.grow(0) && !pool.grow(1));
        let first = pool.try_take().unwrap();
        assert!(!pool.has_free());
        assert!(pool.grow(2));
        assert!(pool.has_free() && pool.try_take().is_some());
        drop(first);
        assert!(!pool.grow(2));
        let taken: Vec<_> = std::iter::from_fn(|| pool.try_take()).collect();
        assert_eq!(taken.len(), 2);
    }
}
