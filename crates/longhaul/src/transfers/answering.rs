//! The end that answers by messages only: the conditions under which it does, and how answers leave.

use longhaul_connection::{OutgoingAnswers, Transfer};
use longhaul_units::Duration;
use longhaul_wire::{AnswerMessage, CloseCode, Refused, SshPurpose};

use crate::connection::shared::{Memory, Shared, refuse};
use crate::endpoint::request::{Asked, GrantedRequest};
use crate::endpoint::ssh::grant::Grant;
use crate::options::ServeOptions;
use crate::transfers::asking::PATIENCE;

/// Conditions of a server for requests that move messages only.
pub(crate) struct Answering {
    once: bool,
    /// All that clients may do, if that is less.
    grant: Option<Grant>,
    /// Longest time that answers may stand still; zero is for ever.
    patience: Duration,
}

impl Answering {
    /// Of a server with these options.
    pub fn new(options: &ServeOptions) -> Self {
        let (grant, patience) = (options.grant.clone(), options.stall_timeout);
        Self { once: options.once, grant, patience }
    }

    /// Checks that a client may ask for this at `path`; `else_done` says what a server for one transfer does
    /// otherwise.
    ///
    /// # Errors
    /// The refusal.
    pub fn check(
        &self,
        purpose: SshPurpose,
        path: &Vec<u8>,
        else_done: &str,
    ) -> Result<(), Refused> {
        match &self.grant {
            Some(grant) if grant.covers(purpose, std::slice::from_ref(path)) => Ok(()),
            Some(_) => Err(refuse(CloseCode::REFUSED, Grant::ELSE)),
            None if self.once => {
                let reason =
                    format!("this server serves one transfer (serve --once), and {else_done}");
                Err(refuse(CloseCode::REFUSED, reason))
            }
            None => Ok(()),
        }
    }

    /// Grants a request, and begins to answer it.
    pub fn begin(
        &self,
        asked: &Asked<'_>,
        granted: impl GrantedRequest + 'static,
        answers: OutgoingAnswers,
    ) {
        asked.grant(granted);
        let transfer = Transfer::OutgoingAnswers(answers);
        asked.shared.begin(transfer, Memory::None, asked.memory, self.patience);
    }
}

/// Waits until an answer has room. False where nobody reads it any more.
pub(crate) fn await_room(shared: &Shared) -> bool {
    let mut half = shared.lock();
    while !shared.is_stopped() {
        if half.outgoing_answers().is_some_and(|it| it.has_room()) {
            return true;
        }
        half = shared.rest(half, PATIENCE);
    }
    false
}

/// Has an answer sent.
pub(crate) fn push(shared: &Shared, answer: AnswerMessage) {
    shared.change(|half| half.outgoing_answers().map(|it| it.push(answer)));
}
