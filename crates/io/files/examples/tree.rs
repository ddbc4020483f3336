//! Speed of files through `SourceTree` and `SinkTree` with nothing between them: no network, no
//! cipher, but every hash and every message.
//!
//! `cargo run --release -p longhaul-files --example tree -- DIR [FILES [BYTES [THREADS [sync]]]]`
//! makes FILES files of BYTES in 200 directories below DIR, copies them within it, and says how
//! long that took, and how many CPU-seconds each part.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longhaul_files::{
    Destination, Scan, Scanned, SinkOptions, SinkTree, SourceTree, boot_id, transfer_id,
};
use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::storage;
use longhaul_objects::{Action, Fsync, Sink, SinkConfig, Source, Verdict};
use longhaul_sys::clock::{process_cpu_time, thread_cpu_time};
use longhaul_sys::sync::lock;
use longhaul_units::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let number = |index: usize, default: usize| -> Result<usize, std::num::ParseIntError> {
        args.get(index).map_or(Ok(default), |text| text.parse())
    };
    let directory = PathBuf::from(args.get(1).ok_or("where? DIR [FILES [BYTES [THREADS]]]")?);
    let (files, bytes, threads) = (number(2, 20_000)?, number(3, 10 << 10)?, number(4, 2)?);
    let sync = args.get(5).is_some_and(|word| word == "sync");
    let from = directory.join("tree-from");
    let to = directory.join("tree-to");
    generate(&from, files, bytes)?;
    for run in 0..RUNS {
        if to.exists() {
            std::fs::remove_dir_all(&to)?;
        }
        let (start, before) = (std::time::Instant::now(), process_cpu_time());
        let copy = Copy::new(&from, &to, sync)?;
        let scan = Mutex::new(Some(copy.tree.scan()));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| copy.work(&scan));
            }
        });
        let seconds = start.elapsed().as_secs_f64();
        let cpu = (process_cpu_time() - before).as_nanos() as f64 / 1e9;
        let source = lock(&copy.source);
        let summary = source.result().ok_or("the copy ended early")?;
        println!(
            "run {run}: {} entries, {:.0} MB, {} failed in {seconds:.3} s, {cpu:.3} CPU-seconds: {}",
            summary.confirmed,
            summary.bytes.get() as f64 / 1e6,
            summary.failed,
            copy.times.shown(),
        );
    }
    std::fs::remove_dir_all(&from)?;
    std::fs::remove_dir_all(&to)?;
    Ok(())
}

fn generate(root: &Path, files: usize, bytes: usize) -> std::io::Result<()> {
    let mut contents: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 977) as u8).collect();
    for number in 0..files {
        let directory = root.join(format!("directory-{}", number % DIRECTORIES));
        if number < DIRECTORIES {
            std::fs::create_dir_all(&directory)?;
        }
        let head = contents.len().min(8);
        contents[..head].copy_from_slice(&number.to_le_bytes()[..head]);
        std::fs::write(directory.join(format!("file-{number}")), &contents)?;
    }
    Ok(())
}

struct Copy {
    tree: SourceTree,
    source: Mutex<Source>,
    sink: Mutex<Sink>,
    sink_tree: SinkTree,
    /// Held while something is done that has to be done in order.
    in_order: Mutex<()>,
    failed: AtomicBool,
    start: std::time::Instant,
    times: Times,
}

impl Copy {
    fn new(from: &Path, to: &Path, sync: bool) -> Result<Self, Box<dyn Error>> {
        let transfer = transfer_id(&[b"tree"], to.as_os_str().as_encoded_bytes(), true);
        let fsync = if sync { Fsync::End } else { Fsync::Never { boot: boot_id()? } };
        let options = SinkOptions {
            is_directory: false,
            is_name: false,
            contents: false,
            transfer,
            fsync,
            direct: false,
            only_empty: false,
            goes_on: true,
        };
        let (sink_tree, resume) = SinkTree::open(Destination::Local(to), &options)?;
        let config = SinkConfig { transfer, fsync, ..SinkConfig::default() };
        Ok(Self {
            tree: SourceTree::local(&[from.to_path_buf()], false),
            source: Mutex::new(Source::default()),
            sink: Mutex::new(Sink::new(config, resume)),
            sink_tree,
            in_order: Mutex::new(()),
            failed: AtomicBool::new(false),
            start: std::time::Instant::now(),
            times: Times::default(),
        })
    }

