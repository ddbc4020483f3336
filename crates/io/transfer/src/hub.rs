//! One transfer over one connection: passes what the carrier brings to the side that this host
//! plays, and keeps what everybody wants to know of its state.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use longhaul_connection::{
    Begun, CREDIT_STEP, Conversation, GroupPart, Heard, Misspoken, Standing, Unplaceable,
    WholeGroup, Wish,
};
use longhaul_engine::Closed;
use longhaul_sys::clock;
use longhaul_units::{Duration, Extent, Instant, shown};
use longhaul_wire::{CloseCode, Refused};

use crate::buffer::{Buffer, lock};
use crate::carrier::{Hub, Mailbox};
use crate::control::ControlEnd;
use crate::side::{SinkSide, SourceSide};

/// Which side of the transfer this host plays.
#[derive(Clone)]
pub(crate) enum Side {
    Source(Arc<dyn SourceSide>),
    Sink(Arc<dyn SinkSide>),
}

/// What starts a side when the client's request arrives.
pub(crate) type Opener = Box<dyn Fn(&Wish) -> Result<Side, Refused> + Send + Sync>;

pub(crate) struct TransferHub {
    conversation: Mutex<Conversation>,
    side: OnceLock<Side>,
    /// At a server: makes the side.
    opener: Option<Opener>,
    state: Mutex<State>,
    changed: Condvar,
    mailboxes: Vec<Arc<Mailbox>>,
}

/// How far the transfer is.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// When the first lane could carry data.
    pub validated: Option<Instant>,
    /// The peer does not grant the request.
    pub refused: Option<Refused>,
    /// A lane or the control connection closed.
    pub closed: Option<Closed>,
    /// This host failed as a whole.
    pub failed: Option<String>,
}

impl State {
    /// The control connection ended: so does the transfer.
    pub fn note_end(&mut self, end: &ControlEnd) {
        let closed = match end {
            ControlEnd::Closed { code, reason, by_peer } => {
                Closed { code: *code, reason: reason.clone(), by_peer: *by_peer }
            }
            ControlEnd::Lost(reason) => {
                Closed { code: CloseCode::TIMEOUT, reason: reason.clone(), by_peer: false }
            }
        };
        self.closed.get_or_insert(closed);
    }
}

impl TransferHub {
    /// A client's transfer, which begins with `wish`.
    pub fn client(wish: &Wish, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        Self::new(Conversation::client(wish), None, mailboxes)
    }

    /// A server's transfer: `opener` starts what the client asks for.
    pub fn server(opener: Opener, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        Self::new(Conversation::server(), Some(opener), mailboxes)
    }

    fn new(
        conversation: Conversation,
        opener: Option<Opener>,
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> Self {
        Self {
            conversation: Mutex::new(conversation),
            side: OnceLock::new(),
            opener,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            mailboxes,
        }
    }

    /// Sets the side that a client plays.
    pub fn play(&self, side: Side) {
        // A client plays one side, set once before its lanes start.
        let _ = self.side.set(side);
    }

    pub fn side(&self) -> Option<&Side> {
        self.side.get()
    }

    /// Half-closes stream 0 behind the messages there are.
    pub fn finish(&self) {
        lock(&self.conversation).finish();
        self.wake();
    }

    pub fn wake(&self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.wake());
    }

    pub fn state(&self) -> State {
        lock(&self.state).clone()
    }

    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    /// Something that [`Self::wait`] asks of the sides has changed.
    fn notify(&self) {
        self.change(|_| ());
    }

    /// This host cannot go on.
    pub fn fail(&self, reason: String) {
        self.change(|state| {
            state.failed.get_or_insert(reason);
        });
    }

    /// Waits until `done`, or at most `patience`; returns the state then.
    pub fn wait(&self, patience: Duration, done: impl Fn(&State) -> bool) -> State {
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, patience, |state| !done(state));
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Whether a client whose side is done may close.
    pub fn may_close(&self) -> bool {
        lock(&self.conversation).may_close()
    }

