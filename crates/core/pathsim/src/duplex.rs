use longhaul_units::Instant;

use crate::config::{ConfigError, PathConfig};
use crate::link::{Delivery, Link};
use crate::path::Fate;
use crate::random::mix;
use longhaul_units::Ecn;

/// Both directions of a path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DuplexConfig {
    /// From the first end to the second.
    pub forward: PathConfig,
    /// From the second end to the first.
    pub backward: PathConfig,
}

impl DuplexConfig {
    /// The same in both directions; the round trip takes twice the delay.
    pub fn symmetric(config: PathConfig) -> Self {
        Self { forward: config.clone(), backward: config }
    }
}

/// A direction of a [`Duplex`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From the first end to the second.
    Forward,
    /// From the second end to the first.
    Backward,
}

impl Direction {
    /// The other direction.
    #[must_use]
    pub const fn reverse(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }
}

/// Two links in opposite directions, with independent randomness from one seed.
#[derive(Clone, Debug)]
pub struct Duplex<T> {
    forward: Link<T>,
    backward: Link<T>,
}

impl<T> Duplex<T> {
    /// A path as `config` describes it. Its schedules begin at `start`.
    ///
    /// # Errors
    /// As [`PathConfig::validate`], for either direction.
    pub fn new(config: &DuplexConfig, seed: u64, start: Instant) -> Result<Self, ConfigError> {
        Ok(Self {
            forward: Link::new(&config.forward, mix(seed, FORWARD), start)?,
            backward: Link::new(&config.backward, mix(seed, BACKWARD), start)?,
        })
    }

    /// As [`Link::push`].
    pub fn push(
        &mut self,
        direction: Direction,
        now: Instant,
        wire_len: u32,
        ecn: Ecn,
        item: T,
    ) -> Fate
    where
        T: Clone,
    {
        self.link_mut(direction).push(now, wire_len, ecn, item)
    }

    /// Takes the next packet that has arrived by `now`, in order of time over both directions;
    /// of equal time the forward one first.
    pub fn poll(&mut self, now: Instant) -> Option<(Direction, Delivery<T>)> {
        let forward = self.forward.next_arrival();
        let backward = self.backward.next_arrival();
        let direction = match (forward, backward) {
            (Some(forward), Some(backward)) if backward < forward => Direction::Backward,
            (None, _) => Direction::Backward,
            _ => Direction::Forward,
        };
        Some((direction, self.link_mut(direction).poll(now)?))
    }

    /// When to poll next: the next arrival or rebinding in either direction.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.forward.next_timeout().into_iter().chain(self.backward.next_timeout()).min()
    }

    /// A direction in which a rebinding is due at `now`; returned once for each rebinding.
    pub fn poll_rebinding(&mut self, now: Instant) -> Option<Direction> {
        [Direction::Forward, Direction::Backward]
            .into_iter()
            .find(|&direction| self.link_mut(direction).poll_rebinding(now))
    }

    /// One direction.
    pub fn link(&self, direction: Direction) -> &Link<T> {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Backward => &self.backward,
        }
    }

    /// One direction, to push to or to look into its queue.
    pub fn link_mut(&mut self, direction: Direction) -> &mut Link<T> {
        match direction {
            Direction::Forward => &mut self.forward,
            Direction::Backward => &mut self.backward,
        }
    }
}

// Part of what a seed means.
const FORWARD: u64 = 101;
const BACKWARD: u64 = 102;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Probability;
    use alloc::vec::Vec;
    use longhaul_units::Duration;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn directions_differ_in_delay_and_share_one_timeline() {
        let config = DuplexConfig {
            forward: PathConfig::default().delay(MS * 3).rebinding(MS * 2),
            backward: PathConfig::default().delay(MS),
        };
        let mut duplex = Duplex::new(&config, 1, Instant::ZERO).unwrap();
        for (direction, item) in [(Direction::Forward, 'a'), (Direction::Backward, 'b')] {
            let fate = duplex.push(direction, Instant::ZERO, 100, Ecn::NotEct, item);
            assert!(fate.arrival().is_some());
        }
        let mut seen = Vec::new();
        while let Some(now) = duplex.next_timeout() {
            while let Some(direction) = duplex.poll_rebinding(now) {
                seen.push((now, direction, 'r'));
            }
            while let Some((direction, delivery)) = duplex.poll(now) {
                seen.push((delivery.at, direction, delivery.item));
            }
        }
        assert_eq!(
            seen,
            [
                (Instant::ZERO + MS, Direction::Backward, 'b'),
                (Instant::ZERO + MS * 2, Direction::Forward, 'r'),
                (Instant::ZERO + MS * 3, Direction::Forward, 'a'),
            ]
        );
    }

    #[test]
    fn directions_lose_independently() {
        let config = PathConfig::default().loss(Probability::from_percent(50));
        let mut duplex = Duplex::new(&DuplexConfig::symmetric(config), 1, Instant::ZERO).unwrap();
        let mut lost = |direction| -> Vec<bool> {
            let mut push = || duplex.push(direction, Instant::ZERO, 100, Ecn::NotEct, ());
            (0..64).map(|_| push().drop_reason().is_some()).collect()
        };
        assert_ne!(lost(Direction::Forward), lost(Direction::Backward));
    }
}
