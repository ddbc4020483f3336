/// The ECN field of an IP header (RFC 3168 section 5, RFC 8311).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ecn {
    /// The sender does not understand marks.
    #[default]
    NotEct,
    /// ECN-capable transport, ECT(1).
    Ect1,
    /// ECN-capable transport, ECT(0).
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// From the two low bits of the traffic class byte; the other bits are ignored.
    pub const fn from_bits(traffic_class: u8) -> Self {
        match traffic_class & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits.
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0b00,
            Self::Ect1 => 0b01,
            Self::Ect0 => 0b10,
            Self::Ce => 0b11,
        }
    }

    /// True if a queue can still mark it: ECT(0) or ECT(1).
    pub const fn is_markable(self) -> bool {
        matches!(self, Self::Ect0 | Self::Ect1)
    }
}

/// Packets by the codepoint that they arrived with; those without one are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// With ECT(0).
    pub ect0: u64,
    /// With ECT(1).
    pub ect1: u64,
    /// With CE.
    pub ce: u64,
}

impl EcnCounts {
    /// None.
    pub const ZERO: Self = Self { ect0: 0, ect1: 0, ce: 0 };

    /// Counts so many packets with `codepoint`.
    pub const fn add(&mut self, codepoint: Ecn, packets: u64) {
        let count = match codepoint {
            Ecn::NotEct => return,
            Ecn::Ect1 => &mut self.ect1,
            Ecn::Ect0 => &mut self.ect0,
            Ecn::Ce => &mut self.ce,
        };
        *count = count.saturating_add(packets);
    }

    /// All of them.
    pub const fn total(&self) -> u64 {
        self.ect0.saturating_add(self.ect1).saturating_add(self.ce)
    }

    /// The larger of each count and that of `other`: the newer of two cumulative accounts, whichever
    /// came first.
    #[must_use]
    pub fn newer(&self, other: &Self) -> Self {
        Self {
            ect0: self.ect0.max(other.ect0),
            ect1: self.ect1.max(other.ect1),
            ce: self.ce.max(other.ce),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_codepoint_has_its_count() {
        let mut counts = EcnCounts::ZERO;
        for (packets, bits) in (1..).zip(0..4) {
            counts.add(Ecn::from_bits(bits), packets);
        }
        assert_eq!(counts, EcnCounts { ect1: 2, ect0: 3, ce: 4 });
        assert_eq!(counts.total(), 9);
        let other = EcnCounts { ect0: 7, ..EcnCounts::ZERO };
        assert_eq!(other.newer(&counts), EcnCounts { ect0: 7, ..counts });
    }

    #[test]
    fn bits_round_trip() {
        for bits in 0..4 {
            assert_eq!(Ecn::from_bits(bits).bits(), bits);
            assert_eq!(Ecn::from_bits(bits | 0xfc).bits(), bits);
        }
        assert!(Ecn::Ect0.is_markable() && !Ecn::Ce.is_markable());
    }
}
