//! `longhaul ls`.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use longhaul::{EndedEntries, ListOptions, ListReport, Listed, ListedKind, SshPurpose, Stop, list};
use longhaul_sys::sync::lock;
use longhaul_units::shown_path;
use serde_json::{Map, Value, json};

use crate::args::ListArgs;
use crate::failure::Failure;
use crate::link;
use crate::location::{self, Location};
use crate::output::{self, Output};
use crate::report;
use crate::signals::Held;
use crate::ssh;

pub(crate) fn run(args: &ListArgs, output: &Output, held: Held) -> Result<(), Failure> {
    let stop = Stop::default();
    held.stop_in_order(&stop, output, Map::new)?;
    let usage = |error: location::ParseLocationError| Failure::usage(error.to_string());
    let own_name = location::parse(&args.place).map_err(usage)?.location.own_name().to_vec();
    let place = location::parse_source(&args.place).map_err(usage)?;
    output::open()?;
    let Location::Remote { server, path } = place.location else {
        return Err(Failure::usage(WHAT));
    };
    let (asked, token_file) = ((SshPurpose::List, vec![path]), args.token_file.as_deref());
    let (mut connect, paths) = ssh::reach(server, asked, token_file, &args.ssh, &stop)?;
    let path = paths.concat();
    connect.routes = link::routes(&args.route, &connect.token)?;
    let printer = Printer::new(args.long, output.json, own_name);
    let printer = Arc::new(Mutex::new(printer));
    let taking = printer.clone();
    let sink = Arc::new(move |all| lock(&taking).take(all));
    let mut options = ListOptions::new(connect, path, sink);
    options.recursive = args.recursive;
    let done = list(&options, &stop);
    let mut printer = lock(&printer);
    if printer.reader_left {
        return Ok(());
    }
    let report = done.map_err(|error| {
        // What has come is shown; JSON is whole, or is not begun.
        let shown = printer.finish(&Map::from_iter([("error".into(), error.to_string().into())]));
        let failure = Failure::of(&error, Map::new);
        if printer.has_begun || shown.is_err() { failure.without_json() } else { failure }
    })?;
    printer.finish(&fields(&report)).or_else(output::unwritten)?;
    let others = report.failures.sample.iter().skip(1);
    others.for_each(|failure| output.say(failure.to_string()));
    match error(&report.failures) {
        None => Ok(()),
        Some(error) => Err(Failure::failed(error).without_json()),
    }
}

/// The first of what could not be looked at, and the number of others.
fn error(failures: &EndedEntries) -> Option<String> {
    let first = failures.sample.first()?.to_string();
    Some(report::with_others(first, failures.count))
}

const WHAT: &str = "ls: what at which host? longhaul ls HOST:PATH, or longhaul ls lh://HOST/PATH";

/// The fields of docs/operating.md behind the entries.
fn fields(report: &ListReport) -> Map<String, Value> {
    let mut fields = Map::from_iter([
        ("listed".into(), report.listed.into()),
        ("failed".into(), report.failures.count.into()),
        ("failures".into(), report::ended(&report.failures).into()),
    ]);
    fields.extend(error(&report.failures).map(|error| ("error".to_owned(), error.into())));
    fields
}

/// Prints what comes, sorted directory by directory: those of one directory come one after the other.
struct Printer {
    long: bool,
    json: bool,
    out: BufWriter<io::Stdout>,
    zone: TimeZone,
    /// That of the place, for one that is no directory.
    own_name: Vec<u8>,
    /// Entries of the directory that is being listed, so far, and bytes of their names.
    group: Vec<Listed>,
    group_bytes: usize,
    has_begun: bool,
    /// Nobody reads standard output any more.
    reader_left: bool,
}

impl Printer {
    fn new(long: bool, json: bool, own_name: Vec<u8>) -> Self {
        let out = BufWriter::new(io::stdout());
        let (zone, group) = (TimeZone::system(), Vec::new());
        Self {
            long,
            json,
            out,
            zone,
            own_name,
            group,
            group_bytes: 0,
            has_begun: false,
            reader_left: false,
        }
    }

    fn take(&mut self, all: Vec<Listed>) -> io::Result<()> {
        let taken = all.into_iter().try_for_each(|listed| {
            let is_other = |last: &Listed| parent(last) != parent(&listed);
            if self.group_bytes > GROUP_BYTES || self.group.last().is_some_and(is_other) {
                self.print_group()?;
            }
            self.group_bytes += size_of::<Listed>() + listed.path.as_bytes().len();
            self.group.push(listed);
            Ok(())
        });
        self.note(taken)
    }

