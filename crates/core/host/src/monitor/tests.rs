use alloc::vec;
use alloc::vec::Vec;

use longhaul_units::{Bottleneck, Duration, Instant, Rate};
use proptest::prelude::*;

use super::*;

const READER: ThreadId = ThreadId(0);
const BUFFER: u64 = 212_992;

fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(us)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn monitor() -> Monitor {
    Monitor::new(at(0), MonitorConfig::default())
}

fn socket(queued: u64, limit: u64) -> Socket {
    Socket { queued, limit, drops: 0 }
}

/// A reader that has its processor for 4 ms and is away for `away_ms`, so often.
#[derive(Clone, Copy)]
struct Rounds {
    count: u64,
    away_ms: u64,
    buffer: u64,
    /// Of the 16 batches of a round so many leave something in the socket.
    full: u64,
    /// Packets that its socket drops in each round.
    drops: u64,
}

const ROUNDS: Rounds = Rounds { count: 200, away_ms: 8, buffer: BUFFER, full: 8, drops: 0 };

/// Announcements made in them.
fn rounds(monitor: &mut Monitor, rounds: Rounds) -> Vec<Announcement> {
    let Rounds { count, away_ms, buffer, full, drops } = rounds;
    let period = 4_000 + 1_000 * away_ms;
    let mut announcements = Vec::new();
    for round in 0..count {
        for tick in 0..16 {
            let now = at(round * period + 1_000 * away_ms + 250 * (tick + 1));
            let age = if tick == 0 { us(1_000 * away_ms) } else { us(100) };
            let cpu = Some(us(240));
            let batch =
                Batch { bytes: 60_000, packets: 42, age: Some(age), cpu, full: tick < full };
            monitor.handle_batch(now, READER, batch);
        }
        let now = at((round + 1) * period);
        let turn = Turn { run: us(4_000), wait: us(1_000 * away_ms), turns: 1 };
        monitor.handle_turn(now, READER, turn);
        monitor.handle_socket(now, READER, Socket { drops, ..socket(0, buffer) });
        announcements.extend(core::iter::from_fn(|| monitor.poll_announcement(now)));
    }
    announcements
}

#[test]
fn a_small_buffer_limits_the_rate_to_what_bridges_the_stalls() {
    let mut monitor = monitor();
    let announcements = rounds(&mut monitor, Rounds { drops: 1, ..ROUNDS });
    let Some(&Announcement::Limit { rate, cause, .. }) = announcements.last() else {
        panic!("{announcements:?}")
    };
    assert_eq!(cause, Bottleneck::ReceiverBuffer);
    // Half of the reads leave something, so an eighth of the buffer counts as not given back. The rest,
    // less what the socket charges, in the 8 ms that the reader is away; and less 100 us of what arrives,
    // which always wait.
    let expected = Rate::from_bytes_over(BUFFER / 8 * 7 * 1_024 / 1_045, us(8_000));
    let ratio = rate.as_bps() as f64 / expected.as_bps() as f64;
    assert!((0.93..0.97).contains(&ratio), "{rate} instead of {expected}");
    let summary = monitor.summary(at(2_400_000));
    assert_eq!(summary.stalls.count, 200);
    assert_eq!(summary.stalls.p999, us(8_000));
    let preempted = summary.causes.sums().next().unwrap();
    assert!(preempted.1 >= 198, "{preempted:?}: each is explained by the wait");
    assert!(
        announcements.len() < 60,
        "{}: repeated before it expires, not always",
        announcements.len()
    );
}

#[test]
fn behind_a_large_buffer_the_share_of_the_processor_limits_it() {
    let mut monitor = monitor();
    let announcements = rounds(&mut monitor, Rounds { buffer: 64 << 20, full: 16, ..ROUNDS });
    let Some(&Announcement::Limit { rate, cause, .. }) = announcements.last() else {
        panic!("{announcements:?}")
    };
    assert_eq!(cause, Bottleneck::ReceiverCpu);
    // 60 kB in 240 us, a third of the time, nine tenths of that; shares vary a little by how turns
    // fall into 50 ms.
    let third = 0.9 * 2e9 / 3.0;
    assert!((0.85..1.0).contains(&(rate.as_bps() as f64 / third)), "{rate}");
    let service = monitor.summary(at(2_400_000)).service.unwrap();
    assert!(
        service.lower <= service.value && (service.value - 2e9 / 3.0).abs() < 4e7,
        "{service:?}"
    );
}

