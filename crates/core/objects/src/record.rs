//! The resume record: an append-only log of what is durable (docs/objects.md section "Resume
//! record").
//!
//! Every entry carries a checksum over itself and the checksum before it. Reading stops at the
//! first that does not hold, so a torn or lost tail, or garbage behind an older end, claims
//! nothing. What an entry claims was durable before the entry was written.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::entry::first_16;
use crate::entry::{EntryId, EntryKey, TempName};
use crate::hash::ChainingValue;
use crate::tags::Tag;

/// Way in which a run makes its claims durable, as the record says it.
///
/// A run that never syncs can be trusted only until the operating system restarts, so it
/// names the boot it ran in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Data is synced at checkpoints, before it is claimed and before it is published.
    End,
    /// Nothing is synced.
    Never {
        /// Identity of the running boot of the operating system, not all zero.
        boot: [u8; 16],
    },
}

/// Stamp by which the driver recognizes an unpublished file ([`crate::action::Action::StampFiles`]): it has
/// the same stamp for as long as nobody writes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub [u8; 16]);

/// State that an earlier run left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResumeState {
    len: u64,
    checksum: [u8; 16],
    /// Claims by entry; values by group, ascending.
    partial: BTreeMap<EntryKey, PartialFile>,
    /// The same of large files that are whole and durable under their names.
    whole: BTreeMap<EntryKey, PartialFile>,
    /// Small ones that are, ascending.
    published: Vec<EntryKey>,
    /// Those that were so in directories that waited for theirs, ascending.
    kept: Vec<(EntryKey, Stamp)>,
    /// Groups of small files, by what they consist of.
    bundled: BTreeMap<[u8; 16], (ChainingValue, Option<Tag>)>,
    /// Numbers of files that were published and kept when these were found not to be what the
    /// record says.
    unpublished: BTreeMap<EntryKey, (usize, usize)>,
}

/// A group of an earlier run: its number, chaining value and tag.
pub(crate) type Recorded = (u32, ChainingValue, Option<Tag>);

/// Groups of a large file that are durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartialFile {
    pub(crate) temp: TempName,
    /// Ascending.
    pub(crate) groups: Vec<Recorded>,
    /// As the file was when the last of them was recorded, if that is known.
    pub(crate) stamp: Option<Stamp>,
}

/// Reads a record.
///
/// `transfer` identifies the request (sources and destination) as the driver defines it; the
/// record of another is empty. `fsync` is that of the run that begins: claims of a run that did
/// not sync are believed only in the same boot, and by a run that does not sync either.
pub fn replay(bytes: &[u8], transfer: &[u8; 16], fsync: Fsync) -> ResumeState {
    let mut state = ResumeState::default();
    let Some((header, mut rest)) = bytes.split_at_checked(HEADER_LEN) else {
        return state;
    };
    if header != header_bytes(transfer) {
        return state;
    }
    state.len = HEADER_LEN as u64;
    state.checksum = header_checksum(transfer);
    // Claims before the first RUN entry would have no durability; there are none.
    let mut trusted = false;
    while let Some((body, checksum, after)) = split_entry(rest, &state.checksum) {
        let Some(()) = state.apply(body, fsync, &mut trusted) else {
            break;
        };
        state.len += (rest.len() - after.len()) as u64;
        state.checksum = checksum;
        rest = after;
    }
    state.settle();
    state
}

/// The sources of a copy, for people, with zero bytes between them, as far as the beginning of its record names them:
/// [`BEGINNING`] bytes hold them.
pub fn sources(beginning: &[u8]) -> Option<&[u8]> {
    let (header, mut rest) = beginning.split_at_checked(HEADER_LEN)?;
    let transfer = header.strip_prefix(MAGIC)?.try_into().ok()?;
    let mut checksum = header_checksum(transfer);
    while let Some((body, next, after)) = split_entry(rest, &checksum) {
        if let Some((&SOURCES, sources)) = body.split_first() {
            return Some(sources).filter(|sources| sources.len() <= SOURCES_MAX);
        }
        (checksum, rest) = (next, after);
    }
    None
}

/// Groups of each unpublished large file that a record vouches for in this boot, ascending: how far a copy came.
pub fn arrived(bytes: &[u8], boot: [u8; 16]) -> BTreeMap<TempName, Vec<u32>> {
    let transfer = bytes.get(MAGIC.len()..HEADER_LEN).and_then(|it| it.try_into().ok());
    let state = transfer.map(|transfer| replay(bytes, transfer, Fsync::Never { boot }));
    let files = state.unwrap_or_default().partial.into_values();
    files.map(|file| (file.temp, file.groups.iter().map(|(group, ..)| *group).collect())).collect()
}

