//! The lane half over TCP: records become groups and messages, and the reverse
//! (docs/protocol.md section 8).

mod record;
mod stream;

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Deref;

use longhaul_engine::Closed;
use longhaul_units::{Bytes, Duration, Extent, Instant, LaneId, ObjectId, Rate, shown};
use longhaul_wire::{
    CloseCode, Feedback, Frame, Frames, MAX_FRAMES_RECORD, ReceiverBounds, RecordHead, Writer,
};

use crate::half_messages::{News, Order, Repair, Standing};
use crate::incoming::Incoming;
use crate::incoming::{GroupPart, Groups, Slot, Unplaceable};
use crate::messages::MessageLane;
use crate::run::Forged;
use record::{Reading, Record};
use stream::{STREAM, Stream};

pub use record::RecordSeals;

/// The work of one thread for one TCP connection of a connection: records become groups (buffers of
/// type `I`) and messages, and the reverse (buffers of type `O`). It has the interface of a
/// [`LaneHalf`](crate::lane_half::LaneHalf) as far as the carrier allows: nothing is lost or resent, and a path
/// is the kernel's business.
///
/// - *In*: [`place`](Self::place) says where the next bytes are to be received,
///   [`handle_received`](Self::handle_received) that they were;
///   [`handle_order`](Self::handle_order), [`handle_repair`](Self::handle_repair),
///   [`handle_standing`](Self::handle_standing).
/// - *Messages*, on the first connection: [`MessageLane`].
/// - *Out*: [`poll_news`](Self::poll_news) until `None`; [`poll_write`](Self::poll_write), then
///   [`handle_written`](Self::handle_written).
///
/// After [`News::Closed`] it sends its goodbye with that reason, until
/// [`is_closed`](Self::is_closed).
#[derive(Debug)]
pub struct RecordHalf<O, I, S> {
    seals: Option<S>,
    /// Of the first connection.
    stream: Option<Stream>,
    standing: Standing,
    credit_announced: u64,
    bounds_announced: ReceiverBounds,
    credit: u64,
    peer: ReceiverBounds,
    /// Groups to send, the first of them from `sent` on.
    outgoing: VecDeque<(Extent, O)>,
    sent: u64,
    sent_in_all: u64,
    record: Record<O>,
    pace: Pace,
    reading: Reading,
    incoming: Incoming<I>,
    /// Bytes that were there already.
    repeated: Vec<u8>,
    news: VecDeque<News<I>>,
    state: State,
}

/// Where the next bytes go.
pub enum Place<'a> {
    /// Here, as many as there are.
    Bytes(&'a mut [u8]),
    /// There is no memory for their group now. Nothing is resent on TCP: they have to wait.
    NoMemory,
    /// Nobody wants them: the connection is over.
    Closed,
}

#[derive(Debug)]
enum State {
    Open,
    /// CLOSE follows the present record.
    Leaving(CloseCode, String),
    Closed,
}

/// Holds object bytes to a rate.
#[derive(Debug)]
struct Pace {
    rate: Option<Rate>,
    /// When the rate allows the next bytes.
    until: Instant,
    /// Since when there is something that it holds back, and how long it did before.
    held_since: Option<Instant>,
    held: Duration,
}

impl<O: Deref<Target: AsRef<[u8]>> + Clone, I: AsMut<[u8]>, S: RecordSeals> RecordHalf<O, I, S> {
    /// Connection `lane`, whose data may take `rate` at the IP layer. `seals` where TLS does not
    /// authenticate.
    pub fn new(now: Instant, lane: LaneId, rate: Option<Rate>, seals: Option<S>) -> Self {
        let first = lane == LaneId(0);
        Self {
            seals,
            stream: first.then(Stream::default),
            standing: Standing::default(),
            credit_announced: 0,
            bounds_announced: ReceiverBounds::NONE,
            credit: 0,
            peer: ReceiverBounds::NONE,
            outgoing: VecDeque::new(),
            sent: 0,
            sent_in_all: 0,
            record: Record::default(),
            pace: Pace { rate, until: now, held_since: None, held: Duration::ZERO },
            reading: Reading::default(),
            incoming: Incoming::default(),
            repeated: Vec::new(),
            news: if first { [News::Validated].into() } else { VecDeque::new() },
            state: State::Open,
        }
    }

