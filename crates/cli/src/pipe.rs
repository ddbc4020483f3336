//! `longhaul pipe`.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use longhaul::{
    CircuitWant, PipeOptions, PipeReport, Progress, SshPurpose, Stop, pipe_name_is_valid,
};
use longhaul_sys::standard::Stream;
use longhaul_units::{Bytes, Rate, shown};
use longhaul_wire::PipeRole;
use rustix::fs::{OFlags, fcntl_getfl};
use serde_json::{Map, Value, json};

use crate::args::PipeArgs;
use crate::failure::Failure;
use crate::figures::{round_trip, seconds};
use crate::hosts;
use crate::link::circuit::{Errand, Wanted};
use crate::link::{self, circuit};
use crate::location::{self, Location, Parsed};
use crate::output::Output;
use crate::progress::Display;
use crate::report;
use crate::signals::Held;
use crate::ssh;

pub(crate) fn run(args: &PipeArgs, output: &Output, held: Held) -> Result<(), Failure> {
    let (stop, progress) = (Stop::default(), Arc::new(Progress::default()));
    let known = progress.clone();
    held.stop_in_order(&stop, output, move || so_far(&known))?;
    let want = want(args)?;
    let mut options = options(args, output, &stop)?;
    let circuit = circuit(args, want, &options)?;
    options.connect.circuit = circuit.as_ref().map(|wanted| wanted.options.clone());
    let work = || longhaul::pipe(&options, &progress, &stop);
    let (done, shown) = Display::of_pipe(output)
        .every(args.link.stats)
        .attend(&progress, work)
        .map_err(|error| Failure::failed(error.to_string()))?;
    let report = done.map_err(|error| Failure::of(&error, || so_far(&progress)))?;
    if let (Some(wanted), Some(circuit)) = (&circuit, &report.link.circuit) {
        wanted.remember(circuit, output);
    }
    for notice in report.link.notices.iter().filter(|notice| !shown.notices.contains(notice)) {
        output.detail(format!("note: {notice}"));
    }
    hosts::refusals(&report.link.hosts).for_each(|line| output.say(format!("note: {line}")));
    hosts::advice(&report.link.hosts).for_each(|line| output.detail(line));
    output.say(sentence(&report, options.role));
    if output.json {
        output.print_json(&json(&report).into())?;
    }
    Ok(())
}

/// What `args` mean.
fn options(args: &PipeArgs, output: &Output, stop: &Stop) -> Result<PipeOptions, Failure> {
    let parsed = location::parse(&args.pipe);
    let Ok(Parsed { location: Location::Remote { server, path: name }, .. }) = parsed else {
        return Err(match parsed {
            Err(error) => Failure::usage(error.to_string()),
            Ok(_) => Failure::usage(format!(
                "{}: a pipe is at a server: HOST:NAME or lh://HOST[:PORT]/NAME",
                shown(&args.pipe.display().to_string())
            )),
        });
    };
    if !pipe_name_is_valid(&name) {
        return Err(Failure::usage(
            "a pipe has a name of 1 to 255 bytes: HOST:NAME or lh://HOST[:PORT]/NAME",
        ));
    }
    let (role, stream, file) = match args.receive {
        true => (PipeRole::Receive, Stream::Output, own(io::stdout(), "output")),
        false => (PipeRole::Send, Stream::Input, own(io::stdin(), "input")),
    };
    if stream.was_closed() {
        return Err(Failure::usage(match role {
            PipeRole::Receive => "standard output is closed, so what comes would be lost",
            PipeRole::Send => "standard input is closed, so there is nothing to send",
        }));
    }
    let file = file?;
    check(role, &file)?;
    link::check(&args.link)?;
    let purpose = match role {
        PipeRole::Receive => SshPurpose::Receive,
        PipeRole::Send => SshPurpose::Send,
    };
    let asked = (purpose, vec![name.clone()]);
    let token_file = args.link.token_file.as_deref();
    let (connect, _) = ssh::reach(server, asked, token_file, &args.ssh, stop)?;
    let mut connect = link::fill(&args.link, connect, output)?;
    connect.stall_timeout = args.stall_timeout;
    Ok(PipeOptions::new(connect, name, role, file))
}

/// Whether the stream can be what it is for: else that would show only when the other end is there.
fn check(role: PipeRole, file: &File) -> Result<(), Failure> {
    let (name, other) = match role {
        PipeRole::Send => ("input", OFlags::WRONLY),
        PipeRole::Receive => ("output", OFlags::RDONLY),
    };
    let cannot = |error: io::Error| Failure::failed(format!("standard {name}: {error}"));
    if file.metadata().map_err(cannot)?.is_dir() {
        return Err(Failure::usage(format!("standard {name} is a directory")));
    }
    let mode = fcntl_getfl(file).map_err(|error| cannot(error.into()))? & OFlags::RWMODE;
    if mode == other {
        let done = if role == PipeRole::Send { "reading" } else { "writing" };
        return Err(Failure::usage(format!("standard {name} is not open for {done}")));
    }
    Ok(())
}

