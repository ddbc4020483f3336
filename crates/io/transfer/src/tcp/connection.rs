//! One TCP connection of the carrier on a thread of its own.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_connection::{Forged, GroupPart, Incoming, Order, Slot, Standing};
use longhaul_engine::Closed;
use longhaul_sys::wait::{Interest, wait};
use longhaul_sys::{clock, tcp};
use longhaul_units::{Bytes, Extent, Instant, Rate, shown};
use longhaul_wire::{
    CloseCode, Feedback, Frame, Frames, MAX_FRAMES_RECORD, MAX_RECORD_HEAD, ReceiverBounds,
    RecordHead, Writer,
};

use super::TcpView;
use super::join::DataConnection;
use super::link::{Got, Link};
use super::seal::{FRAMES_TAG, OBJECT_TAG, Seals};
use super::stream::{STREAM, Stream};
use crate::buffer::{Buffer, lock};
use crate::carrier::{Command, Hub, Mailbox};

/// The thread's state.
pub(crate) struct Worker {
    link: Link,
    seals: Option<Box<Seals>>,
    hub: Arc<dyn Hub>,
    mailbox: Arc<Mailbox>,
    shared: Arc<Mutex<TcpView>>,
    commands: VecDeque<Command>,
    /// Stream 0, and credit, on the first connection.
    stream: Option<Stream>,
    credit_told: u64,
    bounds_told: ReceiverBounds,
    credit: u64,
    peer: ReceiverBounds,
    /// Groups to send, the first of them from `sent` on.
    outgoing: VecDeque<Outgoing>,
    sent: u64,
    /// Object bytes given to the socket, and those of them that it has delivered.
    sent_in_all: u64,
    delivered: u64,
    record: Record,
    rate: Option<Rate>,
    idle_timeout: Duration,
    /// When the rate allows the next bytes of objects.
    paced_until: Instant,
    /// Since when there is something that it holds back, and how long it did before.
    held_since: Option<Instant>,
    held: Duration,
    reading: Reading,
    incoming: Incoming<Buffer>,
    /// Bytes that were there already.
    repeated: Vec<u8>,
    congestion_control: String,
    view_due: Instant,
}

/// A group to be sent.
struct Outgoing {
    extent: Extent,
    /// Its bytes are at the start.
    bytes: Arc<Buffer>,
}

/// The record that is being sent: its head, or all of it, and bytes of a group behind.
#[derive(Default)]
struct Record {
    head: Vec<u8>,
    body: Option<(Arc<Buffer>, Range<usize>)>,
    sent: usize,
}

/// The record that is being received.
enum Reading {
    Head {
        bytes: [u8; LONGEST_HEAD],
        count: usize,
    },
    /// With its head, and with its tag if it has one.
    Frames {
        bytes: Vec<u8>,
        count: usize,
    },
    Object {
        target: GroupPart,
        count: usize,
        repeated: bool,
    },
}

const HEAD: Reading = Reading::Head { bytes: [0; LONGEST_HEAD], count: 0 };

/// How reading went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Bytes came; there may be more.
    Busy,
    /// Nothing is there.
    Waiting,
    /// There is no memory to receive into.
    Stalled,
}

impl Worker {
    pub fn new(
        connection: DataConnection,
        rate: Option<Rate>,
        idle_timeout: Duration,
        hub: Arc<dyn Hub>,
        mailbox: Arc<Mailbox>,
        shared: Arc<Mutex<TcpView>>,
    ) -> io::Result<Self> {
        let DataConnection { lane, link, seals } = connection;
        let congestion_control = tcp::congestion_control(&link.stream)?;
        let now = clock::now();
        Ok(Self {
            link,
            seals,
            hub,
            mailbox,
            shared,
            commands: VecDeque::new(),
            stream: (lane.0 == 0).then(Stream::new),
            credit_told: 0,
            bounds_told: ReceiverBounds::NONE,
            credit: 0,
            peer: ReceiverBounds::NONE,
            outgoing: VecDeque::new(),
            sent: 0,
            sent_in_all: 0,
            delivered: 0,
            record: Record::default(),
            rate,
            idle_timeout,
            paced_until: now,
            held_since: None,
            held: Duration::ZERO,
            reading: HEAD,
            incoming: Incoming::default(),
            repeated: Vec::new(),
            congestion_control,
            view_due: now,
        })
    }

