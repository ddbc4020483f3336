//! Two builds of `longhaul` beside each other: CPU time and duration of the same copies, in turns.
//!
//! `cargo run --release -p longhaul-bench --example beside OLD NEW [PAIRS [CASE]]`
//!
//! Each pair is one copy by either program over loopback, from memory to memory, the order changed from
//! pair to pair. CPU time is that of `serve` and `cp` together, as the kernel books it. A row shows the
//! median of the pairs' ratios, new to old, and between which ratios half of the pairs lie.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{array, env};

use longhaul_bench::processes::{Served, make_random, make_token, success};
use longhaul_sys::clock::CpuTime;
use longhaul_sys::memory::HeldPages;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tempfile::TempDir;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = env::args().skip(1);
    let mut program = || arguments.next().map(PathBuf::from).ok_or("needs OLD and NEW");
    let programs = [program()?, program()?];
    let pairs = arguments.next().map_or(Ok(11), |pairs| pairs.parse())?;
    let only = arguments.next();
    let files = Files::new()?;
    println!("{:22} {:>6}  {:>21}  {:>21}", "new to old", "pairs", "CPU time", "duration");
    for case in CASES.iter().filter(|case| only.as_ref().is_none_or(|only| case.0.contains(only))) {
        let mut ratios = [Vec::new(), Vec::new()];
        // The first pair warms up.
        for pair in 0..=pairs {
            let mut costs = [[0.0; 2]; 2];
            for turn in 0..2 {
                let which = (pair + turn) % 2;
                costs[which] = files.copy(&programs[which], case)?;
            }
            if pair > 0 {
                let ratio: [f64; 2] = array::from_fn(|of| costs[1][of] / costs[0][of]);
                ratios.iter_mut().zip(ratio).for_each(|(all, ratio)| all.push(ratio));
            }
        }
        let [cpu, duration] = ratios.map(spread);
        println!("{:22} {pairs:6}  {cpu:>21}  {duration:>21}", case.0);
        io::stdout().flush()?;
    }
    Ok(())
}

/// Name, source, true if the server sends, further options of `cp`.
type Case = (&'static str, &'static str, bool, &'static [&'static str]);

const CASES: [Case; 7] = [
    ("push, UDP", "large", false, &["--carrier", "udp"]),
    ("pull, UDP", "large", true, &["--carrier", "udp"]),
    ("push, UDP, integrity", "large", false, &["--carrier", "udp", "--protect", "integrity"]),
    ("push, TCP", "large", false, &["--carrier", "tcp"]),
    ("pull, TCP", "large", true, &["--carrier", "tcp"]),
    ("push, small files", "small", false, &["--carrier", "udp"]),
    ("pull, small files", "small", true, &["--carrier", "udp"]),
];

/// Median, and the quarters beside it.
fn spread(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    let at = |part: usize| ratios.get(ratios.len() * part / 4).copied().unwrap_or(f64::NAN);
    format!("{:.3} ({:.3} to {:.3})", at(2), at(1), at(3))
}

/// One large file and many small ones in memory. Removed when dropped.
struct Files {
    folder: TempDir,
    token: PathBuf,
    /// So that a virtual machine need not fetch memory from its host while a copy is measured.
    _held_pages: HeldPages,
}

impl Files {
    fn new() -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("longhaul-beside-").tempdir_in("/dev/shm")?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        fs::create_dir(folder.path().join("large"))?;
        make_random(&folder.path().join("large/file"), 1_000 << 20, &mut random)?;
        for index in 0..20_000 {
            let parent = folder.path().join(format!("small/{:03}", index / 100));
            fs::create_dir_all(&parent)?;
            make_random(&parent.join(index.to_string()), 10 << 10, &mut random)?;
        }
        let token = folder.path().join("token");
        Ok(Self { folder, token, _held_pages: HeldPages::new(1_200 << 20)? })
    }

    /// CPU time of both processes and duration of the command, in seconds.
    fn copy(&self, program: &Path, (_, source, pull, options): &Case) -> Outcome<[f64; 2]> {
        let target = tempfile::Builder::new().prefix("target-").tempdir_in(self.folder.path())?;
        let source = self.folder.path().join(source);
        make_token(program, &self.token)?;
        let before = CpuTime::of_children();
        let mut server = Command::new(program);
        server.args(["serve", "--once", "--listen", "127.0.0.1:0", "--root"]);
        server.arg(if *pull { &source } else { target.path() });
        server.arg("--token-file").arg(&self.token);
        let server = Served::start(server, |mut server| server.spawn())?;
        let address = &server.address;
        let mut client = Command::new(program);
        client.args(["cp", "--json", "--quiet", "--token-file"]).arg(&self.token).args(*options);
        if *pull {
            client.arg(format!("lh://{address}/")).arg(target.path().join("copy"));
        } else {
            client.arg(&source).arg(format!("lh://{address}/copy"));
        }
        let start = Instant::now();
        success(client.stdout(Stdio::null()).status()?.success(), "longhaul cp")?;
        let duration = start.elapsed();
        server.end()?;
        let cpu = CpuTime::of_children().since(before).total();
        Ok([cpu, duration].map(|time: Duration| time.as_secs_f64()))
    }
}
