use alloc::collections::VecDeque;

use super::*;
use crate::delivery::{DeliveryMeter, DeliveryReport};
use crate::feedback::Delivery;

const PACKET: u64 = 1500;
const RTT: Duration = Duration::from_millis(300);
const LINK: Rate = Rate::from_gbps(2);
const SUPER_PACKET: u64 = 44 * PACKET;
/// Time between reports, each of which tells of whole super-packets.
const REPORTS: Duration = Duration::from_millis(10);
const STEP: Duration = Duration::from_micros(10);

#[test]
fn a_pause_before_a_longer_train_is_no_time_of_the_path() {
    assert_near(hint(STEP), LINK);
}

#[test]
fn a_train_in_pieces_that_the_path_spreads_is_a_train() {
    assert_near(hint(Duration::from_micros(200)), LINK);
}

/// Pieces that arrive as they were sent tell nothing, but start-up goes on.
#[test]
fn a_train_in_pieces_that_are_too_far_apart_is_given_up() {
    for apart_ms in [1, 10, 40] {
        let hint = hint(Duration::from_millis(apart_ms));
        let sent = Rate::from_bytes_over(SUPER_PACKET, Duration::from_millis(apart_ms));
        assert!(hint >= sent.scale(1, 2), "{apart_ms} ms: {hint}");
    }
}

fn assert_near(rate: Rate, expected: Rate) {
    let near = expected.scale(9, 10)..=expected.scale(11, 10);
    assert!(near.contains(&rate), "{rate}, not {expected}");
}

/// Returns the rate that start-up estimates when super-packets leave so far `apart`, as the window allows.
fn hint(apart: Duration) -> Rate {
    let begin = Instant::ZERO + Duration::from_secs(1);
    let mut startup = Startup::new(begin, PACKET);
    let (mut model, rtt) = (Estimates::new(begin, PACKET), RttEstimator::new(RTT));
    let mut meter = DeliveryMeter::new();
    // Arrival and departure of each super-packet; reports and when they are back.
    let (mut on_the_way, mut reports) = (VecDeque::new(), VecDeque::new());
    let (mut in_flight, mut acked, mut link_free) = (0, 0, begin);
    // The first report tells of the whole of the first train.
    let (mut next_piece, mut next_report) = (begin, begin + RTT / 2 + REPORTS);
    let mut report = DeliveryReport::default();
    let mut now = begin;
    while now < begin + RTT * 20 {
        if now >= next_piece && in_flight < startup.window {
            in_flight += SUPER_PACKET;
            link_free = link_free.max(now) + LINK.time_for(SUPER_PACKET);
            on_the_way.push_back((link_free + RTT / 2, now));
            next_piece = now + apart;
            let sent = Sent { bytes: SUPER_PACKET, in_flight, ..Sent::default() };
            startup.on_sent(now, &rtt, &sent);
        }
        if now >= next_report && on_the_way.front().is_some_and(|(arrival, _)| *arrival <= now) {
            while let Some((arrival, sent)) = on_the_way.pop_front_if(|(at, _)| *at <= now) {
                report.bytes += SUPER_PACKET;
                (report.received, report.sent) = (arrival.as_wire_micros(), sent.as_wire_micros());
            }
            next_report = now + REPORTS;
            reports.push_back((now + RTT / 2, report));
        }
        while let Some((_, report)) = reports.pop_front_if(|(at, _)| *at <= now) {
            let acked_bytes = report.bytes - acked;
            acked = report.bytes;
            in_flight -= acked_bytes;
            let feedback = Feedback {
                acked_bytes,
                acked_packets: acked_bytes / PACKET,
                delivery: meter.on_feedback(report),
                ..Feedback::default()
            };
            startup.on_feedback(now, &rtt, &mut model, &feedback, None);
            if let Some(hint) = startup.hint {
                return hint;
            }
        }
        now += STEP;
    }
    panic!("no train was ever measured, or given up");
}

/// Packets behind a train are sent one by one.
#[test]
fn some_packets_follow_the_train() {
    let begin = Instant::ZERO + Duration::from_secs(1);
    let (mut startup, rtt) = (Startup::new(begin, PACKET), RttEstimator::new(RTT));
    assert_eq!(startup.next_timeout(), None);
    let bytes = 64 * PACKET;
    startup.on_sent(begin, &rtt, &Sent { bytes, in_flight: bytes, ..Sent::default() });
    let due = startup.next_timeout().expect("the train has left");
    assert_eq!(due, begin + RTT * 3 / 16);
    startup.on_timeout(due, &rtt);
    assert_eq!(startup.rate, Rate::from_bytes_over(FOLLOWERS * PACKET, RTT));
    assert_eq!((startup.burst(), startup.next_timeout()), (None, None), "paced");
}

