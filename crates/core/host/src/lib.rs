//! Models of a host: the rate that it can take, the times when it does not, and the announcements that it
//! should make before it loses data.
//!
//! A [`Monitor`] takes samples of one end of a connection, each of them optional, and gives out
//! [`Announcement`]s: a limit with its cause, a suspend, its end. Below it are [`Stalls`] (for how long
//! readers were away), [`Service`] (what a reader processes in the share of a processor that it has),
//! [`Predictor`] (an autoregressive model with bounds) and [`Attribution`] (why a reader stood still). The
//! models, their constants and where these come from are in docs/host-awareness.md.
//!
//! The crate reads no clock, file or socket and knows nothing of a kernel: samplers are the
//! driver's. Silence of a signal is no evidence: a missing sample bounds nothing. Announcements
//! expire, so one that is lost hangs nobody.
//!
//! Contract: one monitor serves one end of a connection and is used by one thread at a time. Samples
//! are differences since the last one of their kind; times do not go back. Behind any `handle_*`, and
//! when [`Monitor::next_timeout`] has come, the caller polls [`Monitor::poll_announcement`] until there
//! is none.
//!
//! ```
//! use longhaul_host::{Announcement, Batch, Monitor, MonitorConfig, Socket, ThreadId};
//! use longhaul_units::{Duration, Instant};
//!
//! let at = |ms| Instant::ZERO + Duration::from_millis(ms);
//! let thread = ThreadId(0);
//! let mut monitor = Monitor::new(at(0), MonitorConfig::default());
//! monitor.handle_batch(at(1), thread, Batch { bytes: 64_000, packets: 44, ..Batch::default() });
//! assert_eq!(monitor.poll_announcement(at(1)), None);
//!
//! // The reader lost its processor, and its socket fills.
//! monitor.handle_absence(at(12), thread, at(2));
//! monitor.handle_socket(at(12), thread, Socket { queued: 150_000, limit: 212_992, drops: 0 });
//! assert!(matches!(monitor.poll_announcement(at(12)), Some(Announcement::Suspend { .. })));
//! monitor.handle_return(at(14), thread);
//! monitor.handle_socket(at(14), thread, Socket { queued: 30_000, limit: 212_992, drops: 0 });
//! assert_eq!(monitor.poll_announcement(at(14)), Some(Announcement::Resume));
//! assert_eq!(monitor.summary(at(14)).stalls.longest, Duration::from_millis(12));
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod announcement;
mod attribution;
mod interactivity;
mod monitor;
mod paptc;
mod prediction;
mod rapid;
mod service;
mod signals;
pub mod sim;
mod stalls;
mod suspend;

pub use announcement::Announcement;
pub use attribution::{Attribution, StallCause};
pub use interactivity::{Account, RunAndSleep, SleepAverage};
pub use monitor::{Limits, Monitor, MonitorConfig, Part, Summary};
pub use paptc::{Acknowledgement, Paptc};
pub use prediction::{Prediction, Predictor, PredictorConfig};
pub use rapid::{Rapid, RapidConfig};
pub use service::{Service, ServiceConfig};
pub use signals::{Batch, Disk, Socket, ThreadId, Turn};
pub use stalls::{StallSummary, Stalls};
pub use suspend::Suspends;
