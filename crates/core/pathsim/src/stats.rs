use core::fmt;

/// Why a packet did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum DropReason {
    /// A datagram of UDP, which a firewall swallows.
    Firewall,
    /// Larger than the path's MTU.
    Mtu,
    /// Above the policer's token bucket.
    Policer,
    /// The queue of the bottleneck was full.
    Queue,
    /// Sent onto the line during an outage.
    Outage,
    /// Listed in the configuration.
    Scripted,
    /// The bursty loss model.
    Burst,
    /// The independent loss model.
    Random,
}

impl DropReason {
    /// All reasons, in the order in which a packet meets them.
    pub const ALL: [Self; 8] = [
        Self::Firewall,
        Self::Mtu,
        Self::Policer,
        Self::Queue,
        Self::Outage,
        Self::Scripted,
        Self::Burst,
        Self::Random,
    ];

    /// The word used in logs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Firewall => "firewall",
            Self::Mtu => "mtu",
            Self::Policer => "policer",
            Self::Queue => "queue",
            Self::Outage => "outage",
            Self::Scripted => "scripted",
            Self::Burst => "burst",
            Self::Random => "random",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Counts of a path for the packets offered to it. Copies made by duplication count only in
/// [`PathStats::duplicated`], so `offered = delivered + dropped` in packets at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathStats {
    /// Packets offered.
    pub offered: u64,
    /// IP-layer bytes offered.
    pub offered_bytes: u64,
    /// Packets that arrive, now or later.
    pub delivered: u64,
    /// IP-layer bytes that arrive, now or later.
    pub delivered_bytes: u64,
    /// Delivered packets on which this path set Congestion Experienced.
    pub marked: u64,
    /// Delivered packets that were held back by [`crate::config::Reordering`].
    pub reordered: u64,
    /// Delivered packets that arrive twice.
    pub duplicated: u64,
    /// Delivered packets with a flipped bit.
    pub corrupted: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl PathStats {
    /// Packets dropped for `reason`.
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets dropped for any reason.
    pub fn total_dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Counts packets that something in front of the path has dropped, as offered and dropped.
    /// [`PathStats::offered_bytes`] stays without theirs.
    pub fn add_dropped_before(&mut self, reason: DropReason, packets: u64) {
        self.offered += packets;
        self.dropped[reason as usize] += packets;
    }

    pub(crate) fn count_drop(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }
}

impl fmt::Display for PathStats {
    /// One line: `1000 offered, 989 delivered, 11 dropped (queue 1, random 10)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offered, delivered, dropped) = (self.offered, self.delivered, self.total_dropped());
        write!(f, "{offered} offered, {delivered} delivered, {dropped} dropped")?;
        let mut separator = " (";
        for reason in DropReason::ALL.into_iter().filter(|&reason| self.dropped(reason) > 0) {
            write!(f, "{separator}{reason} {}", self.dropped(reason))?;
            separator = ", ";
        }
        if dropped > 0 { f.write_str(")") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn shows_each_reason_that_occurred() {
        let mut stats = PathStats { offered: 5, delivered: 2, ..PathStats::default() };
        stats.count_drop(DropReason::Random);
        stats.count_drop(DropReason::Random);
        stats.count_drop(DropReason::Queue);
        assert_eq!(stats.to_string(), "5 offered, 2 delivered, 3 dropped (queue 1, random 2)");
        stats.add_dropped_before(DropReason::Queue, 7);
        assert_eq!((stats.offered, stats.dropped(DropReason::Queue)), (12, 8));
        let none = PathStats::default().to_string();
        assert_eq!(none, "0 offered, 0 delivered, 0 dropped");
    }

    #[test]
    fn reasons_index_their_counter() {
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
