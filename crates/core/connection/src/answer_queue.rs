//! Answers that wait, at either end.

use alloc::collections::VecDeque;

use longhaul_wire::AnswerMessage;

/// A queue that has room up to a number of bytes, so that an end that takes them slowly costs no memory.
#[derive(Debug, Default)]
pub(crate) struct AnswerQueue {
    answers: VecDeque<AnswerMessage>,
    /// Bytes of these.
    bytes: usize,
}

impl AnswerQueue {
    pub fn has_room(&self) -> bool {
        self.bytes < QUEUED_MOST
    }

    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    pub fn push(&mut self, answer: AnswerMessage) {
        self.bytes += answer.cost();
        self.answers.push_back(answer);
    }

    pub fn pop(&mut self) -> Option<AnswerMessage> {
        let answer = self.answers.pop_front()?;
        self.bytes -= answer.cost();
        Some(answer)
    }
}

/// Bytes of answers that wait.
pub(crate) const QUEUED_MOST: usize = 256 << 10;
