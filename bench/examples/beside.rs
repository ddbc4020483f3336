//! Two builds of `longhaul` beside each other: CPU time and duration of the same copies, in turns.
//!
//! `cargo run --release -p longhaul-bench --example beside OLD NEW [PAIRS [CASE]]`
//!
//! Each pair is one copy by either program over loopback, from memory to memory, the order changed from
//! pair to pair. CPU time is that of `serve` and `cp` together, as the kernel books it. A row shows the
//! median of the pairs' ratios, new to old, and between which ratios half of the pairs lie.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{array, env};

use longhaul_sys::clock::CpuTime;
use longhaul_sys::memory::HeldPages;
use rand_core::Rng;
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
        let mut block = vec![0; 1 << 20];
        fs::create_dir(folder.path().join("large"))?;
        let mut large = File::create(folder.path().join("large/file"))?;
        for _ in 0..1000 {
            random.fill_bytes(&mut block);
            large.write_all(&block)?;
        }
        for index in 0..20_000 {
            let parent = folder.path().join(format!("small/{:03}", index / 100));
            fs::create_dir_all(&parent)?;
            random.fill_bytes(&mut block[..10 << 10]);
            fs::write(parent.join(index.to_string()), &block[..10 << 10])?;
        }
        let token = folder.path().join("token");
        Ok(Self { folder, token, _held_pages: HeldPages::new(1_200 << 20)? })
    }

    /// CPU time of both processes and duration of the command, in seconds.
    fn copy(&self, program: &Path, (_, source, pull, options): &Case) -> Outcome<[f64; 2]> {
        let target = tempfile::Builder::new().prefix("target-").tempdir_in(self.folder.path())?;
        let source = self.folder.path().join(source);
        if !self.token.exists() {
            let mut keys = Command::new(program);
            keys.args(["keys", "new", "--quiet", "--token-file"]).arg(&self.token);
            success(keys.stdout(Stdio::null()).status()?.success(), "longhaul keys")?;
        }
        let before = CpuTime::of_children();
        let mut server = Command::new(program);
        server.args(["serve", "--once", "--listen", "127.0.0.1:0", "--root"]);
        server.arg(if *pull { &source } else { target.path() });
        server.arg("--token-file").arg(&self.token).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut server = Ended(server.spawn()?);
        let mut lines = BufReader::new(server.0.stderr.take().ok_or("no standard error")?);
        let address = listening(&mut lines)?;
        let drain = std::thread::spawn(move || io::copy(&mut lines, &mut io::sink()));
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
        success(server.0.wait()?.success(), "longhaul serve")?;
        let _ = drain.join();
        let cpu = CpuTime::of_children().since(before).total();
        Ok([cpu, duration].map(|time: Duration| time.as_secs_f64()))
    }
}

/// The address in the server's first words.
fn listening(lines: &mut impl BufRead) -> Outcome<String> {
    let mut line = String::new();
    while lines.read_line(&mut line)? != 0 {
        if let Some(rest) = line.strip_prefix("listening on ") {
            return Ok(rest.split([',', '\n']).next().unwrap_or_default().to_owned());
        }
        line.clear();
    }
    Err("longhaul serve does not listen".into())
}

fn success(done: bool, what: &str) -> Outcome<()> {
    if done { Ok(()) } else { Err(format!("{what} did not succeed").into()) }
}

/// A process that does not outlive this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
