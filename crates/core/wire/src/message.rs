//! The messages of stream 0, by which source and sink agree on what is copied
//! (docs/protocol.md section 7.2).

mod attributes;
mod compare;
mod ending;
mod entry;
mod host;
mod leftovers;
mod listing;
mod names;
mod reader;
mod report;
mod request;
mod verify;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use longhaul_units::{Bytes, EntryCode, ObjectId, Rate};

pub use self::attributes::{
    AccessEntry, AccessList, Account, Attributes, DataRanges, HardLink, KeptAttributes,
    MAX_ATTRIBUTES, MAX_DATA_RANGES, Metadata, OTHER_NAMES_MAX, Xattr,
};
use self::compare::Compare;
pub use self::compare::FileHashes;
pub use self::ending::EntryEnd;
pub use self::entry::{Entry, EntryKind, EntryPath, InvalidPath, MAX_PATH};
pub use self::host::{HostAccount, HostLosses, StallTimes};
pub use self::leftovers::{Left, LeftState, LeftoversRequest};
pub use self::listing::{AnswerMessage, ListRequest, Listed, ListedKind};
pub use self::names::ListedName;
pub use self::reader::MessageReader;
pub use self::report::SourceReport;
pub use self::request::{Deletes, Direction, FilterKind, FilterRule, Request};
pub use self::verify::{HashOutcome, Hashed, Question, VerifyRequest};
use crate::close::cut_reason;
use crate::close::{CloseCode, MAX_REASON};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::varint;
use crate::writer::Writer;

/// Longest message, in bytes of type and body.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Most rules about names that a request has.
pub const MAX_RULES: usize = 1000;
/// Longest name of a pipe, in bytes.
pub const MAX_PIPE_NAME: usize = 255;

/// A message of stream 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Request of the client, its first and only one.
    Request(Request),
    /// The end of a pipe that the client wants; instead of a request.
    Pipe(PipeRequest),
    /// A listing that the client wants; instead of a request.
    List(ListRequest),
    /// Files that the client wants hashed; instead of a request, and again for more of them.
    Verify(VerifyRequest),
    /// Interrupted copies that the client wants to know of; instead of a request.
    Leftovers(LeftoversRequest),
    /// The server does not grant the request.
    Refused(Refused),
    /// From the side that has the data.
    Source(SourceMessage),
    /// From the side that gets the data.
    Sink(SinkMessage),
    /// From a server that was asked for a listing, for hashes, or for interrupted copies.
    Answer(AnswerMessage),
}

/// PIPE: the client's end of a pipe (docs/protocol.md section 7.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipeRequest {
    /// Which end.
    pub role: PipeRole,
    /// Name that the two ends have in common: 1 to [`MAX_PIPE_NAME`] bytes, none of them zero.
    pub name: Vec<u8>,
}

/// An end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PipeRole {
    /// Bytes go in.
    Send = 1,
    /// Bytes come out.
    Receive = 2,
}

/// REFUSED: the request is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why, for programs.
    pub code: CloseCode,
    /// Why, for people. Names no path of the request.
    pub reason: String,
    /// Part of the request that it is about, if it is about a path of it.
    pub part: Option<AskedPart>,
}

/// The beginning of a path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedPart {
    /// Number of the path, from 0 on.
    pub path: u64,
    /// So many of its names, from the root on.
    pub names: u64,
}

impl AskedPart {
    /// All of `path`, which is number `number` of a request, or begins it.
    pub fn all_of(number: u64, path: &[u8]) -> Self {
        Self { path: number, names: names_of(path).count() as u64 }
    }
}

