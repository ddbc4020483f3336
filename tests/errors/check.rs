//! Runs a case, and holds what came of it against its row.

use std::fmt::Write;

use longhaul_sys::faults::{Attempt, Call, Verdict};
use serde_json::Value;

use crate::case::Case;
use crate::errno;
use crate::place::Places;
use crate::scene::{End, Ended, Outcome, Scene};
use crate::table::{Lost, Row, Table};

/// The outcome of a case.
pub enum Result {
    AsTheTableSays,
    /// The call was not made so often this time.
    NotReached,
    /// All that is wrong, and what came of it.
    Wrong(String),
}

pub fn run(case: &Case, table: &Table) -> Result {
    let Some(row) = table.row(&case.site, &case.error) else {
        return Result::Wrong("table.txt has no row for it".into());
    };
    let site = &case.site;
    let scene = Scene::new(site.kind, site.tcp);
    let places = Places { folder: scene.folder().to_owned(), kind: site.kind };
    let error = errno::number(&case.error);
    let calls = [Call::named(site.call).unwrap()];
    let (mut made, mut failed) = (0, 0);
    let mut decide = |attempt: &Attempt| {
        if places.of(attempt) != Some(&site.place) {
            return Verdict::Proceed;
        }
        made += 1;
        if made == case.at || case.ever && made > case.at {
            failed += 1;
            return Verdict::Fail(error);
        }
        Verdict::Proceed
    };
    let outcome = scene.run(site.end, &calls, &mut decide);
    let mut wrong = Vec::new();
    check_always(&outcome, row, &mut wrong);
    if failed == 0 {
        if wrong.is_empty() {
            return Result::NotReached;
        }
        wrong.push("and no call had failed".into());
    }
    if site.end != End::Server && outcome.client.is_some() && !outcome.serves {
        wrong.push("the server ended for what befell a client".into());
    }
    check_row(&outcome, row, &mut wrong);
    if wrong.is_empty() {
        return Result::AsTheTableSays;
    }
    let mut text = wrong.join("\n");
    write!(text, "\nrow: {}\n{outcome:#?}", row.line()).expect("memory takes it");
    Result::Wrong(text)
}

/// Conditions that hold whatever failed.
fn check_always(outcome: &Outcome, row: &Row, wrong: &mut Vec<String>) {
    let ends = [Some(&outcome.server), outcome.client.as_ref(), outcome.receiver.as_ref()];
    for ended in ends.into_iter().flatten() {
        if ended.hung {
            wrong.push("a process hung".into());
        } else if ended.status.is_none() {
            wrong.push("a signal ended a process".into());
        }
        if ended.stderr.contains("panicked") {
            wrong.push("a process panicked".into());
        }
    }
    if !outcome.left.wrong.is_empty() {
        wrong.push(format!("wrong bytes: {:?}", outcome.left.wrong));
    }
    let Some(last) = outcome.last() else { return };
    let is_gone = row.gone && outcome.lost() < Lost::Copy;
    let complete = outcome.left.missing.is_empty() || is_gone;
    if last.status == Some(0) && !complete {
        wrong.push(format!("status 0, and {:?} is missing", outcome.left.missing));
    }
    if last.status == Some(1) && last.stderr.trim().is_empty() {
        wrong.push("it failed without a word".into());
    }
    // Of a copy that came to its end, each entry that is not there is named, or the directory that could
    // not be listed.
    if complete {
        return;
    }
    let object = last.object();
    let Some(failures) = object["failures"].as_array() else { return };
    let named = |path: &&String| {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        failures.iter().any(|failure| {
            let [of, reason] =
                ["path", "reason"].map(|name| failure[name].as_str().unwrap_or_default());
            let of = of.strip_suffix("/(what could not be listed)").unwrap_or(of);
            of == path.as_str() || of == directory || reason.starts_with(&format!("{directory}: "))
        })
    };
    let unnamed: Vec<_> = outcome.left.missing.iter().filter(|path| !named(path)).collect();
    if !unnamed.is_empty() {
        wrong.push(format!("nothing says that {unnamed:?} are missing"));
    }
}

fn check_row(outcome: &Outcome, row: &Row, wrong: &mut Vec<String>) {
    let lost = outcome.lost();
    if lost > row.lost {
        wrong.push(format!("lost: {lost:?}, at most {:?}", row.lost));
    }
    let (status, words) = match outcome.last() {
        Some(last) => (last.status, outcome.words()),
        // It could not even serve.
        None => (outcome.server.status, outcome.server.stderr.clone()),
    };
    if !status.is_some_and(|status| row.statuses.contains(&status)) {
        wrong.push(format!("status {status:?}, not one of {:?}", row.statuses));
    }
    if status != Some(0) && !row.words.iter().any(|part| words.contains(part)) {
        wrong.push(format!("none of {:?} is in {words:?}", row.words));
    }
    let Some((again, left)) = outcome.again.as_ref().filter(|_| row.kept) else { return };
    if again.status != Some(0) || !left.missing.is_empty() || !left.wrong.is_empty() {
        wrong.push(format!("the same command does not bring the rest: {left:?} {again:?}"));
    }
    if left.hidden > 0 {
        wrong.push("a hidden directory stays behind a complete copy".into());
    }
}

impl Outcome {
    /// The process whose status and words count: the one that has the data at the end.
    fn last(&self) -> Option<&Ended> {
        let failed = self.client.as_ref().filter(|client| client.status != Some(0));
        failed.or(self.receiver.as_ref()).or(self.client.as_ref())
    }

    /// The words of all that is not the server.
    fn words(&self) -> String {
        let ends = [&self.client, &self.receiver].into_iter().flatten();
        ends.map(|ended| ended.words() + "\n").collect()
    }

    fn lost(&self) -> Lost {
        let is_copy = self.receiver.is_none();
        match &self.left.missing[..] {
            [] if self.client.is_some() => Lost::Nothing,
            missing if is_copy && missing != ["tree"] && self.client.is_some() => Lost::Entries,
            _ => Lost::Copy,
        }
    }
}

impl Ended {
    /// The object of `--json`.
    fn object(&self) -> Value {
        let lines = self.stdout.lines().chain(self.stderr.lines());
        let mut objects = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        objects.find(Value::is_object).unwrap_or_default()
    }

    /// All that people and programs are given to read.
    fn words(&self) -> String {
        let object = self.object();
        let failures = object["failures"].as_array().cloned().unwrap_or_default();
        let reasons = failures.iter().filter_map(|failure| failure["reason"].as_str());
        reasons.fold(self.stderr.clone(), |words, reason| words + "\n" + reason)
    }
}
