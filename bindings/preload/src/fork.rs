//! State that a `fork` must not find locked: the child has only the thread that called it.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

/// A value behind a mutex of the C library, which, unlike Rust's, can be held over a `fork`.
pub(crate) struct Shared<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only by who holds the mutex.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The value, as long as this lives.
pub(crate) struct Guard<'s, T>(&'s Shared<T>);

impl<T> Shared<T> {
    pub const fn new(value: T) -> Self {
        let mutex = UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER);
        Self { mutex, value: UnsafeCell::new(value) }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        self.hold();
        Guard(self)
    }

    /// Before a `fork`: waits for who has it.
    pub fn hold(&self) {
        // SAFETY: it was initialised, and lives as long as the value.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
    }

    /// After it, in both processes, by the thread that called [`Self::hold`].
    pub fn release(&self) {
        // SAFETY: as above.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mutex is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the mutex is held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        static COUNT: Shared<u32> = Shared::new(0);
        let add = || (0..1000).for_each(|_| *COUNT.lock() += 1);
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(add)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*COUNT.lock(), 4000);
    }
}
