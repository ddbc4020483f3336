//! Reports of a receiver that comes to its socket late.

use longhaul_rate_control::{Delivery, DeliveryMeter, DeliveryReport};
use longhaul_wire::Frames;

use super::*;

#[test]
fn a_train_that_is_read_late_is_reported_in_the_steps_in_which_it_came() {
    let begin = Instant::from_nanos(1_000_000_000);
    let mut side = side(begin, Role::Server, &gigabit(100));
    let now = begin + Duration::from_millis(5);
    for number in 0..64 {
        let at = begin + Duration::from_micros(12) * (number + 1);
        let numbers = u64::from(number)..u64::from(number) + 1;
        let (send_time, wire_bytes, ecn) = (0, 1_500, Ecn::NotEct);
        let arrival = Arrival { numbers, at, send_time, wire_bytes, ecn, overflowed: false };
        assert!(side.lane.handle_objects(now, address(1000), &arrival));
    }
    let mut reports = vec![];
    while side.lane.poll_transmit(now, &mut side.path, 44, &mut side.plan).is_some() {
        let frames = Frames::new(&side.plan.frames).map(Result::unwrap);
        reports.extend(frames.filter_map(|frame| match frame {
            Frame::Feedback(feedback) => {
                assert_eq!(feedback.ranges.to(), feedback.largest.get() + 1, "and no more");
                assert_eq!(feedback.packets, feedback.ranges.to());
                let (bytes, received) = (feedback.bytes.get(), feedback.largest_received);
                Some(DeliveryReport { bytes, received, ..DeliveryReport::default() })
            }
            _ => None,
        }));
    }
    assert_eq!(reports.iter().map(|report| report.bytes).max(), Some(96_000), "{reports:?}");
    assert!(reports.is_sorted_by_key(|report| report.bytes), "{reports:?}");
    let mut meter = DeliveryMeter::default();
    let samples: Vec<Delivery> =
        reports.into_iter().filter_map(|it| meter.on_feedback(it)).collect();
    let delivered: u64 = samples.iter().map(|sample| sample.rate.bytes_in(sample.interval)).sum();
    assert!(delivered >= 70_000, "{delivered} of 96000 bytes: {samples:?}");
    assert!(samples.iter().all(|sample| sample.rate == Rate::from_gbps(1)), "{samples:?}");
}

#[test]
fn packets_that_are_read_in_time_are_reported_once() {
    let mut pair = Pair::new(&gigabit(20).fixed("fixed", Rate::from_mbps(100)));
    pair.offer(1, 400_000);
    pair.run_for(Duration::from_millis(100));
    let (sent, received) =
        (pair.server.lane.stats().feedback_sent, pair.client.lane.stats().feedback_received);
    assert!(sent > 5 && received == sent, "{sent} sent, {received} received");
}
