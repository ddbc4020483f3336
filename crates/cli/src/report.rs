//! What `longhaul cp` says at its end: a sentence for people, an object for scripts.

use longhaul::{
    CircuitReport, CopyReport, EndedEntries, EndedEntry, HistoryReport, LinkReport, LinkUse,
    Snapshot,
};
use longhaul_units::{Bytes, Duration, MemoryUse, Rate};
use longhaul_wire::Losses;
use serde_json::{Map, Value, json};

use crate::figures::{entries, lost, milliseconds, percent, round_trip, seconds};

/// File data moved by this run per second of it.
pub(crate) fn goodput(report: &CopyReport) -> Rate {
    Rate::from_bytes_over(report.bytes.saturating_sub(report.resumed_bytes), report.elapsed)
}

/// The fields of docs/operating.md.
pub(crate) fn json(report: &CopyReport) -> Map<String, Value> {
    let mut fields = object(json!({
        "bytes": report.bytes,
        "files": report.files,
        "seconds": seconds(report.elapsed),
        "setup_seconds": seconds(report.setup),
        "goodput_bps": goodput(report).as_bps(),
        "resumed_bytes": report.resumed_bytes,
        "verified": report.verified,
        "discarded": report.discarded,
        "failed": report.failures.count,
        "failures": ended(&report.failures),
        "skipped": report.skipped.count,
        "skips": ended(&report.skipped),
        "deleted": report.deleted.count,
        "unchanged": {
            "files": report.unchanged.0,
            "bytes": report.unchanged.1,
            "newer": report.newer,
            "mended": report.mended,
        },
        "would_change": { "entries": report.would_change.0, "bytes": report.would_change.1 },
    }));
    if !report.failures.is_empty() {
        fields.insert("bytes_done".into(), report.bytes_done.into());
    }
    fields.append(&mut of_link(&report.link));
    if let Some(Value::Array(notices)) = fields.get_mut("notices") {
        notices.extend(report.remarks.iter().cloned().map(Value::from));
    }
    fields
}

/// The first of `entries`, each with its code.
pub(crate) fn ended(entries: &EndedEntries) -> Vec<Value> {
    let one = |entry: &EndedEntry| json!({ "path": entry.path, "code": entry.code.name(), "reason": entry.reason });
    entries.sample.iter().map(one).collect()
}

/// The fields that tell how data travelled.
pub(crate) fn of_link(link: &LinkReport) -> Map<String, Value> {
    // Nobody knows what becomes of the packets of ssh.
    let counted = link.carrier != "ssh";
    let mut fields = object(json!({
        "carrier": link.carrier,
        "reconnects": link.reconnects,
        "via": link.via,
        "profile": link.profile,
        "protect": link.protect.name(),
        "rtt_ms": round_trip(link.rtt),
        "packets_sent": counted.then_some(link.packets_sent),
        "packets_resent": counted.then_some(link.packets_resent),
        "lost": counted.then(|| lost(&link.lost)),
        "bottleneck": link.bottleneck.name(),
        "cpu_seconds": {
            "local": seconds(link.cpu_local),
            "remote": link.cpu_remote.map(seconds),
        },
        "memory": memory(link.memory),
        "hosts": crate::hosts::json(&link.hosts),
        "history": link.history.as_ref().map(history),
        "notices": link.notices,
    }));
    if let Some(used) = &link.circuit {
        fields.insert("circuit".into(), circuit(used));
    }
    if !link.links.is_empty() {
        fields.insert("links".into(), link.links.iter().map(one_link).collect());
    }
    fields
}

/// What the side that sends made of what it remembered of the path; nothing where it remembers nothing
/// of any.
fn memory((used, rate): (MemoryUse, Rate)) -> Option<Value> {
    let known = (rate > Rate::ZERO).then_some(rate.as_bps());
    (used != MemoryUse::None).then(|| json!({ "used": used.name(), "known_bps": known }))
}