impl ResumeState {
    /// True if nothing is claimed.
    pub fn is_empty(&self) -> bool {
        self.groups() == 0 && self.published() == 0 && self.kept.is_empty()
    }

    /// Valid bytes of the record; the next entries are written there, over whatever follows.
    pub fn record_len(&self) -> u64 {
        self.len
    }

    /// The unpublished files that claims are about. Any other unpublished file of the transfer
    /// is of no use and can be removed before the run.
    pub fn temps(&self) -> impl Iterator<Item = TempName> + '_ {
        self.partial.values().map(|file| file.temp)
    }

    /// Durable groups in unpublished files.
    pub fn groups(&self) -> usize {
        self.partial.values().map(|file| file.groups.len()).sum()
    }

    /// Number of published files.
    pub fn published(&self) -> usize {
        self.published.len() + self.whole.len()
    }

    /// Number of whole files in directories that waited for their names.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn is_published(&self, key: &EntryKey) -> bool {
        self.published.binary_search(key).is_ok()
    }

    pub(crate) fn stamp_of_kept(&self, key: &EntryKey) -> Option<Stamp> {
        let found = self.kept.binary_search_by_key(key, |(key, _)| *key).ok()?;
        self.kept.get(found).map(|(_, stamp)| *stamp)
    }

    /// The groups of a large file that is published.
    pub(crate) fn take_whole(&mut self, key: &EntryKey) -> Option<PartialFile> {
        self.whole.remove(key)
    }

    /// Value and tag of the group of small files that consists of this.
    pub(crate) fn bundled(&self, contents: &[u8; 32]) -> Option<(ChainingValue, Option<Tag>)> {
        self.bundled.get(&short(contents)).copied()
    }

    pub(crate) fn take_partial(&mut self, key: &EntryKey) -> Option<PartialFile> {
        self.partial.remove(key)
    }

    fn apply(&mut self, body: &[u8], fsync: Fsync, trusted: &mut bool) -> Option<()> {
        let (kind, body) = body.split_first()?;
        let is_trusted = *trusted;
        match *kind {
            RUN => {
                let run_boot: &[u8; 16] = body.try_into().ok()?;
                *trusted = *run_boot == [0; 16] || *run_boot == boot_of(fsync);
            }
            GROUPS | TAGGED => self.apply_groups(body, *kind == TAGGED, is_trusted)?,
            VOID => self.apply_void(body)?,
            PUBLISHED => {
                for [key] in words(body)?.iter().filter(|_| is_trusted) {
                    match self.partial.remove(&EntryKey(*key)) {
                        Some(file) => drop(self.whole.insert(EntryKey(*key), file)),
                        None => self.published.push(EntryKey(*key)),
                    }
                }
            }
            STAMPS => {
                for [key, temp, stamp] in words(body)?.iter().filter(|_| is_trusted) {
                    if let Some(file) = self.file(key, temp) {
                        file.stamp = Some(Stamp(*stamp));
                    }
                }
            }
            KEPT => {
                let kept = words(body)?.iter().filter(|_| is_trusted);
                self.kept.extend(kept.map(|[key, stamp]| (EntryKey(*key), Stamp(*stamp))));
            }
            BUNDLED => {
                for [contents, a, b, tag] in words(body)?.iter().filter(|_| is_trusted) {
                    let value = [*a, *b].as_flattened().try_into().ok()?;
                    let tag = Some(*tag).filter(|tag| *tag != NO_TAG);
                    self.bundled.insert(*contents, (value, tag));
                }
            }
            UNPUBLISHED => {
                for [key] in words(body)? {
                    self.whole.remove(&EntryKey(*key));
                    let since = (self.published.len(), self.kept.len());
                    self.unpublished.insert(EntryKey(*key), since);
                }
            }
            // For people: nothing is claimed.
            SOURCES => {}
            _ => return None,
        }
        Some(())
    }

    /// Claims about groups in a row of an unpublished file.
    fn apply_groups(&mut self, body: &[u8], tagged: bool, trusted: bool) -> Option<()> {
        let (key, body) = body.split_first_chunk::<16>()?;
        let (temp, body) = body.split_first_chunk::<16>()?;
        let (first, values) = body.split_first_chunk::<4>()?;
        let values = read_values(values, tagged)?;
        let first = u32::from_be_bytes(*first);
        first.checked_add(u32::try_from(values.len()).ok()?)?;
        let temp = TempName(*temp);
        let new = || PartialFile { temp, groups: Vec::new(), stamp: None };
        let file = self.partial.entry(EntryKey(*key)).or_insert_with(new);
        // Claims about another file say that the older one is gone, trusted or not.
        if file.temp != temp {
            *file = new();
        }
        // Their writer wrote to the file.
        file.stamp = None;
        if trusted {
            let groups = (first..).zip(values);
            file.groups.extend(groups.map(|(group, (value, tag))| (group, value, tag)));
        }
        Some(())
    }

    /// Groups of an unpublished file that are not what was claimed.
    fn apply_void(&mut self, body: &[u8]) -> Option<()> {
        let (key, body) = body.split_first_chunk::<16>()?;
        let (temp, groups) = body.split_first_chunk::<16>()?;
        let (groups, []) = groups.as_chunks::<4>() else {
            return None;
        };
        if let Some(file) = self.file(key, temp) {
            let void: BTreeSet<u32> =
                groups.iter().map(|group| u32::from_be_bytes(*group)).collect();
            file.groups.retain(|(group, ..)| !void.contains(group));
            file.stamp = None;
        }
        Some(())
    }

    /// The unpublished file that the latest claims about `key` are about, if that is `temp`.
    fn file(&mut self, key: &[u8; 16], temp: &[u8; 16]) -> Option<&mut PartialFile> {
        self.partial.get_mut(&EntryKey(*key)).filter(|file| file.temp == TempName(*temp))
    }

    fn settle(&mut self) {
        let void = core::mem::take(&mut self.unpublished);
        if !void.is_empty() {
            let since = |key: &EntryKey| void.get(key).copied().unwrap_or_default();
            let mut at = 0..;
            self.published.retain(|key| at.next() >= Some(since(key).0));
            let mut at = 0..;
            self.kept.retain(|(key, _)| at.next() >= Some(since(key).1));
        }
        self.published.sort_unstable();
        self.published.dedup();
        // The last word about each holds: reversed, then stable.
        self.kept.reverse();
        self.kept.sort_by_key(|(key, _)| *key);
        self.kept.dedup_by_key(|(key, _)| *key);
        self.partial.retain(|_, file| !file.groups.is_empty());
        for file in self.partial.values_mut().chain(self.whole.values_mut()) {
            // The last claim about a group is the one that holds: reversed, then stable.
            file.groups.reverse();
            file.groups.sort_by_key(|(group, ..)| *group);
            file.groups.dedup_by_key(|(group, ..)| *group);
        }
    }
}

