//! Times by bottleneck of the path that carries data, over all changes of it.

use longhaul_units::PathId;

use crate::diagnosis::Times;

/// Times of the path that carries data, over all changes of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carrying {
    path: PathId,
    /// Times that this path had booked at the last look.
    seen: Times,
    sum: Times,
}

impl Carrying {
    /// From now on `path` carries data, which has booked `times` before.
    pub fn go(&mut self, path: PathId, times: Times) {
        (self.path, self.seen) = (path, times);
    }

    /// The path that carries data.
    pub fn path(&self) -> PathId {
        self.path
    }

    /// Takes in the `times` that this path has booked by now; returns the sum over all paths, each while it
    /// carried data.
    pub fn look(&mut self, times: Times) -> Times {
        self.sum = self.sum.plus(&times.since(&self.seen));
        self.seen = times;
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::{Bottleneck, Duration};

    #[test]
    fn only_what_is_booked_while_a_path_carries_counts() {
        let booked = |bound, secs| {
            let mut times = Times::default();
            times.add(bound, Duration::from_secs(secs));
            times
        };
        let (ip, circuit) = (Bottleneck::Network, Bottleneck::Reservation);
        let mut carrying = Carrying::default();
        assert_eq!(carrying.look(booked(ip, 5)), booked(ip, 5));
        // IP goes on meanwhile, with the messages beside the data.
        carrying.go(PathId(1), booked(circuit, 1));
        let sum = booked(ip, 5).plus(&booked(circuit, 3));
        assert_eq!(carrying.look(booked(circuit, 4)), sum);
        carrying.go(PathId(0), booked(ip, 9));
        assert_eq!(carrying.path(), PathId(0));
        assert_eq!(carrying.look(booked(ip, 10)), sum.plus(&booked(ip, 1)));
    }
}
