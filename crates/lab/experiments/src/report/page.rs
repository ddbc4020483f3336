//! The page: one file, nothing loaded from anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use longhaul_plot::{Figure, escape, number};

use super::data;
use super::phrases::interval;
use super::{Part, figures, words};
use crate::experiment::{Parameter, Shows};
use crate::measure::Measure;
use crate::record::{Record, Verdict};

pub(super) fn page(parts: &[Part]) -> String {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC");
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Longhaul lab report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<h1>Longhaul lab report</h1>\n\
         <p>Made {now}. Emulated paths between network namespaces of one machine, real sockets and \
         programs at both ends.</p>\n</header>\n"
    );
    if parts.is_empty() {
        html += "<p>There are no results yet: <code>longhaul lab run NAME</code> makes some.</p>\n";
    }
    if parts.len() > 1 {
        html += "<nav><ul>\n";
        for part in parts {
            let (name, title) = (escape(&part.experiment.name), escape(&part.experiment.title));
            let _ = writeln!(html, "<li><a href=\"#{name}\">{title}</a> ({name})</li>");
        }
        html += "</ul></nav>\n";
    }
    for part in parts {
        section(&mut html, part);
    }
    html += METHOD;
    html + "</body>\n</html>\n"
}

fn section(html: &mut String, part: &Part) {
    let experiment = &part.experiment;
    let _ = write!(
        html,
        "<section id=\"{name}\">\n<h2>{}</h2>\n<p class=\"question\">{}</p>\n\
         <p class=\"source\"><b>{name}</b>. Source: {}.</p>\n",
        escape(&experiment.title),
        escape(&experiment.question),
        escape(&experiment.source),
        name = escape(&experiment.name),
    );
    if !experiment.note.is_empty() {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(&experiment.note));
    }
    let _ = writeln!(html, "<p class=\"note\">{}</p>", account(part));
    if part.records.is_empty() {
        html.push_str("</section>\n");
        return;
    }
    if !experiment.findings.is_empty() {
        html.push_str(
            "<table class=\"findings\">\n<thead><tr><th>What the source found</th>\
             <th>What was measured here</th></tr></thead>\n<tbody>\n",
        );
        for finding in &experiment.findings {
            let measured: String = words::say(part, finding)
                .iter()
                .map(|sentence| format!("<p>{}</p>", escape(sentence)))
                .collect();
            let paper = escape(&finding.paper);
            let _ = writeln!(html, "<tr><td><p>{paper}</p></td><td>{measured}</td></tr>");
        }
        html.push_str("</tbody>\n</table>\n");
    }
    html.push_str("<div class=\"figures\">\n");
    for spec in &experiment.plots {
        let Some(figure) = figures::figure(part, spec) else { continue };
        let limits = spec.only.iter().map(|(parameter, value)| parameter.say(value));
        let limits: Vec<String> = limits.collect();
        let limits = match limits.is_empty() {
            true => String::new(),
            false => format!(" <span>({})</span>", escape(&limits.join(", "))),
        };
        let _ = writeln!(html, "<figure>\n<h3>{}{limits}</h3>", escape(&spec.title));
        let named = spec.shows == Shows::Medians && spec.x == spec.lines;
        draw(html, &figure, !named);
        html.push_str("</figure>\n");
    }
    html.push_str("</div>\n");
    table(html, part);
    html.push_str("</section>\n");
}

/// Panels flow into as many columns as there is room for, over one legend unless the axis names all.
fn draw(html: &mut String, figure: &Figure, legend: bool) {
    html.push_str("<div class=\"panels\">\n");
    for panel in &figure.panels {
        html.push_str(&panel.svg());
    }
    html.push_str("</div>\n");
    let samples = figure.samples();
    if legend && samples.len() > 1 {
        html.push_str("<div class=\"legend\">");
        for (name, sample) in samples {
            let _ = write!(html, "<span>{sample}{}</span> ", escape(&name));
        }
        html.push_str("</div>\n");
    }
}

