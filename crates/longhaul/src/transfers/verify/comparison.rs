//! A list of hashes beside what is found.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use longhaul_files::HashList;
use longhaul_units::{shown, shown_path};
use longhaul_wire::{
    AnswerMessage, EntryCode, EntryPath, HashOutcome, Hashed, ListedKind, Question, VerifyRequest,
};

use super::{VerifyOptions, VerifyReport};
use crate::api::Snapshot;
use crate::connection::shared::ThreadError;
use crate::transfers::asking::UNASKED;

/// Takes what is not as in the list, on a thread of the library. Where it fails the comparison ends.
pub type FindingSink = Arc<dyn Fn(&Finding) -> io::Result<()> + Send + Sync>;

/// Something that is not as in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Kind.
    pub kind: FindingKind,
    /// Path below the place.
    pub path: Vec<u8>,
    /// Reason, of [`FindingKind::Failed`].
    pub reason: String,
}

/// Kind of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// The list has it, the place does not.
    Missing,
    /// It has another hash.
    Changed,
    /// The list does not have it.
    Extra,
    /// It could not be looked at.
    Failed,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = shown_path(&self.path);
        match self.kind {
            FindingKind::Missing => write!(f, "missing  {path}"),
            FindingKind::Changed => write!(f, "changed  {path}"),
            FindingKind::Extra => write!(f, "extra    {path}"),
            FindingKind::Failed => write!(f, "failed   {path}: {}", self.reason),
        }
    }
}

pub(super) struct Comparison {
    hashes: Arc<HashList>,
    ignore_extra: bool,
    sink: FindingSink,
    /// By line: true once it was compared.
    settled: Vec<bool>,
    /// Lines that were asked over this connection, in order, and the next one to look at.
    asked: Vec<u32>,
    next: usize,
    /// Directories that are still to be listed; nothing before all lines were asked.
    tops: Option<Vec<EntryPath>>,
    /// The last question was asked.
    asked_all: bool,
    /// Bytes so far of files that are being hashed, by question.
    begun: BTreeMap<u64, u64>,
    /// Something beside the lines was found.
    looked_beside: bool,
    report: VerifyReport,
}

impl Comparison {
    pub fn new(options: &VerifyOptions) -> Self {
        let VerifyOptions { hashes, ignore_extra, sink, .. } = options;
        Self {
            hashes: hashes.clone(),
            ignore_extra: *ignore_extra,
            sink: sink.clone(),
            settled: vec![false; hashes.len()],
            asked: Vec::new(),
            next: 0,
            tops: None,
            asked_all: false,
            begun: BTreeMap::new(),
            looked_beside: false,
            report: VerifyReport::default(),
        }
    }

    /// It is asked from now on, by another connection than before: what is not settled.
    pub fn begin(&mut self) {
        self.asked.clear();
        self.begun.clear();
        (self.next, self.tops, self.asked_all) = (0, None, false);
    }

    /// More questions, of about so many bytes; nothing behind the last.
    pub fn next_questions(&mut self, most: usize) -> Option<VerifyRequest> {
        if self.asked_all {
            return None;
        }
        let (mut questions, mut len) = (Vec::new(), 0);
        while len < most && self.next < self.settled.len() {
            if !self.settled[self.next] {
                let question = Question::Hash(path(self.hashes.name(self.next)));
                len += question.encoded_len();
                questions.push(question);
                self.asked.push(self.next as u32);
            }
            self.next += 1;
        }
        if self.next == self.settled.len() {
            let hashes = &self.hashes;
            let all = || hashes.tops().into_iter().map(path).collect();
            let tops =
                self.tops.get_or_insert_with(|| if self.ignore_extra { vec![] } else { all() });
            while len < most
                && let Some(top) = tops.pop()
            {
                let question = Question::List(top);
                len += question.encoded_len();
                questions.push(question);
            }
            self.asked_all = tops.is_empty();
        }
        Some(VerifyRequest { path: Vec::new(), questions, is_last: self.asked_all })
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// Nobody asked that, or the user's program does not take it.
    pub fn take(&mut self, answer: AnswerMessage) -> Result<(), ThreadError> {
        match answer {
            AnswerMessage::Hashed(all) => all.into_iter().try_for_each(|it| self.take_hash(it))?,
            AnswerMessage::Listed(all) => {
                let files = all.into_iter().filter(|it| it.kind == ListedKind::File);
                for listed in files {
                    if !self.hashes.contains(listed.path.as_bytes()) {
                        self.looked_beside = true;
                        self.report.extra += 1;
                        self.found(FindingKind::Extra, listed.path.as_bytes(), "")?;
                    }
                }
            }
            AnswerMessage::Unlisted { path, end } => {
                self.looked_beside = true;
                self.report.failed += 1;
                self.found(FindingKind::Failed, &path, &end.reason)?;
            }
            AnswerMessage::Left(_) => return Err(ThreadError::Misanswered(UNASKED)),
            AnswerMessage::End { .. } => {}
        }
        Ok(())
    }

    fn take_hash(&mut self, Hashed { question, outcome }: Hashed) -> Result<(), ThreadError> {
        let line = usize::try_from(question).ok().and_then(|number| self.asked.get(number));
        let Some(line) = line.map(|line| *line as usize) else {
            return Err(ThreadError::Misanswered("answers a question that was not asked"));
        };
        if self.settled[line] {
            return Err(ThreadError::Misanswered("answers one question twice"));
        }
        if let HashOutcome::Begun { bytes } = outcome {
            self.begun.insert(question, bytes);
            return Ok(());
        }
        self.settled[line] = true;
        self.begun.remove(&question);
        let hashes = self.hashes.clone();
        let name = hashes.name(line);
        match outcome {
            HashOutcome::Is { size, hash } => {
                self.report.bytes += size;
                if hash == *hashes.hash(line) {
                    self.report.files += 1;
                    return Ok(());
                }
                self.report.changed += 1;
                self.found(FindingKind::Changed, name, "")
            }
            HashOutcome::Failed(end) if end.code == EntryCode::NotFound => {
                self.report.missing += 1;
                self.found(FindingKind::Missing, name, "")
            }
            HashOutcome::Failed(end) => {
                self.report.failed += 1;
                self.found(FindingKind::Failed, name, &end.reason)
            }
            HashOutcome::Begun { .. } => Ok(()),
        }
    }

    fn found(&self, kind: FindingKind, path: &[u8], reason: &str) -> Result<(), ThreadError> {
        let reason = shown(reason);
        let finding = Finding { kind, path: path.to_vec(), reason };
        (self.sink)(&finding).map_err(ThreadError::Output)
    }

    /// True once each line was compared.
    pub fn is_whole(&self) -> bool {
        !self.settled.contains(&false)
    }

    /// True if something beside the lines was found, which another connection would find once more.
    pub fn has_looked_beside(&self) -> bool {
        self.looked_beside
    }

    pub fn report(&self) -> VerifyReport {
        self.report.clone()
    }

    pub fn snapshot(&self) -> Snapshot {
        let VerifyReport { files, changed, missing, bytes, .. } = self.report;
        Snapshot {
            bytes_done: bytes + self.begun.values().sum::<u64>(),
            files_done: files + changed + missing,
            files_total: Some(self.settled.len() as u64),
            ..Snapshot::default()
        }
    }
}

/// A name of a list, or a component of one.
fn path(name: &[u8]) -> EntryPath {
    EntryPath::new(name.to_vec()).unwrap_or_default()
}
