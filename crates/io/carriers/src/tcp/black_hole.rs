//! Paths on which large segments vanish without an error (RFC 2923, section 2.1). The kernel sends them
//! again and again unless `net.ipv4.tcp_mtu_probing` is set.

use longhaul_sys::tcp::SEGMENT_LEAST;
use longhaul_units::Instant;

/// Watches the side that sends: the receiver cannot distinguish such a path from a peer with nothing to send.
///
/// Segments time out on a path that is down, too. So the peer is asked by small packets, and what times
/// out again after its answer is too large.
#[derive(Debug, Default)]
pub struct BlackHole {
    /// Bytes acknowledged, and bytes of a segment: with a change of either something passes again.
    state: (u64, u32),
    asked: Option<Instant>,
    /// Timeouts by the time of the answer.
    answered: Option<u32>,
}

/// Counts of the kernel, of all connections together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sending {
    /// Bytes that the peer has acknowledged.
    pub acknowledged: u64,
    /// Timeouts in a row of one of them, the most of any.
    pub timeouts: u32,
    /// Payload bytes of a segment, the most of any.
    pub segment: u32,
}

/// The outcome of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// The peer is to be asked whether small packets pass.
    Ask,
    /// They do, and large ones do not.
    Found,
}

impl BlackHole {
    /// Takes in the counts at `now`; the peer has answered the question that was asked at `answered`.
    pub fn look(&mut self, now: Instant, seen: Sending, answered: Instant) -> Step {
        let state = (seen.acknowledged, seen.segment);
        if state != self.state || seen.timeouts < SUSPICIOUS || seen.segment <= SEGMENT_LEAST {
            *self = Self { state, ..Self::default() };
            return Step::Wait;
        }
        let Some(asked) = self.asked else {
            self.asked = Some(now);
            return Step::Ask;
        };
        if answered < asked {
            return Step::Wait;
        }
        // The first that follows may have left before its path came back.
        match seen.timeouts.saturating_sub(*self.answered.get_or_insert(seen.timeouts)) {
            0 | 1 => Step::Wait,
            _ => Step::Found,
        }
    }
}

/// Timeouts in a row that chance losses seldom bring about.
const SUSPICIOUS: u32 = 3;

#[cfg(test)]
mod tests {
    use longhaul_units::Duration;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn sending(acknowledged: u64, timeouts: u32) -> Sending {
        Sending { acknowledged, timeouts, segment: 1_448 }
    }

    #[test]
    fn segments_that_time_out_after_small_packets_were_answered_are_too_large() {
        let mut watch = BlackHole::default();
        assert_eq!(watch.look(at(0), sending(500, 0), at(0)), Step::Wait);
        assert_eq!(watch.look(at(600), sending(500, 2), at(0)), Step::Wait);
        assert_eq!(watch.look(at(1_400), sending(500, 3), at(0)), Step::Ask);
        assert_eq!(watch.look(at(1_500), sending(500, 3), at(1_400)), Step::Wait);
        assert_eq!(watch.look(at(3_000), sending(500, 4), at(1_400)), Step::Wait);
        assert_eq!(watch.look(at(6_200), sending(500, 5), at(1_400)), Step::Found);
    }

    #[test]
    fn a_path_that_was_down_for_a_while_is_none() {
        let mut watch = BlackHole::default();
        watch.look(at(0), sending(500, 0), at(0));
        assert_eq!(watch.look(at(1_400), sending(500, 3), at(0)), Step::Ask);
        for (ms, timeouts) in [(3_000, 4), (6_200, 5), (12_600, 6), (25_400, 7)] {
            assert_eq!(watch.look(at(ms), sending(500, timeouts), at(0)), Step::Wait);
        }
        // The answer comes as soon as the path is back; then the data is sent again, and arrives.
        assert_eq!(watch.look(at(30_000), sending(500, 7), at(1_400)), Step::Wait);
        assert_eq!(watch.look(at(51_000), sending(500, 8), at(1_400)), Step::Wait);
        assert_eq!(watch.look(at(51_100), sending(9_000, 0), at(1_400)), Step::Wait);
        // Later timeouts count from the start again.
        assert_eq!(watch.look(at(60_000), sending(9_000, 3), at(1_400)), Step::Ask);
        assert_eq!(watch.look(at(70_000), sending(9_000, 9), at(1_400)), Step::Wait);
    }

    #[test]
    fn a_kernel_that_tries_smaller_segments_is_left_to_it() {
        let mut watch = BlackHole::default();
        let seen = |timeouts, segment| Sending { acknowledged: 500, timeouts, segment };
        assert_eq!(watch.look(at(0), seen(3, 1_448), at(0)), Step::Wait);
        assert_eq!(watch.look(at(100), seen(3, 1_448), at(0)), Step::Ask);
        assert_eq!(watch.look(at(200), seen(4, 1_012), at(100)), Step::Wait);
        for timeouts in 3..20 {
            assert_eq!(watch.look(at(300), seen(timeouts, SEGMENT_LEAST), at(300)), Step::Wait);
        }
    }
}
