//! The thread of a tunnel: frames from one stream to sockets, and back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use longhaul_connection::{Multiplexer, MultiplexerEvent};
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_sys::wait::{Interest, wait};
use longhaul_units::Instant;
use longhaul_wire::SshFrame;

use super::{Arrival, Order, Shared, pair};
use crate::tls_stream::is_transient;

/// The end of a tunnel that a thread has.
pub(super) enum End {
    Client,
    Server(Box<dyn FnMut(Arrival) + Send>),
    /// Connections go on to that port of this host.
    Port(u16),
}

/// The thread's state.
pub(super) struct Pump {
    input: File,
    output: File,
    end: End,
    shared: Arc<Shared>,
    frames: Multiplexer,
    /// Of the channels that are open.
    sockets: BTreeMap<u16, TcpStream>,
    closes_at: Option<Instant>,
}

impl Pump {
    pub fn new(
        (input, output): (OwnedFd, OwnedFd),
        end: End,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        for stream in [&input, &output] {
            rustix::io::ioctl_fionbio(stream, true)?;
        }
        let frames = match end {
            End::Client => Multiplexer::client(),
            End::Server(_) | End::Port(_) => Multiplexer::server(),
        };
        let (input, output, sockets) = (input.into(), output.into(), BTreeMap::new());
        Ok(Self { input, output, end, shared, frames, sockets, closes_at: None })
    }

    pub fn run(mut self) {
        let reason = self.carry().map_or_else(|error| error.to_string(), str::to_owned);
        self.give_up(&reason);
    }

