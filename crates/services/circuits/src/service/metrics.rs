//! Metrics for Prometheus.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use longhaul_calendar::{Capacity, Request};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Status;
use super::view::View;
use crate::ledger::{Ending, Event, Id, Ledger, Record};

/// Counters since the service started.
#[derive(Debug)]
pub struct Metrics {
    accepted: Counter,
    refused: Counter,
    store_failures: Counter,
    driver_failures: Counter,
    switches: Histogram,
    requests: Histogram,
    commits: Histogram,
    commit_records: Counter,
    /// Time from requested start to planned finish of files, in seconds.
    planned: Counter<f64, AtomicU64>,
    /// The same if links had been idle.
    ideal: Counter<f64, AtomicU64>,
    /// Bytes by which the bookings of files that are done exceeded them.
    margin: Counter,
    /// The part of these that was not given back.
    margin_held: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let times = || Histogram::new(BOUNDS);
        Self {
            accepted: Counter::default(),
            refused: Counter::default(),
            store_failures: Counter::default(),
            driver_failures: Counter::default(),
            switches: times(),
            requests: times(),
            commits: times(),
            commit_records: Counter::default(),
            planned: Counter::default(),
            ideal: Counter::default(),
            margin: Counter::default(),
            margin_held: Counter::default(),
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Link {
    link: String,
}

impl Metrics {
    /// A request was answered.
    pub fn answered(&self, time: Duration) {
        self.requests.observe(time.as_secs_f64());
    }

    pub(super) fn committed(&self, records: &[Record], time: Duration) {
        self.commits.observe(time.as_secs_f64());
        self.commit_records.inc_by(records.len() as u64);
        self.accepted.inc_by(records.len() as u64);
    }

    pub(super) fn refused(&self) {
        self.refused.inc();
    }

    pub(super) fn store_failed(&self) {
        self.store_failures.inc();
    }

    /// A rate was changed, `late` after its boundary.
    pub(super) fn switched(&self, late: Duration) {
        self.switches.observe(late.as_secs_f64());
    }

    pub(super) fn driver_failed(&self) {
        self.driver_failures.inc();
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
        let tick = ledger.rules().tick_nanos as f64 / 1e9;
        self.ideal.inc_by(ideal as f64 * tick);
        self.planned.inc_by(planned as f64 * tick);
    }

    /// Counts the margins of files that are done.
    pub(super) fn ended(&self, ledger: &Ledger, ids: &[Id]) {
        for closed in ids.iter().filter_map(|id| ledger.closed(*id)) {
            let done = matches!(closed.ending, Ending::Finished | Ending::Released);
            let Some(bytes) = closed.entry.note.bytes.filter(|_| done) else { continue };
            let booked = closed.used_bytes.saturating_add(closed.returned_bytes);
            let beyond = |held: u64| held.saturating_sub(bytes);
            self.margin.inc_by(beyond(booked));
            self.margin_held.inc_by(beyond(closed.used_bytes));
        }
    }

    /// Metrics for Prometheus. What is booked is the leader's to say: a node that stands by
    /// leaves it out, so that sums over nodes count it once.
    pub fn registry(&self, view: &View, status: &Status) -> Registry {
        let mut registry = Registry::with_prefix("longhaul_circuits");
        self.of_node(&mut registry, status);
        if !status.standby {
            of_book(&mut registry, view);
        }
        registry
    }

    /// Metrics of this node since it started.
    fn of_node(&self, registry: &mut Registry, status: &Status) {
        for (name, help, is_so) in [
            ("ready", "Whether bookings are taken", status.ready),
            ("standby", "Whether another node leads", status.standby),
        ] {
            registry.register(name, help, ConstGauge::new(i64::from(is_so)));
        }
        for (name, help, counter) in [
            ("accepted", "Orders carried out", &self.accepted),
            ("refused", "Orders refused", &self.refused),
            ("store_failures", "Groups that were not kept", &self.store_failures),
            ("driver_failures", "Switches that failed", &self.driver_failures),
            ("records", "Records made durable", &self.commit_records),
            (
                "margin_bytes",
                "Bytes that files which are done were booked beyond their size",
                &self.margin,
            ),
            (
                "margin_held_bytes",
                "Those of them not given back: used for what was sent again, or wasted",
                &self.margin_held,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        for (name, help, seconds) in [
            (
                "planned_seconds",
                "Time from requested start to planned finish of booked files",
                &self.planned,
            ),
            (
                "ideal_seconds",
                "The same on idle links; the gap to the ideal is the difference",
                &self.ideal,
            ),
        ] {
            registry.register(name, help, seconds.clone());
        }
        for (name, help, times) in [
            ("request_seconds", "From request to answer", &self.requests),
            ("switch_seconds", "From a boundary to the end of its switch", &self.switches),
            ("commit_seconds", "Deciding and keeping a group", &self.commits),
        ] {
            registry.register(name, help, times.clone());
        }
    }
}

/// Metrics of bookings.
fn of_book(registry: &mut Registry, view: &View) {
    let used: u64 = view.totals.values().map(|t| t.used_bytes).sum();
    let returned: u64 = view.totals.values().map(|t| t.returned_bytes).sum();
    let open = ConstGauge::new(view.open.len() as i64);
    registry.register("open_bookings", "Bookings to come or begun", open);
    let records = ConstGauge::new(view.seq.cast_signed());
    registry.register("log_records", "Position of the log's last record", records);
    let used = ConstCounter::new(used);
    registry.register("used_bytes", "Bytes that ended bookings held", used);
    let help = "Bytes that ended bookings gave back: they were done early, or cancelled";
    registry.register("returned_bytes", help, ConstCounter::new(returned));
    let ahead = ConstGauge::new(view.clock.ahead_of_wall() as f64 / 1e9);
    registry.register("clock_ahead_seconds", "Service time less wall time", ahead);
    let links = Family::<Link, Gauge<f64, AtomicU64>>::default();
    let now = view.now();
    for (spec, profile) in view.links.iter().zip(view.capacity.profiles()) {
        let free = f64::from(profile.free_at(now.max(profile.floor())));
        let link = Link { link: spec.name.to_string() };
        links.get_or_create(&link).set(1.0 - free / f64::from(spec.capacity.max(1)));
    }
    registry.register("link_booked_ratio", "Part of the link booked now", links);
}

/// Upper bounds of the buckets, in seconds.
const BOUNDS: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5,
    1.0, 5.0,
];
