//! The end that asked a question: the answers that have come, and were not taken.

use longhaul_wire::AnswerMessage;

use crate::answer_queue::AnswerQueue;
use crate::watchdog::Counts;

/// Answers of a server, in order. Their driver takes them by [`poll_answer`](Self::poll_answer); while it
/// does not, no more are read.
#[derive(Debug, Default)]
pub struct IncomingAnswers {
    queue: AnswerQueue,
    listed: u64,
    unlisted: u64,
    taken: u64,
    ended: bool,
}

/// An answer that makes no sense: the server broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It came behind the end.
    #[error("an answer behind the last one")]
    BehindEnd,
    /// The end states other numbers than came.
    #[error("the end of the answers states other numbers than came")]
    Miscounted,
}

impl IncomingAnswers {
    /// Takes in an answer.
    ///
    /// # Errors
    /// See [`AnswerError`].
    pub fn handle_message(&mut self, answer: AnswerMessage) -> Result<(), AnswerError> {
        if self.ended {
            return Err(AnswerError::BehindEnd);
        }
        match &answer {
            AnswerMessage::Listed(all) => self.listed += all.len() as u64,
            AnswerMessage::Unlisted { .. } => self.unlisted += 1,
            &AnswerMessage::End { listed, unlisted } => {
                if (listed, unlisted) != (self.listed, self.unlisted) {
                    return Err(AnswerError::Miscounted);
                }
                self.ended = true;
            }
        }
        self.queue.push(answer);
        Ok(())
    }

    /// The next answer for the one who asked.
    #[must_use]
    pub fn poll_answer(&mut self) -> Option<AnswerMessage> {
        let answer = self.queue.pop()?;
        self.taken += 1;
        Some(answer)
    }

    /// True if more messages are wanted.
    pub fn wants_messages(&self) -> bool {
        self.queue.has_room()
    }

    /// Number of things that were listed, once all was taken.
    pub fn done(&self) -> Option<u64> {
        (self.ended && self.queue.is_empty()).then_some(self.listed)
    }

    /// True while the one who asked does not take what there is.
    pub fn idles(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Counts that grow while it goes on.
    pub fn counts(&self) -> Counts {
        Counts { moved: self.listed + self.unlisted, other: self.taken, ..Counts::default() }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use longhaul_wire::{EntryCode, EntryEnd};

    use super::*;
    use crate::answer_queue::QUEUED_MOST;
    use crate::outgoing_answers::OutgoingAnswers;

    fn unlisted(len: usize) -> AnswerMessage {
        let end = EntryEnd::new(EntryCode::Permission, "no permission");
        AnswerMessage::Unlisted { path: vec![b'a'; len], end }
    }

    #[test]
    fn answers_arrive_in_order_and_end_once() {
        let (mut out, mut here) = (OutgoingAnswers::default(), IncomingAnswers::default());
        let end = AnswerMessage::End { listed: 0, unlisted: 2 };
        for answer in [unlisted(1), unlisted(2), end.clone()] {
            assert!(!out.is_done());
            out.push(answer);
        }
        let sent: Vec<_> = core::iter::from_fn(|| out.poll_message()).collect();
        assert!(out.is_done());
        for answer in &sent {
            here.handle_message(answer.clone()).unwrap();
            assert_eq!(here.done(), None, "nothing was taken");
        }
        assert_eq!(here.handle_message(unlisted(1)), Err(AnswerError::BehindEnd));
        let taken: Vec<_> = core::iter::from_fn(|| here.poll_answer()).collect();
        assert_eq!(taken, sent);
        assert_eq!(here.done(), Some(0));
    }

    #[test]
    fn an_end_that_states_other_numbers_is_an_error() {
        let mut here = IncomingAnswers::default();
        here.handle_message(unlisted(1)).unwrap();
        for (listed, unlisted) in [(1, 0), (0, 0), (0, 2), (u64::MAX, u64::MAX)] {
            let end = AnswerMessage::End { listed, unlisted };
            assert_eq!(here.handle_message(end), Err(AnswerError::Miscounted));
        }
    }

    #[test]
    fn a_client_that_takes_nothing_holds_a_bounded_queue_at_both_ends() {
        let (mut out, mut here) = (OutgoingAnswers::default(), IncomingAnswers::default());
        let mut pushed = 0;
        loop {
            while out.has_room() {
                out.push(unlisted(1_000));
                pushed += 1;
            }
            if !here.wants_messages() {
                break;
            }
            here.handle_message(out.poll_message().unwrap()).unwrap();
        }
        assert!(pushed <= 2 * (QUEUED_MOST / 1_000 + 1), "{pushed}");
        assert!(here.idles());
        while here.poll_answer().is_some() {}
        assert!(here.wants_messages() && !here.idles());
    }
}