    // In.

    /// Does what the shared half says.
    pub fn handle_order(&mut self, order: Order<O>) {
        match order {
            Order::Offer { extent, bytes } => self.outgoing.push_back((extent, bytes)),
            Order::Withdraw(object) => self.withdraw(object),
            Order::Close(code, reason) => self.close(Closed { code, reason, by_peer: false }),
            // A TCP connection stays where it is.
            Order::AskToMove(_) => {}
        }
    }

    /// Sends no more of the object but what has begun to go: the record that was begun ends, and the
    /// socket has all before it.
    fn withdraw(&mut self, object: ObjectId) {
        let begun = self.sent + self.record.piece_len();
        if let Some((first, _)) = self.outgoing.front_mut()
            && first.object == object
            && begun > 0
        {
            first.len = begun;
        }
        let mut is_begun = begun > 0;
        let news = &mut self.news;
        self.outgoing.retain(|(extent, _)| {
            let stays = core::mem::take(&mut is_begun) || extent.object != object;
            if !stays {
                news.push_back(News::Withdrawn(*extent));
            }
            stays
        });
        self.finish_group();
    }

    /// Takes a notice of the shared half about a group. To be called before [`Self::place`].
    pub fn handle_repair(&mut self, repair: Repair) {
        let given_up = self.incoming.handle_repair(repair);
        self.news.extend(given_up.into_iter().map(News::GivenUp));
    }

    /// Takes the state of the shared half.
    pub fn handle_standing(&mut self, standing: &Standing) {
        self.standing = *standing;
        self.incoming.handle_over(standing.over);
    }

