//! `longhaul demo`: a server and a client of this program with an emulated path between them.

pub mod relay;
mod stage;
mod summary;
mod tree;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use longhaul::Stop;
use longhaul_units::{Bytes, Rate};
use serde_json::Value;
use tempfile::TempDir;

use self::relay::EmulatedPath;
use self::stage::{Emulation, Stage};
use self::summary::Outcome;
use longhaul_sys::threads;

use crate::args::DemoArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::serve::LISTENING;
use crate::signals::{self, Again};
use crate::token;

pub(crate) fn run(args: &DemoArgs, output: &Output) -> Result<(), Failure> {
    if args.rate == Rate::ZERO || args.size == Bytes::ZERO {
        return Err(Failure::usage("a demo needs a --size and a --rate above zero"));
    }
    let path = emulated(args);
    let stage = Stage::set_up(&path, output);
    let stop = Stop::default();
    signals::install(&stop, None, Again::Wait).map_err(cannot("wait for signals"))?;
    let folder = workplace(args.size)?;
    let [source, root, secret] = ["data", "received", "token"].map(|name| folder.path().join(name));
    fs::create_dir(&root).map_err(cannot("make a folder"))?;
    token::write(&secret, &token::generate()?)?;
    output.say(format!("making {} of files in {}", args.size, folder.path().display()));
    let made = tree::generate(&source, args.size, &stop).map_err(cannot("make the files"))?;
    going_on(&stop)?;
    output.say(format!(
        "copying {} files from one process to another over an emulated path: {}, round trip {:?}, \
         {} of packets lost each way",
        made.files, args.rate, args.rtt, args.loss
    ));

    let (mut server, emulation, at) = Server::start(&stage, &root, &secret, &path)?;
    let copied = copy(&stage, &source, &secret, at, output, &stop);
    let emulated = emulation.end(&stage).map_err(cannot("run the emulated path"))?;
    going_on(&stop)?;
    let copied = copied.map_err(|failure| server.explain(failure))?;
    server.finish();
    let tcp = stage.kernel_tcp(&copied, output, &stop);

    output.say("comparing what arrived with what was sent, byte for byte");
    tree::compare(&source, &root.join("data"), &stop).map_err(Failure::failed)?;
    going_on(&stop)?;
    let outcome = Outcome { path, made, copied, emulated, tcp };
    output.result(&outcome.json(), outcome.text())
}

/// The path that `args` ask for.
fn emulated(args: &DemoArgs) -> EmulatedPath {
    let bdp = args.rate.bytes_in(args.rtt);
    // One bandwidth-delay product, as routers on long paths have; at least some packets' worth.
    let queue = Bytes::new(bdp.clamp(QUEUE_MIN, longhaul_pathsim::Bottleneck::MAX_QUEUE.get()));
    EmulatedPath { rate: args.rate, rtt: args.rtt, loss: args.loss, queue, mtu: MTU, seed: SEED }
}

/// A folder that goes away with its contents, where there is room for the tree twice.
fn workplace(size: Bytes) -> Result<TempDir, Failure> {
    let needed = size.get().saturating_mul(2) + size.get() / 8 + ROOM;
    let candidates = [PathBuf::from(SHARED_MEMORY), std::env::temp_dir()];
    for folder in &candidates {
        if folder.starts_with(SHARED_MEMORY) && memory_available() < needed.saturating_add(ROOM) {
            continue;
        }
        let free = rustix::fs::statvfs(folder)
            .map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
            .unwrap_or(0);
        if free >= needed
            && let Ok(made) = tempfile::Builder::new().prefix("longhaul-demo-").tempdir_in(folder)
        {
            return Ok(made);
        }
    }
    let needed = Bytes::new(needed);
    Err(Failure::failed(format!(
        "no room for {needed}, the files and their copy, in {SHARED_MEMORY} or {}: say a smaller \
         --size, or set TMPDIR to a folder with room",
        candidates[1].display()
    )))
}

/// Memory that can be used without swapping, in bytes; unlimited where that is not known.
fn memory_available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib * 1024)
}

/// The server's process.
struct Server {
    process: Process,
    lines: Receiver<String>,
    log: Vec<String>,
}

