use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use longhaul_objects::Fsync;
use longhaul_session::Token;
use longhaul_units::Rate;
use longhaul_wire::Protect;
use tempfile::TempDir;

use super::*;
use crate::files::hindrance::SLOW;
use crate::side::WORKERS;
use crate::{
    CarrierChoice, CopyError, CopyOptions, CopyReport, Location, Progress, ServeEvent,
    ServeOptions, Stop, copy, serve,
};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Of 100 ms.
fn threads(run: u64, idle: u64) -> Spent {
    Spent { alive: ms(100), run: ms(run), ready: ms(0), idle: ms(idle) }
}

/// A source that was at `stage` for 100 ms, for which it let the carrier go hungry.
fn at(stage: Stage) -> SendingSide {
    seen(stage, 90, Bottleneck::Network)
}

/// A source whose carrier had enough for 100 ms and was held by `carrier`.
fn sending(carrier: Bottleneck) -> SendingSide {
    seen(Stage::Reading, 10, carrier)
}

fn seen(stage: Stage, hungry: u64, carrier: Bottleneck) -> SendingSide {
    let mut stages = Stages::new(Instant::ZERO);
    stages.enter(Instant::ZERO, stage, ms(0));
    stages.update(Instant::ZERO + ms(100), ms(hungry));
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

const TOLD: [Bottleneck; 3] =
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
fn without_credit_it_is_what_the_receiver_says() {
    for storage in TOLD {
        let receiver = ReceiverBounds { storage, ..ReceiverBounds::NONE };
        let waiting = SendingSide { receiver, ..at(Stage::Credit) };
        let ending = SendingSide { receiver, ..at(Stage::Answer) };
        let expected = match storage {
            Bottleneck::Unknown => (Bottleneck::ReceiverBuffer, Bottleneck::Network),
            told => (told, told),
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
    for (until, hungry) in [(140, 90), (180, 130), (220, 145)] {
        seen.stages.enter(
            Instant::ZERO + ms(until - 40),
            Stage::Reading,
            seen.stages.hungry_before,
        );
        seen.stages.update(Instant::ZERO + ms(until), ms(hungry));
        seen.carrier.add(Bottleneck::Network, ms(10));
        diagnosis.observe(seen);
    }
    assert_eq!(diagnosis.now(), Bottleneck::Network);
    assert_eq!(diagnosis.longest(), Bottleneck::ReceiverBuffer);
}

/// Its thread had no turn, or slept until it might send again.
#[test]
fn what_a_carrier_tells_late_counts_for_all_the_time_since_it_told() {
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
    let (unknown, cpu, disk) = (TOLD[0], TOLD[1], TOLD[2]);
    assert_eq!(bounds(threads(30, 0), threads(5, 80), ms(20)), (unknown, unknown));
    assert_eq!(bounds(threads(90, 0), threads(5, 80), ms(20)), (cpu, unknown));
    assert_eq!(bounds(threads(30, 0), threads(20, 10), ms(90)), (unknown, disk));
    assert_eq!(bounds(threads(30, 0), threads(80, 10), ms(90)), (unknown, cpu));
}

/// Copies a file of that name, with both carriers, there and back.
fn copies(name: &str, megabytes: u32) -> Vec<CopyReport> {
    let tried = tries(name, megabytes, PATIENCE);
    tried.into_iter().map(|copied| copied.unwrap()).collect()
}

/// The same, where both ends have this patience with copies that stand still.
fn tries(name: &str, megabytes: u32, patience: Duration) -> Vec<Result<CopyReport, CopyError>> {
    let folder = TempDir::new().unwrap();
    let path = |side: &str| folder.path().join(side);
    for side in ["here", "there"] {
        fs::create_dir(path(side)).unwrap();
        let bytes: Vec<u8> = (0..megabytes << 20).map(|i| (i / 5) as u8).collect();
        fs::write(path(side).join(name), bytes).unwrap();
    }
    let stop = Stop::default();
    let (told, listening) = mpsc::channel();
    thread::scope(|scope| {
        let (root, stopped) = (path("there"), stop.clone());
        scope.spawn(move || {
            let events = |event| {
                if let ServeEvent::Listening(address) = event {
                    told.send(address).unwrap();
                }
            };
            let options = ServeOptions { stall_timeout: patience, ..serve_options(&root) };
            serve(&options, &events, &stopped).unwrap();
        });
        let server: SocketAddr = listening.recv().unwrap();
        let mut running = Vec::new();
        for carrier in [CarrierChoice::Udp, CarrierChoice::Tcp] {
            let here = |name: String| Location::Local(path("here").join(name));
            let there = |name: String| Location::Remote {
                host: server.ip().to_string(),
                port: server.port(),
                path: name.into_bytes(),
            };
            for (from, to) in [
                (here(name.into()), there(format!("{name} {carrier:?}"))),
                (there(name.into()), here(format!("{name} {carrier:?}"))),
            ] {
                let options =
                    CopyOptions { stall_timeout: patience, ..copy_options(from, to, carrier) };
                running.push(
                    scope.spawn(move || copy(&options, &Progress::default(), &Stop::default())),
                );
            }
        }
        let tried = running.into_iter().map(|copy| copy.join().unwrap()).collect();
        stop.request();
        tried
    })
}

fn serve_options(root: &Path) -> ServeOptions {
    ServeOptions {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        root: root.to_owned(),
        tokens: vec![Token::from_random([1; 16])],
        socket_buffer: None,
        once: false,
        allow_read: true,
        allow_write: true,
        memory: None,
        direct: false,
        connections_max: 8,
        idle_timeout: PATIENCE,
        stall_timeout: PATIENCE,
    }
}

fn copy_options(from: Location, to: Location, carrier: CarrierChoice) -> CopyOptions {
    CopyOptions {
        sources: vec![from],
        destination: to,
        destination_is_directory: false,
        copy_contents: false,
        merge: false,
        verify: true,
        token: Token::from_random([1; 16]),
        profile: "auto".into(),
        rate: Some(Rate::from_gbps(10)),
        protect: Protect::Aead,
        carrier,
        lanes: 1,
        // The real disk is not what this is about.
        fsync: Fsync::Never { boot: [0; 16] },
        memory: None,
        direct: false,
        idle_timeout: PATIENCE,
        stall_timeout: PATIENCE,
        circuit: None,
    }
}

#[test]
fn a_copy_says_which_disk_or_processor_is_too_slow() {
    for (name, megabytes, expected) in [
        ("slow to read", 4, Bottleneck::SenderDisk),
        ("slow to write", 4, Bottleneck::ReceiverDisk),
        ("hard to read", 16, Bottleneck::SenderCpu),
        ("hard to write", 16, Bottleneck::ReceiverCpu),
    ] {
        // On a machine so busy that what the disk does not hinder takes long too, the processors are
        // to blame as much as a slow disk.
        let disk = SLOW * megabytes / WORKERS;
        let usual = copies("plain", megabytes).iter().map(|report| report.elapsed).max();
        for report in copies(name, megabytes) {
            let found = report.link.bottleneck;
            let busy = usual.max(Some(report.elapsed.saturating_sub(disk))) > Some(disk / 3);
            let busy = busy && name.starts_with("slow");
            let busy = busy && matches!(found, Bottleneck::SenderCpu | Bottleneck::ReceiverCpu);
            assert!(busy || found == expected, "{name}: {report:?}");
        }
    }
}

#[test]
fn a_disk_that_gets_nothing_done_ends_the_copy_and_is_named() {
    for (name, disk) in [("stuck to read", "sender disk"), ("stuck to write", "receiver disk")] {
        let told = format!("the {disk} got nothing done");
        for tried in tries(name, 1, Duration::from_secs(2)) {
            let said = tried.unwrap_err().to_string();
            assert!(said.contains(&told) && said.contains("run the same command again"), "{said}");
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