    /// Where the next bytes are to be received. Memory for groups comes from `groups`.
    pub fn place<G: Groups<I> + ?Sized>(&mut self, groups: &mut G) -> Place<'_> {
        if !self.is_open() {
            return Place::Closed;
        }
        if let Reading::Object { target, repeated: repeated @ false, .. } = &mut self.reading {
            let has_place = match self.incoming.slot(target) {
                Slot::Place(_) => Ok(true),
                Slot::Repeated => Ok(false),
                Slot::New | Slot::Outside => self.incoming.begin(groups, target),
            };
            match has_place {
                Ok(true) => {}
                Ok(false) => {
                    self.repeated.resize(target.len as usize, 0);
                    *repeated = true;
                }
                Err(Unplaceable::NoMemory) => return Place::NoMemory,
                Err(refusal) => {
                    let reason = refusal.violation().unwrap_or_default();
                    self.close(violation(reason.into()));
                    return Place::Closed;
                }
            }
        }
        match &mut self.reading {
            Reading::Head { bytes, count } => Place::Bytes(
                &mut bytes[*count..Reading::most_of_head(*count, self.seals.is_some())],
            ),
            Reading::Frames { bytes, count } => Place::Bytes(&mut bytes[*count..]),
            Reading::Object { count, repeated: true, .. } => {
                Place::Bytes(&mut self.repeated[*count..])
            }
            Reading::Object { target, count, .. } => match self.incoming.slot(target) {
                Slot::Place(place) => Place::Bytes(&mut place[*count..]),
                // It began to be somewhere else in the meantime: asked again, it is there.
                Slot::Repeated | Slot::New | Slot::Outside => Place::NoMemory,
            },
        }
    }

    /// So many bytes were received into the place of [`Self::place`].
    pub fn handle_received(&mut self, count: usize) {
        self.reading.advance(count);
        if let Err(end) = self.read_on() {
            self.close(end);
        }
    }

    /// The connection ends, by either end's fault; the first reason holds. A peer that ended it, or can
    /// receive nothing, gets no goodbye.
    pub fn close(&mut self, end: Closed) {
        if !self.is_open() {
            return;
        }
        self.outgoing.clear();
        self.state = match end.by_peer {
            true => State::Closed,
            false => State::Leaving(end.code, end.reason.clone()),
        };
        self.news.push_back(News::Closed(end));
    }

    /// Goes on to the next part of a record when the present one is complete.
    fn read_on(&mut self) -> Result<(), Closed> {
        match &mut self.reading {
            Reading::Head { bytes, count } => match RecordHead::parse(Reading::head(bytes, *count))
            {
                // Nobody knows yet who wrote it.
                Err(_) if self.seals.is_some() => Err(altered(Forged)),
                Err(error) => Err(violation(error.to_string())),
                Ok(None) => Ok(()),
                Ok(Some((RecordHead::Frames { len }, _))) => {
                    self.reading = Reading::frames(bytes, len, self.seals.is_some());
                    Ok(())
                }
                Ok(Some((RecordHead::Object { object, offset, len }, _))) => {
                    if let Some(seals) = &mut self.seals {
                        let Some((head, tag)) = Reading::tagged_head(bytes, *count) else {
                            return Ok(());
                        };
                        seals.verify_object(head, *tag).map_err(altered)?;
                    }
                    let target = GroupPart::new(object, offset, len as u32)
                        .ok_or_else(|| violation("bytes that were not asked for".into()))?;
                    self.reading = Reading::Object { target, count: 0, repeated: false };
                    Ok(())
                }
            },
            Reading::Frames { bytes, count } => {
                if *count < bytes.len() {
                    return Ok(());
                }
                let mut bytes = core::mem::take(bytes);
                self.reading = Reading::default();
                let (head, body) = Reading::split_frames(&mut bytes);
                let frames = match &mut self.seals {
                    Some(seals) => seals.open_frames(head, body).map_err(altered)?,
                    None => body,
                };
                self.handle_frames(frames)
            }
            Reading::Object { target, count, repeated } => {
                if *count == target.len as usize {
                    let elsewhere = repeated.then_some(&self.repeated[..]);
                    self.news.extend(self.incoming.accept(target, elsewhere).map(News::Arrived));
                    self.reading = Reading::default();
                }
                Ok(())
            }
        }
    }

    fn handle_frames(&mut self, bytes: &[u8]) -> Result<(), Closed> {
        for frame in Frames::new(bytes) {
            let frame = frame.map_err(|error| violation(error.to_string()))?;
            match (frame, &mut self.stream) {
                (Frame::Feedback(feedback), _) => {
                    self.credit = self.credit.max(feedback.credit.get());
                    self.peer = feedback.bounds;
                }
                (Frame::Stream { stream: STREAM, offset, fin, data }, Some(stream)) => {
                    stream.handle(offset, fin, data).map_err(|what| violation(what.into()))?;
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

    // Out.

    /// The next news for the shared half.
    #[must_use]
    pub fn poll_news(&mut self) -> Option<News<I>> {
        self.news.pop_front()
    }

    /// The next bytes to write, one part behind the other; both empty, if there are none.
    #[must_use]
    pub fn poll_write(&mut self, now: Instant) -> [&[u8]; 2] {
        if self.record.is_sent() {
            self.next_record(now);
        }
        self.record.rest()
    }

    /// So many bytes of that were written.
    pub fn handle_written(&mut self, now: Instant, count: usize) {
        if let Some(piece) = self.record.advance(count) {
            self.finish_piece(now, piece as u64);
        }
    }

    /// Begins the next record, if there is one: frames first, for bytes of objects wait for them,
    /// then a piece of a group.
    fn next_record(&mut self, now: Instant) {
        if self.is_open() && self.frames_record() {
            return;
        }
        let sealed = match &self.state {
            State::Open => self.object_record(now),
            State::Leaving(code, reason) => {
                let mut frames = Vec::new();
                let frame = Frame::Close { code: *code, reason };
                // Appending to a vector cannot fail, here and below.
                let _ = frame.encode(&mut Writer::append(&mut frames));
                self.state = State::Closed;
                self.record.set_frames(&frames, self.seals.as_mut())
            }
            State::Closed => return,
        };
        self.end_if_used_up(sealed);
    }

    /// There are no keys for another record.
    fn end_if_used_up(&mut self, sealed: Result<(), Forged>) {
        if sealed.is_err() && self.is_open() {
            let reason = "a data connection has carried as many records as it may".into();
            let end = Closed { code: CloseCode::TIMEOUT, reason, by_peer: false };
            self.close(end);
            self.state = State::Closed;
        }
    }

    fn object_record(&mut self, now: Instant) -> Result<(), Forged> {
        let Some((extent, bytes)) = self.outgoing.front() else { return Ok(()) };
        if !self.pace.allows(now) {
            return Ok(());
        }
        let len = (extent.len - self.sent).min(self.pace.piece());
        let start = self.sent as usize;
        let offset = extent.offset + self.sent;
        let head = RecordHead::Object { object: extent.object, offset, len: len as usize };
        let piece = (bytes.clone(), start..start + len as usize);
        self.record.set_object(head, piece, self.seals.as_mut())
    }

    /// Puts what there is to say into a record of frames; whether that was anything.
    fn frames_record(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let mut frames = Vec::new();
        let mut writer = Writer::append(&mut frames);
        let Standing { credit, bounds, .. } = self.standing;
        if credit > self.credit_announced || bounds != self.bounds_announced {
            self.credit_announced = credit.max(self.credit_announced);
            self.bounds_announced = bounds;
            let credit = Bytes::new(self.credit_announced);
            let feedback = Feedback { bounds, ..Feedback::credit_only(credit) };
            let _ = Frame::Feedback(feedback).encode(&mut writer);
        }
        let _ = stream.write(&mut writer, MAX_FRAMES_RECORD - FRAMES_MARGIN);
        if frames.is_empty() {
            return false;
        }
        let sealed = self.record.set_frames(&frames, self.seals.as_mut());
        self.end_if_used_up(sealed);
        true
    }

    /// A piece of a group is in the socket.
    fn finish_piece(&mut self, now: Instant, len: u64) {
        self.sent += len;
        self.sent_in_all += len;
        self.pace.spend(now, len);
        self.finish_group();
    }

    /// The first group, if all of it is in the socket, makes room for the next.
    fn finish_group(&mut self) {
        if self.outgoing.front().is_some_and(|(extent, _)| extent.len == self.sent) {
            self.sent = 0;
            // TCP resends what is lost, so the buffer is not needed any more.
            let done = self.outgoing.pop_front();
            self.news.extend(done.map(|(extent, _)| News::Delivered(extent)));
        }
    }

    /// When there will be something to write without any input.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        // What is being written comes first, and waits for room only. What was held may be withdrawn.
        let is_held = !self.is_writing() && !self.outgoing.is_empty();
        self.pace.held_since.filter(|_| is_held).map(|_| self.pace.until)
    }

    // Other.

    /// True if a part of a record is still to be written.
    pub fn is_writing(&self) -> bool {
        !self.record.is_sent()
    }

    /// True once it has nothing more to send.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed) && self.record.is_sent()
    }

    /// Object bytes that were offered and not given to the socket.
    pub fn backlog(&self) -> u64 {
        let offered: u64 = self.outgoing.iter().map(|(extent, _)| extent.len).sum();
        offered - self.sent.min(offered)
    }

    /// Object bytes that were given to the socket.
    pub fn sent_in_all(&self) -> u64 {
        self.sent_in_all
    }

    /// Object bytes that came to their place for the first time.
    pub fn placed(&self) -> u64 {
        self.incoming.placed()
    }

    /// Objects of which groups are remembered that arrived.
    pub fn remembered(&self) -> usize {
        self.incoming.remembered()
    }

    /// The peer's credit.
    pub fn credit(&self) -> u64 {
        self.credit
    }

    /// The bottlenecks in receiving that the peer reports.
    pub fn peer_bounds(&self) -> ReceiverBounds {
        self.peer
    }

    /// Its data may take so much from now on.
    pub fn limit(&mut self, now: Instant, rate: Option<Rate>) {
        // What the last rate has left to wait for holds no longer than a piece of that.
        self.pace.until = self.pace.until.min(now + PIECE_TIME);
        self.pace.rate = rate;
    }

    /// Time for which the rate has held it back, up to `now`.
    pub fn held(&self, now: Instant) -> Duration {
        self.pace.held_by(now)
    }
}

impl<O, I, S> RecordHalf<O, I, S> {
    /// True while it goes on.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// True if messages came that were not read.
    pub fn has_messages(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::has_unread)
    }
}

