//! A lane's end of the monitor.

use std::sync::Arc;

use longhaul_connection::ReadBatch;
use longhaul_host::Batch;
use longhaul_sys::clock;
use longhaul_units::{Duration, Instant};

use super::log::LaneLog;
use super::said::{Said, Word};

/// What a lane does with every burst of reading, and what it hears.
#[derive(Debug)]
pub(crate) struct Watch {
    pub log: Arc<LaneLog>,
    said: Arc<Said>,
    heard: u64,
    /// The burst under way, when it began, and the processor time used by then.
    batch: Batch,
    began: Instant,
    cpu: Duration,
}

impl Watch {
    pub fn new(log: Arc<LaneLog>, said: Arc<Said>) -> Self {
        let (batch, began) = (Batch::default(), Instant::ZERO);
        Self { log, said, heard: 0, batch, began, cpu: Duration::ZERO }
    }

    /// The lane is at work; what it has to pass on, if that is new.
    pub fn news(&mut self, now: Instant) -> Option<Word> {
        self.log.beat(now);
        if self.said.version() == self.heard {
            return None;
        }
        let (version, word) = self.said.read()?;
        self.heard = version;
        Some(word)
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
            self.log.beat(clock::now());
            self.log.read(self.began, &Batch { full, ..batch });
        }
    }

    /// The lane ends.
    pub fn leave(&self) {
        self.log.rest();
        self.log.receive_from(None);
    }
}

/// Of IPv4 and UDP: what rates at the IP layer count beside a datagram's bytes.
const HEADERS: u64 = 28;
