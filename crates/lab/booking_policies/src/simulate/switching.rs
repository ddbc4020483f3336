//! The practical side of VBLS (the paper's section 3.4): coarser time, and slower switches.

use longhaul_calendar::Policy;
use longhaul_units::Duration;
use serde::Serialize;

use super::booked::{self, Scheme};
use super::parallel;
use super::stats::{Estimate, Measures};
use super::workload::{self, Arrival};

/// The sweep to run.
#[derive(Clone, Debug)]
pub struct SwitchingOptions {
    /// Offered load.
    pub load: f64,
    /// Number of seeds.
    pub seeds: u64,
    /// Requests a run.
    pub requests: usize,
    /// Lengths of a tick.
    pub ticks: Vec<Duration>,
    /// Times in which a switch carries nothing after each change.
    pub reprogramming: Vec<Duration>,
    /// Threads to run on.
    pub threads: usize,
}

impl Default for SwitchingOptions {
    fn default() -> Self {
        Self {
            load: 0.8,
            seeds: 20,
            requests: 5_000,
            ticks: [1_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000]
                .map(Duration::from_nanos)
                .to_vec(),
            reprogramming: [10, 1_000_000, 10_000_000, 50_000_000]
                .map(Duration::from_nanos)
                .to_vec(),
            threads: 1,
        }
    }
}

/// Results for one tick and one reprogramming time.
#[derive(Clone, Debug, Serialize)]
pub struct SwitchingRow {
    /// Length of a tick, nanoseconds.
    pub tick_nanos: u64,
    /// Time in which a switch carries nothing after each change, nanoseconds.
    pub reprogramming_nanos: u64,
    /// Mean delay over the mean delay on an idle link at Rmax.
    pub mean_to_ideal: Estimate,
    /// Equation 1 over that on an idle link.
    pub normalised_to_ideal: Estimate,
    /// Booked share of the link.
    pub booked: Estimate,
    /// Share of what is booked that carries data.
    pub useful: Estimate,
    /// Segments of the free capacity that a request finds.
    pub change_points: Estimate,
    /// Memory of the free capacity, KiB.
    pub memory_kib: Estimate,
    /// Times that a booking programs the switch, not counting its end.
    pub ranges: Estimate,
}

impl SwitchingRow {
    /// Length of a tick.
    pub const fn tick(&self) -> Duration {
        Duration::from_nanos(self.tick_nanos)
    }

    /// Time in which a switch carries nothing after each change.
    pub const fn reprogramming(&self) -> Duration {
        Duration::from_nanos(self.reprogramming_nanos)
    }
}

/// Results of [`run`].
#[derive(Clone, Debug, Serialize)]
pub struct SwitchingReport {
    /// Offered load.
    pub load: f64,
    /// Seeds a row.
    pub seeds: u64,
    /// One row for each pair.
    pub rows: Vec<SwitchingRow>,
}

/// Runs the sweep with VBLS.
pub fn run(options: &SwitchingOptions, progress: &mut dyn FnMut(usize, usize)) -> SwitchingReport {
    let mut jobs = Vec::new();
    for tick in &options.ticks {
        for reprogramming in &options.reprogramming {
            jobs.extend((0..options.seeds).map(|seed| (*tick, *reprogramming, seed)));
        }
    }
    let runs = parallel::map(&jobs, options.threads, progress, |(tick, reprogramming, seed)| {
        let files = workload::arrivals(options.load, options.requests, *seed);
        let scheme =
            Scheme { tick: *tick, reprogramming: *reprogramming, ..Scheme::new(Policy::Earliest) };
        let booked = booked::book(&files, &scheme);
        let warm_up = files.len() / 10;
        let ideal: Vec<f64> = files.iter().map(Arrival::ideal).collect();
        let ideal = Measures::of(&files, &ideal, warm_up);
        let measured = Measures::of(&files, &booked.delays, warm_up);
        let mean = measured.mean[3] / ideal.mean[3];
        (mean, measured.normalised[3] / ideal.normalised[3], booked)
    });
    let rows = jobs.chunks(options.seeds as usize).zip(runs.chunks(options.seeds as usize));
    let rows = rows.map(|(jobs, runs)| {
        let over = |value: &dyn Fn(&(f64, f64, booked::Booked)) -> f64| {
            Estimate::of(&runs.iter().map(value).collect::<Vec<f64>>())
        };
        SwitchingRow {
            tick_nanos: jobs[0].0.as_nanos() as u64,
            reprogramming_nanos: jobs[0].1.as_nanos() as u64,
            mean_to_ideal: over(&|r| r.0),
            normalised_to_ideal: over(&|r| r.1),
            booked: over(&|r| r.2.booked),
            useful: over(&|r| r.2.useful),
            change_points: over(&|r| r.2.change_points),
            memory_kib: over(&|r| r.2.memory / 1024.0),
            ranges: over(&|r| r.2.ranges),
        }
    });
    SwitchingReport { load: options.load, seeds: options.seeds, rows: rows.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_ticks_and_slow_switches_cost_delay() {
        let options = SwitchingOptions {
            seeds: 2,
            requests: 400,
            ticks: vec![Duration::from_millis(1), Duration::from_millis(100)],
            reprogramming: vec![Duration::from_nanos(10), Duration::from_millis(50)],
            ..SwitchingOptions::default()
        };
        let report = run(&options, &mut |_, _| {});
        let at = |tick: u64, switch: u64| {
            let nanos = (tick * 1_000_000, switch);
            let found = report.rows.iter().find(|r| (r.tick_nanos, r.reprogramming_nanos) == nanos);
            found.unwrap().clone()
        };
        let (fine, coarse) = (at(1, 10), at(100, 10));
        let slow = at(1, 50_000_000);
        assert!(coarse.mean_to_ideal.mean > fine.mean_to_ideal.mean);
        assert!(slow.mean_to_ideal.mean > fine.mean_to_ideal.mean);
        assert!(slow.useful.mean < fine.useful.mean && coarse.useful.mean < fine.useful.mean);
        assert!(coarse.change_points.mean < fine.change_points.mean);
    }
}
