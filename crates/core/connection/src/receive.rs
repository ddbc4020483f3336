//! Packets become groups.

use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::Range;

use longhaul_engine::{Arrival, Lane};
use longhaul_units::{Ecn, Instant, LaneId};
use longhaul_wire::{CloseCode, ConnectionId, Header, Kind};

use crate::half_messages::News;
use crate::half_messages::WholeGroup;
use crate::incoming::{Groups, Incoming, Slot, Unplaceable};
use crate::protect::Opener;
use crate::run::Run;
use crate::shared_path::SharedPath;

/// Datagrams of one size that came together, as the kernel joins them (GRO), in one buffer.
#[derive(Clone, Copy, Debug)]
pub struct ReadBatch {
    /// The sender's address.
    pub from: SocketAddr,
    /// When they came: the kernel's time stamp where there is one.
    pub at: Instant,
    /// Bytes of each but the last, which may be shorter. At least 1.
    pub segment: usize,
    /// The ECN codepoint that each of them carried: those of others are never joined to them.
    pub ecn: Ecn,
    /// The socket's buffer has overflowed since the batch before.
    pub overflowed: bool,
}

impl ReadBatch {
    /// One datagram, of `len` bytes, that carried `ecn`.
    pub fn single(from: SocketAddr, at: Instant, len: usize, ecn: Ecn) -> Self {
        Self { from, at, segment: len.max(1), ecn, overflowed: false }
    }

    /// Where the datagrams are in `len` bytes.
    fn datagrams(&self, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let segment = self.segment.max(1);
        let starts = (0..len).step_by(segment).take(DATAGRAMS_MAX);
        starts.map(move |start| start..len.min(start + segment))
    }

    /// IP and UDP headers of a datagram, which the kernel has taken off.
    fn header_bytes(&self) -> u64 {
        if self.from.is_ipv4() { IPV4_UDP } else { IPV6_UDP }
    }
}

#[derive(Debug)]
pub(crate) struct Receiving<I> {
    connection: ConnectionId,
    lane: LaneId,
    pub incoming: Incoming<I>,
    /// Bytes that were there already, or of a group that has not begun.
    elsewhere: Vec<u8>,
    /// The socket overflowed since something authentic came.
    overflowed: bool,
    /// Authentic packets of consecutive numbers, not yet reported to the engine.
    arrival: Option<Arrival>,
}

/// Everything `take` needs besides the lane.
pub(crate) struct With<'w, O, G: ?Sized, P, I> {
    pub opener: &'w mut O,
    pub groups: &'w mut G,
    pub path: &'w P,
    pub news: &'w mut dyn FnMut(News<I>),
}

impl<I: AsMut<[u8]>> Receiving<I> {
    pub fn new(connection: ConnectionId, lane: LaneId) -> Self {
        Self {
            connection,
            lane,
            incoming: Incoming::default(),
            elsewhere: vec![0; BATCH_BYTES_MAX],
            overflowed: false,
            arrival: None,
        }
    }

    /// Takes in the datagrams in `bytes`.
    pub fn take<O: Opener, G: Groups<I> + ?Sized, P: SharedPath>(
        &mut self,
        now: Instant,
        lane: &mut Lane,
        batch: &ReadBatch,
        bytes: &mut [u8],
        with: &mut With<'_, O, G, P, I>,
    ) {
        self.overflowed |= batch.overflowed;
        let not_forged = with.opener.look_over(bytes, batch.segment.max(1));
        let tag = with.opener.object_tag();
        let mut run = None::<Run>;
        for (i, range) in batch.datagrams(bytes.len()).enumerate() {
            let packet = &bytes[range.clone()];
            let Ok(header) = Header::parse(packet) else { continue };
            if header.lane != self.lane || header.connection != self.connection {
                continue;
            }
            // A copy of one just before it, which the engine is to get first.
            let number = header.number.get();
            if let Some(whole) = run.take_if(|run| run.numbers.contains(&number)) {
                self.take_run(now, lane, batch, whole, bytes, with);
            }
            if self.arrival.as_ref().is_some_and(|arrival| arrival.numbers.contains(&number)) {
                self.flush_arrival(now, lane, batch.from);
            }
            if !lane.accepts(number) {
                continue;
            }
            match header.kind {
                Kind::Object if not_forged >> i & 1 == 0 => {}
                Kind::Object => {
                    let Some(next) = Run::of_one(header, packet, range, tag) else { continue };
                    if !run.as_mut().is_some_and(|run| run.takes_in(&next))
                        && let Some(whole) = run.replace(next)
                    {
                        self.take_run(now, lane, batch, whole, bytes, with);
                    }
                }
                Kind::Control => {
                    if let Some(whole) = run.take() {
                        self.take_run(now, lane, batch, whole, bytes, with);
                    }
                    self.flush_arrival(now, lane, batch.from);
                    self.take_control(now, lane, batch, &header, &mut bytes[range], with);
                }
            }
        }
        if let Some(whole) = run {
            self.take_run(now, lane, batch, whole, bytes, with);
        }
        self.flush_arrival(now, lane, batch.from);
    }

