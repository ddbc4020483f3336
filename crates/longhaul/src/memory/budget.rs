//! How much memory a transfer takes at either end: at most 256 MiB and two products of rate and
//! round trip of its path, whatever its size, or what the user or this process' control group allow (docs/operating.md);
//! under blast rounds as much as has come, since a round is of the whole file where there is room.
//!
//! What follows is for contents of files, but for [`Budget::of_names`]. The rest, some 30 MiB, is the
//! program itself and its sockets' and ciphers' buffers.

use longhaul_connection::HostFailure;
use longhaul_objects::limits::{NAME_MEMORY, UNSETTLED_COST};
use longhaul_rate_control::{MemoryBudget, Repair};
use longhaul_sys::host::{memory_limit, share_one_heap, unmapped};
use longhaul_units::{Bytes, Instant};

/// Memory for contents at one end of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    first: Bytes,
    most: Bytes,
    repair: Repair,
}

impl Budget {
    /// As much as the path is worth, and no more than `cap`, or half of what this process may take.
    pub fn new(cap: Option<Bytes>) -> Self {
        Self::within(memory_for_contents(cap))
    }

    fn within(cap: Bytes) -> Self {
        let most = cap.clamp(MEMORY_LEAST, MOST);
        Self { first: most, most, repair: Repair::Continuous }
    }

    /// `first`, which is leased, and more as far as more can be leased, within `total`.
    pub fn leased(first: Bytes, total: Bytes) -> Self {
        let most = total.clamp(MEMORY_LEAST, MOST);
        Self { first: first.max(MEMORY_LEAST), most, repair: Repair::Continuous }
    }

    /// The same for what is repaired so: a round of blasts is kept whole.
    pub fn repaired_by(self, repair: Repair) -> Self {
        Self { repair, ..self }
    }

    /// A source keeps what is not acknowledged.
    pub fn of_source(self) -> Bytes {
        MEMORY_FIRST.min(self.first)
    }

    /// A sink keeps what is not written, and promises as much (docs/protocol.md 7.2).
    pub fn of_sink(self) -> Bytes {
        self.of_source() - SINK_SPARE
    }

    /// Paths and names of directories, which are kept to the end, take no more beside that, unless they are leased.
    pub fn of_names(self) -> Bytes {
        Bytes::new(self.most.get() / 4).max(MEMORY_LEAST)
    }

    /// That of a source as its path shows what it is worth.
    pub fn growing_of_source(self, now: Instant) -> MemoryBudget {
        MemoryBudget::new(now, self.of_source(), self.most, self.repair)
    }

    /// That of a sink.
    pub fn growing_of_sink(self, now: Instant) -> MemoryBudget {
        MemoryBudget::new(now, self.of_sink(), self.most - SINK_SPARE, self.repair)
    }
}

/// As much as the user says, or half of the memory that this process may take; and no more than half of the addresses
/// that the program itself leaves: names, and what peers send before it is judged, take the rest.
pub(crate) fn memory_for_contents(cap: Option<Bytes>) -> Bytes {
    let cap = cap.unwrap_or_else(|| Bytes::new(memory_limit().get() / 2));
    let addresses = unmapped().map(|all| Bytes::new(all.get().saturating_sub(PROGRAM.get()) / 2));
    addresses.map_or(cap, |addresses| cap.min(addresses))
}

/// Makes do with the addresses that this process may map, or says why it cannot: who finds none left in mid-copy
/// ends without a word.
pub(crate) fn check_addresses() -> Result<(), HostFailure> {
    let Some(unmapped) = unmapped() else { return Ok(()) };
    share_one_heap();
    let least = PROGRAM + MEMORY_LEAST + MEMORY_LEAST;
    if unmapped >= least {
        return Ok(());
    }
    Err(HostFailure::System(format!(
        "the limit on virtual memory (ulimit -v) leaves this process {unmapped}, and it needs {least}: raise that limit first"
    )))
}

/// Less than this cannot be asked for: the parts of a transfer would wait for each other all the time.
pub const MEMORY_LEAST: Bytes = Bytes::from_mib(64);
/// Names take so much at least: those of files that are not settled, and those of directories.
pub(crate) const NAMES_LEAST: Bytes = Bytes::new(UNSETTLED_COST + NAME_MEMORY);
/// With which either end begins.
pub(crate) const MEMORY_FIRST: Bytes = Bytes::from_mib(192);
/// What a sink takes beyond what it promises: a group that is short takes a buffer, too.
pub(crate) const SINK_SPARE: Bytes = Bytes::from_mib(32);
/// Addresses of threads' stacks, the heap, and sockets' and ciphers' buffers.
const PROGRAM: Bytes = Bytes::from_mib(96);
/// No path needs more, and a peer that makes itself look far away gets no more.
const MOST: Bytes = Bytes::from_mib(4096);

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::Duration;

    /// What either end takes in all, at first and over a path of 10 GB/s and 1 s.
    fn of(budget: Budget) -> [Bytes; 4] {
        let begin = Instant::ZERO;
        let later = begin + Duration::from_secs(1);
        let grown = |mut memory: MemoryBudget| memory.update(later, 10 << 30, later - begin);
        [
            budget.of_source(),
            budget.of_sink() + SINK_SPARE,
            grown(budget.growing_of_source(begin)),
            grown(budget.growing_of_sink(begin)) + SINK_SPARE,
        ]
    }

    #[test]
    fn memory_grows_with_the_path_up_to_the_cap() {
        let [source, sink, source_grown, sink_grown] = of(Budget::within(MOST + MOST));
        assert_eq!((source, sink), (Bytes::from_mib(192), Bytes::from_mib(192)));
        assert_eq!((source_grown, sink_grown), (MOST, MOST));
        let cap = Bytes::from_mib(500);
        let [source, sink, source_grown, sink_grown] = of(Budget::within(cap));
        assert_eq!((source, sink), (Bytes::from_mib(192), Bytes::from_mib(192)));
        assert_eq!((source_grown, sink_grown), (cap, cap));
        for cap in [Bytes::from_mib(100), MEMORY_LEAST] {
            assert_eq!(of(Budget::within(cap)), [cap; 4]);
        }
        assert_eq!(of(Budget::within(Bytes::new(1))), [MEMORY_LEAST; 4]);
    }
}
