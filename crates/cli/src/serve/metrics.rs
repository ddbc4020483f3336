//! Counts of a server for Prometheus, and its health for the programs that start and watch it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use longhaul::{ServeEvent, TransferAccount};
use longhaul_pages::{Pages, metrics_page};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::outcome::Outcome;

/// Counts since the start. They name no client, no token and no path.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    transfers: Family<Ended, Counter>,
    running: Gauge,
    bytes: Family<Direction, Counter>,
    seconds: Histogram,
    limited: Family<Limit, Counter<f64, AtomicU64>>,
    lost: Family<Cause, Counter>,
    refused: Counter,
    ready: Gauge,
    /// New clients are let in.
    is_ready: AtomicBool,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ended {
    direction: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Direction {
    direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Limit {
    bottleneck: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("longhaul_serve");
        let metrics = Self {
            registry: Registry::default(),
            transfers: Family::default(),
            running: Gauge::default(),
            bytes: Family::default(),
            seconds: Histogram::new(BOUNDS),
            limited: Family::default(),
            lost: Family::default(),
            refused: Counter::default(),
            ready: Gauge::default(),
            is_ready: AtomicBool::new(false),
        };
        registry.register("transfers", "Transfers that ended", metrics.transfers.clone());
        registry.register("running_transfers", "Transfers under way", metrics.running.clone());
        let help = "Contents that ended transfers moved";
        registry.register("bytes", help, metrics.bytes.clone());
        registry.register("transfer_seconds", "Time of a transfer", metrics.seconds.clone());
        let help = "Time of ended transfers by what limited them for the longest time";
        registry.register("limited_seconds", help, metrics.limited.clone());
        let help = "Packets of ended transfers that were lost";
        registry.register("lost_packets", help, metrics.lost.clone());
        registry.register("refused", "Clients that were turned away", metrics.refused.clone());
        registry.register("ready", "New clients are let in", metrics.ready.clone());
        Self { registry, ..metrics }
    }
}

impl Metrics {
    /// Counts what has happened.
    pub fn take(&self, event: &ServeEvent) {
        match event {
            ServeEvent::Listening(_) => self.set_ready(true),
            ServeEvent::Began { .. } => drop(self.running.inc()),
            ServeEvent::Ended { account: Some(account), outcome, .. } => {
                self.running.dec();
                self.count(account, &Outcome::of(outcome));
            }
            ServeEvent::Refused { .. } => drop(self.refused.inc()),
            _ => {}
        }
    }

    /// New clients are let in, or not any more.
    pub fn set_ready(&self, is_ready: bool) {
        self.ready.set(is_ready.into());
        self.is_ready.store(is_ready, Ordering::Relaxed);
    }

    /// Shows it at `address`.
    ///
    /// # Errors
    /// That cannot be had.
    pub fn show(self: &Arc<Self>, address: SocketAddr) -> io::Result<Pages> {
        let metrics = self.clone();
        Pages::start(address, move |_| router(&metrics))
    }

    fn count(&self, account: &TransferAccount, outcome: &Outcome) {
        let TransferAccount { action, bytes, time, bottleneck, lost, .. } = account;
        let direction = action.name();
        self.transfers.get_or_create(&Ended { direction, outcome: outcome.name() }).inc();
        self.bytes.get_or_create(&Direction { direction }).inc_by(*bytes);
        self.seconds.observe(time.as_secs_f64());
        let limit = Limit { bottleneck: bottleneck.to_string() };
        self.limited.get_or_create(&limit).inc_by(time.as_secs_f64());
        for (cause, count) in lost.by_cause() {
            self.lost.get_or_create(&Cause { cause: cause.name() }).inc_by(count);
        }
    }
}

fn router(metrics: &Arc<Metrics>) -> Router {
    let (counts, ready) = (metrics.clone(), metrics.clone());
    Router::new()
        .route("/metrics", get(async move || metrics_page(&counts.registry)))
        .route("/healthz", get(async || "ok\n"))
        .route(
            "/readyz",
            get(async move || match ready.is_ready.load(Ordering::Relaxed) {
                true => (StatusCode::OK, "ready\n"),
                false => (StatusCode::SERVICE_UNAVAILABLE, "nobody is let in\n"),
            }),
        )
}

/// Upper bounds of the buckets, in seconds.
const BOUNDS: [f64; 10] = [0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 28800.0, 86400.0];
