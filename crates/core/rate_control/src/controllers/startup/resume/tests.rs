use super::*;
use crate::controller::Sent;
use crate::feedback::Delivery;

const PACKET: u64 = 1_500;
const RTT: Duration = Duration::from_millis(100);
const BEGIN: Instant = Instant::from_nanos(1_000_000_000);

fn memory(mbps: u64) -> PathMemory {
    let rate = Rate::from_mbps(mbps);
    let band = (rate, rate);
    let age = Duration::ZERO;
    PathMemory { band, round_trip: RTT, chance_ppm: 0, packet: PACKET, age, best_profile: None }
}

fn measured(rtt: Duration) -> RttEstimator {
    let mut estimator = RttEstimator::new(RTT);
    estimator.update(BEGIN, rtt);
    estimator
}

/// Start-up whose first train has left.
fn behind_train(memory: &PathMemory, rtt: &RttEstimator) -> Startup {
    let mut startup = Startup::new(BEGIN, PACKET);
    startup.recall(memory);
    let bytes = 64 * PACKET;
    startup.on_sent(BEGIN, rtt, &Sent { bytes, in_flight: bytes, ..Sent::default() });
    if startup.next_timeout() == Some(BEGIN) {
        startup.on_timeout(BEGIN, rtt);
    }
    startup
}

fn usage_behind_train(memory: &PathMemory, rtt: &RttEstimator) -> Option<MemoryUse> {
    behind_train(memory, rtt).memory_use()
}

#[test]
fn half_of_the_known_rate_follows_the_train_for_a_round_trip() {
    let startup = behind_train(&memory(1_000), &measured(RTT));
    assert_eq!(startup.memory_use(), Some(MemoryUse::Unvalidated));
    assert_eq!(startup.rate, Rate::from_mbps(500));
    assert_eq!(startup.burst(), None, "paced");
    let flight = startup.rate.bytes_in(RTT);
    assert!(startup.window <= 64 * PACKET + flight * 9 / 8, "{} bytes", startup.window);
    let aged = PathMemory { age: Duration::from_secs(8 * 24 * 3_600), ..memory(1_000) };
    assert_eq!(behind_train(&aged, &measured(RTT)).rate, Rate::from_mbps(250));
}

#[test]
fn another_round_trip_is_another_path() {
    for ms in [1, 50, 1_001] {
        let rtt = measured(Duration::from_millis(ms));
        let used = usage_behind_train(&memory(1_000), &rtt);
        assert_eq!(used, Some(MemoryUse::OtherRoundTrip), "{ms} ms");
    }
    // What the control connection took is no sample of this path.
    let guessed = RttEstimator::new(RTT);
    assert_eq!(usage_behind_train(&memory(1_000), &guessed), Some(MemoryUse::OtherRoundTrip));
    assert_eq!(behind_train(&memory(1_000), &guessed).rate, Startup::new(BEGIN, PACKET).rate);
}

#[test]
fn a_path_that_the_train_itself_shows_needs_no_memory() {
    assert_eq!(usage_behind_train(&memory(30), &measured(RTT)), None);
    assert_eq!(usage_behind_train(&memory(31), &measured(RTT)), Some(MemoryUse::Unvalidated));
}

#[test]
fn any_sign_of_congestion_is_a_reason_to_retreat() {
    let at = |now: Instant, feedback: Feedback, chance_ppm| {
        let (rtt, known) = (measured(RTT), PathMemory { chance_ppm, ..memory(1_000) });
        let mut startup = behind_train(&known, &rtt);
        let mut model = Estimates::new(BEGIN, PACKET);
        let feedback = Feedback { rtt: Some(RTT), acked_packets: 60, ..feedback };
        assert_eq!(startup.resume(now, &rtt, &mut model, &feedback, None), Some(false));
        (startup.memory_use(), startup.rate)
    };
    let of_train = BEGIN + RTT + Duration::from_millis(1);
    let after = |feedback, chance_ppm| at(of_train + RTT * 9 / 16, feedback, chance_ppm);
    let lost = |packets| {
        let lost = longhaul_units::Losses { unknown: packets, ..Default::default() };
        Feedback { lost, ..Feedback::default() }
    };
    let marked = Feedback { marked_packets: 1, ..Feedback::default() };
    let fine = (Some(MemoryUse::Unvalidated), Rate::from_mbps(500));
    assert_eq!(after(Feedback::default(), 0), fine);
    assert_eq!(after(lost(3), 10_000), fine, "chance, as is known of the path");
    assert_eq!(at(of_train, lost(64), 0), fine, "a queue that the train alone overflows");
    let (usage, _) = at(of_train, lost(65), 0);
    assert_eq!(usage, Some(MemoryUse::Retreated), "more than the train had");
    for (why, feedback, chance_ppm) in
        [("a loss", lost(1), 0), ("a mark", marked, 0), ("many losses", lost(20), 10_000)]
    {
        let (usage, rate) = after(feedback, chance_ppm);
        assert_eq!(usage, Some(MemoryUse::Retreated), "{why}");
        assert!(rate <= Rate::from_mbps(250), "{why}: {rate}");
    }
}

/// The end of the train left late, so that less than half of it shows the rate.
#[test]
fn a_path_that_carries_twice_what_is_known_is_begun_as_one_of_which_nothing_is() {
    let rtt = measured(RTT);
    let (ignored, goes_on) = ((MemoryUse::Ignored, None), (MemoryUse::Unvalidated, Some(false)));
    for (known, (usage, expected), rate) in
        [(60, ignored, 500), (500, ignored, 500), (501, goes_on, 250)]
    {
        let mut startup = behind_train(&memory(known), &rtt);
        let mut model = Estimates::new(BEGIN, PACKET);
        let interval = Duration::from_micros(168);
        let sample = Delivery {
            rate: Rate::from_gbps(1),
            interval,
            sent_over: Duration::ZERO,
            application_limited: false,
        };
        let mut feedback =
            Feedback { rtt: Some(RTT), delivery: Some(sample), ..Feedback::default() };
        let now = BEGIN + RTT + Duration::from_millis(1);
        for _ in 0..2 {
            assert_eq!(startup.resume(now, &rtt, &mut model, &feedback, None), Some(false));
        }
        assert_eq!(startup.memory_use(), Some(MemoryUse::Unvalidated), "more may come of it");
        feedback.delivery = None;
        let now = now + Duration::from_millis(4);
        let over = startup.resume(now, &rtt, &mut model, &feedback, None);
        assert_eq!((startup.memory_use(), over), (Some(usage), expected), "{known}");
        assert_eq!(startup.rate.as_bps() / 1_000_000, rate, "{known}");
    }
}
