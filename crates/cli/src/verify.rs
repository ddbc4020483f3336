//! `longhaul verify`.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use longhaul::{
    Finding, FindingKind, HashList, Progress, SshPurpose, Stop, VerifyOptions, VerifyPlace,
    VerifyReport, verify,
};
use longhaul_sys::reasons::unread;
use longhaul_sys::sync::lock;
use longhaul_units::{Bytes, shown, shown_path};
use serde_json::{Map, Value, json};

use crate::args::VerifyArgs;
use crate::failure::Failure;
use crate::figures::seconds;
use crate::input;
use crate::link;
use crate::location::{self, Location};
use crate::output::{self, Output, print};
use crate::progress::Display;
use crate::signals::Held;
use crate::ssh;

pub(crate) fn run(args: &VerifyArgs, output: &Output, held: Held) -> Result<(), Failure> {
    let (stop, progress) = (Stop::default(), Progress::default());
    held.stop_in_order(&stop, output, Map::new)?;
    let place = location::parse(&args.place).map_err(|e| Failure::usage(e.to_string()))?;
    let hashes = Arc::new(read(&args.manifest)?);
    output::open()?;
    let place = match place.location {
        Location::Local(path) => VerifyPlace::Here(path),
        Location::Remote { server, path } => {
            let (asked, token_file) =
                ((SshPurpose::Verify, vec![path]), args.token_file.as_deref());
            let (mut connect, paths) = ssh::reach(server, asked, token_file, &args.ssh, &stop)?;
            connect.routes = link::routes(&args.route, &connect.token)?;
            VerifyPlace::There { connect: Box::new(connect), path: paths.concat() }
        }
    };
    let found = Arc::new(Mutex::new(Findings::default()));
    let (taking, is_json) = (found.clone(), output.json);
    let display = Display::of_verify(output);
    let beside = display.beside();
    let sink =
        Arc::new(move |finding: &Finding| beside.print(|| lock(&taking).take(finding, is_json)));
    let mut options = VerifyOptions::new(place, hashes, sink);
    options.ignore_extra = args.ignore_extra;
    let done = display.attend(&progress, || verify(&options, &progress, &stop));
    let (done, _) = done.map_err(|error| Failure::failed(error.to_string()))?;
    let found = lock(&found);
    let report = done.map_err(|error| {
        let reached = progress.snapshot();
        let known = || Map::from_iter([("bytes".into(), reached.bytes_done.into())]);
        Failure::of(&error, known)
    })?;
    let text = text(&report);
    match report.is_alike() {
        true => output.result(&Value::Object(found.fields(&report)), text),
        false => Err(Failure::failed(text).with_fields(found.fields(&report))),
    }
}

fn read(path: &Path) -> Result<HashList, Failure> {
    let shown = shown(&path.display().to_string());
    let lines = input::open(path)
        .map_err(|error| Failure::failed(format!("cannot read {shown}: {}", unread(&error))))?;
    let list = HashList::read(lines).map_err(|error| match error.is_unread() {
        true => Failure::failed(format!("cannot read {shown}: {error}")),
        false => Failure::usage(format!("{shown}: {error}; nothing was compared")),
    })?;
    match list.is_empty() {
        true => Err(Failure::usage(format!("{shown}: it has no lines, so nothing was compared"))),
        false => Ok(list),
    }
}

/// The first of what was found, for JSON.
#[derive(Default)]
struct Findings {
    missing: Vec<Value>,
    changed: Vec<Value>,
    extra: Vec<Value>,
    failures: Vec<Value>,
}

impl Findings {
    fn take(&mut self, finding: &Finding, is_json: bool) -> io::Result<()> {
        if !is_json {
            return print(&finding.to_string())
                .map_err(|failure| io::Error::other(failure.message));
        }
        let path: Value = shown_path(&finding.path).into();
        let (kept, value) = match finding.kind {
            FindingKind::Missing => (&mut self.missing, path),
            FindingKind::Changed => (&mut self.changed, path),
            FindingKind::Extra => (&mut self.extra, path),
            FindingKind::Failed => {
                (&mut self.failures, json!({ "path": path, "reason": finding.reason }))
            }
        };
        if kept.len() < KEPT_MOST {
            kept.push(value);
        }
        Ok(())
    }

    /// The fields of docs/operating.md.
    fn fields(&self, report: &VerifyReport) -> Map<String, Value> {
        let counted = |count: u64, paths: &[Value]| json!({ "count": count, "paths": paths });
        Map::from_iter([
            ("files".into(), report.files.into()),
            ("bytes".into(), report.bytes.into()),
            ("seconds".into(), seconds(report.elapsed).into()),
            ("missing".into(), counted(report.missing, &self.missing)),
            ("changed".into(), counted(report.changed, &self.changed)),
            ("extra".into(), counted(report.extra, &self.extra)),
            ("failed".into(), report.failed.into()),
            ("failures".into(), self.failures.clone().into()),
        ])
    }
}

fn text(report: &VerifyReport) -> String {
    let VerifyReport { missing, changed, extra, failed, .. } = *report;
    let counts = [(missing, "missing"), (changed, "changed"), (extra, "extra"), (failed, "failed")];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let mut parts = vec![format!("{} as in the list", report.files)];
    parts.extend(counts.map(|(count, what)| format!("{count} {what}")));
    let (bytes, seconds) = (Bytes::new(report.bytes), seconds(report.elapsed));
    format!("{}; {bytes} hashed in {seconds:.1} s", parts.join(", "))
}

/// Names of each kind in JSON.
const KEPT_MOST: usize = 1_000;
