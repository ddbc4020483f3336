//! Memory for groups on their way in, counted.

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;

/// Counts what was taken and given back.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    bytes: Cell<u64>,
    buffers: Cell<u64>,
    given_back: Cell<u64>,
}

impl Staging {
    /// Memory for a group of `len` bytes.
    pub fn take(self: &Rc<Self>, len: u32) -> Staged {
        self.bytes.set(self.bytes.get() + u64::from(len));
        self.buffers.set(self.buffers.get() + 1);
        Staged { bytes: vec![0; len as usize], from: self.clone() }
    }

    /// Bytes that are taken.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Groups that are taken.
    pub fn buffers(&self) -> u64 {
        self.buffers.get()
    }

    /// Groups that were given back, in all.
    pub fn given_back(&self) -> u64 {
        self.given_back.get()
    }
}

/// Bytes of a group in memory, counted while they are there.
#[derive(Debug)]
pub(crate) struct Staged {
    bytes: Vec<u8>,
    from: Rc<Staging>,
}

impl Drop for Staged {
    fn drop(&mut self) {
        let Staging { bytes, buffers, given_back } = &*self.from;
        bytes.set(bytes.get() - self.bytes.len() as u64);
        buffers.set(buffers.get() - 1);
        given_back.set(given_back.get() + 1);
    }
}

impl AsMut<[u8]> for Staged {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Deref for Staged {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