    fn work(&self, scan: &Mutex<Option<Scan<'_>>>) {
        let mut buffer = vec![0; 1 << 20];
        while !lock(&self.source).is_done() && !self.failed.load(Ordering::Relaxed) {
            let busy = [self.scan(scan), self.exchange(), self.act(), self.move_group(&mut buffer)];
            if busy == [false; 4] {
                std::thread::yield_now();
            }
        }
    }

    fn scan(&self, scan: &Mutex<Option<Scan<'_>>>) -> bool {
        let Ok(mut scan) = scan.try_lock() else {
            return false;
        };
        if scan.is_none() || !lock(&self.source).wants_entries() {
            return false;
        }
        let found: Vec<Scanned> =
            self.times.of(SCAN, || scan.iter_mut().flatten().take(BATCH).collect());
        let mut source = lock(&self.source);
        if found.is_empty() {
            *scan = None;
            source.finish_entries();
        }
        for scanned in found {
            match scanned {
                Scanned::Entry(entry) => drop(source.push_entry(entry)),
                Scanned::Failed(failure) => eprintln!("{}", failure.end),
            }
        }
        true
    }

    fn exchange(&self) -> bool {
        let Ok(mut source) = self.source.try_lock() else {
            return false;
        };
        let mut sink = lock(&self.sink);
        self.times.of(MESSAGES, || {
            let mut any = false;
            while let Some(message) = source.poll_message() {
                any = true;
                self.failed.fetch_or(sink.handle(message).is_err(), Ordering::Relaxed);
            }
            while let Some(message) = sink.poll_message() {
                any = true;
                self.failed.fetch_or(source.handle(message).is_err(), Ordering::Relaxed);
            }
            any
        })
    }

    fn act(&self) -> bool {
        let Ok(order) = self.in_order.try_lock() else {
            return false;
        };
        let elapsed = Duration::from_nanos(self.start.elapsed().as_nanos() as u64);
        let Some(action) = lock(&self.sink).poll_action(Instant::ZERO + elapsed) else {
            return false;
        };
        let (part, order) = match &action {
            Action::Publish(_) => (PUBLISH, None),
            Action::Checkpoint(_) => (CHECKPOINT, None),
            _ => (ACTIONS, Some(order)),
        };
        let perform = || storage::perform(&mut self.sink_tree.storage(), action);
        match self.times.of(part, perform) {
            Ok(answer) => lock(&self.sink).handle_answer(answer),
            Err(error) => {
                eprintln!("{error}");
                self.failed.store(true, Ordering::Relaxed);
            }
        }
        drop(order);
        true
    }

    fn move_group(&self, buffer: &mut [u8]) -> bool {
        let credit = lock(&self.sink).credit();
        let Some(task) = lock(&self.source).next_group(credit) else {
            return false;
        };
        let failed = self.times.of(READ, || self.tree.read_group(&task, buffer));
        let data = &buffer[..task.len as usize];
        let value = self.times.of(HASH, || group_chaining_value(data, task.group, task.only));
        let mut source = lock(&self.source);
        failed.into_iter().for_each(|(id, end)| source.entry_failed(id, end));
        source.group_hashed(task.object, task.group, value);
        drop(source);
        let verdict = lock(&self.sink).group_received(task.object, task.group, value);
        if let Verdict::Write(write) = verdict {
            let written = || storage::write(&mut self.sink_tree.storage(), &write, data);
            let failed = self.times.of(WRITE, written);
            lock(&self.sink).group_written(&write, &failed);
        }
        true
    }
}

#[derive(Default)]
struct Times([AtomicU64; PARTS.len()]);

impl Times {
    fn of<T>(&self, part: usize, run: impl FnOnce() -> T) -> T {
        let before = thread_cpu_time();
        let result = run();
        let spent = thread_cpu_time() - before;
        self.0[part].fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
        result
    }

    fn shown(&self) -> String {
        let part = |(name, nanos): (&&str, &AtomicU64)| {
            format!("{name} {:.3}", nanos.load(Ordering::Relaxed) as f64 / 1e9)
        };
        PARTS.iter().zip(&self.0).map(part).collect::<Vec<_>>().join(", ")
    }
}

const PARTS: [&str; 8] =
    ["scan", "messages", "actions", "publish", "checkpoint", "read", "hash", "write"];
const SCAN: usize = 0;
const MESSAGES: usize = 1;
const ACTIONS: usize = 2;
const PUBLISH: usize = 3;
const CHECKPOINT: usize = 4;
const READ: usize = 5;
const HASH: usize = 6;
const WRITE: usize = 7;

const RUNS: usize = 5;
const DIRECTORIES: usize = 200;
const BATCH: usize = 256;
