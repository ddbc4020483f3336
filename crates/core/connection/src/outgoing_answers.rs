//! The end that answers a request without objects: what it has found, and not sent.

use alloc::vec::Vec;

use longhaul_wire::{AnswerMessage, Question, VerifyRequest};

use crate::answer_queue::BoundedQueue;
use crate::incoming_answers::AnswerError;
use crate::watchdog::Counts;

/// Answers on their way to the client that asked. Their driver finds them, and
/// [pushes](Self::push) them while there [is room](Self::has_room), [`AnswerMessage::End`] last.
///
/// Of a client that asks more than once it takes the questions first, by
/// [`poll_questions`](Self::poll_questions); while it does not, no more are read.
#[derive(Debug, Default)]
pub struct OutgoingAnswers {
    queue: BoundedQueue<AnswerMessage>,
    pushed: u64,
    sent: u64,
    ended: bool,
    /// True while more of them may come.
    is_asked: bool,
    questions: BoundedQueue<VerifyRequest>,
    /// Number of the next question, and of those that came.
    taken: u64,
    asked: u64,
}

impl OutgoingAnswers {
    /// Of a client whose first message is `first`, and that may go on asking.
    pub fn to(first: VerifyRequest) -> Self {
        let mut answers = Self { is_asked: true, ..Self::default() };
        answers.take_in(first);
        answers
    }

    /// More questions.
    ///
    /// # Errors
    /// See [`AnswerError`].
    pub fn handle_questions(&mut self, more: VerifyRequest) -> Result<(), AnswerError> {
        if !self.is_asked {
            return Err(AnswerError::Unasked);
        }
        if !more.path.is_empty() {
            return Err(AnswerError::OtherPlace);
        }
        self.take_in(more);
        Ok(())
    }

    fn take_in(&mut self, more: VerifyRequest) {
        self.is_asked = !more.is_last;
        self.asked += more.questions.len() as u64;
        if !more.questions.is_empty() {
            self.questions.push(VerifyRequest { path: Vec::new(), ..more });
        }
    }

    /// The next questions, and the number of the first of them.
    #[must_use]
    pub fn poll_questions(&mut self) -> Option<(u64, Vec<Question>)> {
        let questions = self.questions.pop()?.questions;
        let first = self.taken;
        self.taken += questions.len() as u64;
        Some((first, questions))
    }

    /// True if no question is to come that was not taken.
    pub fn has_all_questions(&self) -> bool {
        !self.is_asked && self.questions.is_empty()
    }

    /// True if more messages are wanted.
    pub fn wants_messages(&self) -> bool {
        self.questions.has_room()
    }

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
        let (moved, other) = (self.sent + self.asked, self.pushed + self.taken);
        Counts { moved, other, ..Counts::default() }
    }
}
