//! What a path did, in words and as JSON.

use std::io;
use std::path::PathBuf;

use longhaul_lab::disk::DiskReport;
use longhaul_lab::load::{LoadReport, Work};
use longhaul_lab::{DirectionStats, LinkRecord, LinkStats, Testbed};
use serde_json::Value;

/// The state of all links.
pub(super) fn links(testbed: &Testbed) -> io::Result<Vec<LinkStats>> {
    (0..testbed.topology().links.len()).map(|link| testbed.stats(link)).collect()
}

pub(super) fn json(testbed: &Testbed, links: &[LinkStats]) -> Value {
    let names = testbed.topology().links.iter().map(|link| link.name.as_str());
    let records = names.zip(links).map(|(name, stats)| LinkRecord::new(name, stats));
    records.map(|record| serde_json::to_value(record).unwrap_or_default()).collect()
}

pub(super) fn text(testbed: &Testbed, links: &[LinkStats]) -> String {
    let mut text = String::new();
    for (spec, stats) in testbed.topology().links.iter().zip(links) {
        text += &format!("{}: {}\n", spec.name, spec.describe());
        let [first, second] = &spec.between;
        text += &direction(first, second, &stats.forward);
        text += &direction(second, first, &stats.backward);
    }
    text
}

/// What the loads beside the commands got done.
pub(super) fn loads_json(loads: &[(Work, LoadReport)]) -> Value {
    let one = |(work, report): &(Work, LoadReport)| {
        let cpu = report.cpu.as_secs_f64();
        serde_json::json!({ "work": work, "rounds": report.rounds, "cpu_seconds": cpu })
    };
    loads.iter().map(one).collect()
}

pub(super) fn loads_text(loads: &[(Work, LoadReport)]) -> String {
    let one = |(work, report): &(Work, LoadReport)| {
        let (rounds, cpu) = (report.rounds, report.cpu.as_secs_f64());
        format!("load {}: {rounds} rounds, {cpu:.2} s of CPU time\n", work.name())
    };
    loads.iter().map(one).collect()
}

/// What the slow disks did.
pub(super) fn disks_json(disks: &[(PathBuf, DiskReport)]) -> Value {
    let one = |(folder, report): &(PathBuf, DiskReport)| {
        let cpu = report.cpu.as_secs_f64();
        serde_json::json!({ "folder": folder, "bytes": report.passed.get(), "cpu_seconds": cpu })
    };
    disks.iter().map(one).collect()
}

pub(super) fn disks_text(disks: &[(PathBuf, DiskReport)]) -> String {
    let one = |(folder, report): &(PathBuf, DiskReport)| {
        let (bytes, cpu) = (report.passed, report.cpu.as_secs_f64());
        format!("disk {}: {bytes} read and written, {cpu:.2} s of CPU time\n", folder.display())
    };
    disks.iter().map(one).collect()
}

fn direction(from: &str, to: &str, stats: &DirectionStats) -> String {
    let path = &stats.path;
    let lost: Vec<String> =
        stats.losses().map(|(reason, count)| format!("{reason} {count}")).collect();
    let lost =
        if lost.is_empty() { "none lost".into() } else { format!("lost: {}", lost.join(", ")) };
    let mut text = format!("  {from} to {to}: {} packets, {lost}", path.offered);
    for (count, what) in [
        (path.marked, "marked"),
        (path.reordered, "held back"),
        (path.duplicated, "doubled"),
        (path.corrupted, "corrupted"),
    ] {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    }
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    if let Some(queue) = stats.queue().filter(|queue| queue.accepted > 0) {
        let (mean, max) = (ms(queue.mean_delay), ms(queue.max_delay));
        text += &format!("; in the queue {mean:.2} ms on average, {max:.2} ms at most");
    }
    if stats.queue_while_late > 0 {
        let count = stats.queue_while_late;
        text += &format!("; {count} of the queue's losses while the emulator was late");
    }
    if let Some(late) = stats.changes_late().filter(|late| !late.is_zero()) {
        text += &format!("; rate changed late by {:.2} ms at most", ms(late));
    }
    text += &format!("; late by {:.2} ms (99 %)\n", ms(stats.lateness.p99));
    let unasked: u64 = stats.unasked().iter().map(|(_, count)| count).sum();
    if unasked > 0 {
        text += "  this machine was too slow for the emulation, which lost packets of its own\n";
    }
    text
}