/// Names of a path, which are those below a root.
pub fn names_of(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

/// A message from the source to the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceMessage {
    /// MANIFEST: more of what will be sent.
    Manifest {
        /// Number of the first entry; the others follow.
        first_entry: u64,
        /// Entries.
        entries: Vec<Entry>,
        /// Objects that hold contents of entries described so far.
        objects: Vec<ManifestObject>,
    },
    /// MANIFEST_END: the manifest is complete.
    ManifestEnd {
        /// Number of entries.
        entries: u64,
        /// Number of objects.
        objects: u64,
        /// Their bytes.
        bytes: Bytes,
    },
    /// HASHES: chaining values of consecutive groups.
    Hashes {
        /// The object.
        object: ObjectId,
        /// Group of the first value.
        first_group: u64,
        /// The values.
        values: Vec<[u8; 32]>,
    },
    /// TAGS: of the groups whose values the next HASHES has, of the same object.
    Tags {
        /// The object.
        object: ObjectId,
        /// Group of the first tag.
        first_group: u64,
        /// The tags.
        tags: Vec<[u8; 16]>,
    },
    /// BELIEVED: groups of OFFER whose tags are right.
    Believed {
        /// The object.
        object: ObjectId,
        /// Ranges of groups, none empty.
        groups: Vec<Range<u64>>,
    },
    /// ENTRY_FAILED: the source does not send an entry (any more).
    EntryFailed {
        /// Number of the entry.
        entry: u64,
        /// Why; a code of sinks is sent as `Failed`.
        end: EntryEnd,
    },
    /// REPORT: how sending goes; a later one replaces it.
    Report(Box<SourceReport>),
    /// COMPARE: chaining values that the sink has asked for.
    Compared(Vec<FileHashes>),
}

/// An object of a manifest: the contents of consecutive file entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestObject {
    /// The object.
    pub id: ObjectId,
    /// Number of the first entry in it.
    pub first_entry: u64,
    /// Number of entries, at least 1.
    pub entries: u64,
    /// Bytes of their contents, at least 1.
    pub size: u64,
}

/// Groups that the record of an earlier run tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Ranges of groups, none empty, of which it has no tags.
    Untagged(Vec<Range<u64>>),
    /// Consecutive groups of which it has them.
    Tagged {
        /// The first group.
        first_group: u64,
        /// The chaining value and the tag of each.
        groups: Vec<([u8; 32], [u8; 16])>,
    },
}

/// A message from the sink to the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkMessage {
    /// ACCEPT: the objects with numbers below this one may be sent.
    Accept {
        /// Number of objects.
        objects: u64,
    },
    /// OFFER: groups that the record of an earlier run tells of.
    Offer {
        /// The object.
        object: ObjectId,
        /// The groups.
        groups: Offered,
    },
    /// HAVE: groups that are durable and need not be sent.
    Have {
        /// The object.
        object: ObjectId,
        /// Ranges of groups, none empty.
        groups: Vec<Range<u64>>,
    },
    /// REPAIR: a group's hash did not match; send it again.
    Repair {
        /// The object.
        object: ObjectId,
        /// The group.
        group: u64,
    },
    /// CONFIRM: entries that are whole, verified and under their names.
    Confirm {
        /// Ranges of entries, none empty.
        entries: Vec<Range<u64>>,
    },
    /// ELSEWHERE: first names of files that the sink has under another of their names, unchanged. They become names of
    /// these, and their contents are not sent.
    Elsewhere {
        /// Ranges of entries, none empty.
        entries: Vec<Range<u64>>,
    },
    /// ENTRY_REFUSED: the sink does not write an entry.
    EntryRefused {
        /// Number of the entry.
        entry: u64,
        /// Why; a code of sources is sent as `Failed`.
        end: EntryEnd,
    },
    /// DELETED: paths that were not announced, and are gone.
    Deleted {
        /// As those of entries, though perhaps longer.
        paths: Vec<Vec<u8>>,
    },
    /// NOT_DELETED: a path that was not announced, and stays.
    NotDeleted {
        /// As in DELETED.
        path: Vec<u8>,
        /// Why; a code of sources is sent as `Failed`.
        end: EntryEnd,
    },
    /// RESULT: every entry is confirmed, refused or failed.
    Result(Box<Summary>),
    /// COMPARE: files that it has with the same size, and groups of each whose hashes it wants.
    Compare(Vec<(u64, Range<u64>)>),
    /// RATE: the most that the source is to send from now on, at the IP layer; nothing where there is no limit.
    Rate(Option<Rate>),
    /// NAMES: more of the names that are to be copied.
    Names {
        /// Paths below the source, in ascending order of their components.
        names: Vec<ListedName>,
        /// No more names follow.
        is_last: bool,
    },
}