    /// Until a stream ends, or all is sent after the end was asked for. Returns why it ended.
    fn carry(&mut self) -> io::Result<&'static str> {
        loop {
            let mut busy = self.take_orders();
            busy |= self.collect();
            busy |= self.write()?;
            match self.read()? {
                Some(moved) => busy |= moved,
                None => return Ok("ssh has ended"),
            }
            busy |= self.deliver();
            if self.is_done() {
                return Ok("it was let go of");
            }
            if !busy {
                self.wait()?;
            }
        }
    }

    fn is_done(&mut self) -> bool {
        let state = lock(&self.shared.state);
        if !state.closing {
            return false;
        }
        let has_orders = !state.orders.is_empty();
        drop(state);
        let now = clock::now();
        let closes_at = *self.closes_at.get_or_insert(now + FAREWELL);
        (self.frames.has_sent_all() && !has_orders) || now >= closes_at
    }

    /// Nothing goes through any more.
    fn give_up(&mut self, reason: &str) {
        let mut state = lock(&self.shared.state);
        state.over.get_or_insert_with(|| reason.to_owned());
        state.orders.clear();
        drop(state);
        self.sockets.clear();
    }

    fn take_orders(&mut self) -> bool {
        // They wait for the stream where they may.
        if self.frames.is_full() {
            return false;
        }
        let orders = std::mem::take(&mut lock(&self.shared.state).orders);
        let busy = !orders.is_empty();
        for order in orders {
            match order {
                Order::Ports(ports) => self.frames.say(&SshFrame::First { ports }),
                Order::Report(bytes) => self.frames.say(&SshFrame::Report { bytes: &bytes }),
                // Where there is no room it ends.
                Order::Connection(socket) => {
                    if set_up(&socket).is_ok()
                        && let Some(channel) = self.frames.open()
                    {
                        self.sockets.insert(channel, socket);
                    }
                }
            }
        }
        busy
    }

    /// Reads of the sockets in turn what may be sent.
    fn collect(&mut self) -> bool {
        let (mut chunk, mut busy) = ([0; READ], false);
        while let Some(channel) =
            self.frames.senders().find(|channel| self.collect_of(*channel, &mut chunk))
        {
            busy = true;
            self.forget_if_over(channel);
        }
        busy
    }

    /// The same of one; false if it has nothing now.
    fn collect_of(&mut self, channel: u16, chunk: &mut [u8; READ]) -> bool {
        let Some(socket) = self.sockets.get_mut(&channel) else { return false };
        match socket.read(&mut chunk[..self.frames.room(channel)]) {
            Ok(0) => self.frames.finish(channel),
            Ok(len) => self.frames.push(channel, &chunk[..len]),
            Err(error) if is_transient(&error) => return false,
            Err(_) => self.frames.reset(channel),
        }
        true
    }

    fn forget_if_over(&mut self, channel: u16) {
        if !self.frames.is_open(channel) {
            self.sockets.remove(&channel);
        }
    }

    /// Writes what the stream takes.
    fn write(&mut self) -> io::Result<bool> {
        let mut busy = false;
        while !self.frames.output().is_empty() {
            match self.output.write(self.frames.output()) {
                Ok(len) => self.frames.handle_written(len),
                Err(error) if is_transient(&error) => return Ok(busy),
                Err(error) => return Err(error),
            }
            busy = true;
        }
        Ok(busy)
    }

    /// Reads what is there; nothing at the end of the stream.
    fn read(&mut self) -> io::Result<Option<bool>> {
        let mut chunk = [0; READ];
        if !self.frames.wants_input() {
            return Ok(Some(false));
        }
        let len = match self.input.read(&mut chunk) {
            Ok(0) => return Ok(None),
            Ok(len) => len,
            Err(error) if is_transient(&error) => return Ok(Some(false)),
            Err(error) => return Err(error),
        };
        self.frames.handle_input(&chunk[..len]);
        while let Some(event) = self.frames.poll_event() {
            self.handle(event);
        }
        Ok(Some(true))
    }

    fn handle(&mut self, event: MultiplexerEvent) {
        match event {
            MultiplexerEvent::Opened(channel) => self.opened(channel),
            MultiplexerEvent::Reset(channel) => drop(self.sockets.remove(&channel)),
            MultiplexerEvent::Ports(ports) => {
                if let End::Server(arrived) = &mut self.end {
                    arrived(Arrival::Ports(ports));
                }
            }
            MultiplexerEvent::Broken => self.give_up(STRANGE),
        }
    }

    /// The peer has opened a channel. Where this host has no sockets left, it gets to know.
    fn opened(&mut self, channel: u16) {
        let ends = match self.end {
            End::Port(port) => TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(|it| (it, None)),
            _ => pair().map(|(near, far)| (near, Some(far))),
        };
        let Ok((near, far)) = ends.and_then(|ends| set_up(&ends.0).map(|()| ends)) else {
            return self.frames.reset(channel);
        };
        self.sockets.insert(channel, near);
        if let (End::Server(arrived), Some(far)) = (&mut self.end, far) {
            arrived(Arrival::Connection(far));
        }
    }

    /// Gives the sockets what they take, and the peer the credit for it.
    fn deliver(&mut self) -> bool {
        let numbers: Vec<u16> = self.sockets.keys().copied().collect();
        let mut busy = false;
        for channel in numbers {
            match self.deliver_to(channel) {
                Ok(moved) => busy |= moved,
                Err(_) => self.frames.reset(channel),
            }
            self.forget_if_over(channel);
        }
        busy
    }

    /// The same to one. Its end comes behind the last byte.
    fn deliver_to(&mut self, channel: u16) -> io::Result<bool> {
        let Some(socket) = self.sockets.get_mut(&channel) else { return Ok(false) };
        let mut moved = false;
        while let waiting @ [_, ..] = self.frames.waiting(channel) {
            match socket.write(waiting) {
                Ok(len) => self.frames.handle_taken(channel, len),
                Err(error) if is_transient(&error) => return Ok(moved),
                Err(error) => return Err(error),
            }
            moved = true;
        }
        if self.frames.poll_end(channel) {
            socket.shutdown(Shutdown::Write)?;
        }
        Ok(moved)
    }

    fn wait(&self) -> io::Result<()> {
        let mut sources = vec![(self.shared.waker.as_fd(), Interest::Readable)];
        if self.frames.wants_input() {
            sources.push((self.input.as_fd(), Interest::Readable));
        }
        if !self.frames.output().is_empty() {
            sources.push((self.output.as_fd(), Interest::Writable));
        }
        let senders = self.frames.senders().filter_map(|channel| self.sockets.get(&channel));
        sources.extend(senders.map(|socket| (socket.as_fd(), Interest::Readable)));
        let takers = self.sockets.iter().filter(|(it, _)| !self.frames.waiting(**it).is_empty());
        sources.extend(takers.map(|(_, socket)| (socket.as_fd(), Interest::Writable)));
        wait(&sources, self.closes_at)?;
        self.shared.waker.clear();
        Ok(())
    }
}

fn set_up(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)
}

/// Bytes of one read.
const READ: usize = 64 << 10;
/// For what was sent before the end to be on its way.
const FAREWELL: Duration = Duration::from_secs(1);
const STRANGE: &str = "something else than longhaul writes to the stream of ssh";
