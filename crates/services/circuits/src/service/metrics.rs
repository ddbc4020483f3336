//! Metrics for Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longhaul_calendar::{Capacity, Request};

use super::Status;
use super::view::View;
use crate::ledger::{Ending, Event, Id, Ledger, Record};

/// Counters since the service started.
#[derive(Debug, Default)]
pub struct Metrics {
    accepted: AtomicU64,
    refused: AtomicU64,
    store_failures: AtomicU64,
    driver_failures: AtomicU64,
    switches: Histogram,
    requests: Histogram,
    commits: Histogram,
    commit_records: AtomicU64,
    /// Time from requested start to planned finish of files, in nanoseconds.
    planned: AtomicU64,
    /// The same if links had been idle.
    ideal: AtomicU64,
    /// Bytes by which the bookings of files that are done exceeded them.
    margin: AtomicU64,
    /// The part of these that was not given back.
    margin_held: AtomicU64,
}

/// Times by exponential buckets.
#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BOUNDS_MICROS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut sum = 0;
        for (bound, bucket) in BOUNDS_MICROS.iter().zip(&self.buckets) {
            sum += bucket.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{le=\"{}\"}} {sum}", *bound as f64 / 1e6);
        }
        let count = self.count.load(Ordering::Relaxed);
        let seconds = self.micros.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_sum {seconds}\n{name}_count {count}");
    }
}

impl Metrics {
    /// A request was answered.
    pub fn answered(&self, time: Duration) {
        self.requests.add(time);
    }