/// RESULT: how the transfer ended, as the sink saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Entries that are in place.
    pub confirmed: u64,
    /// Entries that failed.
    pub failed: u64,
    /// Entries that the source skipped.
    pub skipped: u64,
    /// Entries that stay as they were: unchanged, or newer ones.
    pub unchanged: u64,
    /// Bytes of the confirmed files.
    pub bytes: Bytes,
    /// Number of them that were durable before.
    pub resumed: Bytes,
    /// Notes for the user though nothing failed, as bits; others than those named here are ignored.
    pub notes: u64,
    /// Entries of which the sink could not keep all attributes.
    pub not_kept: u64,
    /// Account of the sink's host: costs and condition.
    pub host: HostAccount,
}

impl Summary {
    /// The destination did not let modification times be set.
    pub const TIMES_NOT_SET: u64 = 1;
    /// It did not let permission bits be set.
    pub const MODES_NOT_SET: u64 = 2;
    /// Modification times were the first or the last that an entry can have: they stand for those beyond.
    pub const TIMES_OUT_OF_RANGE: u64 = 4;
    /// Files that an earlier run may have left there are not the sink's alone, and were not used.
    pub const LEFT_ALONE: u64 = 8;
    /// All disks of the sink's host were synced, since nothing else may be, and that tells no errors.
    pub const SYNC_NOT_CHECKED: u64 = 16;
    /// The sink was to leave alone what it has already, and may not show what that is: all was sent.
    pub const NOT_COMPARED: u64 = 32;
    /// The sink may not set owners, bits that lend their rights, or attributes that are not the user's.
    pub const OWNERS_NOT_ALLOWED: u64 = 64;
    /// The source has the name of the destination, not its own.
    pub const NEW_NAME: u64 = 128;
    /// Of a dry run: a copy would write more than it may take of the disk.
    pub const MORE_THAN_FREE: u64 = 256;
    /// The destination keeps other modification times for some files than those that were set.
    pub const TIMES_NOT_KEPT: u64 = 512;
    /// It did not let modification times of directories, or of files that were there, be set.
    pub const SOME_TIMES_NOT_SET: u64 = 1024;
}

impl Message {
    /// Appends the message, with its length, to `out`.
    ///
    /// # Errors
    /// It is longer than [`MAX_MESSAGE`]; nothing is written.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        match self {
            Self::Request(message) => message.encode(out),
            Self::Pipe(message) => message.encode(out),
            Self::List(message) => message.encode(out),
            Self::Verify(message) => message.encode(out),
            Self::Leftovers(message) => message.encode(out),
            Self::Refused(message) => message.encode(out),
            Self::Source(message) => message.encode(out),
            Self::Sink(message) => message.encode(out),
            Self::Answer(message) => message.encode(out),
        }
    }

    /// Reads type and body.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut kind = Reader::new(bytes, "message");
        let number = kind.varint()?;
        let what = match number {
            REQUEST => "REQUEST",
            MANIFEST => "MANIFEST",
            MANIFEST_END => "MANIFEST_END",
            HASHES => "HASHES",
            ENTRY_FAILED => "ENTRY_FAILED",
            ACCEPT => "ACCEPT",
            HAVE => "HAVE",
            REPAIR => "REPAIR",
            CONFIRM => "CONFIRM",
            ENTRY_REFUSED => "ENTRY_REFUSED",
            RESULT => "RESULT",
            REFUSED => "REFUSED",
            REPORT => "REPORT",
            PIPE => "PIPE",
            TAGS => "TAGS",
            OFFER => "OFFER",
            BELIEVED => "BELIEVED",
            LIST => "LIST",
            LISTED => "LISTED",
            UNLISTED => "UNLISTED",
            LIST_END => "LIST_END",
            DELETED => "DELETED",
            NOT_DELETED => "NOT_DELETED",
            COMPARE => "COMPARE",
            VERIFY => "VERIFY",
            HASHED => "HASHED",
            LEFTOVERS => "LEFTOVERS",
            LEFT => "LEFT",
            NAMES => "NAMES",
            RATE => "RATE",
            ELSEWHERE => "ELSEWHERE",
            _ => return Err(DecodeError::Invalid { what: "type of a message" }),
        };
        let mut r = Reader::new(kind.rest(), what);
        let message = match number {
            REQUEST => Self::Request(Request::decode(&mut r)?),
            PIPE => Self::Pipe(PipeRequest::decode(&mut r)?),
            LIST => Self::List(ListRequest::decode(&mut r)?),
            VERIFY => Self::Verify(VerifyRequest::decode(&mut r)?),
            LEFTOVERS => Self::Leftovers(LeftoversRequest::decode(&mut r)?),
            LISTED | UNLISTED | LIST_END | HASHED | LEFT => {
                Self::Answer(AnswerMessage::decode(number, &mut r)?)
            }
            REFUSED => Self::Refused(Refused::decode(&mut r)?),
            COMPARE => match Compare::decode(&mut r)? {
                Compare::Asked(files) => Self::Sink(SinkMessage::Compare(files)),
                Compare::Answered(files) => Self::Source(SourceMessage::Compared(files)),
            },
            MANIFEST..=ENTRY_FAILED | REPORT | TAGS | BELIEVED => {
                Self::Source(SourceMessage::decode(number, &mut r)?)
            }
            _ => Self::Sink(SinkMessage::decode(number, &mut r)?),
        };
        r.finish()?;
        Ok(message)
    }
}

