//! The part of a scan that looks for listed names, and for no others.

use std::ffi::CString;
use std::io::{self, ErrorKind::NotADirectory, ErrorKind::NotFound};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use longhaul_objects::NameList;
use longhaul_wire::{EntryKind, EntryPath};
use rustix::fs::{AtFlags, FileType, OFlags, Stat, fstat, statat};

use super::{
    Pending, Scan, Scanned, entry, leaf, missed_of, missed_of_directory, pseudo, too_long,
    unreadable,
};
use crate::metadata::node::Node;
use crate::place::split;
use crate::{explain, identify};

/// The names of a list, of which some are found.
#[derive(Debug, Default)]
pub(super) struct ListedScan<'a> {
    names: Option<&'a NameList>,
    next: usize,
    /// Number of the name that was looked for last and is there.
    found: Option<usize>,
    /// The directory above a name that was given out last, with those above it.
    above: Vec<u8>,
    /// Nothing below it is found.
    missing: Option<Vec<u8>>,
    /// The directory of the last name.
    directory: Option<(Vec<u8>, OpenDirectory)>,
}

/// A directory, and the device of files whose sizes are true.
type OpenDirectory = (Arc<OwnedFd>, Option<pseudo::DeviceId>);

impl<'a> ListedScan<'a> {
    pub fn of(names: Option<&'a NameList>) -> Self {
        Self { names, ..Self::default() }
    }

    pub fn is_begun(&self) -> bool {
        self.names.is_some()
    }

    pub fn is_left(&self) -> bool {
        self.name().is_some()
    }

    /// None of them can be found.
    pub fn give_up(&mut self) {
        self.names = None;
    }

    /// Nothing is found in a directory, since it was not taken.
    pub fn leave_out(&mut self, path: &[u8]) {
        match path.is_empty() {
            true => self.give_up(),
            false => self.missing = Some(path.to_vec()),
        }
    }

    /// True if the next name is in the directory of the last one: they come before what is in them.
    pub fn is_next_beside(&self) -> bool {
        let last = self.next.checked_sub(1).and_then(|last| self.names?.get(last));
        self.name().zip(last).is_some_and(|(next, last)| split(next).0 == split(last).0)
    }

    fn name(&self) -> Option<&'a [u8]> {
        self.names?.get(self.next)
    }

    /// The names in a directory that were not given out, each with its number.
    fn left_in(&self, path: &'a [u8]) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let (names, next) = (self.names, self.next);
        let left = (next..).map_while(move |number| Some((number, names?.get(number)?)));
        left.take_while(move |(_, name)| is_below(name, path))
    }

    /// True if a name in a directory is known to be there that was not given out.
    fn has_found_in(&self, path: &[u8]) -> bool {
        let found = self.found.filter(|found| *found >= self.next);
        let name = found.and_then(|found| self.names?.get(found));
        name.is_some_and(|name| is_below(name, path))
    }

    fn is_missing(&self, name: &[u8]) -> bool {
        self.missing.as_ref().is_some_and(|missing| is_below(name, missing))
    }

    /// The path of the first directory above `name` that was not given out.
    fn next_above(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        let ends = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = ends.map(|(end, _)| &name[..end]);
        above.find(|path| *path != self.above && !is_below(&self.above, path))
    }
}

impl<'a> Scan<'a> {
    /// The directory that the names are in.
    pub(super) fn start_listed(&mut self, root: usize, stat: &Stat) -> Scanned {
        match self.tree.open_directory(root, b"", OFlags::PATH) {
            Ok(_) => {
                let path = EntryPath::default();
                Scanned::Entry(entry(EntryKind::Directory, stat, 0, [0; 16], path))
            }
            Err(error) => self.root_failed(root, explain::at_root(&error)),
        }
    }

    /// The next name, or a directory above it.
    pub(super) fn step_listed(&mut self) -> Option<Scanned> {
        let name = self.listed.name()?;
        if self.listed.is_missing(name) {
            self.listed.next += 1;
            return None;
        }
        let above = self.listed.next_above(name);
        // Nothing is made for what a rule excludes.
        if above.is_some() && self.excludes(name) {
            self.listed.next += 1;
            return None;
        }
        let path = above.unwrap_or(name);
        self.listed.next += usize::from(above.is_none());
        // Nobody learns of hidden directories, nor reads in them.
        if identify::is_hidden_name(split(path).1) {
            return Some(self.missing(path, &NotFound.into()));
        }
        match above {
            Some(path) => Some(self.directory_above(path)),
            None => self.listed_name(name),
        }
    }

    fn excludes(&mut self, path: &[u8]) -> bool {
        self.tree.has_rules() && self.look_for(path).is_ok_and(|is_admitted| !is_admitted)
    }

