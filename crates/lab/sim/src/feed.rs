//! Drives an `OutgoingPipe`: at a client it reads pieces from a program, at a server it is given
//! them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use longhaul_connection::{Order, OutgoingPipe};
use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_units::{Bytes, Duration, Extent, Instant};

use crate::draw::Draw;
use crate::lane::{LaneState, Lanes};
use crate::scenario::{End, Scenario};
use crate::source::MEMORY;

#[derive(Debug)]
pub(crate) struct FeedDriver {
    /// At a client: it asks before it reads.
    reads: bool,
    /// Bytes of the pipe, and those that came by now.
    total: u64,
    came: u64,
    ended: bool,
    /// The next piece, and when it is there.
    coming: Option<(Instant, u32)>,
    /// Every piece that may still be in memory.
    made: Vec<Weak<Vec<u8>>>,
    /// Offered, not yet delivered: how often each.
    held: BTreeMap<Extent, usize>,
    latency: Duration,
    /// Pieces that it may keep, and the most that it kept.
    allowed: usize,
    pub peak: usize,
}

impl FeedDriver {
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            reads: scenario.source() == End::Client,
            total: scenario.bytes,
            came: 0,
            ended: false,
            coming: None,
            made: Vec::new(),
            held: BTreeMap::new(),
            latency: scenario.disk_latency,
            allowed: (MEMORY / GROUP_SIZE) as usize,
            peak: 0,
        }
    }

    /// Does what can be done now; returns whether it was anything.
    pub fn pump(
        &mut self,
        [now, local]: [Instant; 2],
        pipe: &mut OutgoingPipe<Arc<Vec<u8>>>,
        lanes: &mut [LaneState],
        draw: &mut Draw,
    ) -> bool {
        let mut progress = self.take(now, pipe, draw);
        progress |= self.ask(now, pipe, &Lanes::at(local, lanes), draw);
        while let Some(offer) = pipe.poll_offer(local, &Lanes::at(local, lanes)) {
            progress = true;
            *self.held.entry(offer.extent).or_default() += 1;
            let order = Order::Offer { extent: offer.extent, bytes: offer.bytes };
            lanes[offer.lane].handle_order(local, order);
        }
        progress
    }

    /// Takes what has come.
    fn take(
        &mut self,
        now: Instant,
        pipe: &mut OutgoingPipe<Arc<Vec<u8>>>,
        draw: &mut Draw,
    ) -> bool {
        let Some((_, len)) = self.coming.take_if(|(at, _)| *at <= now) else { return false };
        if len > 0 {
            let bytes = Arc::new(contents(self.came, len));
            let value = group_chaining_value(&bytes, 0, true);
            self.made.push(Arc::downgrade(&bytes));
            self.came += u64::from(len);
            pipe.push(bytes, len, value);
        }
        // The end comes with the last bytes, or later on its own.
        if self.came == self.total && (len == 0 || draw.one_in(2)) {
            pipe.finish();
            self.ended = true;
        }
        true
    }

    /// Has more come, if it may.
    fn ask(
        &mut self,
        now: Instant,
        pipe: &mut OutgoingPipe<Arc<Vec<u8>>>,
        lanes: &Lanes<'_>,
        draw: &mut Draw,
    ) -> bool {
        if self.coming.is_some() || self.ended {
            return false;
        }
        let has_memory = self.kept() < self.allowed;
        let may = match self.reads {
            true => {
                let memory = || has_memory.then_some(());
                let buffer = pipe.next_buffer(lanes.local, lanes, memory);
                buffer.expect("a pipe here has numbers for all pieces").is_some()
            }
            false => has_memory,
        };
        if may {
            let left = self.total - self.came;
            let most = left.min(GROUP_SIZE);
            let len = if draw.one_in(2) { most } else { draw.below(most + 1) };
            // Nothing comes at the end only.
            let len = if left > 0 { len.max(1) } else { 0 };
            let taken = Duration::from_nanos(draw.below(self.latency.as_nanos() as u64 + 1));
            self.coming = Some((now + taken, len as u32));
        }
        may
    }

    /// The peer has every byte of `extent`. Whether it was offered.
    pub fn delivered(&mut self, extent: &Extent) -> bool {
        let Some(times) = self.held.get_mut(extent) else { return false };
        *times -= 1;
        if *times == 0 {
            self.held.remove(extent);
        }
        true
    }

    /// It may use so much memory from now on.
    pub fn set_memory(&mut self, memory: Bytes) {
        self.allowed = self.allowed.max((memory.get() / GROUP_SIZE) as usize);
    }

    /// Pieces in memory.
    pub fn kept(&mut self) -> usize {
        self.made.retain(|piece| piece.strong_count() > 0);
        self.peak = self.peak.max(self.made.len());
        self.made.len()
    }

    /// True if it keeps no more than it may.
    pub fn is_within_memory(&mut self) -> bool {
        self.kept() <= self.allowed
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.coming.as_ref().map(|(at, _)| *at)
    }
}

/// Bytes of every pipe, from `from` on: no two pieces of some length are alike.
pub(crate) fn contents(from: u64, len: u32) -> Vec<u8> {
    let (len, before) = (len as usize, from as usize % 8);
    let mut bytes = Vec::with_capacity(before + len + 8);
    for word in from / 8..=(from + len as u64) / 8 {
        bytes.extend_from_slice(&word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    bytes.drain(..before);
    bytes.truncate(len);
    bytes
}