    pub fn run(mut self) {
        if self.stream.is_some() {
            self.hub.on_validated();
        }
        let end = self.carry().unwrap_or_else(|error| broken(&error, self.idle_timeout));
        self.outgoing.clear();
        self.mailbox.set_backlog(0);
        self.publish(clock::now());
        self.hub.on_closed(&end);
        if !end.by_peer {
            self.say_goodbye(&end);
        }
        self.link.finish();
    }

    /// Sends and receives until the connection ends.
    fn carry(&mut self) -> io::Result<Closed> {
        loop {
            if let Some(end) = self.take_commands() {
                return Ok(end);
            }
            let mut busy = match self.send() {
                Ok(busy) => busy,
                Err(error) => return self.last_words().ok_or(error),
            };
            let mut progress = Progress::Busy;
            for _ in 0..READS {
                progress = match self.receive()? {
                    Ok(progress) => progress,
                    Err(end) => return Ok(end),
                };
                if progress != Progress::Busy {
                    break;
                }
            }
            busy |= progress == Progress::Busy;
            self.hub.on_credit(self.credit);
            let now = clock::now();
            if now >= self.view_due {
                self.publish(now);
            }
            if !busy {
                self.sleep(now, progress)?;
            }
        }
    }

    /// What the peer said before it stopped listening.
    fn last_words(&mut self) -> Option<Closed> {
        loop {
            match self.receive() {
                Ok(Ok(Progress::Busy)) => {}
                Ok(Err(end)) => return Some(end),
                _ => return None,
            }
        }
    }

    fn take_commands(&mut self) -> Option<Closed> {
        let mut commands = std::mem::take(&mut self.commands);
        self.mailbox.drain(&mut commands);
        let mut end = None;
        for command in commands.drain(..) {
            match command {
                Command::Order(Order::Offer { extent, bytes }) => {
                    self.outgoing.push_back(Outgoing { extent, bytes });
                }
                Command::Order(Order::Close(code, reason)) => {
                    end = Some(Closed { code, reason, by_peer: false });
                }
                // Only UDP lanes share sockets, and change paths.
                Command::Datagram(..) | Command::Move(..) => {}
            }
        }
        self.commands = commands;
        self.take_repairs();
        end
    }

    fn take_repairs(&mut self) {
        let incoming = &mut self.incoming;
        self.mailbox.take_repairs(|repair| incoming.handle_repair(repair));
    }

    /// Sends records until nothing goes any more; whether anything went and more may.
    fn send(&mut self) -> io::Result<bool> {
        let mut busy = false;
        for _ in 0..WRITES {
            if self.record.is_sent() && !self.next_record()? {
                busy = false;
                break;
            }
            let body = self.record.rest_of_body();
            let head = &self.record.head[self.record.sent.min(self.record.head.len())..];
            let written = self.link.write(head, body)?;
            if written == 0 {
                busy = false;
                break;
            }
            busy = true;
            self.record.sent += written;
            if self.record.is_sent() {
                self.finish_record();
            }
        }
        self.link.flush()?;
        let waiting: u64 = self.outgoing.iter().map(|outgoing| outgoing.extent.len).sum();
        self.mailbox.set_backlog(waiting - self.sent);
        Ok(busy)
    }

