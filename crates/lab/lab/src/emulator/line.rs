use std::io::{self, IoSlice};
use std::time::Duration;

use longhaul_pathsim::{ConfigError, DropReason, Fate, Flights, Flip, Path, PathConfig, Train};
use longhaul_sys::clock;
use longhaul_sys::tun::{PACKET_MAX, Tun};
use longhaul_units::Instant;

use super::arrivals::Arrivals;
use super::lateness::Lateness;
use super::log::{Loss, LossLog};
use super::stats::{DirectionStats, LineStats};
use super::store::Store;
use crate::packet::{Cut, Joined, Part, Shape, UDP, corrupted, stays_on_link, too_big};

/// One direction: packets from one device, decided about, kept, and written to another.
#[derive(Debug)]
pub(super) struct Line {
    path: Path,
    store: Store,
    flights: Flights<Flight>,
    /// Answer with ICMP when a packet exceeds this, the path's MTU.
    too_big: Option<u32>,
    planned: Vec<Planned>,
    scratch: Vec<u8>,
    log: LossLog,
    stats: DirectionStats,
    lateness: Lateness,
    arrivals: Arrivals,
    /// Of the path, without queue and transmission.
    delay: Duration,
    /// Packets come one by one, and are taken together.
    together: bool,
    /// Until then nobody looks for packets.
    look: Instant,
}

/// Segments of one packet that arrive together.
#[derive(Clone, Copy, Debug)]
struct Flight {
    slot: u32,
    part: Part,
    flip: Option<Flip>,
}

/// A flight before its packet has a place.
#[derive(Clone, Copy, Debug)]
struct Planned {
    at: Instant,
    part: Part,
    flip: Option<Flip>,
    /// Out of order with its neighbours, or soon to be.
    out_of_order: bool,
}

/// Configuration of a direction.
#[derive(Clone, Debug)]
pub(super) struct LineConfig {
    pub(super) path: PathConfig,
    pub(super) seed: u64,
    /// Answer with ICMP what exceeds the path's MTU.
    pub(super) answers: bool,
    /// Bytes that may be under way and in the queue.
    pub(super) memory: usize,
    /// Losses that may wait in the log.
    pub(super) log: usize,
    /// Packets come one by one. Those that come within [`COALESCE`] are taken together.
    pub(super) together: bool,
}

impl Line {
    pub(super) fn new(config: &LineConfig, start: Instant) -> Result<Self, LineError> {
        Ok(Self {
            path: Path::new(&config.path, config.seed, start)?,
            store: Store::new(config.memory)?,
            flights: Flights::default(),
            too_big: config.path.mtu.filter(|_| config.answers),
            planned: Vec::new(),
            scratch: Vec::with_capacity(PACKET_MAX),
            log: LossLog::new(config.log),
            stats: DirectionStats::default(),
            lateness: Lateness::default(),
            arrivals: Arrivals::new(start),
            delay: config.path.delay,
            together: config.together,
            look: start,
        })
    }

    /// Reads one packet, or some in a row, and decides about them; false when there is none.
    pub(super) fn take(&mut self, from: &Tun) -> io::Result<bool> {
        if self.together {
            return self.take_together(from);
        }
        let Some(room) = self.store.room() else {
            self.scratch.resize(PACKET_MAX, 0);
            let read = from.read(&mut self.scratch)?;
            self.stats.overrun += u64::from(read.is_some());
            return Ok(read.is_some());
        };
        let Some(len) = from.read(room)? else {
            self.arrivals.caught_up();
            return Ok(false);
        };
        self.accept(from, len)?;
        Ok(true)
    }

    /// Reads what has come since the last look, and makes super-packets of datagrams in a row.
    fn take_together(&mut self, from: &Tun) -> io::Result<bool> {
        let now = clock::now();
        if now < self.look {
            return Ok(false);
        }
        let mut packet = std::mem::take(&mut self.scratch);
        packet.resize(PACKET_MAX, 0);
        let mut joined: Option<Joined> = None;
        let mut count = 0;
        loop {
            let read = if count < TOGETHER { from.read(&mut packet)? } else { None };
            count += usize::from(read.is_some());
            if let (Some(joined), Some(len)) = (&mut joined, read) {
                // Where the first of them is.
                let place = self.store.room().expect("it has room for a packet, and was not used");
                if joined.add(place, &packet[..len]) {
                    continue;
                }
            }
            if let Some(joined) = joined.take() {
                let place = self.store.room().expect("it has room for a packet, and was not used");
                let len = joined.finish(place);
                self.accept(from, len)?;
            }
            let Some(len) = read else { break };
            match self.store.room() {
                Some(place) => place[..len].copy_from_slice(&packet[..len]),
                None => {
                    self.stats.overrun += 1;
                    continue;
                }
            }
            joined = Some(Joined::start(&packet[..len]));
        }
        self.scratch = packet;
        if count < TOGETHER {
            self.arrivals.caught_up();
            if count > 0 {
                self.look = now + COALESCE;
            }
        }
        Ok(count > 0)
    }

