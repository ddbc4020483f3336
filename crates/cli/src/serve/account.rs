//! Words of a server about its clients, and its counts.

use std::net::SocketAddr;
use std::time::Instant;

use jiff::Timestamp;
use longhaul::ServeEvent;
use longhaul_units::{Bytes, without_numbers};
use serde_json::{Map, Value, json};

use super::log::LogFormat;
use super::outcome::Outcome;
use super::refused_clients::{RefusedClients, left_out};
use crate::figures;
use crate::output::{self, Output, complain};

/// Counts so far.
#[derive(Debug)]
pub(super) struct Account {
    /// A line of this form for each transfer, in place of words.
    pub log: Option<LogFormat>,
    started: Instant,
    transfers: u64,
    failed: u64,
    refused: u64,
    bytes: u64,
    pub refusals: RefusedClients,
    /// Why the latest transfer failed, if it did.
    pub last_failure: Option<String>,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            log: None,
            started: Instant::now(),
            transfers: 0,
            failed: 0,
            refused: 0,
            bytes: 0,
            refusals: RefusedClients::default(),
            last_failure: None,
        }
    }
}

impl Account {
    pub fn take(&mut self, event: &ServeEvent, output: &Output) {
        match event {
            ServeEvent::Listening(_) => {}
            ServeEvent::Began { client, what } if self.log.is_none() => {
                output.say(format!("{client}: {what}"));
            }
            ServeEvent::Began { .. } => {}
            ServeEvent::Ended { client, account, outcome } => {
                let outcome = Outcome::of(outcome);
                if let (Some(log), Some(account)) = (self.log, account) {
                    output::log(&log.line(Timestamp::now(), *client, account, &outcome));
                }
                self.end(client, &outcome, output);
            }
            ServeEvent::Refused { client, reason } => {
                self.refused += 1;
                let (left_out, shows) = self.refusals.note(Instant::now());
                if let Some(count) = left_out {
                    self.complain_of_rest(count);
                }
                if shows {
                    let reason = &without_numbers(reason);
                    match self.log {
                        Some(log) => output::log(&log.refused(Timestamp::now(), *client, reason)),
                        None => complain(format!("{client}: refused: {reason}")),
                    }
                }
            }
            ServeEvent::Notice(text) => output.detail(format!("note: {text}")),
            other => output.detail(format!("{other:?}")),
        }
    }

    /// A line for so many that were refused and have none of their own.
    pub fn complain_of_rest(&self, count: u64) {
        match self.log {
            Some(log) => output::log(&log.left_out(Timestamp::now(), count)),
            None => complain(left_out(count)),
        }
    }

    fn end(&mut self, client: &SocketAddr, outcome: &Outcome, output: &Output) {
        self.transfers += 1;
        self.bytes += outcome.bytes;
        self.last_failure.clone_from(&outcome.reason);
        self.failed += u64::from(outcome.reason.is_some());
        if self.log.is_some() {
            return;
        }
        let mut done = format!("done, {}", Bytes::new(outcome.bytes));
        if outcome.skipped > 0 {
            done += &format!(", {} skipped", figures::entries(outcome.skipped));
        }
        match (&outcome.reason, outcome.is_whole) {
            (None, _) => output.say(format!("{client}: {done}")),
            (Some(reason), true) => complain(format!("{client}: {done}; {reason}")),
            (Some(reason), false) => complain(format!("{client}: failed: {reason}")),
        }
    }

    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        for (name, value) in [
            ("transfers", json!(self.transfers)),
            ("failed", json!(self.failed)),
            ("refused", json!(self.refused)),
            ("bytes", json!(self.bytes)),
            ("seconds", json!(self.started.elapsed().as_millis() as f64 / 1e3)),
        ] {
            fields.insert(name.into(), value);
        }
        fields
    }
}
