use std::collections::BTreeMap;
use std::fmt;

use longhaul_calendar::{
    Allocation, BookError, FileRequest, HoldRequest, LinkId, Path, PlanError, Policy, Request,
    TrcVector,
};
use serde::{Deserialize, Serialize};

/// Identifier of a booking, in the order in which bookings were made.
pub type Id = u64;

/// Constants for the life of a ledger: units, and how the calendar plans.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Length of a tick, in nanoseconds.
    pub tick_nanos: u64,
    /// Rate of a channel, in bits per second.
    pub channel_bps: u64,
    /// Idle ticks after each change of rate.
    pub guard: u64,
    /// Ticks ahead of now that may be booked.
    pub horizon: u64,
    /// Share of the planned delay by which promises exceed plans, in parts per million.
    pub slack_ppm: u32,
    /// A release or cancellation re-plans the others if no more than this many are booked.
    pub replan_up_to: usize,
    /// Ticks for which idempotency keys are remembered.
    pub key_life: u64,
}

/// A link from one node to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// Node at which it begins.
    pub from: String,
    /// Node at which it ends.
    pub to: String,
    /// Channels.
    pub capacity: u32,
    /// Price of 10^12 bytes booked, in millionths of the currency.
    pub price_micros: u64,
}

/// Limits on the bookings of a project.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Quota {
    /// Part of the channel ticks of a link within the project's horizon that its open bookings
    /// may hold, in parts per million.
    pub share_ppm: u32,
    /// Ticks ahead of now that it may book.
    pub horizon: u64,
    /// Highest rate of a booking, in channels.
    pub max_rate: u32,
}

/// A request, in ticks and channels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Ask {
    /// So many channel ticks.
    File {
        /// Channel ticks, margin included.
        volume: u64,
        /// Rmax.
        max_rate: u32,
        /// Treq; 0 for as soon as possible.
        earliest: u64,
        /// One past the last tick.
        deadline: Option<u64>,
        /// Its placing in time.
        policy: Placing,
    },
    /// So much time.
    Hold {
        /// H.
        duration: u64,
        /// Rmin.
        min_rate: u32,
        /// Rmax.
        max_rate: u32,
        /// Treq; 0 for as soon as possible.
        earliest: u64,
        /// Last tick at which it may start.
        latest_start: Option<u64>,
    },
}

/// Placing of a file in time; see [`Policy`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Placing {
    /// All that is free, at once: the earliest finish.
    #[default]
    Earliest,
    /// As late as the deadline allows.
    Latest,
    /// The lowest peak rate that meets the deadline.
    LeastPeak,
    /// The maximum rate throughout.
    Fixed,
}

impl From<Placing> for Policy {
    fn from(placing: Placing) -> Self {
        match placing {
            Placing::Earliest => Self::Earliest,
            Placing::Latest => Self::Latest,
            Placing::LeastPeak => Self::LeastPeak,
            Placing::Fixed => Self::Fixed,
        }
    }
}

impl From<Policy> for Placing {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Earliest => Self::Earliest,
            Policy::Latest => Self::Latest,
            Policy::LeastPeak => Self::LeastPeak,
            Policy::Fixed => Self::Fixed,
        }
    }
}

impl Ask {
    /// The request with `now` as its start if it is to start as soon as possible.
    pub const fn at_once(self, now: u64) -> Self {
        match self {
            Self::File { volume, max_rate, earliest: 0, deadline, policy } => {
                Self::File { volume, max_rate, earliest: now, deadline, policy }
            }
            Self::Hold { duration, min_rate, max_rate, earliest: 0, latest_start } => {
                Self::Hold { duration, min_rate, max_rate, earliest: now, latest_start }
            }
            ask => ask,
        }
    }

    /// The request with a start no earlier than `tick`.
    pub fn not_before(mut self, tick: u64) -> Self {
        let (Self::File { earliest, .. } | Self::Hold { earliest, .. }) = &mut self;
        *earliest = tick.max(*earliest);
        self
    }
}

/// A plan for a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Chosen {
    /// The request.
    pub request: Ask,
    /// Path of the plan.
    pub path: Route,
    /// Vector of the plan.
    pub ranges: Ranges,
}

impl From<Ask> for Request {
    fn from(ask: Ask) -> Self {
        match ask {
            Ask::File { volume, max_rate, earliest, deadline, policy } => {
                let policy = policy.into();
                Self::File(FileRequest { volume, max_rate, earliest, deadline, policy })
            }
            Ask::Hold { duration, min_rate, max_rate, earliest, latest_start } => {
                Self::Hold(HoldRequest { duration, min_rate, max_rate, earliest, latest_start })
            }
        }
    }
}

impl From<Request> for Ask {
    fn from(request: Request) -> Self {
        match request {
            Request::File(file) => Self::File {
                volume: file.volume,
                max_rate: file.max_rate,
                earliest: file.earliest,
                deadline: file.deadline,
                policy: file.policy.into(),
            },
            Request::Hold(hold) => Self::Hold {
                duration: hold.duration,
                min_rate: hold.min_rate,
                max_rate: hold.max_rate,
                earliest: hold.earliest,
                latest_start: hold.latest_start,
            },
        }
    }
}