    /// Begins the next record: frames first, for bytes of objects wait for them, then a piece of
    /// a group.
    fn next_record(&mut self) -> io::Result<bool> {
        if self.frames_record()? {
            return Ok(true);
        }
        let Some(first) = self.outgoing.front() else { return Ok(false) };
        if self.rate.is_some() {
            let now = clock::now();
            if now < self.paced_until {
                self.held_since.get_or_insert(now);
                return Ok(false);
            }
            // Being late is nobody's limit.
            let since = self.held_since.take().unwrap_or(self.paced_until);
            self.held += self.paced_until - since;
        }
        let most =
            self.rate.map_or(PIECE, |rate| rate.bytes_in(PIECE_TIME).clamp(PIECE_MIN, PIECE));
        let len = (first.extent.len - self.sent).min(most);
        let start = self.sent as usize;
        let head = RecordHead::Object {
            object: first.extent.object,
            offset: first.extent.offset + self.sent,
            len: len as usize,
        };
        let piece = (first.bytes.clone(), start..start + len as usize);
        self.record.set_object(head, piece, self.seals.as_deref_mut())?;
        Ok(true)
    }

    /// Puts what there is to say into a record of frames.
    fn frames_record(&mut self) -> io::Result<bool> {
        let Some(stream) = &mut self.stream else { return Ok(false) };
        let mut frames = Vec::new();
        let mut writer = Writer::append(&mut frames);
        let Standing { credit, bounds, .. } = self.hub.standing();
        if credit > self.credit_told || bounds != self.bounds_told {
            self.credit_told = credit.max(self.credit_told);
            self.bounds_told = bounds;
            let feedback =
                Feedback { bounds, ..Feedback::credit_only(Bytes::new(self.credit_told)) };
            // Appending to a vector cannot fail, here and below.
            let _ = Frame::Feedback(feedback).encode(&mut writer);
        }
        let _ = stream.write(&*self.hub, &mut writer, MAX_FRAMES_RECORD - FRAMES_MARGIN);
        self.record.set_frames(&frames, self.seals.as_deref_mut())?;
        Ok(!frames.is_empty())
    }

    /// The record of frames, or piece of a group, is in the socket.
    fn finish_record(&mut self) {
        self.record.head.clear();
        self.record.sent = 0;
        let Some((_, piece)) = self.record.body.take() else { return };
        let len = piece.len() as u64;
        self.sent += len;
        self.sent_in_all += len;
        if let Some(rate) = self.rate {
            let wire = len + len / PAYLOAD_PER_SEGMENT * HEADERS_PER_SEGMENT;
            self.paced_until =
                self.paced_until.max(clock::now().before(PACING_SLACK)) + rate.time_for(wire);
        }
        if self.outgoing.front().is_some_and(|first| first.extent.len == self.sent) {
            self.sent = 0;
            if let Some(done) = self.outgoing.pop_front() {
                // TCP resends what is lost, so the buffer is not needed any more.
                self.hub.on_delivered(done.extent);
            }
        }
    }

    /// Receives some bytes. The inner error is how the peer, or its fault, ended the connection.
    fn receive(&mut self) -> io::Result<Result<Progress, Closed>> {
        let got = match &mut self.reading {
            Reading::Head { bytes, count } => {
                // Never more than the head, so that what follows goes straight to its place.
                let most = match &self.seals {
                    _ if *count < SHORT_HEAD => SHORT_HEAD,
                    Some(_) => LONGEST_HEAD,
                    None => MAX_RECORD_HEAD,
                };
                let got = self.link.read(&mut bytes[*count..most])?;
                if let Got::Bytes(more) = got {
                    *count += more;
                }
                got
            }
            Reading::Frames { bytes, count } => {
                let got = self.link.read(&mut bytes[*count..])?;
                if let Got::Bytes(more) = got {
                    *count += more;
                }
                got
            }
            Reading::Object { target, count, repeated } => {
                let got = if *repeated {
                    self.link.read(&mut self.repeated[*count..])?
                } else {
                    match self.incoming.slot(target) {
                        Slot::Place(place) => self.link.read(&mut place[*count..])?,
                        Slot::Repeated => {
                            self.repeated.resize(target.len as usize, 0);
                            *repeated = true;
                            return Ok(Ok(Progress::Busy));
                        }
                        Slot::New | Slot::Outside => {
                            let begun = self.incoming.begin(&mut &*self.hub, target);
                            return Ok(match begun.map_err(|refusal| refusal.violation()) {
                                Ok(()) => Ok(Progress::Busy),
                                // Nothing is resent on TCP: it has to wait.
                                Err(None) => Ok(Progress::Stalled),
                                Err(Some(reason)) => Err(violation(reason.into())),
                            });
                        }
                    }
                };
                if let Got::Bytes(more) = got {
                    *count += more;
                }
                got
            }
        };
        match got {
            Got::Bytes(_) => {}
            Got::Nothing => return Ok(Ok(Progress::Waiting)),
            Got::End => return Err(io::Error::other("the peer ended it without a word")),
        }
        Ok(self.advance().map(|()| Progress::Busy))
    }

