use std::collections::BTreeSet;

use axum::http::header::{CONTENT_TYPE, HeaderName};
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// The text that Prometheus reads, of any version, and `promtool check metrics` too: its format 0.0.4.
pub fn encode(registry: &Registry) -> String {
    let mut open_metrics = String::new();
    // A string takes everything.
    let _ = text::encode(&mut open_metrics, registry);
    plain(&open_metrics)
}

/// A page of it.
pub fn metrics_page(registry: &Registry) -> ([(HeaderName, &'static str); 1], String) {
    ([(CONTENT_TYPE, METRICS_TYPE)], encode(registry))
}

/// OpenMetrics names a counter without the `_total` of its values, and has units and an end of its own.
fn plain(open_metrics: &str) -> String {
    let counter = |line| {
        let (name, kind) = str::strip_prefix(line, "# TYPE ")?.split_once(' ')?;
        (kind == "counter").then_some(name)
    };
    let counters: BTreeSet<&str> = open_metrics.lines().filter_map(counter).collect();
    let mut out = String::new();
    for line in open_metrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(keyword), Some(name), Some(rest)) if counters.contains(name) => {
                out.extend(["# ", keyword, " ", name, "_total ", rest, "\n"]);
            }
            _ => out.extend([line, "\n"]),
        }
    }
    out
}

const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::ConstCounter;
    use prometheus_client::metrics::gauge::ConstGauge;

    use super::*;

    #[test]
    fn counters_have_the_name_of_their_values() {
        let mut registry = Registry::with_prefix("x");
        registry.register("done", "Things done", ConstCounter::new(7u64));
        registry.register("open", "Things open", ConstGauge::new(1i64));
        assert_eq!(
            encode(&registry),
            "# HELP x_done_total Things done.\n# TYPE x_done_total counter\nx_done_total 7\n\
             # HELP x_open Things open.\n# TYPE x_open gauge\nx_open 1\n"
        );
    }
}
