//! Counts of FEEDBACK, and the marks in it.

use longhaul_pathsim::EcnMarking;

use super::*;

/// Treatment of the ECN codepoint of the client's packets by the path.
type Meddling = fn(u64, Ecn) -> Option<Ecn>;

/// A copy of 20 MB over a path that marks from a tenth of its queue on, and meddles.
fn copy(meddling: Meddling) -> Pair {
    let mut options = Options::new(20, Rate::from_mbps(200), Bytes::new(500_000));
    let marking = EcnMarking::step(Bytes::new(50_000));
    options.up = options.up.ecn(marking).unwrap();
    let mut pair = Pair::new(&options);
    pair.meddling = meddling;
    pair.offer(1, 20_000_000);
    pair.run_until(60, |pair| pair.client.delivered() == 20_000_000);
    assert_eq!(pair.client.closed(), None);
    pair
}

/// Packets that left the client after it was through, ECN-capable or not.
fn later(pair: &mut Pair) -> bool {
    let before = pair.ect_sent;
    pair.offer(2, 1_000_000);
    pair.run_until(60, |pair| pair.client.delivered() == 21_000_000);
    pair.ect_sent > before
}

#[test]
fn a_queue_that_marks_is_heeded_before_it_drops() {
    let mut pair = copy(|_, ecn| Some(ecn));
    let stats = pair.client.lane.stats();
    assert!(stats.marked > 0 && stats.lost == 0, "{stats:?}");
    assert!(later(&mut pair));
}

#[test]
fn a_path_that_clears_the_codepoint_is_sent_none() {
    // From the start, or once it was believed.
    let clears: [Meddling; 2] = [
        |_, _| Some(Ecn::NotEct),
        |number, ecn| Some(if number < 500 { ecn } else { Ecn::NotEct }),
    ];
    for meddling in clears {
        let mut pair = copy(meddling);
        assert!(!later(&mut pair));
    }
}

#[test]
fn a_path_that_marks_everything_or_remarks_is_not_believed() {
    for meddling in [(|_, _| Some(Ecn::Ce)) as Meddling, |_, _| Some(Ecn::Ect1)] {
        let mut pair = copy(meddling);
        assert!(!later(&mut pair));
    }
}

#[test]
fn a_path_that_marks_all_that_is_ecn_capable_is_not_believed() {
    // From the start, or once it was believed.
    let marks: [Meddling; 2] = [
        |_, ecn| Some(if ecn == Ecn::Ect0 { Ecn::Ce } else { ecn }),
        |number, ecn| Some(if ecn == Ecn::Ect0 && number >= 2_000 { Ecn::Ce } else { ecn }),
    ];
    for meddling in marks {
        let mut pair = copy(meddling);
        assert!(!later(&mut pair));
    }
}

#[test]
fn a_path_that_drops_what_is_ecn_capable_is_used_all_the_same() {
    let drops: [Meddling; 2] = [
        |_, ecn| (ecn == Ecn::NotEct).then_some(ecn),
        |number, ecn| (ecn == Ecn::NotEct || number < 2000).then_some(ecn),
    ];
    for meddling in drops {
        let mut pair = copy(meddling);
        assert!(!later(&mut pair));
        assert_eq!(pair.client.lane.stats().datagram, 1472, "nor are probes of its MTU lost");
    }
}

#[test]
fn who_heeds_marks_asks_for_them_and_nobody_else() {
    for profile in Profile::all() {
        let mut pair = Pair::new(&gigabit(20).fixed(profile.name, Rate::from_mbps(100)));
        pair.offer(1, 1_000_000);
        pair.client.lane.flush();
        pair.run_until(10, |pair| pair.client.delivered() == 1_000_000);
        assert_eq!(pair.ect_sent > 0, profile.heeds_marks, "{}", profile.name);
    }
}

#[test]
fn feedback_that_counts_more_than_was_sent_closes() {
    let lies: [fn(&mut longhaul_wire::Feedback<'_>); 4] = [
        |feedback| feedback.packets += 1,
        |feedback| feedback.bytes = Bytes::new(feedback.bytes.get() * 2),
        |feedback| feedback.ecn.ce = feedback.packets + 1,
        |feedback| feedback.ecn = EcnCounts { ect0: feedback.packets, ect1: 0, ce: 1 },
    ];
    let mut closed = 0;
    for lie in core::iter::once(None).chain(lies.map(Some)) {
        let mut pair = Pair::new(&gigabit(20));
        pair.offer(1, 1_000_000);
        pair.run_until(10, |pair| pair.client.delivered() == 1_000_000);
        let LaneStats { packets_sent, bytes_sent, .. } = pair.client.lane.stats();
        let mut feedback = longhaul_wire::Feedback {
            packets: packets_sent,
            bytes: Bytes::new(bytes_sent),
            ecn: EcnCounts::ZERO,
            ..longhaul_wire::Feedback::credit_only(Bytes::ZERO)
        };
        if let Some(lie) = lie {
            lie(&mut feedback);
        }
        pair.forge(feedback);
        let expected = lie.map(|_| CloseCode::PROTOCOL_VIOLATION);
        assert_eq!(pair.client.closed(), expected);
        closed += u32::from(expected.is_some());
    }
    assert_eq!(closed, 4);
}
