//! Watches the scheduler on a core, and the losses of the receiver's host.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_lab::Host;
use longhaul_sys::clock;
use longhaul_sys::host::{BacklogSampler, Switch, SwitchRecorder, allowed_cpus, pin_thread};
use longhaul_units::Instant;

use super::counters::Counters;
use crate::experiment::Watch;
use crate::record::{Scheduling, Spans};

/// A thread that watches, on another core if there is one.
pub(super) struct Watching {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Scheduling, u64)>,
}

impl Watching {
    pub(super) fn start(watch: Watch, receiver: &Host) -> io::Result<Self> {
        let losses = Losses::of(receiver)?;
        let recorder = SwitchRecorder::new(watch.core);
        let elsewhere: Vec<usize> =
            allowed_cpus()?.into_iter().filter(|core| *core != watch.core).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || {
            if !elsewhere.is_empty() {
                // Where this is refused it watches from the core itself.
                let _ = pin_thread(&elsewhere);
            }
            watch_until(&stopped, losses, recorder)
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends; returns what was seen, and the number of packets that the host lost.
    pub(super) fn stop(self) -> (Scheduling, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn watch_until(
    stop: &AtomicBool,
    mut losses: Losses,
    recorder: io::Result<SwitchRecorder>,
) -> (Scheduling, u64) {
    let start = clock::now();
    let mut turns = Turns::default();
    let mut seen = Scheduling::default();
    let mut left_out = 0;
    let mut recorder = match recorder {
        Ok(recorder) => Some(recorder),
        Err(error) => {
            seen.source = format!("no record of context switches here: {error}");
            None
        }
    };
    let (mut next, mut since) = (start, start);
    while !stop.load(Ordering::Relaxed) {
        next += TURN;
        clock::sleep_until(next);
        let now = clock::now();
        if losses.more() {
            // Losses in a row make no intervals.
            if now - since > 2 * TURN {
                add(&mut seen.loss_free, start, since, now);
            }
            since = now;
        }
        if let Some(recorder) = &mut recorder {
            left_out += recorder.drain(&mut |switch| turns.add(start, switch, &mut seen));
        }
        // It may have been kept off its core for long.
        next = next.max(now);
    }
    add(&mut seen.loss_free, start, since, clock::now());
    if recorder.is_some() {
        seen.source = match left_out {
            0 => "the kernel's record of context switches (perf_event_open)".into(),
            _ => format!("the kernel's record of context switches, without {left_out} of them"),
        };
    }
    (seen, losses.total())
}

/// Adds the time from one instant to another.
fn add(spans: &mut Spans, start: Instant, from: Instant, to: Instant) {
    let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    spans.add(ms(from - start), ms(to - from));
}

/// Threads on the core, each with the time since when.
#[derive(Default)]
struct Turns {
    on: Option<(u32, Instant)>,
    known: HashMap<u32, Who>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Load,
    Receiver,
    Other,
}

impl Turns {
    fn add(&mut self, start: Instant, switch: Switch, seen: &mut Scheduling) {
        if switch.on {
            self.on = Some((switch.thread, switch.at));
            return;
        }
        let Some((_, from)) = self.on.take().filter(|(thread, _)| *thread == switch.thread) else {
            return;
        };
        let who = self.known.entry(switch.thread).or_insert_with(|| who(switch));
        let turns = match who {
            Who::Load => &mut seen.load,
            Who::Receiver => &mut seen.receiver,
            Who::Other => return,
        };
        add(turns, start, from, switch.at);
    }
}

/// Threads of this process are the lab's own; what the lab started bears its mark.
fn who(switch: Switch) -> Who {
    let Switch { process, thread, .. } = switch;
    if process == std::process::id() {
        let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
        return if name.is_ok_and(|name| name.trim_end() == "load") {
            Who::Load
        } else {
            Who::Other
        };
    }
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    let marked = environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(MARK));
    if marked { Who::Receiver } else { Who::Other }
}

/// Packets that the receiver's kernel could not keep: at sockets, and in the queues before them.
struct Losses {
    counters: Counters,
    backlog: BacklogSampler,
    first: u64,
    last: u64,
}

impl Losses {
    fn of(host: &Host) -> io::Result<Self> {
        let counters = Counters::open(host, "snmp")?;
        let mut losses = Self { counters, backlog: BacklogSampler::new()?, first: 0, last: 0 };
        losses.first = losses.count()?;
        losses.last = losses.first;
        Ok(losses)
    }

    fn count(&self) -> io::Result<u64> {
        Ok(self.counters.read("Udp", "RcvbufErrors")? + self.backlog.sample()?.dropped)
    }

    /// True if there were any since the last call.
    fn more(&mut self) -> bool {
        let before = self.last;
        // Counters that cannot be read any more show no losses.
        self.last = self.count().unwrap_or(before);
        self.last > before
    }

    fn total(&self) -> u64 {
        self.last - self.first
    }
}

const TURN: Duration = Duration::from_millis(1);
const MARK: &[u8] = b"LONGHAUL_LAB=";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_from_on_to_off_of_one_thread() {
        let mut turns = Turns::default();
        turns.known.extend([(7, Who::Load), (8, Who::Receiver), (9, Who::Other)]);
        let mut seen = Scheduling::default();
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let switches = [(1, 7, false), (2, 8, true), (5, 8, false), (5, 7, true), (9, 7, false)];
        for (ms, thread, on) in switches {
            let (process, preempted) = (1, false);
            let switch = Switch { at: at(ms), process, thread, on, preempted };
            turns.add(at(0), switch, &mut seen);
        }
        assert_eq!(seen.receiver.first, [(2.0, 3.0)]);
        assert_eq!(seen.load.first, [(5.0, 4.0)]);
        assert_eq!(seen.load.lengths.count(), 1);
    }
}
