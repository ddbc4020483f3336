//! A control connection after the handshake: PING, PONG, CLOSE (docs/protocol.md section 3).

use longhaul_sys::sync::lock;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use longhaul_engine::Closed;
use longhaul_sys::clock;
use longhaul_sys::threads;
use longhaul_sys::wait::{Interest, Waker, wait};
use longhaul_units::{Instant, shown};
use longhaul_wire::{CloseCode, ControlMessage};

use super::tls_stream::{TlsStream, is_transient};

/// End of a control connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlEnd {
    /// One side sent CLOSE.
    Closed {
        /// Why, for programs.
        code: CloseCode,
        /// Why, for people. Chosen by the peer if it closed: escape it before it is shown.
        reason: String,
        /// The peer closed; otherwise [`Control::close`], or a peer that broke the protocol.
        by_peer: bool,
    },
    /// The peer vanished, or the network failed: why, for people.
    Lost(String),
}

/// A control connection that a thread of its own keeps alive and watches. Shared by reference.
///
/// It ends once, with a [`ControlEnd`]. Dropping it closes it with `internal` if nobody has closed
/// it, and waits up to a second for the peer to have read that.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Watches `pipe`. `first` is sent at once; `received` came behind the handshake. When all is
    /// done one that `leaves` does not wait for the peer's end. Behind gateways none may: what comes
    /// to a closed socket is answered by a reset, and they would break the session off.
    pub fn start(
        pipe: TlsStream,
        first: &[u8],
        received: Vec<u8>,
        idle_timeout: Duration,
        leaves: bool,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            waker: Waker::new()?,
            last_received: AtomicU64::new(clock::now().as_nanos()),
            asks: AtomicBool::default(),
            answered: AtomicU64::default(),
            state: Mutex::default(),
        });
        let mut watch = Watch {
            pipe,
            received,
            shared: Arc::clone(&shared),
            idle_timeout,
            leaves,
            ping_after: PING_AFTER.min(idle_timeout / 4),
            ping_at: clock::now() + PING_AFTER.min(idle_timeout / 4),
        };
        watch.pipe.tls.writer().write_all(first)?;
        let thread = thread::Builder::new()
            .name("longhaul-control".into())
            .stack_size(STACK)
            .spawn(move || watch.run())
            .map_err(threads::refused)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// End of the connection, if it has ended.
    pub fn ended(&self) -> Option<ControlEnd> {
        self.shared.state().end.clone()
    }

    /// Has `call` called, on another thread, when the connection ends; at once, on this one, if it
    /// has ended. May be asked for several times.
    pub fn on_end(&self, call: impl FnOnce(&ControlEnd) + Send + 'static) {
        let mut state = self.shared.state();
        match state.end.clone() {
            None => state.calls.push(EndCall(Box::new(call))),
            Some(end) => {
                drop(state);
                call(&end);
            }
        }
    }

    /// Says CLOSE to the peer and ends the connection. Returns at once; dropping waits. Only the
    /// first call has an effect.
    pub fn close(&self, code: CloseCode, reason: &str) {
        self.shared.state().close.get_or_insert_with(|| (code, reason.to_owned()));
        self.shared.waker.wake();
    }

    /// Asks the peer at once whether it lives, by a small packet.
    pub fn ask(&self) {
        self.shared.asks.store(true, Ordering::Relaxed);
        self.shared.waker.wake();
    }

    /// When the last question was asked that the peer has answered.
    pub fn answered(&self) -> Instant {
        Instant::from_nanos(self.shared.answered.load(Ordering::Relaxed))
    }

    /// An authentic packet of this connection has come by the carrier: the peer lives even if the
    /// control connection is silent. Cheap; once a second is enough.
    pub fn note_received(&self, now: Instant) {
        self.shared.last_received.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.close(CloseCode::INTERNAL, "the program dropped the connection");
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct Shared {
    waker: Waker,
    /// Time of the last arrival from the peer, on any path; nanoseconds of the clock.
    last_received: AtomicU64,
    /// A PING is wanted now.
    asks: AtomicBool,
    /// When the last PING was sent that was answered, likewise.
    answered: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    close: Option<(CloseCode, String)>,
    end: Option<ControlEnd>,
    calls: Vec<EndCall>,
}

struct EndCall(Box<dyn FnOnce(&ControlEnd) + Send>);

impl std::fmt::Debug for EndCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EndCall(..)")
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, so the state is whole.
        lock(&self.state)
    }

    fn end(&self, end: ControlEnd) {
        let calls = {
            let mut state = self.state();
            state.end = Some(end.clone());
            std::mem::take(&mut state.calls)
        };
        for EndCall(call) in calls {
            call(&end);
        }
    }
}

/// State of the thread.
struct Watch {
    pipe: TlsStream,
    received: Vec<u8>,
    shared: Arc<Shared>,
    idle_timeout: Duration,
    leaves: bool,
    ping_after: Duration,
    ping_at: Instant,
}

