//! The end that asked a question: the answers that have come, and were not taken.

use longhaul_wire::{AnswerMessage, VerifyRequest};

use crate::answer_queue::BoundedQueue;
use crate::watchdog::Counts;

/// Answers of a server, in order. Their driver takes them by [`poll_answer`](Self::poll_answer); while it
/// does not, no more are read. One who has more to ask does so by [`ask`](Self::ask), while there is
/// [room](Self::may_ask).
#[derive(Debug, Default)]
pub struct IncomingAnswers {
    queue: BoundedQueue<AnswerMessage>,
    questions: BoundedQueue<VerifyRequest>,
    asked: u64,
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
    /// A question for one that answers no more.
    #[error("a question behind the last one")]
    Unasked,
    /// Questions stay with the place of the first.
    #[error("a question about another place")]
    OtherPlace,
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
            AnswerMessage::Hashed(all) => self.listed += all.len() as u64,
            AnswerMessage::Left(all) => self.listed += all.len() as u64,
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

    /// True if another message of questions may be asked: the server reads.
    pub fn may_ask(&self) -> bool {
        self.questions.has_room()
    }

    /// More questions.
    pub fn ask(&mut self, more: VerifyRequest) {
        self.questions.push(more);
    }

    /// The next message for the server.
    #[must_use]
    pub fn poll_message(&mut self) -> Option<VerifyRequest> {
        let more = self.questions.pop()?;
        self.asked += 1;
        Some(more)
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

    /// Number of things that were listed or hashed, once all was taken.
    pub fn done(&self) -> Option<u64> {
        (self.ended && self.queue.is_empty()).then_some(self.listed)
    }

    /// True while the one who asked does not take what there is.
    pub fn idles(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Counts that grow while it goes on.
    pub fn counts(&self) -> Counts {
        Counts {
            moved: self.listed + self.unlisted + self.asked,
            other: self.taken,
            ..Counts::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use longhaul_wire::{EntryCode, EntryEnd, EntryPath, Question};

    use super::*;
    use crate::answer_queue::QUEUED_MOST;
    use crate::outgoing_answers::OutgoingAnswers;

    fn questions(count: usize, is_last: bool) -> VerifyRequest {
        let question = Question::List(EntryPath::default());
        VerifyRequest { path: Vec::new(), questions: vec![question; count], is_last }
    }

    #[test]
    fn questions_are_numbered_over_all_messages_until_the_last() {
        let (mut out, mut here) =
            (OutgoingAnswers::to(questions(0, false)), IncomingAnswers::default());
        here.ask(questions(2, false));
        here.ask(questions(3, true));
        let mut firsts = Vec::new();
        while let Some(more) = here.poll_message() {
            assert!(!out.has_all_questions());
            out.handle_questions(more).unwrap();
        }
        while let Some((first, all)) = out.poll_questions() {
            firsts.push((first, all.len()));
        }
        assert_eq!(firsts, [(0, 2), (2, 3)]);
        assert!(out.has_all_questions());
        assert_eq!(out.handle_questions(questions(1, false)), Err(AnswerError::Unasked));
        let mut listing = OutgoingAnswers::default();
        assert_eq!(listing.handle_questions(questions(1, false)), Err(AnswerError::Unasked));
    }

    #[test]
    fn questions_stay_with_their_place_and_wait_in_a_bounded_queue() {
        let mut out = OutgoingAnswers::to(questions(0, false));
        let other = VerifyRequest { path: b"else".to_vec(), ..questions(1, false) };
        assert_eq!(out.handle_questions(other), Err(AnswerError::OtherPlace));
        let mut asked = 0;
        while out.wants_messages() {
            out.handle_questions(questions(1_000, false)).unwrap();
            asked += 1;
        }
        assert!(asked <= QUEUED_MOST / 2_000 + 1, "{asked}");
    }

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