impl<O, I, S> MessageLane for RecordHalf<O, I, S> {
    fn read_messages(&mut self, into: &mut [u8]) -> usize {
        self.stream.as_mut().map_or(0, |stream| stream.read(into))
    }

    fn poll_messages_end(&mut self) -> bool {
        self.stream.as_mut().is_some_and(Stream::poll_end)
    }

    fn wants_messages(&self) -> bool {
        self.is_open() && self.stream.as_ref().is_some_and(Stream::wants_more)
    }

    fn push_messages(&mut self, bytes: &[u8]) -> bool {
        self.stream.iter_mut().for_each(|stream| stream.push(bytes));
        self.stream.is_some()
    }

    /// The messages that were pushed go with the next record.
    fn write_messages(&mut self) -> bool {
        false
    }

    fn finish_messages(&mut self) -> bool {
        self.stream.as_mut().is_some_and(Stream::finish)
    }
}

impl Pace {
    /// True if the rate allows bytes now.
    fn allows(&mut self, now: Instant) -> bool {
        if self.rate.is_none() {
            return true;
        }
        if now < self.until {
            self.held_since.get_or_insert(now);
            return false;
        }
        // Being late is nobody's limit.
        self.held = self.held_by(self.until);
        self.held_since = None;
        true
    }

    /// Bytes of a group for one record.
    fn piece(&self) -> u64 {
        self.rate.map_or(PIECE, |rate| rate.bytes_in(PIECE_TIME).clamp(PIECE_MIN, PIECE))
    }

