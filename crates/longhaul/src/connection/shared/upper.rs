//! The shared half as the lanes of a connection see it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use longhaul_carriers::buffer::Buffer;
use longhaul_carriers::upper_layer::{Command, UpperLayer, close_for};
use longhaul_connection::{Begun, GroupPart, News, Standing, Stored, Unplaceable, Violation, Wish};
use longhaul_sys::sync::lock;
use longhaul_sys::{clock, descriptors, threads};
use longhaul_wire::CloseCode;

use super::{Shared, refuse};

impl UpperLayer for Shared {
    fn on_news(&self, news: News<Buffer>) {
        match news {
            // A buffer may be free.
            News::Delivered(_) => self.tell_upstream(),
            News::Arrived(_) => {
                self.handle_news(news);
                self.work.notify_one();
            }
            News::Withdrawn(_) => {
                self.handle_news(news);
                // There is memory, and credit, for another group.
                self.work.notify_all();
            }
            News::Validated | News::GivenUp(_) | News::Closed(_) => self.handle_news(news),
            News::MoveAsked(_) | News::Lost(..) | News::FitsNot(_) => {}
        }
    }

    fn on_stream_bytes(&self, bytes: &[u8]) -> Result<(), Violation> {
        self.lock().handle_bytes(bytes);
        self.handle_messages()
    }

    fn wants_stream(&self) -> bool {
        !self.opening.load(Ordering::Acquire) && lock(&self.seen).wants_messages
    }

    fn on_stream_end(&self) -> Result<(), Violation> {
        self.change(|half| half.handle_end())
    }

    fn next_message(&self, out: &mut Vec<u8>) -> bool {
        let mut half = self.lock();
        let given_back = self.refresh(&mut half);
        let waited = !half.wants_messages();
        let Some(message) = half.poll_message() else { return false };
        self.publish(&mut half, given_back);
        let wants = half.wants_messages();
        let has_room = half.outgoing_answers().is_some_and(|answers| answers.has_room());
        drop(half);
        if waited && wants || has_room {
            // Preparations and credit go on as well, and so does what finds answers.
            self.work.notify_all();
        }
        // Ours are within the limits of the wire, but for a reason that is too long.
        message.encode(out).is_ok()
    }

    fn is_finished(&self) -> bool {
        lock(&self.seen).has_sent_all
    }

    fn on_credit(&self, credit: u64) {
        if self.gate.is_more(credit) {
            self.update(&mut self.lock(), |half| half.handle_credit(credit));
            self.work.notify_all();
        }
        // A piece that waits has its memory.
        let has_memory = || !lock(&self.seen).reads_first || self.pool.has_free();
        if self.gate.has_room(&self.mailboxes) && has_memory() {
            self.gate.take_room();
            self.update(&mut self.lock(), |_| ());
            self.work.notify_all();
        }
    }

    fn standing(&self) -> Standing {
        let seen = *lock(&self.seen);
        if seen.given_back.is_none_or(|count| count == self.pool.given_back()) {
            return seen.standing;
        }
        self.update(&mut self.lock(), |half| half.standing())
    }

    fn stored(&self) -> Option<Stored> {
        self.stored.read()
    }

    fn begin_group(&self, part: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        let mut half = self.lock();
        let given_back = self.refresh(&mut half);
        let begun = half.begin_group(part, || self.pool.try_take());
        if matches!(begun, Ok(Begun::Unneeded)) {
            // What nobody needs gives its credit back.
            self.publish(&mut half, given_back);
        }
        begun
    }
}

impl Shared {
    /// Acts on the messages that are there, up to a request: those behind it wait until it is answered.
    fn handle_messages(&self) -> Result<(), Violation> {
        loop {
            // Acting on a message may take long: meanwhile others may send.
            let received = self.change(|half| match half.poll_received()? {
                Some(received) => half.handle_received(received).map(Some),
                None => Ok(None),
            });
            match received? {
                Some(Some(wish)) => {
                    self.open(wish);
                    break;
                }
                Some(None) => {}
                None => break,
            }
        }
        self.work.notify_all();
        self.tell_upstream();
        Ok(())
    }

    /// At a server: starts what the client asks for, or says why not, on a thread of its own. It may wait for a
    /// disk or for an earlier run, and a lane that answers nothing meanwhile passes for a path without UDP.
    fn open(&self, wish: Wish) {
        let (opener, this) = (lock(&self.opener).take(), self.this.upgrade());
        let (Some(opener), Some(this)) = (opener, this) else { return };
        self.opening.store(true, Ordering::Release);
        let open = move || {
            let opened = catch_unwind(AssertUnwindSafe(|| opener(&this, &wish)));
            if let Err(refused) = opened.unwrap_or_else(|_| Err(refuse(CloseCode::INTERNAL, FAULT)))
            {
                this.change(|half| half.refuse(refused));
            }
            // Messages that came with the request.
            if let Err(violation) = this.handle_messages() {
                this.mailboxes.post_first(Command::Order(close_for(&violation)));
            }
            this.opening.store(false, Ordering::Release);
            this.mailboxes.wake_messages();
        };
        match threads::spawn("longhaul-open", open) {
            Ok(thread) => self.own_thread(thread),
            Err(error) => {
                self.opening.store(false, Ordering::Release);
                let reason = format!("cannot begin it: {}", descriptors::explained(&error));
                self.change(|half| half.refuse(refuse(CloseCode::BUSY, reason)));
            }
        }
    }

    /// Whoever waits for memory of ours, or for the end, looks again.
    fn tell_upstream(&self) {
        let upstream = lock(&self.upstream).upgrade();
        if let Some(upstream) = upstream {
            upstream.mailboxes.wake_messages();
            upstream.nudge();
        }
    }

    fn handle_news(&self, news: News<Buffer>) {
        let mut half = self.lock();
        self.update(&mut half, |half| half.handle_news(clock::now(), news));
    }
}

/// The reason of a server that panicked.
const FAULT: &str = "a fault of the server ended it";
