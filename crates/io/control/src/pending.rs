//! Connections that have not authenticated: their sockets, and limits by address and in total
//! (`admission`).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Mutex;

use longhaul_sys::clock;
use longhaul_sys::sync::lock;

use crate::accept::Stage;
use crate::admission::{Limits, Strangers, Ticket};

/// All of them, at one server.
#[derive(Debug)]
pub struct Pending {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    strangers: Strangers,
    /// Second handles, to end connections whose threads wait for them.
    sockets: BTreeMap<Ticket, TcpStream>,
}

/// A connection that has not authenticated, until this is dropped.
#[derive(Debug)]
pub struct PendingConnection<'d> {
    pending: &'d Pending,
    ticket: Ticket,
}

/// Data connections that a proven client is to open, until this is dropped.
#[derive(Debug)]
pub struct ExpectedConnections<'d> {
    pending: &'d Pending,
    from: IpAddr,
    count: usize,
}

impl Default for Pending {
    fn default() -> Self {
        let strangers = Strangers::new(LIMITS);
        Self { state: Mutex::new(State { strangers, sockets: BTreeMap::new() }) }
    }
}

impl Pending {
    /// Lets a connection wait for authentication, in the place of another if there are too many.
    ///
    /// # Errors
    /// There is no descriptor for it.
    pub fn admit(&self, stream: &TcpStream, from: IpAddr) -> io::Result<PendingConnection<'_>> {
        let socket = stream.try_clone()?;
        let mut state = lock(&self.state);
        let (ticket, gone) = state.strangers.admit(clock::now(), from);
        state.end(gone);
        state.sockets.insert(ticket, socket);
        Ok(PendingConnection { pending: self, ticket })
    }

    /// Descriptors or threads are short: one that waits has to go.
    pub fn make_room(&self) {
        let mut state = lock(&self.state);
        let gone = state.strangers.evict(clock::now());
        state.end(gone);
    }

    /// A client at `from` has proven a token.
    pub fn prove(&self, from: IpAddr) {
        lock(&self.state).strangers.prove(clock::now(), from);
    }

    /// True where a client at `from` has proven a token of late.
    pub fn knows(&self, from: IpAddr) -> bool {
        lock(&self.state).strangers.knows(clock::now(), from)
    }

    /// Lets `count` connections from `from` come in addition.
    pub fn expect(&self, from: IpAddr, count: usize) -> ExpectedConnections<'_> {
        lock(&self.state).strangers.expect(from, count);
        ExpectedConnections { pending: self, from, count }
    }
}

impl State {
    /// Ends a connection: its thread finds that the peer has closed.
    fn end(&mut self, gone: Option<Ticket>) {
        if let Some(socket) = gone.and_then(|ticket| self.sockets.remove(&ticket)) {
            // The peer may have been faster.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl PendingConnection<'_> {
    /// It has come so far.
    pub fn reach(&self, stage: Stage) {
        lock(&self.pending.state).strangers.reach(self.ticket, stage);
    }

    /// A proxy names the client for whom it connects: that one's places count.
    pub fn comes_from(&self, address: IpAddr) {
        let mut state = lock(&self.pending.state);
        let gone = state.strangers.comes_from(clock::now(), self.ticket, address);
        state.end(gone);
    }

    /// True if it had to make room.
    pub fn had_to_go(&self) -> bool {
        !lock(&self.pending.state).sockets.contains_key(&self.ticket)
    }
}

impl Drop for PendingConnection<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.pending.state);
        state.strangers.leave(self.ticket);
        state.sockets.remove(&self.ticket);
    }
}

impl Drop for ExpectedConnections<'_> {
    fn drop(&mut self) {
        lock(&self.pending.state).strangers.expect_no_more(self.from, self.count);
    }
}

/// Each stranger costs a thread, two descriptors and the buffers of TLS, some 100 KiB in all. Those
/// of one address leave room for others, and are enough for a host from which many copies begin at
/// once.
const LIMITS: Limits = Limits { all: 256, by_origin: 64 };
/// Threads that attend to strangers: those that had to go need a moment.
pub const ATTENDED_MAX: usize = 2 * LIMITS.all;
