//! Drivers: they carry bookings out on links.
//!
//! The service calls a [`Driver`] of a link at every boundary of bookings on it: a range begins,
//! ends, or changes its rate. Between calls nothing is asked of it. Adapters for other control
//! planes (OSCARS, NSI, SENSE) implement the same two calls, or are programs behind
//! [`Command`]; `docs/circuits.md` describes the exchange.

mod command;
mod error;
mod htb;
mod lease;

use std::net::IpAddr;

use serde::Serialize;

pub use self::command::Command;
pub use self::error::{DriverError, ProgramError};
pub use self::htb::Htb;
pub use self::lease::{Lease, LeaseError};
use crate::ledger::Id;

/// Switches the bookings of one link.
pub trait Driver: Send {
    /// Called once, before all else, by the thread that makes all other calls.
    ///
    /// # Errors
    /// Something will be worse than it could be.
    fn begin(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// A leader begins: whatever was left behind is taken away, and the link carries no bookings.
    /// From here on a driver switches nothing once the lease is over, nor for an earlier leader.
    ///
    /// # Errors
    /// The link may carry what was left behind.
    fn reset(&mut self, lease: &Lease) -> Result<(), DriverError>;

    /// From now on bookings have these rates; with rate 0 they end or pause. All of them are due,
    /// those that fall before those that rise. The driver calls `report` for each in this order,
    /// once it is done or has failed.
    fn set(
        &mut self,
        switches: &[Switch],
        report: &mut dyn FnMut(&Switch, Result<(), DriverError>),
    );
}

/// A change of rate that is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Switch {
    /// The link, by name.
    pub link: String,
    /// The booking.
    pub booking: Id,
    /// Its project.
    pub project: String,
    /// Its own words about itself.
    pub label: String,
    /// Its rate from now on, in bits per second.
    pub rate_bps: u64,
    /// When this was due, in nanoseconds since 1970; `None` when it was due at once: a booking that
    /// begins as it is made, or is changed or ended before its time.
    pub due_nanos: Option<u64>,
    /// When the rate changes next, in nanoseconds since 1970; `None` when the booking is over.
    pub until_nanos: Option<u64>,
    /// Destination address of the traffic.
    pub destination: Option<IpAddr>,
}
