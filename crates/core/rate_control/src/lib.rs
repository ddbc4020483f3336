//! Decides how fast a sender may send.
//!
//! A [`Controller`] turns what the receiver reports into a [`Pacing`]: a rate, a burst and an
//! optional cap on bytes in flight. A [`Governor`] takes the minimum of that and of every other
//! bound (user, both hosts) and names the one that is active. A [`Pacer`] turns the
//! result into departure times. [`RttEstimator`], [`DeliveryMeter`] and [`Estimates`] make the figures
//! that controllers read. A [`Profile`] names a whole protocol: a way to repair, a schedule of
//! feedback and a controller. The
//! models behind the controllers, and where they come from, are in docs/rate-control.md.
//!
//! The crate never sees a packet, a number or a clock, keeps no ledger, and knows nothing of
//! policy: controllers do not hear of hosts or disks, and of the user's limit only what it says of the
//! path.
//!
//! Contract: one controller serves all lanes of a path and is used by one thread at a time. The
//! caller reports every batch sent, every feedback frame that brought news (docs/protocol.md 5.4; to the
//! estimates first, then to the controller, then to the governor) and every probe timeout, calls [`Controller::on_timeout`] when [`Controller::next_timeout`] has
//! come, and reads [`Controller::pacing`] after any of these. All sizes are bytes at the IP layer,
//! headers included.
//!
//! ```
//! use longhaul_rate_control::{Governor, Pacer, Profile};
//! use longhaul_units::{Bottleneck, Instant, Rate};
//!
//! let chosen = Profile::wished(Some("auto"), None, []).unwrap();
//! let now = Instant::from_nanos(1);
//! let controller = chosen.controller(now, 1500, None);
//!
//! let mut governor = Governor::new(now, chosen.profile.heeds_receiver);
//! governor.set(Bottleneck::UserLimit, Rate::from_mbps(1));
//! let (pacing, bound) = governor.allow(controller.pacing());
//! assert_eq!((pacing.rate, bound), (Rate::from_mbps(1), Bottleneck::UserLimit));
//!
//! let mut pacer = Pacer::new(now, pacing);
//! assert_eq!(pacer.earliest(now, 1500), None); // now
//! pacer.on_sent(now, pacing.burst);
//! assert!(pacer.earliest(now, 1500) > Some(now));
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod burst;
mod controller;
mod controllers;
mod delivery;
mod division;
mod estimates;
mod feedback;
mod filter;
mod governor;
mod losses;
mod memory;
mod pacer;
mod parameters;
mod path_memory;
mod profile;
mod receiver;
mod repair;
mod rtt;
mod sender;
mod spans;

pub use burst::useful_burst;
pub use controller::{Context, Controller, ControllerConfig, Known, Metrics, Pacing, Sent, Start};
pub use controllers::{
    Auto, AutoConfig, Bbr, BbrConfig, Cubic, CubicConfig, Fixed, FixedConfig, FobsConfig,
    FobsLinearConfig, FobsStateConfig, LambdaStreamConfig, PaptcConfig, Pcc, PccConfig,
    RapidConfig, SabulConfig, Scavenger, ScavengerConfig, TimeRange, Trc, TrcConfig, TsunamiConfig,
    UdtConfig, UnlimitedConfig, Vector, VectorError,
};
pub use delivery::{DeliveryMeter, DeliveryReport};
pub use division::Division;
pub use estimates::Estimates;
pub use feedback::{Delivery, Feedback, HostLimit, ReceiverState};
pub use governor::Governor;
pub use longhaul_units::MemoryUse;
pub use memory::MemoryBudget;
pub use pacer::Pacer;
pub use parameters::{Parameter, Parameters, Unit, WrongParameter};
pub use path_memory::{FORGOTTEN, Observation, PathMemory, Remembered};
pub use profile::{ChosenProfile, FeedbackSchedule, Profile, ReceiverPart, Unplayable};
pub use repair::{ChunkSizes, Repair};
pub use rtt::RttEstimator;
pub use spans::{Span, SpanMeter, SpanSizes};
