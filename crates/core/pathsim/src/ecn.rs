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

    /// Whether a queue can still mark it: ECT(0) or ECT(1).
    pub const fn is_markable(self) -> bool {
        matches!(self, Self::Ect0 | Self::Ect1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_round_trip() {
        for bits in 0..4 {
            assert_eq!(Ecn::from_bits(bits).bits(), bits);
            assert_eq!(Ecn::from_bits(bits | 0xfc).bits(), bits);
        }
        assert!(Ecn::Ect0.is_markable() && !Ecn::Ce.is_markable());
    }
}