#[test]
fn what_comes_and_is_not_dropped_is_taken_whatever_the_stalls_say() {
    let rate = |drops| {
        let announcements = rounds(&mut monitor(), Rounds { drops, ..ROUNDS });
        match announcements.last() {
            Some(Announcement::Limit { rate, cause: Bottleneck::ReceiverBuffer, .. }) => *rate,
            other => panic!("{other:?}"),
        }
    };
    // 960 kB in 12 ms come, and the buffer would bridge 8 ms at 183 Mb/s only.
    assert!(rate(0) > Rate::from_mbps(640), "{}", rate(0));
    assert!(rate(1) < Rate::from_mbps(190), "{}: one dropped packet in 17 is too much", rate(1));
}

#[test]
fn a_reader_that_empties_its_socket_in_its_turns_has_no_limit_by_its_share() {
    let announcements = rounds(&mut monitor(), Rounds { buffer: 64 << 20, ..ROUNDS });
    let by_cpu = |announcement: &Announcement| {
        matches!(announcement, Announcement::Limit { cause: Bottleneck::ReceiverCpu, .. })
    };
    assert!(!announcements.iter().any(by_cpu), "{announcements:?}");
}

#[test]
fn a_reader_that_falls_behind_asks_for_silence_before_its_buffer_is_full() {
    let silent = |queued: [u64; 3], full: bool| {
        let mut monitor = monitor();
        for (ms, queued) in (1_000..).zip(queued) {
            let batch = Batch { bytes: 125_000, packets: 90, full, ..Batch::default() };
            monitor.handle_batch(at(ms * 1_000), READER, batch);
            monitor.handle_socket(at(ms * 1_000), READER, socket(queued, 4 << 20));
        }
        matches!(monitor.poll_announcement(at(1_002_000)), Some(Announcement::Suspend { .. }))
    };
    assert!(silent([1 << 20, 2 << 20, 3 << 20], true), "a mebibyte more in each millisecond");
    assert!(!silent([1 << 20, 2 << 20, 3 << 20], false), "it was emptied meanwhile");
    assert!(!silent([3 << 20, 3 << 20, 3 << 20], true), "no more comes than is read");
}

#[test]
fn a_limit_that_holds_no_longer_is_lifted_at_once() {
    let mut monitor = monitor();
    let mut announcements = Vec::new();
    for ms in 0..500 {
        let batch = Batch { bytes: 50_000, packets: 35, ..Batch::default() };
        monitor.handle_batch(at(ms * 1_000), READER, batch);
        let backlog = if ms < 300 { 60 << 20 } else { 0 };
        monitor.handle_disk(at(ms * 1_000), Disk { backlog, memory: 80 << 20, written: 50_000 });
        announcements.extend(
            monitor.poll_announcement(at(ms * 1_000)).map(|announcement| (ms, announcement)),
        );
    }
    let Some(&(ms, Announcement::Limit { lasts, .. })) = announcements.last() else {
        panic!("{announcements:?}")
    };
    assert!(lasts.is_zero() && (300..320).contains(&ms), "{announcements:?}");
}

#[test]
fn a_writer_that_is_behind_for_a_turn_of_others_is_no_slow_disk() {
    let mut monitor = monitor();
    for ms in 0..1_000 {
        let batch = Batch { bytes: 50_000, packets: 35, ..Batch::default() };
        monitor.handle_batch(at(ms * 1_000), READER, batch);
        let backlog = (ms % 20) * (4 << 20);
        monitor.handle_disk(at(ms * 1_000), Disk { backlog, memory: 80 << 20, written: 50_000 });
        assert_eq!(monitor.poll_announcement(at(ms * 1_000)), None);
    }
}