impl From<Request> for Message {
    fn from(message: Request) -> Self {
        Self::Request(message)
    }
}

impl From<PipeRequest> for Message {
    fn from(message: PipeRequest) -> Self {
        Self::Pipe(message)
    }
}

impl From<ListRequest> for Message {
    fn from(message: ListRequest) -> Self {
        Self::List(message)
    }
}

impl From<VerifyRequest> for Message {
    fn from(message: VerifyRequest) -> Self {
        Self::Verify(message)
    }
}

impl From<LeftoversRequest> for Message {
    fn from(message: LeftoversRequest) -> Self {
        Self::Leftovers(message)
    }
}

impl From<AnswerMessage> for Message {
    fn from(message: AnswerMessage) -> Self {
        Self::Answer(message)
    }
}

impl From<Refused> for Message {
    fn from(message: Refused) -> Self {
        Self::Refused(message)
    }
}

impl From<SourceMessage> for Message {
    fn from(message: SourceMessage) -> Self {
        Self::Source(message)
    }
}

impl From<SinkMessage> for Message {
    fn from(message: SinkMessage) -> Self {
        Self::Sink(message)
    }
}

impl PipeRequest {
    /// As [`Message::encode`].
    ///
    /// # Errors
    /// As there.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        append(out, PIPE, |w| {
            w.u8(self.role as u8)?;
            w.bytes(&self.name)
        })
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let role = match r.u8()? {
            1 => PipeRole::Send,
            2 => PipeRole::Receive,
            _ => return Err(r.invalid()),
        };
        let name = r.rest();
        if name.is_empty() || name.len() > MAX_PIPE_NAME || name.contains(&0) {
            return Err(r.invalid());
        }
        Ok(Self { role, name: name.to_vec() })
    }
}

impl Refused {
    /// As [`Message::encode`].
    ///
    /// # Errors
    /// As there.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        let AskedPart { path, names } = self.part.unwrap_or(AskedPart { path: 0, names: 0 });
        append(out, REFUSED, |w| {
            w.u16(self.code.0)?;
            w.varint(if self.part.is_some() { path + 1 } else { 0 })?;
            w.varint(names)?;
            w.bytes(cut_reason(&self.reason).as_bytes())
        })
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = CloseCode(r.u16()?);
        let (path, names) = (r.varint()?, r.varint()?);
        let part = path.checked_sub(1).map(|path| AskedPart { path, names });
        Ok(Self { code, reason: r.text(MAX_REASON)?.into(), part })
    }
}

