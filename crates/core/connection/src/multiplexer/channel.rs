//! One connection in frames.

use alloc::collections::VecDeque;

use longhaul_wire::SSH_WINDOW;

#[derive(Debug)]
pub(super) struct Channel {
    /// Bytes that came, and that the connection has not taken.
    waiting: VecDeque<u8>,
    /// Bytes that may still be sent, and that may still come.
    credit: u64,
    promised: u64,
    /// Bytes that the connection took since credit was given.
    taken: u32,
    /// No more come from the connection, or through the stream.
    ended_here: bool,
    ended_there: bool,
    /// The connection knows the latter.
    is_shut: bool,
}

impl Channel {
    pub fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            credit: SSH_WINDOW.into(),
            promised: SSH_WINDOW.into(),
            taken: 0,
            ended_here: false,
            ended_there: false,
            is_shut: false,
        }
    }

    /// Bytes that may be sent.
    pub fn room(&self) -> u64 {
        if self.ended_here { 0 } else { self.credit }
    }

    pub fn sent(&mut self, len: usize) {
        self.credit = self.credit.saturating_sub(len as u64);
    }

    pub fn end_here(&mut self) {
        self.ended_here = true;
    }

    /// All that the connection had was sent.
    pub fn has_ended_here(&self) -> bool {
        self.ended_here
    }

    /// Nothing more goes in either direction.
    pub fn is_over(&self) -> bool {
        self.ended_here && self.is_shut
    }

    /// Takes what came; false where it was not promised.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let promised = self.promised.checked_sub(bytes.len() as u64).filter(|_| !self.ended_there);
        let Some(promised) = promised else { return false };
        self.promised = promised;
        self.waiting.extend(bytes);
        true
    }

    /// The peer takes so many more.
    pub fn add_credit(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes.into());
    }

    pub fn end_there(&mut self) {
        self.ended_there = true;
    }

    pub fn waiting(&self) -> &[u8] {
        self.waiting.as_slices().0
    }

    /// The connection took so many bytes. Returns the credit that is to be given now.
    pub fn handle_taken(&mut self, len: usize) -> Option<u32> {
        self.waiting.drain(..len);
        self.taken += len as u32;
        if self.taken < SSH_WINDOW / 4 || self.ended_there {
            return None;
        }
        self.promised += u64::from(self.taken);
        Some(core::mem::take(&mut self.taken))
    }

    pub fn poll_end(&mut self) -> bool {
        let ends = self.ended_there && self.waiting.is_empty() && !self.is_shut;
        self.is_shut |= ends;
        ends
    }
}
