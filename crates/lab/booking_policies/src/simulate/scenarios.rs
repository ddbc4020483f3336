//! Workloads beyond the paper's: deadlines, advance bookings, interactive use beside files, and
//! circuits over several links.

use std::collections::BTreeMap;

use longhaul_calendar::{
    Book, BookConfig, BookingId, FileRequest, Grid, HoldRequest, LinkId, Margin, Order, Path,
    Policy, Request,
};
use longhaul_units::Bytes;
use serde::Serialize;

use super::booked::{Scheme, grid_tick};
use super::parallel;
use super::stats::Estimate;
use super::workload::{self, Arrival, CHANNELS, Draw};

/// The scenarios to run.
#[derive(Clone, Debug)]
pub struct ScenarioOptions {
    /// Offered load (on the busiest link).
    pub load: f64,
    /// Number of seeds.
    pub seeds: u64,
    /// Requests a run.
    pub requests: usize,
    /// Threads to run on.
    pub threads: usize,
}

impl Default for ScenarioOptions {
    fn default() -> Self {
        Self { load: 0.8, seeds: 20, requests: 5_000, threads: 1 }
    }
}

/// Results of one contender on one workload.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioRow {
    /// Name of the workload.
    pub workload: String,
    /// Name of the contender.
    pub contender: String,
    /// Share of the requests that were accepted.
    pub accepted: Estimate,
    /// Share of the files' bytes that were accepted.
    pub accepted_bytes: Estimate,
    /// Mean time from requested start to finish of the accepted files, seconds.
    pub mean_delay: Estimate,
    /// Mean of that over the time on an idle link.
    pub slowdown: Estimate,
    /// Booked share of all links while requests arrive.
    pub booked: Estimate,
}

/// Results of [`run`].
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioReport {
    /// Offered load.
    pub load: f64,
    /// Seeds a row.
    pub seeds: u64,
    /// One row for each workload and contender.
    pub rows: Vec<ScenarioRow>,
}

#[derive(Clone, Copy, Debug)]
enum Workload {
    /// Each file has to be there within 1.5 to 5 times its time on an idle link.
    Deadlines,
    /// Half of the files are booked up to a minute ahead.
    Advance,
    /// A fifth of the load is circuits of ten seconds on average, at 1 to 5 channels, that start
    /// within five seconds or not at all.
    Interactive,
    /// Four links in a row; each file takes one to four neighbouring ones.
    Chain,
}

impl Workload {
    const ALL: [Self; 4] = [Self::Deadlines, Self::Advance, Self::Interactive, Self::Chain];

    fn name(self) -> &'static str {
        match self {
            Self::Deadlines => "deadlines",
            Self::Advance => "advance bookings",
            Self::Interactive => "interactive and files",
            Self::Chain => "four links",
        }
    }

    fn contenders(self) -> &'static [(&'static str, Policy, bool)] {
        match self {
            Self::Deadlines => &[
                ("VBLS, earliest", Policy::Earliest, false),
                ("VBLS re-planned, slack 100 %", Policy::Earliest, true),
                ("as late as possible", Policy::Latest, false),
                ("least peak", Policy::LeastPeak, false),
                ("FBLS", Policy::Fixed, false),
            ],
            _ => &[
                ("VBLS", Policy::Earliest, false),
                ("VBLS re-planned, slack 100 %", Policy::Earliest, true),
                ("FBLS", Policy::Fixed, false),
            ],
        }
    }
}

/// Runs all workloads.
pub fn run(options: &ScenarioOptions, progress: &mut dyn FnMut(usize, usize)) -> ScenarioReport {
    let mut jobs = Vec::new();
    for workload in Workload::ALL {
        for contender in workload.contenders() {
            jobs.extend((0..options.seeds).map(|seed| (workload, *contender, seed)));
        }
    }
    let runs = parallel::map(&jobs, options.threads, progress, |(workload, contender, seed)| {
        let (_, policy, replan) = *contender;
        play(*workload, policy, replan, options, *seed)
    });
    let per_row = options.seeds as usize;
    let rows = jobs.chunks(per_row).zip(runs.chunks(per_row)).map(|(jobs, runs)| {
        let over = |value: &dyn Fn(&Outcome) -> f64| {
            Estimate::of(&runs.iter().map(value).collect::<Vec<f64>>())
        };
        ScenarioRow {
            workload: jobs[0].0.name().into(),
            contender: jobs[0].1.0.into(),
            accepted: over(&|o| o.accepted as f64 / o.requests as f64),
            accepted_bytes: over(&|o| o.accepted_bytes / o.bytes),
            mean_delay: over(&|o| o.delay / o.files as f64),
            slowdown: over(&|o| o.slowdown / o.files as f64),
            booked: over(&|o| o.booked),
        }
    });
    ScenarioReport { load: options.load, seeds: options.seeds, rows: rows.collect() }
}

