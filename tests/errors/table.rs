//! `table.txt`: what must come of which error.

use std::collections::BTreeMap;

use crate::case::Site;
use crate::scene::{End, Kind};

/// One row.
#[derive(Debug)]
pub struct Row {
    line: &'static str,
    calls: Vec<&'static str>,
    places: Vec<&'static str>,
    errors: Vec<&'static str>,
    roles: Vec<&'static str>,
    /// The missing entry was removed, for all that the program can know.
    pub gone: bool,
    /// The most that may be lost.
    pub lost: Lost,
    pub statuses: Vec<i32>,
    /// If something failed, one of these is in the output.
    pub words: Vec<&'static str>,
    /// The same command goes on from what is kept, or begins again, and brings the rest.
    pub kept: bool,
}

/// Entries that are missing at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lost {
    Nothing,
    /// Each of them named.
    Entries,
    Copy,
}

/// The rows, in their order, and the classes that they name errors by.
pub struct Table {
    rows: Vec<Row>,
    classes: BTreeMap<&'static str, Vec<&'static str>>,
}

impl Table {
    pub fn read() -> Self {
        let (mut rows, mut classes) = (Vec::new(), BTreeMap::new());
        for line in include_str!("table.txt").lines() {
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            match line.split_once('=') {
                Some((class, errors)) if !line.contains('|') => {
                    classes.insert(class.trim(), errors.split_whitespace().collect());
                }
                _ => rows.push(Row::parse(line)),
            }
        }
        Self { rows, classes }
    }

    /// The first row for this error.
    pub fn row(&self, site: &Site, error: &str) -> Option<&Row> {
        let has = |names: &[&str], name: &str| {
            names.iter().any(|known| matches!(*known, "*") || *known == name)
        };
        self.rows.iter().find(|row| {
            let classed =
                |class: &&str| self.classes.get(class).is_some_and(|all| all.contains(&error));
            has(&row.calls, site.call)
                && has(&row.places, &site.place)
                && (has(&row.errors, error) || row.errors.iter().any(classed))
                && roles(site).iter().any(|role| has(&row.roles, role))
        })
    }
}

impl Row {
    fn parse(line: &'static str) -> Self {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [calls, places, errors, role, lost, status, words, kept] = columns[..] else {
            panic!("table.txt: not eight columns: {line}");
        };
        let list = |text: &'static str| text.split_whitespace().collect();
        let gone = lost == "gone";
        let lost = match lost {
            "nothing" => Lost::Nothing,
            "entries" => Lost::Entries,
            "copy" | "gone" => Lost::Copy,
            other => panic!("table.txt: {other} is nothing that can be lost"),
        };
        let statuses = status.split_whitespace().map(|status| status.parse().unwrap()).collect();
        let words = words.split(';').map(str::trim).filter(|words| !words.is_empty()).collect();
        let (calls, places, errors, roles) = (list(calls), list(places), list(errors), list(role));
        Self {
            line,
            calls,
            places,
            errors,
            roles,
            gone,
            lost,
            statuses,
            words,
            kept: kept == "yes",
        }
    }

    pub fn line(&self) -> &'static str {
        self.line
    }
}

/// The part of the process in the scene, as the table names it.
fn roles(site: &Site) -> [&'static str; 2] {
    let role = match (site.kind, site.end) {
        (Kind::Push, End::Client) | (Kind::Pull, End::Server) => "source",
        (Kind::Push, _) | (Kind::Pull, _) => "sink",
        (Kind::Pipe, _) => "pipe",
    };
    [role, site.end.name()]
}
