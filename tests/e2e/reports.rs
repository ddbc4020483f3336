//! Reports of copies at their end: the same in a push and in a pull.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use longhaul::{CarrierChoice, CopyOptions, CopyReport};
use longhaul_units::{Duration, Rate};
use longhaul_wire::Bottleneck;

use crate::program::Program;
use crate::relay::{Relay, Way};
use crate::server::{Copying, Server, pull, push, run, slowly};
use crate::test::{Test, limited, until};
use crate::trees::{assert_same, noise};

#[test]
fn a_pull_says_what_a_push_says() {
    limited(|test| {
        for (carrier, packets) in [(CarrierChoice::Udp, PACKETS), (CarrierChoice::Tcp, SEGMENTS)] {
            for lanes in [1, 3] {
                for report in there_and_back(test, |copy| {
                    (copy.connect.carrier, copy.connect.lanes) = (carrier, lanes);
                }) {
                    assert!(report.link.packets_sent > packets, "{report:?}");
                    assert!(report.link.packets_resent < report.link.packets_sent, "{report:?}");
                    assert!(report.link.rtt > Duration::ZERO, "{report:?}");
                    assert!(
                        report.link.cpu_remote.is_some_and(|time| !time.is_zero()),
                        "{report:?}"
                    );
                    assert_ne!(report.link.bottleneck, Bottleneck::Unknown, "{report:?}");
                }
            }
        }
    });
}

#[test]
fn the_rate_limits_the_sender() {
    limited(|test| {
        for way in LIMITED {
            let rate = Rate::from_mbps(40);
            for report in there_and_back(test, limited_to(rate, way)) {
                assert_kept_to(&report, rate);
            }
        }
    });
}

#[test]
fn a_rate_that_busy_hosts_keep_is_still_the_limit() {
    limited(|test| {
        let _load = Load::start(2 * thread::available_parallelism().map_or(1, usize::from));
        for way in LIMITED {
            let rate = Rate::from_mbps(4);
            for report in there_and_back_of(test, BYTES / 8, limited_to(rate, way)) {
                assert_kept_to(&report, rate);
            }
        }
    });
}

#[test]
fn a_slow_path_is_the_bottleneck() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, BYTES)).unwrap();
        let server = Server::start(test);
        let relay = Relay::paced(server.address, 20_000_000);
        for mut options in
            [push(&test.here("f"), relay.address, b"g"), pull(relay.address, b"g", &test.here("g"))]
        {
            options.sync = false;
            let report = run(test, &options).unwrap();
            let reached = Rate::from_mbps(20).time_for(report.bytes) * 3 / 2;
            assert_limited(&report, Bottleneck::Network, reached);
        }
    });
}

#[test]
fn a_pull_shows_while_it_runs_how_the_server_sends() {
    limited(|test| {
        fs::write(test.there("f"), noise(1, 4 * BYTES)).unwrap();
        let server = Server::start(test);
        let copying = Copying::start(test, slowly(pull(server.address, b"f", &test.here("f"))));
        until("the server tells", || {
            let shown = copying.progress.snapshot();
            let under_way = shown.bytes_done < 4 * BYTES as u64;
            (under_way && shown.packets_sent > 0 && shown.bound == Bottleneck::UserLimit)
                .then_some(())
        });
        copying.stop();
    });
}

#[test]
fn losses_on_the_path_are_reported_both_ways() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, BYTES)).unwrap();
        let server = Server::start(test);
        for lossy in [Way::ToServer, Way::ToClient] {
            let mut count = 0;
            let tap = move |way, datagram: &[u8]| {
                count += u32::from(way == lossy && datagram.len() > 1_000);
                match way == lossy && count % 50 == 49 {
                    true => Vec::new(),
                    false => vec![datagram.to_vec()],
                }
            };
            let relay = Relay::tapped(server.address, Box::new(tap));
            let options = match lossy {
                Way::ToServer => push(&test.here("f"), relay.address, b"g"),
                Way::ToClient => pull(relay.address, b"g", &test.here("g")),
            };
            let report = run(test, &options).unwrap();
            let lost = report.link.lost;
            assert!(lost.total() > PACKETS / 100 && report.link.packets_resent > 0, "{report:?}");
            assert_eq!(lost.sender, 0, "{report:?}");
        }
        assert_same(&test.here("f"), &test.here("g"));
    });
}

