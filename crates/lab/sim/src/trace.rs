//! Events of a run, as a hash to compare two runs by and as text for people.

use std::collections::BTreeSet;
use std::fmt;

use longhaul_connection::Part;
use longhaul_objects::EndedEntry;
use longhaul_units::{EntryCode, Instant};

/// Records events.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    verbose: bool,
}

impl Trace {
    /// `verbose`: also print to standard error.
    pub fn new(verbose: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, events: 0, verbose }
    }

    /// An event: what kind, and what tells it from others.
    pub fn event(&mut self, now: Instant, kind: Kind, values: [u64; 3]) {
        self.events += 1;
        for value in [now.as_nanos(), kind as u64].into_iter().chain(values) {
            self.hash = (self.hash ^ value).wrapping_mul(0x100_0000_01b3).rotate_left(23);
        }
    }

    /// Something that people want to read of.
    pub fn note(&mut self, now: Instant, text: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{now:?} {}", text());
        }
    }

    /// Depends on every event and their order.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn events(&self) -> u64 {
        self.events
    }
}

/// Kind of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Sent,
    Arrived,
    Accepted,
    Message,
    Storage,
    Fault,
    Run,
}

/// The first rule that was broken, if any.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    broken: Option<String>,
    /// Ends of entries that sources and sinks have sent, by the entry's number.
    ends: [BTreeSet<(u64, u8)>; 2],
}

impl Checks {
    /// `what` says what is wrong where `holds` is false.
    pub fn require<S: fmt::Display>(&mut self, holds: bool, what: impl FnOnce() -> S) {
        if !holds && self.broken.is_none() {
            self.broken = Some(what().to_string());
        }
    }

    /// `part` says why it does not copy an entry.
    pub fn note_end(&mut self, part: Part, entry: u64, code: EntryCode) {
        self.ends[usize::from(part == Part::Sink)].insert((entry, code as u8));
    }

    /// The links that lead nowhere have failed by their names.
    pub fn require_names<'f>(
        &mut self,
        failures: &[EndedEntry],
        broken: impl Iterator<Item = (&'f [u8], EntryCode)>,
    ) {
        for (path, code) in broken {
            let is_that = |it: &EndedEntry| it.path.as_bytes() == path && it.end.code == code;
            self.require(failures.iter().any(is_that), || {
                format!("{} has not failed as {code}", path.escape_ascii())
            });
        }
    }

    /// The other end gets that.
    pub fn check_end(&mut self, part: Part, entry: u64, code: EntryCode) {
        let sent = &self.ends[usize::from(part == Part::Sink)];
        let was_sent = sent.contains(&(entry, code as u8));
        self.require(was_sent, || format!("entry {entry} ended as {code}, which nobody has sent"));
    }

    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }
}
