//! Memory for groups on their way in: a bounded number of buffers, counted.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use longhaul_connection::SharedHalf;

/// A shared half, of the simulation's buffers.
pub(crate) type Half = SharedHalf<Arc<Vec<u8>>, Staged>;

/// Counts what was taken and given back.
#[derive(Debug)]
pub(crate) struct Staging {
    /// Buffers that there may be.
    most: Cell<usize>,
    buffers: Cell<usize>,
    /// Bytes of the groups in them, and those that are no repair.
    bytes: Cell<u64>,
    first: Cell<u64>,
    given_back: Cell<u64>,
    /// Memory of those, which is used again as it is: a reader of what did not come sees it.
    free: RefCell<Vec<Vec<u8>>>,
}

impl Staging {
    /// At most so many buffers.
    pub fn new(most: usize) -> Rc<Self> {
        let [bytes, first, given_back] = [const { Cell::new(0) }; 3];
        let (most, buffers) = (Cell::new(most), Cell::new(0));
        let free = RefCell::default();
        Rc::new(Self { most, buffers, bytes, first, given_back, free })
    }

    /// There may be so many buffers from now on, or more if there were.
    pub fn grow(&self, most: usize) {
        self.most.set(self.most.get().max(most));
    }

    /// A buffer, if one is free.
    pub fn take(self: &Rc<Self>) -> Option<Staged> {
        if self.buffers.get() == self.most.get() {
            return None;
        }
        self.buffers.set(self.buffers.get() + 1);
        let bytes = self.free.borrow_mut().pop().unwrap_or_default();
        Some(Staged { bytes, len: 0, repairs: false, from: self.clone() })
    }

    /// Bytes of groups.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Bytes of groups that are no repair.
    pub fn first(&self) -> u64 {
        self.first.get()
    }

    /// Buffers that are taken.
    pub fn buffers(&self) -> usize {
        self.buffers.get()
    }

    /// Buffers that were given back, in all.
    pub fn given_back(&self) -> u64 {
        self.given_back.get()
    }
}

/// A buffer, counted while it is there.
#[derive(Debug)]
pub(crate) struct Staged {
    bytes: Vec<u8>,
    /// Bytes of its group.
    len: usize,
    /// Its group was received before.
    repairs: bool,
    from: Rc<Staging>,
}

impl Staged {
    /// It is for a group of `len` bytes, which `repairs` one that was received before.
    pub fn hold(&mut self, len: u32, repairs: bool) {
        self.len = len as usize;
        self.bytes.resize(self.bytes.len().max(self.len), 0);
        self.repairs = repairs;
        self.from.bytes.update(|bytes| bytes + u64::from(len));
        self.from.first.update(|bytes| bytes + self.counts_as_first());
    }

    /// Bytes of its group, if that is no repair.
    pub fn counts_as_first(&self) -> u64 {
        if self.repairs { 0 } else { self.len as u64 }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let Staging { buffers, bytes, first, given_back, free, .. } = &*self.from;
        buffers.update(|count| count - 1);
        bytes.update(|count| count - self.len as u64);
        first.update(|count| count - self.counts_as_first());
        given_back.update(|count| count + 1);
        free.borrow_mut().push(std::mem::take(&mut self.bytes));
    }
}

impl AsMut<[u8]> for Staged {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Deref for Staged {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