impl SourceMessage {
    /// As [`Message::encode`].
    ///
    /// # Errors
    /// As there.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        match self {
            Self::Manifest { first_entry, entries, objects } => append(out, MANIFEST, |w| {
                w.varint(*first_entry)?;
                w.varint(entries.len() as u64)?;
                entries.iter().try_for_each(|entry| entry.encode(w))?;
                w.varint(objects.len() as u64)?;
                objects.iter().try_for_each(|object| object.encode(w))
            }),
            Self::ManifestEnd { entries, objects, bytes } => append(out, MANIFEST_END, |w| {
                w.varint(*entries)?;
                w.varint(*objects)?;
                w.varint(bytes.get())
            }),
            Self::Hashes { object, first_group, values } => append(out, HASHES, |w| {
                w.varint(object.0.into())?;
                w.varint(*first_group)?;
                w.bytes(values.as_flattened())
            }),
            Self::Tags { object, first_group, tags } => append(out, TAGS, |w| {
                w.varint(object.0.into())?;
                w.varint(*first_group)?;
                w.bytes(tags.as_flattened())
            }),
            Self::Believed { object, groups } => append(out, BELIEVED, |w| {
                w.varint(object.0.into())?;
                groups.iter().try_for_each(|groups| encode_range(w, groups))
            }),
            Self::EntryFailed { entry, end } => {
                entry_ended(out, ENTRY_FAILED, *entry, end, EntryCode::of_source)
            }
            Self::Report(report) => append(out, REPORT, |w| report.encode(w)),
            Self::Compared(files) => compare::encode_answered(out, files),
        }
    }

    fn decode(kind: u64, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match kind {
            MANIFEST => {
                let first_entry = r.varint()?;
                let count = r.varint()?;
                if first_entry + count > varint::MAX {
                    return Err(r.invalid());
                }
                let mut entries = Vec::new();
                for _ in 0..count {
                    entries.push(Entry::decode(r)?);
                }
                let mut objects = Vec::new();
                for _ in 0..r.varint()? {
                    objects.push(ManifestObject::decode(r)?);
                }
                Ok(Self::Manifest { first_entry, entries, objects })
            }
            MANIFEST_END => Ok(Self::ManifestEnd {
                entries: r.varint()?,
                objects: r.varint()?,
                bytes: Bytes::new(r.varint()?),
            }),
            HASHES => {
                let (object, first_group) = (object_id(r)?, r.varint()?);
                let (values, rest) = r.rest().as_chunks::<32>();
                if !rest.is_empty() || first_group + values.len() as u64 > varint::MAX {
                    return Err(r.invalid());
                }
                Ok(Self::Hashes { object, first_group, values: values.to_vec() })
            }
            TAGS => {
                let (object, first_group) = (object_id(r)?, r.varint()?);
                let (tags, rest) = r.rest().as_chunks::<16>();
                if !rest.is_empty() || first_group + tags.len() as u64 > varint::MAX {
                    return Err(r.invalid());
                }
                Ok(Self::Tags { object, first_group, tags: tags.to_vec() })
            }
            BELIEVED => Ok(Self::Believed { object: object_id(r)?, groups: ranges(r)? }),
            REPORT => Ok(Self::Report(Box::new(SourceReport::decode(r)?))),
            _ => {
                let (entry, end) = (r.varint()?, EntryEnd::decode(r)?);
                let code = end.code.of_source();
                Ok(Self::EntryFailed { entry, end: EntryEnd { code, ..end } })
            }
        }
    }
}

impl ManifestObject {
    /// Number of bytes that the object takes in a MANIFEST.
    pub const fn encoded_len(&self) -> usize {
        varint::len(self.id.0 as u64)
            + varint::len(self.first_entry)
            + varint::len(self.entries)
            + varint::len(self.size)
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        w.varint(self.id.0.into())?;
        w.varint(self.first_entry)?;
        w.varint(self.entries)?;
        w.varint(self.size)
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let id = object_id(r)?;
        let entries = range(r)?;
        let size = r.varint()?;
        if size == 0 {
            return Err(r.invalid());
        }
        let (first_entry, entries) = (entries.start, entries.end - entries.start);
        Ok(Self { id, first_entry, entries, size })
    }
}