    /// Goes on to the next part of a record when the present one is complete.
    fn advance(&mut self) -> Result<(), Closed> {
        match &mut self.reading {
            Reading::Head { bytes, count } => {
                let head = match RecordHead::parse(&bytes[..(*count).min(MAX_RECORD_HEAD)]) {
                    Ok(head) => head,
                    // Nobody knows yet who wrote it.
                    Err(_) if self.seals.is_some() => return Err(altered(Forged)),
                    Err(error) => return Err(violation(error.to_string())),
                };
                match head {
                    None => {}
                    Some((RecordHead::Frames { len }, head)) => {
                        let tag = if self.seals.is_some() { FRAMES_TAG } else { 0 };
                        let mut record = vec![0; head + len + tag];
                        record[..head].copy_from_slice(&bytes[..head]);
                        self.reading = Reading::Frames { bytes: record, count: head };
                    }
                    Some((RecordHead::Object { object, offset, len }, _)) => {
                        if let Some(seals) = &mut self.seals {
                            let Some((head, tag)) = whole_head(&bytes[..*count]) else {
                                return Ok(());
                            };
                            seals.received.verify_object(head, *tag).map_err(altered)?;
                        }
                        self.take_repairs();
                        let target = GroupPart::new(object, offset, len as u32)
                            .ok_or_else(|| violation("bytes that were not asked for".into()))?;
                        self.reading = Reading::Object { target, count: 0, repeated: false };
                    }
                }
            }
            Reading::Frames { bytes, count } => {
                if *count == bytes.len() {
                    let mut bytes = std::mem::take(bytes);
                    self.reading = HEAD;
                    let (head, body) = bytes.split_at_mut(SHORT_HEAD);
                    let frames = match &mut self.seals {
                        Some(seals) => seals.received.open_frames(head, body).map_err(altered)?,
                        None => body,
                    };
                    self.handle_frames(frames)?;
                }
            }
            Reading::Object { target, count, repeated } => {
                if *count == target.len as usize {
                    let elsewhere = repeated.then_some(&self.repeated[..]);
                    if let Some(whole) = self.incoming.accept(target, elsewhere) {
                        self.hub.on_group(whole);
                    }
                    self.reading = HEAD;
                }
            }
        }
        Ok(())
    }

