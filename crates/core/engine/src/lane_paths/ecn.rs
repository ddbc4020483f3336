//! Which packets are ECN-capable, and whether what the peer counts of them is believed
//! (protocol.md 5.4.2, after RFC 9000 13.4.2).

use core::time::Duration;

use longhaul_units::{Ecn, EcnCounts, Instant};

/// ECN on one path of a lane.
#[derive(Debug)]
pub(super) struct PathEcn {
    state: State,
    /// Probe timeouts since something arrived.
    timeouts: u32,
    marks: Marks,
}

/// Tells marks of congestion from a path that marks everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marks {
    /// Of the first packets nothing but so many marks has come back, which were not reported.
    First(u64),
    /// Nothing but marks for so many round trips, the last of which is over at `until`.
    Since { rounds: u32, until: Instant },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many more packets find out whether the path carries the codepoint; `again`: they may try it once
    /// more if all are lost.
    Testing { left: u64, again: bool },
    /// No packet with it is known to have arrived: none is sent, until one is. With `again` the
    /// path is tried once more as soon as anything arrives.
    Waiting { again: bool },
    /// It carries it, and the peer counts it.
    Capable,
    /// The peer's counts are not what was sent, or all of it is marked: a node clears or changes the
    /// codepoint.
    Failed,
}

/// Counts of a lane and its peer, over all paths.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// The peer's last report.
    counted: EcnCounts,
    /// The codepoint by which packets ask for marks: ECT(0), or ECT(1).
    asked: Ecn,
    /// Packets sent with it.
    sent: u64,
    /// Those of them that the peer reported, as far as their path was believed then.
    reported: u64,
}

/// Packets of the present path in one report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    /// Packets newly known to have arrived.
    pub packets: u64,
    /// Those of them that were sent ECN-capable.
    pub ect: u64,
    /// Packets of another path may still come, and be counted: what is marked may be of those.
    pub mixed: bool,
}

impl PathEcn {
    pub fn new() -> Self {
        let state = State::Testing { left: TEST_PACKETS, again: true };
        Self { state, timeouts: 0, marks: Marks::First(0) }
    }

    /// The codepoint for the next packets, if they may ask for marks by `asked`.
    pub fn codepoint(&mut self, asked: Ecn) -> Ecn {
        if let State::Testing { left: 0, .. } = self.state {
            self.state = State::Waiting { again: false };
        }
        match self.state {
            State::Testing { .. } | State::Capable => asked,
            State::Waiting { .. } | State::Failed => Ecn::NotEct,
        }
    }

    /// Nothing is acknowledged any more: it may be the codepoint that the path drops.
    pub fn on_probe_timeout(&mut self) {
        self.timeouts += 1;
        self.state = match self.state {
            State::Testing { again, .. } => State::Waiting { again },
            // A single one is the loss of the last packets, as a rule.
            State::Capable if self.timeouts > 1 => State::Waiting { again: true },
            state => state,
        };
    }

    /// Packets arrived, and the peer's counts go with it.
    fn on_arrived(&mut self, arrived: Arrived) {
        if arrived.packets > 0 {
            self.timeouts = 0;
        }
        self.state = match self.state {
            State::Failed => State::Failed,
            _ if arrived.ect > 0 => State::Capable,
            State::Waiting { again: true } if arrived.packets > 0 => {
                State::Testing { left: TEST_PACKETS, again: false }
            }
            state => state,
        };
    }

    /// So many came back as they were sent and so many marked, at `now`, over a path with that RTT. Gives the
    /// marks that are to be heeded.
    ///
    /// A queue that marks all packets has a sender slow down until it marks some only, or is none: some
    /// networks write CE over ECT(0). Who takes the one for the other loses little, since a queue drops
    /// what it may not mark.
    fn on_marks(&mut self, now: Instant, rtt: Duration, unmarked: u64, marked: u64) -> u64 {
        match self.marks {
            Marks::First(held) if unmarked == 0 => {
                self.marks = Marks::First(held + marked);
                if held + marked >= TEST_PACKETS {
                    self.state = State::Failed;
                }
                0
            }
            Marks::First(held) => {
                self.marks = Marks::Since { rounds: 0, until: now };
                held + marked
            }
            Marks::Since { .. } if unmarked > 0 => {
                self.marks = Marks::Since { rounds: 0, until: now };
                marked
            }
            Marks::Since { rounds, until } if marked > 0 && now >= until => {
                self.marks = Marks::Since { rounds: rounds + 1, until: now + rtt };
                if rounds >= MARKED_ROUNDS {
                    self.state = State::Failed;
                    return 0;
                }
                marked
            }
            Marks::Since { .. } => marked,
        }
    }
}

impl Account {
    /// So many packets leave with `codepoint`, over a path in the state `ecn`.
    pub fn on_sent(&mut self, ecn: &mut PathEcn, codepoint: Ecn, packets: u64) {
        self.asked = codepoint;
        self.sent += packets;
        if let State::Testing { left, .. } = &mut ecn.state {
            *left = left.saturating_sub(packets);
        }
    }

