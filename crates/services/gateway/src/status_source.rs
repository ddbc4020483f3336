//! The threads of a gateway, to be asked for the state of everything.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::shared::Shared;
use crate::status::Status;
use crate::worker::Mailbox;

/// Asks all threads of a gateway for their sessions.
#[derive(Clone, Debug)]
pub(crate) struct StatusSource {
    shared: Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
}

impl StatusSource {
    pub const fn new(shared: Arc<Shared>, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        Self { shared, mailboxes }
    }

    /// Waits until all threads have shown their sessions, or have ended.
    pub fn status(&self) -> Status {
        let (answer, answers) = mpsc::channel();
        for mailbox in &self.mailboxes {
            mailbox.ask(answer.clone());
        }
        drop(answer);
        let until = Instant::now() + PATIENCE;
        let mut sessions = Vec::new();
        for _ in &self.mailboxes {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(some) = answers.recv_timeout(left) else { break };
            sessions.extend(some);
        }
        let held = sessions.iter().flat_map(|session| &session.segments);
        Status {
            max_sessions: self.shared.max_sessions() as u64,
            at_door: self.shared.strangers() as u64,
            memory: held.map(|segment| segment.memory).sum(),
            max_memory: self.shared.policy().memory,
            totals: self.shared.totals.with(&sessions),
            sessions,
        }
    }
}

/// A thread gives each session a turn before it looks up.
const PATIENCE: Duration = Duration::from_secs(5);