#[derive(Clone, Debug, Default)]
struct Outcome {
    requests: usize,
    accepted: usize,
    bytes: f64,
    accepted_bytes: f64,
    /// Accepted files, and the sums of their delays and slowdowns.
    files: usize,
    delay: f64,
    slowdown: f64,
    booked: f64,
}

/// One seed of one workload under one contender. Requests are drawn before they are booked, so
/// that every contender sees the same.
fn play(
    workload: Workload,
    policy: Policy,
    replan: bool,
    options: &ScenarioOptions,
    seed: u64,
) -> Outcome {
    let links = if matches!(workload, Workload::Chain) { 4 } else { 1 };
    let file_load = match workload {
        Workload::Interactive => options.load * (1.0 - HOLD_SHARE),
        Workload::Chain => options.load / CHAIN_SHARE,
        _ => options.load,
    };
    let files = workload::arrivals(file_load, options.requests, seed);
    let grid = Scheme::new(policy).grid();
    // Without slack there is nothing to re-plan with: nobody here releases early.
    let slack_ppm = if replan { 1_000_000 } else { 0 };
    let mut book = Book::new(BookConfig { slack_ppm, ..BookConfig::default() }, 0);
    let links: Vec<LinkId> = (0..links).map(|_| book.add_link(CHANNELS)).collect();
    let mut game = Game {
        workload,
        policy,
        replan,
        load: options.load,
        draw: Draw::new(seed ^ 0x5c3a_a710),
        book,
        links,
        span: grid_tick(grid, files[files.len() - 1].at),
        grid,
        next_hold: 0.0,
        area: 0,
        ideal: BTreeMap::new(),
        out: Outcome::default(),
    };
    for file in &files {
        while matches!(workload, Workload::Interactive) && game.next_hold <= file.at {
            game.hold();
        }
        game.file(file);
    }
    game.end()
}

/// A run under way.
struct Game {
    workload: Workload,
    policy: Policy,
    replan: bool,
    load: f64,
    draw: Draw,
    book: Book,
    links: Vec<LinkId>,
    grid: Grid,
    /// Ticks until the last arrival.
    span: u64,
    /// When the next interactive circuit is asked for.
    next_hold: f64,
    /// Channels times ticks that were booked, on all links.
    area: u64,
    /// Times on an idle link of the files that were accepted.
    ideal: BTreeMap<BookingId, f64>,
    out: Outcome,
}

impl Game {
    fn ticks(&self, seconds: f64) -> u64 {
        grid_tick(self.grid, seconds)
    }

    /// Goes on to `now`, and counts what has ended by then.
    fn advance(&mut self, now: u64) {
        for (id, booking) in self.book.advance(now) {
            let width = booking.path.links().len() as u64;
            for r in booking.vector.merged() {
                let ticks = r.end.min(self.span).saturating_sub(r.start);
                self.area += ticks * u64::from(r.rate) * width;
            }
            if let (Request::File(file), Some(ideal)) = (booking.request, self.ideal.remove(&id)) {
                let ticks = booking.finish() - file.earliest;
                let delay = self.grid.instant(ticks).as_nanos() as f64 * 1e-9;
                self.out.files += 1;
                self.out.delay += delay;
                self.out.slowdown += delay / ideal;
            }
        }
    }

