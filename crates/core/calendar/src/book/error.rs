use core::fmt;

use super::BookingId;
use crate::request::{LinkId, PlanError};

/// Why a booking could not be made or changed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BookError {
    /// There is no such booking: it has finished, was released, or never was.
    Unknown(BookingId),
    /// A booking with this identifier exists.
    Exists(BookingId),
    /// The plan holds nothing.
    EmptyPlan,
    /// Others have taken this since the plan was made.
    Taken {
        /// The link.
        link: LinkId,
        /// First tick of a range that is no longer free.
        start: u64,
        /// One past its last tick.
        end: u64,
    },
    /// A file was to be extended by time, or a hold by volume, or either by nothing.
    WrongKind,
    /// There is no plan.
    Plan(PlanError),
}

impl From<PlanError> for BookError {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}

impl fmt::Display for BookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(id) => write!(f, "there is no {id:?} any more"),
            Self::Exists(id) => write!(f, "{id:?} exists already"),
            Self::EmptyPlan => f.write_str("the plan holds nothing"),
            Self::Taken { link, start, end } => {
                write!(f, "{link:?} has been booked by others in [{start}, {end})")
            }
            Self::WrongKind => f.write_str("a file is extended by volume, a hold by time"),
            Self::Plan(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for BookError {}