    /// True if what has this path is copied, false if a rule excludes it; an error where nothing is there.
    fn look_for(&mut self, path: &[u8]) -> io::Result<bool> {
        if path.split(|byte| *byte == b'/').any(identify::is_hidden_name) {
            return Err(NotFound.into());
        }
        let (parent, name) = split(path);
        let (directory, _) = self.enter(parent)?;
        let stat = statat(directory, CString::new(name)?, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        Ok(self.tree.admits(path, is_directory || self.means_directory(path, &stat)?))
    }

    /// True if a listed link means the directory that it leads to: it has a slash behind it. An error where that leads
    /// out of what is served.
    fn means_directory(&self, path: &[u8], stat: &Stat) -> io::Result<bool> {
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let is_meant = is_link && !self.tree.follows();
        if !is_meant || !self.listed.names.is_some_and(|names| names.follows(path)) {
            return Ok(false);
        }
        match self.tree.open_directory_behind(0, path, OFlags::PATH) {
            Ok(_) => Ok(true),
            // The link itself is copied.
            Err(error) if matches!(error.kind(), NotADirectory | NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Where nothing of what is listed in the directory `path` is there, this fails in its place: no directory is made
    /// that holds nothing.
    fn nothing_in(&mut self, path: &'a [u8]) -> Option<Scanned> {
        if self.listed.has_found_in(path) {
            return None;
        }
        let (mut first, mut names, mut more) = (None, Vec::new(), 0);
        for (number, name) in self.listed.left_in(path) {
            match self.look_for(name) {
                Ok(true) => {
                    self.listed.found = Some(number);
                    return None;
                }
                Ok(false) => {}
                Err(error) => {
                    first.get_or_insert(error);
                    match names.len() < explain::NAMES_SHOWN {
                        true => names.push(&name[path.len() + 1..]),
                        false => more += 1,
                    }
                }
            }
        }
        let end = explain::at_listed(&first?);
        self.listed.missing = Some(path.to_vec());
        Some(unreadable(path.to_vec(), explain::at_all_listed(&end, &names, more)))
    }

    fn missing(&mut self, path: &[u8], error: &io::Error) -> Scanned {
        self.listed.missing = Some(path.to_vec());
        unreadable(path.to_vec(), explain::at_listed(error))
    }

    fn directory_above(&mut self, path: &'a [u8]) -> Scanned {
        let opened = self.tree.open_directory(0, path, OFlags::PATH);
        let found = opened.and_then(|fd| {
            let stat = fstat(&fd)?;
            // It may be one that this process may not list.
            let node = Node::named(&fd, b".");
            let metadata = self.tree.reading.read(&stat, Some(&node))?;
            let true_sizes = pseudo::true_sizes(&fd, &stat);
            Ok((stat, metadata, missed_of_directory(self.tree, &node, true_sizes)))
        });
        let (stat, metadata, missed) = match found {
            Ok(found) => found,
            Err(error) => return self.missing(path, &error),
        };
        if let Some(failed) = self.nothing_in(path) {
            return failed;
        }
        self.listed.above = path.to_vec();
        match EntryPath::new(path.to_vec()) {
            Ok(path) => {
                let mut entry = entry(EntryKind::Directory, &stat, 0, [0; 16], path);
                entry.attributes.metadata = metadata;
                self.missed = missed;
                Scanned::Entry(entry)
            }
            Err(_) => too_long(path.to_vec()),
        }
    }

    fn listed_name(&mut self, path: &[u8]) -> Option<Scanned> {
        let (parent, name) = split(path);
        let found = self.enter(parent).and_then(|(directory, true_sizes)| {
            let name = CString::new(name)?;
            let stat = statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok((directory, name, stat, true_sizes))
        });
        let (directory, name, stat, true_sizes) = match found {
            Ok(found) => found,
            Err(error) => return Some(self.missing(path, &error)),
        };
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let follows = is_link && self.tree.follows();
        let behind = follows.then(|| self.tree.look_behind(0, path, (directory.as_fd(), &name)));
        let stat = match behind.transpose() {
            Ok(behind) => behind.unwrap_or(stat),
            Err(end) => return Some(unreadable(path.to_vec(), end)),
        };
        let is_directory = match self.means_directory(path, &stat) {
            Ok(is_meant) => {
                is_meant || FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            }
            Err(error) => return Some(self.missing(path, &error)),
        };
        if !self.tree.admits(path, is_directory) {
            return None;
        }
        if is_directory {
            let (above, name) = (Some(parent.into()), name.into_bytes().into());
            self.pend(Pending { root: 0, above, name });
            return None;
        }
        let link = (!follows).then_some((directory.as_fd(), &*name));
        let found = leaf(self.tree, path.to_vec(), &stat, true_sizes, link);
        let missed = missed_of(self.tree, &found, &stat, true_sizes, link);
        self.give_out(found, missed, &stat)
    }

    fn enter(&mut self, path: &[u8]) -> io::Result<OpenDirectory> {
        if let Some((known, open)) = &self.listed.directory
            && known == path
        {
            return Ok(open.clone());
        }
        let directory = self.tree.directory(0, path, path)?;
        let true_sizes = pseudo::true_sizes(&directory, &fstat(&directory)?);
        let open = (directory, true_sizes);
        self.listed.directory = Some((path.to_vec(), open.clone()));
        Ok(open)
    }
}

/// True if a path is in `directory`.
fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.first() == Some(&b'/'))
}
