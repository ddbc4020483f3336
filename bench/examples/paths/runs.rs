//! One run on a fresh testbed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use longhaul_bench::processes::{Ended, Served, make_random, make_token, success};
use longhaul_lab::pump::TcpPump;
use longhaul_lab::{
    Conditions, LineKind, LinkSpec, OtherCounts, OtherPath, Testbed, TestbedOptions, Topology,
    clean_up,
};
use longhaul_pathsim::DropReason;
use longhaul_sys::sync::lock;
use longhaul_wire::{AEAD_TAG_LEN, OBJECT_HEADER_LEN};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use serde_json::Value;
use tempfile::TempDir;

use super::Outcome;
use super::cells::Cell;
use super::results::{Contender, Run};

/// The emulator of the paths.
pub enum Emulator {
    Lab(LineKind),
    Other(PathBuf),
}

impl Emulator {
    pub fn named(name: &str) -> Self {
        match name {
            "lab" => Self::Lab(LineKind::Emulated),
            "htb" => Self::Lab(LineKind::Htb),
            program => Self::Other(program.into()),
        }
    }

    pub fn name(&self) -> String {
        match self {
            Self::Lab(LineKind::Emulated) => "lab".into(),
            Self::Lab(LineKind::Htb) => "htb".into(),
            Self::Other(program) => {
                program.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
        }
    }

    fn testbed(&self, cell: &Cell, seed: u64) -> Outcome<Testbed> {
        let _ = clean_up()?;
        Ok(match self {
            Self::Other(program) => {
                let (rtt, rate, queue, loss) = (cell.rtt(), cell.rate(), cell.queue(), cell.loss());
                Testbed::emulated_by(program, &OtherPath { rtt, rate, queue, loss, seed })?
            }
            Self::Lab(line) => {
                let both = Conditions {
                    delay: Some(cell.rtt() / 2),
                    rate: Some(cell.rate()),
                    queue: Some(cell.queue()),
                    ..Conditions::default()
                };
                let forward = Conditions { loss: Some(cell.loss()), ..Conditions::default() };
                let link = LinkSpec { line: *line, forward, ..LinkSpec::between_hosts(both) };
                Testbed::new(&Topology::two_hosts(link), &TestbedOptions { seed, log: 0 })?
            }
        })
    }

    /// Ends a testbed.
    fn counts(&self, testbed: Testbed) -> Outcome<OtherCounts> {
        if let Self::Other(_) = self {
            return Ok(testbed.close_other()?);
        }
        let stats = testbed.stats(0)?.forward;
        let count = |wanted: fn(&DropReason) -> bool| {
            let reasons = DropReason::ALL.into_iter().filter(wanted);
            reasons.map(|reason| stats.path.dropped(reason)).sum::<u64>()
        };
        let lost = count(|reason| *reason == DropReason::Random);
        let queue_dropped =
            stats.losses().map(|(_, count)| count).sum::<u64>().saturating_sub(lost);
        testbed.close()?;
        Ok(OtherCounts { packets: stats.packets_read, lost, queue_dropped })
    }
}

/// A file in memory for each rate, which holds what the link carries in some seconds.
pub struct Files {
    folder: TempDir,
    program: PathBuf,
    made: Mutex<HashMap<u64, PathBuf>>,
}

impl Files {
    pub fn new(program: &Path) -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("longhaul-paths-").tempdir_in("/dev/shm")?;
        make_token(program, &folder.path().join("token"))?;
        Ok(Self { folder, program: program.to_owned(), made: Mutex::default() })
    }

    fn of(&self, bytes: u64) -> Outcome<PathBuf> {
        let mut made = lock(&self.made);
        if let Some(path) = made.get(&bytes) {
            return Ok(path.clone());
        }
        let path = self.folder.path().join(bytes.to_string());
        make_random(&path, bytes, &mut Xoshiro256PlusPlus::seed_from_u64(bytes))?;
        made.insert(bytes, path.clone());
        Ok(path)
    }
}

