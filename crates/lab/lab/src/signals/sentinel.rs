//! The sentinel: looks at the reader from another core each millisecond.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_host::SleepAverage;
use longhaul_sys::clock;
use longhaul_sys::host::{PressureSampler, ProcessorTicks, Switch, pin_thread, run_first};
use longhaul_sys::udp::UdpSocket;
use longhaul_units::Instant;

use super::Watch;
use super::reader::Seen;

/// Values seen at one look. Totals are since the beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub at: Instant,
    /// Greatest age of the head of a read batch since the last look.
    pub age: Duration,
    /// Longest time since the last look that something waited and nothing was read, and when it ended.
    pub left: Duration,
    pub left_until: Instant,
    /// Time for which the reader, which has not gone to sleep, has been silent.
    pub gap: Duration,
    /// Time for which it has been without a processor although it had more to do; of its own
    /// switches.
    pub preempted: Duration,
    /// Times that it has lost its processor so.
    pub involuntary: u64,
    /// Run and wait by schedstat, as read from here, and as the reader saw it itself.
    pub outside: [Duration; 2],
    pub own: [Duration; 2],
    /// Receive buffer in use and in all, and super-packets dropped.
    pub queued: u32,
    pub limit: u32,
    pub drops: u32,
    /// PSI `some` of the host's processors, as it was at most 50 ms ago.
    pub pressure: Duration,
    pub bytes: u64,
    /// Value that Linux 2.6.12 would add to its priority, -5 to 5, by a shadow of that kernel's
    /// account.
    pub level: i32,
    /// Load of all processors in the last 50 ms.
    pub busy_percent: f64,
    pub switches: Vec<Switch>,
}

pub(super) fn start(
    seen: Arc<Seen>,
    socket: Arc<UdpSocket>,
    wanted: &Watch,
    stop: Arc<AtomicBool>,
) -> io::Result<JoinHandle<io::Result<Vec<Sample>>>> {
    let core = wanted.ours;
    std::thread::Builder::new().name("sentinel".into()).spawn(move || {
        pin_thread(&[core])?;
        // Without the right to it the sentinel is late now and then, which its samples show.
        let _ = run_first();
        let _ = clock::use_precise_timers();
        Ok(watch(&seen, &socket, &stop))
    })
}

fn watch(seen: &Seen, socket: &UdpSocket, stop: &AtomicBool) -> Vec<Sample> {
    let pressure = PressureSampler::of_cpu().ok();
    let mut recorder = seen.switches.lock().map(|mut recorder| recorder.take()).unwrap_or_default();
    let (mut off, mut involuntary) = (None, 0);
    let mut samples = Vec::new();
    let mut next = clock::now();
    let (mut waited, mut slow_due) = (Duration::ZERO, next);
    let (mut ticks, mut busy_percent) = (ProcessorTicks::now().unwrap_or_default(), 0.0);
    let mut average = SleepAverage::new(SleepAverage::MOST);
    let mut accounted = (next, seen.sampler.sample().unwrap_or_default());
    while !stop.load(Ordering::Relaxed) {
        next = (next + TICK).max(clock::now().before(TICK));
        clock::sleep_until(next);
        let mut switches = Vec::new();
        if let Some(recorder) = &mut recorder {
            recorder.drain(&mut |switch| switches.push(switch));
        }
        for switch in &switches {
            involuntary += u64::from(switch.preempted);
            off = switch.preempted.then_some(switch.at);
        }
        let at = clock::now();
        let beat = seen.beat.load(Ordering::Relaxed);
        let memory = socket.memory().unwrap_or_default();
        let outside = seen.sampler.sample().unwrap_or_default();
        if at >= slow_due {
            slow_due = at + SLOW_INTERVAL;
            waited = pressure.as_ref().and_then(|psi| psi.sample().ok()).unwrap_or(waited);
            let now = ProcessorTicks::now().unwrap_or(ticks);
            (busy_percent, ticks) = (now.busy_percent_since(ticks), now);
        }
        if at - accounted.0 >= POLLING_TIME {
            let run = outside.run.saturating_sub(accounted.1.run);
            let wait = outside.wait.saturating_sub(accounted.1.wait);
            average.ran(run);
            average.slept((at - accounted.0).saturating_sub(run + wait));
            accounted = (at, outside);
        }
        let own = |index: usize| Duration::from_nanos(seen.own[index].load(Ordering::Relaxed));
        samples.push(Sample {
            at,
            age: Duration::from_nanos(seen.age.swap(0, Ordering::Relaxed)),
            left: Duration::from_nanos(seen.left.swap(0, Ordering::Relaxed)),
            left_until: Instant::from_nanos(seen.left_until.load(Ordering::Relaxed)),
            gap: if beat == 0 { Duration::ZERO } else { at - Instant::from_nanos(beat) },
            preempted: off.map_or(Duration::ZERO, |off| at - off),
            involuntary,
            outside: [outside.run, outside.wait],
            own: [own(0), own(1)],
            queued: memory.receive_used,
            limit: memory.receive_limit,
            drops: memory.drops,
            pressure: waited,
            bytes: seen.bytes.load(Ordering::Relaxed),
            level: average.dynamic(),
            busy_percent,
            switches,
        });
    }
    samples
}

const TICK: Duration = Duration::from_millis(1);
/// As `rapid` polls (docs/host-awareness.md, "RAPID").
const POLLING_TIME: Duration = Duration::from_millis(2);
/// Pressure that is looked at more often stands still ([`PressureSampler`]), and ticks are too coarse.
const SLOW_INTERVAL: Duration = Duration::from_millis(50);