/// A time-range-capacity vector as triples (first tick, one past the last, channels).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ranges(pub Vec<(u64, u64, u32)>);

impl Ranges {
    /// The ranges as the calendar keeps them.
    pub fn of(vector: &TrcVector) -> Self {
        Self(vector.ranges().map(|r| (r.start, r.end, r.rate)).collect())
    }

    /// The vector, `None` if these are not ranges of one.
    pub fn vector(&self, guard: u64) -> Option<TrcVector> {
        let range = |&(start, end, rate): &(u64, u64, u32)| Allocation { start, end, rate };
        TrcVector::new(self.0.iter().map(range).collect(), guard)
    }
}

/// A path as the numbers of its links.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Route(pub Vec<u32>);

impl Route {
    /// The links of a path.
    pub fn of(path: &Path) -> Self {
        Self(path.links().iter().map(|link| link.0).collect())
    }

    /// The path, `None` if there is none like this.
    pub fn path(&self) -> Option<Path> {
        let links: Vec<LinkId> = self.0.iter().map(|link| LinkId(*link)).collect();
        Path::new(&links)
    }
}

/// A booking's own words about itself, beside its request.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Note {
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Bytes of a file, without margin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Margin of a file for what is sent again, in parts per million.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub margin_ppm: u32,
    /// Destination address of the traffic, for drivers that sort packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<std::net::IpAddr>,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// A command to a ledger.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Command {
    /// The first of every ledger.
    Found(Rules),
    /// Replaces the projects and what they may book.
    SetProjects {
        /// By name.
        projects: BTreeMap<String, Quota>,
    },
    /// Adds a link.
    AddLink(LinkSpec),
    /// Plans and books, all or none; several requests are occurrences of a series.
    Book {
        /// The requests.
        requests: Vec<Ask>,
        /// Candidate paths.
        paths: Vec<Route>,
        /// The booking lapses at this tick unless it is committed.
        held_until: Option<u64>,
        /// Its own words about itself.
        note: Note,
    },
    /// Books plans as they were quoted, all or none; several are occurrences of a series.
    Take {
        /// The plans.
        plans: Vec<Chosen>,
        /// Its own words about itself.
        note: Note,
    },
    /// Commits a booking that is held.
    Commit {
        /// Which.
        id: Id,
    },
    /// Changes what a booking is for.
    Modify {
        /// Which.
        id: Id,
        /// Its new request.
        request: Ask,
        /// Candidate paths.
        paths: Vec<Route>,
        /// Bytes of a file, without margin.
        bytes: Option<u64>,
    },
    /// Adds channel ticks to a file, or ticks to a hold.
    Extend {
        /// Which.
        id: Id,
        /// The number of them.
        by: u64,
        /// Bytes added to a file, without margin.
        bytes: Option<u64>,
    },
    /// Ends a booking whose work is done.
    Release {
        /// Which.
        id: Id,
    },
    /// Ends a booking, or a whole series, that is not wanted.
    Cancel {
        /// Which, or the first of the series.
        id: Id,
        /// Its whole series.
        series: bool,
    },
    /// Plans all bookings that may move again.
    Replan,
}

/// A command and who gives it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Name of the token.
    pub actor: String,
    /// The project in whose name it is given.
    pub project: String,
    /// The actor may touch what belongs to other projects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub operator: bool,
    /// Idempotency key and fingerprint of the request that came with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<(String, String)>,
    /// The command.
    pub command: Command,
}

/// An effect of a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The projects or the rules were set.
    Set,
    /// A link was added.
    LinkAdded {
        /// Its number.
        link: u32,
    },
    /// A booking was made, or held.
    Booked {
        /// Its identifier.
        id: Id,
        /// First of its series.
        series: Option<Id>,
        /// It lapses then.
        held_until: Option<u64>,
        /// The capacity it holds.
        place: Place,
    },
    /// A held booking was committed.
    Committed {
        /// Which.
        id: Id,
    },
    /// A booking is for something else now.
    Modified {
        /// Which.
        id: Id,
        /// The capacity it holds.
        place: Place,
    },
    /// A booking was extended.
    Extended {
        /// Which.
        id: Id,
        /// The capacity it holds.
        place: Place,
    },
    /// A booking was ended by its owner: done.
    Released {
        /// Which.
        id: Id,
    },
    /// A booking was ended by its owner: not wanted.
    Cancelled {
        /// Which.
        id: Id,
    },
    /// Bookings were moved within their promises.
    Replanned {
        /// Identifiers and what they hold now.
        moved: Vec<(Id, Ranges)>,
    },
}

