//! BLAKE3 of files below a directory, by as many threads as like to help.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use longhaul_objects::hash::{group_chaining_value, group_count, group_len};
use longhaul_objects::limits::{GROUP_SIZE, OBJECT_MAX};
use longhaul_objects::{FileIdentity, GroupTree, identity};
use longhaul_sys::clock;
use longhaul_sys::files::{ConfinedDir, read_up_to_at};
use longhaul_sys::sync::lock;
use longhaul_units::{Bytes, Duration, Instant};
use longhaul_wire::{EntryCode, EntryEnd, EntryPath, HashOutcome, Hashed};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;

use crate::explain;
use crate::identify::{as_path, is_hidden_name};
use crate::listing::Listing;
use crate::place::{beneath, open_at, split};
use crate::source::file_identity;

/// A directory whose files are hashed. No link below it is followed, and nothing leads out.
///
/// A thread [begins](Self::begin) with a file; where that is large, all threads [help](Self::help) with it
/// before they begin with others, so no more files are open than threads.
#[derive(Debug)]
pub struct Hashing {
    top: ConfinedDir,
    large: Mutex<Vec<Arc<LargeFile>>>,
}

/// A file that several threads hash.
#[derive(Debug)]
struct LargeFile {
    question: u64,
    file: File,
    identity: FileIdentity,
    state: Mutex<LargeState>,
}

#[derive(Debug)]
struct LargeState {
    /// The first group that no thread has taken.
    next: u32,
    tree: GroupTree,
    /// Groups that were hashed.
    hashed: u32,
    /// Its state was last reported then.
    reported: Instant,
    failed: bool,
}

impl Hashing {
    /// Of files below `path`, a directory below `root`: resolved as a source of a copy is.
    ///
    /// # Errors
    /// It is not there, or no directory: in words for people.
    pub fn open(root: &ConfinedDir, path: &[u8]) -> Result<Self, EntryEnd> {
        let top = root.open_dir(as_path(path));
        let top = top.map_err(|error| explain::at_directory(&error.into()))?;
        Ok(Self { top, large: Mutex::default() })
    }

    /// Names of all that is below its directory `path`; those of directories that are still to be read take
    /// at most `memory`.
    ///
    /// # Errors
    /// Descriptors are short.
    pub fn list(&self, path: &EntryPath, memory: Bytes) -> io::Result<Listing> {
        Ok(Listing::within(self.top.try_clone()?, path.as_bytes().to_vec(), memory))
    }

    /// Hashes the file `path` for question number `question`, in `buffer`; nothing where all threads are to
    /// help.
    pub fn begin(&self, question: u64, path: &EntryPath, buffer: &mut Vec<u8>) -> Option<Hashed> {
        let outcome = match self.open_file(path.as_bytes()) {
            Ok((file, identity)) if identity.size <= ALONE_MOST => {
                hash_alone(&file, &identity, buffer)
            }
            Ok((file, identity)) => {
                let tree = GroupTree::new(identity.size);
                let reported = clock::now();
                let state = LargeState { next: 0, tree, hashed: 0, reported, failed: false };
                let state = Mutex::new(state);
                lock(&self.large).push(Arc::new(LargeFile { question, file, identity, state }));
                return None;
            }
            Err(end) => Err(end),
        };
        Some(Hashed { question, outcome: outcome.unwrap_or_else(HashOutcome::Failed) })
    }

    /// True if a span of a large file waits for a thread.
    pub fn wants_help(&self) -> bool {
        !lock(&self.large).is_empty()
    }

    /// Hashes a span of a large file, if one waits; with what there is to say of it.
    pub fn help(&self, buffer: &mut Vec<u8>) -> Option<Option<Hashed>> {
        let (large, span) = {
            let mut all = lock(&self.large);
            let large = Arc::clone(all.first()?);
            let mut state = lock(&large.state);
            let groups = group_count(large.identity.size);
            let span = state.next..groups.min(state.next.saturating_add(SPAN));
            state.next = span.end;
            if span.end == groups || state.failed {
                all.remove(0);
            }
            drop(state);
            (large, span)
        };
        let hashed = large.hash(span, buffer);
        if hashed.as_ref().is_some_and(|it| matches!(it.outcome, HashOutcome::Failed(_))) {
            lock(&self.large).retain(|other| !Arc::ptr_eq(other, &large));
        }
        Some(hashed)
    }