    /// When to look for packets again, unless at once.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        Some(self.look).filter(|look| *look > now)
    }

    /// Decides about the packet in the room of the store.
    fn accept(&mut self, from: &Tun, len: usize) -> io::Result<()> {
        let due = self.next_timeout();
        let now = clock::now();
        let arrived = self.arrivals.found(now, due, len as u64);
        let packet = self.store.fresh(len);
        if stays_on_link(packet) {
            self.stats.kept_on_link += 1;
            return Ok(());
        }
        self.stats.packets_read += 1;
        let Some(shape) = Shape::parse(packet) else {
            self.stats.malformed += 1;
            return Ok(());
        };
        if let Some(mtu) = self.too_big.filter(|mtu| shape.segment_len() > *mtu)
            && let Some(answer) = too_big(&shape, packet, mtu)
        {
            self.stats.too_big_sent += 1;
            if from.write(&[IoSlice::new(&answer)]).is_err() {
                self.stats.refused += 1;
            }
        }
        // It may have come later than it seems, and no path is shorter than it is.
        self.decide(arrived, now + self.delay, shape, len);
        Ok(())
    }

    /// Asks the path about each segment, and plans a flight for each run of segments that fare alike;
    /// none before `earliest`.
    fn decide(&mut self, now: Instant, earliest: Instant, shape: Shape, len: usize) {
        let train = Train {
            count: shape.segments.into(),
            segment_len: shape.segment_len(),
            last_len: shape.last_len(),
            ecn: shape.ecn,
            udp: shape.flow.protocol == UDP,
        };
        let number = self.path.next_number();
        let late = self.arrivals.are_late();
        let Self { path, planned, log, stats, store, .. } = self;
        let packet = store.fresh(len);
        let mut run: Option<(Planned, Instant)> = None;
        path.offer_train(now, train, |index, fate| {
            let arrival = match fate {
                Fate::Deliver(arrival) => arrival,
                Fate::Drop(reason) => {
                    stats.queue_while_late += u64::from(late && reason == DropReason::Queue);
                    planned.extend(run.take().map(|(flight, _)| flight));
                    let bytes =
                        if index + 1 == train.count { train.last_len } else { train.segment_len };
                    let number = number + u64::from(index);
                    log.add(|| Loss {
                        at: now,
                        number,
                        reason,
                        bytes,
                        flow: shape.flow,
                        head: shape.head(packet, index),
                    });
                    return;
                }
            };
            let alone = arrival.reordered || arrival.corrupted.is_some();
            let out_of_order = alone || arrival.duplicate.is_some();
            if let Some((flight, first_at)) = &mut run {
                let together = !out_of_order
                    && flight.part.marked == arrival.marked
                    && arrival.at.since(*first_at) <= COALESCE;
                if together {
                    flight.part.count += 1;
                    flight.at = flight.at.max(arrival.at);
                    return;
                }
                planned.push(*flight);
            }
            let part = Part { first: index as u16, count: 1, marked: arrival.marked };
            let flight = Planned { at: arrival.at, part, flip: arrival.corrupted, out_of_order };
            run = None;
            if out_of_order {
                planned.push(flight);
                planned.extend(arrival.duplicate.map(|at| Planned { at, ..flight }));
            } else {
                run = Some((flight, arrival.at));
            }
        });
        planned.extend(run.map(|(flight, _)| flight));
        if planned.is_empty() {
            return;
        }
        let slot = self.store.keep(len, shape, planned.len() as u32);
        for Planned { at, part, flip, out_of_order } in planned.drain(..) {
            self.flights.push(at.max(earliest), Flight { slot, part, flip }, out_of_order);
        }
    }

    /// Writes one flight that is due; false when there is none.
    pub(super) fn deliver(&mut self, to: &Tun, now: Instant) -> bool {
        let Some((at, flight)) = self.flights.pop(now) else { return false };
        let (shape, packet) = self.store.get(flight.slot);
        let whole = flight.part.count == shape.segments && !flight.part.marked;
        let written = if let Some(flip) = flight.flip {
            let cut = Cut::new(shape, packet, flight.part);
            corrupted(shape, packet, &cut, flip, &mut self.scratch);
            to.write(&[IoSlice::new(&self.scratch)])
        } else if whole {
            to.write(&[IoSlice::new(packet)])
        } else {
            let cut = Cut::new(shape, packet, flight.part);
            let payload = &packet[cut.payload.clone()];
            to.write(&[IoSlice::new(cut.headers()), IoSlice::new(payload)])
        };
        self.stats.packets_written += 1;
        if written.is_err() {
            self.stats.refused += u64::from(flight.part.count);
        }
        self.lateness.add(now.since(at));
        self.store.release(flight.slot);
        true
    }

    /// When the next flight is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.flights.next_arrival()
    }

    pub(super) fn stats(&mut self, now: Instant) -> DirectionStats {
        let mut stats = self.stats;
        stats.path = *self.path.stats();
        stats.line = LineStats::Emulated(self.path.queue_stats());
        stats.queue_bytes = self.path.queue_backlog(now);
        stats.lateness = self.lateness.summary();
        stats
    }

    pub(super) fn take_log(&mut self) -> (Vec<Loss>, u64) {
        self.log.take()
    }
}

/// Why a direction cannot be.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error(transparent)]
    Path(#[from] ConfigError),
    #[error("no memory for what is under way: {0}")]
    Memory(#[from] io::Error),
}

/// Segments that arrive within this time are delivered together when the last is there, as
/// receivers with interrupt moderation and GRO see them.
const COALESCE: Duration = Duration::from_micros(100);
/// Packets that are read in one turn, from those that come one by one.
const TOGETHER: usize = 64;