#[test]
fn the_program_says_the_same_both_ways() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, BYTES)).unwrap();
        let server = Server::start(test);
        let there = format!("lh://{}/f", server.address);
        let pushed = Program::cp(test, &["here/f", &there]).end();
        let pulled = Program::cp(test, &[&there, "here/g"]).end();
        let keys = |ended: &crate::program::Ended| -> Vec<String> {
            ended.json().as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(keys(&pushed), keys(&pulled));
        for copy in [pushed, pulled] {
            copy.assert_succeeded();
            let json = copy.json();
            assert!(json["packets_sent"].as_u64().unwrap() > PACKETS, "{json}");
            assert!(json["cpu_seconds"]["remote"].as_f64().unwrap() > 0.0, "{json}");
            assert_ne!(json["bottleneck"], "unknown", "{json}");
            assert!(copy.stderr.contains("packets"), "{copy:?}");
            assert!(!copy.stderr.contains("bottleneck: unknown"), "{copy:?}");
        }
    });
}

/// Has a profile and a carrier keep to a rate.
fn limited_to(
    rate: Rate,
    (profile, carrier): (&'static str, CarrierChoice),
) -> impl Fn(&mut CopyOptions) {
    move |copy| {
        (copy.connect.rate, copy.connect.carrier) = (Some(rate), carrier);
        copy.connect.profile = profile.into();
        copy.sync = false;
    }
}

/// This is what held the copy up, unless this machine was too busy for that: then the copy must have
/// taken longer than it does when the limit is `reached`, and the sender's processor is to blame.
fn assert_limited(report: &CopyReport, limit: Bottleneck, reached: Duration) {
    let busy = report.link.bottleneck == Bottleneck::SenderCpu && report.elapsed > reached;
    assert!(busy || report.link.bottleneck == limit, "{report:?}");
}

/// [`assert_limited`] by the user, to `rate`.
fn assert_kept_to(report: &CopyReport, rate: Rate) {
    assert_limited(report, Bottleneck::UserLimit, rate.time_for(report.bytes) * 14 / 13);
}

/// A file pushed, and pulled back.
fn there_and_back(test: &Test, set: impl Fn(&mut CopyOptions)) -> [CopyReport; 2] {
    there_and_back_of(test, BYTES, set)
}

fn there_and_back_of(test: &Test, bytes: usize, set: impl Fn(&mut CopyOptions)) -> [CopyReport; 2] {
    fs::write(test.here("f"), noise(1, bytes)).unwrap();
    let server = Server::start(test);
    let there = push(&test.here("f"), server.address, b"g");
    let back = pull(server.address, b"g", &test.here("g"));
    let reports = [there, back].map(|mut options| {
        set(&mut options);
        run(test, &options).unwrap()
    });
    assert_same(&test.here("f"), &test.here("g"));
    fs::remove_file(test.here("g")).unwrap();
    fs::remove_file(test.there("g")).unwrap();
    reports
}

/// Threads that keep processors busy as long as this lives.
struct Load {
    over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn start(count: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|_| {
            let over = over.clone();
            thread::spawn(move || while !over.load(Ordering::Relaxed) {})
        });
        Self { threads: threads.collect(), over }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Profiles and carriers that keep to a rate.
const LIMITED: [(&str, CarrierChoice); 3] =
    [("auto", CarrierChoice::Udp), ("fixed", CarrierChoice::Udp), ("auto", CarrierChoice::Tcp)];
/// A disk may be busy with other things.
const BYTES: usize = 4_000_000;
/// Jumbo frames are the largest that are tried.
const PACKETS: u64 = 4_000_000 / 8_972;
/// The loopback device takes segments of up to 64 KiB, and the kernel counts some of them together.
const SEGMENTS: u64 = 4_000_000 / 131_072;

#[test]
fn stats_are_lines_of_progress_without_a_terminal() {
    limited(|test| {
        std::fs::write(test.here("f"), vec![7; 1_500_000]).unwrap();
        let server = Server::start(test);
        let place = format!("lh://{}/", server.address);
        let fixed = ["cp", "--token-file", "token", "--rate", "4Mbps", "--stats", "1s"];
        let ended = Program::start(test, &[&fixed[..], &["here/f", &place]].concat()).end();
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let line = ended.stderr.lines().find(|line| line.starts_with("1 s: ")).unwrap();
        assert!(line.contains(" % of 1.50 MB, ") && line.contains("RTT"), "{line}");
        let other = format!("{place}g");
        let words = [&fixed[..], &["--json", "here/f", &other]].concat();
        let ended = Program::start(test, &words).end();
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let objects = ended.stderr.lines().filter(|line| line.starts_with('{'));
        let all: Vec<serde_json::Value> =
            objects.map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(all.len() > 1, "{ended:?}");
        let bytes = |at: usize| all[at]["bytes"].as_u64();
        // On a busy host a group that is on its way to the lanes counts as sent.
        assert!(bytes(0) < bytes(all.len() - 1), "{all:?}");
    });
}
