//! Carriers of the data of a connection: lanes over UDP on threads of their own, connections over TCP, the
//! memory that groups are in, and the monitor of the host that receives.
//!
//! A [`carrier::Carrier`] is one of them at work for a connection; what uses it is a
//! [`upper_layer::UpperLayer`]. Blocking threads and batches, no async runtime.

pub mod buffer;
pub mod carrier;
pub mod damaged;
pub mod host_monitor;
pub mod losses;
pub mod mailboxes;
pub mod protection;
pub mod tcp;
pub mod thread_group;
pub mod udp;
pub mod upper_layer;
