//! What holds real copies up.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use longhaul_files::test_faults::SLOW;
use longhaul_session::Token;
use longhaul_units::{Duration, Rate};
use longhaul_wire::Bottleneck;
use tempfile::TempDir;

use crate::api::{CopyReport, ServeEvent};
use crate::error::Error;
use crate::options::{
    Access, CarrierChoice, ConnectOptions, CopyOptions, CopyPaths, Endpoint, ServeOptions,
};
use crate::progress::Progress;
use crate::testing::AtEnd;
use crate::transfers::source::WORKERS;
use crate::{copy, serve};
use longhaul_sys::stop::Stop;

/// Copies a file of that name, with both carriers, there and back.
fn copies(name: &str, megabytes: u32) -> Vec<CopyReport> {
    let tried = tries(name, megabytes, PATIENCE);
    tried.into_iter().map(|copied| copied.unwrap()).collect()
}

/// The same, where both ends have this patience with copies that stand still.
fn tries(name: &str, megabytes: u32, patience: Duration) -> Vec<Result<CopyReport, Error>> {
    let folder = TempDir::new().unwrap();
    let path = |side: &str| folder.path().join(side);
    for side in ["here", "there"] {
        fs::create_dir(path(side)).unwrap();
        let bytes: Vec<u8> = (0..megabytes << 20).map(|i| (i / 5) as u8).collect();
        fs::write(path(side).join(name), bytes).unwrap();
    }
    let stop = Stop::default();
    let (listens, listening) = mpsc::channel();
    thread::scope(|scope| {
        let _ends = AtEnd(|| stop.request());
        let (root, stopped) = (path("there"), stop.clone());
        scope.spawn(move || {
            let events = |event| {
                if let ServeEvent::Listening(address) = event {
                    listens.send(address).unwrap();
                }
            };
            let options = ServeOptions { stall_timeout: patience, ..serve_options(&root) };
            serve(&options, &events, &stopped).unwrap();
        });
        let server: SocketAddr = listening.recv().unwrap();
        let mut running = Vec::new();
        for carrier in [CarrierChoice::Udp, CarrierChoice::Tcp] {
            let there = format!("{name} {carrier:?}");
            let [from, to] = [name, &there].map(|name| path("here").join(name));
            for paths in [
                CopyPaths::Push { sources: vec![from], destination: there.into_bytes() },
                CopyPaths::Pull { sources: vec![name.into()], destination: to },
            ] {
                let mut options = copy_options(server, carrier, paths);
                options.connect.stall_timeout = patience;
                running.push(
                    scope.spawn(move || copy(&options, &Progress::default(), &Stop::default())),
                );
            }
        }
        running.into_iter().map(|copy| copy.join().unwrap()).collect()
    })
}

fn serve_options(root: &Path) -> ServeOptions {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    ServeOptions {
        connections_max: 8,
        idle_timeout: PATIENCE,
        ..ServeOptions::new(
            listen,
            vec![Access::new(root.to_owned(), vec![Token::from_random([1; 16])])],
        )
    }
}

fn copy_options(server: SocketAddr, carrier: CarrierChoice, paths: CopyPaths) -> CopyOptions {
    let server = Endpoint::new(server.ip().to_string(), server.port());
    let connect = ConnectOptions {
        rate: Some(Rate::from_gbps(10)),
        carrier,
        idle_timeout: PATIENCE,
        ..ConnectOptions::new(server, Token::from_random([1; 16]))
    };
    // The real disk is not what this is about.
    CopyOptions { sync: false, ..CopyOptions::new(connect, paths) }
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
        let part = format!("the {disk} got nothing done");
        for tried in tries(name, 1, Duration::from_secs(2)) {
            let text = tried.unwrap_err().to_string();
            assert!(text.contains(&part) && text.contains("run the same command again"), "{text}");
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn who_waits_for_memory_for_a_tenth_of_the_time_is_short_of_it() {
    let ms = Duration::from_millis;
    let at = |count| longhaul_units::Instant::ZERO + ms(count);
    let mut squeeze = super::Squeeze { looked: at(0), freeing: ms(70) };
    assert!(!squeeze.look(at(100), ms(70)));
    assert!(!squeeze.look(at(200), ms(79)));
    assert!(squeeze.look(at(300), ms(90)));
    assert!(!squeeze.look(at(300), ms(90)), "no time has passed");
    assert!(!squeeze.look(at(400), ms(80)), "totals of another group");
}
