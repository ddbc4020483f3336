//! Connections in frames within one pair of ordered streams, such as those of ssh.

mod channel;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

use longhaul_wire::SshFrame;

use channel::Channel;

/// One end of a pair of streams that carry connections, each a *channel* (docs/protocol.md section 10).
///
/// Flow control is by channel: none waits for what nobody reads of another. The driver
/// * hands what comes by the stream to [`Self::handle_input`], as long as [`Self::wants_input`], and then takes
///   [`Self::poll_event`];
/// * gives each connection what [`Self::waiting`] has of it, says how much it took ([`Self::handle_taken`]), and
///   ends it behind the last byte ([`Self::poll_end`]);
/// * reads the connections of [`Self::senders`], one after the other, while there are any: at most [`Self::room`] at
///   a time, for [`Self::push`], or [`Self::finish`];
/// * writes [`Self::output`] to the stream, and says how much it wrote ([`Self::handle_written`]).
#[derive(Debug)]
pub struct Multiplexer {
    is_client: bool,
    channels: BTreeMap<u16, Channel>,
    /// Number of the last channel that was opened.
    last: u16,
    /// The channel that has sent last.
    turn: u16,
    /// Bytes of a frame that has not come whole.
    received: Vec<u8>,
    /// Frames to be written, and how far they are.
    out: Vec<u8>,
    written: usize,
    events: VecDeque<MultiplexerEvent>,
    is_broken: bool,
}

/// Something that the peer of a [`Multiplexer`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiplexerEvent {
    /// At a server: it has opened this channel.
    Opened(u16),
    /// It has ended this channel in both directions.
    Reset(u16),
    /// At a server: lanes begin at these UDP ports.
    Ports(Vec<u16>),
    /// It sent something else than frames that are possible: all channels are over, and what comes is passed over.
    Broken,
}

impl Multiplexer {
    /// The end that opens channels.
    pub fn client() -> Self {
        Self {
            is_client: true,
            channels: BTreeMap::new(),
            last: 0,
            turn: 0,
            received: Vec::new(),
            out: Vec::new(),
            written: 0,
            events: VecDeque::new(),
            is_broken: false,
        }
    }

    /// The end at which they are opened.
    pub fn server() -> Self {
        Self { is_client: false, ..Self::client() }
    }

    /// Opens a channel; `None` where there is no room for one.
    pub fn open(&mut self) -> Option<u16> {
        let channel = self.last.checked_add(1).filter(|_| self.has_room() && !self.is_broken)?;
        self.add(channel);
        self.say(&SshFrame::Open { channel });
        Some(channel)
    }

    fn has_room(&self) -> bool {
        self.channels.len() < CHANNELS_MAX
    }

    fn add(&mut self, channel: u16) {
        self.last = channel;
        self.channels.insert(channel, Channel::new());
    }

    /// Sends a frame that is about no channel.
    pub fn say(&mut self, frame: &SshFrame<'_>) {
        // All are within the bounds, and appending to a vector cannot fail.
        let _ = frame.encode(&mut self.out);
    }

    /// Input can be taken. A peer that asks for answers and does not read them is not read either.
    pub fn wants_input(&self) -> bool {
        !self.is_full()
    }

    /// So much output waits that nothing may be added to it.
    pub fn is_full(&self) -> bool {
        self.output().len() > OUT_FULL
    }

    /// Takes bytes of the stream, in any pieces.
    pub fn handle_input(&mut self, bytes: &[u8]) {
        if self.is_broken {
            return;
        }
        self.received.extend_from_slice(bytes);
        let received = core::mem::take(&mut self.received);
        match self.handle_frames(&received) {
            Some(done) => self.received = received[done..].to_vec(),
            None => {
                self.is_broken = true;
                self.channels.clear();
                self.events.push_back(MultiplexerEvent::Broken);
            }
        }
    }

    /// Handles the whole frames of `received`; returns their length, or nothing if something is none.
    fn handle_frames(&mut self, received: &[u8]) -> Option<usize> {
        let mut done = 0;
        while let Some((frame, len)) = SshFrame::parse(&received[done..]).ok()? {
            done += len;
            self.handle(frame)?;
        }
        Some(done)
    }

    fn handle(&mut self, frame: SshFrame<'_>) -> Option<()> {
        match frame {
            SshFrame::Open { channel } => {
                if self.is_client || channel <= self.last {
                    return None;
                }
                if self.has_room() {
                    self.add(channel);
                    self.events.push_back(MultiplexerEvent::Opened(channel));
                } else {
                    self.last = channel;
                    self.say(&SshFrame::Reset { channel });
                }
            }
            SshFrame::First { ports } => {
                if self.is_client {
                    return None;
                }
                self.events.push_back(MultiplexerEvent::Ports(ports));
            }
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
            SshFrame::Reset { channel } => {
                if self.channels.remove(&channel).is_some() {
                    self.events.push_back(MultiplexerEvent::Reset(channel));
                }
            }
        }
        Some(())
    }