/// Writes the entries of one run behind those that are there.
#[derive(Clone, Debug)]
pub(crate) struct RecordWriter {
    len: u64,
    checksum: [u8; 16],
    transfer: [u8; 16],
    boot: [u8; 16],
    sources: Vec<u8>,
    begun: bool,
}

impl RecordWriter {
    pub(crate) fn new(state: &ResumeState, transfer: [u8; 16], fsync: Fsync) -> Self {
        let boot = boot_of(fsync);
        let ResumeState { len, checksum, .. } = *state;
        Self { len, checksum, transfer, boot, sources: Vec::new(), begun: false }
    }

    /// With the sources, for people: the first ones, whole, of [`SOURCES_MAX`] bytes; of one that is longer its beginning.
    pub(crate) fn of_sources(self, mut sources: Vec<u8>) -> Self {
        if sources.len() > SOURCES_MAX {
            let end = sources[..=SOURCES_MAX].iter().rposition(|byte| *byte == 0);
            sources.truncate(end.unwrap_or(SOURCES_MAX));
        }
        Self { sources, ..self }
    }

    /// The bytes that say `news`, and the offset to write them at.
    pub(crate) fn append(&mut self, news: &News) -> (u64, Vec<u8>) {
        let mut bytes = Vec::new();
        if self.len == 0 {
            bytes.extend_from_slice(&header_bytes(&self.transfer));
            self.checksum = header_checksum(&self.transfer);
        }
        if !self.begun {
            self.begun = true;
            let boot = self.boot;
            self.entry(&mut bytes, RUN, |body| body.extend_from_slice(&boot));
            let sources = core::mem::take(&mut self.sources);
            if !sources.is_empty() {
                self.entry(&mut bytes, SOURCES, |body| body.extend_from_slice(&sources));
            }
        }
        // The first, since a group that was found wrong may be right again; and no stamp vouches for
        // what is void.
        for (key, temp, groups) in &news.void {
            self.entry(&mut bytes, VOID, |body| {
                body.extend_from_slice(&key.0);
                body.extend_from_slice(&temp.0);
                groups.iter().for_each(|group| body.extend_from_slice(&group.to_be_bytes()));
            });
        }
        let words = |key: &EntryKey| [key.0];
        self.entries(&mut bytes, UNPUBLISHED, &news.unpublished, words);
        self.append_claims(&mut bytes, &news.claims);
        self.entries(&mut bytes, BUNDLED, &news.bundled, |group| {
            let [a, b] = halves(&group.value);
            [short(&group.contents), a, b, group.tag.unwrap_or(NO_TAG)]
        });
        self.entries(&mut bytes, PUBLISHED, &news.published, words);
        self.entries(&mut bytes, STAMPS, &news.stamps, |(key, temp, stamp)| {
            [key.0, temp.0, stamp.0]
        });
        self.entries(&mut bytes, KEPT, &news.kept, |(key, stamp)| [key.0, stamp.0]);
        let offset = self.len;
        self.len += bytes.len() as u64;
        (offset, bytes)
    }