/// What was known of the path, and what was made of it.
fn history(report: &HistoryReport) -> Value {
    let known = report.known.as_ref().map(crate::history::known);
    json!({
        "known": known,
        "used": report.used.name(),
        "learnt_bps": report.learnt.map(Rate::as_bps),
    })
}

fn one_link(used: &LinkUse) -> Value {
    json!({
        "local": used.local.to_string(),
        "remote": used.remote.to_string(),
        "weight": used.weight,
        "sent_bytes": used.sent_bytes,
        "received_bytes": used.received_bytes,
        "packets_sent": used.packets_sent,
        "packets_lost": used.packets_lost,
        "alive": used.alive,
    })
}

fn circuit(used: &CircuitReport) -> Value {
    json!({
        "booking": used.booking,
        "booked_bytes": used.booked_bytes,
        "allowed_bytes": used.allowed_bytes,
        "sent_bytes": used.sent_bytes,
        "packets_sent": used.packets_sent,
        "packets_lost": used.packets_lost,
        "ip_bytes": used.ip_bytes,
        "opened_seconds": seconds(used.opened),
        "left_seconds": seconds(used.left),
        "released_seconds": used.released.map(seconds),
        "planned_seconds": seconds(used.planned),
    })
}

/// What is known of a copy that did not come to its end.
pub(crate) fn partial(snapshot: &Snapshot) -> Map<String, Value> {
    object(json!({
        "bytes": snapshot.bytes_named,
        "bytes_done": snapshot.bytes_done.saturating_sub(snapshot.would_change),
        "files": snapshot.files_named,
        "seconds": seconds(snapshot.elapsed),
        "rtt_ms": round_trip(snapshot.rtt),
        "packets_sent": snapshot.packets_sent,
        "resumed_bytes": snapshot.resumed_bytes,
        "verified": false,
    }))
}

/// For people; where the copy `writes_list`, hashes of what is there unchanged are in it too.
pub(crate) fn sentence(report: &CopyReport, writes_list: bool) -> String {
    let checked = match (report.verified, report.discarded) {
        (true, false) => "copied and verified",
        (false, false) => "copied",
        (true, true) => "received, verified and discarded",
        (false, true) => "received and discarded",
    };
    let mut text = format!(
        "{} in {} {checked} in {:.2} s{} {}",
        Bytes::new(report.bytes),
        entries(report.files),
        seconds(report.elapsed),
        rate(report.bytes, report.elapsed, goodput(report)),
        way(&report.link),
    );
    if report.resumed_bytes > 0 {
        text += &format!("; {} were there before", Bytes::new(report.resumed_bytes));
    }
    let unchanged = report.unchanged.0 - report.newer;
    if unchanged > 0 {
        let how = match (report.compared, writes_list) {
            (true, _) => "",
            (false, true) => ", read for --manifest only",
            (false, false) => ", not read",
        };
        text += &format!("; {} unchanged{how}", entries(unchanged));
    }
    if report.mended > 0 {
        text += &format!(", of {} the attributes mended", report.mended);
    }
    if report.newer > 0 {
        text += &format!("; {} newer there, left alone", entries(report.newer));
    }
    if report.deleted.count > 0 {
        text += &format!("; {} deleted", report.deleted.count);
    }
    text + &skipped(report) + &fate(&report.link)
}

/// The number of entries that are not to be copied, for people.
fn skipped(report: &CopyReport) -> String {
    match report.skipped.count {
        0 => String::new(),
        count => format!("; {} skipped", entries(count)),
    }
}

/// The closing line of a dry run, for people.
pub(crate) fn of_dry_run(report: &CopyReport) -> String {
    let (changed, bytes) = report.would_change;
    let mut text = format!(
        "dry run: {} would be copied, {} in all; {} unchanged",
        entries(changed),
        Bytes::new(bytes),
        entries(report.unchanged.0 - report.newer),
    );
    if report.mended > 0 {
        text += &format!(", of {} the attributes would be mended", report.mended);
    }
    if report.newer > 0 {
        text += &format!("; {} newer there, left alone", entries(report.newer));
    }
    if report.deleted.count > 0 {
        text += &format!("; {} would be deleted", entries(report.deleted.count));
    }
    text + &skipped(report)
}