    /// The peer counts `counts`, in a report at `now` of which `arrived` is news of the present path, whose
    /// smoothed RTT is `rtt`; returns the marks to be heeded.
    ///
    /// Sums are compared, not what one report adds: a report may leave out packets that it counts,
    /// and an older one may come behind a newer one.
    pub fn on_report(
        &mut self,
        ecn: &mut PathEcn,
        (now, rtt): (Instant, Duration),
        counts: &EcnCounts,
        arrived: Arrived,
    ) -> u64 {
        let before = self.counted;
        self.counted = before.newer(counts);
        if ecn.state == State::Failed {
            return 0;
        }
        self.reported += arrived.ect;
        let [(own, other), (own_before, _)] = [self.counted, before].map(|counts| {
            let EcnCounts { ect0, ect1, .. } = counts;
            if self.asked == Ecn::Ect1 { (ect1, ect0) } else { (ect0, ect1) }
        });
        let marked = self.counted.ce;
        let counted = own.saturating_add(marked);
        if counted < self.reported || counted > self.sent || other > 0 {
            ecn.state = State::Failed;
            // Other paths are not to blame for these.
            self.reported = self.reported.min(counted);
            return 0;
        }
        ecn.on_arrived(arrived);
        if arrived.mixed {
            return 0;
        }
        ecn.on_marks(now, rtt, own - own_before, marked - before.ce)
    }
}

