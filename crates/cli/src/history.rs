//! `longhaul history`, and the history that transfers use.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit};
use longhaul_history::{CircuitRecord, History, KnownPath, Seen, unix_time};
use longhaul_rate_control::PathMemory;
use longhaul_units::{Rate, counted, shown};
use serde_json::{Value, json};

use crate::args::{HistoryArgs, HistoryCommand};
use crate::failure::Failure;
use crate::figures::{entries, lost, seconds};
use crate::output::Output;
use crate::token;

pub(crate) fn run(args: &HistoryArgs, output: &Output) -> Result<(), Failure> {
    let file = file().ok_or_else(|| Failure::failed(NO_HOME))?;
    // Looking makes no file.
    let history = match file.exists() {
        true => Some(History::open(&file).map_err(failed)?),
        false => None,
    };
    for notice in history.iter().flat_map(|history| history.notices()) {
        output.say(format!("note: {notice}"));
    }
    let name = file.display().to_string();
    match &args.command {
        None | Some(HistoryCommand::List) => {
            let (paths, circuits) = all(history.as_ref(), None)?;
            let json = json!({
                "file": name,
                "paths": paths.iter().map(path).collect::<Vec<_>>(),
                "circuits": circuits.iter().map(circuit).collect::<Vec<_>>(),
            });
            let lines: Vec<String> =
                paths.iter().map(line).chain(circuits.iter().map(circuit_line)).collect();
            let text = match lines.is_empty() {
                true => "nothing is known of any path".into(),
                false => lines.join("\n"),
            };
            output.result(&json, text)
        }
        Some(HistoryCommand::Show { host }) => {
            let (paths, circuits) = all(history.as_ref(), Some(host))?;
            if paths.is_empty() && circuits.is_empty() {
                return Err(Failure::failed(format!("nothing is known of paths to {host}")));
            }
            let with_seen = |known: &KnownPath| {
                let mut json = path(known);
                json["transfers"] = known.seen.iter().map(transfer).collect();
                json
            };
            let json = json!({
                "file": name,
                "paths": paths.iter().map(with_seen).collect::<Vec<_>>(),
                "circuits": circuits.iter().map(circuit).collect::<Vec<_>>(),
            });
            let mut lines = Vec::new();
            for known in &paths {
                lines.push(line(known));
                lines.extend(known.seen.iter().map(transfer_line));
            }
            lines.extend(circuits.iter().map(circuit_line));
            output.result(&json, lines.join("\n"))
        }
        Some(HistoryCommand::Clear { host }) => {
            let cleared = history.map_or(Ok(0), |history| history.clear(host.as_deref()));
            let cleared = cleared.map_err(failed)?;
            let text = format!("{} forgotten", entries(cleared as u64));
            output.result(&json!({ "file": name, "cleared": cleared }), text)
        }
    }
}

/// The history of this user, for a transfer. What stands in the way holds up nothing.
pub(crate) fn open(no_history: bool, output: &Output) -> Option<Arc<History>> {
    if no_history {
        return None;
    }
    let Some(file) = file() else {
        output.detail(format!("note: {NO_HOME}"));
        return None;
    };
    match History::open(&file) {
        Ok(history) => {
            let notices = history.notices().iter();
            notices.for_each(|notice| output.say(format!("note: {notice}")));
            Some(Arc::new(history))
        }
        Err(error) => {
            output.say(format!("note: nothing is known of paths, nor learnt: {error}"));
            None
        }
    }
}

/// A transfer's knowledge of a path, for scripts.
pub(crate) fn known(memory: &PathMemory) -> Value {
    json!({
        "rate_bps": memory.rate().as_bps(),
        "band_bps": [memory.band.0.as_bps(), memory.band.1.as_bps()],
        "rtt_ms": seconds(memory.round_trip) * 1e3,
        "mtu": memory.packet,
        "chance_ppm": memory.chance_ppm,
        "age_seconds": memory.age.as_secs(),
        "best_profile": memory.best_profile,
    })
}

