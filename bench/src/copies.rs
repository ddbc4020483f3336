//! Files from memory to memory (tmpfs): `cp` to `serve` as processes of their own, and `tar`.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use longhaul_pathsim::Probability;
use longhaul_sys::clock::CpuTime;
use longhaul_sys::memory::HeldPages;
use longhaul_sys::netns::Side;
use longhaul_sys::tcp::TcpOptions;
use longhaul_wire::{AEAD_TAG_LEN, OBJECT_HEADER_LEN, Protect};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tempfile::TempDir;

use crate::link::Link;
use crate::processes::{Ended, Served, make_random, make_token, success};
use crate::samples::Sample;

/// Program that moves the small files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    Longhaul,
    Tar,
}

/// Files to copy. Removed when dropped.
pub(crate) struct Files {
    folder: TempDir,
    large: u64,
    medium: u64,
    small: u64,
    /// In memory for the largest copy: a virtual machine that gives freed memory up at once gets it
    /// back from its host in more time than the copy takes, and that would be measured.
    _held_pages: HeldPages,
}

impl Files {
    /// One file of 2 GB, one of 1 GB and 20,000 of 10 KiB, of random bytes; `quick`: a tenth.
    pub(crate) fn new(quick: bool) -> io::Result<Self> {
        let in_memory = Path::new("/dev/shm");
        let place = if in_memory.is_dir() { in_memory.to_owned() } else { std::env::temp_dir() };
        let folder = tempfile::Builder::new().prefix("longhaul-bench-").tempdir_in(place)?;
        let part = if quick { 10 } else { 1 };
        let (large, medium, count) = (LARGE / part, MEDIUM / part, SMALL / part);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for (name, size) in [("large", large), ("medium", medium)] {
            make_random(&folder.path().join(name), size, &mut random)?;
        }
        for index in 0..count {
            let parent = folder.path().join(format!("small/{:03}", index / PER_FOLDER));
            if index % PER_FOLDER == 0 {
                fs::create_dir_all(&parent)?;
            }
            make_random(&parent.join(format!("{index:05}")), SMALL_LEN, &mut random)?;
        }
        // Behind the files, which would fill it.
        let held_pages = HeldPages::new((large + large / 4) as usize)?;
        Ok(Self { folder, large, medium, small: count * SMALL_LEN, _held_pages: held_pages })
    }

    /// Reads the first `bytes` of the large file.
    pub(crate) fn read(&self, bytes: usize) -> io::Result<()> {
        let mut file = File::open(self.folder.path().join("large"))?;
        let mut piece = vec![0; PIECE];
        (0..bytes / PIECE).try_for_each(|_| file.read_exact(&mut piece))
    }

    /// An empty folder to copy to. Removed when dropped.
    pub(crate) fn target(&self) -> io::Result<TempDir> {
        tempfile::Builder::new().prefix("target-").tempdir_in(self.folder.path())
    }
}

/// Reads everything in `source`, a file or a folder: what a virtual machine has not touched for a
/// while its host may have to bring back, which takes longer than the copy.
fn warm(source: &Path) -> io::Result<()> {
    if source.is_dir() {
        fs::read_dir(source)?.try_for_each(|entry| warm(&entry?.path()))
    } else {
        io::copy(&mut File::open(source)?, &mut io::sink()).map(drop)
    }
}

/// Writes a new file in `folder`.
pub(crate) fn write(folder: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(folder.join("written"))?;
    bytes.chunks(PIECE).try_for_each(|piece| file.write_all(piece))
}

/// `cp` of the large file.
pub(crate) fn large(
    link: &Link,
    program: &Path,
    files: &Files,
    protect: Protect,
    verify: bool,
) -> io::Result<Sample> {
    let what =
        What { source: files.folder.path().join("large"), bytes: files.large, protect, verify };
    copy(link, program, files, &what)
}

/// `cp` of a gigabyte over an emulated path; `loss` parts in a thousand are lost at random.
pub(crate) fn long_path(program: &Path, files: &Files, loss: u8) -> io::Result<Sample> {
    let link = Link::emulated(Probability::from_ppm(u32::from(loss) * 1_000))?;
    let source = files.folder.path().join("medium");
    let what = What { source, bytes: files.medium, protect: Protect::Aead, verify: true };
    let mut sample = copy(&link, program, files, &what)?;
    let packets = files.medium as f64 / LONG_PATH_PAYLOAD / (1.0 - f64::from(loss) / 1e3);
    let ideal = packets * 1500.0 * 8.0 / 1e9;
    sample.note = Some(format!(
        "the path takes {ideal:.2} s; with 3 % more and 8 round trips {:.2} s",
        ideal / 0.97 + 0.8
    ));
    Ok(sample)
}