impl SinkMessage {
    /// As [`Message::encode`].
    ///
    /// # Errors
    /// As there.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        match self {
            Self::Accept { objects } => append(out, ACCEPT, |w| w.varint(*objects)),
            Self::Offer { object, groups } => append(out, OFFER, |w| {
                w.varint(object.0.into())?;
                groups.encode(w)
            }),
            Self::Have { object, groups } => append(out, HAVE, |w| {
                w.varint(object.0.into())?;
                groups.iter().try_for_each(|groups| encode_range(w, groups))
            }),
            Self::Repair { object, group } => append(out, REPAIR, |w| {
                w.varint(object.0.into())?;
                w.varint(*group)
            }),
            Self::Confirm { entries } => append(out, CONFIRM, |w| {
                entries.iter().try_for_each(|entries| encode_range(w, entries))
            }),
            Self::Elsewhere { entries } => append(out, ELSEWHERE, |w| {
                entries.iter().try_for_each(|entries| encode_range(w, entries))
            }),
            Self::EntryRefused { entry, end } => {
                entry_ended(out, ENTRY_REFUSED, *entry, end, EntryCode::of_sink)
            }
            Self::Deleted { paths } => {
                append(out, DELETED, |w| paths.iter().try_for_each(|path| w.sized(path)))
            }
            Self::NotDeleted { path, end } => append(out, NOT_DELETED, |w| {
                w.sized(path)?;
                end.encode(w, end.code.of_deletion())
            }),
            Self::Result(summary) => append(out, RESULT, |w| {
                w.varint(summary.confirmed)?;
                w.varint(summary.failed)?;
                w.varint(summary.skipped)?;
                w.varint(summary.unchanged)?;
                w.varint(summary.bytes.get())?;
                w.varint(summary.resumed.get())?;
                w.varint(summary.notes)?;
                w.varint(summary.not_kept)?;
                summary.host.encode(w)
            }),
            Self::Compare(files) => compare::encode_asked(out, files),
            Self::Rate(rate) => append(out, RATE, |w| {
                w.varint(rate.map_or(0, |rate| rate.as_bps().min(varint::MAX)))
            }),
            Self::Names { names, is_last } => names::encode(out, names, *is_last),
        }
    }

    fn decode(kind: u64, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match kind {
            ACCEPT => Ok(Self::Accept { objects: r.varint()? }),
            OFFER => Ok(Self::Offer { object: object_id(r)?, groups: Offered::decode(r)? }),
            HAVE => Ok(Self::Have { object: object_id(r)?, groups: ranges(r)? }),
            REPAIR => Ok(Self::Repair { object: object_id(r)?, group: r.varint()? }),
            CONFIRM => Ok(Self::Confirm { entries: ranges(r)? }),
            ELSEWHERE => Ok(Self::Elsewhere { entries: ranges(r)? }),
            ENTRY_REFUSED => {
                let (entry, end) = (r.varint()?, EntryEnd::decode(r)?);
                let code = end.code.of_sink();
                Ok(Self::EntryRefused { entry, end: EntryEnd { code, ..end } })
            }
            DELETED => {
                let mut paths = Vec::new();
                while !r.is_empty() {
                    paths.push(deleted_path(r)?);
                }
                Ok(Self::Deleted { paths })
            }
            RATE => {
                let rate = r.varint()?;
                Ok(Self::Rate((rate > 0).then(|| Rate::from_bps(rate))))
            }
            NAMES => names::decode(r),
            NOT_DELETED => {
                let (path, end) = (deleted_path(r)?, EntryEnd::decode(r)?);
                let code = end.code.of_deletion();
                Ok(Self::NotDeleted { path, end: EntryEnd { code, ..end } })
            }
            _ => Ok(Self::Result(Box::new(Summary {
                confirmed: r.varint()?,
                failed: r.varint()?,
                skipped: r.varint()?,
                unchanged: r.varint()?,
                bytes: Bytes::new(r.varint()?),
                resumed: Bytes::new(r.varint()?),
                notes: r.varint()?,
                not_kept: r.varint()?,
                host: HostAccount::decode(r)?,
            }))),
        }
    }
}

/// Path of something at the sink: the name in an entry's directory may make it longer than an entry's.
fn deleted_path(r: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    let path = r.sized(2 * MAX_PATH)?;
    match path.is_empty() || path.contains(&0) {
        true => Err(r.invalid()),
        false => Ok(path.to_vec()),
    }
}

