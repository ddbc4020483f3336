//! The side that receives: hashes and writes groups on threads of its own, and does what the
//! [`IncomingCopy`] says with the destination.

use std::fs::File;
use std::io;
use std::sync::Arc;

use longhaul_carriers::buffer::Buffer;
use longhaul_carriers::host_monitor::writers_in_short_turns;
use longhaul_connection::{ArrivedGroup, IncomingCopy, WholeGroup};
use longhaul_files::{Again, CopiedHashes, StorageError, Target};
use longhaul_objects::{Action, Verdict, hash};
use longhaul_sys::clock;
use longhaul_units::Duration;
use longhaul_wire::Entry;

use crate::connection::shared::{Half, Shared};
use crate::transfers::source::WORKERS;

/// Drives the [`IncomingCopy`] of a connection over a destination.
pub(crate) struct SinkDriver {
    tree: Target,
    /// Contents are hashed and compared.
    verify: bool,
    /// Of those whose hashes the user wants.
    hashes: Option<Arc<CopiedHashes>>,
}

/// What a thread does next.
enum Step {
    Group(ArrivedGroup<Buffer>),
    Action(Action),
}

/// Workers look again after this long, whatever they missed.
const PATIENCE: Duration = Duration::from_millis(100);

impl SinkDriver {
    /// A driver over `tree`.
    pub fn new(tree: impl Into<Target>, verify: bool) -> Self {
        Self { tree: tree.into(), verify, hashes: None }
    }

    /// Hashes of files go to `hashes`.
    pub fn hashing(self, hashes: Option<Arc<CopiedHashes>>) -> Self {
        Self { hashes, ..self }
    }

    /// Opens a file that was copied, to read it.
    pub fn reopen(&self, path: &[u8]) -> io::Result<File> {
        self.tree.reopen(path)
    }

    /// Starts its threads; they end when the transfer is stopped.
    pub fn start(self: &Arc<Self>, shared: &Arc<Shared>) -> io::Result<()> {
        (0..WORKERS).try_for_each(|_| {
            let sink = self.clone();
            shared.spawn("write", move |shared| {
                shared.note_remedies(writers_in_short_turns());
                Ok(sink.work(shared)?)
            })
        })
    }

    /// Verifies, writes and acts until the transfer is stopped. Any number of threads.
    ///
    /// # Errors
    /// The destination failed as a whole.
    pub fn work(&self, shared: &Shared) -> Result<(), StorageError> {
        // Turn and turn about: there may be much of either.
        let mut action_first = false;
        while let Some(step) = next_step(shared, action_first) {
            action_first = matches!(step, Step::Group(_));
            match step {
                Step::Group(group) => self.take_group(shared, group),
                Step::Action(action) => {
                    if let Some(hashes) = &self.hashes {
                        note_files(&action, hashes);
                    }
                    let answer = self.tree.perform(action)?;
                    shared.note(self.tree.notes());
                    shared.note_not_kept(self.tree.not_kept());
                    change(shared, |copy| {
                        copy.handle_answer(answer);
                        // The result may be due at once.
                        shared.note(self.tree.note_of_size(copy.stats().would_change.1));
                    });
                    shared.hint();
                }
            }
        }
        Ok(())
    }

    fn take_group(&self, shared: &Shared, arrived: ArrivedGroup<Buffer>) {
        let ArrivedGroup { whole: WholeGroup { object, group, len, buffer }, only } = arrived;
        let data = &buffer[..len as usize];
        let value = match self.verify {
            true => hash::group_chaining_value(data, group, only),
            false => hash::UNHASHED,
        };
        let verdict = change(shared, |copy| copy.handle_hashed(object, group, value));
        if let Some(Verdict::Write(task)) = verdict {
            let failed = self.tree.write(&task, data);
            if let Some(hashes) = &self.hashes {
                let pieces = task.pieces.iter().map(|piece| {
                    let bytes = &data[piece.group_offset as usize..][..piece.len as usize];
                    (&*piece.entry, piece.file_offset, bytes)
                });
                hashes.note_group(pieces, group, value, Again::Other);
            }
            drop(buffer);
            change(shared, |copy| copy.group_written(&task, &failed));
        }
    }

    /// Whether nothing of what arrives is kept.
    pub fn discards(&self) -> bool {
        self.tree.discards()
    }
}

/// Files that the copy puts in place, or leaves there.
fn note_files(action: &Action, hashes: &CopiedHashes) {
    let note = |entry: &Entry| hashes.note_file(entry);
    match action {
        Action::PrepareFile { file, .. } => note(&file.entry),
        Action::CheckPublished(files) => files.iter().for_each(|file| note(&file.entry)),
        Action::CompareExisting(files) => files.iter().for_each(|file| note(&file.entry)),
        Action::MendExisting(files) => {
            files.iter().for_each(|file| note(&file.entry));
        }
        Action::Publish(files) => files.iter().for_each(|file| note(&file.entry)),
        _ => {}
    }
}

/// Waits for something to do; `None` when the transfer is stopped.
fn next_step(shared: &Shared, action_first: bool) -> Option<Step> {
    let mut half = shared.lock();
    while !shared.is_stopped() {
        let step = shared.update(&mut half, |half| {
            let copy = half.incoming_copy()?;
            let mut action = || copy.poll_action(clock::now()).map(Step::Action);
            let first = if action_first { action() } else { None };
            first
                .or_else(|| copy.poll_arrived().map(Step::Group))
                .or_else(|| copy.poll_action(clock::now()).map(Step::Action))
        });
        if step.is_some() {
            return step;
        }
        half = shared.rest(half, PATIENCE);
    }
    None
}

/// Changes the state of the copy; others may have something to do then.
fn change<T>(shared: &Shared, change: impl FnOnce(&mut IncomingCopy<Buffer>) -> T) -> Option<T> {
    shared.change(|half: &mut Half| half.incoming_copy().map(change))
}

#[cfg(test)]
mod tests;