#[test]
fn who_has_a_processor_alone_is_not_limited() {
    let mut monitor = monitor();
    let announcements = rounds(&mut monitor, Rounds { away_ms: 0, buffer: 64 << 20, ..ROUNDS });
    assert_eq!(announcements, vec![]);
}

#[test]
fn a_queue_that_stands_lowers_the_rate_until_it_is_gone() {
    let mut monitor = monitor();
    let batch = |age| Batch { bytes: 125_000, packets: 90, age: Some(us(age)), ..Batch::default() };
    let mut announcements = Vec::new();
    for ms in 1..=3_000 {
        let age = if ms < 500 { 20_000 } else { 300 };
        monitor.handle_batch(at(ms * 1_000), READER, batch(age));
        announcements.extend(core::iter::from_fn(|| monitor.poll_announcement(at(ms * 1_000))));
    }
    let rates: Vec<Rate> = announcements
        .iter()
        .map(|announcement| match announcement {
            Announcement::Limit { rate, cause: Bottleneck::ReceiverCpu, .. } => *rate,
            other => panic!("{other:?}"),
        })
        .collect();
    // 1 Gb/s arrive; 20 ms are 18 beyond the target.
    assert!(rates.iter().all(|rate| *rate >= Rate::from_mbps(490)), "{rates:?}");
    assert!(rates.iter().any(|rate| *rate <= Rate::from_mbps(510)), "{rates:?}");
    // What was read while it stood is what goes on behind it, at once.
    let creeping = Rate::from_mbps(550)..Rate::from_mbps(930);
    assert!(!rates.iter().any(|rate| creeping.contains(rate)), "{rates:?}");
    assert!(rates.last().unwrap() > &Rate::from_mbps(1_700), "{rates:?}");
    assert_eq!(monitor.limit.wanted, None, "and then there is none");
}

#[test]
fn a_disk_that_lags_limits_the_rate_to_what_it_writes() {
    let mut monitor = monitor();
    let mut last = None;
    for ms in 0..1_000 {
        let batch = Batch { bytes: 50_000, packets: 35, ..Batch::default() };
        monitor.handle_batch(at(ms * 1_000), READER, batch);
        let disk = Disk { backlog: 60 << 20, memory: 80 << 20, written: 50_000 };
        monitor.handle_disk(at(ms * 1_000), disk);
        last = monitor.poll_announcement(at(ms * 1_000)).or(last);
    }
    let Some(Announcement::Limit { rate, cause: Bottleneck::ReceiverDisk, .. }) = last else {
        panic!("{last:?}")
    };
    // 400 Mb/s are written; three quarters of the memory are full, a quarter too much.
    assert!((290..=310).contains(&(rate.as_bps() / 1_000_000)), "{rate}");
}

/// Rates of a source that obeys limits 50 ms late, and stops where the memory is full, as credit has it:
/// Mb/s in each tenth of a second, beside a disk that takes 2 Gb/s, for three seconds 400 Mb/s, and 2 Gb/s
/// again; and the least that was free of the memory.
fn behind_a_disk(memory: u64) -> (Vec<u64>, u64) {
    let (mut monitor, mut rates) = (monitor(), vec![0; 60]);
    let mut announcements: Vec<(u64, Rate)> = Vec::new();
    let (mut backlog, mut least_free) = (0, memory);
    for ms in 0..6_000u64 {
        let limit = announcements.iter().rev().find(|(at, _)| at + 50 <= ms && ms < at + 550);
        let rate = limit.map_or(Rate::from_gbps(1), |(_, rate)| Rate::from_gbps(1).min(*rate));
        let arrives = rate.bytes_in(us(1_000)).min(memory - backlog);
        let takes = if (1_000..4_000).contains(&ms) { 50_000 } else { 250_000 };
        let written = takes.min(backlog + arrives);
        backlog = backlog + arrives - written;
        least_free = least_free.min(memory - backlog);
        rates[(ms / 100) as usize] += arrives * 8 / 100_000;
        let now = at(ms * 1_000);
        let batch = Batch { bytes: arrives, packets: arrives / 1_400, ..Batch::default() };
        monitor.handle_batch(now, READER, batch);
        monitor.handle_disk(now, Disk { backlog, memory, written });
        while let Some(Announcement::Limit { rate, cause, .. }) = monitor.poll_announcement(now) {
            assert_eq!(cause, Bottleneck::ReceiverDisk);
            announcements.push((ms, rate));
        }
    }
    (rates, least_free)
}

