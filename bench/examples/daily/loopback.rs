//! Copies over loopback, where the hosts are the limit: how fast what is alike is compared, and the memory that a
//! million entries take.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path as FilePath;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_bench::processes::{Ended, Served, make_random, success};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::path::Files;
use super::{Outcome, median};

/// A copy that is done: its seconds, and the most memory that client and server had, in MiB.
struct Done {
    seconds: f64,
    peaks: [u64; 2],
}

/// `--checksum` of 1 GB that is alike at both ends, beside one thread at each end that reads and hashes it.
pub fn checksum(files: &Files, runs: usize) -> Outcome<()> {
    let source = files.path("gigabyte");
    fs::create_dir(&source)?;
    make_random(&source.join("file"), 1_000_000_000, &mut Xoshiro256PlusPlus::seed_from_u64(2))?;
    let target = files.target()?;
    copy(files, &["--quiet"], "gigabyte", target.path())?;
    let ends = [source.join("file"), target.path().join("file")];
    let [mut copies, mut hashes] = [const { Vec::new() }; 2];
    for _ in 0..runs {
        let done = copy(files, &["--quiet", "--checksum"], "gigabyte", target.path())?;
        copies.push(Some(done.seconds));
        let begun = Instant::now();
        thread::scope(|scope| {
            let both = ends.each_ref().map(|file| scope.spawn(|| hash(file)));
            both.into_iter().try_for_each(|end| end.join().map_err(|_| io::ErrorKind::Other)?)
        })?;
        hashes.push(Some(begun.elapsed().as_secs_f64()));
    }
    println!("\n1 GB that is alike, loopback [s]");
    println!("{:30} {:>8}", "longhaul cp --checksum", median(copies));
    println!("{:30} {:>8}", "a thread at each end hashes", median(hashes));
    fs::remove_dir_all(source)?;
    Ok(())
}

fn hash(path: &FilePath) -> io::Result<()> {
    let (mut file, mut hasher) = (File::open(path)?, blake3::Hasher::new());
    let mut bytes = vec![0; 1 << 20];
    loop {
        match file.read(&mut bytes)? {
            0 => break,
            len => hasher.update(&bytes[..len]),
        };
    }
    std::hint::black_box(hasher.finalize());
    Ok(())
}

/// A million files of ten bytes, and the same again.
pub fn million(files: &Files) -> Outcome<()> {
    let source = files.path("million");
    for number in 0..1_000_000 {
        let within = source.join((number / 1_000).to_string());
        if number % 1_000 == 0 {
            fs::create_dir_all(&within)?;
        }
        fs::write(within.join(number.to_string()), format!("{number:10}"))?;
    }
    let target = files.target()?;
    println!("\na million entries, loopback      [s]   client   server [MiB]");
    for name in ["first", "again"] {
        let Done { seconds, peaks: [client, server] } =
            copy(files, &["--quiet", "--fsync", "never"], "million", target.path())?;
        println!("{name:28} {seconds:>7.1} {client:>8} {server:>8}");
    }
    drop(target);
    fs::remove_dir_all(source)?;
    Ok(())
}

/// One copy of what is in a folder, by a server of its own.
fn copy(files: &Files, words: &[&str], source: &str, target: &FilePath) -> Outcome<Done> {
    let mut server = Command::new(&files.program);
    server.args(["serve", "--listen", "127.0.0.1:0", "--allow-read", "--allow-write", "--root"]);
    server.arg(files.path("targets")).arg("--token-file").arg(files.path("token"));
    let server = Served::start(server, |mut server| server.spawn())?;
    let mut client = Command::new(&files.program);
    client.arg("cp").args(words).arg("--token-file").arg(files.path("token"));
    let name = target.file_name().unwrap_or_default().display();
    client.arg(files.path(source).join("."));
    client.arg(format!("lh://{}/{name}/", server.address)).arg("--merge");
    client.env("HOME", files.path("home")).stdin(Stdio::null()).stdout(Stdio::null());
    let begun = Instant::now();
    let mut client = Ended(client.spawn()?);
    let mut most = 0;
    loop {
        // It is gone when it has ended.
        most = peak(&client.0).unwrap_or(0).max(most);
        if let Some(status) = client.0.try_wait()? {
            success(status.success(), "longhaul cp")?;
            break;
        }
        thread::sleep(LOOK);
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Done { seconds, peaks: [most, peak(server.process()).unwrap_or(0)] })
}

/// The most memory that a process has had, in MiB.
fn peak(process: &Child) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib.div_ceil(1 << 10))
}

const LOOK: Duration = Duration::from_millis(5);
