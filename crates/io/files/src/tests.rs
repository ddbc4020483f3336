//! Real files through a source and a sink in one process, without a network.

mod altered;
mod attributes;
mod copied_hashes;
mod copies;
mod faults;
mod folding;
mod follow;
mod globs;
mod inherited;
mod leftovers;
mod listing;
mod missed;
mod owners;
mod places;
mod staged_directories;
mod top;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::storage;
use longhaul_objects::{Fsync, Sink, SinkConfig, Source, Verdict};
use longhaul_sys::sync::lock;
use longhaul_units::{Duration, Instant};
use longhaul_wire::{EntryCode, EntryEnd};

use super::*;

/// A copy in one process; what a step does is up to chance where threads share it.
struct Copy {
    tree: SourceTree,
    source: Mutex<Source>,
    sink: Mutex<Sink>,
    to: SinkTree,
    in_order: Mutex<()>,
    /// Time as the sink sees it.
    now: Mutex<Instant>,
}

impl Copy {
    fn new(tree: SourceTree, to: &Path) -> Self {
        Self::with(tree, Destination::Local(to), false).unwrap()
    }

    /// Scans all, and opens the destination.
    fn with(
        tree: SourceTree,
        to: Destination<'_>,
        is_directory: bool,
    ) -> Result<Self, DestinationError> {
        let transfer = transfer_id(&[b"test"], b"", true);
        let options = SinkOptions {
            is_directory,
            is_name: false,
            contents: false,
            transfer,
            fsync: Fsync::End,
            direct: false,
            only_empty: false,
            goes_on: true,
            dry_run: false,
            stays: false,
            keeps_modes: false,
            keeps: Default::default(),
        };
        Self::opened(tree, to, options)
    }

    fn opened(
        tree: SourceTree,
        to: Destination<'_>,
        options: SinkOptions,
    ) -> Result<Self, DestinationError> {
        let transfer = options.transfer;
        let (to, resume) = SinkTree::open(to, &options)?;
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let mut nonce = [0; 16];
        nonce[..4].copy_from_slice(&RUNS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let config = SinkConfig { transfer, nonce, ..SinkConfig::default() };
        let mut source = Source::default();
        let mut scan = tree.scan();
        while let Some(scanned) = scan.next() {
            match scanned {
                Scanned::Entry(entry) => scan.number(source.push_entry(entry).unwrap().unwrap()),
                Scanned::Failed(failure) => {
                    let id = source.push_entry(failure.stand_in.unwrap()).unwrap().unwrap();
                    source.entry_failed(id, failure.end);
                }
            }
        }
        source.finish_entries();
        Ok(Self {
            tree,
            source: Mutex::new(source),
            sink: Mutex::new(Sink::new(config, resume)),
            to,
            in_order: Mutex::new(()),
            now: Mutex::new(Instant::ZERO),
        })
    }

    /// Runs to the end on two threads.
    fn run(&self) {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut idle = 0;
                    while !self.is_done() {
                        idle = if self.step() { 0 } else { idle + 1 };
                        assert!(idle < 10_000_000, "stuck");
                        std::thread::yield_now();
                    }
                });
            }
        });
    }

    /// Runs on this thread until `end`, or to the end.
    fn run_until(&self, end: impl Fn(&Sink) -> bool) {
        while !self.is_done() && !end(&lock(&self.sink)) {
            assert!(self.step(), "stuck");
        }
    }

    fn is_done(&self) -> bool {
        lock(&self.source).is_done()
    }

    /// Lets the time for the next checkpoint come.
    fn wait(&self) {
        let mut now = lock(&self.now);
        *now += Duration::from_secs(2);
    }

    fn step(&self) -> bool {
        self.exchange() | self.act() | self.move_group()
    }

    fn exchange(&self) -> bool {
        let (mut source, mut sink) = (lock(&self.source), lock(&self.sink));
        let mut any = false;
        while let Some(message) = source.poll_message() {
            any = true;
            sink.handle(message).unwrap();
        }
        while let Some(message) = sink.poll_message() {
            any = true;
            source.handle(message).unwrap();
        }
        any
    }

    fn act(&self) -> bool {
        let order = lock(&self.in_order);
        let now = *lock(&self.now);
        let Some(action) = lock(&self.sink).poll_action(now) else {
            return false;
        };
        let parallel = matches!(action, longhaul_objects::Action::Publish(_));
        let order = (!parallel).then_some(order);
        let answer = storage::perform(&mut self.to.storage(), action).unwrap();
        lock(&self.sink).handle_answer(answer);
        drop(order);
        true
    }

    /// Runs on this thread until the destination fails as a whole, and says how.
    fn run_to_failure(&self) -> String {
        loop {
            self.exchange();
            let action = lock(&self.sink).poll_action(*lock(&self.now));
            if let Some(action) = action {
                match storage::perform(&mut self.to.storage(), action) {
                    Ok(answer) => lock(&self.sink).handle_answer(answer),
                    Err(failure) => return failure.to_string(),
                }
            }
            self.move_group();
            assert!(!self.is_done(), "it came to its end");
        }
    }

    fn move_group(&self) -> bool {
        let credit = lock(&self.sink).credit();
        let Some(task) = lock(&self.source).next_group(credit) else {
            return false;
        };
        let mut buffer = vec![0xee; 1 << 20];
        let failed = self.tree.read_group(&task, &mut buffer);
        let data = &buffer[..task.len as usize];
        let value = group_chaining_value(data, task.group, task.only);
        let mut source = lock(&self.source);
        failed.into_iter().for_each(|(id, end)| source.entry_failed(id, end));
        source.group_hashed(task.object, task.group, value);
        drop(source);
        let verdict = lock(&self.sink).group_received(task.object, task.group, value);
        if let Verdict::Write(write) = verdict {
            let failed = storage::write(&mut self.to.storage(), &write, data);
            lock(&self.sink).group_written(&write, &failed);
        }
        true
    }

    /// Path and reason of what failed, at either side.
    fn failures(&self) -> Vec<(String, String)> {
        let source = lock(&self.source);
        let failures = source.failures().iter();
        failures.map(|entry| (entry.path.to_string(), entry.end.reason.clone())).collect()
    }

    /// Codes of these, in the order of their paths.
    fn codes(&self) -> Vec<EntryCode> {
        let mut failures = lock(&self.source).failures().to_vec();
        failures.sort_by(|one, other| one.path.as_bytes().cmp(other.path.as_bytes()));
        failures.iter().map(|entry| entry.end.code).collect()
    }

    fn confirmed(&self) -> u32 {
        lock(&self.source).stats().confirmed
    }

    fn resumed(&self) -> u64 {
        lock(&self.sink).stats().resumed_bytes
    }
}

