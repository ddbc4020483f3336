use alloc::collections::VecDeque;

/// Numbered things of which the oldest are forgotten once they are finished.
#[derive(Clone, Debug)]
pub(crate) struct Window<T> {
    base: u32,
    items: VecDeque<T>,
}

impl<T> Window<T> {
    pub(crate) const fn new() -> Self {
        Self { base: 0, items: VecDeque::new() }
    }

    /// Number of the oldest that is kept.
    pub(crate) fn base(&self) -> u32 {
        self.base
    }

    /// Number that the next one gets.
    pub(crate) fn end(&self) -> u32 {
        self.base + self.items.len() as u32
    }

    pub(crate) fn push(&mut self, item: T) {
        self.items.push_back(item);
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.items.get(number.checked_sub(self.base)? as usize)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.items.get_mut(number.checked_sub(self.base)? as usize)
    }

    /// Forgets the oldest while `finished` says so.
    pub(crate) fn forget_while(&mut self, mut finished: impl FnMut(u32, &T) -> bool) {
        while self.items.front().is_some_and(|item| finished(self.base, item)) {
            self.items.pop_front();
            self.base += 1;
        }
    }
}
