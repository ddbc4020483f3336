//! Hazards of a packet that depend on its place in the sequence alone.
//!
//! Every hazard looks at every packet that is offered, dropped elsewhere or not, and knows the
//! number of the next one that it meets. So one element never changes another's choice, and a
//! packet that meets nothing costs one comparison.

use alloc::vec::Vec;

use crate::config::PathConfig;
use crate::loss::Bursts;
use crate::probability::Probability;
use crate::random::{Element, Hits, Stream};
use crate::stats::DropReason;

/// Which bit of a corrupted packet is wrong.
///
/// The path never sees the bytes; the caller flips the bit of a part of its choice, for example
/// of everything behind the UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flip(u64);

impl Flip {
    /// Index of the byte, and a mask with the bit to flip, in a part of `len` bytes; `None` when
    /// the part is empty.
    pub fn bit(self, len: usize) -> Option<(usize, u8)> {
        if len == 0 {
            return None;
        }
        let byte = (u128::from(self.0 >> 3) * len as u128) >> 61;
        Some((byte as usize, 1 << (self.0 & 7)))
    }
}

/// Hazards of one packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meeting {
    pub(crate) lost: Option<DropReason>,
    pub(crate) late: bool,
    pub(crate) twice: bool,
    pub(crate) flip: Option<Flip>,
}

#[derive(Clone, Debug)]
pub(crate) struct Hazards {
    /// Number of the next packet that any hazard has a say in.
    next: u64,
    /// Latest first.
    scripted: Vec<u64>,
    bursts: Option<Bursts>,
    random: Hits,
    late: Hits,
    twice: Hits,
    corrupt: Hits,
    bits: Stream,
}

impl Hazards {
    pub(crate) fn new(config: &PathConfig, seed: u64) -> Self {
        let mut scripted = config.scripted_loss.clone();
        scripted.sort_unstable_by_key(|&number| core::cmp::Reverse(number));
        scripted.dedup();
        let hits = |probability, element| Hits::new(probability, Stream::new(seed, element));
        let late = config.reordering.map_or(Probability::ZERO, |late| late.probability);
        let twice = config.duplication.map_or(Probability::ZERO, |twice| twice.probability);
        let mut hazards = Self {
            next: 0,
            scripted,
            bursts: config.burst_loss.as_ref().map(|bursts| Bursts::new(bursts, seed)),
            random: hits(config.loss, Element::RandomLoss),
            late: hits(late, Element::Reordering),
            twice: hits(twice, Element::Duplication),
            corrupt: hits(config.corruption, Element::Corruption),
            bits: Stream::new(seed, Element::CorruptedBit),
        };
        hazards.next = hazards.earliest();
        hazards
    }

    /// Hazards of packet `number`. Numbers are asked in order, none left out.
    #[inline]
    pub(crate) fn meet(&mut self, number: u64) -> Meeting {
        if number < self.next { Meeting::default() } else { self.look(number) }
    }

    #[cold]
    fn look(&mut self, number: u64) -> Meeting {
        let scripted = self.scripted.pop_if(|next| *next == number).is_some();
        let burst = self.bursts.as_mut().is_some_and(|bursts| bursts.take(number));
        let random = self.random.take(number);
        let meeting = Meeting {
            lost: match (scripted, burst, random) {
                (true, _, _) => Some(DropReason::Scripted),
                (_, true, _) => Some(DropReason::Burst),
                (_, _, true) => Some(DropReason::Random),
                _ => None,
            },
            late: self.late.take(number),
            twice: self.twice.take(number),
            flip: self.corrupt.take(number).then(|| Flip(self.bits.next())),
        };
        self.next = self.earliest();
        meeting
    }

    fn earliest(&self) -> u64 {
        let fixed = [&self.random, &self.late, &self.twice, &self.corrupt].map(Hits::next);
        let scripted = self.scripted.last().copied();
        let bursts = self.bursts.as_ref().map(Bursts::next);
        fixed.into_iter().chain(scripted).chain(bursts).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_parts_have_no_bit() {
        assert_eq!(Flip(u64::MAX).bit(0), None);
        assert_eq!(Flip(u64::MAX).bit(1), Some((0, 0x80)));
        assert_eq!(Flip(u64::MAX).bit(1_500), Some((1_499, 0x80)));
        assert_eq!(Flip(0).bit(1_500), Some((0, 1)));
    }

    proptest! {
        #[test]
        fn the_bit_lies_in_the_part(seed: u64, len in 1usize..100_000) {
            let (byte, mask) = Flip(seed).bit(len).unwrap();
            prop_assert!(byte < len);
            prop_assert_eq!(mask.count_ones(), 1);
        }
    }
}