#[test]
fn within_a_second_the_rate_is_that_of_a_slower_disk_and_the_memory_never_full() {
    let (rates, least_free) = behind_a_disk(256 << 20);
    assert!(rates[2..10].iter().all(|rate| *rate == 1_000), "{rates:?}: a fast disk limits nobody");
    let slow = &rates[20..40];
    assert!(slow.iter().all(|rate| (320..=500).contains(rate)), "{slow:?}");
    assert!(least_free > 64 << 20, "{least_free}");
    assert!(rates[50..].iter().all(|rate| *rate == 1_000), "{rates:?}: nor one that is fast again");
}

#[test]
fn a_wait_that_two_signals_tell_explains_one_stall() {
    let mut monitor = monitor();
    let stall = |monitor: &mut Monitor, ms: u64| {
        let age = Some(us(20_000));
        let batch = Batch { bytes: 60_000, packets: 42, age, ..Batch::default() };
        monitor.handle_batch(at(ms * 1_000), READER, batch);
    };
    stall(&mut monitor, 1);
    monitor.handle_absence(at(100_000), READER, at(90_000));
    stall(&mut monitor, 110);
    monitor.handle_turn(at(111_000), READER, Turn { run: us(1), wait: us(20_000), turns: 1 });
    // No signal reported this one.
    stall(&mut monitor, 140);
    let causes: Vec<_> = monitor.summary(at(200_000)).causes.sums().collect();
    assert_eq!(causes[0], (StallCause::Preempted, 1, us(20_000)), "{causes:?}");
    assert_eq!(causes[4].1, 2, "{causes:?}");
}

/// The reader of 1 Gb/s has been away for `away_ms`, and its buffer is this full.
fn away(monitor: &mut Monitor, away_ms: u64, queued: u64) -> Option<Announcement> {
    for ms in 0..1_000 {
        let batch = Batch { bytes: 125_000, packets: 90, ..Batch::default() };
        monitor.handle_batch(at(ms * 1_000), READER, batch);
    }
    let now = at(1_000_000 + away_ms * 1_000);
    monitor.handle_absence(now, READER, at(1_000_000));
    monitor.handle_socket(now, READER, socket(queued, BUFFER));
    monitor.poll_announcement(now)
}

#[test]
fn a_reader_that_is_away_for_long_asks_for_silence_where_that_helps() {
    assert_eq!(away(&mut monitor(), 1, 100_000), None, "short");
    let most = away(&mut monitor(), 8, 150_000);
    assert_eq!(most, Some(Announcement::Suspend { lasts: us(8_000) }), "as long as it was away");
    let soon = away(&mut monitor(), 4, BUFFER - 10_000);
    assert_eq!(soon, Some(Announcement::Suspend { lasts: us(4_000) }), "before it overflows");
    let mut far = monitor();
    far.set_round_trip(us(50_000));
    assert_eq!(away(&mut far, 10, 200_000), None, "it will be back before silence begins");
    assert!(matches!(away(&mut far, 80, BUFFER), Some(Announcement::Suspend { .. })));
}

#[test]
fn silence_is_asked_for_again_and_lifted_when_the_reader_is_back() {
    let mut monitor = monitor();
    assert!(matches!(away(&mut monitor, 8, 150_000), Some(Announcement::Suspend { .. })));
    let later = at(1_013_000);
    monitor.handle_absence(later, READER, at(1_000_000));
    let again = monitor.poll_announcement(later);
    assert_eq!(again, Some(Announcement::Suspend { lasts: us(13_000) }));
    monitor.handle_return(at(1_020_000), READER);
    assert_eq!(monitor.poll_announcement(at(1_020_000)), None, "its buffer is half full still");
    monitor.handle_socket(at(1_021_000), READER, socket(50_000, BUFFER));
    assert_eq!(monitor.poll_announcement(at(1_021_000)), Some(Announcement::Resume));
    assert_eq!(monitor.poll_announcement(at(1_021_000)), None);
    let suspends = monitor.summary(at(1_030_000)).suspends;
    assert_eq!(suspends, Suspends { count: 1, total: us(13_000), longest: us(13_000) });
}

