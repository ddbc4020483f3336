//! Bytes that are under way.

/// Most bytes in flight, round by round: what a window is used for.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Flight {
    last: u64,
    present: u64,
}

impl Flight {
    /// A batch left, and so much is in flight with it.
    pub(super) fn on_sent(&mut self, in_flight: u64) {
        self.present = self.present.max(in_flight);
    }

    /// A round is over, and so much is in flight.
    pub(super) fn on_round(&mut self, in_flight: u64) {
        (self.last, self.present) = (self.present, in_flight);
    }

    /// Most bytes of the last round, which the present one reports.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Most bytes of both.
    pub(super) fn most(&self) -> u64 {
        self.last.max(self.present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_round_begins_with_what_is_still_under_way() {
        let mut flight = Flight::default();
        flight.on_sent(10);
        flight.on_sent(7);
        assert_eq!((flight.last(), flight.most()), (0, 10));
        flight.on_round(3);
        assert_eq!((flight.last(), flight.most()), (10, 10));
        flight.on_sent(4);
        flight.on_round(0);
        assert_eq!((flight.last(), flight.most()), (4, 4));
    }
}
