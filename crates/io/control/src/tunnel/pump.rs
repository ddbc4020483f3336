//! The thread of a tunnel: frames from one stream to sockets, and back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_sys::wait::{Interest, wait};
use longhaul_units::Instant;
use longhaul_wire::SshFrame;

use super::channel::{Channel, Got};
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
    channels: BTreeMap<u16, Channel>,
    /// Number of the last channel that was opened.
    last: u16,
    /// The channel whose turn it is to send.
    turn: u16,
    /// Bytes of a frame that has not come whole.
    received: Vec<u8>,
    /// Frames to be written, and how far they are.
    out: Vec<u8>,
    written: usize,
    /// The peer sent something else than frames: the rest is passed over.
    broken: bool,
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
        Ok(Self {
            input: input.into(),
            output: output.into(),
            end,
            shared,
            channels: BTreeMap::new(),
            last: 0,
            turn: 0,
            received: Vec::new(),
            out: Vec::new(),
            written: 0,
            broken: false,
            closes_at: None,
        })
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
        let all_sent = self.out.is_empty() && self.channels.values().all(Channel::has_ended_here);
        (all_sent && !has_orders) || now >= closes_at
    }

    /// Nothing goes through any more.
    fn give_up(&mut self, reason: &str) {
        let mut state = lock(&self.shared.state);
        state.over.get_or_insert_with(|| reason.to_owned());
        state.orders.clear();
        drop(state);
        self.channels.clear();
    }

    fn take_orders(&mut self) -> bool {
        // They wait for the stream where they may.
        if self.out.len() > OUT_FULL {
            return false;
        }
        let orders = std::mem::take(&mut lock(&self.shared.state).orders);
        let busy = !orders.is_empty();
        for order in orders {
            match order {
                Order::Frame(frame) => self.out.extend(frame),
                Order::Connection(socket) => {
                    let channel = self.last.saturating_add(1);
                    if self.add(channel, socket) {
                        self.say(&SshFrame::Open { channel });
                    }
                }
            }
        }
        busy
    }

    /// Adds a connection; false where there is no room, and it ends.
    fn add(&mut self, channel: u16, socket: TcpStream) -> bool {
        if channel <= self.last || self.channels.len() >= CHANNELS_MAX {
            return false;
        }
        let Ok(new) = Channel::new(socket) else { return false };
        self.last = channel;
        self.channels.insert(channel, new);
        true
    }

    fn say(&mut self, frame: &SshFrame<'_>) {
        // All are within the bounds, and appending to a vector cannot fail.
        let _ = frame.encode(&mut self.out);
    }

    /// Reads of the sockets in turn what may be sent.
    fn collect(&mut self) -> bool {
        let mut chunk = [0; CHUNK];
        let mut busy = false;
        while self.out.len() < OUT_MAX {
            // Behind the one that sent last, and that one at the end.
            let behind = (Excluded(self.turn), Unbounded);
            let mut read = |(number, channel): (&u16, &mut Channel)| {
                let got = channel.read(&mut chunk);
                (!matches!(got, Ok(Got::Nothing))).then_some((*number, got))
            };
            let sender = self.channels.range_mut(behind).find_map(&mut read);
            let sender = sender.or_else(|| self.channels.range_mut(..=self.turn).find_map(read));
            let Some((channel, got)) = sender else { break };
            self.turn = channel;
            busy = true;
            match got {
                Ok(Got::Bytes(len)) => self.say(&SshFrame::Data { channel, bytes: &chunk[..len] }),
                Ok(Got::End) => self.say(&SshFrame::End { channel }),
                Ok(Got::Nothing) => {}
                Err(_) => self.reset(channel),
            }
        }
        busy
    }

    fn reset(&mut self, channel: u16) {
        self.channels.remove(&channel);
        self.say(&SshFrame::Reset { channel });
    }

    /// Writes what the stream takes.
    fn write(&mut self) -> io::Result<bool> {
        let mut busy = false;
        while self.written < self.out.len() {
            match self.output.write(&self.out[self.written..]) {
                Ok(len) => self.written += len,
                Err(error) if is_transient(&error) => return Ok(busy),
                Err(error) => return Err(error),
            }
            busy = true;
        }
        self.out.clear();
        self.written = 0;
        Ok(busy)
    }

    /// Reads what is there; nothing at the end of the stream.
    fn read(&mut self) -> io::Result<Option<bool>> {
        let mut chunk = [0; READ];
        // A peer that asks for answers and does not read them is not read either.
        if self.out.len() > OUT_FULL {
            return Ok(Some(false));
        }
        let len = match self.input.read(&mut chunk) {
            Ok(0) => return Ok(None),
            Ok(len) => len,
            Err(error) if is_transient(&error) => return Ok(Some(false)),
            Err(error) => return Err(error),
        };
        if !self.broken {
            self.received.extend_from_slice(&chunk[..len]);
            let received = std::mem::take(&mut self.received);
            match self.handle_all(&received) {
                Some(done) => self.received = received[done..].to_vec(),
                None => {
                    self.broken = true;
                    self.give_up(STRANGE);
                }
            }
        }
        Ok(Some(true))
    }

    /// Handles the whole frames of `received`; returns their length, or nothing if something is none.
    fn handle_all(&mut self, received: &[u8]) -> Option<usize> {
        let mut done = 0;
        while let Some((frame, len)) = SshFrame::parse(&received[done..]).ok()? {
            done += len;
            self.handle(frame)?;
        }
        Some(done)
    }

    fn handle(&mut self, frame: SshFrame<'_>) -> Option<()> {
        match frame {
            SshFrame::Open { channel } => self.open(channel)?,
            SshFrame::First { ports } => match &mut self.end {
                End::Server(arrived) => arrived(Arrival::Ports(ports)),
                End::Port(_) => {}
                End::Client => return None,
            },
            // For who has asked, which passes on the other frames.
            SshFrame::Report { .. } => return None,
            SshFrame::Data { channel, bytes } => {
                if let Some(it) = self.channels.get_mut(&channel)
                    && !it.take(bytes)
                {
                    return None;
                }
            }
            SshFrame::Credit { channel, bytes } => {
                self.channels.get_mut(&channel).into_iter().for_each(|it| it.add_credit(bytes));
            }
            SshFrame::End { channel } => {
                self.channels.get_mut(&channel).into_iter().for_each(Channel::end_there);
            }
            SshFrame::Reset { channel } => drop(self.channels.remove(&channel)),
        }
        Some(())
    }

    fn open(&mut self, channel: u16) -> Option<()> {
        if matches!(self.end, End::Client) || channel <= self.last {
            return None;
        }
        let has_room = self.channels.len() < CHANNELS_MAX;
        // Where this host has no sockets left, the client gets to know.
        let ends = match self.end {
            End::Port(port) => TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(|it| (it, None)),
            _ => pair().map(|(near, far)| (near, Some(far))),
        };
        if let Some((near, far)) = ends.ok().filter(|_| has_room)
            && self.add(channel, near)
        {
            if let (End::Server(arrived), Some(far)) = (&mut self.end, far) {
                arrived(Arrival::Connection(far));
            }
        } else {
            self.last = channel;
            self.say(&SshFrame::Reset { channel });
        }
        Some(())
    }

    /// Gives the sockets what they take, and the peer the credit for it.
    fn deliver(&mut self) -> bool {
        let numbers: Vec<u16> = self.channels.keys().copied().collect();
        let mut busy = false;
        for channel in numbers {
            let Some(it) = self.channels.get_mut(&channel) else { continue };
            let delivered = it.deliver();
            let (credit, is_over) = (it.credit_due(), it.is_over());
            match delivered {
                Ok(moved) => busy |= moved,
                Err(_) => {
                    self.reset(channel);
                    continue;
                }
            }
            if let Some(bytes) = credit {
                self.say(&SshFrame::Credit { channel, bytes });
                busy = true;
            }
            if is_over {
                self.channels.remove(&channel);
            }
        }
        busy
    }

    fn wait(&self) -> io::Result<()> {
        let mut sources = vec![(self.shared.waker.as_fd(), Interest::Readable)];
        if self.out.len() <= OUT_FULL {
            sources.push((self.input.as_fd(), Interest::Readable));
        }
        if !self.out.is_empty() {
            sources.push((self.output.as_fd(), Interest::Writable));
        }
        for channel in self.channels.values() {
            if channel.may_read() && self.out.len() < OUT_MAX {
                sources.push((channel.socket.as_fd(), Interest::Readable));
            }
            if channel.is_full() {
                sources.push((channel.socket.as_fd(), Interest::Writable));
            }
        }
        wait(&sources, self.closes_at)?;
        self.shared.waker.clear();
        Ok(())
    }
}

/// Connections at a time, by [10-8] of the protocol.
const CHANNELS_MAX: usize = 6;
/// Bytes of one DATA, by [10-10].
const CHUNK: usize = 16 << 10;
/// Bytes that wait for the stream before sockets are not read any more: what comes behind them, such as a
/// PING, waits as long.
const OUT_MAX: usize = 64 << 10;
/// The same with answers to what came: then nothing more is taken.
const OUT_FULL: usize = 256 << 10;
/// Bytes of one read.
const READ: usize = 64 << 10;
/// For what was sent before the end to be on its way.
const FAREWELL: Duration = Duration::from_secs(1);
const STRANGE: &str = "something else than longhaul writes to the stream of ssh";