impl Event {
    /// The booking that was made, ended or changed at its owner's wish.
    pub fn id(&self) -> Option<Id> {
        match self {
            Self::Booked { id, .. }
            | Self::Committed { id }
            | Self::Modified { id, .. }
            | Self::Extended { id, .. }
            | Self::Released { id }
            | Self::Cancelled { id } => Some(*id),
            Self::Set | Self::LinkAdded { .. } | Self::Replanned { .. } => None,
        }
    }
}

/// The capacity that a booking holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The request it was planned for.
    pub request: Ask,
    /// Where.
    pub path: Route,
    /// When, and how much.
    pub ranges: Ranges,
    /// The finish that was promised.
    pub promise: u64,
}

/// Why nothing was done. Ticks are those of the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such booking, or it belongs to others.
    UnknownBooking {
        /// Which.
        id: Id,
    },
    /// It has finished, was released or cancelled before.
    Closed {
        /// Which.
        id: Id,
        /// Its last state.
        state: String,
    },
    /// It is not held: it was committed before.
    NotHeld {
        /// Which.
        id: Id,
    },
    /// There is no such project.
    UnknownProject,
    /// A link of this name exists.
    LinkExists {
        /// The name.
        name: String,
    },
    /// Not for this role.
    NotAllowed,
    /// The key came before with another request.
    KeyReused,
    /// The rate is above what the project may book.
    RateQuota {
        /// Channels that it may.
        max_rate: u32,
    },
    /// The booking would lie beyond the project's horizon.
    HorizonQuota {
        /// One past the last tick that it may book.
        until: u64,
    },
    /// The project would hold more than its share.
    ShareQuota {
        /// The link.
        link: u32,
        /// Channel ticks that it holds.
        held: u64,
        /// Channel ticks that it may hold.
        limit: u64,
    },
    /// Others have taken what was quoted.
    Taken {
        /// The link.
        link: u32,
        /// First tick.
        start: u64,
        /// One past the last.
        end: u64,
    },
    /// A file is extended by volume, a hold by time; neither by nothing; neither becomes the other.
    WrongKind,
    /// There is not enough capacity.
    NoRoom {
        /// Which of several requests.
        occurrence: usize,
    },
    /// The start has passed.
    Past {
        /// Now.
        now: u64,
    },
    /// The start, or the end of what is extended, lies beyond the horizon.
    BeyondHorizon {
        /// One past the last tick that may be booked.
        until: u64,
    },
    /// The request makes no sense whatever is booked.
    Unsound {
        /// Why.
        why: String,
    },
}

impl Refusal {
    pub(crate) fn of_plan(error: PlanError, occurrence: usize) -> Self {
        match error {
            PlanError::NoRoom => Self::NoRoom { occurrence },
            PlanError::Past(now) => Self::Past { now },
            PlanError::BeyondHorizon(until) => Self::BeyondHorizon { until },
            other => Self::Unsound { why: other.to_string() },
        }
    }

    pub(super) fn of_book(error: BookError, id: Id) -> Self {
        match error {
            BookError::Plan(error) => Self::of_plan(error, 0),
            BookError::Taken { link, start, end } => Self::Taken { link: link.0, start, end },
            BookError::WrongKind => Self::WrongKind,
            BookError::Unknown(_) => Self::UnknownBooking { id },
            other => Self::Unsound { why: other.to_string() },
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownBooking { id } => write!(f, "there is no booking {id} of this project"),
            Self::Closed { id, state } => write!(f, "booking {id} is {state} already"),
            Self::NotHeld { id } => write!(f, "booking {id} is committed already"),
            Self::UnknownProject => f.write_str("this project is not known"),
            Self::LinkExists { name } => write!(f, "there is a link {name} already"),
            Self::NotAllowed => f.write_str("this takes the role of an operator"),
            Self::KeyReused => f.write_str("this idempotency key came with another request before"),
            Self::RateQuota { .. } => f.write_str("the rate is above what the project may book"),
            Self::HorizonQuota { .. } => {
                f.write_str("the booking would lie beyond the project's horizon")
            }
            Self::ShareQuota { .. } => {
                f.write_str("the project would hold more than its share of a link")
            }
            Self::Taken { .. } => f.write_str("others have taken what was quoted"),
            Self::WrongKind => f.write_str(
                "a file is extended by bytes and a hold by time, and neither becomes the other",
            ),
            Self::NoRoom { .. } => f.write_str("there is not enough free capacity in time"),
            Self::Past { .. } => f.write_str("the start lies in the past"),
            Self::BeyondHorizon { .. } => f.write_str("the booking would lie beyond the horizon"),
            Self::Unsound { why } => f.write_str(why),
        }
    }
}

/// One line of the log: an order that was carried out, when, and what it did. What was refused has
/// changed nothing and is not in the log, so that nobody fills it with what he may not have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Position in the log, from 1.
    pub seq: u64,
    /// When it was decided.
    pub tick: u64,
    /// The order, and who gave it.
    pub order: Order,
    /// Its effects.
    pub outcome: Vec<Event>,
}
