use std::collections::BTreeMap;
use std::fmt::Write;

use super::{SegmentStatus, Status};

impl Status {
    /// The text that Prometheus reads. It names no client and no target.
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        let totals = &self.totals;
        for (name, kind, help, value) in [
            ("sessions", "gauge", "Sessions at present.", self.sessions.len() as u64),
            ("sessions_max", "gauge", "Most sessions at a time.", self.max_sessions),
            ("at_door", "gauge", "Connections that have proven nothing.", self.at_door),
            ("memory_bytes", "gauge", "Memory that segments hold.", self.memory),
            ("memory_max_bytes", "gauge", "Most of it.", self.max_memory),
            ("done_total", "counter", "Sessions that ended in order.", totals.done),
            ("refused_total", "counter", "Clients that were not let in.", totals.refused),
            (
                "not_connected_total",
                "counter",
                "Sessions whose target or next gateway was not reached.",
                totals.not_connected,
            ),
            ("broken_total", "counter", "Sessions that broke.", totals.broken),
            ("bytes_there_total", "counter", "Payload towards targets.", totals.bytes_there),
            ("bytes_back_total", "counter", "Payload towards clients.", totals.bytes_back),
        ] {
            head(&mut out, name, kind, help);
            let _ = writeln!(out, "longhaul_gateway_{name} {value}");
        }
        self.by_class(&mut out);
        out
    }

    fn by_class(&self, out: &mut String) {
        let mut classes: BTreeMap<&str, Vec<&SegmentStatus>> = BTreeMap::new();
        for segment in self.sessions.iter().flat_map(|session| &session.segments) {
            classes.entry(segment.class.as_deref().unwrap_or("others")).or_default().push(segment);
        }
        type Value = fn(&[&SegmentStatus]) -> f64;
        let values: [(&str, &str, Value); 4] = [
            ("segments", "Segments by class.", |segments| segments.len() as f64),
            ("segment_rate_bps", "Goodput towards their peers.", |segments| {
                segments.iter().map(|segment| segment.rate_bps as f64).sum()
            }),
            ("segment_rtt_seconds", "Longest round trip among them.", |segments| {
                segments.iter().map(|segment| segment.rtt_us as f64 / 1e6).fold(0.0, f64::max)
            }),
            ("segment_resent_bytes", "Sent again on those that stand.", |segments| {
                segments.iter().map(|segment| segment.resent_bytes as f64).sum()
            }),
        ];
        for (name, help, value) in values {
            head(out, name, "gauge", help);
            for (class, segments) in &classes {
                let value = value(segments);
                let _ = writeln!(out, "longhaul_gateway_{name}{{class=\"{class}\"}} {value}");
            }
        }
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let name = format!("longhaul_gateway_{name}");
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