    fn open_file(&self, path: &[u8]) -> Result<(File, FileIdentity), EntryEnd> {
        if path.split(|byte| *byte == b'/').any(is_hidden_name) || path.is_empty() {
            return Err(missing());
        }
        let (parent, name) = split(path);
        let opened = beneath(&self.top, parent, OFlags::PATH)
            .and_then(|parent| open_at(parent, name, READ, Mode::empty()))
            .and_then(|file| Ok((fstat(&file)?, file)));
        let (stat, file) = opened.map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => missing(),
            error => explain::in_place(&error.into()),
        })?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if stat.st_size as u64 <= OBJECT_MAX => {
                Ok((file.into(), file_identity(&stat)))
            }
            _ => Err(EntryEnd::new(EntryCode::Failed, "it is no regular file")),
        }
    }
}

impl LargeFile {
    fn hash(&self, span: std::ops::Range<u32>, buffer: &mut Vec<u8>) -> Option<Hashed> {
        let size = self.identity.size;
        let mut values = Vec::with_capacity(span.len());
        let mut read = Ok(());
        for group in span.clone() {
            read = fill(&self.file, buffer, group_len(size, group), u64::from(group) * GROUP_SIZE);
            if read.is_err() {
                break;
            }
            values.push(group_chaining_value(buffer, group, false));
        }
        let read = read.and_then(|()| still_is(&self.file, &self.identity));
        let mut state = lock(&self.state);
        if state.failed {
            return None;
        }
        let answer = |outcome| Some(Hashed { question: self.question, outcome });
        if let Err(end) = read {
            state.failed = true;
            return answer(HashOutcome::Failed(end));
        }
        state.hashed += span.len() as u32;
        for (group, value) in span.zip(values) {
            state.tree.insert(group, value);
        }
        if let Some(hash) = state.tree.root() {
            return answer(HashOutcome::Is { size, hash: *hash });
        }
        let now = clock::now();
        if now - state.reported < REPORT {
            return None;
        }
        state.reported = now;
        answer(HashOutcome::Begun { bytes: u64::from(state.hashed) * GROUP_SIZE })
    }
}

fn hash_alone(
    file: &File,
    identity: &FileIdentity,
    buffer: &mut Vec<u8>,
) -> Result<HashOutcome, EntryEnd> {
    let size = identity.size;
    let mut hasher = blake3::Hasher::new();
    for group in 0..group_count(size) {
        fill(file, buffer, group_len(size, group), u64::from(group) * GROUP_SIZE)?;
        hasher.update(buffer);
    }
    // Files of /proc say that they are empty.
    let beyond = file.read_at(&mut [0], size).map_err(|error| explain::at_source(&error))?;
    if beyond > 0 {
        return Err(EntryEnd::new(EntryCode::Changed, "it is longer than its size"));
    }
    still_is(file, identity)?;
    Ok(HashOutcome::Is { size, hash: *hasher.finalize().as_bytes() })
}

/// Reads `len` bytes from `offset` on into `buffer`, which holds nothing else then.
fn fill(file: &File, buffer: &mut Vec<u8>, len: u32, offset: u64) -> Result<(), EntryEnd> {
    buffer.resize(len as usize, 0);
    match read_up_to_at(file, buffer, offset) {
        Ok(read) if read == buffer.len() => Ok(()),
        Ok(_) => Err(EntryEnd::new(EntryCode::Changed, "it is shorter than its size")),
        Err(error) => Err(explain::at_source(&error)),
    }
}

fn still_is(file: &File, was: &FileIdentity) -> Result<(), EntryEnd> {
    let stat = fstat(file).map_err(|error| explain::at_source(&error.into()))?;
    match identity(&file_identity(&stat), None) == identity(was, None) {
        true => Ok(()),
        false => Err(EntryEnd::new(EntryCode::Changed, "it changed while it was hashed")),
    }
}

fn missing() -> EntryEnd {
    EntryEnd::new(EntryCode::NotFound, "no such file")
}

const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
/// Larger files are hashed by all threads.
const ALONE_MOST: u64 = 8 * GROUP_SIZE;
/// Groups that a thread hashes at a time.
const SPAN: u32 = 4;
/// From one report about a large file to the next.
const REPORT: Duration = Duration::from_millis(500);
