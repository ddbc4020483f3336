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
//! Of the shared half there are what is said on stream 0 ([`Conversation`]), the rule of dealing ([`Dealing`]), that which lets a group in ([`let_in`]),
//! what names the bottleneck ([`Diagnosis`]) and what ends a transfer that stands still ([`Watchdog`]).
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

mod conversation;
mod dealing;
mod diagnosis;
mod incoming;
mod lane_half;
mod messages;
mod protect;
mod receive;
mod run;
mod send;
mod silence;
mod spent;
mod values;
mod watchdog;

pub use conversation::{Conversation, Heard, Misspoken, Part, Wish};
pub use dealing::Dealing;
pub use diagnosis::{Diagnosis, ReceivingSide, SendingSide, Stage, Stages, Times};
pub use incoming::{Begun, GroupPart, Groups, Incoming, Slot, Unplaceable, WholeGroup, let_in};
pub use lane_half::{LaneHalf, SharedPath};
/// Why a datagram was not sent.
pub use longhaul_engine::NotSent;
pub use protect::{Forged, Opener, Sealer};
pub use receive::{DATAGRAMS_MAX, ReadBatch};
pub use run::Run;
pub use send::Datagrams;
pub use silence::Silence;
pub use spent::Spent;
pub use values::{CREDIT_STEP, News, Order, Repair, Repairs, Standing};
pub use watchdog::{Counts, Watchdog, lasts_at_receiver, lasts_at_sender};
