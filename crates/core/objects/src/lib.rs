//! Contents of a transfer, apart from their transport: manifest, hash groups, repair and resuming
//! (docs/protocol.md section 7, docs/objects.md).
//!
//! Two state machines face each other. [`Source`] holds the files: it makes objects of them and
//! says which group is to be read and sent next. [`Sink`] receives: it says what is to be done
//! with its storage so that every file appears under its name whole, verified and durable, or
//! not at all, and that an interrupted transfer goes on where it was. Neither knows how bytes
//! travel, and neither touches files, clocks or threads; payload does not pass through them.
//!
//! [`PipeSource`] and [`PipeSink`] do the same for bytes of unknown number, in order.
//!
//! Not in this crate: it does not encode messages (that is `longhaul-wire`), does not
//! decide where files go (the driver maps entries to a destination and confines them to it), and
//! does not read or write.
//!
//! The threads that receive work with three things of their own: [`ObjectTable`], a snapshot
//! that tells where a packet belongs; [`GroupAssembly`], which bytes of a group have arrived;
//! and [`hash::group_chaining_value`].
//!
//! ```
//! use longhaul_objects::hash::group_chaining_value;
//! use longhaul_objects::testing::{MemoryStorage, file};
//! use longhaul_objects::{Sink, SinkConfig, Source, Verdict, storage};
//! use longhaul_units::Instant;
//!
//! let mut source = Source::default();
//! source.push_entry(file("hello", 5)).unwrap();
//! source.finish_entries();
//! let mut sink = Sink::new(SinkConfig::default(), Default::default());
//! let mut disk = MemoryStorage::new();
//!
//! while !source.is_done() {
//!     while let Some(message) = source.poll_message() {
//!         sink.handle(message).unwrap();
//!     }
//!     while let Some(task) = source.next_group(sink.credit()) {
//!         let data = b"world"; // The bytes that task.pieces name.
//!         let value = group_chaining_value(data, task.group, task.only);
//!         source.group_hashed(task.object, task.group, value);
//!         // The bytes travel; the sink hashes what arrived.
//!         match sink.group_received(task.object, task.group, value) {
//!             Verdict::Write(write) => {
//!                 let failed = storage::write(&mut disk, &write, data);
//!                 sink.group_written(&write, &failed);
//!             }
//!             other => panic!("{other:?}"),
//!         }
//!     }
//!     while let Some(action) = sink.poll_action(Instant::ZERO) {
//!         let answer = storage::perform(&mut disk, action).unwrap();
//!         sink.handle_answer(answer);
//!     }
//!     while let Some(message) = sink.poll_message() {
//!         source.handle(message).unwrap();
//!     }
//! }
//! assert_eq!(disk.contents(b"hello"), Some(&b"world"[..]));
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod action;
mod assembly;
mod carried;
mod changes;
mod directory;
mod ended;
mod entry;
mod group_tree;
pub mod hash;
mod intake;
mod layout;
pub mod limits;
mod name_list;
mod name_memory;
mod names;
mod paths;
mod pipe;
pub mod record;
mod sink;
mod source;
pub mod storage;
mod table;
mod tags;
pub mod testing;
mod window;

pub use action::{
    Action, Answer, Checked, Checkpoint, Compared, ComparedFile, Deletion, EqualGroups, Existing,
    ExistingEntry, FilledDirectory, FirstName, Made, NamedEntry, NamedFile, Prepared, Publication,
    RecordedFile, Verdict, WritePiece, WriteTask,
};
pub use assembly::GroupAssembly;
pub use carried::CarriedEntries;
pub use changes::{ChangeKind, NamedChange};
pub use directory::{Directory, Named};
pub use ended::{Deletions, EndedEntry, Stayed};
pub use entry::{EntryError, EntryId, EntryKey, FileIdentity, TempName, identity, is_large};
pub use group_tree::GroupTree;
pub use hash::ChainingValue;
pub use intake::Intake;
pub use name_list::{NAME_LIST_MAX, NameList, NameListError};
pub use names::{NamePatterns, TopNames};
pub use paths::{Announced, AnnouncedPaths};
pub use pipe::{Piece, PipeError, PipeSink, PipeSinkEvent, PipeSource, PipeSourceEvent};
pub use record::{Fsync, ResumeState, Stamp};
pub use sink::{Keeps, Sink, SinkConfig, SinkError, SinkStats};
pub use source::{Comparison, GroupTask, PushError, ReadPiece, Source, SourceError, SourceStats};
pub use table::{ObjectTable, PlaceError, Placement};
pub use tags::{Belief, Tag, TagKey};
