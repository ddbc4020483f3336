//! Which signal of a host moves before a receiver that shares its processor drops datagrams, how long
//! before, and how often for nothing (docs/host-awareness.md, "Which signal leads").
//!
//! ```text
//! cargo run --release -p longhaul-lab --example signal_lead_time [-- --traces FOLDER] [--work isosurface] [--episodes N]
//! ```
//! Over loopback, so that the work of receiving is the sender's and all that is seen comes from the
//! scheduling of the reader. The sender and the sentinel are on one core, the reader and what competes
//! with it on another. No privileges are needed; with them the sentinel runs before the sender, and
//! buffers may be larger than `net.core.rmem_max`.

mod judge;
mod reader;
mod sender;
mod sentinel;
mod trace;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_lab::load::{Load, Work};
use longhaul_sys::clock;
use longhaul_sys::host::{Machine, allowed_cpus};
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_units::{Instant, Rate};

use judge::{Episode, Verdicts};
use reader::Reader;
use sentinel::Sample;

/// What is the same for a run of episodes.
struct Cell {
    rate: Rate,
    /// As `SO_RCVBUF` is asked for; the kernel doubles it.
    buffer: usize,
    competitors: u16,
}

struct Options {
    traces: Option<PathBuf>,
    work: Work,
    episodes: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    println!("{}", Machine::describe());
    let cores = allowed_cpus()?;
    let [ours, shared] = [cores[0], *cores.last().unwrap_or(&cores[0])];
    if ours == shared {
        return Err("two processors are needed".into());
    }
    let mut all = Verdicts::default();
    for rate in RATES.map(Rate::from_mbps) {
        for buffer in BUFFERS {
            for competitors in COMPETITORS {
                let cell = Cell { rate, buffer, competitors };
                let (samples, episodes) = run(&cell, [ours, shared], &options)?;
                let verdicts = Verdicts::of(&samples, &episodes);
                println!("{}", verdicts.line(&cell));
                if let Some(folder) = &options.traces {
                    trace::write(folder, &cell, options.work, &samples, &episodes)?;
                }
                all.add(&verdicts);
            }
        }
    }
    println!("{}", all.table());
    Ok(())
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { traces: None, work: Work::Loops, episodes: EPISODES };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word}: a value is missing"))?;
        match word.as_str() {
            "--traces" => options.traces = Some(value.into()),
            "--work" => {
                let work = Work::ALL.into_iter().find(|work| work.name() == value);
                options.work = work.ok_or(format!("{value}: no such work"))?;
            }
            "--episodes" => options.episodes = value.parse()?,
            _ => return Err(format!("{word}: unknown; see the top of the source").into()),
        }
    }
    Ok(options)
}

/// Lets the load come and go, and says what was seen each millisecond.
fn run(
    cell: &Cell,
    [ours, shared]: [usize; 2],
    options: &Options,
) -> Result<(Vec<Sample>, Vec<Episode>), Box<dyn Error>> {
    let mut sockets = UdpOptions::default();
    sockets.receive_buffer = cell.buffer;
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0".parse()?, &sockets)?);
    let stop = Arc::new(AtomicBool::new(false));
    let reader = Reader::start(socket.clone(), shared, stop.clone())?;
    let sender = sender::start(socket.local_addr(), cell.rate, ours, stop.clone())?;
    let sentinel = sentinel::start(reader.seen.clone(), socket, ours, stop.clone());
    let mut load = Load::new(options.work);
    (load.count, load.cores) = (cell.competitors, vec![shared]);
    let mut episodes = Vec::new();
    let mut at = clock::now() + QUIET;
    for _ in 0..options.episodes {
        clock::sleep_until(at);
        let came = clock::now();
        let running = load.start()?;
        clock::sleep_until(came + BUSY);
        let left = clock::now();
        running.stop()?;
        episodes.push(Episode { came, left });
        at = clock::now() + QUIET;
    }
    clock::sleep_until(at);
    stop.store(true, Ordering::Relaxed);
    let samples = joined(sentinel);
    joined(sender)?;
    joined(reader.thread)?;
    Ok((samples, episodes))
}

fn joined<T>(thread: std::thread::JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Milliseconds from `start`.
fn millis(time: Instant, start: Instant) -> f64 {
    (time - start).as_secs_f64() * 1e3
}

/// Mb/s of UDP payload.
const RATES: [u64; 3] = [500, 2_000, 5_000];
/// What a program without privilege gets on many hosts, and what the default of this project is.
const BUFFERS: [usize; 3] = [106_496, 1 << 20, 4 << 20];
const COMPETITORS: [u16; 3] = [1, 2, 4];
const EPISODES: usize = 8;
const BUSY: Duration = Duration::from_millis(250);
const QUIET: Duration = Duration::from_millis(350);