impl Server {
    /// Starts a server behind the emulated path, and tells where a client finds it. A port that was
    /// free may be taken the next moment, hence several attempts.
    fn start(
        stage: &Stage,
        root: &Path,
        secret: &Path,
        path: &EmulatedPath,
    ) -> Result<(Self, Emulation, SocketAddr), Failure> {
        let mut last = Failure::failed("no free port");
        for _ in 0..ATTEMPTS {
            let Some((server, at)) = stage.addresses() else { continue };
            let started = Self::spawn(stage, root, secret, server).and_then(|process| {
                let emulation = stage.emulate(at, server, path);
                Ok((process, emulation.map_err(cannot("start the emulated path"))?, at))
            });
            match started {
                Ok(started) => return Ok(started),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    fn spawn(
        stage: &Stage,
        root: &Path,
        secret: &Path,
        listen: SocketAddr,
    ) -> Result<Self, Failure> {
        let mut command = this_program()?;
        command.args(["serve", "--once", "--no-history", "--listen", &listen.to_string()]);
        command.args([OsStr::new("--root"), root.as_ref()]);
        command.args([OsStr::new("--token-file"), secret.as_ref()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let started = stage.spawn(stage::End::Server, command);
        let mut process = Process(started.map_err(cannot("start the server"))?);
        let stderr = process.0.stderr.take().ok_or_else(|| Failure::failed("no standard error"))?;
        let (sender, lines) = channel();
        let listen = move || {
            let lines = BufReader::new(stderr).lines().map_while(Result::ok);
            lines.take(LOG_MAX).try_for_each(|line| sender.send(line))
        };
        threads::spawn("server", listen).map_err(cannot("start the server"))?;
        let mut server = Self { process, lines, log: Vec::new() };
        let deadline = Instant::now() + START;
        loop {
            match server.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.starts_with(LISTENING) => return Ok(server),
                Ok(line) => server.log.push(line),
                Err(_) => return Err(server.explain(Failure::failed("the server does not start"))),
            }
        }
    }

    /// Adds what the server printed.
    fn explain(&mut self, failure: Failure) -> Failure {
        self.log.extend(self.lines.try_iter());
        match self.log.is_empty() {
            true => failure,
            false => failure.adding(format!("the server printed:\n  {}", self.log.join("\n  "))),
        }
    }

    /// Gives the server, which serves once, the time to end by itself.
    fn finish(&mut self) {
        let deadline = Instant::now() + START;
        while matches!(self.process.0.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
    }
}

/// A process that is ended when it is no longer needed.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Fails when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `longhaul cp` and returns its JSON.
fn copy(
    stage: &Stage,
    source: &Path,
    secret: &Path,
    at: SocketAddr,
    output: &Output,
    stop: &Stop,
) -> Result<Value, Failure> {
    let mut command = this_program()?;
    command.args(["cp", "--json", "--carrier", "udp", "--no-history"]);
    command.args([OsStr::new("--token-file"), secret.as_ref(), source.as_ref()]);
    command.arg(format!("lh://{at}/"));
    if output.quiet {
        command.arg("-q");
    } else if output.verbose {
        command.arg("-vv");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let started = stage.spawn(stage::End::Client, command);
    let mut process = Process(started.map_err(cannot("start the client"))?);
    let mut stdout = process.0.stdout.take().ok_or_else(|| Failure::failed("no output"))?;
    let (sender, result) = channel();
    let read = move || {
        let mut text = String::new();
        let read = stdout.read_to_string(&mut text);
        sender.send(read.map(|_| text))
    };
    threads::spawn("client", read).map_err(cannot("start the client"))?;
    let text = loop {
        match result.recv_timeout(POLL) {
            Ok(text) => break text.map_err(cannot("read what the client says"))?,
            Err(RecvTimeoutError::Disconnected) => break String::new(),
            Err(RecvTimeoutError::Timeout) => going_on(stop)?,
        }
    };
    going_on(stop)?;
    let json: Value = serde_json::from_str(&text)
        .map_err(|_| Failure::failed("the client ended without saying how it went"))?;
    match json.get("error").and_then(Value::as_str) {
        Some(error) => Err(Failure::failed(format!("the copy failed: {error}"))),
        None => Ok(json),
    }
}

/// This program as one of the two hosts. Ctrl-C is for the demo, which then ends both and says so
/// once: hence a group of their own.
fn this_program() -> Result<Command, Failure> {
    let mut command =
        std::env::current_exe().map(Command::new).map_err(cannot("find this program"))?;
    command.process_group(0);
    Ok(command)
}

fn going_on(stop: &Stop) -> Result<(), Failure> {
    if stop.is_requested() { Err(stopped()) } else { Ok(()) }
}

fn stopped() -> Failure {
    Failure::failed("stopped; the demo's files are removed")
}

fn cannot<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> Failure {
    move |error| Failure::failed(format!("cannot {what}: {error}"))
}

const SHARED_MEMORY: &str = "/dev/shm";
/// For records, and so as not to take the last of it.
const ROOM: u64 = 64 << 20;
const QUEUE_MIN: u64 = 64 << 10;
const MTU: u32 = 1_500;
/// The same packets are lost in each run, as far as the same packets are sent.
const SEED: u64 = 1;
const ATTEMPTS: usize = 8;
const START: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);
/// Lines of the server that are kept.
const LOG_MAX: usize = 200;