/// What `args` want to book, if they do and name no booking.
fn want(args: &PipeArgs) -> Result<Option<CircuitWant>, Failure> {
    if args.circuit.circuit.is_none() {
        return Ok(None);
    }
    if args.receive {
        return Err(Failure::usage("--circuit: the end that sends books the circuit"));
    }
    if args.circuit.booking.is_some() {
        return Ok(None);
    }
    let (Some(time), Some(max_rate)) = (args.hold.time, args.hold.max_rate) else {
        return Err(Failure::usage(
            "--circuit: say for how long and how fast: --time TIME --max-rate RATE; or --booking ID",
        ));
    };
    let min_rate = args.hold.min_rate.unwrap_or(max_rate);
    if min_rate > max_rate || max_rate == Rate::ZERO || time.is_zero() {
        return Err(Failure::usage(
            "--time and --max-rate are more than zero, --min-rate no more than --max-rate",
        ));
    }
    Ok(Some(CircuitWant::Time { time, min_rate, max_rate }))
}

/// The circuit that `args` ask for.
fn circuit(
    args: &PipeArgs,
    want: Option<CircuitWant>,
    options: &PipeOptions,
) -> Result<Option<Wanted>, Failure> {
    let host = &options.connect.server.host;
    let errand = Errand {
        host,
        label: format!("pipe to {host}"),
        want,
        rate: None,
        by: args.hold.latest_start,
        margin: None,
        bytes_wait: false,
        history: options.connect.history.as_ref(),
    };
    circuit::wanted(&args.circuit, &errand)
}

/// A standard stream without the buffer that Rust puts before it.
fn own(stream: impl AsFd, name: &str) -> Result<File, Failure> {
    let file = stream.as_fd().try_clone_to_owned().map(File::from);
    file.map_err(|error| Failure::failed(format!("cannot use standard {name}: {error}")))
}

/// What is known of a pipe that did not come to its end.
fn so_far(progress: &Progress) -> Map<String, Value> {
    let snapshot = progress.snapshot();
    report::object(json!({
        "bytes": snapshot.bytes_done,
        "seconds": seconds(snapshot.elapsed),
        "rtt_ms": round_trip(snapshot.rtt),
        "packets_sent": snapshot.packets_sent,
        "verified": false,
    }))
}

/// Bytes per second since both ends were there.
fn goodput(report: &PipeReport) -> Rate {
    Rate::from_bytes_over(report.bytes, report.elapsed.saturating_sub(report.setup))
}

/// The fields of docs/operating.md.
fn json(report: &PipeReport) -> Map<String, Value> {
    let mut fields = report::object(json!({
        "bytes": report.bytes,
        "seconds": seconds(report.elapsed),
        "setup_seconds": seconds(report.setup),
        "goodput_bps": goodput(report).as_bps(),
        "verified": true,
    }));
    fields.append(&mut report::of_link(&report.link));
    fields
}

/// For people.
fn sentence(report: &PipeReport, role: PipeRole) -> String {
    let what = match role {
        PipeRole::Send => "sent, received and verified",
        PipeRole::Receive => "received and verified",
    };
    format!(
        "{} {what} in {:.2} s{} {}{}",
        Bytes::new(report.bytes),
        seconds(report.elapsed),
        report::rate(report.bytes, report.elapsed, goodput(report)),
        report::way(&report.link),
        report::fate(&report.link),
    )
}

#[cfg(test)]
mod tests {
    use longhaul_units::Duration;

    use super::*;
    use longhaul_wire::{Bottleneck, Losses};

    #[test]
    fn waiting_for_the_other_end_is_no_part_of_the_rate() {
        let mut report = PipeReport::default();
        report.bytes = 1_000_000_000;
        (report.elapsed, report.setup) = (Duration::from_secs(70), Duration::from_secs(60));
        let link = &mut report.link;
        (link.rtt, link.bottleneck) = (Duration::from_millis(100), Bottleneck::Input);
        (link.packets_sent, link.packets_resent) = (703_000, 712);
        link.lost = Losses { random: 712, ..Losses::default() };
        assert_eq!(
            sentence(&report, PipeRole::Send),
            "1.00 GB sent, received and verified in 70.00 s: 800 Mb/s (UDP, auto, aead, RTT 100 ms); \
             lost 0.10 % of 703000 packets: 712 by chance; bottleneck: input"
        );
        let json = json(&report);
        assert_eq!(json["goodput_bps"], 800_000_000);
        assert_eq!(json["bottleneck"], "input");
    }
}