/// A goodput, where it says something: set-up is most of the time of what is short.
pub(crate) fn rate(bytes: u64, elapsed: Duration, goodput: Rate) -> String {
    let is_short = bytes < 1_000_000 || elapsed < Duration::from_secs(1);
    if is_short { String::new() } else { format!(": {goodput}") }
}

/// What was lost, what became of a circuit, and what bounded the rate.
pub(crate) fn fate(link: &LinkReport) -> String {
    let mut text = String::new();
    if link.packets_sent > 0 {
        text += &format!("; {}", losses(&link.lost, link.packets_sent));
    }
    if let Some(used) = &link.circuit {
        text += &of_circuit(used);
    }
    text += &of_links(&link.links);
    text + &format!("; bottleneck: {}", link.bottleneck)
}

/// What each of several links carried.
fn of_links(links: &[LinkUse]) -> String {
    let of_one = |used: &LinkUse| {
        format!(
            "{} by {} to {}{}",
            Bytes::new(used.sent_bytes + used.received_bytes),
            used.local,
            used.remote,
            if used.alive { "" } else { " (dead at the end)" },
        )
    };
    match links {
        [] => String::new(),
        links => format!("; links: {}", links.iter().map(of_one).collect::<Vec<_>>().join(", ")),
    }
}

/// What became of a circuit.
fn of_circuit(used: &CircuitReport) -> String {
    let before = used.planned.as_secs_f64() - used.left.as_secs_f64();
    let side = if before < 0.0 { "after" } else { "before" };
    format!(
        "; circuit: {} of {} booked used, {} {:.2} s {side} the planned end, {} over IP",
        Bytes::new(used.sent_bytes),
        Bytes::new(used.booked_bytes),
        if used.released.is_some() { "released" } else { "left" },
        before.abs(),
        Bytes::new(used.ip_bytes),
    )
}

/// How data travelled, in brackets.
pub(crate) fn way(link: &LinkReport) -> String {
    let carrier = link.carrier.to_uppercase();
    let rtt = match link.rtt {
        Duration::ZERO => String::new(),
        rtt => format!(", RTT {}", milliseconds(rtt)),
    };
    format!("({carrier}, {}, {}{rtt})", link.profile, link.protect.name())
}

/// How many were lost of how many, and where.
fn losses(lost: &Losses, sent: u64) -> String {
    if lost.total() == 0 {
        return format!("none of {sent} packets lost");
    }
    let places = [
        (lost.congestion, "to congestion"),
        (lost.random, "by chance"),
        (lost.socket, "at the receiver's socket"),
        (lost.host, "elsewhere in the receiving host"),
        (lost.sender, "in the sending host"),
        (lost.unknown, "on the path"),
    ];
    let places: Vec<String> = places
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, place)| format!("{count} {place}"))
        .collect();
    format!("lost {} of {sent} packets: {}", percent(lost.total(), sent), places.join(", "))
}

