//! Copies over a network that is gone for a while, between two namespaces.
//!
//! `LONGHAUL_GONE=1,10,100` says for how many seconds, one after the other; 100 take too long for every day.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_needs::needs;
use longhaul_sys::netns::{DEVICE, NetnsPair, Side};
use rustix::process::Signal;

use crate::program::Program;
use crate::test::{Test, limited, until};
use crate::trees::{assert_same, is_hidden, names, noise};

/// Seconds for which the network is gone.
fn gaps() -> Vec<u64> {
    let text = std::env::var("LONGHAUL_GONE").unwrap_or_else(|_| "1,10".into());
    text.split(',').map(|seconds| seconds.parse().unwrap()).collect()
}

fn fill(tree: &Path) {
    fs::create_dir_all(tree.join("a/b")).unwrap();
    for number in 0..SMALL {
        fs::write(tree.join(format!("a/b/{number}")), noise(number, SMALL_LEN)).unwrap();
    }
    fs::write(tree.join("large"), noise(7, LARGE_LEN)).unwrap();
}

/// One of the copies that are made at the same time: by each carrier, both ways, with and without deletion.
struct Copying<'t> {
    from: PathBuf,
    to: PathBuf,
    deletes: bool,
    program: Program<'t>,
}

impl<'t> Copying<'t> {
    fn start(test: &'t Test, hosts: &NetnsPair, server: &str, number: usize) -> Self {
        let (pushes, deletes) = (number & 1 == 0, number & 2 == 0);
        let carrier = if number < COPIES / 2 { "udp" } else { "tcp" };
        let (name, into) = (format!("tree{number}"), format!("into{number}"));
        let (from, to) = match pushes {
            true => (test.here(&name), test.there(&into).join(&name)),
            false => (test.there(&name), test.here(&into).join(&name)),
        };
        for old in [&from, &to] {
            let _ = fs::remove_dir_all(old);
        }
        fill(&from);
        fs::create_dir_all(to.join("more")).unwrap();
        let words = match pushes {
            true => [format!("here/{name}"), format!("lh://{server}/{into}/")],
            false => [format!("lh://{server}/{name}"), format!("here/{into}/")],
        };
        let words = words.each_ref().map(String::as_str);
        let rate = format!("{}bps", RATE * 8);
        let fixed = ["cp", "--json", "--token-file", "token", "--rate", &rate];
        let fixed = [&fixed[..], &["--carrier", carrier]].concat();
        let delete = if deletes { &["-a", "--delete"][..] } else { &[] };
        let all = [&fixed[..], delete, &words].concat();
        let program = hosts.run_in(Side::A, || Program::start(test, &all)).unwrap();
        Self { from, to, deletes, program }
    }

    /// True if its destination has something of it.
    fn has_begun(&self) -> bool {
        let beside = names(self.to.parent().unwrap());
        beside.iter().any(|name| is_hidden(name)) || self.to.join("large").exists()
    }

    /// Looks at what came of it; the connections that it lost.
    fn finish(self) -> u64 {
        let ended = self.program.end();
        ended.assert_succeeded();
        let report = ended.json();
        assert_eq!(report["verified"], true, "{ended:?}");
        assert_eq!(self.to.join("more").exists(), !self.deletes, "{ended:?}");
        let _ = fs::remove_dir(self.to.join("more"));
        assert_same(&self.from, &self.to);
        let beside = names(self.to.parent().unwrap());
        assert!(!beside.iter().any(|name| is_hidden(name)), "{ended:?}");
        report["reconnects"].as_u64().unwrap()
    }
}

fn set_link(hosts: &NetnsPair, state: &str) {
    let run = || Command::new("ip").args(["link", "set", DEVICE, state]).status().unwrap();
    assert!(hosts.run_in(Side::B, run).unwrap().success());
}

/// Bytes that the first host has sent and received.
fn carried(hosts: &NetnsPair) -> u64 {
    let read = || fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let text = hosts.run_in(Side::A, read).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(DEVICE)).unwrap();
    let counts = line.trim_start_matches(':').split_whitespace();
    let counts: Vec<u64> = counts.map(|count| count.parse().unwrap()).collect();
    counts[0] + counts[8]
}

/// The network goes when three quarters are there, and most of that is not sent again.
#[needs(namespaces)]
#[test]
fn copies_go_on_by_themselves_where_the_network_was_gone() {
    limited(|test| {
        for seconds in gaps() {
            let hosts = NetnsPair::new(1500).unwrap();
            let listen = format!("{}:0", Side::B.ipv4());
            let rights = ["--allow-read", "--allow-write", "--allow-delete", "--allow-owners"];
            let serve = || Program::serve(test, &listen, &rights);
            let (server, at) = hosts.run_in(Side::B, serve).unwrap();
            let at = at.to_string();
            let copies: Vec<_> =
                (0..COPIES).map(|number| Copying::start(test, &hosts, &at, number)).collect();
            for copy in &copies {
                until("something of each copy", || copy.has_begun().then_some(()));
            }
            until("most bytes", || (carried(&hosts) > ALL / 4 * 3).then_some(()));
            set_link(&hosts, "down");
            let before = carried(&hosts);
            thread::sleep(Duration::from_secs(seconds));
            set_link(&hosts, "up");
            let back = Instant::now();
            let more = ALL.min(before + 1_000_000);
            until("bytes again", || (carried(&hosts) > more).then_some(()));
            let after = back.elapsed();
            let lost: u64 = copies.into_iter().map(Copying::finish).sum();
            let all = carried(&hosts);
            println!(
                "gone {seconds} s: 1 MB had moved {after:?} behind it, {lost} connections were lost, {all} \
                 bytes carried for {ALL}"
            );
            assert!(
                all < ALL + before / 4 * 3,
                "{all} bytes were carried, {before} of them before"
            );
            server.signal(Signal::TERM);
            server.end().assert_succeeded();
        }
    });
}

/// At the same time.
const COPIES: usize = 8;
/// Bytes of the large file of each copy, and of each small one.
const LARGE_LEN: usize = 12_000_000;
const SMALL_LEN: usize = 20_000;
const SMALL: u64 = 60;
/// Contents of all.
const ALL: u64 = COPIES as u64 * (LARGE_LEN as u64 + SMALL * SMALL_LEN as u64);
/// Bytes a second of each copy: it takes seconds, and what comes between two checkpoints is little of it.
const RATE: u64 = 2_000_000;