/// Makes one run.
pub fn run(
    emulator: &Emulator,
    cell: &Cell,
    contender: Contender,
    seed: u64,
    files: &Files,
) -> Outcome<Run> {
    let testbed = emulator.testbed(cell, seed)?;
    let pump = |control: &str| -> Outcome<Run> {
        let pump = TcpPump::new(control, 8);
        let goodput = pump.goodput(&testbed, SETTLE.max(cell.rtt() * 30), LENGTH)?;
        let settled = goodput.as_bps() as f64 / cell.ideal_bps(TCP_HEADERS);
        Ok(Run { settled, ..Run::default() })
    };
    match contender {
        Contender::Bbr => pump("bbr"),
        Contender::Cubic => pump("cubic"),
        Contender::Auto => {
            let (report, settled_bps) = copy(&testbed, cell, files)?;
            let counts = emulator.counts(testbed)?;
            let number = |name: &str| report[name].as_f64().unwrap_or(f64::NAN);
            let lost = |cause: &str| report["lost"][cause].as_u64().unwrap_or(0);
            let ideal = cell.ideal_bps(UDP_HEADERS);
            let seconds = number("seconds") - number("setup_seconds");
            let time = 8.0 * number("bytes") / ideal;
            Ok(Run {
                settled: settled_bps / ideal,
                whole: time / seconds,
                seconds: [seconds, time / 0.97 + 4.0 * cell.rtt().as_secs_f64()],
                congestion: [counts.queue_dropped, lost("congestion")],
                random: [counts.lost, lost("random")],
                unknown: lost("unknown"),
                paused: report["hosts"]["sender"]["stalls"]["seconds"].as_f64().unwrap_or(0.0)
                    / number("seconds"),
            })
        }
    }
}

/// `longhaul cp`: its report, and its goodput from two seconds on.
fn copy(testbed: &Testbed, cell: &Cell, files: &Files) -> Outcome<(Value, f64)> {
    let (from, to) = testbed.ends();
    let bytes = cell.mbps * 1_000_000 / 8 * LENGTH.as_secs();
    let source = files.of(bytes)?;
    let target = tempfile::Builder::new().prefix("target-").tempdir_in(files.folder.path())?;
    let token = files.folder.path().join("token");
    let mut server = Command::new(&files.program);
    server.args(["serve", "--once", "--listen"]).arg(format!("{}:7420", to.ipv4()));
    server.arg("--root").arg(target.path()).arg("--token-file").arg(&token);
    let server = Served::start(server, |server| testbed.spawn(to, server))?;
    let [output, errors] = ["out", "err"].map(|name| files.folder.path().join(name));
    let mut client = Command::new(&files.program);
    client.args(["cp", "--json", "--quiet", "--no-history", "--stats", "500ms", "--token-file"]);
    client.arg(&token).arg(&source).arg(format!("lh://{}/copy", server.address));
    client.stdout(File::create(&output)?).stderr(File::create(&errors)?);
    let status = Ended(testbed.spawn(from, client)?).0.wait()?;
    let errors = fs::read_to_string(errors)?;
    if !status.success() {
        return Err(format!("longhaul cp: {errors}").into());
    }
    server.end()?;
    let report: Value = serde_json::from_str(&fs::read_to_string(output)?)?;
    success(report["verified"] == true, "longhaul cp")?;
    Ok((report, settled(&errors)))
}

/// Bits per second between the first line from two seconds on and the last.
fn settled(lines: &str) -> f64 {
    let points: Vec<(f64, f64)> = lines
        .lines()
        .filter_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            Some((line["elapsed"].as_f64()?, line["bytes"].as_f64()?))
        })
        .filter(|(elapsed, _)| *elapsed >= SETTLE.as_secs_f64())
        .collect();
    match (points.first(), points.last()) {
        (Some(first), Some(last)) if last.0 > first.0 => {
            8.0 * (last.1 - first.1) / (last.0 - first.0)
        }
        _ => f64::NAN,
    }
}

const SETTLE: Duration = Duration::from_secs(2);
const LENGTH: Duration = Duration::from_secs(8);
/// Of IPv4, UDP and OBJECT, with the tag.
const UDP_HEADERS: u64 = 28 + OBJECT_HEADER_LEN as u64 + AEAD_TAG_LEN as u64;
/// Of IPv4 and TCP with time stamps.
const TCP_HEADERS: u64 = 52;
