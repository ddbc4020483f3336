//! A queue of messages to a thread that runs before others, from threads that do not.

use longhaul_sys::sync::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The sending end; dropping it ends the inbox. Not the standard library's channel: its receiver
/// spins while a message is half-way in, and one that runs before the sender would keep the
/// processor from it.
pub(super) struct Sender<T>(Arc<Shared<T>>);

/// The receiving end.
pub(super) struct Inbox<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    waiting: VecDeque<T>,
    ended: bool,
}

/// Result of a wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received<T> {
    Message(T),
    /// Nothing, in all the time.
    Nothing,
    /// Nothing will come any more.
    End,
}

pub(super) fn inbox<T>() -> (Sender<T>, Inbox<T>) {
    let state = Mutex::new(State { waiting: VecDeque::new(), ended: false });
    let shared = Arc::new(Shared { state, changed: Condvar::new() });
    (Sender(shared.clone()), Inbox(shared))
}

impl<T> Sender<T> {
    pub(super) fn send(&self, message: T) {
        self.0.change(|state| {
            if !state.ended {
                state.waiting.push_back(message);
            }
        });
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.change(|state| state.ended = true);
    }
}

impl<T> Inbox<T> {
    /// Waits for a message, for so long at most.
    pub(super) fn receive(&self, most: Duration) -> Received<T> {
        let state = lock(&self.0.state);
        let idle = |state: &mut State<T>| state.waiting.is_empty() && !state.ended;
        let waited = self.0.changed.wait_timeout_while(state, most, idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.waiting.pop_front() {
            Some(message) => Received::Message(message),
            None if state.ended => Received::End,
            None => Received::Nothing,
        }
    }
}

impl<T> Drop for Inbox<T> {
    /// A thread that panicked receives nothing more, and has reported it.
    fn drop(&mut self) {
        self.0.change(|state| {
            state.ended = true;
            state.waiting.clear();
        });
    }
}

impl<T> Shared<T> {
    fn change(&self, change: impl FnOnce(&mut State<T>)) {
        change(&mut lock(&self.state));
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_received_in_order_and_then_the_end() {
        let (sender, inbox) = inbox();
        assert_eq!(inbox.receive(Duration::ZERO), Received::Nothing);
        let sending = std::thread::spawn(move || (0..1000).for_each(|number| sender.send(number)));
        for number in 0..1000 {
            assert_eq!(inbox.receive(Duration::MAX), Received::Message(number));
        }
        assert_eq!(inbox.receive(Duration::MAX), Received::End);
        sending.join().unwrap();
    }
}
