use alloc::vec::Vec;

use super::attributes::KeptAttributes;
use super::{MAX_PATH, MAX_RULES, REQUEST, append};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::varint;

/// REQUEST: what the client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Direction: which end is the source.
    pub direction: Direction,
    /// The destination is taken as a directory.
    pub destination_is_directory: bool,
    /// Data is made durable before it is confirmed.
    pub sync_at_end: bool,
    /// The contents of a source directory are copied, not the directory.
    pub copy_contents: bool,
    /// Contents are not hashed at either end: what is corrupted outside of the network is not found.
    pub unhashed: bool,
    /// A file that the sink has with its size and modification time stays as it is.
    pub keeps_unchanged: bool,
    /// A file that the sink has with a later modification time stays as it is.
    pub keeps_newer: bool,
    /// The sink may ask for hashes of files that it has with the same size: what is equal stays.
    pub compares_contents: bool,
    /// The destination is the new name of the source, even where a directory has that name.
    pub destination_is_name: bool,
    /// Nothing is changed: of each entry the sink says what a copy would do.
    pub dry_run: bool,
    /// Of the contents of the one source only the names of NAMES are copied, which follow.
    pub names_follow: bool,
    /// The directory that contents go into keeps its mode, time and attributes.
    pub destination_stays: bool,
    /// Names in copied directories at the destination that were not announced are deleted: at most so many,
    /// where there is a bound.
    pub deletes: Option<Deletes>,
    /// Attributes that are kept beside times and permission bits.
    pub keeps_attributes: KeptAttributes,
    /// Label of the sources: the same when the same copy is made again, so that the
    /// sink finds what it has of it.
    pub label: [u8; 16],
    /// Paths at the server, each at most [`MAX_PATH`] bytes, none of them zero: the destination
    /// of a push, the sources of a pull.
    pub paths: Vec<Vec<u8>>,
    /// Names that are copied and names that are not; the first rule that matches a path decides.
    pub rules: Vec<FilterRule>,
}

impl Request {
    /// Durable and verified copies of whole trees, whatever is there already.
    pub fn new(direction: Direction, paths: Vec<Vec<u8>>) -> Self {
        Self {
            direction,
            destination_is_directory: false,
            sync_at_end: true,
            copy_contents: false,
            unhashed: false,
            keeps_unchanged: false,
            keeps_newer: false,
            compares_contents: false,
            destination_is_name: false,
            dry_run: false,
            names_follow: false,
            destination_stays: false,
            deletes: None,
            keeps_attributes: KeptAttributes::default(),
            label: [0; 16],
            paths,
            rules: Vec::new(),
        }
    }
}

/// Bound of what a sink deletes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletes {
    /// Names; nothing where there is no bound.
    pub most: Option<u64>,
}

/// A rule about names (docs/protocol.md section 7.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRule {
    /// Treatment of what matches.
    pub kind: FilterKind,
    /// Pattern: 1 to [`MAX_PATH`] bytes, none of them zero.
    pub pattern: Vec<u8>,
}

/// Treatment of a name that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterKind {
    /// It is copied.
    Include = 1,
    /// It is not, nor anything in it.
    Exclude = 2,
}

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The client is the source.
    Push = 1,
    /// The server is the source.
    Pull = 2,
}

