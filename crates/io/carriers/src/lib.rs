//! Carriers of the data of a connection: lanes over UDP on threads of their own, connections over TCP, the
//! memory that groups are in, and the monitor of the host that receives.
//!
//! [`connection::Lanes`] are the lanes of one connection over either carrier; whoever uses them is an
//! [`carrier::UpperLayer`]. Blocking threads and batches, no async runtime.

pub mod buffer;
pub mod carrier;
pub mod connection;
pub mod crew;
pub mod damaged;
pub mod host_monitor;
pub mod losses;
pub mod mailboxes;
pub mod protection;
pub mod tcp;
pub mod udp;
