//! The parts of a connection, joined: packets become groups, groups become packets, messages
//! go in between.
//!
//! Sans-IO: no socket, clock, thread, key or file. It holds the *lane half* of a connection
//! ([`LaneHalf`]): everything that one thread does for one lane. Its driver owns the socket,
//! the memory of groups, the keys ([`Opener`], [`Sealer`]) and the [`Path`](longhaul_engine::Path),
//! which lanes share. The other half, which is common to all lanes of a connection, speaks to a lane
//! by values only: [`Order`]s, [`Repair`]s and a [`Standing`] go in, [`News`] come out, and all may be late.
//! Product and simulation drive the same code.
//!
//! The shared half ([`SharedHalf`]) joins the messages of stream 0 ([`Conversation`]); the [`Transfer`],
//! which deals groups to lanes and takes those that arrive, for copies ([`OutgoingCopy`],
//! [`IncomingCopy`]) and pipes ([`OutgoingPipe`], [`IncomingPipe`]); and the [`Watch`], which looks at
//! it now and then: its memory, its bottleneck, and its progress. [`ConnectionLimits`] divides the
//! limits of all paths together among them. A [`Multiplexer`] carries whole connections in the streams of
//! another program.
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

mod answer_queue;
mod bottleneck_times;
mod conversation;
mod dealing;
mod diagnosis;
mod gate;
mod half_messages;
mod incoming;
mod incoming_answers;
mod incoming_copy;
mod incoming_pipe;
mod lane_assignment;
mod lane_half;
mod limits;
mod listed_names;
mod memory;
mod messages;
mod multiplexer;
mod outgoing_answers;
mod outgoing_copy;
mod outgoing_pipe;
mod path_liveness;
mod paths;
mod protect;
mod race;
mod receive;
mod record_half;
mod run;
mod send;
mod shared_half;
mod shared_path;
mod shares;
mod silence;
mod thread_time;
mod transfer;
mod watch;
mod watchdog;

pub use bottleneck_times::Carrying;
pub use conversation::{Conversation, Misspoken, Part, Received, Wish};
pub use dealing::Dealing;
pub use diagnosis::{Stage, Stages, Times};

pub use gate::{Gate, IdleTime, Lanes, Outlook};
pub use half_messages::{CREDIT_STEP, News, Order, Over, Repair, Repairs, Standing};
pub use half_messages::{GivenUp, WholeGroup};
pub use incoming::{Begun, GroupPart, Groups, Incoming, Slot, Unplaceable};
pub use incoming_answers::{AnswerError, IncomingAnswers};
pub use incoming_copy::{ArrivedGroup, IncomingCopy};
pub use incoming_pipe::{IncomingPipe, PipeStep};
pub use lane_half::LaneHalf;
pub use limits::ConnectionLimits;
/// Why a datagram was not sent.
pub use longhaul_engine::NotSent;
pub use memory::{SinkMemory, Stored, buffers};
pub use messages::MessageLane;
pub use multiplexer::{Multiplexer, MultiplexerEvent};
pub use outgoing_answers::OutgoingAnswers;
pub use outgoing_copy::{OutgoingCopy, Wanted};
pub use outgoing_pipe::{OutgoingPipe, PieceOffer, PipeFull};
pub use path_liveness::PathSeen;
pub use path_liveness::SILENCE;
pub use paths::{Move, MoveAsked, Offer, Paths};
pub use protect::{Opener, Sealer};
pub use race::{Race, RaceStep, TcpProgress};
pub use receive::{DATAGRAMS_MAX, ReadBatch};
pub use record_half::{Place, RecordHalf, RecordSeals};
pub use run::Forged;
pub use run::Run;
pub use send::Datagrams;
pub use shared_half::SharedHalf;
pub use shared_path::SharedPath;
pub use silence::Silence;
pub use thread_time::Spent;
pub use transfer::{End, HostFailure, Transfer, Violation, Work};
pub use watch::{CarrierSeen, Watch};
pub use watchdog::{Counts, Stalled, Watchdog};
