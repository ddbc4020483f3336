//! `longhaul resume`.

use std::path::Path;
use std::time::Duration;

use longhaul::{
    EndedEntry, LeftoversOptions, SshPurpose, Stop, UnfinishedCopies, UnfinishedCopy, discard,
    leftovers, open_directory,
};
use longhaul_sys::reasons::{unread, unwritten};
use longhaul_units::{Bytes, shown, shown_path, without_numbers};
use serde_json::{Map, Value, json};

use crate::args::ResumeArgs;
use crate::failure::Failure;
use crate::location::{self, Location, Server};
use crate::output::{self, Output, complain, print};
use crate::report;
use crate::signals::Held;
use crate::{link, ssh};

pub(crate) fn run(args: &ResumeArgs, output: &Output, held: Held) -> Result<(), Failure> {
    let place = location::parse(&args.place).map_err(|e| Failure::usage(e.to_string()))?;
    output::open()?;
    let mut found = Found { at: shown(&args.place.display().to_string()), ..Found::default() };
    match place.location {
        Location::Local(place) => {
            held.release()?;
            found.look_here(&place, args.discard, output)?;
        }
        Location::Remote { server, path } => {
            let stop = Stop::default();
            held.stop_in_order(&stop, output, Map::new)?;
            found.look_there(args, (server, path), output, &stop)?;
        }
    }
    found.end(args.discard, output)
}

/// The copies that were found.
#[derive(Default)]
struct Found {
    /// The place that was looked through, as the user names it.
    at: String,
    copies: Vec<Value>,
    discarded: u64,
    failed: u64,
    first_failure: String,
}

impl Found {
    /// Looks through a directory of this host.
    fn look_here(&mut self, place: &Path, discards: bool, output: &Output) -> Result<(), Failure> {
        let root = open_directory(place).map_err(|error| Failure::of(&error, Map::new))?;
        for found in UnfinishedCopies::below(&root) {
            let copy = match found {
                Ok(copy) => copy,
                Err((path, error)) => {
                    let path = self.named(&shown_path(&path));
                    self.fail(format!("cannot look at {path}: {}", unread(&error)));
                    continue;
                }
            };
            let mut is_gone = false;
            if discards && !copy.runs {
                match discard(&root, &copy.path) {
                    Ok(gone) => is_gone = gone,
                    Err(error) => {
                        let path = self.named(&shown_path(&copy.path));
                        self.fail(format!("cannot discard {path}: {}", unwritten(&error)));
                    }
                }
            }
            self.show(&copy, is_gone, output)?;
        }
        Ok(())
    }

    /// Has a server look through a directory of its own.
    fn look_there(
        &mut self,
        args: &ResumeArgs,
        (server, path): (Server, Vec<u8>),
        output: &Output,
        stop: &Stop,
    ) -> Result<(), Failure> {
        let asked = (SshPurpose::Leftovers, vec![path]);
        let token_file = args.token_file.as_deref();
        let (mut connect, paths) = ssh::reach(server, asked, token_file, &args.ssh, stop)?;
        connect.routes = link::routes(&args.route, &connect.token)?;
        let mut options = LeftoversOptions::new(connect, paths.concat());
        options.discard = args.discard;
        let report = leftovers(&options, stop).map_err(|error| Failure::of(&error, Map::new))?;
        for (copy, is_gone) in &report.copies {
            self.show(copy, *is_gone, output)?;
        }
        for EndedEntry { path, reason, .. } in &report.failures.sample {
            // The place itself is `.`.
            let path = self.named(if path == "." { "" } else { path });
            self.fail(format!("{path}: {reason}"));
        }
        self.failed = report.failures.count;
        Ok(())
    }

    /// Keeps the first reason for the end, where it is the error, and says the others at once.
    fn fail(&mut self, reason: String) {
        match self.failed {
            0 => self.first_failure = reason,
            _ => complain(format!("longhaul: {}", without_numbers(&reason))),
        }
        self.failed += 1;
    }

    /// A path below the place, or with none the place.
    fn named(&self, path: &str) -> String {
        let slash = if path.is_empty() || self.at.ends_with(['/', ':']) { "" } else { "/" };
        format!("{}{slash}{path}", self.at)
    }

    fn show(
        &mut self,
        copy: &UnfinishedCopy,
        is_gone: bool,
        output: &Output,
    ) -> Result<(), Failure> {
        let path = self.named(&shown_path(&copy.path));
        self.discarded += u64::from(is_gone);
        if !output.json {
            print(&line(&path, copy, is_gone))?;
        }
        self.copies.push(json!({
            "path": path,
            "idle_seconds": copy.idle.as_secs(),
            "bytes": copy.bytes,
            "bytes_total": copy.total,
            "running": copy.runs,
            "sources": sources(copy).collect::<Vec<_>>(),
            "discarded": is_gone,
        }));
        Ok(())
    }

    /// Says what came of it.
    fn end(self, discards: bool, output: &Output) -> Result<(), Failure> {
        let Self { at, copies, discarded, failed, first_failure } = self;
        let text = match (copies.len(), discards) {
            (0, _) if failed > 0 => "no interrupted copies where it could look".into(),
            (0, _) => format!("no interrupted copies to {at}"),
            (_, true) if discarded == 0 => "none discarded".into(),
            (_, true) => format!("{discarded} discarded; directories that they had made stay"),
            (_, false) => {
                "run the same `longhaul cp` again to go on; --discard removes what they keep".into()
            }
        };
        let fields =
            report::object(json!({ "copies": copies, "discarded": discarded, "failed": failed }));
        if failed == 0 {
            return output.result(&fields.into(), text);
        }
        let error = report::with_others(first_failure, failed);
        Err(Failure::failed(error).adding(text).with_fields(fields))
    }
}

fn line(path: &str, copy: &UnfinishedCopy, is_gone: bool) -> String {
    let state = match (is_gone, copy.runs) {
        (true, _) => "discarded",
        (false, true) => "running",
        (false, false) => "",
    };
    let bytes = format!("{} of {}", Bytes::new(copy.bytes), Bytes::new(copy.total));
    let from = match &sources(copy).collect::<Vec<_>>()[..] {
        [] => String::new(),
        sources => format!(" from {}", sources.join(" ")),
    };
    format!("{:>8} {bytes:>20} {state:9} {path}{from}", age(copy.idle))
}

/// Places that it comes from.
fn sources(copy: &UnfinishedCopy) -> impl Iterator<Item = String> {
    copy.sources.iter().map(|source| shown_path(source))
}

/// In the largest unit of which it has some.
fn age(idle: Duration) -> String {
    let seconds = idle.as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let unit = units.iter().find(|(length, _)| seconds >= *length);
    unit.map_or(format!("{seconds} s"), |(length, name)| format!("{} {name}", seconds / length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let of = |seconds| age(Duration::from_secs(seconds));
        assert_eq!([of(5), of(119), of(7_300), of(200_000)], ["5 s", "1 min", "2 h", "2 d"]);
    }
}