    fn handle_frames(&mut self, bytes: &[u8]) -> Result<(), Closed> {
        // Whoever acts on what the peer says counts what it says it about.
        self.publish(clock::now());
        for frame in Frames::new(bytes) {
            let frame = frame.map_err(|error| violation(error.to_string()))?;
            match (frame, &mut self.stream) {
                (Frame::Feedback(feedback), _) => {
                    self.credit = self.credit.max(feedback.credit.get());
                    self.peer = feedback.bounds;
                }
                (Frame::Stream { stream: STREAM, offset, fin, data }, Some(stream)) => {
                    stream.handle(&*self.hub, offset, fin, data).map_err(violation)?;
                }
                (Frame::StreamLimit { stream: STREAM, limit }, Some(stream)) => {
                    stream.handle_limit(limit);
                }
                (Frame::StreamReset { stream: STREAM, code }, Some(_)) => {
                    let reason = "the peer reset the stream".into();
                    return Err(Closed { code, reason, by_peer: true });
                }
                (Frame::Close { code, reason }, _) => {
                    return Err(Closed { code, reason: shown(reason), by_peer: true });
                }
                _ => return Err(violation("a frame that has no place on TCP".into())),
            }
        }
        Ok(())
    }

    fn sleep(&mut self, now: Instant, progress: Progress) -> io::Result<()> {
        let may_sleep = self.mailbox.announce_sleep();
        let mut deadline = now + SLEEP_MAX;
        if !self.outgoing.is_empty() && self.rate.is_some() && self.paced_until > now {
            deadline = deadline.min(self.paced_until);
        }
        let mut sources = [(self.mailbox.waker().as_fd(), Interest::Readable); 3];
        let mut count = 1;
        if progress == Progress::Stalled {
            deadline = deadline.min(now + STALL);
        } else {
            sources[count] = (self.link.stream.as_fd(), Interest::Readable);
            count += 1;
        }
        if !self.record.is_sent() || self.link.is_holding() {
            sources[count] = (self.link.stream.as_fd(), Interest::Writable);
            count += 1;
        }
        let waited = if may_sleep { wait(&sources[..count], Some(deadline)) } else { Ok(0) };
        self.mailbox.end_sleep();
        waited.map(drop)
    }

    /// Sends CLOSE behind the present record, if there is room for both soon.
    fn say_goodbye(&mut self, end: &Closed) {
        let mut frames = Vec::new();
        let frame = Frame::Close { code: end.code, reason: &end.reason };
        // Appending to a vector cannot fail.
        let _ = frame.encode(&mut Writer::append(&mut frames));
        let deadline = clock::now() + GOODBYE;
        let mut said = false;
        loop {
            if self.record.is_sent() {
                if said {
                    return;
                }
                said = true;
                self.record = Record::default();
                if self.record.set_frames(&frames, self.seals.as_deref_mut()).is_err() {
                    return;
                }
            }
            let body = self.record.rest_of_body();
            let head = &self.record.head[self.record.sent.min(self.record.head.len())..];
            match self.link.write(head, body) {
                Ok(0) => {
                    let socket = [(self.link.stream.as_fd(), Interest::Writable)];
                    match wait(&socket, Some(deadline)) {
                        Ok(1..) => {}
                        _ => return,
                    }
                }
                Ok(written) => self.record.sent += written,
                Err(_) => return,
            }
        }
    }

    fn publish(&mut self, now: Instant) {
        self.view_due = now + VIEW_INTERVAL;
        // A socket that cannot be asked any more keeps its last answer.
        if let Ok(info) = tcp::info(&self.link.stream) {
            let congestion_control = self.congestion_control.clone();
            let held_now = |since| now.min(self.paced_until) - since;
            let under_way = u64::from(info.bytes_unsent)
                + u64::from(info.unacknowledged) * u64::from(info.segment);
            let delivered = self.sent_in_all.saturating_sub(under_way);
            // What is said beside them is under way at times, too.
            self.delivered = self.delivered.max(delivered);
            *lock(&self.shared) = TcpView {
                info,
                congestion_control,
                cpu: clock::thread_cpu_time(),
                moved: self.delivered + self.incoming.placed(),
                paced: self.held + self.held_since.map_or(Duration::ZERO, held_now),
                peer: self.peer,
            };
        }
    }
}

impl Record {
    fn is_sent(&self) -> bool {
        self.sent == self.head.len() + self.body.as_ref().map_or(0, |(_, piece)| piece.len())
    }