/// Number of runs, their kind, and their machine.
fn account(part: &Part) -> String {
    let mut verdicts: BTreeMap<&str, usize> = BTreeMap::new();
    for record in &part.records {
        *verdicts.entry(record.verdict.name()).or_default() += 1;
    }
    let kind = if part.quick { "quick sweep" } else { "whole sweep" };
    let counts: Vec<String> =
        verdicts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
    let (made, planned) = (part.records.len(), part.planned);
    let mut text = format!("{made} of {planned} runs of the {kind}: {}. ", counts.join(", "));
    if part.left_out > 0 {
        text += &format!(
            "{} other results, of the quick sweep or of earlier versions, are left out. ",
            part.left_out
        );
    }
    let distinct = |of: &dyn Fn(&Record) -> String| -> Vec<String> {
        let all: BTreeSet<String> =
            part.records.iter().map(of).filter(|text| !text.is_empty()).collect();
        all.into_iter().collect()
    };
    let machines = distinct(&|record| record.machine.clone());
    let loads = part.records.iter().map(|record| record.load_average);
    let load =
        loads.fold((f64::INFINITY, 0.0f64), |(low, high), load| (low.min(load), high.max(load)));
    if !machines.is_empty() {
        let (low, high) = (number(load.0), number(load.1));
        text += &format!("{}; load average before the runs {low} to {high}. ", machines.join("; "));
    }
    let buffers = distinct(&|record| record.buffers.clone());
    if !buffers.is_empty() {
        text += &format!("Socket buffers: {}. ", buffers.join("; "));
    }
    let versions = distinct(&|record| {
        let version = record.version.as_deref().unwrap_or_default();
        match (version.is_empty(), &record.transport) {
            (true, _) => String::new(),
            (false, None) => format!("{}: {version}", record.contender),
            (false, Some(transport)) => {
                format!("{}: {version} over {transport}", record.contender)
            }
        }
    });
    if !versions.is_empty() {
        text += &format!("Programs: {}. ", versions.join("; "));
    }
    text += &of_emulation(part);
    let mut text = escape(&text);
    for reason in reasons(part) {
        let _ = write!(text, "<br>{}", escape(&reason));
    }
    text
}

/// Faults of the emulation and of the machine that would spoil what was measured.
fn of_emulation(part: &Part) -> String {
    let spoiled = part.records.iter().filter(|record| {
        ["device", "overrun", "refused", "malformed"]
            .iter()
            .any(|reason| record.path_lost.contains_key(*reason))
    });
    let spoiled = spoiled.count();
    let stolen = part.records.iter().map(|record| record.stolen_percent).fold(0.0, f64::max);
    let mut text = String::new();
    if stolen > 1.0 {
        text += &format!(
            "Other guests of the machine's host had up to {} % of its processors' time (worst run). ",
            number(stolen)
        );
    }
    let latest = part.records.iter().map(|record| record.late_p99_ms).fold(0.0, f64::max);
    text += &format!(
        "The emulation delivered at most 1 % of packets later than meant by {} ms (worst run)",
        number(latest)
    );
    text += &match spoiled {
        0 => ", and lost none of its own.".to_owned(),
        1 => ", and lost packets of its own in one run.".to_owned(),
        _ => format!(", and lost packets of its own in {spoiled} runs."),
    };
    text
}

/// Why contenders have runs without figures: of runs that ended alike the reason of the first.
fn reasons(part: &Part) -> Vec<String> {
    let mut reasons: Vec<(&str, Verdict, usize, &str)> = Vec::new();
    for record in &part.records {
        if matches!(record.verdict, Verdict::Done | Verdict::TimedOut) {
            continue;
        }
        let alike =
            reasons.iter_mut().find(|one| one.0 == record.contender && one.1 == record.verdict);
        match alike {
            Some(reason) => reason.2 += 1,
            None => {
                let why = record.why.as_deref().and_then(|why| why.lines().next());
                reasons.push((&record.contender, record.verdict, 1, why.unwrap_or_default()));
            }
        }
    }
    let say = |(name, verdict, count, why): (&str, Verdict, usize, &str)| {
        let runs = if count == 1 { "run" } else { "runs" };
        format!("{name}, {count} {runs} {}: {why}", verdict.name())
    };
    reasons.into_iter().map(say).collect()
}

/// All medians.
fn table(html: &mut String, part: &Part) {
    let records: Vec<&Record> = part.records.iter().collect();
    let mut measures = part.experiment.measures();
    for measure in ALWAYS {
        if !measures.contains(&measure) {
            measures.push(measure);
        }
    }
    // Only what any run tells.
    measures.retain(|measure| data::Figure::of(*measure, &records).is_some());
    html.push_str("<details>\n<summary>All medians, with their intervals</summary>\n<table>\n<thead><tr><th>case</th>");
    for measure in &measures {
        let _ = write!(html, "<th>{}</th>", escape(measure.label()));
    }
    html.push_str("<th>lost on all links</th></tr></thead>\n<tbody>\n");
    for (place, group) in part.groups(&records, &[]) {
        let place =
            if place.is_empty() { Parameter::Contender.say(&group[0].contender) } else { place };
        let _ = write!(html, "<tr><th>{}</th>", escape(&place));
        for measure in &measures {
            let cell = match data::Figure::of(*measure, &group) {
                None => escape(group[0].verdict.name()),
                Some(figure) => {
                    let mark = match (figure.unfinished, figure.cut) {
                        (true, _) => "*",
                        (false, true) => "&dagger;",
                        (false, false) => "",
                    };
                    let median = number(figure.estimate.median);
                    let interval = interval(&figure.estimate);
                    format!("{median}{mark} <small>{interval}</small>")
                }
            };
            let _ = write!(html, "<td>{cell}</td>");
        }
        let _ = writeln!(html, "<td>{}</td></tr>", escape(&causes(&group)));
    }
    html.push_str("</tbody>\n</table>\n<p class=\"note\">* ended by the time limit: a time is at least this, a rate that until then. &dagger; cut at the job's length: what had arrived by then counts.</p>\n</details>\n");
}