/// A sender that was held up shows the path all the same where it spread what left at once.
#[test]
fn what_the_path_spreads_is_its_rate_whatever_held_the_sender_up() {
    let begin = Instant::ZERO + Duration::from_secs(1);
    let (mut startup, rtt) = (Startup::new(begin, PACKET), RttEstimator::new(RTT));
    let mut model = Estimates::new(begin, PACKET);
    let bytes = 64 * PACKET;
    startup.on_sent(begin, &rtt, &Sent { bytes, in_flight: bytes, ..Sent::default() });
    let rate = Rate::from_mbps(200);
    let interval = rate.time_for(16 * PACKET);
    for (sent_over, hint) in
        [(interval, None), (Duration::ZERO, None), (Duration::ZERO, Some(rate))]
    {
        let sample = Delivery { rate, interval, sent_over, application_limited: true };
        let feedback = Feedback { delivery: Some(sample), ..Feedback::default() };
        startup.on_feedback(begin + RTT, &rtt, &mut model, &feedback, None);
        assert_eq!((startup.hint, startup.train.unspread), (hint, Rate::ZERO), "{sent_over:?}");
    }
}

/// The receiving host had no room for it.
#[test]
fn a_train_that_a_host_dropped_is_sent_again() {
    let begin = Instant::ZERO + Duration::from_secs(1);
    let (mut startup, rtt) = (Startup::new(begin, PACKET), RttEstimator::new(RTT));
    let bytes = 64 * PACKET;
    startup.on_sent(begin, &rtt, &Sent { bytes, in_flight: bytes, ..Sent::default() });
    startup.on_timeout(begin + RTT * 3 / 16, &rtt);
    let lost = longhaul_units::Losses { socket: 60, ..Default::default() };
    let feedback =
        Feedback { acked_packets: 4, acked_bytes: 4 * PACKET, lost, ..Feedback::default() };
    let mut model = Estimates::new(begin, PACKET);
    startup.on_feedback(begin + RTT * 5 / 4, &rtt, &mut model, &feedback, None);
    assert_eq!((startup.rate, startup.burst()), (TRAIN_RATE, Some(bytes)));
}

/// Where a train leaves as one super-packet, what a short queue takes of it may arrive as one.
#[test]
fn a_cut_train_that_shows_no_rate_is_followed_once_by_a_shorter_one_in_pieces() {
    let begin = Instant::ZERO + Duration::from_secs(1);
    let (mut startup, rtt) = (Startup::new(begin, PACKET), RttEstimator::new(RTT));
    let mut model = Estimates::new(begin, PACKET);
    for (turn, (length, survive)) in [(FIRST_TRAIN, 30), (SHORT_TRAIN, 6)].into_iter().enumerate() {
        let now = begin + RTT * 2 * (turn as u32);
        let bytes = length * PACKET;
        startup.on_sent(now, &rtt, &Sent { bytes, in_flight: bytes, ..Sent::default() });
        startup.on_timeout(now + RTT * 3 / 16, &rtt);
        let lost = longhaul_units::Losses { random: length - survive, ..Default::default() };
        let (acked_packets, acked_bytes) = (survive, survive * PACKET);
        let feedback = Feedback { acked_packets, acked_bytes, lost, ..Feedback::default() };
        startup.on_feedback(now + RTT * 5 / 4, &rtt, &mut model, &feedback, None);
        if turn == 0 {
            assert_eq!((startup.rate, startup.burst()), (TRAIN_RATE, Some(PIECE * PACKET)));
            assert!(startup.hint.is_none() && !startup.found_full(), "its losses count no more");
        }
    }
    assert!(startup.hint.is_some(), "slow start");
}

/// A receiver that takes a train as one super-packet is sent a longer one, which a short queue cannot hold.
#[test]
fn only_the_first_train_finds_a_queue_that_others_have_filled() {
    let begin = Instant::ZERO + Duration::from_secs(1);
    let mut model = Estimates::new(begin, PACKET);
    let mut rtt = RttEstimator::new(RTT);
    rtt.update(begin, RTT);
    model.on_feedback(begin, &rtt, &Feedback { rtt: Some(RTT), ..Feedback::default() });
    for (length, others) in [(FIRST_TRAIN, true), (FIRST_TRAIN * 4, false)] {
        let mut startup = Startup::new(begin, PACKET);
        startup.train = Train { battered: length * 3 / 4, ..Train::new(length, length) };
        assert_eq!(startup.met_others(&model), others, "{length} packets");
    }
}
