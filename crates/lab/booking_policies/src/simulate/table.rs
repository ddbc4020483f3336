//! Results as text.

use std::fmt::Write as _;

use super::Report;
use super::scenarios::ScenarioReport;
use super::stats::Estimate;
use super::switching::SwitchingReport;

/// The main experiment: one line for each load and contender.
pub fn report(report: &Report) -> String {
    let mut out = format!(
        "{} seeds of {} requests; mean ± half width of the 95 % interval; delays in seconds\n\n",
        report.seeds, report.requests
    );
    out += "| load | contender | eq. 1: Rmax 1 | Rmax 5 | Rmax 10 | mean delay | / fair | / FIFO \
            | eq. 1 / fair | / FIFO | slowdown | p99 | utilisation |\n";
    out += "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
    for row in &report.rows {
        let cells = [
            row.normalised_delay[0],
            row.normalised_delay[1],
            row.normalised_delay[2],
            row.mean_delay[3],
            row.mean_to_fair,
            row.mean_to_fifo,
            row.normalised_to_fair,
            row.normalised_to_fifo,
            row.slowdown,
            row.slowdown_p99,
            row.utilisation,
        ];
        line(&mut out, &format!("{:.2} | {}", row.load, row.contender), &cells);
    }
    out
}

/// The sweep of tick and reprogramming time.
pub fn switching(report: &SwitchingReport) -> String {
    let mut out = format!("load {}, {} seeds\n\n", report.load, report.seeds);
    out += "| tick | reprogramming | mean delay / ideal | eq. 1 / ideal | booked | useful \
            | change points | memory, KiB | ranges a booking |\n|---|---|---|---|---|---|---|---|---|\n";
    for row in &report.rows {
        let cells = [
            row.mean_to_ideal,
            row.normalised_to_ideal,
            row.booked,
            row.useful,
            row.change_points,
            row.memory_kib,
            row.ranges,
        ];
        line(&mut out, &format!("{:?} | {:?}", row.tick(), row.reprogramming()), &cells);
    }
    out
}

/// The other workloads.
pub fn scenarios(report: &ScenarioReport) -> String {
    let mut out = format!("load {}, {} seeds\n\n", report.load, report.seeds);
    out += "| workload | contender | accepted | accepted bytes | mean delay | slowdown \
            | booked |\n|---|---|---|---|---|---|---|\n";
    for row in &report.rows {
        let cells = [row.accepted, row.accepted_bytes, row.mean_delay, row.slowdown, row.booked];
        line(&mut out, &format!("{} | {}", row.workload, row.contender), &cells);
    }
    out
}

fn line(out: &mut String, head: &str, cells: &[Estimate]) {
    let _ = write!(out, "| {head} |");
    for cell in cells {
        let _ = write!(out, " {} |", number(cell));
    }
    out.push('\n');
}

fn number(e: &Estimate) -> String {
    let digits = match e.mean.abs() {
        m if m >= 100.0 => 0,
        m if m >= 10.0 => 1,
        _ => 3,
    };
    format!("{:.*} ±{:.*}", digits, e.mean, digits, e.half_width)
}