    /// One entry for the groups of a file that follow each other.
    fn append_claims(&mut self, bytes: &mut Vec<u8>, claims: &[Claim]) {
        let file = |claim: &Claim| (claim.key, claim.temp, claim.tag.is_some());
        let follows = |a: &Claim, b: &Claim| file(a) == file(b) && a.group + 1 == b.group;
        for run in claims.chunk_by(follows) {
            let kind = if run[0].tag.is_some() { TAGGED } else { GROUPS };
            self.entry(bytes, kind, |body| {
                body.extend_from_slice(&run[0].key.0);
                body.extend_from_slice(&run[0].temp.0);
                body.extend_from_slice(&run[0].group.to_be_bytes());
                for claim in run {
                    body.extend_from_slice(&claim.value);
                    body.extend_from_slice(claim.tag.as_ref().map_or(&[], |tag| &tag[..]));
                }
            });
        }
    }

    /// Entries of a kind that has so many words for each of `all`.
    fn entries<T, const N: usize>(
        &mut self,
        bytes: &mut Vec<u8>,
        kind: u8,
        all: &[T],
        words: impl Fn(&T) -> [[u8; 16]; N],
    ) {
        for some in all.chunks(KEYS_MAX) {
            self.entry(bytes, kind, |body| {
                some.iter().for_each(|one| body.extend_from_slice(words(one).as_flattened()));
            });
        }
    }

    fn entry(&mut self, bytes: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        let start = bytes.len();
        bytes.extend_from_slice(&[0, 0, 0, 0, kind]);
        body(bytes);
        let len = (bytes.len() - start - 4) as u32;
        bytes[start..start + 4].copy_from_slice(&len.to_be_bytes());
        self.checksum = entry_checksum(&self.checksum, &bytes[start..]);
        bytes.extend_from_slice(&self.checksum);
    }
}

/// Changes since the last entries.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Groups that were recorded and are not so any more.
    pub(crate) void: Vec<Void>,
    /// Entries that were recorded as published, or kept, and are not what was copied.
    pub(crate) unpublished: Vec<EntryKey>,
    /// Sorted: file, group, value.
    pub(crate) claims: Vec<Claim>,
    pub(crate) bundled: Vec<Bundled>,
    pub(crate) published: Vec<EntryKey>,
    /// Of the files that claims are about.
    pub(crate) stamps: Vec<(EntryKey, TempName, Stamp)>,
    pub(crate) kept: Vec<(EntryKey, Stamp)>,
}

/// Groups of a file.
pub(crate) type Void = (EntryKey, TempName, Vec<u32>);

/// A group of a large file that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    pub(crate) id: EntryId,
    pub(crate) key: EntryKey,
    pub(crate) temp: TempName,
    pub(crate) group: u32,
    pub(crate) value: ChainingValue,
    pub(crate) tag: Option<Tag>,
}

/// A group of small files that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bundled {
    /// Digest of its contents.
    pub(crate) contents: [u8; 32],
    pub(crate) value: ChainingValue,
    pub(crate) tag: Option<Tag>,
}

