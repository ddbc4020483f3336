//! Files of a server, hashed for clients.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use longhaul_connection::{OutgoingAnswers, Wish};
use longhaul_files::{Hashing, at_server};
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_units::{Bytes, Instant};
use longhaul_wire::{
    AnswerMessage, CloseCode, EntryCode, EntryEnd, EntryPath, HashOutcome, Hashed, Question,
    Refused, SshPurpose, VerifyRequest,
};

use super::here::threads;
use crate::connection::shared::{Shared, ThreadError, refuse, refuse_at};
use crate::endpoint::request::{Asked, GrantedRequest, RequestHandler};
use crate::options::ServeOptions;
use crate::transfers::answering::{Answering, await_room, push};
use crate::transfers::asking::PATIENCE;
use crate::transfers::list::served::Answers;

/// Places whose files clients may have hashed: those that they may copy from.
pub(crate) struct ServedHashes(Answering);

impl ServedHashes {
    /// Of a server with these options.
    pub fn new(options: &ServeOptions) -> Self {
        Self(Answering::new(options))
    }

    fn begin(&self, asked: &Asked<'_>, request: &VerifyRequest) -> Result<(), Refused> {
        let refused = |what: &str| Err(refuse(CloseCode::REFUSED, what));
        if !asked.rights.read {
            return refused(
                "this server does not let anyone copy from it, nor compare what it has",
            );
        }
        self.0.check(SshPurpose::Verify, &request.path, "compares nothing")?;
        let hashing = Hashing::open(&asked.rights.root, &request.path)
            .map_err(|end| refuse_at(&request.path, CloseCode::REFUSED, at_server(end).reason))?;
        let (memory, state) = (asked.memory.of_names(), Mutex::default());
        let granted = Granted(Arc::new(Work { hashing, memory, state }));
        self.0.begin(asked, granted, OutgoingAnswers::to(request.clone()));
        Ok(())
    }
}

impl RequestHandler for ServedHashes {
    fn accept(&self, asked: &Asked<'_>) -> Option<Result<(), Refused>> {
        let Wish::Verify(request) = asked.wish else { return None };
        Some(self.begin(asked, request))
    }
}

/// A request that was granted.
struct Granted(Arc<Work>);

impl GrantedRequest for Granted {
    fn describe(&self) -> String {
        "compares what is here".into()
    }

    fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        for _ in 0..threads() {
            let work = self.0.clone();
            shared.spawn("hash", move |shared| {
                work.help(shared);
                Ok::<_, ThreadError>(())
            })?;
        }
        Ok(())
    }
}

/// Work of all threads of one client.
struct Work {
    hashing: Hashing,
    /// Memory for names of directories that are still to be listed.
    memory: Bytes,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Questions that no thread has taken, with their numbers.
    questions: VecDeque<(u64, Question)>,
    /// Questions that were taken, and are not answered.
    open: u64,
    /// Counts of LIST_END.
    listed: u64,
    unlisted: u64,
    ended: bool,
}

/// Something for a thread to do.
enum Next {
    Question(u64, Question),
    Nothing,
    End,
}

impl Work {
    /// Answers questions until there are no more. Any number of threads.
    fn help(&self, shared: &Shared) {
        let (mut buffer, mut batch) = (Vec::new(), Batch::default());
        while !shared.is_stopped() {
            if let Some(hashed) = self.hashing.help(&mut buffer) {
                // Each answer about a large file is news.
                hashed.into_iter().for_each(|hashed| batch.push(hashed));
                self.flush(&mut batch, shared);
                continue;
            }
            if batch.is_due() {
                self.flush(&mut batch, shared);
            }
            match self.next(shared) {
                Next::Question(number, Question::Hash(path)) => {
                    let hashed = self.hashing.begin(number, &path, &mut buffer);
                    hashed.into_iter().for_each(|hashed| batch.push(hashed));
                }
                Next::Question(_, Question::List(path)) => self.list(&path, shared),
                Next::Nothing if !batch.is_empty() => self.flush(&mut batch, shared),
                Next::Nothing => drop(shared.rest(shared.lock(), PATIENCE)),
                Next::End => return self.flush(&mut batch, shared),
            }
        }
    }

    fn next(&self, shared: &Shared) -> Next {
        let mut half = shared.lock();
        let mut state = lock(&self.state);
        let Some(answers) = half.outgoing_answers() else { return Next::End };
        if !answers.has_room() {
            return Next::Nothing;
        }
        if state.questions.is_empty() {
            let more = shared.update(&mut half, |half| half.outgoing_answers()?.poll_questions());
            if let Some((first, questions)) = more {
                state.questions.extend((first..).zip(questions));
                // Of the other threads some may rest.
                shared.hint();
            }
        }
        if let Some((number, question)) = state.questions.pop_front() {
            state.open += 1;
            return Next::Question(number, question);
        }
        let is_last = half.outgoing_answers().is_some_and(|it| it.has_all_questions());
        match is_last && (state.ended || state.open == 0) {
            true if state.ended => Next::End,
            true => {
                state.ended = true;
                let (listed, unlisted) = (state.listed, state.unlisted);
                drop((state, half));
                let end = AnswerMessage::End { listed, unlisted };
                push(shared, end);
                shared.nudge();
                Next::End
            }
            false => Next::Nothing,
        }
    }

    /// Sends what was found.
    fn flush(&self, batch: &mut Batch, shared: &Shared) {
        let Batch { answers, ended, .. } = std::mem::take(batch);
        if answers.is_empty() {
            return;
        }
        lock(&self.state).listed += answers.len() as u64;
        let answers = AnswerMessage::Hashed(answers);
        push(shared, answers);
        lock(&self.state).open -= ended;
    }

    /// Lists all below `path`, while the client reads.
    fn list(&self, path: &EntryPath, shared: &Shared) {
        let mut answers = match self.hashing.list(path, self.memory) {
            Ok(listing) => Answers::of(listing),
            Err(error) => {
                let end = EntryEnd::new(EntryCode::OutOfResources, &error.to_string());
                push(shared, AnswerMessage::Unlisted { path: path.as_bytes().to_vec(), end });
                let mut state = lock(&self.state);
                state.unlisted += 1;
                state.open -= 1;
                return;
            }
        };
        while await_room(shared) {
            let answer = answers.next();
            if let AnswerMessage::End { listed, unlisted } = answer {
                let mut state = lock(&self.state);
                state.listed += listed;
                state.unlisted += unlisted;
                state.open -= 1;
                return;
            }
            push(shared, answer);
        }
    }
}

/// Answers of a thread that go together.
#[derive(Default)]
struct Batch {
    answers: Vec<Hashed>,
    /// Questions among them that are over.
    ended: u64,
    first: Option<Instant>,
}

impl Batch {
    fn push(&mut self, hashed: Hashed) {
        let outcome = match hashed.outcome {
            HashOutcome::Failed(end) => HashOutcome::Failed(at_server(end)),
            outcome => outcome,
        };
        let hashed = Hashed { outcome, ..hashed };
        self.ended += u64::from(!matches!(hashed.outcome, HashOutcome::Begun { .. }));
        self.answers.push(hashed);
        self.first.get_or_insert_with(clock::now);
    }

    fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    fn is_due(&self) -> bool {
        let is_old = |at| clock::now() - at > PATIENCE;
        self.answers.len() >= BATCH || self.first.is_some_and(is_old)
    }
}

/// Answers of one message.
const BATCH: usize = 64;
