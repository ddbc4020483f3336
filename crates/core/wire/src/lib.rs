//! Every byte of the Longhaul protocol (docs/protocol.md): reading and writing, nothing else.
//!
//! The crate keeps no state, opens and seals nothing, and does not judge whether a message is
//! allowed at its time; `longhaul-session`, `longhaul-engine` and `longhaul-objects` do.
//!
//! Contract:
//! - reading never panics and never reserves memory by a length that the peer claims, whatever
//!   the bytes; every length and reserved bit is checked, and bytes left over are an error;
//! - what was written reads back as the same value;
//! - writing fails with [`Full`] and changes nothing when there is no room.
//!
//! ```
//! use longhaul_wire::{Frame, Frames, Writer};
//!
//! let mut buffer = [0; 64];
//! let mut writer = Writer::new(&mut buffer);
//! Frame::Ping.encode(&mut writer).unwrap();
//! Frame::Challenge(*b"12345678").encode(&mut writer).unwrap();
//! let len = writer.len();
//!
//! let frames: Result<Vec<_>, _> = Frames::new(&buffer[..len]).collect();
//! assert_eq!(frames.unwrap(), [Frame::Ping, Frame::Challenge(*b"12345678")]);
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod close;
mod error;
mod frame;
mod handshake;
mod header;
mod message;
mod options;
mod reader;
mod ssh;
mod tcp_record;
mod units;
pub mod varint;
mod writer;

pub use close::{CloseCode, MAX_REASON};
pub use error::{DecodeError, Full};
pub use frame::{
    Feedback, Frame, Frames, MAX_LIMIT, MAX_SUSPEND, Ranges, ReceivedRanges, ReceiverBounds,
    ReceiverLimit, State, stream_room,
};
pub use handshake::{
    CONTROL_HEADER_LEN, Carrier, Cipher, ControlMessage, Hello, MAX_HANDSHAKE_BODY,
    MAX_IMPLEMENTATION, MAX_LANES, MAX_PARAMETERS, MAX_PROFILE, MONITOR_LANE, PROTOCOL_VERSION,
    Protect, ReceiveLimits, Welcome,
};
pub use header::{
    AEAD_TAG_LEN, BASE_DATAGRAM, CLEAR_TAG_LEN, ConnectionId, HEADER_LEN, Header, Kind,
    MAX_EPOCH_PACKETS, MAX_EPOCHS, OBJECT_HEADER_LEN, ObjectHeader,
};
/// Types that messages and frames name.
pub use longhaul_units::{Bottleneck, EntryCode, Losses};
pub use message::{
    AccessEntry, AccessList, Account, AnswerMessage, AskedPart, Attributes, DataRanges, Deletes,
    Direction, Entry, EntryEnd, EntryKind, EntryPath, FileHashes, FilterKind, FilterRule, HardLink,
    HashOutcome, Hashed, HostAccount, HostLosses, InvalidPath, KeptAttributes, Left, LeftState,
    LeftoversRequest, ListRequest, Listed, ListedKind, ListedName, MAX_ATTRIBUTES, MAX_DATA_RANGES,
    MAX_MESSAGE, MAX_PATH, MAX_PIPE_NAME, MAX_RULES, ManifestObject, Message, MessageReader,
    Metadata, OTHER_NAMES_MAX, Offered, PipeRequest, PipeRole, Question, Refused, Request,
    SinkMessage, SourceMessage, SourceReport, StallTimes, Summary, VerifyRequest, Xattr, names_of,
};
pub use options::{CRITICAL_OPTION, OptionField, option_fields};
pub use reader::Reader;
pub use ssh::{
    MAX_SSH_DATA, MAX_SSH_NOISE, MAX_SSH_PORTS, SSH_MARK_LEN, SSH_VERSION, SSH_WINDOW, SshAnswer,
    SshAsk, SshEntry, SshFrame, SshOnward, SshPurpose, SshRefusal, SshServing, SshTaken,
};
pub use tcp_record::{
    JOIN_LEN, Join, MAX_FRAMES_RECORD, MAX_OBJECT_RECORD, MAX_RECORD_HEAD, RecordHead,
};
pub use writer::Writer;
