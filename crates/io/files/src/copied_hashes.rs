//! `cp --manifest`: hashes of what was copied, made while it was in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use longhaul_objects::GroupTree;
use longhaul_objects::hash::{ChainingValue, group_chaining_value, group_count, group_len};
use longhaul_objects::limits::{GROUP_SIZE, LARGE_FILE_MIN};
use longhaul_sys::files::read_up_to_at;
use longhaul_sys::stop::Stop;
use longhaul_sys::sync::lock;
use longhaul_wire::{Entry, EntryKind};

use crate::b3sum::line as hash_line;

/// Files of a copy, over all its connections, and what is known of their hashes. Each takes its path and some
/// 150 bytes.
#[derive(Debug, Default)]
pub struct CopiedHashes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<Box<[u8]>, CopiedFile>,
    /// Bytes of parts that wait for the others.
    held: usize,
}

#[derive(Debug)]
struct CopiedFile {
    identity: [u8; 16],
    size: u64,
    known: Known,
    /// This connection has it, too.
    is_there: bool,
    /// It is one of several names.
    is_linked: bool,
}

/// Known part of a file's hash; the rest is read at the end.
#[derive(Debug)]
enum Known {
    Nothing,
    Hash(ChainingValue),
    /// Of a large file.
    Groups(Box<GroupTree>),
    /// A part of a small file whose other part is in a neighbouring group, and its offset.
    Part(u64, Box<[u8]>),
    /// A group came with two values.
    Spoiled,
}

impl Known {
    fn hash(&self) -> Option<ChainingValue> {
        match self {
            Self::Hash(hash) => Some(*hash),
            Self::Groups(tree) => tree.root().copied(),
            Self::Nothing | Self::Part(..) | Self::Spoiled => None,
        }
    }
}

/// Contents of a group that comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// As before: each time it was read the file was the same.
    Same,
    /// Others perhaps: those before did not verify.
    Other,
}

/// A piece of a group: its file, its offset there, its bytes.
pub type Piece<'a> = (&'a Entry, u64, &'a [u8]);

impl CopiedHashes {
    /// It goes on over another connection, which names all files again.
    pub fn begin(&self) {
        lock(&self.state).files.values_mut().for_each(|file| file.is_there = false);
    }

    /// A file is copied, or is there already.
    pub fn note_file(&self, entry: &Entry) {
        if matches!(entry.kind, EntryKind::File) {
            lock(&self.state).file(entry);
        }
    }

    /// Group number `group` of an object, with this value, was read or came.
    pub fn note_group<'a>(
        &self,
        pieces: impl Iterator<Item = Piece<'a>>,
        group: u32,
        value: ChainingValue,
        again: Again,
    ) {
        for (entry, offset, bytes) in pieces {
            if has_holes(entry) {
                // Its groups are of its data alone.
                lock(&self.state).file(entry);
            } else if entry.size >= LARGE_FILE_MIN {
                lock(&self.state).note_large(entry, group, value, again);
            } else if bytes.len() as u64 == entry.size {
                let hash = *blake3::hash(bytes).as_bytes();
                lock(&self.state).note_hash(entry, hash);
            } else {
                lock(&self.state).note_part(entry, (offset, bytes), again);
            }
        }
    }

    /// Group number `group` of a file was read, and has this value.
    pub fn note_value(&self, entry: &Entry, group: u32, value: ChainingValue) {
        match entry.size >= LARGE_FILE_MIN {
            _ if has_holes(entry) => _ = lock(&self.state).file(entry),
            true => lock(&self.state).note_large(entry, group, value, Again::Same),
            false => lock(&self.state).note_hash(entry, value),
        }
    }

    /// Writes a line for each file, by name, where the source was given a `new_name` by that; what is not known is
    /// read from what `open` gives. Without that it has no line.
    ///
    /// # Errors
    /// A file cannot be read, or is another by now, with its path; or nothing can be written.
    pub fn write(
        &self,
        out: &mut impl Write,
        new_name: Option<&[u8]>,
        open: impl Fn(&[u8], &[u8; 16]) -> io::Result<Option<File>>,
        stop: &Stop,
    ) -> Result<(), (Vec<u8>, io::Error)> {
        let state = &mut *lock(&self.state);
        let names = state.first_names(&open)?;
        for (path, file) in state.files.iter_mut().filter(|(_, file)| file.is_there) {
            let of_file = |error| (path.to_vec(), error);
            let hash = match file.known.hash() {
                Some(hash) => hash,
                None => {
                    let opened = open(path, &file.identity).map_err(of_file)?;
                    let Some(opened) = opened else { continue };
                    let inode = inode(&opened).map_err(of_file)?;
                    match names.get(&inode).filter(|_| file.is_linked) {
                        Some(hash) => *hash,
                        None => file.read(&opened, stop).map_err(of_file)?,
                    }
                }
            };
            let name = match new_name {
                Some(top) => {
                    let below = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
                    Cow::Owned([top, &path[below..]].concat())
                }
                None => Cow::Borrowed(&**path),
            };
            out.write_all(&hash_line(&hash, &name)).map_err(|error| (Vec::new(), error))?;
        }
        Ok(())
    }

    /// Number of names that are not UTF-8.
    pub fn not_utf8(&self) -> usize {
        lock(&self.state).files.keys().filter(|path| std::str::from_utf8(path).is_err()).count()
    }
}

