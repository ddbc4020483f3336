//! Drives the ends of a listing: a server that finds things as fast as its disk does, and a client that
//! takes them as it likes.

use longhaul_connection::{IncomingAnswers, OutgoingAnswers};
use longhaul_units::{Duration, Instant};
use longhaul_wire::{AnswerMessage, EntryCode, EntryEnd, EntryPath, Listed, ListedKind};

use crate::draw::Draw;
use crate::environment::Env;
use crate::scenario::Scenario;

#[derive(Debug)]
pub(crate) struct ListingDriver {
    /// Things that there are, and that were found.
    total: u64,
    found: u64,
    unlisted: u64,
    /// The next message, and when it is there.
    next: Option<(Instant, AnswerMessage)>,
    ended: bool,
    latency: Duration,
}

impl ListingDriver {
    pub fn new(scenario: &Scenario) -> Self {
        let total = scenario.things();
        let latency = scenario.disk_latency;
        Self { total, found: 0, unlisted: 0, next: None, ended: false, latency }
    }

    /// Does what can be done now; returns whether it was anything.
    pub fn pump(&mut self, now: Instant, answers: &mut OutgoingAnswers, draw: &mut Draw) -> bool {
        let mut progress = false;
        while answers.has_room() && !self.ended {
            if self.next.is_none() {
                let at = now + draw.micros(1, self.latency.as_micros() as u64);
                self.next = Some((at, self.find(draw)));
            }
            let Some((_, answer)) = self.next.take_if(|(at, _)| *at <= now) else { break };
            self.ended = matches!(answer, AnswerMessage::End { .. });
            answers.push(answer);
            progress = true;
        }
        progress
    }

    fn find(&mut self, draw: &mut Draw) -> AnswerMessage {
        if self.found == self.total {
            let (listed, unlisted) = (self.found - self.unlisted, self.unlisted);
            return AnswerMessage::End { listed, unlisted };
        }
        if draw.one_in(20) {
            self.found += 1;
            self.unlisted += 1;
            let path = (self.found - 1).to_string().into_bytes();
            return AnswerMessage::Unlisted { path, end: end(self.found - 1) };
        }
        let first = self.found;
        self.found = self.total.min(first + draw.scaled(1, 600));
        AnswerMessage::Listed((first..self.found).map(thing).collect())
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.next.as_ref().map(|(at, _)| *at)
    }
}

#[derive(Debug)]
pub(crate) struct AskingDriver {
    total: u64,
    /// Things that were taken.
    taken: u64,
    /// When it takes the next answer.
    next: Instant,
    pause: Duration,
}

impl AskingDriver {
    pub fn new(scenario: &Scenario, now: Instant) -> Self {
        let pause = scenario.disk_latency;
        Self { total: scenario.things(), taken: 0, next: now, pause }
    }

    /// Takes what has come and it has time for; returns whether it was anything.
    pub fn pump(&mut self, now: Instant, answers: &mut IncomingAnswers, env: &mut Env<'_>) -> bool {
        let mut progress = false;
        while self.next <= now
            && let Some(answer) = answers.poll_answer()
        {
            progress = true;
            self.next = now + env.draw.micros(1, self.pause.as_micros() as u64);
            let (first, total) = (self.taken, self.total);
            match answer {
                AnswerMessage::Listed(all) => {
                    self.taken += all.len() as u64;
                    let right = all.iter().zip(first..).all(|(it, number)| *it == thing(number));
                    env.checks
                        .require(right, || format!("other things than those from {first} on"));
                }
                AnswerMessage::Unlisted { path, end: why } => {
                    self.taken += 1;
                    let right = path == first.to_string().as_bytes() && why == end(first);
                    env.checks.require(right, || format!("another thing than {first}"));
                }
                AnswerMessage::Hashed(_) | AnswerMessage::Left(_) => {
                    env.checks.require(false, || "answers that nobody asked for");
                }
                AnswerMessage::End { .. } => env.checks.require(first == total, || {
                    format!("the listing ends behind {first} of {total} things")
                }),
            }
        }
        progress
    }

    pub fn next_timeout(&self, answers: &IncomingAnswers) -> Option<Instant> {
        answers.idles().then_some(self.next)
    }
}

/// Why the thing of that number is not listed.
fn end(number: u64) -> EntryEnd {
    let code = EntryCode::ALL[(number % EntryCode::ALL.len() as u64) as usize];
    EntryEnd::new(code.of_source(), "it cannot be looked at")
}

fn thing(number: u64) -> Listed {
    let path = EntryPath::new(number.to_string().into_bytes()).unwrap_or_default();
    Listed { kind: ListedKind::File, mode: 0o644, modified: 0, size: number, path }
}
