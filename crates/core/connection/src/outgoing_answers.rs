//! The end that answers a request without objects: what it has found, and not sent.

use longhaul_wire::AnswerMessage;

use crate::answer_queue::AnswerQueue;
use crate::watchdog::Counts;

/// Answers on their way to the client that asked. Their driver finds them, and
/// [pushes](Self::push) them while there [is room](Self::has_room), [`AnswerMessage::End`] last.
#[derive(Debug, Default)]
pub struct OutgoingAnswers {
    queue: AnswerQueue,
    pushed: u64,
    sent: u64,
    ended: bool,
}

impl OutgoingAnswers {
    /// True if another answer may be pushed: the client reads.
    pub fn has_room(&self) -> bool {
        self.queue.has_room()
    }

    /// The next answer.
    pub fn push(&mut self, answer: AnswerMessage) {
        self.pushed += 1;
        self.ended |= matches!(answer, AnswerMessage::End { .. });
        self.queue.push(answer);
    }

    /// The next message for the client.
    #[must_use]
    pub fn poll_message(&mut self) -> Option<AnswerMessage> {
        let answer = self.queue.pop()?;
        self.sent += 1;
        Some(answer)
    }

    /// True once everything was sent.
    pub fn is_done(&self) -> bool {
        self.ended && self.queue.is_empty()
    }

    /// Counts that grow while it goes on.
    pub fn counts(&self) -> Counts {
        Counts { moved: self.sent, other: self.pushed, ..Counts::default() }
    }
}