#[test]
fn one_stalled_reader_of_three_does_not_silence_the_others() {
    let mut monitor = monitor();
    for ms in 0..1_000 {
        for thread in 0..3 {
            let batch = Batch { bytes: 50_000, packets: 35, ..Batch::default() };
            monitor.handle_batch(at(ms * 1_000), ThreadId(thread), batch);
        }
    }
    let now = at(1_020_000);
    let fill = |thread, monitor: &mut Monitor| {
        monitor.handle_absence(now, ThreadId(thread), at(1_000_000));
        monitor.handle_socket(now, ThreadId(thread), socket(200_000, BUFFER));
        monitor.poll_announcement(now)
    };
    assert_eq!(fill(0, &mut monitor), None);
    assert!(matches!(fill(1, &mut monitor), Some(Announcement::Suspend { .. })));
}

#[test]
fn nothing_is_due_when_nothing_happens() {
    let mut monitor = monitor();
    assert_eq!(monitor.next_timeout(), None);
    rounds(&mut monitor, ROUNDS);
    let mut now = at(2_400_000);
    let mut looks = 0;
    while let Some(due) = monitor.next_timeout() {
        now = now.max(due);
        assert!(
            monitor
                .poll_announcement(now)
                .is_none_or(|announcement| matches!(announcement, Announcement::Limit { .. }))
        );
        looks += 1;
        assert!(looks < 200, "it comes to rest");
    }
    let limits = monitor.summary(at(10_000_000)).limits;
    assert!(limits.total() < us(3_000_000), "{limits:?}: the last limit has expired");
}

fn playing(part: Part) -> Monitor {
    Monitor::new(at(0), MonitorConfig { part, ..MonitorConfig::default() })
}

#[test]
fn as_rapid_it_only_suspends_once_it_has_learnt_at_which_level_the_reader_stops() {
    let mut monitor = playing(Part::Rapid(crate::rapid::RapidConfig::default()));
    let announcements = rounds(&mut monitor, Rounds { count: 400, ..ROUNDS });
    let suspends = |announcements: &[Announcement]| {
        announcements
            .iter()
            .filter(|announcement| matches!(announcement, Announcement::Suspend { .. }))
            .count()
    };
    assert_eq!(announcements.len(), suspends(&announcements), "{announcements:?}");
    assert_eq!(suspends(&announcements), 0, "there was no silence with something in the socket");
    // Now there is, at a level that running has lowered.
    for tick in 0..5 {
        let now = at(4_800_000 + 2_000 * tick);
        monitor.handle_socket(now, READER, socket(100_000, BUFFER));
        let more = core::iter::from_fn(|| monitor.poll_announcement(now)).count();
        assert!(more <= 1);
    }
    assert!(monitor.summary(at(4_900_000)).suspends.count >= 1);
}

#[test]
fn as_paptc_it_says_what_it_will_process_and_limits_nobody() {
    let mut monitor = playing(Part::Paptc);
    let announcements = rounds(&mut monitor, ROUNDS);
    assert!(!announcements.is_empty() && announcements.len() < 40, "{announcements:?}");
    let Some(Announcement::Capacity { rate }) = announcements.last() else {
        panic!("{announcements:?}")
    };
    // 60 kB in 240 us, a third of the time.
    assert!(rate.as_bps().abs_diff(2_000_000_000 / 3) < 40_000_000, "{rate}");
    assert!(
        announcements
            .iter()
            .all(|announcement| matches!(announcement, Announcement::Capacity { .. })),
        "{announcements:?}"
    );
}

#[derive(Clone, Debug)]
enum Sample {
    Turn(Turn),
    Batch(Batch),
    Socket(Socket),
    Absence(u64),
    Return,
    Disk(Disk),
    Other(u8, Duration),
    RoundTrip(Duration),
    Poll,
}