/// Packets that try whether a path carries the codepoint (RFC 9000 13.4.2), and the rest of their batch.
const TEST_PACKETS: u64 = 10;
/// Round trips in which all is marked, before the path is to blame. A window that shrinks to 0.85 on marks
/// (RFC 8511 section 3) is at a fifth by then: the queue that the largest overshoot of a start-up left, three
/// times what the path holds, is empty after seven.
const MARKED_ROUNDS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// A path, and what a lane counts, with packets sent one by one.
    struct Sender(PathEcn, Account, Ecn);

    impl Sender {
        fn new() -> Self {
            Self(PathEcn::new(), Account::default(), Ecn::Ect0)
        }

        fn send(&mut self, packets: u64) -> u64 {
            let capable = (0..packets).filter(|_| {
                let is_ect = self.0.codepoint(self.2) == self.2;
                self.1.on_sent(&mut self.0, self.2, is_ect.into());
                is_ect
            });
            capable.count() as u64
        }

        fn report(&mut self, ect: u64, packets: u64, counts: (u64, u64, u64)) -> u64 {
            self.report_at(0, ect, packets, counts)
        }

        /// After so many round trips.
        fn report_at(
            &mut self,
            rounds: u32,
            ect: u64,
            packets: u64,
            (ect0, ect1, ce): (u64, u64, u64),
        ) -> u64 {
            let counts = EcnCounts { ect0, ect1, ce };
            let time = (Instant::ZERO + RTT * rounds, RTT);
            self.1.on_report(&mut self.0, time, &counts, Arrived { packets, ect, mixed: false })
        }
    }

    #[test]
    fn marks_are_heeded_once_where_the_counts_are_right() {
        let mut sender = Sender::new();
        assert_eq!(sender.send(8), 8);
        assert_eq!(sender.report(6, 6, (5, 0, 1)), 1);
        assert_eq!(sender.send(100), 100);
        // It counts more than it had room to report, and says so later.
        assert_eq!(sender.report(10, 10, (80, 0, 20)), 19);
        assert_eq!(sender.report(90, 90, (84, 0, 22)), 2);
        assert_eq!(sender.report(0, 0, (5, 0, 1)), 0, "an old one");
        assert_eq!(sender.send(1), 1);
    }

    #[test]
    fn who_asks_by_the_other_codepoint_finds_that_counted() {
        let ect1 = || Sender(PathEcn::new(), Account::default(), Ecn::Ect1);
        let mut sender = ect1();
        assert_eq!(sender.send(8), 8);
        assert_eq!(sender.report(6, 6, (0, 5, 1)), 1);
        assert_eq!(sender.send(1), 1);
        let mut changed = ect1();
        assert_eq!(changed.send(8), 8);
        assert_eq!(changed.report(6, 6, (5, 0, 1)), 0, "somebody makes ECT(0) of it");
        assert_eq!(changed.send(1), 0);
    }

    #[test]
    fn counts_that_cannot_be_switch_it_off() {
        // Cleared on the path, in part; remarked; more marks than packets; all marks, and too few.
        for counts in [(0, 0, 0), (3, 0, 2), (0, 6, 0), (6, 1, 0), (6, 0, 5), (0, 0, 5)] {
            let mut sender = Sender::new();
            assert_eq!(sender.send(10), 10);
            assert_eq!(sender.report(6, 6, counts), 0, "{counts:?}");
            assert_eq!(sender.send(10), 0, "{counts:?}");
            assert_eq!(sender.report(4, 14, (6, 0, 4)), 0);
            assert_eq!(sender.send(1), 0, "for good");
        }
    }

    #[test]
    fn a_path_on_which_all_is_marked_from_the_start_is_not_believed() {
        let mut sender = Sender::new();
        assert_eq!(sender.send(20), 10);
        assert_eq!(sender.report(4, 4, (0, 0, 4)), 0, "nothing is reported before it is clear");
        assert_eq!(sender.send(5), 5);
        assert_eq!(sender.report(6, 6, (0, 0, 10)), 0);
        assert_eq!(sender.send(5), 0);

        let mut sender = Sender::new();
        sender.send(10);
        assert_eq!(sender.report(9, 9, (0, 0, 9)), 0);
        assert_eq!(sender.report(1, 1, (1, 0, 9)), 9, "a queue that was full");
        assert_eq!(sender.send(5), 5);
    }

    #[test]
    fn a_path_that_begins_to_mark_everything_is_found_out() {
        let mut sender = Sender::new();
        sender.send(10);
        assert_eq!(sender.report(10, 10, (10, 0, 0)), 0);
        assert_eq!(sender.send(200), 200);
        for round in 0..MARKED_ROUNDS {
            let marks = u64::from(round) * 2;
            assert_eq!(sender.report_at(round, 1, 1, (10, 0, marks + 1)), 1);
            assert_eq!(sender.report_at(round, 1, 1, (10, 0, marks + 2)), 1, "in the same one");
        }
        let marks = u64::from(MARKED_ROUNDS) * 2;
        assert_eq!(sender.send(1), 1);
        assert_eq!(sender.report_at(MARKED_ROUNDS, 1, 1, (10, 0, marks + 1)), 0);
        assert_eq!(sender.send(1), 0);
    }

    #[test]
    fn a_queue_that_marks_for_a_while_is_heeded_for_good() {
        let mut sender = Sender::new();
        sender.send(10);
        sender.report(10, 10, (10, 0, 0));
        assert_eq!(sender.send(100), 100);
        let (mut unmarked, mut marked) = (10, 0);
        for round in 0..4 * MARKED_ROUNDS {
            let is_marked = round % MARKED_ROUNDS > 0;
            (unmarked, marked) = (unmarked + u64::from(!is_marked), marked + u64::from(is_marked));
            let heeded = sender.report_at(round, 1, 1, (unmarked, 0, marked));
            assert_eq!(heeded, is_marked.into(), "{round}");
        }
        assert_eq!(sender.send(1), 1);
    }

    #[test]
    fn a_path_is_not_to_blame_for_another() {
        let mut sender = Sender::new();
        sender.send(10);
        sender.report(10, 10, (0, 0, 0));
        sender.0 = PathEcn::new();
        assert_eq!(sender.send(10), 10);
        assert_eq!(sender.report(10, 10, (9, 0, 1)), 1);
        assert_eq!(sender.send(50), 50);
    }

    #[test]
    fn marks_of_another_path_that_come_late_say_nothing_of_this_one() {
        let mut sender = Sender::new();
        sender.send(10);
        sender.0 = PathEcn::new();
        sender.send(10);
        let late = EcnCounts { ect0: 0, ect1: 0, ce: 10 };
        let report = Arrived { packets: 0, ect: 0, mixed: true };
        assert_eq!(sender.1.on_report(&mut sender.0, (Instant::ZERO, RTT), &late, report), 0);
        sender.report(10, 10, (10, 0, 10));
        assert_eq!(sender.send(50), 50);
    }

    #[test]
    fn a_path_that_drops_the_codepoint_is_tried_twice() {
        let mut sender = Sender::new();
        assert_eq!(sender.send(20), TEST_PACKETS);
        assert_eq!(sender.report(0, 10, (0, 0, 0)), 0);
        assert_eq!(sender.send(20), 0);
        assert_eq!(sender.report(1, 20, (1, 0, 0)), 0, "only late");
        assert_eq!(sender.send(20), 20);

        let mut sender = Sender::new();
        assert_eq!(sender.send(3), 3);
        sender.0.on_probe_timeout();
        assert_eq!(sender.send(3), 0);
        sender.report(0, 3, (0, 0, 0));
        assert_eq!(sender.send(3), 3, "it may have been something else");
        sender.0.on_probe_timeout();
        sender.report(0, 3, (0, 0, 0));
        assert_eq!(sender.send(20), 0);
    }

    #[test]
    fn a_path_that_begins_to_drop_it_is_found_out() {
        let mut sender = Sender::new();
        sender.send(10);
        sender.report(10, 10, (10, 0, 0));
        sender.send(90);
        sender.0.on_probe_timeout();
        assert_eq!(sender.send(1), 1);
        sender.0.on_probe_timeout();
        assert_eq!(sender.send(1), 0);
        sender.report(0, 1, (10, 0, 0));
        assert_eq!(sender.send(20), TEST_PACKETS);
        // It was an outage.
        sender.report(2, 2, (12, 0, 0));
        assert_eq!(sender.send(20), 20);
    }
}
