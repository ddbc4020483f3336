use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::{SegmentStatus, Status};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Class {
    class: String,
}

impl Status {
    /// Metrics for Prometheus. They name no client and no target.
    pub fn metrics(&self) -> Registry {
        let mut registry = Registry::with_prefix("longhaul_gateway");
        let totals = &self.totals;
        for (name, help, value) in [
            ("sessions", "Sessions at present", self.sessions.len() as u64),
            ("sessions_max", "Most sessions at a time", self.max_sessions),
            ("at_door", "Connections that have proven nothing", self.at_door),
            ("memory_bytes", "Memory that segments hold", self.memory),
            ("memory_max_bytes", "Most of it", self.max_memory),
        ] {
            registry.register(name, help, ConstGauge::new(value.cast_signed()));
        }
        for (name, help, value) in [
            ("done", "Sessions that ended in order", totals.done),
            ("refused", "Clients that were not let in", totals.refused),
            (
                "not_connected",
                "Sessions whose target or next gateway was not reached",
                totals.not_connected,
            ),
            ("broken", "Sessions that broke", totals.broken),
            ("bytes_there", "Payload towards targets", totals.bytes_there),
            ("bytes_back", "Payload towards clients", totals.bytes_back),
        ] {
            registry.register(name, help, ConstCounter::new(value));
        }
        self.by_class(&mut registry);
        registry
    }

    fn by_class(&self, registry: &mut Registry) {
        let mut classes: BTreeMap<&str, Vec<&SegmentStatus>> = BTreeMap::new();
        for segment in self.sessions.iter().flat_map(|session| &session.segments) {
            classes.entry(segment.class.as_deref().unwrap_or("others")).or_default().push(segment);
        }
        type Value = fn(&[&SegmentStatus]) -> f64;
        let values: [(&str, &str, Value); 4] = [
            ("segments", "Segments by class", |segments| segments.len() as f64),
            ("segment_rate_bps", "Goodput towards their peers", |segments| {
                segments.iter().map(|segment| segment.rate_bps as f64).sum()
            }),
            ("segment_rtt_seconds", "Longest round trip among them", |segments| {
                segments.iter().map(|segment| segment.rtt_us as f64 / 1e6).fold(0.0, f64::max)
            }),
            ("segment_resent_bytes", "Sent again on those that stand", |segments| {
                segments.iter().map(|segment| segment.resent_bytes as f64).sum()
            }),
        ];
        for (name, help, value) in values {
            let family = Family::<Class, Gauge<f64, AtomicU64>>::default();
            for (class, segments) in &classes {
                let class = Class { class: (*class).to_owned() };
                family.get_or_create(&class).set(value(segments));
            }
            registry.register(name, help, family);
        }
    }
}
