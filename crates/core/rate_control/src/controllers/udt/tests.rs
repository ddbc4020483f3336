use super::*;
use crate::controller::Known;
use crate::estimates::Estimates;
use crate::feedback::Delivery;
use crate::parameters::Parameters;
use crate::rtt::RttEstimator;
use longhaul_units::Losses;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

const RTT: Duration = Duration::from_millis(50);

struct Bench {
    now: Instant,
    udt: Udt,
    estimates: Estimates,
    rng: Xoshiro256PlusPlus,
    /// The batch that leaves before each report.
    sending: Sent,
}

impl Bench {
    fn new(known: Option<Rate>) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let known = known.map(|rate| Known { rate, round_trip: RTT });
        let parameters = Parameters::of(&[]);
        let start = Start { now, packet: 1_500, rate: None, known, parameters };
        let rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (udt, estimates) = (Udt::new(&start), Estimates::new(now, 1_500));
        let sending = Sent { bytes: 1_500, ..Sent::default() };
        Self { now, udt, estimates, rng, sending }
    }

    fn tell(&mut self, after: Duration, feedback: Feedback) {
        self.now += after;
        let rtt = RttEstimator::new(RTT);
        let estimates = &mut self.estimates;
        let mut cx = Context { now: self.now, rtt: &rtt, estimates, rng: &mut self.rng };
        self.udt.on_sent(&mut cx, &self.sending);
        self.udt.on_feedback(&mut cx, &feedback);
    }

    fn rate(&self) -> u64 {
        self.udt.pacing().rate.as_bps()
    }
}

fn acked(acked_packets: u64) -> Feedback {
    Feedback { acked_packets, ..Feedback::default() }
}

fn lost() -> Feedback {
    Feedback { lost: Losses { unknown: 1, ..Losses::default() }, ..acked(0) }
}

fn spread(rate: Rate) -> Feedback {
    let (interval, sent_over) = (Duration::from_millis(2), Duration::from_millis(1));
    let delivery = Delivery { rate, interval, sent_over, application_limited: false };
    Feedback { delivery: Some(delivery), ..acked(0) }
}

#[test]
fn losses_of_an_end_that_sends_no_data_or_all_that_it_has_do_not_slow_it() {
    let all = Sent { application_limited: true, ..Sent::default() };
    for sending in [Sent { control: true, ..Sent::default() }, all] {
        for known in [None, Some(Rate::from_mbps(90))] {
            let mut bench = Bench { sending, ..Bench::new(known) };
            let before = bench.rate();
            for _ in 0..300 {
                bench.tell(RTT * 2, acked(1));
                bench.tell(RTT * 2, lost());
            }
            assert!(bench.rate() >= before, "{} b/s", bench.rate());
        }
    }
}

#[test]
fn slow_start_is_a_window_of_sixteen_that_grows_by_what_arrives() {
    let mut bench = Bench::new(None);
    assert_eq!(bench.udt.pacing().window, Some(16 * 1_500));
    bench.tell(SYN, acked(16));
    assert_eq!(bench.udt.pacing().window, Some(32 * 1_500));
    assert_eq!(bench.udt.metrics().bound, Bottleneck::StartUp);
    bench.tell(SYN, lost());
    // 32 packets in a round trip and a SYN, and the cut of an eighth of the gap.
    assert_eq!(bench.rate(), 6_400_000 * 8 / 9);
    assert_eq!(bench.udt.metrics().bound, Bottleneck::Network);
}

#[test]
fn it_rises_by_powers_of_ten_of_what_is_left() {
    let mut bench = Bench::new(Some(Rate::from_mbps(50)));
    bench.tell(SYN, acked(40));
    assert_eq!(bench.rate(), 50_012_000, "of no link known: a hundredth of a packet each SYN");
    for _ in 0..16 {
        bench.tell(Duration::ZERO, spread(Rate::from_gbps(1)));
    }
    bench.tell(SYN, acked(40));
    // A ninth of a gigabit, before the first cut: 10^9 x 1.2e-3.
    assert_eq!(bench.rate(), 51_212_000);
    bench.tell(SYN * 3, acked(40));
    assert_eq!(bench.rate(), 54_812_000, "once for each SYN");
    bench.tell(SYN * 1_000, acked(40));
    assert_eq!(bench.rate(), 59_612_000, "silence is not made up for");
}

#[test]
fn an_epoch_cuts_once_and_at_random_up_to_five_times() {
    let mut bench = Bench::new(Some(Rate::from_mbps(90)));
    for epoch in 0..50 {
        let before = bench.udt.rate.as_bps();
        bench.tell(RTT * 3, lost());
        assert_eq!(bench.rate(), before * 8 / 9, "{epoch}");
        for _ in 0..40 {
            bench.tell(Duration::from_millis(1), lost());
        }
        let least = (0..5).fold(before, |rate, _| rate * 8 / 9);
        assert!(bench.rate() >= least, "{epoch}: by more than half");
        bench.tell(SYN, acked(100));
        assert!(bench.rate() <= before, "{epoch}: not while packets are lost");
        bench.udt.rate = Rate::from_mbps(90);
    }
    let average = bench.udt.epoch.average;
    assert!((2..=5).contains(&average), "{average}: reports of an epoch that were looked at");
}
