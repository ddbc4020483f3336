//! Drives the ends of a comparison: a server that hashes files as fast as its disk does, in any order, and a
//! client that asks as it likes.

use longhaul_connection::{IncomingAnswers, OutgoingAnswers};
use longhaul_units::{Duration, Instant};
use longhaul_wire::{
    AnswerMessage, EntryCode, EntryEnd, EntryPath, HashOutcome, Hashed, Question, VerifyRequest,
};

use crate::draw::Draw;
use crate::environment::Env;
use crate::scenario::Scenario;

/// The message that begins it.
pub(crate) fn first() -> VerifyRequest {
    VerifyRequest { path: b"tree".to_vec(), questions: Vec::new(), is_last: false }
}

#[derive(Debug)]
pub(crate) struct HashingDriver {
    /// Questions that are not answered, with the files' numbers.
    open: Vec<(u64, u64)>,
    answered: u64,
    /// The next message, and when it is there.
    next: Option<(Instant, AnswerMessage)>,
    ended: bool,
    latency: Duration,
}

impl HashingDriver {
    pub fn new(scenario: &Scenario) -> Self {
        let latency = scenario.disk_latency;
        Self { open: Vec::new(), answered: 0, next: None, ended: false, latency }
    }

    /// Does what can be done now; returns whether it was anything.
    pub fn pump(&mut self, now: Instant, answers: &mut OutgoingAnswers, draw: &mut Draw) -> bool {
        let mut progress = false;
        while answers.has_room() && !self.ended {
            if self.open.len() < OPEN_MOST
                && let Some((first, more)) = answers.poll_questions()
            {
                progress = true;
                let number = |question: &Question| match question {
                    Question::Hash(path) | Question::List(path) => number(path),
                };
                self.open.extend((first..).zip(more.iter().map(number)));
            }
            if self.next.is_none() {
                let Some(answer) = self.answer(answers, draw) else { break };
                let at = now + draw.micros(1, self.latency.as_micros() as u64);
                self.next = Some((at, answer));
            }
            let Some((_, answer)) = self.next.take_if(|(at, _)| *at <= now) else { break };
            self.ended = matches!(answer, AnswerMessage::End { .. });
            answers.push(answer);
            progress = true;
        }
        progress
    }

    fn answer(&mut self, answers: &OutgoingAnswers, draw: &mut Draw) -> Option<AnswerMessage> {
        if self.open.is_empty() {
            let end = AnswerMessage::End { listed: self.answered, unlisted: 0 };
            return answers.has_all_questions().then_some(end);
        }
        let count = draw.scaled(1, 200).min(self.open.len() as u64);
        let mut all = Vec::new();
        for _ in 0..count {
            let at = draw.below(self.open.len() as u64) as usize;
            let (question, file) = self.open[at];
            let outcome = match draw.one_in(10) {
                true => HashOutcome::Begun { bytes: file },
                false => {
                    self.open.swap_remove(at);
                    outcome(file)
                }
            };
            all.push(Hashed { question, outcome });
        }
        self.answered += all.len() as u64;
        Some(AnswerMessage::Hashed(all))
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.next.as_ref().map(|(at, _)| *at)
    }
}

#[derive(Debug)]
pub(crate) struct ComparingDriver {
    /// By file: true once it was answered.
    answered: Vec<bool>,
    asked: u64,
    asked_all: bool,
    /// When it takes the next answer.
    next: Instant,
    pause: Duration,
}

impl ComparingDriver {
    pub fn new(scenario: &Scenario, now: Instant) -> Self {
        let answered = vec![false; scenario.things() as usize];
        Self { answered, asked: 0, asked_all: false, next: now, pause: scenario.disk_latency }
    }

    /// Asks, and takes what has come and it has time for; returns whether it was anything.
    pub fn pump(&mut self, now: Instant, answers: &mut IncomingAnswers, env: &mut Env<'_>) -> bool {
        let mut progress = false;
        while answers.may_ask() && !self.asked_all {
            progress = true;
            let end = self.answered.len() as u64;
            let next = end.min(self.asked + env.draw.scaled(1, 600));
            let questions = (self.asked..next).map(|file| Question::Hash(path(file))).collect();
            (self.asked, self.asked_all) = (next, next == end);
            answers.ask(VerifyRequest { path: Vec::new(), questions, is_last: self.asked_all });
        }
        while self.next <= now
            && let Some(answer) = answers.poll_answer()
        {
            progress = true;
            self.next = now + env.draw.micros(1, self.pause.as_micros() as u64);
            match answer {
                AnswerMessage::Hashed(all) => {
                    let right = all.into_iter().all(|it| self.take(it));
                    env.checks.require(right, || "another answer than that of the file");
                }
                AnswerMessage::End { .. } => {
                    let whole = !self.answered.contains(&false);
                    env.checks.require(whole, || "the end before all was answered");
                }
                AnswerMessage::Listed(_)
                | AnswerMessage::Left(_)
                | AnswerMessage::Unlisted { .. } => {
                    env.checks.require(false, || "an answer that nobody asked for");
                }
            }
        }
        progress
    }

    /// Files are asked for in their order: a question has the number of its file.
    fn take(&mut self, Hashed { question, outcome: found }: Hashed) -> bool {
        let Some(answered) = self.answered.get_mut(question as usize) else { return false };
        match found {
            HashOutcome::Begun { bytes } => bytes == question && !*answered,
            found => !std::mem::replace(answered, true) && found == outcome(question),
        }
    }

    pub fn next_timeout(&self, answers: &IncomingAnswers) -> Option<Instant> {
        answers.idles().then_some(self.next)
    }
}

/// Answer about file number `file`.
fn outcome(file: u64) -> HashOutcome {
    if file % 20 == 7 {
        return HashOutcome::Failed(EntryEnd::new(EntryCode::NotFound, "it is not there"));
    }
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&file.to_be_bytes());
    HashOutcome::Is { size: file, hash }
}

fn path(file: u64) -> EntryPath {
    EntryPath::new(file.to_string().into_bytes()).unwrap_or_default()
}

fn number(path: &EntryPath) -> u64 {
    path.to_string().parse().unwrap_or(u64::MAX)
}

/// Questions that a server takes before it answers.
const OPEN_MOST: usize = 1_000;
