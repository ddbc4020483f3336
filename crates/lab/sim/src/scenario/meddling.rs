//! Changes that the network makes to the ECN codepoint beside marking.

use longhaul_pathsim::Ecn;
use longhaul_units::Duration;

use super::End;
use crate::draw::Draw;

/// Treatment of ECN-capable packets in one direction, on every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meddling {
    /// The treatment.
    pub what: Meddles,
    /// To packets of that end.
    pub from: End,
    /// From that time on, since the start of the world.
    pub since: Duration,
}

/// See [`Meddling`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meddles {
    /// Nothing: the codepoint arrives.
    Never,
    /// It is cleared.
    Clears,
    /// It is changed to that of others, or to a mark.
    Writes(Ecn),
    /// The packets are lost.
    Drops,
}

impl Meddling {
    /// A network that leaves the codepoint alone.
    pub const NONE: Self = Self { what: Meddles::Never, from: End::Client, since: Duration::ZERO };

    pub(super) fn draw(seed: u64) -> Self {
        let draw = &mut Draw::new(seed, STREAM);
        let what = match draw.below(16) {
            0 | 1 => Meddles::Clears,
            2 => Meddles::Writes(Ecn::Ce),
            3 => Meddles::Writes(Ecn::Ect1),
            4 | 5 => Meddles::Drops,
            _ => Meddles::Never,
        };
        let since = if draw.one_in(2) { Duration::ZERO } else { draw.micros(1_000, 5_000_000) };
        Self { what, from: *draw.pick(&[End::Client, End::Server]), since }
    }

    /// Codepoint with which a packet of `from` goes on that had `ecn`; `None`: it is lost.
    pub(crate) fn pass(&self, ecn: Ecn, from: End, time: Duration) -> Option<Ecn> {
        if from != self.from || time < self.since || ecn == Ecn::NotEct {
            return Some(ecn);
        }
        match self.what {
            Meddles::Never => Some(ecn),
            Meddles::Clears => Some(Ecn::NotEct),
            Meddles::Writes(other) => Some(other),
            Meddles::Drops => None,
        }
    }
}

/// Number of the stream of choices: apart, so that all else of a seed stays as it was.
const STREAM: u64 = 71;
