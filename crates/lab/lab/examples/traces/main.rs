//! Compares the monitor's account of recorded signals with the kernel's record of context switches
//! in the same traces (docs/host-awareness.md, "Checked against the kernel's record"): `longhaul
//! lab run signal-lead-time --quick --results DIR` and then `cargo run --release -p longhaul-lab
//! --example traces DIR/signal-lead-time.traces/*`.

mod paptc;
mod trace;

use std::collections::BTreeMap;
use std::error::Error;

use longhaul_host::{
    Batch, Monitor, MonitorConfig, Predictor, PredictorConfig, Socket, StallCause, ThreadId, Turn,
};
use longhaul_units::{Duration, Instant};
use trace::{Look, Trace, WINDOW, What};

fn main() -> Result<(), Box<dyn Error>> {
    let mut by_buffer: BTreeMap<u64, Score> = BTreeMap::new();
    let mut traces = Vec::new();
    for path in std::env::args().skip(1) {
        let trace = Trace::read(&std::fs::read_to_string(path)?)?;
        by_buffer.entry(trace.buffer).or_default().add(&trace);
        traces.push(trace);
    }
    println!(
        "| buffer asked for | windows | share off by, median, p90 | stalls of 2 ms | seen | of the right length | too long by, ms: p10, median, p90 | known within 2 ms | named `preempted` |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (buffer, score) in &mut by_buffer {
        println!("| {} KiB {}", buffer >> 10, score.stalls_row());
    }
    println!(
        "\n| buffer asked for | ahead | last value | mean of 64 | p = 4 | below the bound, p = 4 |"
    );
    println!("|---|---|---|---|---|---|");
    for (buffer, score) in &by_buffer {
        for (ahead, sums) in AHEAD.iter().zip(&score.errors) {
            println!(
                "| {} KiB | {} ms {}",
                buffer >> 10,
                ahead * WINDOW.as_millis() as usize,
                sums.row()
            );
        }
    }
    paptc::print(&traces);
    Ok(())
}

#[derive(Default)]
struct Score {
    share_errors: Vec<f64>,
    stalls: usize,
    seen: usize,
    right: usize,
    excess: Vec<f64>,
    known: usize,
    could_know: usize,
    preempted: Duration,
    stalled: Duration,
    errors: [Errors; AHEAD.len()],
}

/// Sums over the windows of some predictions.
#[derive(Default)]
struct Errors {
    last: f64,
    mean: f64,
    model: f64,
    missed: f64,
    count: f64,
}

impl Errors {
    fn row(&self) -> String {
        let error = |sum: f64| sum / self.count * 1e5;
        let [last, mean, model] = [self.last, self.mean, self.model].map(error);
        let missed = 100.0 * self.missed / self.count;
        format!("| {last:.0} | {mean:.0} | {model:.0} | {missed:.1} % |")
    }
}

impl Score {
    fn add(&mut self, trace: &Trace) {
        self.judge_shares(trace);
        self.judge_stalls(trace);
        AHEAD.into_iter().enumerate().for_each(|(index, ahead)| {
            predict(trace, ahead, &mut self.errors[index]);
        });
    }

    /// The scheduler's account of each window beside the record of switches.
    fn judge_shares(&mut self, trace: &Trace) {
        for (from, to) in trace.windows() {
            let length = (to.at - from.at).as_secs_f64();
            let counted = to.run.saturating_sub(from.run).as_secs_f64() / length;
            let truth = trace.ran(from.at, to.at).as_secs_f64() / length;
            let turns = trace
                .switches
                .iter()
                .filter(|(at, what)| *what == What::On && (from.at..to.at).contains(at));
            // Going to sleep and waking up takes some 10 us, which the account counts and the record does not.
            if turns.count() < FEW_TURNS {
                self.share_errors.push((counted - truth).abs());
            }
        }
    }

    /// Feeds the monitor as the driver does, and looks after each stall what it knows of it.
    fn judge_stalls(&mut self, trace: &Trace) {
        let mut fed = Fed::new();
        let stalls: Vec<_> = trace.stalls().into_iter().filter(|(a, b)| *b - *a >= LONG).collect();
        let mut looks = trace.looks.windows(2).map(|pair| (&pair[0], &pair[1])).peekable();
        let mut switches = trace.switches.iter().peekable();
        let mut advance = |until: Instant, fed: &mut Fed| {
            while let Some((before, look)) = looks.next_if(|(_, look)| look.at <= until) {
                let mut fresh = Vec::new();
                while let Some(switch) = switches.next_if(|(at, _)| *at <= look.at) {
                    fresh.push(*switch);
                }
                fed.look(before, look, &fresh);
            }
        };
        for (from, to) in stalls {
            advance(from, &mut fed);
            let before = fed.stalled(from);
            // The batch that is read behind the stall shows how long it was, two looks later.
            advance(to + TICK * 3, &mut fed);
            let counted = fed.stalled(to).saturating_sub(before);
            let length = to - from;
            // What it had read before is worked on in the same gap.
            let least = length.min(counted);
            let off = counted.saturating_sub(length + BURST_WORK).max(length - least);
            self.excess.push(counted.as_secs_f64() * 1e3 - length.as_secs_f64() * 1e3);
            self.stalls += 1;
            self.seen += usize::from(counted >= length / 2);
            self.right += usize::from(off <= Duration::from_micros(500).max(length / 10));
            let looked = trace.looks.iter().map(|look| look.at);
            let next = looked.clone().find(|at| *at >= from + TICK);
            // A sentinel that was away itself could not know.
            let on_time = looked.filter(|at| *at >= from).take(2).all(|at| at <= from + TICK * 2);
            if on_time {
                self.could_know += 1;
                self.known += usize::from(next.is_some_and(|at| at <= from + TICK * 2 && at < to));
            }
        }
        advance(Instant::FAR_FUTURE, &mut fed);
        let summary = fed.monitor.summary(fed.now);
        self.stalled = self.stalled.saturating_add(summary.stalls.total);
        for (cause, _, time) in summary.causes.sums() {
            if cause == StallCause::Preempted {
                self.preempted = self.preempted.saturating_add(time);
            }
        }
    }