impl Watch {
    fn run(mut self) {
        let end = self.watch().unwrap_or_else(|error| ControlEnd::Lost(error.to_string()));
        let notice = match &end {
            ControlEnd::Closed { by_peer: true, .. } => None,
            ControlEnd::Closed { code, reason, .. } => Some((*code, reason.as_str())),
            ControlEnd::Lost(reason) => Some((CloseCode::TIMEOUT, reason.as_str())),
        };
        let last = notice.map(|(code, reason)| {
            let mut last = Vec::new();
            // A reason is cut to what fits, so this cannot fail.
            let _ = ControlMessage::Close { code, reason }.encode(&mut last);
            (code, last)
        });
        // Reported before the farewell, which may take as long as the peer likes, up to a second.
        self.shared.end(end);
        match last {
            None => self.pipe.part(),
            Some((CloseCode::DONE, last)) if self.leaves => self.pipe.leave(&last),
            Some((_, last)) => self.pipe.finish(&last),
        }
    }

    /// Keeps the connection alive until it ends.
    fn watch(&mut self) -> io::Result<ControlEnd> {
        loop {
            if let Some(end) = self.parse()? {
                return Ok(end);
            }
            if let Some((code, reason)) = self.shared.state().close.clone() {
                return Ok(ControlEnd::Closed { code, reason, by_peer: false });
            }
            let now = clock::now();
            let received_at =
                Instant::from_nanos(self.shared.last_received.load(Ordering::Relaxed));
            let idle_at = received_at + self.idle_timeout;
            if now >= idle_at {
                return Ok(ControlEnd::Lost(Closed::silent(self.idle_timeout).reason));
            }
            if !self.flush()? {
                self.wait(Interest::Writable, idle_at)?;
                continue;
            }
            if now >= self.ping_at || self.shared.asks.swap(false, Ordering::Relaxed) {
                self.say(ControlMessage::Ping(now.as_nanos().to_be_bytes()))?;
                self.ping_at = now + self.ping_after;
                continue;
            }
            if self.wait(Interest::Readable, idle_at.min(self.ping_at))? && !self.receive()? {
                let reason = "the peer closed the connection without a word";
                return Ok(ControlEnd::Lost(reason.into()));
            }
        }
    }

    /// Waits for the socket, another thread, or `until`; tells whether it was the socket.
    fn wait(&self, interest: Interest, until: Instant) -> io::Result<bool> {
        let sources =
            [(self.shared.waker.as_fd(), Interest::Readable), (self.pipe.stream.as_fd(), interest)];
        let ready = wait(&sources, Some(until))?;
        self.shared.waker.clear();
        Ok(ready & 0b10 != 0)
    }

    /// Sends what is to be sent; tells whether all of it went. Nothing is read from a peer that
    /// does not read, so it cannot make us hoard answers.
    fn flush(&mut self) -> io::Result<bool> {
        while self.pipe.tls.wants_write() {
            match self.pipe.tls.write_tls(&mut self.pipe.stream) {
                Ok(_) => {}
                Err(error) if is_transient(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads from the socket; `false` when it has ended.
    fn receive(&mut self) -> io::Result<bool> {
        match self.pipe.tls.read_tls(&mut self.pipe.stream) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if is_transient(&error) => return Ok(true),
            Err(error) => return Err(error),
        }
        self.pipe.tls.process_new_packets().map_err(io::Error::other)?;
        let mut chunk = [0; 2048];
        loop {
            match self.pipe.tls.reader().read(&mut chunk) {
                Ok(0) => return Ok(!self.received.is_empty()),
                Ok(len) => self.received.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    /// Answers the messages received; `Some` when the connection ends by one of them.
    fn parse(&mut self) -> io::Result<Option<ControlEnd>> {
        let mut received = std::mem::take(&mut self.received);
        let mut done = 0;
        let mut end = None;
        while end.is_none() {
            match ControlMessage::parse(&received[done..]) {
                Ok(None) => break,
                Ok(Some((message, len))) => {
                    done += len;
                    end = self.handle(message)?;
                }
                Err(error) => end = Some(violation(&error.to_string())),
            }
        }
        received.drain(..done);
        self.received = received;
        Ok(end)
    }

    fn handle(&mut self, message: ControlMessage<'_>) -> io::Result<Option<ControlEnd>> {
        let now = clock::now();
        self.shared.last_received.fetch_max(now.as_nanos(), Ordering::Relaxed);
        self.ping_at = now + self.ping_after;
        match message {
            ControlMessage::Ping(bytes) => self.say(ControlMessage::Pong(bytes))?,
            ControlMessage::Pong(bytes) => {
                // A peer may make it up.
                let sent = u64::from_be_bytes(bytes).min(now.as_nanos());
                self.shared.answered.fetch_max(sent, Ordering::Relaxed);
            }
            ControlMessage::Close { code, reason } => {
                let reason = shown(reason);
                return Ok(Some(ControlEnd::Closed { code, reason, by_peer: true }));
            }
            ControlMessage::Hello(_) | ControlMessage::Welcome(_) => {
                return Ok(Some(violation("the handshake is over")));
            }
        }
        Ok(None)
    }

    fn say(&mut self, message: ControlMessage<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).map_err(io::Error::other)?;
        self.pipe.tls.writer().write_all(&bytes)
    }
}

fn violation(reason: &str) -> ControlEnd {
    let code = CloseCode::PROTOCOL_VIOLATION;
    ControlEnd::Closed { code, reason: reason.to_owned(), by_peer: false }
}

/// Silence after which the peer is asked whether it lives.
const PING_AFTER: Duration = Duration::from_secs(5);

/// TLS records are on the heap.
const STACK: usize = 256 << 10;
