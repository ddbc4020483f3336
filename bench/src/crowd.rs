//! A thousand sessions at once through one gateway, beside one, over loopback.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use longhaul_experiments::statistics::jain;
use longhaul_sys::clock;
use longhaul_sys::process::raise_descriptor_limit;
use longhaul_sys::wait::{Interest, wait};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use serde_json::Value;

use crate::samples::{Row, Sample};

pub(crate) fn row() -> Row {
    Row { name: "relay: gateway, 1000 sessions", work: WORK, samples: Vec::new() }
}

/// The goodput of all sessions; the note compares it with that of one.
pub(crate) fn measure(program: &Path, quick: bool) -> io::Result<Sample> {
    raise_descriptor_limit()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let gateway = Gateway::start(program, listener.local_addr()?)?;
    let [settle, length] = if quick { [0.2, 0.5] } else { [2.0, 8.0] };
    let [settle, length] = [settle, length].map(Duration::from_secs_f64);
    // As many connections without a gateway.
    let direct = [1, SESSIONS].map(|sessions| run(None, &listener, sessions, settle, length));
    let [direct_one, direct_all] = direct;
    let direct = direct_all?.goodput() / direct_one?.goodput();
    let one = run(Some(&gateway), &listener, 1, settle, length)?;
    let all = run(Some(&gateway), &listener, SESSIONS, settle, length)?;
    let ratio = all.goodput() / one.goodput();
    let resident = gateway.peak_resident()?;
    let note = format!(
        "{ratio:.2} of one session's goodput (without a gateway {direct:.2}), Jain's index {:.3}; memory of \
         sessions, the kernel's included, at most {:.0} of {:.0} MB; resident {:.0} MB",
        jain(&all.shares()).unwrap_or(0.0),
        all.memory as f64 / 1e6,
        all.allowed as f64 / 1e6,
        resident as f64 / 1e6,
    );
    let (bytes, seconds) = (all.received.iter().sum(), all.seconds);
    Ok(Sample {
        bytes,
        seconds,
        cpu_send: None,
        cpu_receive: None,
        cpu_relay: None,
        note: Some(note),
    })
}

/// `longhaul gateway serve` with a port that leads to one target.
struct Gateway {
    child: Child,
    program: PathBuf,
    at: SocketAddr,
    metrics: SocketAddr,
}

impl Gateway {
    fn start(program: &Path, target: SocketAddr) -> io::Result<Self> {
        let mut serve = Command::new(program);
        serve.args(["gateway", "serve", "--allow", "127.0.0.1", "--metrics", "127.0.0.1:0"]);
        serve.args(["--memory", ALLOWED, "--forward", &format!("127.0.0.1:0={target}")]);
        let child = serve.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut gateway = Self { child, program: program.into(), at: nowhere, metrics: nowhere };
        let words = gateway.child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut lines = BufReader::new(words);
        let mut output = String::new();
        while gateway.at.port() == 0 || gateway.metrics.port() == 0 {
            let start = output.len();
            if lines.read_line(&mut output)? == 0 {
                return Err(io::Error::other(format!("longhaul gateway serve: {}", output.trim())));
            }
            let line = output[start..].trim();
            let address = |rest: &str| rest.parse().map_err(io::Error::other);
            if let Some(rest) = line.strip_prefix("listening on ") {
                gateway.at = address(rest)?;
            } else if let Some(rest) = line.strip_prefix("metrics at http://") {
                gateway.metrics = address(rest.trim_end_matches("/metrics"))?;
            }
        }
        // So that it never waits for a reader.
        thread::spawn(move || io::copy(&mut lines, &mut io::sink()));
        Ok(gateway)
    }

    /// Memory that its sessions hold by its own account, which includes the kernel's, and what they may.
    fn memory(&self) -> io::Result<[u64; 2]> {
        let mut status = Command::new(&self.program);
        status.args(["gateway", "status", "--json", &self.metrics.to_string()]);
        let status: Value = serde_json::from_slice(&status.output()?.stdout)?;
        let number = |name: &str| status[name].as_u64().ok_or(io::ErrorKind::InvalidData);
        Ok([number("memory")?, number("max_memory")?])
    }

