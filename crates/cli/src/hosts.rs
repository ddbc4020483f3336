//! How the two hosts of a transfer fared, and what would help.

use longhaul::Hosts;
use longhaul_units::{Bytes, Duration, counted};
use longhaul_wire::{Bottleneck, HostAccount, StallTimes};
use serde_json::{Value, json};

use crate::figures::seconds;

/// The fields of docs/operating.md.
pub(crate) fn json(hosts: &Hosts) -> Value {
    json!({
        "sender": hosts.sender.as_ref().map(of_host),
        "receiver": hosts.receiver.as_ref().map(of_host),
    })
}

fn of_host(host: &HostAccount) -> Value {
    json!({
        "watched": has(host, HostAccount::WATCHES),
        "cpu_seconds": seconds(host.cpu_time),
        "stalls": {
            "count": host.stalls,
            "seconds": seconds(host.stalled),
            "longest_ms": seconds(host.longest_stall) * 1e3,
            "by_cause": causes(host),
        },
        "lost": {
            "socket": host.lost.socket,
            "backlog": host.lost.backlog,
            "card": host.lost.card,
        },
        "limits": {
            "count": host.limits,
            "seconds": seconds(host.limited),
            "cause": (host.limited_by != Bottleneck::Unknown).then(|| host.limited_by.name()),
        },
        "suspends": { "count": host.suspends, "seconds": seconds(host.suspended) },
        "missed_deadlines": { "count": host.missed, "seconds": seconds(host.missed_time) },
        "remedies": remedies(host.remedies),
        "socket_buffer": {
            "asked": host.buffer_asked.get(),
            "granted": host.buffer_granted.get(),
        },
    })
}

fn causes(host: &HostAccount) -> Value {
    let StallTimes { preempted, quota, stolen, busy } = host.stalled_by;
    let known = preempted + quota + stolen + busy;
    json!({
        "preempted": seconds(preempted),
        "quota": seconds(quota),
        "stolen": seconds(stolen),
        "busy": seconds(busy),
        "unknown": seconds(host.stalled.saturating_sub(known)),
    })
}

fn has(host: &HostAccount, bit: u64) -> bool {
    host.remedies & bit != 0
}

/// Their names.
pub(crate) fn remedies(bits: u64) -> Vec<&'static str> {
    let known = [
        (HostAccount::SHORT_TURNS, "short turns"),
        (HostAccount::RUNS_FIRST, "real-time priority"),
        (HostAccount::PRIORITY_REFUSED, "real-time priority refused: not permitted"),
        (HostAccount::WRITERS_SHORT_TURNS, "short turns of writers"),
        (HostAccount::OFF_INTERRUPTS, "off the network's processor"),
        (HostAccount::FEW_PROCESSORS, "choice of processors refused: fewer than three"),
        (HostAccount::INTERRUPTS_SPREAD, "choice of processors refused: all serve the network"),
        (HostAccount::BUSY_POLLING, "busy polling"),
        (HostAccount::BUSY_POLLING_REFUSED, "busy polling refused: no right to it"),
    ];
    let known = known.into_iter().filter(|(bit, _)| bits & bit != 0);
    known.map(|(_, name)| name).collect()
}

/// Which host did not permit what it was asked for with `--host-priority`, and what permits it.
pub(crate) fn refusals(hosts: &Hosts) -> impl Iterator<Item = String> {
    let refused = named(hosts).filter(|(_, host)| has(host, HostAccount::PRIORITY_REFUSED));
    refused.map(|(name, _)| format!("{name}: the system did not permit --host-priority; {PERMIT}"))
}

/// What happened at either host that the user should know, and what would help, with the command.
pub(crate) fn advice(hosts: &Hosts) -> impl Iterator<Item = String> {
    named(hosts).flat_map(|(name, host)| of_one(name, host))
}

fn named(hosts: &Hosts) -> impl Iterator<Item = (&'static str, &HostAccount)> {
    let both = [("sender", &hosts.sender), ("receiver", &hosts.receiver)];
    both.into_iter().filter_map(|(name, host)| Some((name, host.as_ref()?)))
}

fn of_one(name: &str, host: &HostAccount) -> Vec<String> {
    let mut lines = Vec::new();
    let stalls = host.longest_stall >= LONG_STALL;
    if stalls {
        lines.push(format!(
            "{name}: stood still {} for 1 ms or more, {:.1} ms at the longest, {:.2} s in all",
            counted(host.stalls, "time"),
            seconds(host.longest_stall) * 1e3,
            seconds(host.stalled),
        ));
    }
    if host.suspends > 0 || host.limits > 0 {
        lines.push(format!(
            "{name}: limited the rate for {:.2} s ({}), and asked for silence {}, {:.2} s in all",
            seconds(host.limited),
            host.limited_by,
            counted(host.suspends, "time"),
            seconds(host.suspended),
        ));
    }
    let held = host.limited_by == Bottleneck::ReceiverBuffer || host.suspends > 0;
    if host.buffer_granted < host.buffer_asked && (stalls || held) {
        let (granted, asked) = (host.buffer_granted, host.buffer_asked);
        lines.push(larger_buffer(&format!("{name}: its socket buffer"), granted, asked));
    }
    if has(host, HostAccount::PRIORITY_REFUSED) {
        // Reported in any case: it was asked for.
    } else if has(host, HostAccount::BUSY_POLLING_REFUSED) {
        lines.push(format!("{name}: the system did not permit busy polling; {PERMIT}"));
    } else if stalls && !has(host, HostAccount::RUNS_FIRST) {
        lines.push(format!(
            "{name}: other programs took its processor; --host-priority runs Longhaul before them"
        ));
    }
    lines
}