type Known = (Vec<KnownPath>, Vec<(String, CircuitRecord)>);

fn all(history: Option<&History>, host: Option<&str>) -> Result<Known, Failure> {
    let Some(history) = history else { return Ok(Known::default()) };
    let paths = history.paths(host, unix_time()).map_err(failed)?;
    Ok((paths, history.circuits(host).map_err(failed)?))
}

fn path(path: &KnownPath) -> Value {
    json!({
        "peer": path.key.peer,
        "local": path.key.local,
        "remote": path.key.remote,
        "direction": path.key.direction.name(),
        "token": Some(&path.key.token).filter(|token| !token.is_empty()),
        "known": path.memory.as_ref().map(known),
        "transfers": path.seen.len(),
    })
}

fn transfer(seen: &Seen) -> Value {
    let record = &seen.record;
    json!({
        "at": time(seen.at),
        "profile": record.profile,
        "rate_bps": record.seen.rate.as_bps(),
        "by_path": record.seen.by_path,
        "rtt_ms": seconds(record.seen.round_trip) * 1e3,
        "mtu": record.seen.packet,
        "chance_ppm": record.seen.chance_ppm,
        "packets_sent": record.packets,
        "lost": lost(&record.lost),
    })
}

fn circuit((host, known): &(String, CircuitRecord)) -> Value {
    json!({
        "host": host,
        "circuits": known.circuits,
        "wasted_ppm": known.wasted_ppm,
        "deviation_ppm": known.deviation_ppm,
        "max_rate_bps": known.max_rate_bps,
    })
}

fn line(path: &KnownPath) -> String {
    let key = &path.key;
    let by = match key.token.as_str() {
        "" => String::new(),
        token => format!(", token {}", shown(token)),
    };
    let way = format!(
        "{} to {} ({} to {}{by})",
        key.direction.name(),
        shown(&key.peer),
        key.local,
        key.remote
    );
    let Some(memory) = &path.memory else {
        return format!("{way}: too old to build on");
    };
    let best = memory.best_profile.map(|name| format!(", best by {name}"));
    format!(
        "{way}: {} to {}, RTT {:.1} ms, MTU {}, {} ppm lost by chance{}; {}",
        memory.band.0,
        memory.band.1,
        seconds(memory.round_trip) * 1e3,
        memory.packet,
        memory.chance_ppm,
        best.unwrap_or_default(),
        counted(path.seen.len() as u64, "transfer"),
    )
}

fn transfer_line(seen: &Seen) -> String {
    let Seen { at, record } = seen;
    let bound = if record.seen.by_path { "" } else { ", bounded by something else" };
    format!(
        "  {}  {:<11} {}{bound}, RTT {:.1} ms, {} of {} lost",
        time(*at),
        shown(&record.profile),
        record.seen.rate,
        seconds(record.seen.round_trip) * 1e3,
        record.lost.total(),
        counted(record.packets, "packet"),
    )
}

fn circuit_line((host, known): &(String, CircuitRecord)) -> String {
    let most = known.max_rate_bps.map(|rate| format!(", at most {}", Rate::from_bps(rate)));
    format!(
        "circuits to {}: {} used, {:.1} % wasted{}",
        shown(host),
        known.circuits,
        f64::from(known.wasted_ppm) / 1e4,
        most.unwrap_or_default(),
    )
}

/// In UTC, to the second.
fn time(at: u64) -> String {
    let time = i64::try_from(at).ok().and_then(|at| Timestamp::from_second(at).ok());
    let time = time.unwrap_or(Timestamp::MAX);
    let rounded = time.round(Unit::Second).unwrap_or(time);
    format!("{}Z", rounded.to_zoned(TimeZone::UTC).datetime())
}

fn file() -> Option<PathBuf> {
    let state = token::user_folder("XDG_STATE_HOME", ".local/state");
    Some(state?.join("longhaul/history.db"))
}

fn failed(error: longhaul_history::HistoryError) -> Failure {
    Failure::failed(error.to_string())
}

const NO_HOME: &str = "no home directory to keep a history of paths in";
