//! Copies that end at drawn moments, by a kill of either side or a full disk, and are made again.
//!
//! `LONGHAUL_MOMENTS` says how many moments are drawn, `LONGHAUL_MOMENTS_FROM` the first.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use longhaul_needs::needs;
use rustix::process::Signal;
use serde_json::Value;

use crate::program::{Program, Tmpfs};
use crate::rsync::Draw;
use crate::test::{Test, limited};
use crate::trees::{assert_nothing_half_done, assert_same, is_hidden, noise};

/// In `make test`.
const MOMENTS: u64 = 6;
/// Of every tree, which takes some 3 s at [`RATE`].
const LARGE: usize = 12_000_000;
/// Bytes a second, headers included.
const RATE: u64 = 5_000_000;
/// Bytes that may be sent again after an end: what comes in the second between two checkpoints and in another one that a
/// checkpoint may take, and what is under way: a bundle and some groups.
const AGAIN_MOST: u64 = 2 * RATE + (1 << 20);

/// Each with the time and the directories of a test.
fn each_moment(check: fn(&Test, u64, &mut Draw)) {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap())
    };
    let from = number("LONGHAUL_MOMENTS_FROM", 1);
    for seed in from..from + number("LONGHAUL_MOMENTS", MOMENTS) {
        limited(move |test| check(test, seed, &mut Draw(seed)));
    }
}

/// Small files in directories, and a large one.
fn fill(tree: &Path) {
    for directory in ["a", "b/c", "d"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
        for number in 0..40 {
            let size = 1_000 + 1_700 * number as usize;
            fs::write(tree.join(directory).join(number.to_string()), noise(number, size)).unwrap();
        }
    }
    fs::write(tree.join("large"), noise(77, LARGE)).unwrap();
}

/// A copy of `tree` that is drawn, with what it has: the two ends, and the words of the command.
struct Drawn {
    from: PathBuf,
    /// The copy.
    to: PathBuf,
    pushes: bool,
    deletes: bool,
}

impl Drawn {
    /// With an earlier copy at its destination, of which something is no more.
    fn new(test: &Test, draw: &mut Draw, below: &str) -> Self {
        let (pushes, deletes) = (draw.one_in(2), draw.one_in(2));
        let (from, to) = match pushes {
            true => (test.here("tree"), test.there(below).join("tree")),
            false => (test.there("tree"), test.here(below).join("tree")),
        };
        for old in [&from, &to] {
            let _ = fs::remove_dir_all(old);
        }
        fill(&from);
        fs::create_dir_all(to.join("a")).unwrap();
        fs::write(to.join("a/more"), "more").unwrap();
        Self { from, to, pushes, deletes }
    }

    fn start<'t>(&self, test: &'t Test, at: SocketAddr, below: &str, retry: &str) -> Program<'t> {
        let place = format!("lh://{at}/");
        let words = match self.pushes {
            true => ["here/tree".into(), format!("{place}{below}/")],
            false => [format!("{place}tree"), format!("here/{below}/")],
        };
        let words = words.each_ref().map(String::as_str);
        let fixed = ["cp", "--json", "--retry", retry, "--rate", "40Mbps", "--token-file", "token"];
        let delete = if self.deletes { &["-a", "--delete"][..] } else { &[] };
        Program::start(test, &[&fixed[..], delete, &words].concat())
    }

    /// Asserts that all there is whole, and nothing was deleted before all was.
    fn assert_sound(&self, seed: u64) {
        assert_eq!(fs::read(self.to.join("a/more")).unwrap(), b"more", "seed {seed}");
        fs::remove_file(self.to.join("a/more")).unwrap();
        assert_nothing_half_done(&self.from, &self.to);
        fs::write(self.to.join("a/more"), "more").unwrap();
    }

    /// Asserts that the second run moved what the first had not, and little of the rest.
    fn assert_little_again(&self, seed: u64, arrived: u64, second: &Value) {
        let all = bytes_below(&self.from);
        let moved = second["bytes"].as_u64().unwrap() - second["resumed_bytes"].as_u64().unwrap();
        let again = moved.saturating_sub(all.saturating_sub(arrived));
        assert!(again <= AGAIN_MOST, "seed {seed}: {again} bytes again of {arrived}: {second}");
    }

    /// All is there, and nothing else.
    fn assert_done(&self, seed: u64) {
        let more = self.to.join("a/more");
        assert_eq!(more.exists(), !self.deletes, "seed {seed}");
        let _ = fs::remove_file(more);
        assert_same(&self.from, &self.to);
        let above = fs::read_dir(self.to.parent().unwrap()).unwrap().map(Result::unwrap);
        let hidden: Vec<_> = above.filter(|entry| is_hidden(&entry.file_name())).collect();
        assert!(hidden.is_empty(), "seed {seed}: {hidden:?}");
    }
}