/// A larger buffer outlasts longer stalls.
pub(crate) fn larger_buffer(whose: &str, granted: Bytes, asked: Bytes) -> String {
    format!(
        "{whose} holds {granted} instead of {asked}; sudo sysctl -w net.core.rmem_max={} allows that",
        asked.get(),
    )
}

/// How it is permitted.
pub(crate) const PERMIT: &str =
    "sudo setcap cap_sys_nice,cap_net_admin+ep \"$(command -v longhaul)\" permits it";
/// More than the turns of a scheduler with one competitor.
const LONG_STALL: Duration = Duration::from_millis(8);

#[cfg(test)]
mod tests {
    use longhaul_wire::HostLosses;

    use super::*;

    fn stalled() -> HostAccount {
        HostAccount {
            stalls: 41,
            stalled: Duration::from_millis(1_640),
            longest_stall: Duration::from_millis(45),
            stalled_by: StallTimes {
                preempted: Duration::from_millis(1_500),
                ..StallTimes::default()
            },
            lost: HostLosses { socket: 7, ..HostLosses::default() },
            limits: 2,
            limited: Duration::from_secs(3),
            limited_by: Bottleneck::ReceiverBuffer,
            remedies: HostAccount::WATCHES | HostAccount::SHORT_TURNS,
            buffer_asked: Bytes::new(25_000_000),
            buffer_granted: Bytes::new(212_992),
            ..HostAccount::default()
        }
    }

    #[test]
    fn each_host_is_named_as_far_as_it_is_known() {
        let hosts = Hosts { sender: None, receiver: Some(stalled()) };
        let json = json(&hosts);
        assert_eq!(json["sender"], Value::Null);
        let receiver = &json["receiver"];
        assert_eq!(receiver["stalls"]["count"], 41);
        assert_eq!(receiver["stalls"]["longest_ms"], 45.0);
        assert_eq!(receiver["stalls"]["by_cause"]["preempted"], 1.5);
        assert_eq!(receiver["stalls"]["by_cause"]["unknown"], 0.14);
        assert_eq!(receiver["lost"]["socket"], 7);
        assert_eq!(receiver["limits"]["cause"], "receiver buffer");
        assert_eq!(receiver["remedies"], json!(["short turns"]));
        assert_eq!(receiver["socket_buffer"]["granted"], 212_992);
    }

    #[test]
    fn a_host_that_stands_still_gets_the_commands_that_help() {
        let hosts = Hosts { sender: Some(HostAccount::default()), receiver: Some(stalled()) };
        let text = advice(&hosts).collect::<Vec<_>>().join("\n");
        assert!(text.contains("sysctl -w net.core.rmem_max=25000000"), "{text}");
        assert!(text.contains("receiver: other programs") && !text.contains("sender"), "{text}");
    }

    #[test]
    fn remedies_are_named_with_what_was_refused_and_why() {
        let remedies = HostAccount::WRITERS_SHORT_TURNS
            | HostAccount::RUNS_FIRST
            | HostAccount::FEW_PROCESSORS
            | HostAccount::BUSY_POLLING_REFUSED;
        let host = HostAccount { remedies, ..stalled() };
        let named = json!([
            "real-time priority",
            "short turns of writers",
            "choice of processors refused: fewer than three",
            "busy polling refused: no right to it",
        ]);
        assert_eq!(of_host(&host)["remedies"], named);
        let hosts = Hosts { sender: None, receiver: Some(host) };
        let text = advice(&hosts).collect::<Vec<_>>().join("\n");
        assert!(text.contains("busy polling; sudo setcap cap_sys_nice,cap_net_admin+ep"), "{text}");
    }

    #[test]
    fn a_refused_priority_is_named_with_what_permits_it() {
        let host = HostAccount { remedies: HostAccount::PRIORITY_REFUSED, ..stalled() };
        let hosts = Hosts { sender: Some(host), receiver: None };
        let text: Vec<String> = refusals(&hosts).chain(advice(&hosts)).collect();
        let text = text.join("\n");
        assert!(text.contains("cap_sys_nice") && !text.contains("other programs"), "{text}");
    }
}
