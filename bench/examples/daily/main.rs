//! Copies of every day, by Longhaul and by the programs that people know, over one emulated path: a
//! command that says nothing, many small files, the same again, a large file.
//!
//! `cargo run --release -p longhaul-bench --example daily PROGRAM [RUNS [CASE]]`
//!
//! Two cases go over loopback, and only where they are named: `checksum` compares 1 GB that is alike, beside the rate
//! at which a thread at each end hashes it, and `million` says what memory a million entries take at either end.
//!
//! PROGRAM is a `longhaul`. The path has 1 Gb/s and a round trip of 100 ms; the ssh server is OpenSSH with
//! a key of its own, and TCP is the kernel's as it is set up here. In every run each program has its
//! turn, with a destination of its own, in memory. A figure is the median of the runs, from the start of
//! the command to its end.

mod loopback;
mod path;
mod programs;

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::{array, env};

use longhaul_pathsim::Probability;
use longhaul_peers::Sshd;
use path::{Files, Path};
use programs::{ALL, Mover};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = env::args().skip(1);
    let program = arguments.next().map(PathBuf::from).ok_or("needs a PROGRAM")?;
    let runs = arguments.next().map_or(Ok(3), |runs| runs.parse())?;
    let only = arguments.next();
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only));
    let files = Files::new(&program.canonicalize()?)?;
    for mover in &ALL {
        println!("{:14} {}", mover.name, mover.version(&files)?);
    }
    if wanted("transcript") {
        transcript(&Path::new(&files, Probability::ZERO)?)?;
    }
    if wanted("set-up") {
        set_up(&Path::new(&files, Probability::ZERO)?, runs)?;
    }
    let named = |name: &str| only.as_ref().is_some_and(|only| name == only);
    if named("checksum") {
        loopback::checksum(&files, runs)?;
    }
    if named("million") {
        loopback::million(&files)?;
    }
    for case in CASES.iter().filter(|case| wanted(case.name)) {
        println!("\n{} [s]{:width$} first    again", case.name, "", width = 26 - case.name.len());
        let path = Path::new(&files, case.loss)?;
        for (mover, [first, again]) in ALL.iter().zip(both(&path, case, runs)?) {
            println!("{:30} {first:>8} {again:>8}", mover.name);
            io::stdout().flush()?;
        }
    }
    Ok(())
}

/// Many files or a large one.
struct Case {
    name: &'static str,
    source: &'static str,
    loss: Probability,
}

const CASES: [Case; 3] = [
    Case { name: "2,000 files of 10 KiB", source: "small", loss: Probability::ZERO },
    Case { name: "100 MB", source: "large", loss: Probability::ZERO },
    Case { name: "100 MB, 0.1 % lost", source: "large", loss: Probability::from_ppm(1_000) },
];

/// The words of a copy over ssh, and of the same again. `/data` stands for the destination.
fn transcript(path: &Path<'_>) -> Outcome<()> {
    let target = path.files.target()?;
    println!();
    for _ in 0..2 {
        let mut copy = Command::new(&path.files.program);
        copy.current_dir(path.files.folder.path()).env("LONGHAUL_SSH", path.sshd.client());
        copy.args(["cp", "small"]).arg(format!("{}:{}/", Sshd::HOST, target.path().display()));
        path.seconds(copy)?;
        println!("$ longhaul cp small {}:/data/", Sshd::HOST);
        let words = path.errors()?;
        print!("{}", words.replace(&target.path().display().to_string(), "/data"));
    }
    Ok(())
}

/// Commands that move nothing or next to nothing.
fn set_up(path: &Path<'_>, runs: usize) -> Outcome<()> {
    println!("\nset-up [s]");
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..runs {
        let target = path.files.target()?;
        let [ssh, lh] = [&ALL[0], &ALL[1]];
        let run = |mover: &Mover, source| path.seconds((mover.copy)(path, source, target.path()));
        times[0].push(path.seconds(programs::ssh_true(path))?);
        times[1].push(run(lh, "six")?);
        times[2].push(run(ssh, "six")?);
        run(lh, "small")?;
        times[3].push(run(lh, "small")?);
    }
    let names =
        ["ssh HOST true", "6 bytes, lh://", "6 bytes, HOST:", "2,000 files unchanged, lh://"];
    for (name, times) in names.into_iter().zip(times) {
        println!("{name:30} {:>8}", median(times));
    }
    Ok(())
}

/// First and second copy to one destination by each of the programs.
fn both(path: &Path<'_>, case: &Case, runs: usize) -> Outcome<[[String; 2]; ALL.len()]> {
    let mut times: [[Vec<Option<f64>>; 2]; ALL.len()] = Default::default();
    for run in 0..runs {
        // Everybody is first and last in turn.
        for turn in 0..ALL.len() {
            let at = (run + turn) % ALL.len();
            let target = path.files.target()?;
            for times in &mut times[at] {
                times.push(path.seconds((ALL[at].copy)(path, case.source, target.path()))?);
                path.files.assert_same(case.source, target.path(), times.last())?;
            }
        }
    }
    Ok(array::from_fn(|at| array::from_fn(|of| median(times[at][of].clone()))))
}

/// Of seconds; nothing where a run was not done in time.
fn median(mut times: Vec<Option<f64>>) -> String {
    times.sort_by(|a, b| a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY)));
    match times.get(times.len() / 2) {
        Some(Some(seconds)) => format!("{seconds:.2}"),
        _ => format!("> {}", path::PATIENCE.as_secs()),
    }
}