/// Bytes of all files below a directory.
fn bytes_below(at: &Path) -> u64 {
    let entries = fs::read_dir(at).unwrap().map(Result::unwrap);
    let of = |entry: fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => bytes_below(&entry.path()),
        false => entry.metadata().unwrap().len(),
    };
    entries.map(of).sum()
}

/// Bytes that a server's log has of a transfer that was broken off; 0 of one that had not begun, which has no line.
fn bytes_logged(server: &Program<'_>) -> u64 {
    for _ in 0..100 {
        let text = server.printed();
        let line = text.lines().find(|line| line.contains("\"outcome\"") && line.ends_with('}'));
        if let Some(line) = line {
            return serde_json::from_str::<Value>(line).unwrap()["bytes"].as_u64().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    0
}

const RIGHTS: [&str; 6] =
    ["--allow-read", "--allow-write", "--allow-delete", "--allow-owners", "--log", "json"];

fn serve<'t>(test: &'t Test, listen: &str) -> (Program<'t>, SocketAddr) {
    Program::serve(test, listen, &RIGHTS)
}

/// At the address of the one before, once that is free.
fn serve_again<'t>(test: &'t Test, at: SocketAddr) -> Program<'t> {
    let listen = at.to_string();
    let fixed = ["serve", "--listen", &listen, "--root", "there", "--token-file", "token"];
    for _ in 0..100 {
        let mut server = Program::start(test, &[&fixed[..], &RIGHTS].concat());
        if server.prints_or_ends("listening on ") {
            return server;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the port is not free");
}

#[test]
fn either_side_killed_at_a_drawn_moment_leaves_what_the_same_command_goes_on_from() {
    each_moment(|test, seed, draw| {
        let drawn = Drawn::new(test, draw, "into");
        let (mut server, at) = serve(test, "127.0.0.1:0");
        let copying = drawn.start(test, at, "into", "0");
        std::thread::sleep(Duration::from_millis(draw.below(3_000)));
        let (first, arrived) = if draw.one_in(2) {
            server.signal(Signal::KILL);
            server.end();
            let first = copying.end();
            server = serve_again(test, at);
            // A copy that had no connection yet tells no bytes.
            let arrived = first.json()["bytes_done"].as_u64().unwrap_or(0);
            (first, arrived)
        } else {
            copying.signal(Signal::KILL);
            let first = copying.end();
            let arrived = if first.status.is_none() { bytes_logged(&server) } else { 0 };
            (first, arrived)
        };
        if first.status != Some(0) {
            drawn.assert_sound(seed);
        }
        let second = drawn.start(test, at, "into", "20s").end();
        assert_eq!(second.status, Some(0), "seed {seed}: {first:?}, then {second:?}");
        drawn.assert_little_again(seed, arrived, &second.json());
        drawn.assert_done(seed);
        server.signal(Signal::KILL);
        server.end();
    });
}

#[needs(mounts)]
#[test]
fn a_disk_that_is_full_at_a_drawn_point_fails_the_copy_and_the_same_command_goes_on_once_it_has_room()
 {
    each_moment(|test, seed, draw| {
        let below = format!("disk{seed}");
        let pushes = Draw(seed).one_in(2);
        let disk = if pushes { test.there(&below) } else { test.here(&below) };
        let size = 3_000_000 + draw.below(LARGE as u64);
        let _mounted = Tmpfs::mount(disk.clone(), &format!("size={size}"));
        let drawn = Drawn::new(test, &mut Draw(seed), &below);
        assert_eq!(drawn.pushes, pushes);
        let (server, at) = serve(test, "127.0.0.1:0");
        let first = drawn.start(test, at, &below, "0").end();
        assert_eq!(first.status, Some(1), "seed {seed}: {first:?}");
        drawn.assert_sound(seed);
        let arrived = bytes_logged(&server);
        let freed = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&disk).status();
        assert!(freed.unwrap().success());
        let second = drawn.start(test, at, &below, "20s").end();
        assert_eq!(second.status, Some(0), "seed {seed}: {first:?}, then {second:?}");
        drawn.assert_little_again(seed, arrived, &second.json());
        drawn.assert_done(seed);
        server.signal(Signal::KILL);
        server.end();
    });
}