    /// Books an interactive circuit.
    fn hold(&mut self) {
        let now = self.ticks(self.next_hold).max(self.book.now());
        self.advance(now);
        let seconds = self.draw.exponential(HOLD_SECONDS);
        let (low, high) = HOLD_RATES;
        // A fixed-bandwidth circuit cannot vary between its rates.
        let min_rate = if self.policy == Policy::Fixed { high } else { low };
        let hold = HoldRequest {
            duration: self.ticks(seconds).max(1),
            min_rate,
            max_rate: high,
            earliest: now,
            latest_start: Some(now + self.ticks(HOLD_PATIENCE)),
        };
        self.out.requests += 1;
        let booked = self.book.book(&Request::Hold(hold), &[Path::single(self.links[0])]);
        self.out.accepted += usize::from(booked.is_ok());
        let rate = self.load * HOLD_SHARE * f64::from(CHANNELS) / (HOLD_SECONDS * f64::from(high));
        self.next_hold += self.draw.exponential(1.0 / rate);
    }

    /// Books a file.
    fn file(&mut self, file: &Arrival) {
        let now = self.ticks(file.at);
        self.advance(now);
        let bytes = Bytes::new(file.bytes as u64);
        let volume = self.grid.volume(bytes, Margin::NONE).unwrap_or(u64::MAX);
        let wait = match self.workload {
            Workload::Advance if self.draw.unit() < 0.5 => self.draw.between(0.0, 60.0),
            _ => 0.0,
        };
        let stretch = self.draw.between(1.5, 5.0);
        let earliest = now + self.ticks(wait);
        let deadline = matches!(self.workload, Workload::Deadlines)
            .then(|| earliest + self.ticks(stretch * file.ideal()));
        let policy = self.policy;
        let request =
            FileRequest { deadline, policy, ..FileRequest::new(volume, file.max_rate, earliest) };
        let path = match self.workload {
            Workload::Chain => {
                let length = 1 + self.draw.below(self.links.len());
                let first = self.draw.below(self.links.len() - length + 1);
                Path::new(&self.links[first..first + length])
            }
            _ => Some(Path::single(self.links[0])),
        };
        self.out.requests += 1;
        self.out.bytes += file.bytes;
        let Some(path) = path else { return };
        let Ok(id) = self.book.book(&Request::File(request), &[path]) else { return };
        self.out.accepted += 1;
        self.out.accepted_bytes += file.bytes;
        self.ideal.insert(id, file.ideal());
        let soonest = earliest + volume.div_ceil(u64::from(file.max_rate));
        if self.replan && self.book.get(id).is_some_and(|booking| booking.finish() > soonest) {
            self.book.replan(Order::ShortestFirst);
            // It exists, so this cannot fail.
            let _ = self.book.tighten(id);
        }
    }

    fn end(mut self) -> Outcome {
        self.advance(u64::MAX - 1);
        let all = self.span as f64 * f64::from(CHANNELS) * self.links.len() as f64;
        self.out.booked = self.area as f64 / all;
        self.out
    }
}

/// Share of the load that interactive circuits are, at their highest rate.
const HOLD_SHARE: f64 = 0.2;
/// Their mean holding time, seconds.
const HOLD_SECONDS: f64 = 10.0;
/// Their Rmin and Rmax.
const HOLD_RATES: (u32, u32) = (1, 5);
/// Longest wait of a hold for its start, in seconds.
const HOLD_PATIENCE: f64 = 5.0;
/// Share of the files that cross one of the inner links of the chain: of one to four links, each
/// as likely, (1/4 + 2/3 + 1 + 1) / 4.
const CHAIN_SHARE: f64 = 0.729;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_runs_and_varying_rates_are_no_worse() {
        let options = ScenarioOptions { seeds: 2, requests: 600, threads: 2, load: 0.8 };
        let report = run(&options, &mut |_, _| {});
        assert_eq!(report.rows.len(), 5 + 3 * 3);
        let find = |workload: &str, contender: &str| {
            let same = |r: &&ScenarioRow| r.workload == workload && r.contender == contender;
            report.rows.iter().find(same).unwrap()
        };
        let (vbls, fbls) = (find("deadlines", "VBLS, earliest"), find("deadlines", "FBLS"));
        assert!(vbls.accepted.mean >= fbls.accepted.mean);
        for workload in ["advance bookings", "four links"] {
            let (vbls, fbls) = (find(workload, "VBLS"), find(workload, "FBLS"));
            assert_eq!(vbls.accepted.mean, 1.0);
            assert!(vbls.mean_delay.mean <= fbls.mean_delay.mean, "{workload}");
        }
        assert!(report.rows.iter().all(|r| (0.0..=1.0).contains(&r.booked.mean)));
    }
}