fn sample() -> impl Strategy<Value = Sample> {
    let time = || (0u64..200_000).prop_map(us);
    let size = || prop_oneof![0u64..1_000_000, Just(u64::MAX), Just(0)];
    prop_oneof![
        (time(), time(), 0u64..5).prop_map(|(run, wait, turns)| Sample::Turn(Turn {
            run,
            wait,
            turns
        })),
        (size(), size(), prop::option::of(time()), prop::option::of(time()), any::<bool>())
            .prop_map(|(bytes, packets, age, cpu, full)| Sample::Batch(Batch {
                bytes,
                packets,
                age,
                cpu,
                full
            })),
        (size(), size(), size()).prop_map(|(queued, limit, drops)| Sample::Socket(Socket {
            queued,
            limit,
            drops
        })),
        (0u64..100_000).prop_map(Sample::Absence),
        Just(Sample::Return),
        (size(), size(), size()).prop_map(|(backlog, memory, written)| Sample::Disk(Disk {
            backlog,
            memory,
            written
        })),
        (0u8..3, time()).prop_map(|(kind, time)| Sample::Other(kind, time)),
        time().prop_map(Sample::RoundTrip),
        Just(Sample::Poll),
    ]
}

fn play(samples: &[(u64, u16, Sample)]) -> Vec<(Instant, Announcement)> {
    let (mut monitor, mut now, mut announcements) = (monitor(), at(0), Vec::new());
    for (pause, thread, sample) in samples {
        now += us(*pause);
        let thread = ThreadId(*thread);
        match *sample {
            Sample::Turn(turn) => monitor.handle_turn(now, thread, turn),
            Sample::Batch(batch) => monitor.handle_batch(now, thread, batch),
            Sample::Socket(socket) => monitor.handle_socket(now, thread, socket),
            Sample::Absence(ago) => monitor.handle_absence(now, thread, now.before(us(ago))),
            Sample::Return => monitor.handle_return(now, thread),
            Sample::Disk(disk) => monitor.handle_disk(now, disk),
            Sample::Other(0, time) => monitor.handle_throttled(now, time),
            Sample::Other(1, time) => monitor.handle_steal(now, time),
            Sample::Other(_, time) => monitor.handle_pressure(now, time),
            Sample::RoundTrip(time) => monitor.set_round_trip(time),
            Sample::Poll => {}
        }
        for _ in 0..2 {
            announcements.extend(monitor.poll_announcement(now).map(|what| (now, what)));
        }
        assert_eq!(monitor.poll_announcement(now), None, "two at once at most");
    }
    monitor.summary(now);
    announcements
}

proptest! {
    #[test]
    fn announcements_are_bounded_and_the_same_again_whatever_comes(
        samples in prop::collection::vec((0u64..30_000, 0u16..3, sample()), 1..300),
    ) {
        let announcements = play(&samples);
        prop_assert_eq!(&announcements, &play(&samples));
        let mut suspended = false;
        for (_, announcement) in announcements {
            match announcement {
                Announcement::Limit { rate, cause, lasts } => {
                    prop_assert!(rate >= Rate::from_mbps(1) && lasts <= us(800_000));
                    prop_assert!(cause != Bottleneck::Unknown);
                }
                Announcement::Suspend { lasts } => {
                    prop_assert!(lasts >= us(4_000) && lasts <= us(800_000));
                    suspended = true;
                }
                Announcement::Capacity { .. } => prop_assert!(false, "the monitor says none"),
                Announcement::Resume => {
                    prop_assert!(suspended, "no suspend is lifted that was not announced");
                    suspended = false;
                }
            }
        }
    }

    #[test]
    fn a_rate_that_arrives_is_no_reason_to_say_anything(
        batches in prop::collection::vec((0u64..20_000, 0u64..1_000_000), 1..300),
    ) {
        let (mut monitor, mut now) = (monitor(), 0);
        for (pause, bytes) in batches {
            now += pause;
            let batch = Batch { bytes, packets: bytes / 1_400, ..Batch::default() };
            monitor.handle_batch(at(now), READER, batch);
            prop_assert_eq!(monitor.poll_announcement(at(now)), None);
        }
    }
}