/// The error of a command of which `count` things failed, the first for this reason.
pub(crate) fn with_others(first: String, count: u64) -> String {
    match count {
        0 | 1 => first,
        count => format!("{first}; {} more failed", count - 1),
    }
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::EntryCode;
    use longhaul_rate_control::PathMemory;
    use longhaul_wire::Bottleneck;

    fn report() -> CopyReport {
        let mut report = CopyReport::default();
        (report.bytes, report.files, report.verified) = (1_000_000_000, 12, true);
        report.elapsed = Duration::from_millis(10_000);
        report.setup = Duration::from_millis(512);
        let link = &mut report.link;
        link.rtt = Duration::from_micros(100_250);
        (link.packets_sent, link.packets_resent) = (703_000, 712);
        link.lost =
            Losses { congestion: 90, random: 600, socket: 3, host: 0, sender: 8, unknown: 2 };
        link.bottleneck = Bottleneck::Network;
        link.cpu_local = Duration::from_millis(1_500);
        report
    }

    #[test]
    fn json_has_the_fields_of_the_contract() {
        let json = Value::Object(json(&report()));
        let expected = json!({
            "bytes": 1_000_000_000, "files": 12, "seconds": 10.0, "setup_seconds": 0.512,
            "goodput_bps": 800_000_000, "carrier": "udp", "profile": "auto", "protect": "aead",
            "rtt_ms": 100.25, "packets_sent": 703_000, "packets_resent": 712,
            "lost": { "congestion": 90, "random": 600, "socket": 3, "host": 0, "sender": 8,
                "unknown": 2 },
            "bottleneck": "network", "cpu_seconds": { "local": 1.5, "remote": null },
            "resumed_bytes": 0, "verified": true, "discarded": false, "failed": 0, "failures": [],
            "skipped": 0, "skips": [], "deleted": 0, "unchanged": { "files": 0, "bytes": 0, "newer": 0, "mended": 0 },
            "notices": [], "memory": null,
            "history": null, "via": [], "hosts": { "sender": null, "receiver": null },
            "reconnects": 0, "would_change": { "entries": 0, "bytes": 0 },
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn what_nobody_knows_of_a_copy_through_ssh_is_null() {
        let mut report = report();
        report.link.carrier = "ssh";
        (report.link.rtt, report.link.packets_sent) = (Duration::ZERO, 0);
        let json = json(&report);
        for field in ["rtt_ms", "packets_sent", "packets_resent", "lost"] {
            assert_eq!(json[field], Value::Null, "{field}");
        }
    }

    #[test]
    fn json_says_what_was_known_of_the_path_and_what_was_made_of_it() {
        let rate = Rate::from_mbps;
        let memory = PathMemory {
            band: (rate(900), rate(950)),
            round_trip: Duration::from_millis(100),
            chance_ppm: 7,
            packet: 1_500,
            age: Duration::from_secs(3_600),
            best_profile: Some("auto"),
        };
        let used = MemoryUse::Confirmed;
        let mut history = HistoryReport::default();
        (history.known, history.used, history.learnt) = (Some(memory), used, Some(rate(930)));
        let mut report = report();
        (report.link.memory, report.link.history) = ((used, memory.rate()), Some(history));
        let expected = json!({
            "known": {
                "rate_bps": 900_000_000, "band_bps": [900_000_000, 950_000_000], "rtt_ms": 100.0,
                "mtu": 1_500, "chance_ppm": 7, "age_seconds": 3_600, "best_profile": "auto",
            },
            "used": "confirmed",
            "learnt_bps": 930_000_000,
        });
        assert_eq!(json(&report)["history"], expected);
        let expected = json!({ "used": "confirmed", "known_bps": 900_000_000 });
        assert_eq!(json(&report)["memory"], expected);
        // In a pull the server reports so much.
        (report.link.memory, report.link.history) = ((MemoryUse::Nothing, Rate::ZERO), None);
        let expected = json!({ "used": "nothing known", "known_bps": null });
        assert_eq!(json(&report)["memory"], expected);
    }

    #[test]
    fn links_are_listed_with_what_each_carried() {
        let link = |host: u8, sent_bytes, alive| LinkUse {
            local: [10, 0, host, 1].into(),
            remote: [10, 0, host, 2].into(),
            weight: 1,
            sent_bytes,
            received_bytes: 1_000_000,
            packets_sent: sent_bytes / 1_500,
            packets_lost: 3,
            alive,
        };
        let mut report = report();
        report.link.links = vec![link(1, 599_000_000, true), link(2, 449_000_000, false)];
        let text = sentence(&report, false);
        let expected = "; links: 600 MB by 10.0.1.1 to 10.0.1.2, 450 MB by 10.0.2.1 to 10.0.2.2 \
                        (dead at the end); bottleneck";
        assert!(text.contains(expected), "{text}");
        let expected = json!({
            "local": "10.0.2.1", "remote": "10.0.2.2", "weight": 1, "sent_bytes": 449_000_000,
            "received_bytes": 1_000_000, "packets_sent": 299_333, "packets_lost": 3,
            "alive": false,
        });
        assert_eq!(json(&report)["links"][1], expected);
    }

    #[test]
    fn json_counts_what_failed_and_names_a_sample() {
        let mut report = report();
        report.failures.count = 14_886;
        report.failures.sample.push(EndedEntry::new("d/f", EntryCode::NoSpace, "no space left"));
        report.skipped.count = 1;
        report.skipped.sample.push(EndedEntry::new("d/p", EntryCode::Skipped, "it is a FIFO"));
        let json = json(&report);
        assert_eq!((&json["failed"], &json["skipped"]), (&json!(14_886), &json!(1)));
        let failed = json!({ "path": "d/f", "code": "no-space", "reason": "no space left" });
        assert_eq!(json["failures"], json!([failed]));
        let skipped = json!({ "path": "d/p", "code": "skipped", "reason": "it is a FIFO" });
        assert_eq!(json["skips"], json!([skipped]));
        let text = sentence(&report, false);
        assert!(text.contains("RTT 100 ms); 1 entry skipped; lost"), "{text}");
    }

    #[test]
    fn what_the_destination_does_not_let_be_set_is_a_notice() {
        let mut report = report();
        report.remarks = vec!["no times".to_string()];
        assert_eq!(json(&report)["notices"], json!(["no times"]));
    }

    #[test]
    fn only_what_is_under_its_name_counts_of_a_copy_that_did_not_end() {
        let mut reached = Snapshot::default();
        (reached.bytes_done, reached.bytes_named) = (201_600, 100);
        (reached.files_done, reached.files_named) = (7, 2);
        let of = |reached: &Snapshot| {
            let partial = partial(reached);
            ["bytes", "bytes_done", "files"].map(|key| partial[key].as_u64().unwrap())
        };
        assert_eq!(of(&reached), [100, 201_600, 2]);
        reached.would_change = 200_000;
        assert_eq!(of(&reached), [100, 1_600, 2]);
    }

    #[test]
    fn bytes_that_were_there_before_are_no_goodput() {
        let mut report = report();
        report.resumed_bytes = 600_000_000;
        assert_eq!(goodput(&report), Rate::from_mbps(320));
    }

    #[test]
    fn what_is_unchanged_is_called_read_where_it_was() {
        let mut report = report();
        report.unchanged = (3, 300);
        let text = |report: &CopyReport, writes_list| sentence(report, writes_list);
        assert!(text(&report, false).contains("; 3 entries unchanged, not read; "));
        assert!(text(&report, true).contains("; 3 entries unchanged, read for --manifest only; "));
        report.compared = true;
        assert!(text(&report, true).contains("; 3 entries unchanged; "));
    }

    #[test]
    fn what_is_discarded_is_not_called_copied() {
        let mut report = report();
        report.discarded = true;
        let text = sentence(&report, false);
        assert!(text.contains("received, verified and discarded in"), "{text}");
    }

    #[test]
    fn the_sentence_says_how_fast_and_what_was_lost_where() {
        assert_eq!(
            sentence(&report(), false),
            "1.00 GB in 12 entries copied and verified in 10.00 s: 800 Mb/s (UDP, auto, aead, \
             RTT 100 ms); lost 0.10 % of 703000 packets: 90 to congestion, 600 by chance, 3 at \
             the receiver's socket, 8 in the sending host, 2 on the path; bottleneck: network"
        );
    }
}
