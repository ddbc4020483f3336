//! A lane's end of the monitor.

use std::sync::Arc;

use longhaul_connection::ReadBatch;
use longhaul_host::Batch;
use longhaul_sys::clock;
use longhaul_sys::udp::UdpSocket;
use longhaul_units::{Duration, Instant};

use super::announced::{Announced, AnnouncementCell};
use super::log::LaneLog;

/// Logs every burst of a lane's reading, and gives the lane what the sentinel announces.
#[derive(Debug)]
pub struct Watch {
    /// `None` on the lane of the monitor itself, which is not watched.
    log: Option<Arc<LaneLog>>,
    announced: Arc<AnnouncementCell>,
    seen_version: u64,
    /// The burst under way, when it began, and the processor time used by then.
    batch: Batch,
    began: Instant,
    cpu: Duration,
}

impl Watch {
    /// Of a thread with this `log`, if it is watched.
    pub fn new(log: Option<Arc<LaneLog>>, announced: Arc<AnnouncementCell>) -> Self {
        let (batch, began) = (Batch::default(), Instant::ZERO);
        Self { log, announced, seen_version: 0, batch, began, cpu: Duration::ZERO }
    }

    /// Notes that the lane is at work; returns the announcement that it has to send, if that is new.
    pub fn news(&mut self, now: Instant) -> Option<Announced> {
        self.at_work(now);
        if self.announced.version() == self.seen_version {
            return None;
        }
        let (version, last) = self.announced.read()?;
        self.seen_version = version;
        Some(last)
    }

    /// A super-packet was read, of so many bytes.
    pub fn read(&mut self, packets: &ReadBatch, len: usize) {
        let count = len.div_ceil(packets.segment.max(1)) as u64;
        if self.batch.packets == 0 {
            self.began = clock::now();
            let cpu = clock::thread_cpu_time();
            let used = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu));
            self.batch.age = Some(self.began - packets.at);
            self.batch.cpu = Some(used);
        }
        self.batch.packets += count;
        self.batch.bytes += len as u64 + count * HEADERS;
    }

    /// There is no more, or, if `full`, enough for now.
    pub fn end_batch(&mut self, full: bool) {
        let batch = std::mem::take(&mut self.batch);
        if batch.packets > 0 {
            self.at_work(clock::now());
            if let Some(log) = &self.log {
                log.read(self.began, &Batch { full, ..batch });
            }
        }
    }

    /// The lane ends.
    pub fn leave(&self) {
        self.rest();
        self.receive_from(None);
    }

    // Entries in the log.

    fn at_work(&self, now: Instant) {
        self.log.iter().for_each(|log| log.beat(now));
    }

    /// See `LaneLog::join`.
    pub fn join(&self, remedies: u64) {
        self.log.iter().for_each(|log| log.join(remedies));
    }

    /// See `LaneLog::note_remedies`.
    pub fn note_remedies(&self, remedies: u64) {
        self.log.iter().for_each(|log| log.note_remedies(remedies));
    }

    /// See `LaneLog::receive_from`.
    pub fn receive_from(&self, socket: Option<&UdpSocket>) {
        self.log.iter().for_each(|log| log.receive_from(socket));
    }

    /// See `LaneLog::rest`.
    pub fn rest(&self) {
        self.log.iter().for_each(|log| log.rest());
    }

    /// See `LaneLog::woke`.
    pub fn woke(&self, deadline: Instant) {
        self.log.iter().for_each(|log| log.woke(deadline));
    }

    /// See `LaneLog::set_round_trip`.
    pub fn set_round_trip(&self, round_trip: Option<Duration>) {
        self.log.iter().for_each(|log| log.set_round_trip(round_trip));
    }
}

/// Of IPv4 and UDP: what rates at the IP layer count beside a datagram's bytes.
const HEADERS: u64 = 28;
