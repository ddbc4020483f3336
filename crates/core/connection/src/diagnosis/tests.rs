use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Of 100 ms.
fn threads(run: u64, idle: u64) -> Spent {
    Spent { alive: ms(100), run: ms(run), ready: ms(0), idle: ms(idle) }
}

/// A source that was at `stage` for 100 ms, for which the carrier had nothing to send.
fn at(stage: Stage) -> SendingSide {
    seen(stage, 90, Bottleneck::Network)
}

/// A source whose carrier had enough for 100 ms and was held by `carrier`.
fn sending(carrier: Bottleneck) -> SendingSide {
    seen(Stage::Reading, 10, carrier)
}

fn seen(stage: Stage, idle_time: u64, carrier: Bottleneck) -> SendingSide {
    let mut stages = Stages::new(Instant::ZERO);
    stages.enter(Instant::ZERO, stage, ms(0));
    stages.update(Instant::ZERO + ms(100), ms(idle_time));
    let mut times = Times::default();
    times.add(carrier, ms(60));
    times.add(Bottleneck::StartUp, ms(40));
    SendingSide {
        stages,
        readers: threads(10, 90),
        carrier: times,
        lanes: threads(30, 0),
        receiver: ReceiverBounds::NONE,
    }
}

fn named(seen: SendingSide) -> Bottleneck {
    let mut diagnosis = Diagnosis::new(Instant::ZERO);
    diagnosis.observe(seen);
    assert_eq!(diagnosis.now(), diagnosis.longest());
    diagnosis.now()
}

const REPORTED: [Bottleneck; 3] =
    [Bottleneck::Unknown, Bottleneck::ReceiverCpu, Bottleneck::ReceiverDisk];

#[test]
fn while_reading_the_readers_are_the_bottleneck() {
    let reading = at(Stage::Reading);
    let disk = SendingSide { readers: threads(10, 5), ..reading };
    assert_eq!(named(disk), Bottleneck::SenderDisk);
    let cpu = SendingSide { readers: threads(80, 10), ..reading };
    assert_eq!(named(cpu), Bottleneck::SenderCpu);
    // Others have the processor.
    let crowded = Spent { ready: ms(85), ..threads(10, 5) };
    assert_eq!(named(SendingSide { readers: crowded, ..reading }), Bottleneck::SenderCpu);
}

#[test]
fn a_limit_that_is_reached_is_the_bottleneck_however_busy_both_hosts_are() {
    for limit in [Bottleneck::UserLimit, Bottleneck::Reservation] {
        let busy = SendingSide {
            lanes: threads(99, 0),
            receiver: ReceiverBounds {
                intake: Bottleneck::ReceiverCpu,
                storage: Bottleneck::ReceiverDisk,
            },
            ..sending(limit)
        };
        assert_eq!(named(busy), limit);
    }
}

#[test]
fn while_sending_the_side_without_spare_time_is_the_bottleneck() {
    let free = sending(Bottleneck::Network);
    assert_eq!(named(free), Bottleneck::Network);
    assert_eq!(named(sending(Bottleneck::SenderCpu)), Bottleneck::SenderCpu, "as the path says");
    assert_eq!(named(SendingSide { lanes: threads(95, 0), ..free }), Bottleneck::SenderCpu);
    let intake = Bottleneck::ReceiverCpu;
    let receiver = ReceiverBounds { intake, ..ReceiverBounds::NONE };
    assert_eq!(named(SendingSide { receiver, ..free }), Bottleneck::ReceiverCpu);
    // While the receiver has memory its writers hold nobody up.
    let receiver = ReceiverBounds { storage: Bottleneck::ReceiverDisk, ..ReceiverBounds::NONE };
    assert_eq!(named(SendingSide { receiver, ..free }), Bottleneck::Network);
    let closed = sending(Bottleneck::ReceiverBuffer);
    assert_eq!(named(closed), Bottleneck::ReceiverBuffer);
    assert_eq!(named(SendingSide { receiver, ..closed }), Bottleneck::ReceiverDisk);
}

#[test]
fn without_credit_the_receiver_names_the_bottleneck() {
    for storage in REPORTED {
        let receiver = ReceiverBounds { storage, ..ReceiverBounds::NONE };
        let waiting = SendingSide { receiver, ..at(Stage::Credit) };
        let ending = SendingSide { receiver, ..at(Stage::Answer) };
        let expected = match storage {
            Bottleneck::Unknown => (Bottleneck::ReceiverBuffer, Bottleneck::Network),
            reported => (reported, reported),
        };
        assert_eq!((named(waiting), named(ending)), expected);
    }
    assert_eq!(named(at(Stage::Memory)), Bottleneck::SenderBuffer);
}

#[test]
fn what_took_longest_is_named_in_the_end() {
    let mut diagnosis = Diagnosis::new(Instant::ZERO);
    assert_eq!(diagnosis.longest(), Bottleneck::StartUp);
    let mut seen = at(Stage::Credit);
    diagnosis.observe(seen);
    // 40 ms each.
    for (until, idle_time) in [(140, 90), (180, 130), (220, 145)] {
        seen.stages.enter(Instant::ZERO + ms(until - 40), Stage::Reading, seen.stages.idle_before);
        seen.stages.update(Instant::ZERO + ms(until), ms(idle_time));
        seen.carrier.add(Bottleneck::Network, ms(10));
        diagnosis.observe(seen);
    }
    assert_eq!(diagnosis.now(), Bottleneck::Network);
    assert_eq!(diagnosis.longest(), Bottleneck::ReceiverBuffer);
}

/// Its thread had no turn, or slept until it might send again.
#[test]
fn a_late_report_of_a_carrier_counts_for_all_the_time_since_its_last() {
    let mut diagnosis = Diagnosis::new(Instant::ZERO);
    let mut seen = sending(Bottleneck::Network);
    diagnosis.observe(seen);
    for until in [200, 300, 400] {
        seen.stages.update(Instant::ZERO + ms(until), ms(10));
        diagnosis.observe(seen);
    }
    seen.carrier.add(Bottleneck::UserLimit, ms(310));
    seen.stages.update(Instant::ZERO + ms(410), ms(10));
    diagnosis.observe(seen);
    assert_eq!(diagnosis.now(), Bottleneck::UserLimit);
    assert_eq!(diagnosis.longest(), Bottleneck::UserLimit);
}

#[test]
fn a_receiver_tells_what_holds_it_up() {
    let begin = ReceivingSide {
        at: Instant::ZERO,
        lanes: Spent::default(),
        writers: Spent::default(),
        writing: ms(0),
    };
    let bounds = |lanes, writers, writing| {
        let end = ReceivingSide { at: Instant::ZERO + ms(100), lanes, writers, writing };
        let ReceiverBounds { intake, storage } = end.bounds(&begin);
        (intake, storage)
    };
    let (unknown, cpu, disk) = (REPORTED[0], REPORTED[1], REPORTED[2]);
    assert_eq!(bounds(threads(30, 0), threads(5, 80), ms(20)), (unknown, unknown));
    assert_eq!(bounds(threads(90, 0), threads(5, 80), ms(20)), (cpu, unknown));
    assert_eq!(bounds(threads(30, 0), threads(20, 10), ms(90)), (unknown, disk));
    assert_eq!(bounds(threads(30, 0), threads(80, 10), ms(90)), (unknown, cpu));
}