    fn on_heard(&self, heard: Heard) -> Result<(), String> {
        match (heard, self.side.get()) {
            (Heard::Wish(wish), _) => self.open(&wish),
            (Heard::Refused(Refused { code, reason }), _) => {
                let refused = Refused { code, reason: shown(&reason) };
                self.change(|state| state.refused = Some(refused));
            }
            (Heard::Source(message), Some(Side::Sink(sink))) => sink.handle(message)?,
            (Heard::Sink(message), Some(Side::Source(source))) => {
                source.handle(message)?;
                self.notify();
            }
            // A client plays the part that it asked for, a server that which it granted.
            (Heard::Source(_) | Heard::Sink(_), _) => return Err(Misspoken::OutOfTurn.to_string()),
        }
        Ok(())
    }

    /// At a server: starts what the client asks for, or says why not.
    fn open(&self, wish: &Wish) {
        let Some(opener) = &self.opener else { return };
        match opener(wish) {
            Ok(side) => {
                let _ = self.side.set(side);
                lock(&self.conversation).grant();
                self.notify();
            }
            Err(refused) => {
                lock(&self.conversation).refuse(&refused);
                self.change(|state| state.refused = Some(refused));
                self.wake();
            }
        }
    }

    fn sink(&self) -> Option<&Arc<dyn SinkSide>> {
        match self.side.get() {
            Some(Side::Sink(sink)) => Some(sink),
            _ => None,
        }
    }

    fn source(&self) -> Option<&Arc<dyn SourceSide>> {
        match self.side.get() {
            Some(Side::Source(source)) => Some(source),
            _ => None,
        }
    }
}

impl Hub for TransferHub {
    fn on_validated(&self) {
        self.change(|state| {
            state.validated.get_or_insert_with(clock::now);
        });
    }

    fn on_stream_bytes(&self, bytes: &[u8]) -> Result<(), String> {
        lock(&self.conversation).handle_bytes(bytes);
        loop {
            // What is heard may take long: meanwhile others may speak.
            let heard = lock(&self.conversation).poll_heard();
            match heard.map_err(|error| error.to_string())? {
                Some(heard) => self.on_heard(heard)?,
                None => return Ok(()),
            }
        }
    }

    fn wants_stream(&self) -> bool {
        self.sink().is_none_or(|sink| sink.wants_messages())
    }

    fn on_stream_end(&self) -> Result<(), String> {
        lock(&self.conversation).handle_end().map_err(|error| error.to_string())?;
        self.notify();
        Ok(())
    }

    fn next_message(&self, out: &mut Vec<u8>) -> bool {
        if lock(&self.conversation).poll_first(out) {
            return true;
        }
        match self.side.get() {
            Some(Side::Source(source)) => source.next_message(out),
            Some(Side::Sink(sink)) => {
                let any = sink.next_message(out);
                if any && sink.done().is_some() {
                    self.notify();
                }
                any
            }
            None => false,
        }
    }

    fn is_finished(&self) -> bool {
        lock(&self.conversation).has_said_all()
    }

    fn on_credit(&self, credit: u64) {
        if let Some(source) = self.source() {
            source.on_credit(credit);
            source.on_room();
        }
    }

    fn on_delivered(&self, _: Extent) {
        if let Some(source) = self.source() {
            source.on_delivered();
        }
    }

    fn on_closed(&self, closed: &Closed) {
        self.change(|state| {
            state.closed.get_or_insert_with(|| closed.clone());
        });
    }

    fn standing(&self) -> Standing {
        match self.side.get() {
            Some(Side::Source(source)) => {
                Standing { drained: source.is_drained(), ..Standing::default() }
            }
            Some(Side::Sink(sink)) => {
                let (credit, bounds) = (sink.credit(), sink.bounds());
                Standing { credit, credit_step: CREDIT_STEP, bounds, drained: false }
            }
            None => Standing::default(),
        }
    }

    fn taken_below(&self) -> u32 {
        self.sink().map_or(0, |sink| sink.taken_below())
    }

    fn begin_group(&self, part: &GroupPart) -> Result<Begun<Buffer>, Unplaceable> {
        self.sink().ok_or(Unplaceable::Unasked)?.begin_group(part)
    }

    fn on_group(&self, whole: WholeGroup<Buffer>) {
        if let Some(sink) = self.sink() {
            sink.on_group(whole);
        }
    }

    fn on_given_up(&self, buffer: Buffer) {
        if let Some(sink) = self.sink() {
            sink.on_given_up(buffer);
        }
    }
}

/// A refusal in words for people.
pub(crate) fn refuse(code: CloseCode, reason: impl Into<String>) -> Refused {
    Refused { code, reason: reason.into() }
}