    fn rest_of_body(&self) -> &[u8] {
        let Some((bytes, piece)) = &self.body else { return &[] };
        let sent = self.sent.saturating_sub(self.head.len());
        &bytes[piece.start + sent..piece.end]
    }

    fn set_frames(&mut self, frames: &[u8], seals: Option<&mut Seals>) -> io::Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        let head = RecordHead::Frames { len: frames.len() };
        // Appending to a vector cannot fail.
        let _ = head.encode(&mut Writer::append(&mut self.head));
        self.head.extend_from_slice(frames);
        if let Some(seals) = seals {
            seals.sent.seal_frames(&mut self.head, SHORT_HEAD).map_err(used_up)?;
        }
        Ok(())
    }

    fn set_object(
        &mut self,
        head: RecordHead,
        piece: (Arc<Buffer>, Range<usize>),
        seals: Option<&mut Seals>,
    ) -> io::Result<()> {
        // Appending to a vector cannot fail.
        let _ = head.encode(&mut Writer::append(&mut self.head));
        if let (Some(seals), Some(head)) = (seals, self.head.first_chunk()) {
            let tag = seals.sent.object_tag(head).map_err(used_up)?;
            self.head.extend_from_slice(&tag);
        }
        self.body = Some(piece);
        Ok(())
    }
}

/// The head of a record of object bytes and its tag, once both are there.
fn whole_head(bytes: &[u8]) -> Option<(&[u8; MAX_RECORD_HEAD], &[u8; OBJECT_TAG])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((head, rest.first_chunk()?))
}

/// How a socket's failure ended the connection. The kernel times out when nothing was acknowledged
/// for the idle timeout.
fn broken(error: &io::Error, idle_timeout: Duration) -> Closed {
    if error.kind() == io::ErrorKind::TimedOut {
        return Closed::silent(idle_timeout);
    }
    let reason = format!("a data connection broke: {error}");
    Closed { code: CloseCode::TIMEOUT, reason, by_peer: false }
}

/// A record that the peer did not write so: the connection is as good as broken.
fn altered(_: Forged) -> Closed {
    let reason = "a data connection was altered on the way".into();
    Closed { code: CloseCode::TIMEOUT, reason, by_peer: false }
}

/// There are no keys for another record.
fn used_up(_: Forged) -> io::Error {
    io::Error::other("it has carried as many records as it may")
}

fn violation(reason: String) -> Closed {
    Closed { code: CloseCode::PROTOCOL_VIOLATION, reason, by_peer: false }
}

/// Bytes of a group in one record: messages of stream 0 wait for at most so many.
const PIECE: u64 = 256 << 10;
/// Under a rate they wait no longer than this, unless that is less than is worth a record.
const PIECE_TIME: Duration = Duration::from_secs(1);
const PIECE_MIN: u64 = 1 << 10;
/// Bytes kept free in a record of frames for what is not stream data.
const FRAMES_MARGIN: usize = 256;
/// Bytes of a head that tell its kind: all of the head of a record of frames.
const SHORT_HEAD: usize = 4;
const LONGEST_HEAD: usize = MAX_RECORD_HEAD + OBJECT_TAG;
/// Writes, and reads, before the other direction has its turn.
const WRITES: usize = 16;
const READS: usize = 64;
/// The hub is looked at at least so often.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Memory is looked for again after so long.
const STALL: Duration = Duration::from_millis(2);
const VIEW_INTERVAL: Duration = Duration::from_millis(50);
/// How long the peer may take to make room for CLOSE.
const GOODBYE: Duration = Duration::from_secs(1);
/// A thread that was late may catch up by so much.
const PACING_SLACK: Duration = Duration::from_millis(10);
/// What IP and TCP add, for rates at the IP layer: with IPv4, MTU 1500 and timestamps.
const PAYLOAD_PER_SEGMENT: u64 = 1448;
const HEADERS_PER_SEGMENT: u64 = 52;