    /// The next thing that the peer did.
    pub fn poll_event(&mut self) -> Option<MultiplexerEvent> {
        self.events.pop_front()
    }

    /// The channel is open in some direction.
    pub fn is_open(&self, channel: u16) -> bool {
        self.channels.contains_key(&channel)
    }

    /// Channels that are open in some direction.
    pub fn channels(&self) -> impl Iterator<Item = u16> + '_ {
        self.channels.keys().copied()
    }

    /// Channels that may send, in turn, while the stream takes what they do.
    pub fn senders(&self) -> impl Iterator<Item = u16> + use<> {
        let mut senders = [None; CHANNELS_MAX];
        if self.output().len() < OUT_MAX {
            // Behind the one that sent last, and that one at the end.
            let behind = self.channels.range((Excluded(self.turn), Unbounded));
            let all = behind.chain(self.channels.range(..=self.turn));
            let may_send = all.filter(|(_, channel)| channel.room() > 0);
            for (place, (number, _)) in senders.iter_mut().zip(may_send) {
                *place = Some(*number);
            }
        }
        senders.into_iter().flatten()
    }

    /// Bytes that the channel may send at once.
    pub fn room(&self, channel: u16) -> usize {
        let room = self.channels.get(&channel).map_or(0, Channel::room);
        usize::try_from(room).map_or(CHUNK, |room| room.min(CHUNK))
    }

    /// Sends these bytes, at most as many as there is room for.
    pub fn push(&mut self, channel: u16, bytes: &[u8]) {
        if let Some(it) = self.channels.get_mut(&channel) {
            it.sent(bytes.len());
            self.turn = channel;
            self.say(&SshFrame::Data { channel, bytes });
        }
    }

    /// Nothing more is sent by the channel.
    pub fn finish(&mut self, channel: u16) {
        if let Some(it) = self.channels.get_mut(&channel) {
            it.end_here();
            self.turn = channel;
            self.say(&SshFrame::End { channel });
            self.forget(channel);
        }
    }

    /// Ends the channel in both directions.
    pub fn reset(&mut self, channel: u16) {
        if self.channels.remove(&channel).is_some() {
            self.say(&SshFrame::Reset { channel });
        }
    }

    /// Bytes that came by the channel and were not taken; some of them, but none only where there are none.
    pub fn waiting(&self, channel: u16) -> &[u8] {
        self.channels.get(&channel).map_or(&[], Channel::waiting)
    }

    /// So many of [`Self::waiting`] were taken.
    pub fn handle_taken(&mut self, channel: u16, len: usize) {
        let credit = self.channels.get_mut(&channel).and_then(|it| it.handle_taken(len));
        if let Some(bytes) = credit {
            self.say(&SshFrame::Credit { channel, bytes });
        }
    }

    /// True once, when all of the channel was taken and no more will come.
    pub fn poll_end(&mut self, channel: u16) -> bool {
        let ended = self.channels.get_mut(&channel).is_some_and(Channel::poll_end);
        if ended {
            self.forget(channel);
        }
        ended
    }

    /// Forgets the channel if nothing more goes in either direction.
    fn forget(&mut self, channel: u16) {
        if self.channels.get(&channel).is_some_and(Channel::is_over) {
            self.channels.remove(&channel);
        }
    }

    /// Bytes for the stream.
    pub fn output(&self) -> &[u8] {
        &self.out[self.written..]
    }

    /// The stream has taken so many of [`Self::output`].
    pub fn handle_written(&mut self, len: usize) {
        self.written += len;
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
    }

    /// All that connections had is on its way, and none will have more.
    pub fn has_sent_all(&self) -> bool {
        self.output().is_empty() && self.channels.values().all(Channel::has_ended_here)
    }
}

/// Channels at a time, by [10-8] of the protocol.
const CHANNELS_MAX: usize = 6;
/// Bytes of one DATA, by [10-10].
const CHUNK: usize = 16 << 10;
/// Bytes that wait for the stream before no channel sends any more: what comes behind them, such as a PING,
/// waits as long.
const OUT_MAX: usize = 64 << 10;
/// The same with answers to what came: then nothing more is taken.
const OUT_FULL: usize = 256 << 10;

#[cfg(test)]
mod tests;