/// The small files.
pub(crate) fn small(
    link: &Link,
    program: &Path,
    files: &Files,
    mover: Mover,
) -> io::Result<Sample> {
    let source = files.folder.path().join("small");
    match mover {
        Mover::Longhaul => {
            let what = What { source, bytes: files.small, protect: Protect::Aead, verify: true };
            copy(link, program, files, &what)
        }
        Mover::Tar => tar(link, files, &source),
    }
}

/// A copy: its files, and the options.
struct What {
    source: PathBuf,
    bytes: u64,
    protect: Protect,
    verify: bool,
}

fn copy(link: &Link, program: &Path, files: &Files, what: &What) -> io::Result<Sample> {
    let What { source, bytes, protect, verify } = what;
    let target = files.target()?;
    warm(source)?;
    let token = files.folder.path().join("token");
    make_token(program, &token)?;
    let mut server = Command::new(program);
    server.args(["serve", "--once", "--root"]).arg(target.path());
    server.arg("--listen").arg(SocketAddr::new(link.address(Side::B), 0).to_string());
    server.arg("--token-file").arg(&token);
    let server = Served::start(server, |mut server| link.spawn(Side::B, &mut server))?;
    let mut client = Command::new(program);
    client.args(["cp", "--json", "--quiet", "--protect", protect.name(), "--token-file"]);
    client.arg(&token).arg(source).arg(format!("lh://{}/copy", server.address));
    client.args((!verify).then_some("--no-verify"));
    let before = CpuTime::of_children();
    let start = Instant::now();
    let client = link.spawn(Side::A, client.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let output = client.wait_with_output()?;
    let seconds = start.elapsed().as_secs_f64();
    let middle = CpuTime::of_children();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("longhaul cp: {}", why.trim())));
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    success(report["verified"] == *verify && report["bytes"] == *bytes, "longhaul cp")?;
    server.end()?;
    let after = CpuTime::of_children();
    Ok(Sample {
        bytes: *bytes,
        seconds,
        cpu_send: Some(middle.since(before).total().as_secs_f64()),
        cpu_receive: Some(after.since(middle).total().as_secs_f64()),
        cpu_relay: None,
        note: report["bottleneck"].as_str().map(|name| format!("limited by: {name}")),
    })
}

/// `tar` straight into a TCP connection, and out of it.
fn tar(link: &Link, files: &Files, source: &Path) -> io::Result<Sample> {
    let target = files.target()?;
    warm(source)?;
    let mut options = TcpOptions::default();
    options.congestion_control = Some("cubic".into());
    let to = link.address(Side::B);
    let before = CpuTime::of_children();
    let start = Instant::now();
    let (sender, receiver) = link.both(
        |to| {
            let stream = TcpStream::connect(to)?;
            options.apply(&stream)?;
            let mut pack = Command::new("tar");
            pack.args(["-b", "256", "-cf", "-", "-C"]).arg(source).arg(".");
            Ok(Ended(pack.stdout(Stdio::from(OwnedFd::from(stream))).spawn()?))
        },
        |ready| {
            let listener = TcpListener::bind(SocketAddr::new(to, 0))?;
            ready(listener.local_addr()?);
            let (stream, _) = listener.accept()?;
            let mut unpack = Command::new("tar");
            unpack.args(["-b", "256", "-xf", "-", "-C"]).arg(target.path());
            Ok(Ended(unpack.stdin(Stdio::from(OwnedFd::from(stream))).spawn()?))
        },
    )?;
    let (mut sender, mut receiver) = (sender, receiver);
    success(sender.0.wait()?.success(), "tar")?;
    let middle = CpuTime::of_children();
    success(receiver.0.wait()?.success(), "tar")?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Sample {
        bytes: files.small,
        seconds,
        cpu_send: Some(middle.since(before).total().as_secs_f64()),
        cpu_receive: Some(CpuTime::of_children().since(middle).total().as_secs_f64()),
        cpu_relay: None,
        note: None,
    })
}

/// As `cp` reads and writes.
const PIECE: usize = 1 << 20;
const LARGE: u64 = 2_000_000_000;
const MEDIUM: u64 = 1_000_000_000;
/// File data in a packet of 1500 bytes: without headers of IPv4, UDP and OBJECT, and the tag.
const LONG_PATH_PAYLOAD: f64 = (1500 - 28 - OBJECT_HEADER_LEN - AEAD_TAG_LEN) as f64;
const SMALL: u64 = 20_000;
const SMALL_LEN: u64 = 10 << 10;
const PER_FOLDER: u64 = 100;
