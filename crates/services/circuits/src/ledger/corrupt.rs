use longhaul_calendar::BookError;

use super::order::{Event, Refusal};

/// The log does not make a ledger: at this position it contradicts itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("record {seq} of the log is wrong: {why}")]
pub struct Corrupt {
    /// Position.
    pub seq: u64,
    /// The fault.
    pub why: Contradiction,
}

/// The fault of a record, or of a state that stands for records. The store is to blame, never a client.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Contradiction {
    /// The log begins with another order.
    #[error("the first record must found the ledger")]
    NotFounded,
    /// No tick or no channel has these rules.
    #[error("the rules make no grid")]
    NoGrid,
    /// Records are missing, or come twice.
    #[error("it follows record {0}")]
    Follows(u64),
    /// Time goes back.
    #[error("its tick {tick} lies before {now}")]
    Past {
        /// Its time.
        tick: u64,
        /// That of the record before it.
        now: u64,
    },
    /// Its event sets something, its order does not.
    #[error("it sets nothing")]
    SetsNothing,
    /// Its event adds a link, its order does not.
    #[error("it adds no link")]
    AddsNoLink,
    /// It changes a booking that is not open.
    #[error("there is no such booking")]
    NoBooking,
    /// Its booking takes no links, or one twice.
    #[error("its path is none")]
    NoPath,
    /// Ranges of its booking meet.
    #[error("its ranges make no vector")]
    NoVector,
    /// The calendar does not take it.
    #[error("{0}")]
    Book(#[from] BookError),
    /// A state cannot be read, or written.
    #[error("{0}")]
    Json(String),
    /// The fault is in the state that stands for this record and those before it.
    #[error("in the state after it, {0}")]
    InState(Box<Contradiction>),
    /// The order has another outcome.
    #[error("decided again it gives {0:?}")]
    Otherwise(Vec<Event>),
    /// The order came before.
    #[error("it repeats an earlier key")]
    Repeated,
    /// The order has no outcome.
    #[error("decided again it is refused: {0}")]
    Refused(Refusal),
    /// Two orders with one key have booked.
    #[error("the key {0} booked before")]
    KeyUsed(String),
    /// The records lead elsewhere.
    #[error("the state that was kept after it is another")]
    OtherState,
    /// The outcome differs from what was ordered.
    #[error("events and orders lead to different ledgers")]
    OtherLedger,
    /// Bookings exceed a link.
    #[error("{sum} of {capacity} channels of {link} are held at {tick}")]
    Exceeds {
        /// Channels that are held.
        sum: i64,
        /// Channels that there are.
        capacity: u32,
        /// The link.
        link: String,
        /// When.
        tick: u64,
    },
}

impl Corrupt {
    pub(super) const fn new(seq: u64, why: Contradiction) -> Self {
        Self { seq, why }
    }
}