impl Offered {
    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        match self {
            Self::Untagged(groups) => {
                w.u8(0)?;
                groups.iter().try_for_each(|groups| encode_range(w, groups))
            }
            Self::Tagged { first_group, groups } => {
                w.u8(1)?;
                w.varint(*first_group)?;
                groups.iter().try_for_each(|(value, tag)| {
                    w.bytes(value)?;
                    w.bytes(tag)
                })
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8()? {
            0 => Ok(Self::Untagged(ranges(r)?)),
            1 => {
                let first_group = r.varint()?;
                let mut groups = Vec::new();
                while !r.is_empty() {
                    groups.push((r.array()?, r.array()?));
                }
                if first_group + groups.len() as u64 > varint::MAX {
                    return Err(r.invalid());
                }
                Ok(Self::Tagged { first_group, groups })
            }
            _ => Err(r.invalid()),
        }
    }
}

/// Appends a message of type `kind` with the body that `write` writes.
fn append(
    out: &mut Vec<u8>,
    kind: u64,
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>,
) -> Result<(), Full> {
    let mut message = Vec::new();
    let mut w = Writer::append(&mut message);
    w.varint(kind)?;
    write(&mut w)?;
    if message.len() > MAX_MESSAGE {
        return Err(Full);
    }
    Writer::append(out).sized(&message)
}

/// Body of a message that asks for a look: a flag, and the path of where.
fn encode_look(w: &mut Writer<'_>, flag: bool, path: &[u8]) -> Result<(), Full> {
    w.varint(u64::from(flag))?;
    w.bytes(path)
}

fn decode_look(r: &mut Reader<'_>) -> Result<(bool, Vec<u8>), DecodeError> {
    let flag = match r.varint()? {
        0 => false,
        1 => true,
        _ => return Err(r.invalid()),
    };
    let path = r.rest();
    match path.len() > MAX_PATH || path.contains(&0) {
        true => Err(r.invalid()),
        false => Ok((flag, path.to_vec())),
    }
}

fn entry_ended(
    out: &mut Vec<u8>,
    kind: u64,
    entry: u64,
    end: &EntryEnd,
    sent: impl FnOnce(EntryCode) -> EntryCode,
) -> Result<(), Full> {
    append(out, kind, |w| {
        w.varint(entry)?;
        end.encode(w, sent(end.code))
    })
}

fn object_id(r: &mut Reader<'_>) -> Result<ObjectId, DecodeError> {
    u32::try_from(r.varint()?).map(ObjectId).map_err(|_| r.invalid())
}

fn encode_range(w: &mut Writer<'_>, range: &Range<u64>) -> Result<(), Full> {
    w.varint(range.start)?;
    w.varint(range.end - range.start)
}

/// A first number and a count that is not zero.
fn range(r: &mut Reader<'_>) -> Result<Range<u64>, DecodeError> {
    let (start, count) = (r.varint()?, r.varint()?);
    if count == 0 || start + count > varint::MAX {
        return Err(r.invalid());
    }
    Ok(start..start + count)
}

/// Ranges to the end of the message.
fn ranges(r: &mut Reader<'_>) -> Result<Vec<Range<u64>>, DecodeError> {
    let mut all = Vec::new();
    while !r.is_empty() {
        all.push(range(r)?);
    }
    Ok(all)
}

const REQUEST: u64 = 1;
const MANIFEST: u64 = 2;
const MANIFEST_END: u64 = 3;
const HASHES: u64 = 4;
const ENTRY_FAILED: u64 = 5;
const ACCEPT: u64 = 6;
const HAVE: u64 = 7;
const REPAIR: u64 = 8;
const CONFIRM: u64 = 9;
const ENTRY_REFUSED: u64 = 10;
const RESULT: u64 = 11;
const REFUSED: u64 = 12;
const REPORT: u64 = 13;
const PIPE: u64 = 14;
const TAGS: u64 = 15;
const OFFER: u64 = 16;
const BELIEVED: u64 = 17;
const LIST: u64 = 18;
const LISTED: u64 = 19;
const UNLISTED: u64 = 20;
const LIST_END: u64 = 21;
const DELETED: u64 = 22;
const NOT_DELETED: u64 = 23;
const COMPARE: u64 = 26;
const NAMES: u64 = 27;
const RATE: u64 = 29;
const VERIFY: u64 = 28;
const HASHED: u64 = 30;
const LEFTOVERS: u64 = 37;
const LEFT: u64 = 38;
const ELSEWHERE: u64 = 39;

#[cfg(test)]
mod tests;