impl State {
    /// Hashes of files with several names, by device and inode of what has the name that was copied.
    fn first_names(
        &self,
        open: impl Fn(&[u8], &[u8; 16]) -> io::Result<Option<File>>,
    ) -> Result<HashesByInode, (Vec<u8>, io::Error)> {
        let mut names = HashesByInode::new();
        for (path, file) in self.files.iter().filter(|(_, file)| file.is_there && file.is_linked) {
            if let Some(hash) = file.known.hash().filter(|_| file.size > 0) {
                let opened = open(path, &file.identity)
                    .and_then(|file| file.as_ref().map(inode).transpose());
                let inode = opened.map_err(|error| (path.to_vec(), error))?;
                names.extend(inode.map(|inode| (inode, hash)));
            }
        }
        Ok(names)
    }

    /// The file of `entry`; one of its path that was another file is forgotten.
    fn file(&mut self, entry: &Entry) -> &mut CopiedFile {
        let empty = || match entry.size {
            0 => Known::Hash(*blake3::hash(&[]).as_bytes()),
            _ => Known::Nothing,
        };
        let new = |known| {
            let (identity, size) = (entry.identity, entry.size);
            let is_linked = entry.is_first_name() || entry.linked_to().is_some();
            CopiedFile { identity, size, known, is_there: true, is_linked }
        };
        let path = entry.path.as_bytes().into();
        let file = self.files.entry(path).or_insert_with(|| new(empty()));
        if (file.identity, file.size) != (entry.identity, entry.size) {
            *file = new(empty());
        }
        file.is_there = true;
        file
    }

    fn note_hash(&mut self, entry: &Entry, hash: ChainingValue) {
        let file = self.file(entry);
        file.known = match file.known {
            Known::Nothing | Known::Part(..) => Known::Hash(hash),
            Known::Hash(known) if known == hash => return,
            _ => Known::Spoiled,
        };
    }

    fn note_large(&mut self, entry: &Entry, group: u32, value: ChainingValue, again: Again) {
        let file = self.file(entry);
        if matches!(file.known, Known::Nothing) {
            file.known = Known::Groups(Box::new(GroupTree::new(entry.size)));
        }
        if let Known::Groups(tree) = &mut file.known
            && !(again == Again::Same && tree.has(group))
            && !tree.insert(group, value)
        {
            file.known = Known::Spoiled;
        }
    }

    fn note_part(&mut self, entry: &Entry, (offset, bytes): (u64, &[u8]), again: Again) {
        let held = self.held;
        let file = self.file(entry);
        match std::mem::replace(&mut file.known, Known::Nothing) {
            Known::Part(at, other) => {
                let (one, two) = if at < offset { (&*other, bytes) } else { (bytes, &*other) };
                if at != offset && (one.len() + two.len()) as u64 == entry.size {
                    let mut hasher = blake3::Hasher::new();
                    hasher.update(one).update(two);
                    file.known = Known::Hash(*hasher.finalize().as_bytes());
                }
                self.held -= other.len();
            }
            Known::Nothing if held + bytes.len() <= HELD_MOST => {
                file.known = Known::Part(offset, bytes.into());
                self.held += bytes.len();
            }
            Known::Hash(_) if again == Again::Other => file.known = Known::Spoiled,
            known => file.known = known,
        }
    }
}

impl CopiedFile {
    /// Hashes what is not known of it.
    fn read(&mut self, file: &File, stop: &Stop) -> io::Result<ChainingValue> {
        let groups = group_count(self.size);
        let mut tree = match std::mem::replace(&mut self.known, Known::Nothing) {
            Known::Groups(tree) => *tree,
            _ => GroupTree::new(self.size),
        };
        let before = file.metadata()?;
        let mut buffer = Vec::new();
        for group in 0..groups {
            if tree.has(group) {
                continue;
            }
            if stop.is_requested() {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped"));
            }
            buffer.resize(group_len(self.size, group) as usize, 0);
            if read_up_to_at(file, &mut buffer, u64::from(group) * GROUP_SIZE)? < buffer.len() {
                return Err(changed());
            }
            tree.insert(group, group_chaining_value(&buffer, group, groups == 1));
        }
        let after = file.metadata()?;
        let same = before.modified()? == after.modified()? && after.len() == self.size;
        tree.root().copied().filter(|_| same).ok_or_else(changed)
    }
}

fn has_holes(entry: &Entry) -> bool {
    entry.attributes.data.is_some()
}

/// By device and inode.
type HashesByInode = BTreeMap<(u64, u64), ChainingValue>;

/// Device and inode.
fn inode(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

fn changed() -> io::Error {
    io::Error::other("it is another file by now")
}

/// A list of hashes while it is written: another name beside its own, which it gets when it is whole.
#[derive(Debug)]
pub struct UnfinishedList {
    path: PathBuf,
    unfinished: PathBuf,
    file: File,
}

impl UnfinishedList {
    /// An empty one, of which `path` is the name in the end.
    ///
    /// # Errors
    /// It cannot be made there, or something that is no file has that name: no device, link or FIFO is replaced.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
        name.push(".unfinished");
        let unfinished = path.with_file_name(name);
        let there = std::fs::symlink_metadata(path).ok();
        if there.as_ref().is_some_and(Metadata::is_dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            return Err(io::Error::other(
                "a device, a link or a FIFO of that name is not replaced",
            ));
        }
        let file = File::create(&unfinished)?;
        if let Some(there) = there {
            file.set_permissions(there.permissions())?;
        }
        Ok(Self { path: path.to_owned(), unfinished, file })
    }

    /// For its lines.
    pub fn writer(&self) -> BufWriter<&File> {
        BufWriter::new(&self.file)
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// It is not durable, or has not its name.
    pub fn publish(self) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.unfinished, &self.path)
    }
}

impl Drop for UnfinishedList {
    fn drop(&mut self) {
        // Under its name it is not there any more.
        let _ = std::fs::remove_file(&self.unfinished);
    }
}

/// Parts of small files that wait for the others; more are read at the end.
const HELD_MOST: usize = 64 << 20;
