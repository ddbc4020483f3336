//! `longhaul probe`.

use longhaul::{ProbeReport, SshPurpose, Stop, probe};
use longhaul_units::{Bytes, shown};
use longhaul_wire::HostAccount;
use serde_json::{Map, Value, json};

use crate::args::ProbeArgs;
use crate::failure::Failure;
use crate::figures::{milliseconds, seconds};
use crate::location::{self, Location};
use crate::output::Output;
use crate::signals::Held;
use crate::{history, hosts, ssh};

pub(crate) fn run(args: &ProbeArgs, output: &Output, held: Held) -> Result<(), Failure> {
    let stop = Stop::default();
    held.stop_in_order(&stop, output, Map::new)?;
    let parsed = location::parse_server(&args.server).map_err(|e| Failure::usage(e.to_string()))?;
    let Location::Remote { server, path } = parsed.location else {
        return Err(Failure::usage("probe: which server? longhaul probe lh://HOST"));
    };
    if !path.is_empty() {
        let shown = shown(&String::from_utf8_lossy(&path));
        return Err(Failure::usage(format!(
            "probe looks at the way to a server, not at {shown} there: longhaul probe lh://HOST[:PORT]"
        )));
    }
    let (asked, token_file) = ((SshPurpose::Probe, Vec::new()), args.token_file.as_deref());
    let (mut options, _) = ssh::reach(server, asked, token_file, &args.ssh, &stop)?;
    options.history = history::open(args.no_history, output);
    let report = probe(&options, &stop).map_err(|error| Failure::of(&error, Map::new))?;
    output.result(&json(&report), text(&report))
}

/// The fields of docs/operating.md.
fn json(report: &ProbeReport) -> Value {
    let [asked, granted] = report.buffer_here.map_or([None; 2], |sizes| sizes.map(Some));
    json!({
        "server": report.server.to_string(),
        "implementation": report.implementation,
        "tcp_rtt_ms": seconds(report.tcp_round_trip) * 1e3,
        "udp": report.udp_round_trip.is_some() && report.too_narrow.is_none(),
        "rtt_ms": report.udp_round_trip.map(|rtt| seconds(rtt) * 1e3),
        "path_mtu": report.path_mtu,
        "socket_buffers": {
            "here": { "asked": asked.map(Bytes::get), "granted": granted.map(Bytes::get) },
            "there": { "granted": report.buffer_there.map(Bytes::get) },
        },
        "here": {
            "cpu": report.machine.cpu,
            "cpus": report.machine.cpus,
            "kernel": report.machine.kernel,
            "encrypts_bps": report.encrypts.as_bps(),
            "host_priority": hosts::remedies(report.with_priority),
        },
        "known": report.known.as_ref().map(history::known),
        "advice": advice(report),
        "notices": report.notices,
    })
}

/// For people.
fn text(report: &ProbeReport) -> String {
    let mut lines = vec![format!(
        "{} ({})",
        report.server,
        report.implementation.as_deref().unwrap_or("it does not say what it is")
    )];
    let rtt = match report.udp_round_trip {
        Some(rtt) => milliseconds(rtt).to_string(),
        None => format!("{} (TCP)", milliseconds(report.tcp_round_trip)),
    };
    let sizes =
        report.path_mtu.map_or(String::new(), |mtu| format!(", packets of up to {mtu} bytes"));
    let udp = match (&report.too_narrow, &report.no_udp, report.udp_round_trip) {
        (Some(_), ..) => "UDP does not fit, TCP carries",
        (None, Some(_), _) => "this host sends no UDP there, TCP carries",
        (None, None, Some(_)) => "UDP passes",
        (None, None, None) => "UDP does not pass",
    };
    lines.push(format!("path     RTT {rtt}{sizes}; {udp}"));
    let here = report
        .buffer_here
        .map_or("unknown".into(), |[asked, granted]| format!("{granted} of {asked}"));
    let there = report.buffer_there.map_or("unknown".into(), |size| size.to_string());
    lines.push(format!("buffers  here {here}, there {there}"));
    lines.push(format!(
        "here     {}, {} processors, each encrypts {}",
        report.machine.cpu, report.machine.cpus, report.encrypts
    ));
    lines.push(match &report.known {
        Some(known) => {
            format!("known    {} to {} from earlier transfers", known.band.0, known.band.1)
        }
        None => "known    nothing from earlier transfers".into(),
    });
    lines.extend(advice(report).into_iter().map(|advice| format!("advice   {advice}")));
    lines.extend(report.notices.iter().map(|notice| format!("note     {notice}")));
    lines.join("\n")
}

/// What would help, with the command where there is one.
fn advice(report: &ProbeReport) -> Vec<String> {
    let mut advice = Vec::new();
    if let Some([asked, granted]) = report.buffer_here {
        if granted < asked {
            let larger = hosts::larger_buffer("here: the socket buffer", granted, asked);
            advice.push(larger);
        }
        if let Some(there) = report.buffer_there.filter(|there| *there < asked) {
            let larger = hosts::larger_buffer("at the server: the socket buffer", there, asked);
            advice.push(format!("{larger}, unless `serve --socket-buffer` asks for less"));
        }
    }
    let refused = HostAccount::PRIORITY_REFUSED | HostAccount::BUSY_POLLING_REFUSED;
    if report.with_priority & refused != 0 {
        advice.push(format!(
            "here: beside other programs --host-priority helps, and the system refuses it: {}",
            hosts::PERMIT
        ));
    }
    if let Some(reason) = &report.too_narrow {
        advice.push(format!("{reason}: TCP carries"));
    } else if let Some(reason) = &report.no_udp {
        advice.push(format!("{reason}: until that is mended TCP carries"));
    } else if report.udp_round_trip.is_none() {
        advice.push(format!(
            "UDP does not pass: open port {} for UDP at the server and on the way; until then TCP \
             carries",
            report.server.port()
        ));
    }
    if let Some(rtt) = report.udp_round_trip.filter(|_| report.too_narrow.is_none())
        && let Some([asked, granted]) = report.buffer_here
    {
        // What a buffer holds of a stall as long as a turn of most schedulers.
        let least = report.buffer_there.unwrap_or(granted).min(granted);
        let window = longhaul_units::Rate::from_bytes_over(least.get(), rtt);
        if least < asked {
            advice.push(format!(
                "the smaller of both buffers holds what {window} bring in a round trip; until it is \
                 larger, a receiver that stands still loses packets beyond that"
            ));
        }
    }
    advice
}
