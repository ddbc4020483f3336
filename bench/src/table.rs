//! The report as a table for people and as JSON for machines.

use serde_json::{Value, json};

use crate::report::BenchReport;
use crate::samples::Row;

/// For people.
pub fn text(report: &BenchReport) -> String {
    let mut text = format!(
        "{}\n{}\nRuns: {}{}, interleaved, medians; load average {:.1} before, {:.1} after\n",
        report.machine,
        report.link,
        report.options.runs.max(1),
        if report.options.quick { " of little data (quick: no basis for claims)" } else { "" },
        report.load[0],
        report.load[1],
    );
    if report.load[0] > 0.5 {
        text += "The machine was busy before: take the ratios with care, the rest as nothing.\n";
    }
    text += "\n                          Gb/s  of limit  seconds  CPU-s/GB: send  receive   both   of limit  what is done to the data\n";
    let limit = report.rows.first();
    for row in &report.rows {
        let both = both(row);
        let of_limit = limit.map_or(0.0, |limit| row.goodput() / limit.goodput());
        let cpu_of_limit = limit.and_then(|limit| Some(both? / self::both(limit)?));
        text += &format!(
            "{:<22} {:>8.2}  {:>8.2}  {:>7.2}         {:>6} {:>8}  {:>5}  {:>9}  {}\n",
            row.name,
            row.goodput() / 1e9,
            of_limit,
            row.seconds(),
            number(row.cpu_send()),
            number(row.cpu_receive()),
            number(both),
            number(cpu_of_limit),
            remark(row),
        );
    }
    text += "\none core                                       per second\n";
    for speed in &report.speeds {
        text += &format!("{:<40} {:>10.2} {}\n", speed.name, speed.median(), speed.unit);
    }
    if let Some(least) = report.least_cpu_of_copy() {
        text += &format!(
            "\ncp aead from its parts, each alone: {least:.2} CPU-s/GB; by all {} threads at most {:.2} Gb/s\n",
            report.threads,
            8.0 * report.threads as f64 / least,
        );
    }
    for row in &report.unmeasured {
        text += &format!("\nnot measured: {}: {}", row.name, row.reason);
    }
    text
}

/// For machines: medians, and every sample.
pub fn json(report: &BenchReport) -> Value {
    let limit = report.rows.first();
    let rows: Vec<Value> = report
        .rows
        .iter()
        .map(|row| {
            let of_limit = limit.map(|limit| row.goodput() / limit.goodput());
            let cpu_of_limit = limit.and_then(|limit| Some(both(row)? / both(limit)?));
            let samples: Vec<Value> = row
                .samples
                .iter()
                .map(|sample| {
                    json!({
                        "bytes": sample.bytes,
                        "seconds": sample.seconds,
                        "goodput_bps": sample.goodput().round(),
                        "cpu_seconds": {
                            "send": sample.cpu_send,
                            "receive": sample.cpu_receive,
                            "relay": sample.cpu_relay,
                        },
                        "note": sample.note,
                    })
                })
                .collect();
            json!({
                "name": row.name,
                "work": row.work,
                "goodput_bps": row.goodput().round(),
                "ratio": of_limit,
                "cpu_seconds_per_gb": {
                    "send": row.cpu_send(),
                    "receive": row.cpu_receive(),
                    "relay": row.cpu_relay(),
                    "both": both(row),
                    "ratio": cpu_of_limit,
                },
                "samples": samples,
            })
        })
        .collect();
    let speeds: Vec<Value> = report
        .speeds
        .iter()
        .map(|speed| {
            json!({
                "name": speed.name,
                "unit": speed.unit,
                "median": speed.median(),
                "samples": speed.samples,
            })
        })
        .collect();
    let unmeasured: Vec<Value> = report
        .unmeasured
        .iter()
        .map(|row| json!({ "name": row.name, "reason": row.reason }))
        .collect();
    json!({
        "machine": report.machine,
        "link": report.link,
        "runs": report.options.runs.max(1),
        "quick": report.options.quick,
        "load_average": { "before": report.load[0], "after": report.load[1] },
        "transfers": rows,
        "one_core": speeds,
        "least_cpu_seconds_per_gb_of_cp_aead": report.least_cpu_of_copy(),
        "unmeasured": unmeasured,
    })
}

fn both(row: &Row) -> Option<f64> {
    Some(row.cpu_send()? + row.cpu_receive()?)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.2}"))
}

/// Treatment of the data, the last run's notices, and the CPU time of a program between the ends.
fn remark(row: &Row) -> String {
    let mut text = row.work.to_owned();
    if let Some(note) = row.samples.last().and_then(|sample| sample.note.as_ref()) {
        text += &format!(" ({note})");
    }
    if let Some(cpu) = row.cpu_relay() {
        text += &format!("; the relay took {cpu:.2} CPU-s/GB");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::BenchOptions;
    use crate::samples::{Sample, Unmeasured};

    fn report() -> BenchReport {
        let sample = |seconds| Sample {
            bytes: 1_000_000_000,
            seconds,
            cpu_send: Some(0.25),
            cpu_receive: Some(0.25),
            cpu_relay: None,
            note: None,
        };
        let row = |name, seconds| Row { name, work: "nothing", samples: vec![sample(seconds)] };
        BenchReport {
            options: BenchOptions::new("longhaul".into()),
            link: "a pair".into(),
            machine: "a machine".into(),
            threads: 2,
            load: [0.0, 1.0],
            rows: vec![row("limit", 0.5), row("other", 1.0)],
            speeds: Vec::new(),
            unmeasured: vec![Unmeasured { name: "bbr".into(), reason: "not there".into() }],
        }
    }

    #[test]
    fn ratios_are_to_the_first_row() {
        let json = json(&report());
        assert_eq!(json["transfers"][0]["ratio"], 1.0);
        assert_eq!(json["transfers"][1]["ratio"], 0.5);
        assert_eq!(json["transfers"][1]["goodput_bps"], 8e9);
        assert_eq!(json["transfers"][1]["cpu_seconds_per_gb"]["both"], 0.5);
        let mut relayed = report();
        relayed.rows[1].samples[0].cpu_relay = Some(0.25);
        assert_eq!(super::json(&relayed)["transfers"][1]["cpu_seconds_per_gb"]["relay"], 0.25);
        assert!(text(&relayed).contains("the relay took 0.25 CPU-s/GB"));
    }

    #[test]
    fn the_table_names_what_is_missing() {
        let text = text(&report());
        assert!(text.contains("not measured: bbr: not there"), "{text}");
        assert!(!text.contains("busy"), "{text}");
    }
}
