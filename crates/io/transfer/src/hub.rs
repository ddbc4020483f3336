//! One transfer over one connection: passes what the carrier brings to the side that this host
//! plays, and keeps what everybody wants to know of its state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use longhaul_connection::{Begun, CREDIT_STEP, GroupPart, Standing, Unplaceable, WholeGroup};
use longhaul_engine::Closed;
use longhaul_sys::clock;
use longhaul_units::{Duration, Extent, Instant, shown};
use longhaul_wire::{CloseCode, Message, MessageReader, PipeRequest, Refused, Request};

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

/// What the client asks for.
#[derive(Clone, Copy)]
pub(crate) enum Wish<'m> {
    Copy(&'m Request),
    Pipe(&'m PipeRequest),
}

/// What starts a side when the client's request arrives.
pub(crate) type Opener = Box<dyn Fn(Wish<'_>) -> Result<Side, Refused> + Send + Sync>;

pub(crate) struct TransferHub {
    reader: Mutex<MessageReader>,
    side: OnceLock<Side>,
    /// At a server: makes the side.
    opener: Option<Opener>,
    /// Messages that go before those of the side: REQUEST, REFUSED.
    first: Mutex<Vec<Vec<u8>>>,
    state: Mutex<State>,
    changed: Condvar,
    finished: AtomicBool,
    mailboxes: Vec<Arc<Mailbox>>,
}

/// How far the transfer is.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// When the first lane could carry data.
    pub validated: Option<Instant>,
    /// The peer does not grant the request.
    pub refused: Option<Refused>,
    /// The peer finished stream 0.
    pub stream_ended: bool,
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
    /// A client's transfer, which begins with `request`.
    pub fn client(request: &Message, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        let mut first = Vec::new();
        // A request within the limits of the wire always encodes.
        let _ = request.encode(&mut first);
        Self::new(None, vec![first], mailboxes)
    }

    /// A server's transfer: `opener` starts what the client asks for.
    pub fn server(opener: Opener, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        Self::new(Some(opener), Vec::new(), mailboxes)
    }

    fn new(opener: Option<Opener>, first: Vec<Vec<u8>>, mailboxes: Vec<Arc<Mailbox>>) -> Self {
        Self {
            reader: Mutex::new(MessageReader::new()),
            side: OnceLock::new(),
            opener,
            first: Mutex::new(first),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            finished: AtomicBool::new(false),
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
        self.finished.store(true, Ordering::Relaxed);
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

    fn on_message(&self, message: Message) -> Result<(), String> {
        match (message, self.side.get(), &self.opener) {
            (Message::Request(request), None, Some(opener)) => {
                self.open(opener, Wish::Copy(&request))
            }
            (Message::Pipe(request), None, Some(opener)) => self.open(opener, Wish::Pipe(&request)),
            // A client may speak before it knows that it is refused.
            (Message::Source(_) | Message::Sink(_), None, Some(_))
                if lock(&self.state).refused.is_some() =>
            {
                Ok(())
            }
            (Message::Refused(Refused { code, reason }), _, None) => {
                let refused = Refused { code, reason: shown(&reason) };
                self.change(|state| state.refused = Some(refused));
                Ok(())
            }
            (Message::Source(message), Some(Side::Sink(sink)), _) => sink.handle(message),
            (Message::Sink(message), Some(Side::Source(source)), _) => {
                source.handle(message)?;
                self.notify();
                Ok(())
            }
            _ => Err("a message that is not for this side, or not now".into()),
        }
    }

    fn open(&self, opener: &Opener, wish: Wish<'_>) -> Result<(), String> {
        if !lock(&self.first).is_empty() {
            return Err("a second request".into());
        }
        match opener(wish) {
            Ok(side) => {
                let _ = self.side.set(side);
                self.notify();
            }
            Err(refused) => {
                let mut bytes = Vec::new();
                let _ = refused.encode(&mut bytes);
                lock(&self.first).push(bytes);
                self.change(|state| state.refused = Some(refused));
                self.finish();
            }
        }
        Ok(())
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
        let mut reader = lock(&self.reader);
        reader.push(bytes);
        while let Some(message) = reader.next_message().map_err(|error| error.to_string())? {
            self.on_message(message)?;
        }
        Ok(())
    }

    fn wants_stream(&self) -> bool {
        self.sink().is_none_or(|sink| sink.wants_messages())
    }

    fn on_stream_end(&self) {
        self.change(|state| state.stream_ended = true);
    }

    fn next_message(&self, out: &mut Vec<u8>) -> bool {
        let mut first = lock(&self.first);
        if !first.is_empty() {
            out.extend(first.drain(..).flatten());
            return true;
        }
        drop(first);
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
        self.finished.load(Ordering::Relaxed)
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
}

/// A refusal in words for people.
pub(crate) fn refuse(code: CloseCode, reason: impl Into<String>) -> Refused {
    Refused { code, reason: reason.into() }
}