impl Request {
    /// As [`super::Message::encode`].
    ///
    /// # Errors
    /// As there.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        append(out, REQUEST, |w| {
            w.u8(self.direction as u8)?;
            let flags = [
                (self.destination_is_directory, DESTINATION_IS_DIRECTORY),
                (self.sync_at_end, SYNC_AT_END),
                (self.copy_contents, COPY_CONTENTS),
                (self.unhashed, UNHASHED),
                (self.keeps_unchanged, KEEPS_UNCHANGED),
                (self.keeps_newer, KEEPS_NEWER),
                (self.destination_is_name, DESTINATION_IS_NAME),
                (self.deletes.is_some(), DELETES),
                (self.dry_run, DRY_RUN),
                (self.compares_contents, COMPARES_CONTENTS),
                (self.names_follow, NAMES_FOLLOW),
                (!self.keeps_attributes.is_empty(), KEEPS_ATTRIBUTES),
                (self.destination_stays, DESTINATION_STAYS),
            ];
            w.varint(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum())?;
            w.bytes(&self.label)?;
            if let Some(Deletes { most }) = self.deletes {
                w.varint(most.map_or(0, |most| most.min(varint::MAX - 1) + 1))?;
            }
            if !self.keeps_attributes.is_empty() {
                w.varint(self.keeps_attributes.bits())?;
            }
            w.varint(self.paths.len() as u64)?;
            self.paths.iter().try_for_each(|path| w.sized(path))?;
            self.rules.iter().try_for_each(|rule| {
                w.u8(rule.kind as u8)?;
                w.sized(&rule.pattern)
            })
        })
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let direction = match r.u8()? {
            1 => Direction::Push,
            2 => Direction::Pull,
            _ => return Err(r.invalid()),
        };
        let flags = r.varint()?;
        if flags & !FLAGS != 0 {
            return Err(r.invalid());
        }
        let label = r.array()?;
        let deletes = match flags & DELETES {
            0 => None,
            _ => Some(Deletes { most: r.varint()?.checked_sub(1) }),
        };
        let keeps_attributes = match flags & KEEPS_ATTRIBUTES {
            0 => KeptAttributes::default(),
            _ => KeptAttributes::from_bits(r.varint()?)
                .filter(|kept| !kept.is_empty())
                .ok_or_else(|| r.invalid())?,
        };
        let mut paths = Vec::new();
        for _ in 0..r.varint()? {
            let path = r.sized(MAX_PATH)?;
            if path.contains(&0) {
                return Err(r.invalid());
            }
            paths.push(path.to_vec());
        }
        let mut rules = Vec::new();
        while !r.is_empty() {
            let kind = match r.u8()? {
                1 => FilterKind::Include,
                2 => FilterKind::Exclude,
                _ => return Err(r.invalid()),
            };
            let pattern = r.sized(MAX_PATH)?;
            if pattern.is_empty() || pattern.contains(&0) || rules.len() == MAX_RULES {
                return Err(r.invalid());
            }
            rules.push(FilterRule { kind, pattern: pattern.to_vec() });
        }
        Ok(Self {
            direction,
            destination_is_directory: flags & DESTINATION_IS_DIRECTORY != 0,
            sync_at_end: flags & SYNC_AT_END != 0,
            copy_contents: flags & COPY_CONTENTS != 0,
            unhashed: flags & UNHASHED != 0,
            keeps_unchanged: flags & KEEPS_UNCHANGED != 0,
            keeps_newer: flags & KEEPS_NEWER != 0,
            compares_contents: flags & COMPARES_CONTENTS != 0,
            destination_is_name: flags & DESTINATION_IS_NAME != 0,
            dry_run: flags & DRY_RUN != 0,
            names_follow: flags & NAMES_FOLLOW != 0,
            destination_stays: flags & DESTINATION_STAYS != 0,
            deletes,
            keeps_attributes,
            label,
            paths,
            rules,
        })
    }
}

const DESTINATION_IS_DIRECTORY: u64 = 1;
const SYNC_AT_END: u64 = 2;
const COPY_CONTENTS: u64 = 4;
const UNHASHED: u64 = 8;
const KEEPS_UNCHANGED: u64 = 16;
const KEEPS_NEWER: u64 = 32;
const DESTINATION_IS_NAME: u64 = 64;
const DELETES: u64 = 128;
const DRY_RUN: u64 = 256;
const COMPARES_CONTENTS: u64 = 512;
const NAMES_FOLLOW: u64 = 1024;
const KEEPS_ATTRIBUTES: u64 = 2048;
const DESTINATION_STAYS: u64 = 4096;
const FLAGS: u64 = 8191;
