use alloc::collections::{BTreeSet, VecDeque};

use longhaul_rate_control::ChunkSizes;
use longhaul_units::{Extent, ObjectId};

use super::Policy;

/// Fresh bytes go in segments, and those in chunks (FOBS section 2.1; docs/rate-control.md). What was
/// lost goes again behind the end of a segment, before the next one begins, or when there is nothing
/// else to send. What is still missing of a chunk holds up the one that follows `overlap` later.
///
/// A chunk ends with the extent that fills it: its rest could not be sent once it holds itself up.
#[derive(Debug)]
pub(super) struct Chunks {
    sizes: ChunkSizes,
    /// Extents begun and not done with, by their first byte, of each chunk from the oldest that is not
    /// whole to the present one.
    open: VecDeque<BTreeSet<(ObjectId, u64)>>,
    /// Fresh packets sent of the present chunk, and of its present segment.
    chunk: u64,
    segment: u64,
}

impl Chunks {
    pub(super) fn new(sizes: ChunkSizes) -> Self {
        Self { sizes, open: VecDeque::from([BTreeSet::new()]), chunk: 0, segment: 0 }
    }

    fn is_full(&self) -> bool {
        self.chunk >= self.sizes.chunk
    }

    /// Chunks are whole from the front; the present one stays, since more of it may come.
    fn forget_whole(&mut self) {
        while self.open.len() > 1 && self.open[0].is_empty() {
            self.open.pop_front();
        }
    }
}

impl Policy for Chunks {
    fn prefers_fresh(&self) -> bool {
        self.segment < self.sizes.segment && !self.is_full()
    }

    fn may_begin(&self) -> bool {
        let whole = self.open.len() == 1 && self.open[0].is_empty();
        !self.is_full() || whole || self.open.len() as u64 <= self.sizes.overlap
    }

    fn on_begun(&mut self, extent: Extent) {
        if self.is_full() {
            self.open.push_back(BTreeSet::new());
            self.forget_whole();
            (self.chunk, self.segment) = (0, 0);
        }
        if let Some(present) = self.open.back_mut() {
            present.insert((extent.object, extent.offset));
        }
    }

    fn on_fresh(&mut self, packets: u64) {
        if self.segment >= self.sizes.segment {
            self.segment = 0;
        }
        self.segment += packets;
        self.chunk += packets;
    }

    fn on_done(&mut self, extent: Extent) {
        let key = (extent.object, extent.offset);
        if self.open.iter_mut().any(|chunk| chunk.remove(&key)) {
            self.forget_whole();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64) -> Extent {
        Extent { object: ObjectId(1), offset, len: 100 }
    }

    fn chunks(overlap: u64) -> Chunks {
        Chunks::new(ChunkSizes { segment: 10, chunk: 25, overlap })
    }

    /// Sends an extent of so many packets.
    fn send(chunks: &mut Chunks, offset: u64, packets: u64) {
        assert!(chunks.may_begin(), "{chunks:?}");
        chunks.on_begun(extent(offset));
        chunks.on_fresh(packets);
    }

    #[test]
    fn what_is_lost_waits_for_the_end_of_its_segment() {
        let mut chunks = chunks(1);
        assert!(chunks.prefers_fresh());
        send(&mut chunks, 0, 9);
        assert!(chunks.prefers_fresh());
        send(&mut chunks, 100, 2);
        assert!(!chunks.prefers_fresh(), "what is lost goes first");
        // That fresh packets go says that nothing is left of it.
        chunks.on_fresh(9);
        assert!(chunks.prefers_fresh());
        chunks.on_fresh(5);
        assert!(!chunks.prefers_fresh(), "the last segment of a chunk is shorter");
        send(&mut chunks, 200, 9);
        assert!(chunks.prefers_fresh(), "and the next chunk begins with one of its own");
    }

    #[test]
    fn a_chunk_that_is_not_whole_holds_up_the_next_but_so_many() {
        for overlap in [0, 1, 3] {
            let mut chunks = chunks(overlap);
            for chunk in 0..=overlap {
                send(&mut chunks, chunk * 100, 30);
            }
            assert!(!chunks.may_begin(), "{overlap}");
            // One that is whole before an older one is does not count.
            if overlap > 0 {
                chunks.on_done(extent(100));
                assert!(!chunks.may_begin(), "{overlap}");
            }
            chunks.on_done(extent(0));
            send(&mut chunks, 1_000, 30);
            assert!(chunks.open.len() as u64 <= overlap + 1, "{chunks:?}");
        }
    }

    #[test]
    fn of_a_chunk_that_was_begun_the_rest_may_be_sent() {
        let mut chunks = chunks(0);
        send(&mut chunks, 0, 24);
        assert!(chunks.may_begin(), "it is not full");
        chunks.on_done(extent(0));
        send(&mut chunks, 100, 1);
        assert!(!chunks.may_begin());
        chunks.on_done(extent(500));
        assert!(!chunks.may_begin(), "an extent of which nothing was sent is of no chunk");
        chunks.on_done(extent(100));
        assert!(chunks.may_begin());
        send(&mut chunks, 200, 1);
        assert_eq!((chunks.chunk, chunks.open.len()), (1, 1));
    }
}
