use longhaul_units::Losses;

use super::*;

const INTERVAL: Duration = Duration::from_millis(50);

struct Stream {
    steps: LambdaStream,
    now: Instant,
}

impl Stream {
    fn new() -> Self {
        let mut steps = LambdaStream::new(Figures::of(&Parameters::of(&PARAMETERS)));
        steps.begin(Found { link: Rate::from_mbps(100), rate: Rate::from_mbps(100) });
        Self { steps, now: Instant::ZERO }
    }

    /// An interval in which `mbps` arrived, at that delay, and some of 1000 packets were lost.
    fn interval(&mut self, mbps: u64, delay: i64, lost: Losses) -> Rate {
        self.now += INTERVAL;
        let span = Span { acked_packets: 1_000 - lost.total(), lost, took: INTERVAL };
        let bytes = Rate::from_mbps(mbps).bytes_in(INTERVAL);
        let seen = Seen { span, bytes, arriving: INTERVAL, delay: Some(delay) };
        self.steps.judge(self.now, INTERVAL, &seen, 1_000);
        self.steps.rate
    }

    fn calm(&mut self, delay: i64) -> Rate {
        self.interval(self.steps.rate.as_bps() / 1_000_000, delay, Losses::default())
    }
}

#[test]
fn a_growing_delay_brings_the_rate_to_what_arrives_and_drains_what_has_gathered() {
    let mut stream = Stream::new();
    assert_eq!(stream.calm(300), Rate::from_mbps(102), "it rises");
    assert_eq!(stream.calm(1_300), Rate::from_bps(104_040_000), "a millisecond is borne");
    // Two and a half are not: they take 25 ms to drain at 10 % below, and an interval to be known.
    assert_eq!(stream.interval(100, 2_800, Losses::default()), Rate::from_mbps(90));
    assert_eq!(stream.calm(1_500), Rate::from_mbps(90));
    assert_eq!(stream.calm(300), Rate::from_mbps(98));
    // A rise that was not borne makes the next one wait.
    assert_eq!(stream.calm(300), Rate::from_mbps(98));
    assert_eq!(stream.calm(300), Rate::from_bps(99_960_000));
}

#[test]
fn a_delay_that_grows_slowly_is_noticed_too() {
    let mut stream = Stream::new();
    stream.steps.hold = 64;
    let mut delay = 0;
    while stream.calm(delay) >= Rate::from_mbps(100) {
        delay += 100;
    }
    assert_eq!(delay, 1_200, "of 0.2 % of the time");
}

#[test]
fn a_standing_delay_is_not_its_business() {
    let mut stream = Stream::new();
    for _ in 0..10 {
        stream.calm(40_000);
    }
    assert!(stream.steps.rate > Rate::from_mbps(120));
}

#[test]
fn losses_that_chance_explains_are_none() {
    let mut stream = Stream::new();
    let chance = Losses { random: 30, congestion: 9, ..Losses::default() };
    assert_eq!(stream.interval(96, 0, chance), Rate::from_mbps(102));
    let congestion = Losses { random: 30, congestion: 11, ..Losses::default() };
    assert_eq!(stream.interval(80, 0, congestion), Rate::from_mbps(72));
}

#[test]
fn a_loss_that_stays_at_a_lower_rate_was_not_of_the_rate() {
    let lost = |unknown| Losses { unknown, ..Losses::default() };
    let mut stream = Stream::new();
    assert_eq!(stream.interval(90, 0, lost(100)), Rate::from_mbps(81));
    assert_eq!(stream.interval(73, 0, lost(100)), Rate::from_mbps(81), "of packets sent before");
    assert_eq!(stream.interval(73, 0, lost(90)), Rate::from_mbps(100), "back at once");
    for _ in 0..20 {
        assert!(stream.interval(90, 0, lost(100)) >= Rate::from_mbps(100), "it is borne");
    }
    let before = stream.steps.rate;
    let after = stream.interval(40, 0, lost(600));
    assert_eq!(after, before.scale(45, 100), "more is not, but by half at most at once");
    // One that goes with the rate was of the rate, and one that grows as well.
    for then in [0, 10, 300] {
        let mut stream = Stream::new();
        stream.interval(90, 0, lost(100));
        stream.interval(81, 0, lost(100));
        assert!(stream.interval(81, 0, lost(then)) < Rate::from_mbps(90), "{then}");
    }
}