    fn note(&mut self, result: io::Result<()>) -> io::Result<()> {
        self.reader_left |=
            result.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe);
        result
    }

    fn print_group(&mut self) -> io::Result<()> {
        let mut group = std::mem::take(&mut self.group);
        self.group_bytes = 0;
        group.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        group.iter().try_for_each(|listed| self.print(listed))?;
        self.out.flush()
    }

    fn print(&mut self, listed: &Listed) -> io::Result<()> {
        if self.json {
            let between = if self.has_begun { "," } else { "{\"entries\":[" };
            self.has_begun = true;
            return write!(self.out, "{between}{}", entry(listed, &self.own_name));
        }
        if self.long {
            write!(self.out, "{} ", self.details(listed))?;
        }
        let path = match listed.path.is_empty() {
            true => &self.own_name,
            false => listed.path.as_bytes(),
        };
        let behind = match &listed.kind {
            ListedKind::Directory => "/".to_owned(),
            ListedKind::Link { target } if self.long => format!(" -> {}", shown_path(target)),
            _ => String::new(),
        };
        writeln!(self.out, "{}{behind}", shown_path(path))
    }

    /// Mode, size and time.
    fn details(&self, listed: &Listed) -> String {
        let letter = match listed.kind {
            ListedKind::File => '-',
            ListedKind::Directory => 'd',
            ListedKind::Link { .. } => 'l',
            ListedKind::Other => '?',
        };
        let time = modified(listed).map(|time| time.to_zoned(self.zone.clone()));
        let time = time.map_or("?".into(), |time| time.strftime("%Y-%m-%d %H:%M").to_string());
        format!("{letter}{} {:>14} {time:>16}", permissions(listed.mode), listed.size)
    }

    /// Prints what is left; in JSON what is behind the entries.
    fn finish(&mut self, fields: &Map<String, Value>) -> io::Result<()> {
        let printed = self.print_group();
        self.note(printed)?;
        if !self.json {
            return Ok(());
        }
        // An error alone is printed as that of every command.
        if !self.has_begun && !fields.contains_key("listed") {
            return Ok(());
        }
        let begin = if self.has_begun { "" } else { "{\"entries\":[" };
        self.has_begun = true;
        let rest = Value::Object(fields.clone()).to_string();
        let written = writeln!(self.out, "{begin}],{}", &rest[1..]).and_then(|()| self.out.flush());
        self.note(written)
    }
}

/// Names that wait to be sorted take at most about so much; of a larger directory some are sorted at a time.
const GROUP_BYTES: usize = 128 << 20;

/// The path of the directory that it is in.
fn parent(listed: &Listed) -> &[u8] {
    let path = listed.path.as_bytes();
    path.iter().rposition(|byte| *byte == b'/').map_or(&[], |end| &path[..end])
}

fn modified(listed: &Listed) -> Option<Timestamp> {
    Timestamp::from_nanosecond(listed.modified.into()).ok()
}

/// As `ls` writes them.
fn permissions(mode: u16) -> String {
    let bit = |shift: u16, letter| if mode >> shift & 1 == 1 { letter } else { '-' };
    let mut text = String::with_capacity(9);
    for (class, special) in [(6, 's'), (3, 's'), (0, 't')] {
        text.extend([bit(class + 2, 'r'), bit(class + 1, 'w')]);
        let special_set = mode >> (9 + class / 3) & 1 == 1;
        text.push(match (special_set, bit(class, 'x')) {
            (false, letter) => letter,
            (true, 'x') => special,
            (true, _) => special.to_ascii_uppercase(),
        });
    }
    text
}

fn entry(listed: &Listed, own_name: &[u8]) -> Value {
    let kind = match listed.kind {
        ListedKind::File => "file",
        ListedKind::Directory => "directory",
        ListedKind::Link { .. } => "link",
        ListedKind::Other => "other",
    };
    let mut entry = json!({
        "path": shown_path(if listed.path.is_empty() { own_name } else { listed.path.as_bytes() }),
        "type": kind,
        "mode": format!("{:04o}", listed.mode),
        "size": listed.size,
        "modified": modified(listed).map(|time| time.to_string()),
    });
    if let ListedKind::Link { target } = &listed.kind {
        entry["target"] = shown_path(target).into();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_as_ls_writes_them() {
        for (mode, text) in [
            (0o644, "rw-r--r--"),
            (0o755, "rwxr-xr-x"),
            (0o4755, "rwsr-xr-x"),
            (0o2640, "rw-r-S---"),
            (0o1777, "rwxrwxrwt"),
            (0, "---------"),
        ] {
            assert_eq!(permissions(mode), text);
        }
    }
}