    fn take_control<O: Opener, G: ?Sized, P: SharedPath>(
        &mut self,
        now: Instant,
        lane: &mut Lane,
        batch: &ReadBatch,
        header: &Header,
        packet: &mut [u8],
        with: &mut With<'_, O, G, P, I>,
    ) {
        let number = header.number.get();
        let arrival = Arrival {
            numbers: number..number + 1,
            at: batch.at,
            send_time: header.send_time,
            wire_bytes: packet.len() as u64 + batch.header_bytes(),
            ecn: batch.ecn,
            overflowed: self.overflowed,
        };
        if let Ok(frames) = with.opener.open_control(header.number, packet) {
            self.overflowed = false;
            lane.handle_control(now, &mut with.path.lock(), batch.from, &arrival, frames);
        }
    }

    /// Places the payloads of a run of `bytes`, as many of them as are authentic.
    fn take_run<O: Opener, G: Groups<I> + ?Sized, P>(
        &mut self,
        now: Instant,
        lane: &mut Lane,
        batch: &ReadBatch,
        mut run: Run,
        bytes: &[u8],
        with: &mut With<'_, O, G, P, I>,
    ) {
        let mut together = true;
        while run.count() > 0 {
            let part = if together { run.clone() } else { run.first(1) };
            match self.place(&part, bytes, with) {
                Ok(Placed { looked_at, authentic }) => {
                    if authentic > 0 {
                        self.extend_arrival(now, lane, batch, &part.first(authentic));
                    }
                    run = run.behind(looked_at);
                }
                // One among them may be forged: each for itself.
                Err(Unplaceable::Unasked) if part.count() > 1 => together = false,
                Err(refusal) => {
                    if let Some(reason) = refusal.violation() {
                        lane.close(now, CloseCode::PROTOCOL_VIOLATION, reason);
                    }
                    // What is behind it is of the same group.
                    return;
                }
            }
        }
    }

    /// Opens the packets of a run to their place, up to the first that is not authentic. Of a group
    /// that has not begun it looks at the first only: nothing is looked for, or taken, before a packet
    /// has proven to be the peer's.
    fn place<O: Opener, G: Groups<I> + ?Sized, P>(
        &mut self,
        run: &Run,
        bytes: &[u8],
        with: &mut With<'_, O, G, P, I>,
    ) -> Result<Placed, Unplaceable> {
        let part = match run.target().map(|target| self.incoming.slot(&target)) {
            Some(Slot::Place(place)) => {
                let authentic = with.opener.open_run(run, bytes, place);
                if let Some(target) = run.first(authentic).target().filter(|_| authentic > 0) {
                    report_arrived(with.news, self.incoming.accept(&target, None));
                }
                return Ok(Placed::of(run, authentic));
            }
            Some(Slot::Outside) if run.count() > 1 => return Err(Unplaceable::Unasked),
            Some(Slot::Repeated) => run.clone(),
            Some(Slot::New | Slot::Outside) | None => run.first(1),
        };
        let elsewhere = &mut self.elsewhere[..part.payload_len()];
        let authentic = with.opener.open_run(&part, bytes, elsewhere);
        if authentic > 0 {
            let target = part.first(authentic).target().ok_or(Unplaceable::Unasked)?;
            self.incoming.begin(with.groups, &target)?;
            let bytes = &self.elsewhere[..target.len as usize];
            report_arrived(with.news, self.incoming.accept(&target, Some(bytes)));
        }
        Ok(Placed::of(&part, authentic))
    }

    fn extend_arrival(&mut self, now: Instant, lane: &mut Lane, batch: &ReadBatch, run: &Run) {
        let packets = run.count() as u64;
        let wire_bytes = run.range.len() as u64 + packets * batch.header_bytes();
        if let Some(arrival) = &mut self.arrival
            && arrival.numbers.end == run.numbers.start
        {
            arrival.numbers.end = run.numbers.end;
            arrival.send_time = run.send_time;
            arrival.wire_bytes += wire_bytes;
            return;
        }
        self.flush_arrival(now, lane, batch.from);
        self.arrival = Some(Arrival {
            numbers: run.numbers.clone(),
            at: batch.at,
            send_time: run.send_time,
            wire_bytes,
            ecn: batch.ecn,
            overflowed: core::mem::take(&mut self.overflowed),
        });
    }

    fn flush_arrival(&mut self, now: Instant, lane: &mut Lane, from: SocketAddr) {
        if let Some(arrival) = self.arrival.take() {
            lane.handle_objects(now, from, &arrival);
        }
    }
}

fn report_arrived<I>(news: &mut dyn FnMut(News<I>), whole: Option<WholeGroup<I>>) {
    if let Some(whole) = whole {
        news(News::Arrived(whole));
    }
}

/// The outcome of opening a run.
struct Placed {
    /// Packets that are done with.
    looked_at: usize,
    /// Those of them that were authentic: the first.
    authentic: usize,
}

impl Placed {
    fn of(run: &Run, authentic: usize) -> Self {
        // The packet behind those, if there is one, is not the peer's.
        Self { looked_at: run.count().min(authentic + 1), authentic }
    }
}

/// Datagrams of a batch: more than the kernel joins (64, UDP_GRO_CNT_MAX), and one bit each in the forgery mask.
pub const DATAGRAMS_MAX: usize = 128;
/// Most bytes of datagrams that are read together.
const BATCH_BYTES_MAX: usize = 65_536;
/// IP and UDP headers of a datagram.
const IPV4_UDP: u64 = 28;
const IPV6_UDP: u64 = 48;