    fn spend(&mut self, now: Instant, len: u64) {
        if let Some(rate) = self.rate {
            let framed = len + len.div_ceil(TLS_RECORD) * FRAMING;
            let wire = framed + framed.div_ceil(PAYLOAD_PER_SEGMENT) * HEADERS_PER_SEGMENT;
            self.until = self.until.max(now.before(PACING_SLACK)) + rate.time_for(wire);
        }
    }

    fn held_by(&self, now: Instant) -> Duration {
        self.held + self.held_since.map_or(Duration::ZERO, |since| now.min(self.until) - since)
    }
}

/// A record that the peer did not write so: the connection is as good as broken.
fn altered(_: Forged) -> Closed {
    let reason = "a data connection was altered on the way".into();
    Closed { code: CloseCode::TIMEOUT, reason, by_peer: false }
}

fn violation(reason: String) -> Closed {
    Closed { code: CloseCode::PROTOCOL_VIOLATION, reason, by_peer: false }
}

/// Bytes of a group in one record: messages of stream 0 wait for at most so many.
const PIECE: u64 = 256 << 10;
/// Under a rate they wait no longer than this, unless that is less than is worth a record. What goes
/// first goes unpaced, so it is no longer than a copy takes to begin.
const PIECE_TIME: Duration = Duration::from_millis(20);
const PIECE_MIN: u64 = 1 << 10;
/// Bytes kept free in a record of frames for what is not stream data.
const FRAMES_MARGIN: usize = 256;
/// A thread that was late may catch up by so much.
const PACING_SLACK: Duration = Duration::from_millis(10);
/// Bytes that the head of a record and TLS add, to each of the records that TLS makes of one.
const FRAMING: u64 = 40;
const TLS_RECORD: u64 = 16 << 10;
/// Bytes that IP and TCP add, for rates at the IP layer: with IPv4, MTU 1500 and timestamps.
const PAYLOAD_PER_SEGMENT: u64 = 1448;
const HEADERS_PER_SEGMENT: u64 = 52;

#[cfg(test)]
mod tests;