/// Losses of all runs by cause, as the emulation and the programs tell them.
fn causes(group: &[&Record]) -> String {
    let mut total: BTreeMap<String, u64> = BTreeMap::new();
    for record in group {
        for (reason, count) in &record.path_lost {
            *total.entry(reason.clone()).or_default() += count;
        }
        for (cause, count) in record.program_lost.iter().filter(|(_, count)| **count > 0) {
            *total.entry(format!("the program says {cause}")).or_default() += count;
        }
        if record.host_lost > 0 {
            *total.entry("at the receiver's host".into()).or_default() += record.host_lost;
        }
    }
    let texts: Vec<String> =
        total.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    if texts.is_empty() { "none".into() } else { texts.join(", ") }
}

/// In the table of every experiment.
const ALWAYS: [Measure; 8] = [
    Measure::Goodput,
    Measure::CompletionTime,
    Measure::Resent,
    Measure::CpuSend,
    Measure::CpuReceive,
    Measure::CpuBetween,
    Measure::QueueDelay,
    Measure::Jitter,
];

const METHOD: &str = "<section>\n<h2>How to read this</h2>\n<p>Runs are interleaved (the whole sweep \
forwards, then backwards, and so on), and the same repeat has the same seed in all cells, so that all \
contenders meet the same random losses. A point is the median of its runs. Its bar is an interval \
between two of the values themselves, the narrowest that holds the median of their distribution with \
95 % or more; that takes six runs. With fewer the bar goes from the least to the greatest value and \
holds the median with 94 % (five runs), 88 % (four), 75 % (three) or 50 % (two). Hollow marks are of \
runs that the time limit ended: a time is at least that, a rate is what arrived until then, headers \
included.</p>\n<p>Goodput is user bytes over the time of the whole command, set-up and end included. CPU \
time is that of all processes, or threads, of a contender at that end, for 10<sup>9</sup> user bytes. \
Queue delay is the mean time in the observed link's queue. What is lost on the observed link is in \
percent of what was sent on it, without other links before, behind or beside it. Delivery jitter is the standard deviation of \
what arrives in tenths of a second, in percent of its mean. Figures of a scheduler's turns show the \
first 4,000 of a run; sentences count all, to two digits. Fairness is Jain's index. Rates of links and \
sending rates count IP packets with their headers.</p>\n</section>\n";

const STYLE: &str = "
body{font:1rem/1.5 system-ui,sans-serif;color:#111;background:#fff;max-width:1220px;margin:0 auto;padding:1rem}
h1{margin:.5rem 0}h2{margin:2.5rem 0 .5rem;border-top:2px solid #111;padding-top:1rem}
h3{font-size:1rem;margin:1.2rem 0 .2rem}h3,.legend{width:0;min-width:100%}h3 span{font-weight:normal}
.question{font-size:1.1rem}.source,.note{color:#444;font-size:.9rem;overflow-wrap:anywhere}
.figures{display:flex;flex-wrap:wrap;gap:0 .5rem}
figure{margin:0;max-width:100%;break-inside:avoid}
.panels{display:flex;flex-wrap:wrap;gap:.5rem}
.panels svg{flex:0 0 380px;width:380px;max-width:100%;height:auto}
.legend{font-size:.9rem;display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;padding-left:1rem;box-sizing:border-box}
.legend span{display:inline-flex;align-items:center;gap:.4rem}
table{border-collapse:collapse;font-size:.9rem;margin:1rem 0}
th,td{border:1px solid #bbb;padding:.3rem .6rem;text-align:left;vertical-align:top}
thead th{background:#eee}
.findings td{width:50%}.findings p{margin:.2rem 0}
details{overflow-x:auto;margin-top:1rem}summary{cursor:pointer;font-weight:bold}
details td{white-space:nowrap}details small{color:#555}
@media(max-width:700px){body{padding:.6rem}.findings,.findings tbody,.findings tr,.findings td{display:block;width:auto}
.findings thead{display:none}.findings td::before{content:'The source'}
.findings td+td::before{content:'Here'}.findings td::before{font-weight:bold}
.findings td+td{border-top:0;margin-bottom:.8rem;background:#f6f6f6}}
@media print{html{font-size:10px}body{max-width:none;padding:0}.figures{display:block}figure{display:inline-block;vertical-align:top}.panels svg{flex-basis:225px;width:225px}
section{break-before:auto}tr,figure{break-inside:avoid}details:not([open]){display:none}a{color:inherit}}
";