/// As much of what a group consists of as is recorded.
fn short(contents: &[u8; 32]) -> [u8; 16] {
    halves(contents)[0]
}

fn halves(bytes: &[u8; 32]) -> [[u8; 16]; 2] {
    let mut halves = [[0; 16]; 2];
    halves.as_flattened_mut().copy_from_slice(bytes);
    halves
}

/// The words of an entry, so many for each thing that it is about.
fn words<const N: usize>(body: &[u8]) -> Option<&[[[u8; 16]; N]]> {
    let (words, []) = body.as_chunks::<16>() else { return None };
    let (things, []) = words.as_chunks::<N>() else { return None };
    Some(things)
}

/// The chaining values of an entry, each with its tag where they are `tagged`.
fn read_values(bytes: &[u8], tagged: bool) -> Option<Vec<(ChainingValue, Option<Tag>)>> {
    let size = if tagged { 48 } else { 32 };
    let read = |one: &[u8]| {
        let (value, tag) = one.split_first_chunk::<32>()?;
        Some((*value, tag.first_chunk().copied()))
    };
    bytes.len().is_multiple_of(size).then(|| bytes.chunks(size).map_while(read).collect())
}

/// Boot in a RUN entry: zeros for a run that syncs.
fn boot_of(fsync: Fsync) -> [u8; 16] {
    match fsync {
        Fsync::End => [0; 16],
        Fsync::Never { boot } => boot,
    }
}

/// The body of the first entry of `bytes`, its checksum, and what follows it.
fn split_entry<'a>(bytes: &'a [u8], before: &[u8; 16]) -> Option<(&'a [u8], [u8; 16], &'a [u8])> {
    let (len, _) = bytes.split_first_chunk::<4>()?;
    let end = usize::try_from(u32::from_be_bytes(*len)).ok()?.checked_add(4)?;
    let (entry, rest) = bytes.split_at_checked(end)?;
    let (checksum, rest) = rest.split_first_chunk::<16>()?;
    let body = entry.get(4..)?;
    (entry_checksum(before, entry) == *checksum).then_some((body, *checksum, rest))
}

fn header_bytes(transfer: &[u8; 16]) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(MAGIC);
    header[8..].copy_from_slice(transfer);
    header
}

fn header_checksum(transfer: &[u8; 16]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header_bytes(transfer));
    first_16(&hasher)
}

fn entry_checksum(before: &[u8; 16], entry: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before);
    hasher.update(entry);
    first_16(&hasher)
}

/// "LHRECORD" without vowels, and the version.
const MAGIC: &[u8; 8] = b"LHRCRD\x00\x01";
const HEADER_LEN: usize = 24;

const RUN: u8 = 1;
const GROUPS: u8 = 2;
const PUBLISHED: u8 = 3;
const VOID: u8 = 4;
const STAMPS: u8 = 5;
const KEPT: u8 = 6;
const TAGGED: u8 = 7;
const BUNDLED: u8 = 8;
const UNPUBLISHED: u8 = 9;
const SOURCES: u8 = 10;

/// Bytes of a record that hold its header, and the sources behind the first entry of its first run.
pub const BEGINNING: usize = 2048;
/// Bytes of the sources in a record.
pub const SOURCES_MAX: usize = 1024;

/// Stands for a tag where there is none.
const NO_TAG: Tag = [0; 16];