    pub(super) fn committed(&self, records: &[Record], time: Duration) {
        self.commits.add(time);
        self.commit_records.fetch_add(records.len() as u64, Ordering::Relaxed);
        self.accepted.fetch_add(records.len() as u64, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn store_failed(&self) {
        self.store_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A rate was changed, `late` after its boundary.
    pub(super) fn switched(&self, late: Duration) {
        self.switches.add(late);
    }

    pub(super) fn driver_failed(&self) {
        self.driver_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the files that were booked or released.
    pub(super) fn happened(&self, ledger: &Ledger, events: &[Event]) {
        for event in events {
            match event {
                Event::Booked { id, .. } => self.booked(ledger, *id),
                Event::Released { id } => self.ended(ledger, &[*id]),
                _ => {}
            }
        }
    }

    /// Counts how long a file is to take, and how long it would on idle links.
    fn booked(&self, ledger: &Ledger, id: Id) {
        let Some((_, booking)) = ledger.get(id) else { return };
        let Request::File(file) = booking.request else { return };
        let widest = ledger.capacity().path(&booking.path).capacity();
        let ideal = file.volume.div_ceil(u64::from(file.max_rate.min(widest).max(1)));
        let planned = booking.finish().saturating_sub(file.earliest);
        let nanos = ledger.rules().tick_nanos;
        self.ideal.fetch_add(ideal.saturating_mul(nanos), Ordering::Relaxed);
        self.planned.fetch_add(planned.saturating_mul(nanos), Ordering::Relaxed);
    }

    /// Counts the margins of files that are done.
    pub(super) fn ended(&self, ledger: &Ledger, ids: &[Id]) {
        for closed in ids.iter().filter_map(|id| ledger.closed(*id)) {
            let done = matches!(closed.ending, Ending::Finished | Ending::Released);
            let Some(bytes) = closed.entry.note.bytes.filter(|_| done) else { continue };
            let booked = closed.used_bytes.saturating_add(closed.returned_bytes);
            let beyond = |held: u64| held.saturating_sub(bytes);
            self.margin.fetch_add(beyond(booked), Ordering::Relaxed);
            self.margin_held.fetch_add(beyond(closed.used_bytes), Ordering::Relaxed);
        }
    }

    /// The text that Prometheus reads. What is booked is the leader's to say: a node that stands by
    /// leaves it out, so that sums over nodes count it once.
    pub fn text(&self, view: &View, status: &Status) -> String {
        let mut out = String::new();
        self.of_node(&mut out, status);
        if !status.standby {
            of_book(&mut out, view);
        }
        out
    }

    /// Metrics of this node since it started.
    fn of_node(&self, out: &mut String, status: &Status) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let seconds = |counter: &AtomicU64| count(counter) / 1e9;
        let flag = |set: bool| f64::from(u8::from(set));
        for (name, kind, help, value) in [
            ("ready", "gauge", "Whether bookings are taken.", flag(status.ready)),
            ("standby", "gauge", "Whether another node leads.", flag(status.standby)),
            ("accepted_total", "counter", "Orders carried out.", count(&self.accepted)),
            ("refused_total", "counter", "Orders refused.", count(&self.refused)),
            (
                "store_failures_total",
                "counter",
                "Groups that were not kept.",
                count(&self.store_failures),
            ),
            (
                "driver_failures_total",
                "counter",
                "Switches that failed.",
                count(&self.driver_failures),
            ),
            ("records_total", "counter", "Records made durable.", count(&self.commit_records)),
            (
                "planned_seconds_total",
                "counter",
                "Time from requested start to planned finish of booked files.",
                seconds(&self.planned),
            ),
            (
                "ideal_seconds_total",
                "counter",
                "The same on idle links; the gap to the ideal is the difference.",
                seconds(&self.ideal),
            ),
            (
                "margin_bytes_total",
                "counter",
                "Bytes that files which are done were booked beyond their size.",
                count(&self.margin),
            ),
            (
                "margin_held_bytes_total",
                "counter",
                "Those of them not given back: used for what was sent again, or wasted.",
                count(&self.margin_held),
            ),
        ] {
            one(out, name, kind, help, value);
        }
        self.requests.write(out, &metric("request_seconds"), "From request to answer.");
        let help = "From a boundary to the end of its switch.";
        self.switches.write(out, &metric("switch_seconds"), help);
        self.commits.write(out, &metric("commit_seconds"), "Deciding and keeping a group.");
    }
}

/// Metrics of bookings.
fn of_book(out: &mut String, view: &View) {
    let used: u64 = view.totals.values().map(|t| t.used_bytes).sum();
    let returned: u64 = view.totals.values().map(|t| t.returned_bytes).sum();
    let ahead = view.clock.ahead_of_wall() as f64 / 1e9;
    for (name, kind, help, value) in [
        ("open_bookings", "gauge", "Bookings to come or begun.", view.open.len() as f64),
        ("log_records", "gauge", "Position of the log's last record.", view.seq as f64),
        ("used_bytes_total", "counter", "Bytes that ended bookings held.", used as f64),
        (
            "returned_bytes_total",
            "counter",
            "Bytes that ended bookings gave back: they were done early, or cancelled.",
            returned as f64,
        ),
        ("clock_ahead_seconds", "gauge", "Service time less wall time.", ahead),
    ] {
        one(out, name, kind, help, value);
    }
    let name = metric("link_booked_ratio");
    let _ = writeln!(out, "# HELP {name} Part of the link booked now.\n# TYPE {name} gauge");
    let now = view.now();
    for (spec, profile) in view.links.iter().zip(view.capacity.profiles()) {
        let free = f64::from(profile.free_at(now.max(profile.floor())));
        let booked = 1.0 - free / f64::from(spec.capacity.max(1));
        let _ = writeln!(out, "{name}{{link=\"{}\"}} {booked}", spec.name);
    }
}

fn one(out: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    let name = metric(name);
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
}

fn metric(name: &str) -> String {
    format!("longhaul_circuits_{name}")
}

/// Upper bounds of the buckets.
const BOUNDS_MICROS: [u64; 16] = [
    100, 250, 500, 1_000, 2_000, 3_000, 5_000, 7_500, 10_000, 20_000, 50_000, 100_000, 250_000,
    500_000, 1_000_000, 5_000_000,
];