/// Copies `from` to `to` and expects no failure.
fn copy(from: &Path, to: &Path) {
    let copy = Copy::new(SourceTree::local(&[from.to_path_buf()], false), to);
    copy.run();
    assert_eq!(copy.failures(), []);
}

/// A directory of its own for each test, removed at the end.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("longhaul-files-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        Self { path }
    }

    /// A path in it.
    fn at(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    /// A file in it, with the directories that it needs.
    fn file(&self, path: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, contents).unwrap();
        path
    }

    fn directory(&self, path: &str) -> PathBuf {
        let path = self.path.join(path);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path.join(path)).unwrap()
    }

    /// Names in the directory `path`, sorted.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path.join(path)).unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.unwrap().file_name().as_bytes().escape_ascii().to_string()
        };
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Everything below `root`: mode, modification time in seconds (links excepted) and nanoseconds,
/// and contents or target.
fn snapshot(root: &Path) -> BTreeMap<Vec<u8>, (u32, i64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(path) = pending.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let contents = if metadata.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            pending.extend(entries.map(|entry| entry.unwrap().path()));
            b"directory".to_vec()
        } else if metadata.is_symlink() {
            std::fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
        } else {
            std::fs::read(&path).unwrap()
        };
        let key = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
        let about = (metadata.mode(), metadata.mtime(), metadata.mtime_nsec(), contents);
        found.insert(key, about);
    }
    found
}

/// Bytes that differ from place to place.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 1009 + seed * 7) as u8).collect()
}

/// Runs `run` as a user without rights, where the tests have those of root.
fn without_rights(run: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let uid = rustix::thread::Uid::from_raw(NOBODY);
                let gid = rustix::thread::Gid::from_raw(NOBODY);
                rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            }
            run();
        });
        thread.join().unwrap();
    });
}

/// Number of the user and group "nobody".
const NOBODY: u32 = 65534;