/// Keys in one PUBLISHED entry, so that a torn write loses few.
const KEYS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const TRANSFER: [u8; 16] = [9; 16];
    const NEVER: Fsync = Fsync::Never { boot: [5; 16] };

    fn claim(file: u8, group: u32) -> Claim {
        Claim {
            id: EntryId(file.into()),
            key: EntryKey([file; 16]),
            temp: TempName([file ^ 0xf0; 16]),
            group,
            value: [group as u8; 32],
            tag: None,
        }
    }

    fn news(claims: Vec<Claim>, published: &[EntryKey]) -> News {
        News { claims, published: published.to_vec(), ..News::default() }
    }

    /// A record of several appends; the lengths after each.
    fn written(fsync: Fsync) -> (Vec<u8>, Vec<usize>) {
        let mut writer = RecordWriter::new(&ResumeState::default(), TRANSFER, fsync);
        let mut record = Vec::new();
        let mut ends = vec![0];
        for step in 0..6u8 {
            let claims: Vec<Claim> = (0..3)
                .flat_map(|file| (0..2).map(move |i| claim(file, 2 * u32::from(step) + i)))
                .collect();
            let (offset, bytes) = writer.append(&news(claims, &[EntryKey([100 + step; 16])]));
            assert_eq!(offset, record.len() as u64);
            record.extend_from_slice(&bytes);
            ends.push(record.len());
        }
        (record, ends)
    }

    #[test]
    fn the_sources_stand_at_the_beginning_and_claim_nothing() {
        let new = || RecordWriter::new(&ResumeState::default(), TRANSFER, Fsync::End);
        let several = [&[b'x'; 600][..], &[b'y'; 600]].join(&0);
        let long = vec![b'x'; 9000];
        for (named, expected) in [
            (vec![], None),
            (b"lh://h/a".to_vec(), Some(8)),
            (several, Some(600)),
            (long, Some(SOURCES_MAX)),
        ] {
            let mut writer = new().of_sources(named.clone());
            let (_, mut record) = writer.append(&news(vec![claim(1, 0)], &[]));
            record.extend(writer.append(&news(vec![claim(1, 1)], &[])).1);
            let found = sources(&record[..record.len().min(BEGINNING)]);
            assert_eq!(found, expected.map(|len| &named[..len]));
            let state = replay(&record, &TRANSFER, Fsync::End);
            assert_eq!((state.groups(), state.record_len()), (2, record.len() as u64));
        }
        let (_, mut record) = new().of_sources(b"a".to_vec()).append(&news(vec![], &[]));
        *record.last_mut().unwrap() ^= 1;
        assert_eq!(sources(&record), None, "its checksum does not hold");
        assert_eq!(sources(b"LHRCRD"), None);
    }

    #[test]
    fn groups_that_arrived_are_those_that_a_run_of_this_boot_would_believe() {
        let (record, _) = written(Fsync::End);
        let found = arrived(&record, [3; 16]);
        let state = replay(&record, &TRANSFER, Fsync::Never { boot: [3; 16] });
        assert_eq!(found.values().map(Vec::len).sum::<usize>(), state.groups());
        assert_eq!(found.keys().copied().collect::<BTreeSet<_>>(), state.temps().collect());
        let (record, _) = written(Fsync::Never { boot: [3; 16] });
        assert!(!arrived(&record, [3; 16]).is_empty() && arrived(&record, [4; 16]).is_empty());
        assert!(arrived(b"LHRCRD", [3; 16]).is_empty());
    }

    #[test]
    fn what_was_written_is_read() {
        let (record, _) = written(Fsync::End);
        let state = replay(&record, &TRANSFER, NEVER);
        assert_eq!(state.record_len(), record.len() as u64);
        assert_eq!((state.groups(), state.published()), (36, 6));
        assert!(state.is_published(&EntryKey([103; 16])));
        assert!(!state.is_published(&EntryKey([99; 16])));
        let groups = &state.partial[&EntryKey([1; 16])].groups;
        assert!(groups.iter().copied().eq((0..12).map(|g| (g, [g as u8; 32], None))));
    }

    #[test]
    fn other_transfers_and_boots_claim_nothing() {
        let (record, _) = written(NEVER);
        assert_eq!(replay(&record, &TRANSFER, NEVER).published(), 6);
        assert!(replay(&record, &TRANSFER, Fsync::Never { boot: [6; 16] }).is_empty());
        assert!(replay(&record, &TRANSFER, Fsync::End).is_empty());
        assert!(replay(&record, &[8; 16], NEVER).is_empty());
        assert_eq!(replay(&record, &[8; 16], NEVER).record_len(), 0);
    }

    #[test]
    fn a_file_begun_anew_voids_the_claims_about_the_old_one() {
        let mut writer = RecordWriter::new(&ResumeState::default(), TRANSFER, Fsync::End);
        let (_, mut record) = writer.append(&news(vec![claim(1, 0), claim(1, 1)], &[]));
        let other = Claim { temp: TempName([77; 16]), ..claim(1, 5) };
        record.extend_from_slice(&writer.append(&news(vec![other], &[])).1);
        let state = replay(&record, &TRANSFER, NEVER);
        assert_eq!(state.temps().collect::<Vec<_>>(), [TempName([77; 16])]);
        assert_eq!(state.groups(), 1);
    }

    #[test]
    fn a_stamp_holds_until_the_file_is_written_to() {
        let mut writer = RecordWriter::new(&ResumeState::default(), TRANSFER, Fsync::End);
        let mut record = Vec::new();
        let mut say = |news: News| {
            record.extend_from_slice(&writer.append(&news).1);
            replay(&record, &TRANSFER, NEVER).partial[&EntryKey([1; 16])].clone()
        };
        let Claim { key, temp, .. } = claim(1, 0);
        let (stamp, other) = (Stamp([4; 16]), Stamp([5; 16]));
        let claims = vec![claim(1, 0), claim(1, 1), claim(1, 2)];
        let stamped =
            |claims, stamp| News { stamps: vec![(key, temp, stamp)], ..news(claims, &[]) };
        assert_eq!(say(stamped(claims, stamp)).stamp, Some(stamp));
        // Of another file, which is not there any more.
        let gone = (key, TempName([8; 16]), other);
        let file = say(News { stamps: vec![gone], ..News::default() });
        assert_eq!(file.stamp, Some(stamp));
        assert_eq!(say(news(vec![claim(1, 3)], &[])).stamp, None);
        assert_eq!(say(stamped(vec![claim(1, 4)], other)).stamp, Some(other));
    }

    #[test]
    fn what_was_found_wrong_is_void_until_it_is_claimed_again() {
        let mut writer = RecordWriter::new(&ResumeState::default(), TRANSFER, Fsync::End);
        let Claim { key, temp, .. } = claim(1, 0);
        let stamps = vec![(key, temp, Stamp([4; 16]))];
        let claims = vec![claim(1, 0), claim(1, 1), claim(1, 2)];
        let first = News { stamps: stamps.clone(), ..news(claims, &[]) };
        let void = vec![(key, temp, vec![1, 2])];
        let second = News { void, stamps, ..news(vec![claim(1, 2)], &[]) };
        let record = [writer.append(&first).1, writer.append(&second).1].concat();
        let state = replay(&record, &TRANSFER, NEVER);
        let file = &state.partial[&key];
        assert_eq!(file.groups, [(0, [0; 32], None), (2, [2; 32], None)]);
        assert_eq!(file.stamp, Some(Stamp([4; 16])));
        // Before the restart, nothing of the second run is believed but what it takes back.
        let mut writer = RecordWriter::new(&ResumeState::default(), TRANSFER, Fsync::End);
        let mut record = writer.append(&first).1;
        let state = replay(&record, &TRANSFER, NEVER);
        let mut writer = RecordWriter::new(&state, TRANSFER, NEVER);
        record.extend_from_slice(&writer.append(&second).1);
        let state = replay(&record, &TRANSFER, Fsync::End);
        assert_eq!(state.partial[&key].groups, [(0, [0; 32], None)]);
        assert_eq!(state.partial[&key].stamp, None);
    }

    #[test]
    fn files_that_wait_for_their_directories_keep_their_last_stamps() {
        let mut writer = RecordWriter::new(&ResumeState::default(), TRANSFER, Fsync::End);
        let kept = |key, stamp| (EntryKey([key; 16]), Stamp([stamp; 16]));
        let mut say = |kept| writer.append(&News { kept, ..News::default() }).1;
        let record = [say(vec![kept(2, 1), kept(1, 2)]), say(vec![kept(2, 3)])].concat();
        let state = replay(&record, &TRANSFER, NEVER);
        assert_eq!((state.kept(), state.published()), (2, 0));
        assert_eq!(state.stamp_of_kept(&EntryKey([1; 16])), Some(Stamp([2; 16])));
        assert_eq!(state.stamp_of_kept(&EntryKey([2; 16])), Some(Stamp([3; 16])));
        assert_eq!(state.stamp_of_kept(&EntryKey([3; 16])), None);
    }

    #[test]
    fn tags_are_kept_with_their_values_also_of_what_is_published() {
        let mut writer = RecordWriter::new(&ResumeState::default(), TRANSFER, Fsync::End);
        let tagged = |group| Claim { tag: Some([group as u8 + 9; 16]), ..claim(1, group) };
        let claims = vec![tagged(0), tagged(1), claim(1, 2)];
        let group = |contents, tag| Bundled { contents: [contents; 32], value: [3; 32], tag };
        let bundled = vec![group(1, Some([4; 16])), group(2, None)];
        let first = News { bundled, ..news(claims, &[]) };
        let mut record = writer.append(&first).1;
        record.extend(writer.append(&news(vec![], &[claim(1, 0).key])).1);
        let mut state = replay(&record, &TRANSFER, NEVER);
        assert_eq!((state.groups(), state.published()), (0, 1));
        let value = |group: u32, tag| (group, [group as u8; 32], tag);
        let groups = [value(0, Some([9; 16])), value(1, Some([10; 16])), value(2, None)];
        assert_eq!(state.take_whole(&claim(1, 0).key).unwrap().groups, groups);
        assert_eq!(state.bundled(&[1; 32]), Some(([3; 32], Some([4; 16]))));
        assert_eq!(state.bundled(&[2; 32]), Some(([3; 32], None)));
        assert_eq!(state.bundled(&[3; 32]), None);
    }

    #[test]
    fn what_was_published_is_not_once_it_was_found_to_be_something_else() {
        let mut writer = RecordWriter::new(&ResumeState::default(), TRANSFER, Fsync::End);
        let (large, small, kept) = (claim(1, 0).key, EntryKey([50; 16]), EntryKey([51; 16]));
        let published = News {
            kept: vec![(kept, Stamp([1; 16]))],
            ..news(vec![], &[large, small, EntryKey([52; 16])])
        };
        let unpublished = News { unpublished: vec![large, small, kept], ..News::default() };
        let claims = writer.append(&news(vec![claim(1, 0)], &[])).1;
        let mut record = [claims, writer.append(&published).1].concat();
        assert_eq!(replay(&record, &TRANSFER, NEVER).published(), 3);
        record.extend(writer.append(&unpublished).1);
        let state = replay(&record, &TRANSFER, NEVER);
        assert_eq!((state.published(), state.kept(), state.groups()), (1, 0, 0));
        record.extend(writer.append(&news(vec![], &[small])).1);
        let state = replay(&record, &TRANSFER, NEVER);
        assert!(state.is_published(&small) && state.published() == 2);
    }

    #[test]
    fn runs_follow_each_other() {
        let (record, _) = written(Fsync::End);
        let mut state = replay(&record, &TRANSFER, NEVER);
        let mut writer = RecordWriter::new(&state, TRANSFER, NEVER);
        let (offset, bytes) = writer.append(&news(vec![], &[EntryKey([1; 16])]));
        assert_eq!(offset, record.len() as u64);
        let both = [record, bytes].concat();
        state = replay(&both, &TRANSFER, NEVER);
        assert_eq!((state.groups(), state.published()), (24, 7));
        // After a restart the unsynced run is not believed, the synced one still is.
        state = replay(&both, &TRANSFER, Fsync::End);
        assert_eq!((state.groups(), state.published()), (36, 6));
    }

    proptest! {
        #[test]
        fn a_cut_record_claims_a_prefix(cut in 0usize..3000, garbage in prop::collection::vec(any::<u8>(), 0..40)) {
            let (record, ends) = written(Fsync::End);
            let cut = cut.min(record.len());
            let torn = [&record[..cut], &garbage[..]].concat();
            let state = replay(&torn, &TRANSFER, NEVER);
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            prop_assert!(state.published() >= whole && state.published() <= whole + 1);
            prop_assert!(state.record_len() <= torn.len() as u64);
            // Going on from there works, whatever is left behind the valid part.
            let mut writer = RecordWriter::new(&state, TRANSFER, Fsync::End);
            let (offset, bytes) = writer.append(&news(vec![claim(50, 3)], &[]));
            let mut next = torn;
            next.resize(next.len().max(offset as usize + bytes.len()), 0);
            next[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
            let again = replay(&next, &TRANSFER, NEVER);
            prop_assert_eq!(again.groups(), state.groups() + 1);
            prop_assert_eq!(again.published(), state.published());
        }

        #[test]
        fn a_changed_bit_ends_the_record(at in 0usize..2000, bit in 0u8..8) {
            let (mut record, ends) = written(Fsync::End);
            let at = at.min(record.len() - 1);
            record[at] ^= 1 << bit;
            let state = replay(&record, &TRANSFER, NEVER);
            prop_assert!(state.record_len() as usize <= at);
            let whole = ends.iter().filter(|end| **end <= at).count() - 1;
            prop_assert!(state.published() <= whole + 1);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let with_header = [&header_bytes(&TRANSFER)[..], &bytes].concat();
            prop_assert!(replay(&bytes, &TRANSFER, NEVER).is_empty());
            prop_assert!(replay(&with_header, &TRANSFER, NEVER).is_empty());
        }
    }
}
