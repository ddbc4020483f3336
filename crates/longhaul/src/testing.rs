//! Help for tests.

/// Does something when it is dropped, also by an assertion that fails: in a scope of threads, which waits for all of
/// them then, others wait for ever unless somebody ends them.
pub(crate) struct AtEnd<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