    /// Its own memory, without the kernel's, at most.
    fn peak_resident(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(kib.ok_or(io::ErrorKind::InvalidData)? << 10)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Crowd {
    /// By session, in the time that counts.
    received: Vec<u64>,
    seconds: f64,
    memory: u64,
    allowed: u64,
}

impl Crowd {
    fn shares(&self) -> Vec<f64> {
        self.received.iter().map(|bytes| *bytes as f64).collect()
    }

    /// Bytes a second.
    fn goodput(&self) -> f64 {
        self.received.iter().sum::<u64>() as f64 / self.seconds
    }
}

/// So many sessions send as much as goes.
fn run(
    gateway: Option<&Gateway>,
    listener: &TcpListener,
    sessions: usize,
    settle: Duration,
    length: Duration,
) -> io::Result<Crowd> {
    let at = gateway.map_or(listener.local_addr(), |gateway| Ok(gateway.at))?;
    let mut pairs = (Vec::new(), Vec::new());
    for _ in 0..sessions {
        pairs.0.push(TcpStream::connect(at)?);
        if wait(&[(listener.as_fd(), Interest::Readable)], Some(clock::now() + PATIENCE))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        pairs.1.push(listener.accept()?.0);
    }
    let counts: Vec<_> = pairs.1.iter().map(|_| AtomicU64::new(0)).collect();
    let counted = || counts.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let done = AtomicBool::new(false);
    let (block, mut buffer) = (vec![0x5a; BLOCK], vec![0; BLOCK]);
    let mut crowd = Crowd { received: Vec::new(), seconds: 0.0, memory: 0, allowed: 0 };
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            turns(&pairs.0, EventFlags::OUT, &done, |mut stream, _| stream.write(&block).map(drop))
        });
        let receiving = scope.spawn(|| {
            turns(&pairs.1, EventFlags::IN, &done, |mut stream, number| {
                let len = stream.read(&mut buffer)?;
                counts[number].fetch_add(len as u64, Ordering::Relaxed);
                if len == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
            })
        });
        let watched = (|| {
            clock::sleep_until(clock::now() + settle);
            let (before, start) = (counted(), clock::now());
            let end = start + length;
            while clock::now() < end {
                if let Some(gateway) = gateway {
                    let [memory, allowed] = gateway.memory()?;
                    (crowd.memory, crowd.allowed) = (crowd.memory.max(memory), allowed);
                }
                clock::sleep_until(end.min(clock::now() + STATUS_EVERY));
            }
            crowd.seconds = clock::now().since(start).as_secs_f64();
            crowd.received =
                counted().iter().zip(&before).map(|(now, before)| now - before).collect();
            Ok(())
        })();
        done.store(true, Ordering::Relaxed);
        let panicked = |_| io::Error::other("a thread panicked");
        let [sent, received] =
            [sending.join(), receiving.join()].map(|end| end.map_err(panicked)?);
        watched.and(sent).and(received)
    })?;
    Ok(crowd)
}

/// Gives each stream that is ready one turn after the other.
fn turns(
    streams: &[TcpStream],
    for_: EventFlags,
    done: &AtomicBool,
    mut turn: impl FnMut(&TcpStream, usize) -> io::Result<()>,
) -> io::Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, stream) in streams.iter().enumerate() {
        stream.set_nonblocking(true)?;
        epoll::add(&poll, stream, EventData::new_u64(number as u64), for_)?;
    }
    let mut events = Vec::with_capacity(EVENTS);
    let moment = Timespec::try_from(STATUS_EVERY).map_err(io::Error::other)?;
    while !done.load(Ordering::Relaxed) {
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&moment)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let number = event.data.u64() as usize;
            match turn(&streams[number], number) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

const WORK: &str = "nothing; TCP over loopback";
const SESSIONS: usize = 1000;
/// Of the sessions' memory: a megabyte each.
const ALLOWED: &str = "1GB";
const BLOCK: usize = 256 << 10;
const EVENTS: usize = 256;
const STATUS_EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);
