use crate::ecn::Ecn;

/// Treatment of a packet that the network is asked for: the differentiated services field of its IP header
/// (RFC 2474), of which profiles use two codepoints.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Dscp {
    /// As any other, 000000.
    #[default]
    BestEffort,
    /// Behind all others: lower effort, 000001 (RFC 8622).
    LowerEffort,
}

impl Dscp {
    /// The six bits.
    pub const fn bits(self) -> u8 {
        match self {
            Self::BestEffort => 0b00_0000,
            Self::LowerEffort => 0b00_0001,
        }
    }

    /// The byte of an IP header that has both, the traffic class of IPv6 and what was the type of
    /// service of IPv4 (RFC 3168 section 22).
    pub const fn traffic_class(self, ecn: Ecn) -> u8 {
        self.bits() << 2 | ecn.bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_leaves_the_low_bits_to_the_marks_of_congestion() {
        assert_eq!(Dscp::BestEffort.traffic_class(Ecn::NotEct), 0);
        assert_eq!(Dscp::LowerEffort.traffic_class(Ecn::NotEct), 0x04);
        assert_eq!(Dscp::LowerEffort.traffic_class(Ecn::Ect0), 0x06);
        assert_eq!(Ecn::from_bits(Dscp::LowerEffort.traffic_class(Ecn::Ce)), Ecn::Ce);
    }
}
