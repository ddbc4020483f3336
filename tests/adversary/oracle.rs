//! Conditions that must hold of the program whatever its peer does: it ends in time, without a panic, in
//! bounded memory, without a file that nobody asked for, and a server goes on serving.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::peer::{Peer, WAYS, Way};
use crate::program::{Ended, Program};
use crate::script::{Ending, Item, request, source};
use crate::test::{Test, until};
use crate::trees::{is_hidden, names};

/// A server of the test's folder `there`, that is attacked.
pub struct Victim<'t> {
    test: &'t Test,
    program: Program<'t>,
    pub address: SocketAddr,
}

impl<'t> Victim<'t> {
    pub fn start(test: &'t Test) -> Self {
        Self::start_with(test, &STALL)
    }

    pub fn start_with(test: &'t Test, words: &[&str]) -> Self {
        let (program, address) = Program::serve(test, "127.0.0.1:0", words);
        Self { test, program, address }
    }

    /// A hostile client of it that pushes `items` to `to`, once `prepare` has had its way.
    pub fn push(
        &self,
        way: Way,
        to: &[u8],
        items: &[Item],
        prepare: impl FnOnce(&mut Peer),
    ) -> Ending {
        let mut peer = until("a server with room", || match Peer::dial(self.address, way) {
            Ok(peer) => Some(peer),
            // What the last client took is given back when the server has seen it leave.
            Err(error) if error.to_string().contains("try again later") => None,
            Err(error) => panic!("{error}"),
        });
        prepare(&mut peer);
        peer.message(request(false, 1, &[to]));
        let ending = source(&mut peer, items, PATIENCE);
        peer.hang_up();
        ending
    }

    /// It still serves who behaves, has not panicked, and has taken no more memory than it may.
    pub fn assert_serves(&self) {
        let contents = crate::trees::noise(99, 3_000);
        let name =
            format!("honest-{:?}", Instant::now()).replace(|c: char| !c.is_alphanumeric(), "");
        let items = [Item::file(name.as_bytes(), &contents)];
        let ending = self.push(WAYS[0], b"", &items, |_| {});
        assert_eq!(ending.result, Some((1, 0)), "{ending:?}");
        assert!(fs::read(self.test.there(&name)).unwrap() == contents);
        fs::remove_file(self.test.there(&name)).unwrap();
        self.assert_sound();
    }

    /// Its log.
    pub fn stderr_so_far(&self) -> String {
        self.program.stderr_so_far()
    }

    /// Memory that it has at present, in bytes.
    pub fn memory(&self) -> u64 {
        memory(self.program.id(), "VmRSS:")
    }

    /// The most that it has had.
    pub fn peak(&self) -> u64 {
        peak_memory(self.program.id())
    }

    pub fn assert_sound(&self) {
        let stderr = self.stderr_so_far();
        assert!(!stderr.contains("panicked"), "{stderr}");
        assert_memory(peak_memory(self.program.id()));
    }
}

/// Waits for a program that was attacked.
pub fn end(program: Program<'_>) -> Ended {
    end_within(program, MEMORY)
}

/// The same of one that may take so much memory.
pub fn end_within(program: Program<'_>, memory: u64) -> Ended {
    let (id, begun) = (program.id(), Instant::now());
    let mut peak = 0;
    let ended = program.end_watched(|| {
        peak = peak.max(peak_memory(id));
        assert!(begun.elapsed() < BOUND, "does not end");
    });
    assert_eq!(ended.signal, None, "{ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
    assert!(peak < memory, "{} MiB of memory", peak >> 20);
    ended
}

/// Most memory that a process has had, in bytes.
fn peak_memory(id: u32) -> u64 {
    memory(id, "VmHWM:")
}

fn memory(id: u32, which: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(which));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn assert_memory(peak: u64) {
    assert!(peak < MEMORY, "{} MiB of memory", peak >> 20);
}

/// Below `root` is nothing but these names, and what copies keep hidden.
pub fn assert_only(root: &Path, allowed: &[&str]) {
    let found: Vec<_> = names(root).into_iter().filter(|name| !is_hidden(name)).collect();
    assert!(found.iter().all(|name| allowed.iter().any(|one| name == one)), "{found:?}");
}

/// Beside the folders of both ends nothing was made but the history of paths and the secret, which the
/// end that sends keeps in its own home.
pub fn assert_nothing_beside(folder: &Path) {
    assert_only(folder, &["here", "there", "token", ".local"]);
    let state = folder.join(".local/state");
    if state.exists() {
        assert_only(&folder.join(".local"), &["state"]);
        assert_only(&state, &["longhaul"]);
        let kept = names(&state.join("longhaul"));
        let own =
            |name: &OsString| name == "secret" || name.to_string_lossy().starts_with("history.");
        assert!(kept.iter().all(own), "{kept:?}");
    }
}

/// In this time everything attacked has ended: more than the idle timeout of 30 s and [`STALL`].
pub const BOUND: Duration = Duration::from_secs(60);
/// A transfer that stands still is given up sooner than users want.
pub const STALL: [&str; 2] = ["--stall-timeout", "10"];
/// Time that a peer plays on; enough for what is to succeed.
pub const PATIENCE: Duration = Duration::from_secs(8);
/// 192 MiB for what is under way, twice for a server that ends one transfer as another begins.
const MEMORY: u64 = 512 << 20;
