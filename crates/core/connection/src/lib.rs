//! What joins the parts of a connection: packets become groups, groups become packets, messages
//! go in between.
//!
//! Sans-IO: no socket, clock, thread, key or file. It holds the *lane half* of a connection
//! ([`LaneHalf`]): everything that one thread does for one lane. Whoever drives it owns the socket,
//! the memory of groups, the keys ([`Opener`], [`Sealer`]) and the [`Path`](longhaul_engine::Path),
//! which lanes share. The other half, which is common to all lanes of a connection, speaks to a lane
//! by values only: [`Order`]s, [`Repair`]s and a [`Standing`] go in, [`News`] come out, and all may be late.
//! Product and simulation drive the same code.
//!
//! The shared half ([`SharedHalf`]) joins what is said on stream 0 ([`Conversation`]); the [`Transfer`],
//! what is dealt to lanes and what becomes of what arrives, for copies ([`OutgoingCopy`],
//! [`IncomingCopy`]) and pipes ([`OutgoingPipe`], [`IncomingPipe`]); and what looks at it now and then
//! ([`Watch`]): how much memory it may take, what holds it up, and whether it goes on. What holds for
//! all paths together is divided among them ([`ConnectionLimits`]).
//!
//! ```
//! use longhaul_connection::{LaneHalf, Order, Standing};
//! use longhaul_engine::{LaneConfig, Role};
//! use longhaul_units::{Extent, Instant, LaneId, ObjectId};
//! use longhaul_wire::ConnectionId;
//!
//! let now = Instant::from_nanos(0);
//! let config = LaneConfig::new(ConnectionId(7), LaneId(0), Role::Client, 1);
//! let mut lane = LaneHalf::<Vec<u8>, Vec<u8>>::new(now, config);
//! let extent = Extent { object: ObjectId(0), offset: 0, len: 5 };
//! lane.handle_order(now, Order::Offer { extent, bytes: b"hello".to_vec() });
//! lane.handle_standing(&Standing::default());
//! assert_eq!(lane.engine().backlog(), 5);
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod carrying;
mod conversation;
mod dealing;
mod diagnosis;
mod gate;
mod incoming;
mod incoming_copy;
mod incoming_pipe;
mod lane_half;
mod limits;
mod memory;
mod messages;
mod outgoing_copy;
mod outgoing_pipe;
mod pairs;
mod paths;
mod protect;
mod pulse;
mod race;
mod receive;
mod record_half;
mod run;
mod send;
mod shared_half;
mod shares;
mod silence;
mod spent;
mod transfer;
mod values;
mod watch;
mod watchdog;

pub use carrying::Carrying;
pub use conversation::{Conversation, Heard, Misspoken, Part, Wish};
pub use dealing::Dealing;
pub use diagnosis::{Stage, Stages, Times};

pub(crate) use diagnosis::{Diagnosis, ReceivingSide, SendingSide};
pub use gate::{Gate, Hunger, Lanes, Outlook};
pub use incoming::{Begun, GivenUp, GroupPart, Groups, Incoming, Slot, Unplaceable, WholeGroup};
pub use incoming_copy::{ArrivedGroup, IncomingCopy};
pub use incoming_pipe::{IncomingPipe, PipeStep};
pub use lane_half::{LaneHalf, SharedPath};
pub use limits::ConnectionLimits;
/// Why a datagram was not sent.
pub use longhaul_engine::NotSent;
pub use memory::{SinkMemory, Stored, buffers};
pub use messages::MessageLane;
pub use outgoing_copy::{OutgoingCopy, Wanted};
pub use outgoing_pipe::{OutgoingPipe, PieceOffer, PipeFull};
pub use paths::{Move, MoveAsked, Offer, PathSeen, Paths};
pub use protect::{Forged, Opener, Sealer};
pub use pulse::SILENCE;
pub use race::{Race, RaceStep, TcpProgress};
pub use receive::{DATAGRAMS_MAX, ReadBatch};
pub use record_half::{Place, RecordHalf, RecordSeals};
pub use run::Run;
pub use send::Datagrams;
pub use shared_half::SharedHalf;
pub use silence::Silence;
pub use spent::Spent;
pub use transfer::{End, Transfer, Violation, Work};
pub use values::{CREDIT_STEP, News, Order, Over, Repair, Repairs, Standing};
pub use watch::{CarrierSeen, Watch};
pub use watchdog::{Counts, Watchdog};

pub(crate) use watchdog::{lasts_at_receiver, lasts_at_sender};