    fn stalls_row(&mut self) -> String {
        self.share_errors.sort_by(f64::total_cmp);
        self.excess.sort_by(f64::total_cmp);
        let part = |sorted: &[f64], of| sorted.get(sorted.len() * of / 100).copied().unwrap_or(0.0);
        let [median, p90] = [50, 90].map(|of| part(&self.share_errors, of));
        let [least, usual, most] = [10, 50, 90].map(|of| part(&self.excess, of));
        let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
        let Self { stalls, seen, right, known, could_know, .. } = *self;
        let preempted = self.preempted.as_secs_f64() / self.stalled.as_secs_f64().max(1e-9);
        format!(
            "| {} | {median:.4}, {p90:.4} | {stalls} | {:.1} % | {:.1} % | {least:.1}, {usual:.1}, {most:.1} | {:.1} % of {could_know} | {:.0} % of the time |",
            self.share_errors.len(),
            percent(seen, stalls),
            percent(right, stalls),
            percent(known, could_know),
            100.0 * preempted
        )
    }
}

/// A monitor that takes its input from a trace.
struct Fed {
    monitor: Monitor,
    now: Instant,
    off: Option<Instant>,
    is_away: bool,
}

impl Fed {
    fn new() -> Self {
        let monitor = Monitor::new(Instant::ZERO, MonitorConfig::default());
        Self { monitor, now: Instant::ZERO, off: None, is_away: false }
    }

    fn stalled(&self, now: Instant) -> Duration {
        self.monitor.summary(now.max(self.now)).stalls.total
    }

    fn look(&mut self, before: &Look, look: &Look, switches: &[(Instant, What)]) {
        let (at, bytes) = (look.at, look.bytes - before.bytes);
        self.now = at;
        if bytes > 0 {
            let age = Some(look.left).filter(|left| !left.is_zero());
            let packets = bytes / 1_400;
            let full = look.queued > 0;
            let batch = Batch { bytes, packets, age, cpu: None, full };
            // Looks come behind it.
            self.monitor.handle_batch(look.left_until.min(at), READER, batch);
        }
        let (queued, limit) = (look.queued, look.limit);
        let drops = look.drops.wrapping_sub(before.drops);
        self.monitor.handle_socket(at, READER, Socket { queued, limit, drops });
        for (switched, what) in switches {
            self.off = (*what == What::Preempted).then_some(*switched);
            if std::mem::take(&mut self.is_away) {
                self.monitor.handle_return(*switched, READER);
            }
        }
        if let Some(since) = self.off.filter(|since| at - *since >= TICK) {
            self.is_away = true;
            self.monitor.handle_absence(at, READER, since);
        }
        let turn = Turn {
            run: look.run.saturating_sub(before.run),
            wait: look.wait.saturating_sub(before.wait),
            turns: switches.iter().filter(|(_, what)| *what == What::On).count() as u64,
        };
        self.monitor.handle_turn(at, READER, turn);
        while self.monitor.poll_announcement(at).is_some() {}
    }
}

/// Predicts the reader's share of what it asked for, window by window.
fn predict(trace: &Trace, ahead: usize, errors: &mut Errors) {
    let shares: Vec<f64> = trace
        .windows()
        .filter_map(|(from, to)| {
            let run = to.run.saturating_sub(from.run).as_secs_f64();
            let asked = run + to.wait.saturating_sub(from.wait).as_secs_f64();
            (asked > 0.0).then(|| run / asked)
        })
        .collect();
    let config = PredictorConfig { horizon: ahead, ..PredictorConfig::default() };
    let mut predictor = Predictor::new(config);
    for (index, share) in shares.iter().enumerate() {
        predictor.add(*share);
        let (Some(prediction), Some(truth)) = (predictor.predict(), shares.get(index + ahead))
        else {
            continue;
        };
        if index < LEARNING {
            continue;
        }
        let late = &shares[index.saturating_sub(63)..=index];
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        let square = |guess: f64| (guess - truth).powi(2);
        errors.last += square(*share);
        errors.mean += square(mean);
        errors.model += square(prediction.value);
        errors.missed += f64::from(u8::from(*truth < prediction.lower - 1e-9));
        errors.count += 1.0;
    }
}

const READER: ThreadId = ThreadId(0);
/// Windows: 50 to 300 ms.
const AHEAD: [usize; 3] = [1, 2, 6];
/// Windows from which a model is made before it is judged.
const LEARNING: usize = 24;
/// Of 8 super-packets at 1 ns a byte.
const BURST_WORK: Duration = Duration::from_micros(525);
/// In a window.
const FEW_TURNS: usize = 50;
const LONG: Duration = Duration::from_millis(2);
/// The sentinel looks each so often, and takes a reader for away after as long.
const TICK: Duration = Duration::from_millis(1);
