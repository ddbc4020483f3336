//! Questions and answers that wait, at either end.

use alloc::collections::VecDeque;

use longhaul_wire::{AnswerMessage, VerifyRequest};

/// A queue that has room up to a number of bytes, so that an end that takes them slowly costs no memory.
#[derive(Debug)]
pub(crate) struct BoundedQueue<M> {
    messages: VecDeque<M>,
    /// Bytes of these.
    bytes: usize,
}

/// A message that can wait.
pub(crate) trait Waiting {
    /// Bytes that it takes, about.
    fn cost(&self) -> usize;
}

impl Waiting for AnswerMessage {
    fn cost(&self) -> usize {
        Self::cost(self)
    }
}

impl Waiting for VerifyRequest {
    fn cost(&self) -> usize {
        Self::cost(self)
    }
}

impl<M> Default for BoundedQueue<M> {
    fn default() -> Self {
        Self { messages: VecDeque::new(), bytes: 0 }
    }
}

impl<M: Waiting> BoundedQueue<M> {
    pub fn has_room(&self) -> bool {
        self.bytes < QUEUED_MOST
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn push(&mut self, message: M) {
        self.bytes += message.cost();
        self.messages.push_back(message);
    }

    pub fn pop(&mut self) -> Option<M> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.cost();
        Some(message)
    }
}

/// Bytes of messages that wait.
pub(crate) const QUEUED_MOST: usize = 256 << 10;
